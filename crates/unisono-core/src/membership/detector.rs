//! Suspicion: the failure detector looks at the peers that this member watches, and a suspicion has its consequences.
//!
//! The sequencer watches every member, and every member watches the sequencer. While the sequencer is silent, the members
//! that would coordinate a reset watch all others: if some have died with it, the reset need not wait for their votes.
//! `peers/detector.rs` decides which of them is probed or suspected; here probes go out, and a suspected member leads to
//! a reset or to a notice.

use crate::episode::Episode;
use crate::event::{Event, Suspicion};
use crate::group::{Group, Phase};
use crate::identity::Uid;
use crate::peers::{Finding, Look, Peer, Standing};
use crate::planted::Probe;
use crate::time::{Time, earlier};
use crate::wire::Frame;
use alloc::vec::Vec;
use core::time::Duration;

/// Idle heartbeats that a member may miss beyond `silence` before it asks the sequencer for unicast copies.
const HEARTBEATS_MISSED: u32 = 2;
/// Number of members, the first in rank, that watch all others while the sequencer is silent: they may have to coordinate a
/// reset, and two of them may have died with it.
const HEIRS: usize = 3;

impl Group {
    /// Called first with every input. If the last deadline passed long ago, this process was not running, and silence
    /// meanwhile says next to nothing. It says something, though: otherwise a process that is always delayed would
    /// never suspect a dead member.
    #[inline]
    pub(crate) fn notice_sleep(&mut self, now: Time) {
        if let Some((deadline, _)) = self.poll_timeout()
            && now > deadline
        {
            self.notice_lateness(now, deadline);
        }
    }

    #[cold]
    fn notice_lateness(&mut self, now: Time, deadline: Time) {
        let Some(asleep) = self.detector.note_own_lateness(now, deadline) else { return };
        self.probe(Probe::WasAsleep);
        self.peers.iter_mut().for_each(|peer| peer.forgive(now, asleep));
        self.forgive_waiting(now, asleep);
        self.recovery.notice_sleep(now);
    }

    pub(crate) fn detector_timeout(&mut self, now: Time) {
        if self.detector.wake_at().is_some_and(|at| at <= now) {
            self.look(now);
        }
    }

    /// Looks at the peers when one is heard in a quiet group: this process is awake now, and need not be woken to look.
    pub(crate) fn look_ahead(&mut self, now: Time) {
        if self.detector.wake_at().is_some() {
            self.look(now);
        }
    }

    /// Looks at all watched peers, and sets when to look again.
    fn look(&mut self, now: Time) {
        self.detector.stop();
        let watching = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining)
            && !self.recovery.has_promised();
        if !watching {
            return;
        }
        let is_watched = |peer: &&Peer| self.watched(peer.uid(), peer.standing()) && peer.is_asked_on();
        let watched: Vec<Uid> = self.peers.iter().filter(is_watched).map(Peer::uid).collect();
        let mut next = Time::NEVER;
        for &uid in &watched {
            next = next.min(self.look_at_peer(now, uid));
        }
        if let Some(since) = self.sequencer_silent_since() {
            let is_other = |peer: &&Peer| self.votes(peer) && !watched.contains(&peer.uid());
            let others: Vec<Uid> = self.peers.iter().filter(is_other).map(Peer::uid).collect();
            for uid in others {
                next = next.min(self.probe_unwatched(now, uid, since));
            }
        }
        if next < Time::NEVER {
            self.detector.look_again_at(next);
        } else if self.is_ring() {
            // The log names this member, which lacks entries still. Soon there is another to watch.
            self.detector.look_again_at(now + self.silence());
        }
    }

    /// Returns how long a probe may stay unanswered; longer where members are seen to be late.
    pub(crate) fn patience(&self, now: Time) -> Duration {
        self.detector.patience(now, self.settings.patience)
    }

    /// Returns how long a peer may be silent; longer in larger groups, where each is heard less often.
    pub(crate) fn silence(&self) -> Duration {
        self.stretched(self.settings.silence)
    }

    /// Notes that a message is on its way to the sequencer, which owes it a number.
    pub(crate) fn expect_number(&mut self, now: Time) {
        self.detector.expect_number(now, self.silence());
    }

    /// Notes that an entry waits for its acceptance, behind those that were accepted.
    pub(crate) fn expect_acceptance(&mut self, now: Time) {
        self.detector.expect_acceptance(now, self.log.accepted() + 1, self.silence());
    }

    /// Returns since when a message waits for this peer.
    fn waits_for_since(&self, uid: Uid) -> Option<Time> {
        let (oldest, since) = self.detector.unaccepted();
        let is_behind = oldest == self.log.accepted() + 1 && oldest <= self.log.received();
        // The sequencer knows which members hold an entry. The others wait until it announces the acceptance.
        let unaccepted =
            (is_behind && !(self.report_to().is_none() && self.holds(uid, oldest))).then_some(since);
        let unnumbered = if self.submit_to() == Some(uid) { self.outbox.waits_since() } else { None };
        earlier(unaccepted, unnumbered)
    }

    /// Returns since when the sequencer is silent, if this member would be one of the first to coordinate a reset.
    fn sequencer_silent_since(&self) -> Option<Time> {
        let sequencer = self.report_to().and_then(|uid| self.peers.get(uid))?;
        let since = sequencer.silent_since().filter(|_| !sequencer.is_suspected())?;
        let view = self.log.history().view();
        let others = view.iter().map(|member| member.uid).filter(|uid| *uid != sequencer.uid());
        others.take(HEIRS).any(|uid| uid == self.me.uid).then_some(since)
    }

    /// True if a reset that begins now invites this peer: a member, or a leaver whose leave is not accepted.
    fn votes(&self, peer: &Peer) -> bool {
        match peer.standing() {
            Standing::Member => true,
            Standing::Leaver { seqno, .. } => *seqno > self.log.accepted(),
            Standing::Observer { .. } => false,
        }
    }

    /// Probes a member whose vote a reset may soon wait for, while it is silent. It is not suspected: its silence counts only
    /// in the reset. Returns when to look again.
    fn probe_unwatched(&mut self, now: Time, uid: Uid, since: Time) -> Time {
        let look = Look { is_watched: false, ..self.look_for(now, Some(since)) };
        let Some(peer) = self.peers.get_mut(uid) else { return Time::NEVER };
        peer.forget_probes_before(since);
        let finding = peer.look(now, &look);
        self.probe_if_due(now, uid, &look, finding).unwrap_or(now + look.silence)
    }

    /// Returns what is known before a look at a peer for which a message waits since then.
    fn look_for(&mut self, now: Time, waits_since: Option<Time>) -> Look {
        Look {
            silence: self.silence(),
            patience: self.patience(now),
            burst: self.settings.patience,
            is_watched: true,
            waits_since,
            term: self.term(),
            nonce: self.random.next_u64() | 1,
        }
    }

    /// Sends the probe that is due, if one is. Returns when to look again.
    ///
    /// # Errors
    /// Why the peer is to be suspected.
    fn probe_if_due(
        &mut self,
        now: Time,
        uid: Uid,
        look: &Look,
        finding: Finding,
    ) -> Result<Time, Suspicion> {
        match finding {
            Finding::Alive(until) | Finding::Waits(until) => Ok(until),
            Finding::Probe(nonce) => {
                self.post(uid, Frame::Probe { nonce });
                Ok(now + look.spacing())
            }
            Finding::Suspect(reason) => Err(reason),
        }
    }

    /// Looks at one peer; returns when to look again.
    fn look_at_peer(&mut self, now: Time, uid: Uid) -> Time {
        let waits_since = self.waits_for_since(uid);
        let look = self.look_for(now, waits_since);
        let (silence, is_named) = (look.silence, self.report_to() == Some(uid));
        let since = self.acknowledging.beat_at().max(self.epoch_entered_at);
        let goes_round = self.is_ring() && self.acknowledging.heard_multicast_within(now, silence);
        if is_named && !goes_round && now.since(since) >= silence + self.idle_period() * HEARTBEATS_MISSED {
            // The sequencer may answer unicasts while its multicasts do not arrive.
            self.acknowledging.note_beat(now);
            self.acknowledging.ask_for_copies();
        }
        let Some(peer) = self.peers.get_mut(uid) else { return Time::NEVER };
        if peer.is_suspected() {
            self.probe_now(now, uid);
            return now + silence;
        }
        let finding = peer.look(now, &look);
        // An overdue number alone says little about the path: messages under way may wait in a queue.
        if peer.last_heard() + silence <= now && is_named {
            self.acknowledging.ask_for_copies();
        }
        match self.probe_if_due(now, uid, &look, finding) {
            Ok(until) => until,
            Err(reason) => {
                if reason == Suspicion::Deaf {
                    self.probe(Probe::SuspectedDeaf);
                }
                self.suspect(now, uid, reason);
                let asked_on = self.peers.get(uid).is_some_and(Peer::is_asked_on);
                if asked_on { now + silence } else { Time::NEVER }
            }
        }
    }

    /// Handles an answer to a probe: the peer lives, and hears this member.
    pub(crate) fn handle_alive(&mut self, now: Time, from: Uid, nonce: u64) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        if let Some(since) = peer.take_answer(nonce) {
            self.note_hears_us(now, from);
            self.detector.note_answer(now, now.since(since));
            self.detector.look_soon(now);
            self.probe(Probe::ProbeAnswered);
            self.answer_invitation(now, from);
        }
    }

    /// Notes that the peer hears this member: it returned what was sent to it lately.
    pub(crate) fn note_hears_us(&mut self, now: Time, from: Uid) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.note_hears_us(now);
        if peer.suspected() == Some(Suspicion::Deaf) {
            self.suspect_no_longer(now, from);
        }
    }

    /// Clears a suspicion whose cause is over, unless a reset follows from it or is under way.
    #[cold]
    pub(crate) fn suspect_no_longer(&mut self, now: Time, uid: Uid) {
        if self.config.automatic || self.recovery.has_promised() {
            return;
        }
        if let Some(peer) = self.peers.get_mut(uid) {
            peer.suspect_no_longer();
            self.detector.look_soon(now);
        }
    }

    /// Probes a peer outside of any burst.
    pub(crate) fn probe_now(&mut self, now: Time, uid: Uid) {
        let nonce = self.random.next_u64() | 1;
        let (term, patience) = (self.term(), self.patience(now));
        let Some(peer) = self.peers.get_mut(uid) else { return };
        if let Some(nonce) = peer.probe(now, nonce, term, patience) {
            self.post(uid, Frame::Probe { nonce });
        }
    }

    /// Suspects a member. With the automatic policy a reset begins; otherwise the application gets `Suspected`.
    pub(crate) fn suspect(&mut self, now: Time, uid: Uid, reason: Suspicion) {
        // An application that has not entered yet cannot decide.
        let asks = self.phase == Phase::Joining && (!self.is_member() || !self.config.automatic);
        let Some(peer) = self.peers.get_mut(uid) else { return };
        if asks {
            // Its JOIN may have a seqno already, or the epoch may be over. A member that holds the JOIN, or that
            // entered the next epoch, will answer.
            peer.begin_anew(now);
            self.ask_around();
            for target in self.random_peer().into_iter().chain([uid]) {
                self.post(target, Frame::Inquiry);
            }
            return;
        }
        if !peer.suspect(reason) {
            return;
        }
        let member = peer.member().clone();
        self.episodes.push(Episode::Suspected { member, reason });
        // This member may be the one that was left behind.
        self.post(uid, Frame::Inquiry);
        self.counters.suspicions += 1;
        if self.config.automatic {
            self.begin_reset_soon(now);
        } else {
            self.notices.push_back(Event::Suspected { member: uid, reason });
        }
    }
}
