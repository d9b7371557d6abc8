//! The failure detector: turns evidence and silence into suspicion with a reason. It never decides membership.
//!
//! Any datagram from a peer is evidence that it lives. The peer must also show from time to time that it hears this
//! member, or it is deaf; a deaf sequencer is as bad as a dead one. Silence alone makes no member suspected: after
//! `silence` (the first knob) a burst of probes is sent, and a peer that answers none within `patience` (the second knob)
//! is suspected. A peer for which a message waits is probed after a sixth of `silence`: the sequencer, while it owes a
//! number to a message that was sent to it or has not announced an entry as accepted; another member, while it has not
//! acknowledged the oldest entry that is not accepted. So a working group notices a loss at once, and an idle group need
//! not probe all the time. Time in which this process was itself asleep hardly counts for any peer's silence. Patience
//! grows where members are seen to be late though alive.
//!
//! [`Peer::look`] finds what to do about one peer; `membership/detector.rs` does it for each watched one.

use super::Peer;
use crate::event::Suspicion;
use crate::identity::Seqno;
use crate::time::Time;
use core::time::Duration;

/// Number of probes in a burst.
const PROBES: u32 = 12;
/// Number of probes without an answer after which it may be suspected: some may have been lost, or not sent in time.
const PROBES_MIN: u32 = PROBES * 2 / 3;
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
    /// Returns how long a probe may stay unanswered: `knob`, and longer where members are seen to be late.
    pub(crate) fn patience(&self, now: Time, knob: Duration) -> Duration {
        knob + self.strain(now) * STRAINED
    }

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

    /// Notes that the answer to a probe came this late.
    pub(crate) fn note_answer(&mut self, now: Time, late: Duration) {
        self.answers.note(now, late);
    }

    /// Notes that this process runs at `now`, after its deadline. Returns for how long it was asleep, if it was.
    pub(crate) fn note_own_lateness(&mut self, now: Time, deadline: Time) -> Option<Duration> {
        let noticed = core::mem::replace(&mut self.noticed, now);
        let late = now.since(deadline.max(noticed));
        self.own.note(now, late);
        late.checked_sub(ASLEEP).filter(|asleep| !asleep.is_zero())
    }

    // --- when to look ---

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Looks at once: a peer is to be watched that was not.
    pub(crate) fn look_soon(&mut self, now: Time) {
        self.look_by(now);
    }

    pub(crate) fn look_again_at(&mut self, time: Time) {
        self.look_at = Some(time);
    }

    fn look_by(&mut self, time: Time) {
        self.look_at = Some(self.look_at.map_or(time, |at| at.min(time)));
    }

    pub(crate) fn stop(&mut self) {
        self.look_at = None;
    }

    /// Notes that a message is on its way to the sequencer, which owes it a number.
    pub(crate) fn expect_number(&mut self, now: Time, silence: Duration) {
        self.look_by(now + silence / OWING);
    }

    /// Notes that `oldest` waits for its acceptance, and no entry below it.
    pub(crate) fn expect_acceptance(&mut self, now: Time, oldest: Seqno, silence: Duration) {
        if self.unaccepted.0 != oldest {
            self.unaccepted = (oldest, now);
            self.look_by(now + silence / OWING);
        }
    }

    /// Returns the oldest entry that was not accepted when that was last noticed, and since when it is the oldest.
    pub(crate) fn unaccepted(&self) -> (Seqno, Time) {
        self.unaccepted
    }
}

/// Probes that the peer has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probing {
    since: Time,
    last: Time,
    nonce: u64,
    /// Term in which they began.
    term: Seqno,
    sent: u32,
    /// Number of times that all its time to answer began anew, because this process had been asleep.
    fresh_starts: u32,
}

impl Probing {
    fn new(now: Time, nonce: u64, term: Seqno) -> Probing {
        Probing { since: now, last: Time::ZERO, nonce, term, sent: 0, fresh_starts: 0 }
    }

    /// True if they were given up, because the role moved or the peer was no longer to be probed. A peer that did not answer then
    /// may answer now.
    fn are_of_old(&self, now: Time, term: Seqno, patience: Duration) -> bool {
        let quiet_for = now.since(self.last);
        self.sent > 0 && (quiet_for > patience * 2 || self.term != term && quiet_for > patience)
    }

    fn note_sent(&mut self, now: Time) -> u64 {
        (self.last, self.sent) = (now, self.sent + 1);
        self.nonce
    }
}

/// What the detector knows when it looks at a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) silence: Duration,
    /// How long a probe may stay unanswered.
    pub(crate) patience: Duration,
    /// Time over which the probes of a burst are spread: the knob `patience`.
    pub(crate) burst: Duration,
    /// True if the peer is watched: it must show that it hears this member. Otherwise only its silence is judged.
    pub(crate) is_watched: bool,
    /// Since when a message waits for this peer.
    pub(crate) waits_since: Option<Time>,
    pub(crate) term: Seqno,
    /// Nonce of probes that begin now.
    pub(crate) nonce: u64,
}

/// What the detector finds about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is neither silent nor deaf before this time.
    Alive(Time),
    /// It is silent or deaf, and has time to answer until then.
    Waits(Time),
    /// A probe with this nonce is to go now.
    Probe(u64),
    /// It has answered no probe in time.
    Suspect(Suspicion),
}

impl Look {
    /// Returns the interval between two probes of a burst.
    pub(crate) fn spacing(&self) -> Duration {
        self.burst / PROBES
    }
}

impl Peer {
    /// Returns why it is suspected, if it is.
    pub(crate) fn suspected(&self) -> Option<Suspicion> {
        self.suspected
    }

    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// Suspects the peer. It keeps the reason of an earlier suspicion: then this returns false.
    pub(crate) fn suspect(&mut self, reason: Suspicion) -> bool {
        let is_new = self.suspected.is_none();
        self.suspected.get_or_insert(reason);
        is_new
    }

    pub(crate) fn suspect_no_longer(&mut self) {
        self.suspected = None;
    }

    /// True if the peer is still probed: it is not suspected, or only as deaf, and only an answer can clear that.
    pub(crate) fn is_asked_on(&self) -> bool {
        self.suspected.is_none_or(|reason| reason == Suspicion::Deaf)
    }

    /// Takes the time `asleep` of this process off the peer's silence; signs of life may lie unread in the socket. Not
    /// after `FRESH_STARTS` in a row: the peer was probed each time, and what came in between was read.
    pub(crate) fn forgive(&mut self, now: Time, asleep: Duration) {
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

    /// Finds what to do about a peer that is not suspected.
    pub(crate) fn look(&mut self, now: Time, look: &Look) -> Finding {
        let (silence, patience) = (look.silence, look.patience);
        let deaf_after = silence * DEAF_AFTER_SILENCES;
        let owed = look.waits_since.map(|since| self.last_heard.max(since) + silence / OWING);
        let silent_at = (self.last_heard + silence).min(owed.unwrap_or(Time::NEVER));
        let silent = silent_at <= now;
        let deaf_at = match look.is_watched {
            true => *self.heard_us.get_or_insert(now) + deaf_after,
            false => Time::NEVER,
        };
        if !silent && deaf_at > now {
            self.probing = None;
            return Finding::Alive(silent_at.min(deaf_at));
        }
        let last_heard = self.last_heard;
        let probing = self.probing_in(now, look.nonce, look.term, patience);
        // Datagrams without an answer during the burst show that the peer is not silent, but may be deaf.
        let patience = if last_heard > probing.since { patience * 3 } else { patience };
        if now.since(probing.since) >= patience && probing.sent >= PROBES_MIN {
            return Finding::Suspect(if silent { Suspicion::Silent } else { Suspicion::Deaf });
        }
        match probing.last + look.spacing() {
            again if again <= now => Finding::Probe(probing.note_sent(now)),
            again => Finding::Waits(again),
        }
    }

    /// Returns the nonce of a probe that is to go now, outside of any burst; `None` if one went just now.
    pub(crate) fn probe(&mut self, now: Time, nonce: u64, term: Seqno, patience: Duration) -> Option<u64> {
        let probing = self.probing_in(now, nonce, term, patience);
        (now.since(probing.last) >= PROBE_EVERY).then(|| probing.note_sent(now))
    }

    /// Returns the probes under way. New ones begin if there are none, or if they were given up.
    fn probing_in(&mut self, now: Time, nonce: u64, term: Seqno, patience: Duration) -> &mut Probing {
        if self.probing.is_some_and(|probing| probing.are_of_old(now, term, patience)) {
            self.probing = None;
        }
        self.probing.get_or_insert(Probing::new(now, nonce, term))
    }

    /// Returns since when it is silent although it is probed, once it has had time to answer the first probe.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        let is_silent = |probing: &Probing| probing.sent > 1 && self.last_heard <= probing.since;
        self.probing.filter(is_silent).map(|probing| probing.since)
    }

    /// True if it has lately answered no probe of a burst in time. A burst that ended long ago says nothing of today.
    pub(crate) fn has_answered_none(&self, now: Time, patience: Duration) -> bool {
        let is_over = |probing: &Probing| probing.sent >= PROBES_MIN && now.since(probing.since) >= patience;
        let is_recent = |probing: &Probing| now.since(probing.last) < patience;
        self.probing.is_some_and(|probing| {
            is_over(&probing) && is_recent(&probing) && self.last_heard <= probing.since
        })
    }

    /// Forgets probes that began before this time: it may have been forgotten with them.
    pub(crate) fn forget_probes_before(&mut self, time: Time) {
        self.probing.take_if(|probing| probing.since < time);
    }

    /// Returns since when it is probed without an answer.
    pub(crate) fn probed_since(&self) -> Option<Time> {
        self.probing.map(|probing| probing.since)
    }

    /// Takes an answer to a probe. Returns since when it was probed, if that is the nonce of the probes under way.
    pub(crate) fn take_answer(&mut self, nonce: u64) -> Option<Time> {
        self.probing.take_if(|probing| probing.nonce == nonce).map(|probing| probing.since)
    }

    /// Gives it all the time to answer anew: its silence so far shows nothing.
    pub(crate) fn begin_anew(&mut self, now: Time) {
        (self.probing, self.heard_us) = (None, Some(now));
    }

    /// Notes that it hears this member: it returned what was sent to it lately.
    pub(crate) fn note_hears_us(&mut self, now: Time) {
        self.heard_us = Some(now);
    }
}
