//! The failure detector: turns evidence and silence into suspicion with a reason. It never decides membership.
//!
//! The sequencer watches every member, and every member watches the sequencer. Any datagram from a peer is evidence
//! that it lives. The peer must also show from time to time that it hears this member, or it is deaf; a deaf sequencer
//! is as bad as a dead one. Silence alone makes no member suspected: after `silence` (the first knob) a burst of probes
//! is sent, and a peer that answers none within `patience` (the second knob) is suspected. A peer for which a message
//! waits is probed after a sixth of `silence`: the sequencer, while it owes a number to a message that was sent to it or
//! has not announced an entry as accepted; another member, while it has not acknowledged the oldest entry that is not
//! accepted. So a working group notices a loss at once, and an idle group need not probe all the time. Time in which this
//! process was itself asleep hardly counts for any peer's silence. Patience grows where members are seen to be late though
//! alive.

use crate::episode::Episode;
use crate::event::{Event, Suspicion};
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::peers::{Peer, Probing};
use crate::planted::Probe;
use crate::time::{Time, earlier};
use crate::wire::Frame;
use alloc::vec::Vec;
use core::time::Duration;

/// Idle heartbeats that a member may miss beyond `silence` before it asks the sequencer for unicast copies.
const HEARTBEATS_MISSED: u32 = 2;
/// Number of probes in a burst.
const PROBES: u32 = 12;
/// Minimum interval between two probes to one peer outside of a burst, however many inputs ask for one: the answer to
/// the last one may be on its way.
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// A peer for which a message waits is probed after `silence` divided by this.
const OWING: u32 = 6;
/// A peer must show that it hears this member at least once in six times `silence`.
const DEAF_AFTER_SILENCES: u32 = 6;
/// Called more than 40 ms late, this process was asleep: the time beyond counts for no peer's silence.
const ASLEEP: Duration = Duration::from_millis(40);
/// How many times in a row a peer under probing gets its full time again because this process was asleep.
const FRESH_STARTS: u32 = 3;

/// Patience grows by six times the strain.
const STRAINED: u32 = 6;
/// Upper limit of the strain that counts.
const STRAIN_MAX: Duration = Duration::from_millis(200);
/// Strain fades 64 times more slowly than it lasted.
const STRAIN_MEMORY: u32 = 64;

/// The longest lateness seen, and when; it fades with time.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness(Duration, Time);

impl Lateness {
    fn of_late(self, now: Time) -> Duration {
        self.0.saturating_sub(now.since(self.1) / STRAIN_MEMORY)
    }

    fn note(&mut self, now: Time, late: Duration) {
        if late > self.of_late(now) {
            *self = Lateness(late.min(STRAIN_MAX), now);
        }
    }
}

/// When the detector looks next, and how late processes are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detector {
    look_at: Option<Time>,
    /// Lateness up to this time has been counted.
    noticed: Time,
    /// How late this process was.
    own: Lateness,
    /// How late other processes report that they were.
    others: Lateness,
    /// How late answers to probes came, because of processes or of the network.
    answers: Lateness,
    /// The oldest entry that was not accepted when that was last noticed, and since when it is the oldest.
    unaccepted: (Seqno, Time),
}

impl Detector {
    /// Returns the lateness that patience must allow for: on overloaded processors every process is late, and a dead
    /// one cannot be told from a live one as soon.
    fn strain(&self, now: Time) -> Duration {
        self.lateness(now).max(self.answers.of_late(now))
    }

    /// Returns how late processes were by their own reports; delay of the network is not included.
    pub(crate) fn lateness(&self, now: Time) -> Duration {
        self.own.of_late(now).max(self.others.of_late(now))
    }

    /// Returns this process's own lateness in ms, as it reports it to other members.
    pub(crate) fn late_ms(&self, now: Time) -> u8 {
        u8::try_from(self.own.of_late(now).as_millis()).unwrap_or(u8::MAX)
    }

    /// Notes the lateness that another member reported.
    pub(crate) fn note_late(&mut self, now: Time, late_ms: u8) {
        self.others.note(now, Duration::from_millis(late_ms.into()));
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Looks at once: a peer is to be watched that was not.
    pub(crate) fn look_soon(&mut self, now: Time) {
        self.look_by(now);
    }

    fn look_by(&mut self, time: Time) {
        self.look_at = Some(self.look_at.map_or(time, |at| at.min(time)));
    }

    pub(crate) fn stop(&mut self) {
        self.look_at = None;
    }
}

impl Peer {
    /// True if the peer is still probed: it is not suspected, or only as deaf, and only an answer can clear that.
    fn is_asked_on(&self) -> bool {
        self.suspected.is_none_or(|reason| reason == Suspicion::Deaf)
    }

    /// Takes the time `asleep` of this process off the peer's silence; signs of life may lie unread in the socket. Not
    /// after `FRESH_STARTS` in a row: the peer was probed each time, and what came in between was read.
    fn forgive(&mut self, now: Time, asleep: Duration) {
        if let Some(probing) = &mut self.probing {
            if probing.fresh_starts >= FRESH_STARTS {
                return;
            }
            let fresh_starts = probing.fresh_starts + 1;
            *probing = Probing { fresh_starts, ..Probing::new(now, probing.nonce, probing.term) };
        }
        self.last_heard = (self.last_heard + asleep).min(now);
        self.heard_us = self.heard_us.map(|at| (at + asleep).min(now));
    }
}

impl Group {
    /// Called first with every input. If the last deadline passed long ago, this process was not running, and silence
    /// meanwhile says next to nothing. It says something, though: otherwise a process that is always delayed would
    /// never suspect a dead member.
    pub(crate) fn notice_sleep(&mut self, now: Time) {
        let Some((deadline, _)) = self.poll_timeout() else { return };
        if now <= deadline {
            return;
        }
        let noticed = core::mem::replace(&mut self.detector.noticed, now);
        let late = now.since(deadline.max(noticed));
        self.detector.own.note(now, late);
        let Some(asleep) = late.checked_sub(ASLEEP).filter(|asleep| !asleep.is_zero()) else { return };
        self.probe(Probe::WasAsleep);
        self.peers.iter_mut().for_each(|peer| peer.forgive(now, asleep));
        self.recovery.notice_sleep(now);
    }

    pub(crate) fn detector_timeout(&mut self, now: Time) {
        if self.detector.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
    }

    /// Looks at the peers when one is heard in a quiet group: this process is awake now, and need not be woken to look.
    pub(crate) fn look_ahead(&mut self, now: Time) {
        if self.detector.look_at.is_some() {
            self.look(now);
        }
    }

    /// Looks at all watched peers, and sets when to look again.
    fn look(&mut self, now: Time) {
        self.detector.look_at = None;
        let watching = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining)
            && !self.recovery.has_promised();
        if !watching {
            return;
        }
        let silence = self.silence();
        let patience = self.patience(now);
        let watched: Vec<Uid> = self
            .peers
            .iter()
            .filter(|peer| self.watched(peer.member.uid, &peer.standing))
            .filter(|peer| peer.is_asked_on())
            .map(|peer| peer.member.uid)
            .collect();
        let mut next = Time::NEVER;
        for uid in watched {
            next = next.min(self.look_at_peer(now, uid, silence, patience));
        }
        if next < Time::NEVER {
            self.detector.look_at = Some(next);
        }
    }

    /// Returns how long a probe may stay unanswered; longer where members are seen to be late.
    pub(crate) fn patience(&self, now: Time) -> Duration {
        self.settings.patience + self.detector.strain(now) * STRAINED
    }

    /// Returns how long a peer may be silent; longer in larger groups, where each is heard less often.
    pub(crate) fn silence(&self) -> Duration {
        self.stretched(self.settings.silence)
    }

    /// Notes that a message is on its way to the sequencer, which owes it a number.
    pub(crate) fn expect_number(&mut self, now: Time) {
        self.detector.look_by(now + self.silence() / OWING);
    }

    /// Notes that an entry waits for its acceptance, behind those that were accepted.
    pub(crate) fn expect_acceptance(&mut self, now: Time) {
        let oldest = self.accepted + 1;
        if self.detector.unaccepted.0 != oldest {
            self.detector.unaccepted = (oldest, now);
            self.detector.look_by(now + self.silence() / OWING);
        }
    }

    /// Returns since when a message waits for this peer.
    fn waits_for_since(&self, uid: Uid) -> Option<Time> {
        let (oldest, since) = self.detector.unaccepted;
        let is_behind = oldest == self.accepted + 1 && oldest <= self.history.received();
        // The sequencer knows which members hold an entry. The others wait until it announces the acceptance.
        let unaccepted =
            (is_behind && !(self.report_to().is_none() && self.holds(uid, oldest))).then_some(since);
        let unnumbered = if self.submit_to() == Some(uid) { self.outbox.waits_since() } else { None };
        earlier(unaccepted, unnumbered)
    }

    /// Looks at one peer; returns when to look again.
    fn look_at_peer(&mut self, now: Time, uid: Uid, silence: Duration, patience: Duration) -> Time {
        let nonce = self.random.next_u64() | 1;
        let (term, is_named) = (self.term(), self.report_to() == Some(uid));
        let waits_since = self.waits_for_since(uid);
        let since = self.acknowledging.beat_at.max(self.epoch_entered_at);
        if is_named && now.since(since) >= silence + self.idle_period() * HEARTBEATS_MISSED {
            // The sequencer may answer unicasts while its multicasts do not arrive.
            self.acknowledging.beat_at = now;
            self.acknowledging.ask_for_copies();
        }
        let Some(peer) = self.peers.get_mut(uid) else { return Time::NEVER };
        if peer.suspected.is_some() {
            self.probe_now(now, uid);
            return now + silence;
        }
        let deaf_after = silence * DEAF_AFTER_SILENCES;
        let owed = waits_since.map(|since| peer.last_heard.max(since) + silence / OWING);
        let silent_at = (peer.last_heard + silence).min(owed.unwrap_or(Time::NEVER));
        let silent = silent_at <= now;
        let deaf = now.since(*peer.heard_us.get_or_insert(now)) >= deaf_after;
        if !silent && !deaf {
            peer.probing = None;
            let heard_us = peer.heard_us.unwrap_or(now);
            return silent_at.min(heard_us + deaf_after);
        }
        // An overdue number alone says little about the path: messages under way may wait in a queue.
        if peer.last_heard + silence <= now && is_named {
            self.acknowledging.ask_for_copies();
        }
        let spacing = self.settings.patience / PROBES;
        peer.forget_old_probes(now, term, patience);
        let probing = peer.probing.get_or_insert(Probing::new(now, nonce, term));
        // Datagrams without an answer during the burst show that the peer is not silent, but may be deaf.
        let heard_meanwhile = peer.last_heard > probing.since;
        let patience = if heard_meanwhile { patience * 3 } else { patience };
        let over = now.since(probing.since) >= patience && probing.sent >= PROBES * 2 / 3;
        if over {
            let reason = if silent { Suspicion::Silent } else { Suspicion::Deaf };
            if reason == Suspicion::Deaf {
                self.probe(Probe::SuspectedDeaf);
            }
            self.suspect(now, uid, reason);
            let asked_on = self.peers.get(uid).is_some_and(Peer::is_asked_on);
            return if asked_on { now + silence } else { Time::NEVER };
        }
        let mut again = probing.last + spacing;
        if again <= now {
            (probing.last, probing.sent) = (now, probing.sent + 1);
            let nonce = probing.nonce;
            again = now + spacing;
            self.post(uid, Frame::Probe { nonce });
        }
        again
    }

    /// Handles an answer to a probe: the peer lives, and hears this member.
    pub(crate) fn handle_alive(&mut self, now: Time, from: Uid, nonce: u64) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        if let Some(probing) = peer.probing.filter(|probing| probing.nonce == nonce) {
            peer.probing = None;
            self.note_hears_us(now, from);
            self.detector.answers.note(now, now.since(probing.since));
            self.detector.look_soon(now);
            self.probe(Probe::ProbeAnswered);
            self.answer_invitation(now, from);
        }
    }

    /// Notes that the peer hears this member: it returned what was sent to it lately.
    pub(crate) fn note_hears_us(&mut self, now: Time, from: Uid) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.heard_us = Some(now);
        if peer.suspected == Some(Suspicion::Deaf) {
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
            peer.suspected = None;
            self.detector.look_soon(now);
        }
    }

    /// Probes a peer outside of any burst.
    pub(crate) fn probe_now(&mut self, now: Time, uid: Uid) {
        let nonce = self.random.next_u64() | 1;
        let (term, patience) = (self.term(), self.patience(now));
        let Some(peer) = self.peers.get_mut(uid) else { return };
        peer.forget_old_probes(now, term, patience);
        let probing = peer.probing.get_or_insert(Probing::new(now, nonce, term));
        if now.since(probing.last) >= PROBE_EVERY {
            (probing.last, probing.sent) = (now, probing.sent + 1);
            let nonce = probing.nonce;
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
            (peer.probing, peer.heard_us) = (None, Some(now));
            self.ask_around();
            for target in self.random_peer().into_iter().chain([uid]) {
                self.post(target, Frame::Inquiry);
            }
            return;
        }
        if peer.suspected.is_some() {
            return;
        }
        peer.suspected = Some(reason);
        let member = peer.member.clone();
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
