//! The consensus of participants: promise, propose, prepare, decide.
//!
//! Every participant answers coordinators, and is one at times. Some rules serve speed, not safety. Participants begin
//! in the order of the list. Of two coordinators, the one with the higher ballot goes on, unless the other hears more
//! participants: the first may be deaf, or all participants may know the other and few each other. A participant begins
//! a ballot when nothing comes of its promise.
//!
//! A recording of an earlier start changes nothing. A participant hears a coordinator only after the coordinator has
//! shown the nonce of the participant's life, or has answered one of its ballots. The first question of a coordinator
//! brings it the nonce: the participant refuses, the coordinator echoes, the participant promises.
//!
//! An address is sent no more bytes than came from it, until the participant there has shown that it hears this member,
//! by repeating one of its ballots. `Form` is padded to the length of the longest answer.

use super::Decision;
use crate::config::{Formation, GroupConfig, Settings};
use crate::error::ConfigError;
use crate::group::Destination;
use crate::identity::{Ballot, EpochId, Instance, Member, Uid};
use crate::random::Random;
use crate::table::Table;
use crate::time::Time;
use crate::wire::{FormPromise, Founding, Frame, HEADER_BYTES, PADDED_BYTES_MIN};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Each participant begins 4 ms after the one before it in the list; no more than fifty such steps count.
const STAGGER: Duration = Duration::from_millis(4);
const STAGGER_MAX: u32 = 50;
/// Random extra delay of a beginning: less than lies between two participants.
const BEGIN_JITTER: Duration = Duration::from_millis(2);
/// Minimum pause after a failed ballot, in which the other participants' reports of it arrive.
const FORM_PAUSE: Duration = Duration::from_millis(5);
/// Random back-off before the next ballot: up to 40 ms per ballot begun, six counted at most.
const FORM_BACKOFF: Duration = Duration::from_millis(40);
const BACKOFFS_MAX: u32 = 6;
/// A coordinator repeats itself every 20 ms while it expects answers, every 60 ms while participants start.
const FORM_REPEAT_EVERY: Duration = Duration::from_millis(20);
const REPEAT_SLOWLY: Duration = Duration::from_millis(60);
const BRISK_FOR: Duration = Duration::from_millis(200);
/// Random extra delay of a repetition, so that coordinators that repeat at the same time do not stay in step.
const REPEAT_JITTER: Duration = Duration::from_millis(5);
/// With enough promises, a coordinator waits 300 ms for the rest, or a quarter of the time left if that is less.
const GATHER: Duration = Duration::from_millis(300);
/// A proposal that is not prepared within this time ends its ballot.
const PREPARE_WITHIN: Duration = Duration::from_millis(250);
/// A ballot without enough promises ends after this time; a participant waits no longer after a promise.
const FORM_PATIENCE: Duration = Duration::from_millis(900);
/// A promise that was not repeated for this time does not count: that participant may have given up.
const PROMISE_LASTS: Duration = Duration::from_millis(150);
/// A coordinator that has been silent for this time is taken for dead.
const FORM_TAKE_OVER: Duration = Duration::from_millis(400);
/// How long after a coordinator's last frame another one that hears fewer participants is ignored.
const FORM_HOLD_OFF: Duration = Duration::from_millis(100);
/// A participant counts as heard for 1 s after its last frame.
const FORM_HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Number of lives remembered for each participant.
const LIVES: usize = 2;
/// Minimum interval between two ballots that a coordinator begins in order to outbid another one.
const RAISE_EVERY: Duration = Duration::from_millis(20);
/// Highest round that is believed: no honest participant counts so far.
const FORM_ROUND_MAX: u32 = 1 << 20;

/// Participant of a formation that is not decided yet: acceptor, and coordinator at times.
#[derive(Clone, Debug)]
pub(crate) struct Forming {
    me: Member,
    /// Random bits of this life, without which a proposal is a recording.
    nonce: u64,
    /// Planted bugs.
    pub(super) takes_any_nonce: bool,
    pub(super) takes_any_question: bool,
    formation: Formation,
    /// Hash of the formation's names and minimum; every frame carries it.
    pub(super) tag: u64,
    config: GroupConfig,
    pub(super) give_up_at: Time,
    /// Length of a question, so that any answer fits.
    room: u32,
    promised: Option<Promised>,
    prepared: Option<(Ballot, Founding)>,
    /// Highest round seen.
    round: u32,
    attempts: u32,
    /// Until when this member takes no part: it may find a group to join.
    silent_until: Time,
    /// True once its time is over, while it completes the ballot in which it takes part.
    completes: bool,
    /// When this member begins a ballot of its own.
    begin_at: Time,
    attempt: Option<Attempt>,
    begun_at: Time,
    /// Participants that have shown that they live: a frame of theirs answers one of this life.
    speakers: Table<Speaker>,
    pub(super) decision: Option<Decision>,
    pub(super) out: Vec<(Destination, Frame)>,
}

/// The promised ballot, since when, when its coordinator last asked, and how many participants it heard then.
#[derive(Clone, Copy, Debug)]
struct Promised {
    ballot: Ballot,
    since: Time,
    renewed_at: Time,
    heard: u16,
}

#[derive(Clone, Copy, Debug)]
struct Speaker {
    address: SocketAddr,
    at: Time,
    /// True if it repeated a ballot of this member: it receives at this address.
    hears_us: bool,
}

/// A ballot of this member's own.
#[derive(Clone, Debug)]
struct Attempt {
    ballot: Ballot,
    promises: Vec<Promise>,
    /// From when and until when it waits for further promises, once there are enough.
    gathers: Option<(Time, Time)>,
    proposal: Option<Founding>,
    until: Time,
    repeat_at: Time,
}

/// A participant that promised this member's ballot.
#[derive(Clone, Debug)]
struct Promise {
    place: usize,
    member: Member,
    nonce: u64,
    before: Option<(Ballot, Founding)>,
    prepared: bool,
    /// When it promised last: it does so at each question.
    renewed_at: Time,
    /// True if another life answered under its name: neither counts.
    replaced: bool,
}

impl Attempt {
    fn counted(&self) -> impl Iterator<Item = &Promise> {
        self.promises.iter().filter(|promise| !promise.replaced)
    }

    /// Returns the promises that were renewed after this time. This member's own always counts.
    fn renewed(&self, since: Time) -> impl Iterator<Item = &Promise> {
        let own = self.ballot.coordinator;
        self.counted().filter(move |promise| promise.member.uid == own || promise.renewed_at > since)
    }

    /// Returns the promises that a proposal may name: those that were repeated since there were enough. A life that gave up
    /// would be lacking in the group from the beginning.
    fn firm(&self) -> impl Iterator<Item = &Promise> {
        self.renewed(self.gathers.map_or(Time::NEVER, |(from, _)| from))
    }

    fn wake_at(&self) -> Time {
        let gathered = self.gathers.map(|(_, until)| until).filter(|_| self.proposal.is_none());
        self.until.min(self.repeat_at).min(gathered.unwrap_or(Time::NEVER))
    }
}

/// Returns the time since which promises count.
fn lately(now: Time) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(PROMISE_LASTS.as_nanos() as u64))
}

impl Forming {
    /// Returns the initial state; an error if a proposal of all participants does not fit a datagram.
    pub(crate) fn new(
        now: Time,
        me: Member,
        formation: Formation,
        config: GroupConfig,
        settings: &Settings,
        random: &mut Random,
    ) -> Result<Forming, ConfigError> {
        let room = formation.answer_bytes_max(&config).max(PADDED_BYTES_MIN);
        let fits = settings.datagram_bytes_max.saturating_sub(HEADER_BYTES);
        if room > fits {
            let (parameter, value) = ("participants", formation.participants.len() as u64);
            let allowed = "small enough that their names, addresses and configuration fit a datagram";
            return Err(ConfigError { parameter, value, allowed });
        }
        let mut forming = Forming {
            tag: formation.tag(),
            config,
            give_up_at: now + formation.within,
            room: room as u32,
            promised: None,
            prepared: None,
            round: 0,
            attempts: 0,
            silent_until: now,
            completes: false,
            begin_at: now,
            attempt: None,
            begun_at: now,
            speakers: Table::default(),
            decision: None,
            out: Vec::new(),
            nonce: random.next_u64(),
            takes_any_nonce: false,
            takes_any_question: false,
            me,
            formation,
        };
        forming.begin_at = now + forming.stagger(random);
        Ok(forming)
    }

    /// Takes no part before this time, except that it learns of a decision.
    pub(super) fn wait_until(&mut self, at: Time) {
        self.begin_at = at + (self.begin_at - self.begun_at);
        self.silent_until = at;
    }

    /// Takes no part before this time, except that it learns of a decision: a group has answered.
    pub(crate) fn fall_silent(&mut self, until: Time) {
        (self.silent_until, self.begin_at, self.attempt) = (until, until, None);
    }

    /// True if a founding may name this life: only those that promised a ballot are named.
    pub(crate) fn has_promised(&self) -> bool {
        self.promised.is_some()
    }

    pub(crate) fn config(&self) -> &GroupConfig {
        &self.config
    }

    pub(crate) fn wake_at(&self) -> Time {
        if self.silent_until >= self.give_up_at {
            // It takes no part any more. The search for the group has a deadline of its own.
            return Time::NEVER;
        }
        let begins = if self.completes { Time::NEVER } else { self.begin_at };
        self.attempt.as_ref().map_or(begins, Attempt::wake_at).min(self.give_up_at)
    }

    /// Postpones the end of this member's time, once, if it takes part in a ballot that may still be decided: a founding
    /// would name it, and lack it from the beginning. Returns the new end.
    pub(crate) fn complete_ballot(&mut self, now: Time) -> Option<Time> {
        let proposes = self.attempt.as_ref().is_some_and(|own| own.proposal.is_some());
        let is_asked = self.promised.is_some_and(|promised| {
            promised.ballot.coordinator != self.me.uid
                && promised.heard >= self.formation.at_least
                && now.since(promised.renewed_at) < FORM_HOLD_OFF
        });
        if self.completes || self.silent_until > now || !(proposes || is_asked) {
            return None;
        }
        self.completes = true;
        self.give_up_at = now + GATHER + PREPARE_WITHIN;
        Some(self.give_up_at)
    }

    /// Returns the delay before the first ballot: by position in the list, plus jitter that separates equals.
    fn stagger(&self, random: &mut Random) -> Duration {
        let place = self.formation.place(&self.me.name).unwrap_or(0) as u32;
        STAGGER * place.min(STAGGER_MAX) + Duration::from_nanos(random.below(BEGIN_JITTER.as_nanos() as u64))
    }

    fn at_least(&self) -> usize {
        self.formation.at_least.into()
    }

    /// Returns how many participants were heard lately, this one included.
    fn heard(&self, now: Time) -> u16 {
        let heard = self.speakers.iter().filter(|(_, speaker)| now.since(speaker.at) < FORM_HEARD_WITHIN);
        1 + heard.count() as u16
    }

    /// True if this member hears at least two participants more than `heard`; one more may be that coordinator itself.
    fn hears_more_than(&self, heard: u16, now: Time) -> bool {
        heard.saturating_add(1) < self.heard(now)
    }

    fn note_speaker(&mut self, now: Time, sender: Uid, address: SocketAddr, hears_us: bool) {
        let most = self.formation.participants.len() * LIVES;
        if !self.speakers.contains(sender) && self.speakers.len() >= most {
            self.speakers.retain(|_, speaker| now.since(speaker.at) < FORM_HEARD_WITHIN);
            if self.speakers.len() >= most {
                return;
            }
        }
        let speaker = self.speakers.get_or_insert_with(sender, || Speaker { address, at: now, hears_us });
        *speaker = Speaker {
            address,
            at: now,
            hears_us: hears_us || (speaker.hears_us && speaker.address == address),
        };
    }

    fn say(&mut self, to: SocketAddr, frame: Frame) {
        self.out.push((Destination::Address(to), frame));
    }

    // --- coordinating ---

    pub(super) fn timeout(&mut self, now: Time, random: &mut Random) {
        let has_time = self.silent_until < self.give_up_at;
        if self.attempt.is_none() && self.begin_at <= now && !self.completes && has_time {
            self.begin(now, random);
        }
        self.step(now, random);
    }

    fn begin(&mut self, now: Time, random: &mut Random) {
        if self.round >= FORM_ROUND_MAX {
            self.begin_at = Time::NEVER;
            return;
        }
        self.round += 1;
        self.attempts += 1;
        self.begun_at = now;
        let ballot = Ballot { round: self.round, coordinator: self.me.uid };
        self.promised = Some(Promised { ballot, since: now, renewed_at: now, heard: self.heard(now) });
        let own = Promise {
            place: self.formation.place(&self.me.name).unwrap_or(0),
            member: self.me.clone(),
            nonce: self.nonce,
            before: self.prepared.clone(),
            prepared: false,
            renewed_at: now,
            replaced: false,
        };
        self.attempt = Some(Attempt {
            ballot,
            promises: [own].into(),
            gathers: None,
            proposal: None,
            until: now + FORM_PATIENCE,
            repeat_at: now,
        });
        self.step(now, random);
    }

    /// Gives up the present ballot and schedules another one.
    fn give_way(&mut self, now: Time, random: &mut Random) {
        self.attempt = None;
        let backoff = FORM_BACKOFF * self.attempts.min(BACKOFFS_MAX);
        let jitter = Duration::from_nanos(random.below(backoff.as_nanos() as u64));
        self.begin_at = now + FORM_PAUSE + jitter;
    }

    /// Does what is due in this member's own ballot.
    fn step(&mut self, now: Time, random: &mut Random) {
        self.propose_if_gathered(now, random);
        self.decide_if_prepared();
        let Some(own) = &self.attempt else { return };
        if self.decision.is_some() {
            self.attempt = None;
        } else if own.until <= now {
            self.give_way(now, random);
        } else if own.repeat_at <= now {
            self.repeat(now, random);
        }
    }

    fn propose_if_gathered(&mut self, now: Time, random: &mut Random) {
        let (at_least, all) = (self.at_least(), self.formation.participants.len());
        let left = self.give_up_at - now;
        let Some(own) = self.attempt.as_mut().filter(|own| own.proposal.is_none()) else { return };
        if own.renewed(lately(now)).count() < at_least {
            own.gathers = None;
            return;
        }
        if own.gathers.is_none() {
            own.repeat_at = now;
        }
        let (from, gather_until) = *own.gathers.get_or_insert((now, now + GATHER.min(left / 4)));
        own.until = own.until.max(gather_until + FORM_REPEAT_EVERY);
        let firm = own.firm().count();
        if firm < all && gather_until > now {
            return;
        }
        if firm < at_least {
            own.gathers = Some((from, now + FORM_REPEAT_EVERY));
            return;
        }
        let before = own.promises.iter().filter_map(|promise| promise.before.as_ref());
        let founding = match before.max_by_key(|(ballot, _)| *ballot) {
            Some((_, founding)) => founding.clone(),
            None => {
                own.promises.sort_by_key(|promise| promise.place);
                let nonce = |random: &mut Random| u128::from(random.next_u64());
                Founding {
                    instance: Instance(nonce(random) << 64 | nonce(random)),
                    epoch: EpochId { counter: 0, coordinator: self.me.uid, nonce: random.next_u64() },
                    config: self.config.clone(),
                    members: own.firm().map(|promise| promise.member.clone()).collect(),
                }
            }
        };
        self.prepared = Some((own.ballot, founding.clone()));
        own.promises.iter_mut().for_each(|promise| promise.prepared = promise.member.uid == self.me.uid);
        own.proposal = Some(founding);
        own.until = now + PREPARE_WITHIN;
        own.repeat_at = now;
    }

    fn decide_if_prepared(&mut self) {
        let at_least = self.at_least();
        let Some(own) = &self.attempt else { return };
        if let Some(founding) = &own.proposal
            && own.counted().filter(|promise| promise.prepared).count() >= at_least
        {
            self.decision = Some(Decision { ballot: own.ballot, founding: founding.clone(), ours: true });
        }
    }

    /// Repeats the question or proposal to participants that have not answered.
    fn repeat(&mut self, now: Time, random: &mut Random) {
        let question = self.question(now);
        let (tag, me) = (self.tag, self.me.uid);
        let Some(own) = &mut self.attempt else { return };
        let brisk = own.gathers.is_some() || own.proposal.is_some() || now.since(self.begun_at) < BRISK_FOR;
        let jitter = Duration::from_nanos(random.below(REPEAT_JITTER.as_nanos() as u64));
        own.repeat_at = now + if brisk { FORM_REPEAT_EVERY } else { REPEAT_SLOWLY } + jitter;
        match (&own.proposal, question) {
            (Some(founding), _) => {
                let lacking = own.counted().filter(|promise| !promise.prepared && promise.member.uid != me);
                for promise in lacking {
                    let (ballot, nonce, founding) = (own.ballot, promise.nonce, founding.clone().into());
                    let to = Destination::Address(promise.member.address);
                    self.out.push((to, Frame::FormPrepare { formation: tag, ballot, nonce, founding }));
                }
            }
            (None, Some(question)) => {
                self.out.push((Destination::Rendezvous, question.clone()));
                let is_firm = |uid| own.firm().any(|promise| promise.member.uid == uid);
                for (_, speaker) in self.speakers.iter().filter(|(uid, to)| to.hears_us && !is_firm(*uid)) {
                    self.out.push((Destination::Address(speaker.address), question.clone()));
                }
            }
            (None, None) => {}
        }
    }

    /// Asks another coordinator directly, so that it learns of this ballot, if the question is no longer than what it
    /// sent. Returns true if it asked.
    fn say_question(&mut self, now: Time, to: SocketAddr, room: u32) -> bool {
        let question = self.question(now).filter(|_| self.room <= room);
        let asks = question.is_some();
        self.out.extend(question.map(|question| (Destination::Address(to), question)));
        asks
    }

    /// Returns the question of this member's own ballot.
    fn question(&self, now: Time) -> Option<Frame> {
        let ballot = self.attempt.as_ref()?.ballot;
        Some(Frame::Form { formation: self.tag, ballot, heard: self.heard(now), room: self.room })
    }

    // --- what comes in ---

    pub(super) fn handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Uid,
        frame: Frame,
        random: &mut Random,
    ) {
        if now < self.silent_until && !matches!(frame, Frame::Formed { .. }) {
            return;
        }
        let is_ours =
            |formation: u64, ballot: Ballot| formation == self.tag && ballot.round <= FORM_ROUND_MAX;
        match frame {
            Frame::Form { formation, ballot, heard, room }
                if is_ours(formation, ballot) && ballot.coordinator == sender =>
            {
                self.handle_form(now, from, ballot, heard, room, random);
            }
            Frame::FormPromise(promise) if is_ours(promise.formation, promise.ballot) => {
                self.handle_promise(now, from, sender, *promise);
            }
            Frame::FormEcho { formation, ballot, heard, nonce }
                if is_ours(formation, ballot) && ballot.coordinator == sender && nonce == self.nonce =>
            {
                self.note_speaker(now, sender, from, false);
                self.handle_form(now, from, ballot, heard, self.room, random);
            }
            // The ballot names this life: a recording of an earlier start does not.
            Frame::FormRefused { formation, ballot, promised, nonce }
                if is_ours(formation, promised) && ballot.coordinator == self.me.uid =>
            {
                self.note_speaker(now, sender, from, false);
                self.handle_refusal(now, from, promised, nonce, random);
            }
            Frame::FormPrepare { formation, ballot, nonce, founding }
                if is_ours(formation, ballot)
                    && ballot.coordinator == sender
                    && (nonce == self.nonce || self.takes_any_nonce) =>
            {
                self.handle_prepare(now, from, ballot, *founding, random);
            }
            Frame::FormPrepared { formation, ballot } if is_ours(formation, ballot) => {
                if let Some(own) = self.attempt.as_mut().filter(|own| own.ballot == ballot)
                    && own.proposal.is_some()
                {
                    own.promises
                        .iter_mut()
                        .filter(|promise| promise.member.uid == sender)
                        .for_each(|promise| promise.prepared = true);
                }
            }
            Frame::Formed { formation, ballot, founding } if is_ours(formation, ballot) => {
                // A founding that leaves this member out counts only under a ballot that this life began or promised.
                let ours = founding.names(self.me.uid)
                    || ballot.coordinator == self.me.uid
                    || self.promised.is_some_and(|promised| promised.ballot == ballot);
                if ours && founding.is_of(&self.formation) {
                    self.decision = Some(Decision { ballot, founding: *founding, ours: false });
                }
            }
            _ => return,
        }
        self.step(now, random);
    }

    /// Handles the answer of a participant that promises nothing.
    fn handle_refusal(
        &mut self,
        now: Time,
        from: SocketAddr,
        promised: Ballot,
        nonce: u64,
        random: &mut Random,
    ) {
        self.round = self.round.max(promised.round);
        let Some(own) = self.attempt.as_ref().filter(|own| own.proposal.is_none()) else { return };
        if own.ballot < promised {
            return self.give_way(now, random);
        }
        let (formation, ballot, heard) = (self.tag, own.ballot, self.heard(now));
        self.say(from, Frame::FormEcho { formation, ballot, heard, nonce });
    }

    /// Tells a coordinator that its ballot is not promised, and what to show.
    fn refuse(&mut self, to: SocketAddr, ballot: Ballot) {
        let promised = self.promised.map(|promised| promised.ballot).unwrap_or_default();
        let (formation, nonce) = (self.tag, self.nonce);
        self.say(to, Frame::FormRefused { formation, ballot, promised, nonce });
    }

    /// Handles a coordinator's request for a promise.
    fn handle_form(
        &mut self,
        now: Time,
        from: SocketAddr,
        ballot: Ballot,
        heard: u16,
        room: u32,
        random: &mut Random,
    ) {
        self.round = self.round.max(ballot.round);
        let is_alive = self.speakers.contains(ballot.coordinator) || self.takes_any_question;
        if is_alive {
            self.note_speaker(now, ballot.coordinator, from, false);
        }
        if self.promised.is_some_and(|promised| ballot < promised.ballot) {
            if !self.say_question(now, from, room) {
                self.refuse(from, ballot);
            }
            return;
        }
        if !is_alive {
            return self.refuse(from, ballot);
        }
        if self.completes && self.promised.is_some_and(|promised| promised.ballot != ballot) {
            return;
        }
        if let Some(promised) = self.promised
            && promised.ballot.coordinator != ballot.coordinator
        {
            let fresh = now.since(promised.renewed_at) < FORM_HOLD_OFF;
            match &self.attempt {
                // This member's own ballot is about to end, decided or not.
                Some(own) if own.proposal.is_some() => return,
                None if fresh && heard.saturating_add(1) < promised.heard => return,
                _ if self.hears_more_than(heard, now) => {
                    if now.since(self.begun_at) >= RAISE_EVERY {
                        self.begin(now, random);
                        self.say_question(now, from, room);
                    }
                    return;
                }
                _ => {}
            }
        }
        self.promise(now, ballot, heard, random);
        let promise = FormPromise {
            formation: self.tag,
            ballot,
            name: self.me.name.clone(),
            address: self.me.address,
            floor: self.me.floor,
            hops: self.me.hops,
            nonce: self.nonce,
            prepared: self.prepared.clone(),
        };
        let promise = Frame::FormPromise(promise.into());
        if promise.datagram_bytes().is_some_and(|bytes| bytes <= room as usize) {
            self.say(from, promise);
        }
    }

    fn promise(&mut self, now: Time, ballot: Ballot, heard: u16, random: &mut Random) {
        let since = match self.promised {
            Some(promised) if promised.ballot == ballot => promised.since,
            _ => now,
        };
        self.promised = Some(Promised { ballot, since, renewed_at: now, heard });
        self.attempt = None;
        self.begin_at = (now + FORM_TAKE_OVER).min(since + FORM_PATIENCE) + self.stagger(random);
    }

    fn handle_promise(&mut self, now: Time, from: SocketAddr, sender: Uid, promise: FormPromise) {
        let FormPromise { ballot, name, address, floor, hops, nonce, prepared, .. } = promise;
        let Some(place) = self.formation.place(&name).filter(|_| name != self.me.name) else { return };
        if address != from {
            // A process that forwards another's promise would be recorded instead of it.
            return;
        }
        if ballot.coordinator == self.me.uid {
            self.note_speaker(now, sender, from, true);
        }
        let Some(own) = self.attempt.as_mut().filter(|own| own.ballot == ballot) else { return };
        if prepared.as_ref().is_some_and(|(_, founding)| !founding.is_of(&self.formation)) {
            return;
        }
        match own.promises.iter_mut().find(|known| known.place == place) {
            Some(known) if known.member.uid == sender => known.renewed_at = now,
            Some(known) => known.replaced = true,
            None => {
                let member = Member { uid: sender, name, address: from, floor, hops };
                own.promises.push(Promise {
                    place,
                    member,
                    nonce,
                    before: prepared,
                    prepared: false,
                    renewed_at: now,
                    replaced: false,
                });
            }
        }
    }

    fn handle_prepare(
        &mut self,
        now: Time,
        from: SocketAddr,
        ballot: Ballot,
        founding: Founding,
        random: &mut Random,
    ) {
        self.round = self.round.max(ballot.round);
        if !founding.is_of(&self.formation) {
            return;
        }
        let formation = self.tag;
        if self.promised.is_some_and(|promised| ballot < promised.ballot) {
            return self.refuse(from, ballot);
        }
        self.promise(now, ballot, self.formation.at_least, random);
        self.prepared = Some((ballot, founding));
        self.say(from, Frame::FormPrepared { formation, ballot });
    }
}
