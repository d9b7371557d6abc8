//! Forming: named participants that start at about the same time make one group of at least so many of them, or
//! none (KT96 §5: atomic group creation).
//!
//! It is single-decree consensus among the participants, outside of any epoch. A coordinator asks for promises
//! (`Form`), waits a moment for those who are not needed, proposes a founding (instance, first epoch, configuration,
//! members: those who promised), and when at least so many have prepared it under one ballot, it is decided. A
//! proposal that was prepared before is taken over as it is. Any two quorums share a participant, since each is more
//! than half. Whoever is named in the founding and learns of the decision enters, the first of the members orders;
//! whoever is not named is told so and may join like anybody. After the time given the rest learns that the group
//! was not formed here.
//!
//! **What holds.** Participants count by name, as the life (uid) in which they promised: of two lives under one name
//! none counts in that ballot. Promises are kept in memory, so a restarted participant has forgotten its own. Two
//! quorums of `at_least` (m) of n names share 2m − n names. As long as fewer names than that restart between taking
//! part and taking part again, two quorums share a *life*, and there is at most one group. So three participants
//! that want two bear no restart; five that want four bear two; with m = n all but one may restart. Beyond that a
//! second group can come to be only out of earshot of the first: a member of the first tells everybody who asks that
//! it is formed, for as long as it is a member. Waiting after a start would close no more of the hole, since those
//! with whom the restarted one forms again may have been started later still; only a disk would.
//!
//! **Courtesies**, not needed for safety: participants begin in the order of the list; of two coordinators the one
//! with the higher ballot goes on, unless the other hears more participants, be it because the first is deaf or
//! because all know the other and few each other; a participant begins when nothing comes of what it promised.
//!
//! Nobody is sent more than came from its address, until it has shown that it hears us by repeating a ballot of
//! ours: `Form` is padded to the length of the longest answer.

use crate::config::{Formation, GroupConfig, Settings};
use crate::error::ConfigError;
use crate::event::{Event, JoinFailure};
use crate::group::{Destination, Group, Phase};
use crate::identity::{Ballot, EpochId, Instance, Member, Name, Uid, mix};
use crate::random::Random;
use crate::table::Table;
use crate::time::Time;
use crate::wire::{FRAME_HEAD_BYTES, FormPromise, Founding, Frame, HEADER_BYTES, LogBase, PADDED_BYTES_MIN};
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};
use core::time::Duration;

/// Participants begin so long after the one before them in the list, and at most so many times that.
const STAGGER: Duration = Duration::from_millis(4);
const STAGGER_MAX: u32 = 50;
/// How often a coordinator repeats itself while answers are expected, and while it waits for participants to start.
const REPEAT_EVERY: Duration = Duration::from_millis(20);
const REPEAT_SLOWLY: Duration = Duration::from_millis(60);
const BRISK_FOR: Duration = Duration::from_millis(200);
/// With enough promises a coordinator waits so long for the rest, or a quarter of the time left if that is less.
const GATHER: Duration = Duration::from_millis(300);
/// A proposal that is not prepared within this ends its ballot.
const PREPARE_WITHIN: Duration = Duration::from_millis(250);
/// Without enough promises a ballot ends after this, and nobody waits longer for what becomes of a promise.
const PATIENCE: Duration = Duration::from_millis(900);
/// A coordinator that is silent for so long is taken for dead.
const TAKE_OVER: Duration = Duration::from_millis(400);
/// For so long after the last word of a coordinator one that hears fewer participants is ignored.
const HOLD_OFF: Duration = Duration::from_millis(100);
/// Who spoke within this is heard.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// So many lives are kept in mind for each participant.
const LIVES: usize = 2;
/// A coordinator goes above another's ballot at most this often.
const RAISE_EVERY: Duration = Duration::from_millis(20);
/// Nobody counts so far: a higher round is somebody's joke.
const ROUND_MAX: u32 = 1 << 20;
/// The decision is told unasked so many times, at intervals that double, to those who have not shown that they know.
const TELLS: u32 = 8;
const TELL_FIRST: Duration = Duration::from_millis(20);
/// Who decided a group without itself tells its members for so long.
const LINGER: Duration = Duration::from_millis(200);

/// This member is about to form its group: acceptor, and coordinator at times.
#[derive(Clone, Debug)]
pub(crate) struct Forming {
    me: Member,
    formation: Formation,
    /// Names the formation on the wire.
    tag: u64,
    config: GroupConfig,
    give_up_at: Time,
    /// Bytes of a question, so that any answer fits.
    room: u32,
    promised: Option<Promised>,
    prepared: Option<(Ballot, Founding)>,
    /// The highest heard of.
    round: u32,
    attempts: u32,
    /// When this member begins a ballot of its own.
    begin_at: Time,
    attempt: Option<Attempt>,
    begun_at: Time,
    /// Who spoke of this formation.
    speakers: Table<Speaker>,
    decision: Option<Decision>,
    out: Vec<(Destination, Frame)>,
}

/// To whom, since when, and how that coordinator did when it last spoke.
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
    /// It repeated a ballot of ours: it hears what is sent to this address.
    hears_us: bool,
}

/// A ballot of this member's own.
#[derive(Clone, Debug)]
struct Attempt {
    ballot: Ballot,
    promises: Vec<Promise>,
    /// There are enough promises; the rest is waited for until then.
    gather_until: Option<Time>,
    proposal: Option<Founding>,
    until: Time,
    repeat_at: Time,
}

/// A participant that promised this member's ballot.
#[derive(Clone, Debug)]
struct Promise {
    place: usize,
    member: Member,
    before: Option<(Ballot, Founding)>,
    prepared: bool,
    /// Another life answered under its name: neither counts.
    replaced: bool,
}

#[derive(Clone, Debug)]
struct Decision {
    ballot: Ballot,
    founding: Founding,
    /// Decided by this member's own ballot.
    ours: bool,
}

/// What was decided, kept for those who ask.
#[derive(Clone, Debug)]
pub(crate) struct Formed {
    tag: u64,
    decision: Decision,
    tell_at: Option<Time>,
    tells: u32,
    /// Decided without this member: when that is reported.
    fail_at: Option<Time>,
}

impl Formation {
    /// Stands for the names, in any order, and how many of them it takes.
    fn tag(&self) -> u64 {
        let mut names: Vec<&Name> = self.participants.iter().collect();
        names.sort_unstable();
        names.into_iter().fold(mix(self.at_least.into()), |hash, name| {
            let hash = name.as_str().bytes().fold(hash, |hash, byte| mix(hash ^ u64::from(byte)));
            mix(hash ^ 1 << 8)
        })
    }

    fn place(&self, name: &Name) -> Option<usize> {
        self.participants.iter().position(|participant| participant == name)
    }

    /// Bytes of the longest answer to a question, for a proposal of all participants, with the header in front.
    fn answer_bytes_max(&self, config: &GroupConfig) -> usize {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let member = |name: &Name| Member { uid: Uid(0), name: name.clone(), address };
        let founding = Founding {
            instance: Instance(0),
            epoch: EpochId::default(),
            config: config.clone(),
            members: self.participants.iter().map(member).collect(),
        };
        let name = self.participants.iter().max_by_key(|name| name.as_str().len()).cloned();
        let longest = Frame::FormPromise(FormPromise {
            formation: 0,
            ballot: Ballot::default(),
            name: name.unwrap_or_default(),
            prepared: Some((Ballot::default(), founding)),
        });
        answer_bytes(&longest).unwrap_or(usize::MAX)
    }
}

/// Bytes of a datagram with this frame alone.
fn answer_bytes(frame: &Frame) -> Option<usize> {
    let kind_bytes = 1;
    frame.encode_alone().map(|alone| HEADER_BYTES + FRAME_HEAD_BYTES - kind_bytes + alone.len())
}

impl Founding {
    /// What an honest coordinator of this formation could have proposed.
    fn is_of(&self, formation: &Formation) -> bool {
        let members = &self.members;
        let once = |member: &Member| {
            let same = |other: &&Member| other.uid == member.uid || other.name == member.name;
            members.iter().filter(same).count() == 1
        };
        members.len() >= usize::from(formation.at_least)
            && members.len() <= formation.participants.len()
            && members.iter().all(|member| formation.place(&member.name).is_some() && once(member))
            && self.epoch.counter == 0
            && self.config.check().is_ok()
    }

    fn names(&self, uid: Uid) -> bool {
        self.members.iter().any(|member| member.uid == uid)
    }
}

impl Attempt {
    fn counted(&self) -> impl Iterator<Item = &Promise> {
        self.promises.iter().filter(|promise| !promise.replaced)
    }

    fn wake_at(&self) -> Time {
        let gathered = self.gather_until.filter(|_| self.proposal.is_none());
        self.until.min(self.repeat_at).min(gathered.unwrap_or(Time::NEVER))
    }
}

impl Forming {
    /// Ready to form a group, if a proposal of all participants fits a datagram.
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
            let allowed = "so few that their names, addresses and configuration fit a datagram";
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
            begin_at: now,
            attempt: None,
            begun_at: now,
            speakers: Table::default(),
            decision: None,
            out: Vec::new(),
            me,
            formation,
        };
        forming.begin_at = now + forming.stagger(random);
        Ok(forming)
    }

    pub(crate) fn wake_at(&self) -> Time {
        self.attempt.as_ref().map_or(self.begin_at, Attempt::wake_at).min(self.give_up_at)
    }

    /// The first of the list begins first; a little jitter, so that equals do not stay equal.
    fn stagger(&self, random: &mut Random) -> Duration {
        let place = self.formation.place(&self.me.name).unwrap_or(0) as u32;
        STAGGER * place.min(STAGGER_MAX) + Duration::from_nanos(random.below(2_000_000))
    }

    fn at_least(&self) -> usize {
        self.formation.at_least.into()
    }

    /// How many participants spoke lately, this one included.
    fn heard(&self, now: Time) -> u16 {
        let heard = self.speakers.iter().filter(|(_, speaker)| now.since(speaker.at) < HEARD_WITHIN);
        1 + heard.count() as u16
    }

    /// This member hears more than somebody who hears so many; one more may be that one itself.
    fn hears_more_than(&self, heard: u16, now: Time) -> bool {
        heard.saturating_add(1) < self.heard(now)
    }

    fn note_speaker(&mut self, now: Time, sender: Uid, address: SocketAddr, hears_us: bool) {
        let most = self.formation.participants.len() * LIVES;
        if !self.speakers.contains(sender) && self.speakers.len() >= most {
            self.speakers.retain(|_, speaker| now.since(speaker.at) < HEARD_WITHIN);
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

    fn timeout(&mut self, now: Time, random: &mut Random) {
        if self.attempt.is_none() && self.begin_at <= now {
            self.begin(now, random);
        }
        self.step(now, random);
    }

    fn begin(&mut self, now: Time, random: &mut Random) {
        if self.round >= ROUND_MAX {
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
            before: self.prepared.clone(),
            prepared: false,
            replaced: false,
        };
        self.attempt = Some(Attempt {
            ballot,
            promises: [own].into(),
            gather_until: None,
            proposal: None,
            until: now + PATIENCE,
            repeat_at: now,
        });
        self.step(now, random);
    }

    /// Nothing comes of the present ballot: another one later.
    fn give_way(&mut self, now: Time, random: &mut Random) {
        self.attempt = None;
        let most = 40_000_000 * u64::from(self.attempts.min(6));
        self.begin_at = now + Duration::from_millis(5) + Duration::from_nanos(random.below(most));
    }

    /// Whatever follows for this member's own ballot.
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
        let promises = own.counted().count();
        if promises < at_least {
            own.gather_until = None;
            return;
        }
        let gather_until = *own.gather_until.get_or_insert(now + GATHER.min(left / 4));
        own.until = own.until.max(gather_until + REPEAT_EVERY);
        if promises < all && gather_until > now {
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
                    members: own.counted().map(|promise| promise.member.clone()).collect(),
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

    /// Asks those who have not answered.
    fn repeat(&mut self, now: Time, random: &mut Random) {
        let question = self.question(now);
        let (tag, me) = (self.tag, self.me.uid);
        let Some(own) = &mut self.attempt else { return };
        let brisk =
            own.gather_until.is_some() || own.proposal.is_some() || now.since(self.begun_at) < BRISK_FOR;
        let jitter = Duration::from_nanos(random.below(5_000_000));
        own.repeat_at = now + if brisk { REPEAT_EVERY } else { REPEAT_SLOWLY } + jitter;
        match (&own.proposal, question) {
            (Some(founding), _) => {
                let lacking = own.counted().filter(|promise| !promise.prepared && promise.member.uid != me);
                for promise in lacking {
                    let (ballot, founding) = (own.ballot, founding.clone());
                    let to = Destination::Address(promise.member.address);
                    self.out.push((to, Frame::FormPrepare { formation: tag, ballot, founding }));
                }
            }
            (None, Some(question)) => {
                self.out.push((Destination::Rendezvous, question.clone()));
                let promised = |uid| own.promises.iter().any(|promise| promise.member.uid == uid);
                for (_, speaker) in self.speakers.iter().filter(|(uid, to)| to.hears_us && !promised(*uid)) {
                    self.out.push((Destination::Address(speaker.address), question.clone()));
                }
            }
            (None, None) => {}
        }
    }

    /// Another coordinator learns best of this one by being asked itself, if that is not longer than what it sent.
    fn say_question(&mut self, now: Time, to: SocketAddr, room: u32) -> bool {
        let question = self.question(now).filter(|_| self.room <= room);
        let asks = question.is_some();
        self.out.extend(question.map(|question| (Destination::Address(to), question)));
        asks
    }

    /// The question of this member's own ballot.
    fn question(&self, now: Time) -> Option<Frame> {
        let ballot = self.attempt.as_ref()?.ballot;
        Some(Frame::Form { formation: self.tag, ballot, heard: self.heard(now), room: self.room })
    }

    // --- what comes in ---

    fn handle(&mut self, now: Time, from: SocketAddr, sender: Uid, frame: Frame, random: &mut Random) {
        let is_ours = |formation: u64, ballot: Ballot| formation == self.tag && ballot.round <= ROUND_MAX;
        match frame {
            Frame::Form { formation, ballot, heard, room }
                if is_ours(formation, ballot) && ballot.coordinator == sender =>
            {
                self.handle_form(now, from, ballot, heard, room, random);
            }
            Frame::FormPromise(promise) if is_ours(promise.formation, promise.ballot) => {
                self.handle_promise(now, from, sender, promise);
            }
            Frame::FormOutbid { formation, promised } if is_ours(formation, promised) => {
                self.round = self.round.max(promised.round);
                self.note_speaker(now, sender, from, false);
                let outbid = |own: &Attempt| own.ballot < promised && own.proposal.is_none();
                if self.attempt.as_ref().is_some_and(outbid) {
                    self.give_way(now, random);
                }
            }
            Frame::FormPrepare { formation, ballot, founding }
                if is_ours(formation, ballot) && ballot.coordinator == sender =>
            {
                self.handle_prepare(now, from, ballot, founding, random);
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
                // What leaves this member out counts only as an answer to something of this life.
                let ours = founding.names(self.me.uid)
                    || ballot.coordinator == self.me.uid
                    || self.promised.is_some_and(|promised| promised.ballot == ballot);
                if ours && founding.is_of(&self.formation) {
                    self.decision = Some(Decision { ballot, founding, ours: false });
                }
            }
            _ => return,
        }
        self.step(now, random);
    }

    /// A coordinator asks for a promise.
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
        self.note_speaker(now, ballot.coordinator, from, false);
        if let Some(promised) = self.promised.filter(|promised| ballot < promised.ballot) {
            if !self.say_question(now, from, room) {
                self.say(from, Frame::FormOutbid { formation: self.tag, promised: promised.ballot });
            }
            return;
        }
        if let Some(promised) = self.promised
            && promised.ballot.coordinator != ballot.coordinator
        {
            let fresh = now.since(promised.renewed_at) < HOLD_OFF;
            match &self.attempt {
                // Soon over, one way or the other.
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
        let promise = Frame::FormPromise(FormPromise {
            formation: self.tag,
            ballot,
            name: self.me.name.clone(),
            prepared: self.prepared.clone(),
        });
        if answer_bytes(&promise).is_some_and(|bytes| bytes <= room as usize) {
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
        self.begin_at = (now + TAKE_OVER).min(since + PATIENCE) + self.stagger(random);
    }

    fn handle_promise(&mut self, now: Time, from: SocketAddr, sender: Uid, promise: FormPromise) {
        let FormPromise { ballot, name, prepared, .. } = promise;
        let Some(place) = self.formation.place(&name).filter(|_| name != self.me.name) else { return };
        if ballot.coordinator == self.me.uid {
            self.note_speaker(now, sender, from, true);
        }
        let Some(own) = self.attempt.as_mut().filter(|own| own.ballot == ballot) else { return };
        if prepared.as_ref().is_some_and(|(_, founding)| !founding.is_of(&self.formation)) {
            return;
        }
        match own.promises.iter_mut().find(|known| known.place == place) {
            Some(known) => known.replaced |= known.member.uid != sender,
            None => {
                let member = Member { uid: sender, name, address: from };
                own.promises.push(Promise {
                    place,
                    member,
                    before: prepared,
                    prepared: false,
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
        if let Some(promised) = self.promised.filter(|promised| ballot < promised.ballot) {
            self.say(from, Frame::FormOutbid { formation, promised: promised.ballot });
            return;
        }
        self.promise(now, ballot, self.formation.at_least, random);
        self.prepared = Some((ballot, founding));
        self.say(from, Frame::FormPrepared { formation, ballot });
    }
}

impl Formed {
    fn frame(&self, ballot: Ballot) -> Frame {
        Frame::Formed { formation: self.tag, ballot, founding: self.decision.founding.clone() }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        [self.tell_at, self.fail_at].into_iter().flatten().min()
    }
}

// --- what the group makes of it ---

impl Group {
    /// A frame of some formation. Who entered by it answers as long as it is a member, whoever else does.
    pub(crate) fn handle_forming(&mut self, now: Time, from: SocketAddr, sender: Uid, frame: Frame) {
        if let (Some(formed), &Frame::Form { formation, ballot, room, .. }) = (&self.formed, &frame) {
            let answer = formed.frame(ballot);
            if formation == formed.tag
                && self.phase != Phase::Excluded
                && answer_bytes(&answer).is_some_and(|bytes| bytes <= room as usize)
            {
                self.post_outside(from, answer);
            }
        }
        if let Some(forming) = &mut self.forming {
            forming.handle(now, from, sender, frame, &mut self.random);
            self.follow_forming(now);
        }
    }

    pub(crate) fn forming_timeout(&mut self, now: Time) {
        if let Some(forming) = &mut self.forming {
            if forming.give_up_at <= now {
                self.forming = None;
                self.join_failed(JoinFailure::NotFormed);
                return;
            }
            forming.timeout(now, &mut self.random);
            self.follow_forming(now);
        }
        self.formed_timeout(now);
    }

    /// Sends what is to be said, and does what was decided.
    fn follow_forming(&mut self, now: Time) {
        let Some(forming) = &mut self.forming else { return };
        let (out, decision) = (core::mem::take(&mut forming.out), forming.decision.take());
        let (tag, give_up_at) = (forming.tag, forming.give_up_at);
        for (to, frame) in out {
            match to {
                Destination::Address(address) => self.post_outside(address, frame),
                _ => self.post_to_rendezvous(frame),
            }
        }
        let Some(decision) = decision else { return };
        self.forming = None;
        let (ours, enters) = (decision.ours, decision.founding.names(self.me.uid));
        if enters {
            self.enter_formed(now, decision.founding.clone());
        }
        self.formed = Some(Formed {
            tag,
            decision,
            tell_at: (ours || enters).then(|| if ours { now } else { now + TELL_FIRST }),
            tells: 0,
            fail_at: (!enters).then(|| if ours { give_up_at.min(now + LINGER) } else { now }),
        });
        self.formed_timeout(now);
    }

    fn enter_formed(&mut self, now: Time, founding: Founding) {
        let Founding { instance, epoch, config, members } = founding;
        (self.instance, self.config) = (instance, config);
        let orderer = members[0].uid;
        let base = LogBase { seqno: 0, members, term: (0, orderer), last_numbers: Vec::new() };
        self.begin_log(now, epoch, 0, &base);
        self.phase = Phase::Member;
        let view = self.view_at(0, orderer);
        self.notices.push_back(Event::Entered { seqno: 0, view });
        self.acknowledging.due = true;
        self.detector.look_soon(now);
    }

    /// Tells the decision to those who may not know it, and reports one that leaves this member out.
    fn formed_timeout(&mut self, now: Time) {
        let Some(formed) = &self.formed else { return };
        if formed.fail_at.is_some_and(|at| at <= now) {
            self.formed = None;
            self.join_failed(JoinFailure::NotFormed);
            return;
        }
        if formed.tell_at.is_none_or(|at| at > now) {
            return;
        }
        let frame = formed.frame(formed.decision.ballot);
        let whom = self.not_known_to_have_entered(formed);
        let more = !whom.is_empty() && formed.tells + 1 < TELLS && self.epoch.counter == 0;
        let next = now + TELL_FIRST * (1 << formed.tells);
        for address in whom {
            self.post_outside(address, frame.clone());
        }
        if let Some(formed) = &mut self.formed {
            formed.tells += 1;
            formed.tell_at = more.then_some(next);
        }
    }

    /// Who decided tells everybody, and so does the orderer; the others tell the orderer.
    fn not_known_to_have_entered(&self, formed: &Formed) -> Vec<SocketAddr> {
        let Decision { founding, ours, .. } = &formed.decision;
        let everybody = *ours || self.order.is_acting();
        let tells = |member: &&Member| {
            let entered = self.peers.get(member.uid).is_some_and(|peer| peer.entered);
            member.uid != self.me.uid && !entered && (everybody || member.uid == founding.members[0].uid)
        };
        founding.members.iter().filter(tells).map(|member| member.address).collect()
    }
}
