//! The failure detector: turns evidence and silence into suspicion, with a reason. It never decides membership.
//!
//! The sequencer watches everybody, everybody watches the sequencer. Evidence is whatever is heard; beside it a peer
//! must show now and then that it hears us too, or it is deaf, and a deaf sequencer is as bad as a dead one. Silence
//! alone suspects nobody: after `silence` (the first knob) a burst of probes goes out, and only when none is
//! answered within `patience` (the second) is the peer suspected. A sequencer that owes a number to what was sent to it
//! is probed much sooner: a working group notices its loss at once, and an idle one need not ask all the time. A member
//! that was itself asleep hardly counts that time for anybody's silence, and where members are seen to be late though
//! alive, patience grows.

use crate::episode::Episode;
use crate::event::{Event, Suspicion};
use crate::group::{Group, Phase};
use crate::identity::Uid;
use crate::peers::{Peer, Probing, Standing};
use crate::planted::Probe;
use crate::time::Time;
use crate::wire::Frame;
use alloc::vec::Vec;
use core::time::Duration;

/// So many heartbeats besides a sequencer may owe, as rare as they get, before copies are asked for.
const HEARTBEATS_MISSED: u32 = 2;
/// Probes in a burst.
const PROBES: u32 = 12;
/// Outside of a burst a peer is probed at most so often, however many inputs ask for it: its answer to the one before may be on
/// its way.
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// A sequencer that owes a number is probed after this part of the silence.
const OWING: u32 = 6;
/// A peer must show that it hears us at least every so many silences.
const DEAF_AFTER_SILENCES: u32 = 6;
/// Woken later than this, we were asleep ourselves: what goes beyond counts for nobody's silence.
const ASLEEP: Duration = Duration::from_millis(40);
/// So many times whoever is being probed is given all its time again since we were asleep.
const FRESH_STARTS: u32 = 3;

/// Patience with the silent grows by so many times the strain.
const STRAINED: u32 = 6;
/// More strain than this is not reckoned with.
const STRAIN_MAX: Duration = Duration::from_millis(200);
/// Strain is forgotten so many times slower than it lasted.
const STRAIN_MEMORY: u32 = 64;

/// The longest that somebody was late, forgotten with time.
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

/// When the detector looks next, and how much trust time deserves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detector {
    look_at: Option<Time>,
    /// Being late up to here has been noticed.
    noticed: Time,
    /// How late this process was itself.
    own: Lateness,
    /// How late others say that they were.
    others: Lateness,
    /// How late answers came, of processes or of the network.
    answers: Lateness,
}

impl Detector {
    /// Where processors are overloaded everybody is late, and the dead cannot be told from the living as soon.
    fn strain(&self, now: Time) -> Duration {
        self.lateness(now).max(self.answers.of_late(now))
    }

    /// How late processes were, as they say themselves: what the network took is no part of it.
    pub(crate) fn lateness(&self, now: Time) -> Duration {
        self.own.of_late(now).max(self.others.of_late(now))
    }

    /// What others are told of this process.
    pub(crate) fn late_ms(&self, now: Time) -> u8 {
        u8::try_from(self.own.of_late(now).as_millis()).unwrap_or(u8::MAX)
    }

    /// What another said of itself.
    pub(crate) fn note_late(&mut self, now: Time, late_ms: u8) {
        self.others.note(now, Duration::from_millis(late_ms.into()));
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Somebody is to be watched who was not.
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
    /// It is not suspected; or only of being deaf, and shows by nothing but an answer that it hears again.
    fn is_asked_on(&self) -> bool {
        self.suspected.is_none_or(|reason| reason == Suspicion::Deaf)
    }

    /// We were asleep for so long, and what shows that it lives may wait to be read. Where that happens again and again it
    /// excuses nothing any more: it was asked each time, and what came in between was read.
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
    /// Called first with every input: if the last deadline passed long ago, this process was not running, and
    /// silence meanwhile says next to nothing. Something it says, or whoever is kept waiting for ever would never miss
    /// anybody.
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

    /// Watched, and why.
    fn watches(&self, uid: Uid, standing: &Standing) -> bool {
        match standing {
            Standing::Member | Standing::Leaver { .. } if self.order.is_acting() => match standing {
                Standing::Leaver { seqno, .. } => self.accepted < *seqno,
                _ => true,
            },
            _ => uid == self.named(),
        }
    }

    pub(crate) fn detector_timeout(&mut self, now: Time) {
        if self.detector.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
    }

    /// Somebody was heard while the group is quiet: whoever is awake for that looks now, and need not be woken to look.
    pub(crate) fn look_ahead(&mut self, now: Time) {
        if self.detector.look_at.is_some() {
            self.look(now);
        }
    }

    /// Looks at everybody who is watched, and finds out when to look again.
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
            .filter(|peer| self.watches(peer.member.uid, &peer.standing))
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

    /// How long whoever was asked may leave that unanswered: longer where members are seen to be late.
    pub(crate) fn patience(&self, now: Time) -> Duration {
        self.settings.patience + self.detector.strain(now) * STRAINED
    }

    /// How long a peer may be silent; in larger groups each is heard less often.
    fn silence(&self) -> Duration {
        self.stretched(self.settings.silence)
    }

    /// Something is on its way to the sequencer, which owes it a number.
    pub(crate) fn expect_number(&mut self, now: Time) {
        self.detector.look_by(now + self.silence() / OWING);
    }

    /// Looks at one peer; returns when to look again.
    fn look_at_peer(&mut self, now: Time, uid: Uid, silence: Duration, patience: Duration) -> Time {
        let nonce = self.random.next_u64() | 1;
        let (term, named) = self.history.term();
        let is_named = uid == named;
        let owes = if is_named { self.outbox.waits_since() } else { None };
        let since = self.acknowledging.beat_at.max(self.epoch_entered_at);
        if is_named && now.since(since) >= silence + self.idle_period() * HEARTBEATS_MISSED {
            // It may answer whoever asks, and be heard by nobody when it speaks to all.
            self.acknowledging.beat_at = now;
            self.acknowledging.ask_for_copies();
        }
        let Some(peer) = self.peers.get_mut(uid) else { return Time::NEVER };
        if peer.suspected.is_some() {
            self.probe_now(now, uid);
            return now + silence;
        }
        let deaf_after = silence * DEAF_AFTER_SILENCES;
        let owed = owes.map(|since| peer.last_heard.max(since) + silence / OWING);
        let silent_at = (peer.last_heard + silence).min(owed.unwrap_or(Time::NEVER));
        let silent = silent_at <= now;
        let deaf = now.since(*peer.heard_us.get_or_insert(now)) >= deaf_after;
        if !silent && !deaf {
            peer.probing = None;
            let heard_us = peer.heard_us.unwrap_or(now);
            return silent_at.min(heard_us + deaf_after);
        }
        // That a number is overdue says little of the way: what is under way may wait in a queue.
        if peer.last_heard + silence <= now && is_named {
            self.acknowledging.ask_for_copies();
        }
        let spacing = self.settings.patience / PROBES;
        peer.forget_old_probes(now, term, patience);
        let probing = peer.probing.get_or_insert(Probing::new(now, nonce, term));
        // What is heard during the burst, though no answer, says that it is not silence that is wrong.
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

    /// The peer answered a probe: it lives, and hears us.
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

    /// The peer shows that it hears us: it returned what was sent lately.
    pub(crate) fn note_hears_us(&mut self, now: Time, from: Uid) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.heard_us = Some(now);
        if peer.suspected == Some(Suspicion::Deaf) {
            self.suspect_no_longer(now, from);
        }
    }

    /// What it was suspected of is over: it stays where no reset is on its way.
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

    /// Asks a peer outside of any burst whether it hears us.
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

    /// Suspects a member. With the automatic policy a reset begins; otherwise the application is told.
    pub(crate) fn suspect(&mut self, now: Time, uid: Uid, reason: Suspicion) {
        // Whose application has not entered yet cannot be asked to decide.
        let asks = self.phase == Phase::Joining && (!self.is_member() || !self.config.automatic);
        let Some(peer) = self.peers.get_mut(uid) else { return };
        if asks {
            // Its JOIN may be in the order already, or behind it: whoever holds it, or goes on without it, will tell.
            (peer.probing, peer.heard_us) = (None, Some(now));
            self.ask_around();
            for whom in self.anybody().into_iter().chain([uid]) {
                self.post(whom, Frame::Inquiry);
            }
            return;
        }
        if peer.suspected.is_some() {
            return;
        }
        peer.suspected = Some(reason);
        let member = peer.member.clone();
        self.episodes.push(Episode::Suspected { member, reason });
        // Perhaps it is we who were left behind.
        self.post(uid, Frame::Inquiry);
        self.counters.suspicions += 1;
        if self.config.automatic {
            self.begin_reset_soon(now);
        } else {
            self.notices.push_back(Event::Suspected { member: uid, reason });
        }
    }
}
