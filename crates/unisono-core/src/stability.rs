//! Stability: acceptance and purging follow from which members hold what.
//!
//! `ordering/acceptance.rs` decides what is accepted; here its consequences are drawn.

use crate::group::Group;
use crate::identity::{Seqno, Uid};
use crate::ordering::{Acceptance, Rule};
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::Time;

impl Group {
    /// Returns what acceptance follows from.
    fn acceptance(&self) -> Acceptance<'_> {
        Acceptance {
            log: &self.log,
            peers: &self.peers,
            me: self.me.uid,
            epoch_start: self.epoch_start,
            rule: self.rule(),
        }
    }

    /// Returns the group's rule for acceptance.
    pub(crate) fn rule(&self) -> Rule<'_> {
        Rule { resilience: self.config.resilience, quorum: self.quorum(), planted: self.planted() }
    }

    /// True if `uid` is known to hold everything through `seqno`.
    pub(crate) fn holds(&self, uid: Uid, seqno: Seqno) -> bool {
        self.acceptance().holds(uid, seqno)
    }

    /// Accepts everything that can be accepted (docs/protocol/sequencer.md: ACCEPT).
    pub(crate) fn accept(&mut self, now: Time) {
        if self.log.accepted() < self.log.received()
            && (!self.recovery.has_promised() || self.broken(Planted::AcceptAfterPromise))
        {
            self.accept_more(now);
        }
    }

    #[inline(never)]
    fn accept_more(&mut self, now: Time) {
        let before = self.log.accepted();
        let hint = self.acknowledging.accepted_hint().min(self.log.received());
        let told = self.acknowledging.accepted_hint();
        while self.log.accepted() < self.log.received() {
            let last = self.log.history().next_change_after(self.log.accepted()).unwrap_or(Seqno::MAX);
            let (through, is_to_be_told) = self.acceptance().through(self.log.accepted(), last, hint);
            self.log.accept_through(through);
            // A member that holds a message knows two holders, itself and the sequencer. It needs an announcement only
            // if a message needs more.
            // In a ring the next pass tells it, or the heartbeat of a token at rest.
            let tells = self.report_to().is_none() && (!self.is_ring() || self.order.has_asked_at_rest());
            if is_to_be_told && tells {
                let asks = self.waits_for_reports();
                self.order.beat_now(asks);
            }
            if through < last {
                break;
            }
        }
        if self.log.accepted() > before {
            if self.log.accepted() > told && self.report_to().is_some() {
                self.probe(Probe::AcceptedByOwnTable);
            }
            if self.report_to().is_none() && self.order.announced > before {
                self.probe(Probe::AcceptedByAck);
            }
            self.resolve_own(before);
            self.note_accepted(now, before);
        }
        if self.log.accepted() < self.log.received() {
            self.expect_acceptance(now);
        }
    }

    fn note_accepted(&mut self, now: Time, before: Seqno) {
        if self.report_to().is_some() && self.log.history().change_beyond(before).is_some() {
            self.acknowledging.report_now();
        }
        if self.joining.is_some() {
            self.enter_if_joined(now);
        }
        self.note_changes_accepted(before);
        if self.own_leave_is_logged() && self.log.accepted() >= self.log.history().last_change() {
            self.note_own_leave_accepted(now);
        }
    }

    /// Returns the seqno through which every member holds everything, as the sequencer counts it or has announced it.
    pub(crate) fn stable(&self) -> Seqno {
        self.stable_beyond(0)
    }

    /// Returns the seqno through which every member of the view holds everything; observers do not count.
    pub(crate) fn held_by_members(&self) -> Seqno {
        if self.report_to().is_some() {
            return self.stable();
        }
        let view = self.log.history().view();
        self.peers.held_by(view, view.len(), self.me.uid, self.log.received())
    }

    /// Returns [`Group::stable`] if that lies beyond `floor`; otherwise any seqno that does not.
    #[inline]
    fn stable_beyond(&self, floor: Seqno) -> Seqno {
        if self.broken(Planted::PurgeByOwnWatermark) {
            self.log.received()
        } else if self.report_to().is_none() {
            self.held_by_all_beyond(floor)
        } else {
            self.acknowledging.stable_hint().min(self.log.received())
        }
    }

    #[inline(never)]
    fn held_by_all_beyond(&self, floor: Seqno) -> Seqno {
        let mut stable = self.log.received();
        for member in self.log.history().view().iter() {
            if member.uid != self.me.uid {
                stable = stable.min(self.peers.get(member.uid).map_or(0, |peer| peer.received()));
                if stable <= floor {
                    return stable;
                }
            }
        }
        for peer in self.peers.iter() {
            let awaited = match *peer.standing() {
                Standing::Leaver { seqno, .. } => peer.received() < seqno,
                Standing::Observer { .. } => self.keeps_for(peer),
                Standing::Member => false,
            };
            if awaited {
                stable = stable.min(peer.received());
            }
        }
        stable
    }

    /// True if this member keeps the entries that an observer lacks. Without them a busy group would never admit the
    /// observer. They take at most half of what the history may hold, so that members do not wait long for a process
    /// that is no member.
    pub(crate) fn keeps_for(&self, observer: &Peer) -> bool {
        let lacks = self.log.received().saturating_sub(observer.received());
        lacks <= u64::from(self.config.history_messages) / 2
            && self.log.history().bytes() <= self.config.history_bytes / 2
            && observer.received() >= self.log.base()
    }

    /// Frees everything that every member holds and this one has accepted and delivered.
    pub(crate) fn purge(&mut self) {
        let mut through = self.log.needless_through();
        if self.report_to().is_none() || (self.is_ring() && self.order.announced < self.order.numbered) {
            // Observers are to receive it too.
            through = through.min(self.order.announced);
        }
        // `stable` comes last: a sequencer has to look at all members for it.
        if through > self.log.base() {
            through = through.min(self.stable_beyond(self.log.base()));
            if through > self.log.base() {
                self.log.free(through);
            }
        }
    }
}
