//! Joining: finding the group, listening, and getting a JOIN numbered. The sequencer's side is in `admission`.
//!
//! A joiner sends `Locate`. The answer `HereIs` brings a cookie, which proves that the joiner receives at its address.
//! The joiner returns it in `JoinRequest`, and gets `Welcome`: the view, and where its log begins. From then on it
//! listens as an observer: it receives, repairs and acknowledges, and counts for nothing. When its JOIN is accepted it
//! is a member, and its application gets its first event. A JOIN may have a seqno before the joiner learns of it, and
//! other members may then wait for the joiner's vote. So the sequencer ends a join that takes too long, not the joiner.

use crate::config::{Floor, GroupConfig};
use crate::episode::Episode;
use crate::event::{Event, JoinFailure};
use crate::group::{Group, Phase};
use crate::identity::{Member, Name, Seqno, Uid};
use crate::log::Entry;
use crate::membership::leave::LEAVE_LINGER;
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::{Pace, Time};
use crate::wire::{Change, Condition, Frame, HereIs, ProtectionKind, Refusal, Welcome};
use alloc::boxed::Box;
use bytes::Bytes;
use core::cmp::Reverse;
use core::net::SocketAddr;
use core::time::Duration;

/// A process that looks for the group asks every 60 ms, or four times in the setting `locate` if that is more often, so
/// that members other than the sequencer answer in time. Minimum 5 ms.
const LOCATE_EVERY: Duration = Duration::from_millis(60);
const LOCATE_EVERY_MIN: Duration = Duration::from_millis(5);
const LOCATES: u32 = 4;
/// A joiner collects answers for 15 ms after the first one, so that all joiners choose the same of two groups.
const COLLECT: Duration = Duration::from_millis(15);
const JOIN_ASK_EVERY: Duration = Duration::from_millis(50);
/// After twelve unanswered requests (600 ms) the sequencer that answered has gone.
const ASKS_MAX: u32 = 12;
/// A process that hears `Locate` from a smaller uid puts its own founding off by 150 ms: by then the other process has
/// founded the group, or has asked again.
const PRECEDENCE: Duration = Duration::from_millis(150);
/// It puts founding off for at most three times `locate` in all: the other process may only want to join. A process with a
/// key puts it off for that long if there are datagrams of another version.
const PRECEDENCE_MAX: u32 = 3;
/// A process that only joins stops locating after ten times the setting `locate`.
const JOIN_PATIENCE: u32 = 10;
/// Maximum time from the first answer to the `Welcome`, however often the joiner looks for the group anew. The
/// sequencer also ends a join that has no seqno after 4 s.
pub(super) const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// A joiner that has listened for 2 s sends `Locate` again: it may take the wrong member for the sequencer.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// An answer keeps a participant silent in its formation for 1 s: sixteen questions, or all requests to a sequencer that
/// does not answer. Members that have gone would otherwise keep it out until its time is over.
const ANSWER_LASTS: Duration = Duration::from_secs(1);
const _: () =
    assert!(ANSWER_LASTS.as_millis() > COLLECT.as_millis() + ASKS_MAX as u128 * JOIN_ASK_EVERY.as_millis());
/// Minimum interval between two questions to a sequencer that another member named: 25 ms.
const REDIRECT_EVERY: Duration = Duration::from_millis(25);

/// What a process does if no member answers.
#[derive(Clone, Debug)]
pub(crate) enum Otherwise {
    /// It fails.
    Fail,
    /// It founds the group alone, with this configuration.
    Found(GroupConfig),
    /// It takes part in a formation, and fails at this time if it is in no group by then.
    Form(Time),
}

impl Otherwise {
    /// Returns the time at which it fails at the latest, if it still looks for the group.
    fn until(&self) -> Time {
        match self {
            Otherwise::Form(until) => *until,
            Otherwise::Fail | Otherwise::Found(_) => Time::NEVER,
        }
    }
}

/// State of a process that is joining.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    hello: Bytes,
    otherwise: Otherwise,
    /// True if a member of a group that was used has answered: such a group exists, and no second one is founded.
    exists: bool,
    began_at: Time,
    /// Until when founding may be put off for processes with smaller uids.
    found_by: Time,
    give_up_at: Time,
    nonce: u64,
    /// Best answer so far, and its source address.
    found: Option<(HereIs, SocketAddr)>,
    /// Reason to give up with: a member answered, but no sequencer answers or admits joiners.
    kept_out_by: Option<JoinFailure>,
    choose_at: Option<Time>,
    /// When this process chose the group for the first time.
    answered_at: Option<Time>,
    act_at: Time,
    /// The answer with which it asked to be admitted.
    asked: Option<HereIs>,
    asks: u32,
    /// Sequencer that sent the `Welcome`.
    welcomer: Option<Uid>,
    redirected: Pace,
}

impl Joining {
    /// Returns the sequencer that welcomed this joiner, if one did.
    pub(crate) fn welcomer(&self) -> Option<Uid> {
        self.welcomer
    }

    /// Notes that there is a group, so none is founded; the group has `JOIN_WITHIN` to admit this joiner.
    fn wait_outside(&mut self, now: Time, reason: JoinFailure) {
        if self.kept_out_by.replace(reason).is_none() {
            self.give_up_at = self.give_up_at.max(now + JOIN_WITHIN).min(self.otherwise.until());
        }
    }

    /// True if this process may found a group alone.
    fn may_found(&self) -> bool {
        matches!(self.otherwise, Otherwise::Found(_)) && !self.exists
    }

    pub(crate) fn wake_at(&self) -> Time {
        self.choose_at.map_or(self.act_at, |at| at.min(self.act_at)).min(self.give_up_at)
    }
}

impl Group {
    /// Begins to look for the group.
    pub(crate) fn look_for_group(&mut self, now: Time, otherwise: Otherwise, hello: Bytes) {
        self.look_again(now, otherwise, hello, false);
    }

    /// The same; `exists` if a member of a group that was used has answered before.
    pub(super) fn look_again(&mut self, now: Time, otherwise: Otherwise, hello: Bytes, exists: bool) {
        self.phase = Phase::Locating;
        let locate = self.settings.locate;
        // Founders that started together must not found at the same time.
        let jitter = Duration::from_nanos(self.random.below(locate.as_nanos() as u64 / 2 + 1));
        let give_up_at = match otherwise {
            Otherwise::Found(_) if !exists => now + locate + jitter,
            Otherwise::Found(_) | Otherwise::Fail => now + locate * JOIN_PATIENCE,
            Otherwise::Form(until) => until,
        };
        self.joining = Some(Box::new(Joining {
            hello,
            otherwise,
            exists,
            began_at: now,
            found_by: now + locate * PRECEDENCE_MAX,
            give_up_at,
            nonce: self.random.next_u64(),
            found: None,
            kept_out_by: None,
            choose_at: None,
            answered_at: None,
            act_at: now,
            asked: None,
            asks: 0,
            welcomer: None,
            redirected: Pace::default(),
        }));
        self.joining_timeout(now);
    }

    /// Puts founding off for another process that looks for the group. Of processes that start together, the one with
    /// the smallest uid founds the group, and the others join.
    pub(crate) fn give_precedence(&mut self, now: Time, asker: Uid) {
        let Some(joining) = &mut self.joining else { return };
        let would_found = self.phase == Phase::Locating && joining.may_found() && joining.asked.is_none();
        if would_found && asker < self.me.uid {
            joining.give_up_at = joining.give_up_at.max(joining.found_by.min(now + PRECEDENCE));
        }
    }

    /// Looks for the group anew, with the full time of a search, because the sequencer that was asked did not admit
    /// this joiner. Fails if the group keeps answering and has admitted no joiner for `JOIN_WITHIN`.
    fn start_over(&mut self, now: Time) {
        let Some(joining) = self.joining.take() else { return };
        if joining.answered_at.is_some_and(|at| now.since(at) >= JOIN_WITHIN) {
            self.join_failed(JoinFailure::TimedOut);
            return;
        }
        self.forget_group();
        self.look_again(now, joining.otherwise, joining.hello, joining.exists);
        if let Some(anew) = &mut self.joining {
            anew.answered_at = joining.answered_at;
        }
    }

    pub(crate) fn joining_timeout(&mut self, now: Time) {
        let Some(joining) = &mut self.joining else { return };
        if joining.choose_at.is_some_and(|at| at <= now) {
            joining.choose_at = None;
            joining.answered_at.get_or_insert(now);
            joining.asked = joining.found.map(|(here, _)| here);
            joining.give_up_at = (now + JOIN_WITHIN).min(joining.otherwise.until());
            joining.act_at = now;
        }
        if self.founds_after_silence(now) {
            return;
        }
        let Some(joining) = &mut self.joining else { return };
        if joining.give_up_at <= now {
            let seeks = self.phase == Phase::Locating && joining.found.is_none();
            match self.forming.as_mut().filter(|_| seeks).and_then(|forming| forming.complete_ballot(now)) {
                Some(until) => joining.give_up_at = until,
                None => return self.give_up(now),
            }
        }
        if joining.act_at > now {
            return;
        }
        match (self.phase, joining.asked) {
            (Phase::Locating, None) => {
                joining.act_at = now + (self.settings.locate / LOCATES).clamp(LOCATE_EVERY_MIN, LOCATE_EVERY);
                let nonce = joining.nonce;
                self.post_to_rendezvous(Frame::Locate { nonce });
            }
            (Phase::Locating, Some(here)) => {
                joining.act_at = now + JOIN_ASK_EVERY;
                let Member { name, floor, hops, .. } = self.me.clone();
                let hello = joining.hello.clone();
                joining.asks += 1;
                if joining.asks > ASKS_MAX {
                    self.start_over(now);
                    return;
                }
                let request = Frame::JoinRequest { cookie: here.cookie, name, floor, hops, hello };
                self.post_outside(here.sequencer, request);
            }
            _ => {
                joining.act_at = now + SEARCH_EVERY;
                self.search();
            }
        }
    }

    fn give_up(&mut self, now: Time) {
        let hears_members = now.since(self.last_heard()) < LEAVE_LINGER;
        let Some(joining) = &mut self.joining else { return };
        if let (Phase::Locating, None, Some(reason)) = (self.phase, &joining.found, joining.kept_out_by) {
            // No second group is founded beside one that exists.
            self.join_failed(reason);
            return;
        }
        if let (Phase::Locating, None, Some((by, version))) =
            (self.phase, &joining.found, self.other_versions.believed())
        {
            // The group may exist in that version: found no second one, and do not report that there is none. But such a
            // datagram proves nothing, and every process can forge it: it must not outweigh a key for longer than the
            // longest search.
            if self.protection.kind() == ProtectionKind::Checksum || !joining.may_found() {
                self.join_failed(JoinFailure::OtherVersion { by, version });
                return;
            }
            // This leaves time to give precedence to a process that waits likewise.
            let longest = (self.settings.locate * PRECEDENCE_MAX).saturating_sub(PRECEDENCE);
            if now < joining.began_at + longest {
                joining.give_up_at = joining.began_at + longest;
                return;
            }
        }
        match (self.phase, &joining.otherwise) {
            (Phase::Locating, Otherwise::Found(config)) if joining.found.is_none() && !joining.exists => {
                let (config, hello) = (config.clone(), joining.hello.clone());
                self.found(now, config, hello);
            }
            (Phase::Locating, otherwise) if joining.found.is_none() => {
                let heard = joining.exists || joining.answered_at.is_some();
                let forms = matches!(otherwise, Otherwise::Form(_));
                self.join_failed(match (heard, forms) {
                    (true, _) => JoinFailure::Lost,
                    (false, true) => JoinFailure::NotFormed,
                    (false, false) => JoinFailure::NotFound,
                });
            }
            // Its JOIN has a seqno, or may have: then it is a member, and its vote may be needed. The join ends by
            // acceptance, a reset, or `Farewell`; or, as for leavers, after a minute without members.
            (Phase::Joining, _) if hears_members => joining.give_up_at = now + JOIN_WITHIN,
            _ => self.join_failed(JoinFailure::TimedOut),
        }
    }

    /// Planted bug: a process that may only join or form founds a group alone when it hears no answer.
    fn founds_after_silence(&mut self, now: Time) -> bool {
        if !self.broken(Planted::FoundsAfterSilence) || self.phase != Phase::Locating {
            return false;
        }
        let Some(joining) = &self.joining else { return false };
        let silent = joining.found.is_none() && joining.kept_out_by.is_none() && !joining.exists;
        if matches!(joining.otherwise, Otherwise::Found(_))
            || !silent
            || now.since(joining.began_at) < self.settings.locate
        {
            return false;
        }
        let hello = joining.hello.clone();
        let config =
            self.forming.take().map_or_else(GroupConfig::default, |forming| forming.config().clone());
        self.found(now, config, hello);
        true
    }

    /// Notes that a formation decided a group without this process, which goes on looking for it.
    pub(crate) fn formed_without(&mut self) {
        if let Some(joining) = &mut self.joining {
            joining.exists = true;
        }
    }

    /// Falls silent in a formation, because a group exists. Returns false if this life ends instead: it has promised a
    /// founding that may have named it, and a reset has excluded that founding's absent members since.
    fn prefer_to_join(&mut self, now: Time, here: &HereIs) -> bool {
        let keeps = self.broken(Planted::HaltedAnswerKept) && here.condition == Condition::Halted;
        let Some(forming) = &mut self.forming else { return true };
        forming.fall_silent(if keeps { Time::NEVER } else { now + ANSWER_LASTS });
        if forming.has_promised() && here.epoch_counter > 0 {
            self.join_failed(JoinFailure::Reset);
            return false;
        }
        true
    }

    pub(crate) fn join_failed(&mut self, reason: JoinFailure) {
        self.phase = Phase::Gone;
        self.joining = None;
        self.forming = None;
        self.order.stop();
        self.detector.stop();
        self.recovery.stop();
        self.closing = Some(Event::JoinFailed { reason });
    }

    pub(crate) fn handle_here_is(&mut self, now: Time, from: SocketAddr, here: HereIs) {
        if let Some(joining) = &mut self.joining
            && self.phase == Phase::Locating
            && joining.asked.is_none()
        {
            if here.nonce != joining.nonce {
                return;
            }
            joining.exists |= here.condition != Condition::Pristine;
            if !self.prefer_to_join(now, &here) {
                return;
            }
            let by_lot = self.broken(Planted::GivesWayByLot);
            let Some(joining) = &mut self.joining else { return };
            if here.condition == Condition::Halted {
                joining.wait_outside(now, JoinFailure::Halted);
                return;
            }
            if here.sequencer != from {
                // From another member than the sequencer, whose cookie alone is good. Two members may each take the
                // other for the sequencer, hence the minimum interval.
                if !joining.redirected.take(now, REDIRECT_EVERY) {
                    return;
                }
                joining.wait_outside(now, JoinFailure::Unreachable { sequencer: here.sequencer });
                let nonce = joining.nonce;
                self.post_outside(here.sequencer, Frame::Locate { nonce });
                return;
            }
            // Of two groups, the one that does not give way when they meet (`seek`).
            let better = |known: &HereIs| {
                let rank = |here: &HereIs| {
                    let pristine = here.condition == Condition::Pristine;
                    (pristine, Reverse(if by_lot { 0 } else { here.ordered }), here.instance)
                };
                match here.instance == known.instance {
                    true => here.epoch_counter > known.epoch_counter,
                    false => rank(&here) < rank(known),
                }
            };
            if joining.found.as_ref().is_none_or(|(known, _)| better(known)) {
                joining.found = Some((here, from));
            }
            // A joiner that was answered just before its deadline chooses before it gives up.
            let choose_at = *joining.choose_at.get_or_insert(now + COLLECT);
            joining.give_up_at = joining.give_up_at.max(choose_at);
            return;
        }
        self.note_found(from, &here);
        self.meet_other_group(now, from, here);
    }

    /// True if this joiner asked the member at `address` to be admitted.
    pub(crate) fn has_asked(&self, address: SocketAddr) -> bool {
        let asked = self.joining.as_ref().and_then(|joining| joining.asked);
        asked.is_some_and(|here| here.sequencer == address)
    }

    /// Returns the answer with which this joiner asked to be admitted, if it carried `cookie`. Replies to another life
    /// at this address, or to an old request, do not count.
    fn asked_with(&self, cookie: u64) -> Option<HereIs> {
        let asked = self.joining.as_ref()?.asked;
        asked.filter(|here| here.cookie == cookie && self.phase == Phase::Locating)
    }

    pub(crate) fn handle_refused(&mut self, now: Time, by: SocketAddr, cookie: u64, reason: Refusal) {
        if self.asked_with(cookie).is_none() {
            return;
        }
        match reason {
            Refusal::Full => self.join_failed(JoinFailure::Full { by }),
            Refusal::Name => self.join_failed(JoinFailure::NameRefused { by }),
            Refusal::Floor => self.join_failed(JoinFailure::FloorTooHigh { by }),
            Refusal::FloorWithoutVote => self.join_failed(JoinFailure::FloorWithoutVote { by }),
            Refusal::NotNow => {}
            Refusal::Cookie => self.start_over(now),
        }
    }

    /// Fails the join: a sequencer of this epoch does not know this joiner, so its JOIN will not come.
    pub(crate) fn handle_unknown_here(&mut self) {
        if self.phase == Phase::Joining && !self.is_member() {
            self.join_failed(JoinFailure::TimedOut);
        }
    }

    /// Begins to listen, with the view, configuration and start of the log that `Welcome` brings.
    pub(crate) fn handle_welcome(&mut self, now: Time, from: Uid, welcome: Welcome) {
        let asked = self.asked_with(welcome.cookie).filter(|here| here.instance == welcome.instance);
        let Some(asked) = asked.filter(|_| welcome.config.check().is_ok()) else { return };
        // The sequencer does not know this process as a member, so no formation made it one.
        self.forming = None;
        self.instance = welcome.instance;
        self.config = welcome.config;
        // Datagrams that this joiner could not open or read may have been from this group.
        self.foreign = None;
        self.other_versions.forget();
        self.begin_log(now, welcome.epoch, welcome.epoch_start, &welcome.base);
        if self.peers.get(from).is_none() {
            // The sequencer may have joined after the seqno at which this log begins; this joiner must hear it too.
            let member = Member {
                uid: from,
                name: Name::default(),
                address: asked.sequencer,
                floor: Floor::None,
                hops: Member::HOPS_DEFAULT,
            };
            self.peers.insert(Peer::new(now, member, Standing::Member, 0));
        }
        self.phase = Phase::Joining;
        if let Some(joining) = &mut self.joining {
            joining.welcomer = Some(from);
            joining.act_at = now + SEARCH_EVERY;
        }
        self.acknowledging.report_now();
        self.detector.look_soon(now);
    }

    /// Enters the group if this member's JOIN is accepted.
    #[cold]
    pub(crate) fn enter_if_joined(&mut self, now: Time) {
        if self.phase != Phase::Joining {
            return;
        }
        for seqno in self.log.delivered() + 1..=self.log.accepted() {
            let Some(Entry::Change(change)) = self.log.history().get(seqno) else { continue };
            let Change::Join { member, .. } = &**change else { continue };
            if member.uid == self.me.uid {
                self.probe(Probe::JoinerEntered);
                self.phase = if self.leaving.is_some() { Phase::Leaving } else { Phase::Member };
                self.joining = None;
                self.log.skip_through(seqno - 1);
                self.entered_at = seqno;
                let members = self.log.history().view_at(seqno).len();
                self.episodes.push(Episode::Entered { seqno, members });
                self.detector.look_soon(now);
                self.seek_others(now, Bytes::new());
                return;
            }
        }
        // An observer delivers nothing of what was accepted before its JOIN.
        self.log.skip_through(self.log.accepted());
    }

    /// Planted bug: a joiner skips the first message after its own JOIN.
    pub(crate) fn joiner_starts_late(&self, seqno: Seqno) -> bool {
        self.broken(Planted::JoinerStartsLate) && self.entered_at > 0 && seqno == self.entered_at + 1
    }
}
