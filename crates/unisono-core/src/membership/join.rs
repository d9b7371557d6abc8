//! Joining: finding the group, listening, and being numbered in. The sequencer's side is the `door`.
//!
//! A joiner asks where the group is (HEREIS comes with a cookie, which shows that it hears what is sent to its
//! address), asks to be let in, and is told the view and where the log begins that it can be served from. From then
//! on it listens as an observer: it receives, repairs, acknowledges, and counts for nothing. When its JOIN is
//! accepted it is a member, and its application sees its first event. It may be numbered in and not hear of it, and others
//! may wait for its vote then; so it is the sequencer who ends a join that takes too long, and not the joiner.

use crate::config::GroupConfig;
use crate::episode::Episode;
use crate::event::{Event, JoinFailure};
use crate::group::{Group, Phase};
use crate::history::Entry;
use crate::identity::{Member, Name, Seqno, Uid};
use crate::membership::leave::LEAVE_LINGER;
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::{Pace, Time};
use crate::wire::{Change, Condition, Frame, HereIs, Refusal, Welcome};
use alloc::boxed::Box;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

const LOCATE_EVERY: Duration = Duration::from_millis(60);
/// Answers are collected for so long after the first, so that of two groups all newcomers choose the same.
const COLLECT: Duration = Duration::from_millis(15);
const JOIN_ASK_EVERY: Duration = Duration::from_millis(50);
/// After so many unanswered requests whoever answered first is not there any more.
const ASKS_MAX: u32 = 12;
/// Who would found the group waits so long for another that asks for it and goes before it: that one is in its place by
/// then, or asks again.
const PRECEDENCE: Duration = Duration::from_millis(150);
/// It waits so many times the setting `locate` in all: the other one may be one that founds nothing.
const PRECEDENCE_MAX: u32 = 3;
/// A plain join gives up locating after so many times the setting `locate`.
const JOIN_PATIENCE: u32 = 10;
/// From an answer to listening, however often the group is looked for anew. The sequencer ends a join to which it has given
/// no number for as long.
pub(super) const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// Whoever listens for so long asks where the group is: it may hear others, and take one for the sequencer that is not.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// Answers that do not come from the sequencer itself are followed up at most this often.
const REDIRECT_EVERY: Duration = Duration::from_millis(25);

/// This member is on its way in.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    hello: Bytes,
    /// Founds the group if nobody answers.
    config: Option<GroupConfig>,
    /// At the latest, if nobody answers.
    found_by: Time,
    give_up_at: Time,
    nonce: u64,
    /// The best answer so far.
    found: Option<(HereIs, SocketAddr)>,
    /// There is a group, a member said, but none of its sequencers answers yet: what to give up with.
    kept_out_by: Option<JoinFailure>,
    choose_at: Option<Time>,
    /// When this life chose the group for the first time.
    answered_at: Option<Time>,
    act_at: Time,
    /// Asked to be let in, by this answer.
    asked: Option<HereIs>,
    asks: u32,
    /// The sequencer that lets this joiner listen.
    welcomer: Option<Uid>,
    redirected: Pace,
}

impl Joining {
    /// There is a group: no other is founded, and it has some time to let this joiner in.
    fn wait_outside(&mut self, now: Time, reason: JoinFailure) {
        if self.kept_out_by.replace(reason).is_none() {
            self.give_up_at = self.give_up_at.max(now + JOIN_WITHIN);
        }
    }

    pub(crate) fn wake_at(&self) -> Time {
        self.choose_at.map_or(self.act_at, |at| at.min(self.act_at)).min(self.give_up_at)
    }
}

impl Group {
    /// Begins to look for the group; founds it with `config` if nobody answers.
    pub(crate) fn look_for_group(&mut self, now: Time, config: Option<GroupConfig>, hello: Bytes) {
        self.phase = Phase::Locating;
        let locate = self.settings.locate;
        // Founders that started together shall not found together.
        let jitter = Duration::from_nanos(self.random.below(locate.as_nanos() as u64 / 2 + 1));
        let patience = if config.is_some() { locate + jitter } else { locate * JOIN_PATIENCE };
        self.joining = Some(Box::new(Joining {
            hello,
            config,
            found_by: now + locate * PRECEDENCE_MAX,
            give_up_at: now + patience,
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

    /// Somebody else asks where the group is. Of those who start together and would found it the one with the smallest uid
    /// does, and the others join.
    pub(crate) fn give_precedence(&mut self, now: Time, asker: Uid) {
        let Some(joining) = &mut self.joining else { return };
        let would_found =
            self.phase == Phase::Locating && joining.config.is_some() && joining.asked.is_none();
        if would_found && asker < self.me.uid {
            joining.give_up_at = joining.give_up_at.max(joining.found_by.min(now + PRECEDENCE));
        }
    }

    /// The one that was asked to let this joiner in does not: looks for the group anew, with all the time that takes. But
    /// a group that answers each time, and lets nobody in, is not asked for ever.
    fn start_over(&mut self, now: Time) {
        let Some(joining) = self.joining.take() else { return };
        if joining.answered_at.is_some_and(|at| now.since(at) >= JOIN_WITHIN) {
            self.join_failed(JoinFailure::TimedOut);
            return;
        }
        self.forget_group();
        self.look_for_group(now, joining.config, joining.hello);
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
            joining.give_up_at = now + JOIN_WITHIN;
            joining.act_at = now;
        }
        if joining.give_up_at <= now {
            self.give_up(now);
            return;
        }
        if joining.act_at > now {
            return;
        }
        match (self.phase, joining.asked) {
            (Phase::Locating, None) => {
                joining.act_at = now + LOCATE_EVERY;
                let nonce = joining.nonce;
                self.post_to_rendezvous(Frame::Locate { nonce });
            }
            (Phase::Locating, Some(here)) => {
                joining.act_at = now + JOIN_ASK_EVERY;
                let (name, hello) = (self.me.name.clone(), joining.hello.clone());
                joining.asks += 1;
                if joining.asks > ASKS_MAX {
                    self.start_over(now);
                    return;
                }
                self.post_outside(here.sequencer, Frame::JoinRequest { cookie: here.cookie, name, hello });
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
            // No reason to found a second group.
            self.join_failed(reason);
            return;
        }
        if let (Phase::Locating, None, Some((by, version))) =
            (self.phase, &joining.found, self.other_versions.believed())
        {
            // There may be a group: it is not founded a second time, nor said to be missing.
            self.join_failed(JoinFailure::OtherVersion { by, version });
            return;
        }
        match (self.phase, joining.config.take()) {
            (Phase::Locating, Some(config)) if joining.found.is_none() => {
                let hello = joining.hello.clone();
                self.found(now, config, hello);
            }
            (Phase::Locating, _) if joining.found.is_none() => {
                let heard = joining.answered_at.is_some();
                self.join_failed(if heard { JoinFailure::Lost } else { JoinFailure::NotFound });
            }
            // Its JOIN is in the order, or may be: then it is a member, and its vote may be needed. Acceptance ends it, a
            // reset, or the sequencer's word; or a minute in which it heard nobody, as with leavers.
            (Phase::Joining, _) if hears_members => joining.give_up_at = now + JOIN_WITHIN,
            _ => self.join_failed(JoinFailure::TimedOut),
        }
    }

    pub(crate) fn join_failed(&mut self, reason: JoinFailure) {
        self.phase = Phase::Gone;
        self.joining = None;
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
            if here.condition == Condition::Halted {
                joining.wait_outside(now, JoinFailure::Halted);
                return;
            }
            if here.sequencer != from {
                // Not the sequencer itself: only that one's cookie is good. Each of two may take the other for it.
                if !joining.redirected.take(now, REDIRECT_EVERY) {
                    return;
                }
                joining.wait_outside(now, JoinFailure::Unreachable { sequencer: here.sequencer });
                let nonce = joining.nonce;
                self.post_outside(here.sequencer, Frame::Locate { nonce });
                return;
            }
            let better = |known: &HereIs| {
                let rank = |here: &HereIs| {
                    let pristine = here.condition == Condition::Pristine;
                    (pristine, here.instance, core::cmp::Reverse(here.epoch_counter))
                };
                rank(&here) < rank(known)
            };
            if joining.found.as_ref().is_none_or(|(known, _)| better(known)) {
                joining.found = Some((here, from));
            }
            // Who was answered in the last moment does not give up before it has chosen.
            let choose_at = *joining.choose_at.get_or_insert(now + COLLECT);
            joining.give_up_at = joining.give_up_at.max(choose_at);
            return;
        }
        self.note_found(from, &here);
        self.meet_other_group(now, from, here);
    }

    /// This joiner has asked the member at that address to be let in.
    pub(crate) fn has_asked(&self, address: SocketAddr) -> bool {
        let asked = self.joining.as_ref().and_then(|joining| joining.asked);
        asked.is_some_and(|here| here.sequencer == address)
    }

    /// What this joiner asked to be let in by, if that is what an answer returns: what was said to another life at this
    /// address, or long ago, does not count.
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
            Refusal::NotNow => {}
            Refusal::Cookie => self.start_over(now),
        }
    }

    /// A sequencer says, in the epoch, that it does not know this joiner: its JOIN will not come.
    pub(crate) fn handle_unknown_here(&mut self) {
        if self.phase == Phase::Joining && !self.is_member() {
            self.join_failed(JoinFailure::TimedOut);
        }
    }

    /// What to listen with.
    pub(crate) fn handle_welcome(&mut self, now: Time, from: Uid, welcome: Welcome) {
        let asked = self.asked_with(welcome.cookie).filter(|here| here.instance == welcome.instance);
        let Some(asked) = asked.filter(|_| welcome.config.check().is_ok()) else { return };
        self.instance = welcome.instance;
        self.config = welcome.config;
        // What did not open until now may have been this very group's.
        self.foreign = None;
        self.other_versions.forget();
        self.begin_log(now, welcome.epoch, welcome.epoch_start, &welcome.base);
        if self.peers.get(from).is_none() {
            // The sequencer may have joined after the place where this log begins: it is heard all the same.
            let member = Member { uid: from, name: Name::default(), address: asked.sequencer };
            self.peers.insert(Peer::new(now, member, Standing::Member, 0));
            self.audience_is_stale = true;
        }
        self.phase = Phase::Joining;
        if let Some(joining) = &mut self.joining {
            joining.welcomer = Some(from);
            joining.act_at = now + SEARCH_EVERY;
        }
        self.acknowledging.due = true;
        self.detector.look_soon(now);
    }

    /// Only the sequencer knows its observers. When the one that welcomed this joiner has handed the role on, and the
    /// next is heard, no JOIN of this life comes any more unless it is in the order already: another life asks again.
    pub(crate) fn follow_the_role(&mut self) {
        let Some(joining) = &self.joining else { return };
        if self.phase != Phase::Joining || self.is_member() {
            return;
        }
        let (term, named) = self.history.term();
        if joining.welcomer.is_some_and(|welcomer| welcomer != named) && self.order.is_heard_in(term) {
            self.join_failed(JoinFailure::TimedOut);
        }
    }

    /// The JOIN of this member is accepted: it is in.
    #[cold]
    pub(crate) fn enter_if_joined(&mut self, now: Time) {
        if self.phase != Phase::Joining {
            return;
        }
        for seqno in self.delivered + 1..=self.accepted {
            let Some(Entry::Change(change)) = self.history.get(seqno) else { continue };
            let Change::Join { member, .. } = &**change else { continue };
            if member.uid == self.me.uid {
                self.probe(Probe::JoinerEntered);
                self.phase = if self.leaving.is_some() { Phase::Leaving } else { Phase::Member };
                self.joining = None;
                self.delivered = seqno - 1;
                self.entered_at = seqno;
                let members = self.history.view_at(seqno).len();
                self.episodes.push(Episode::Entered { seqno, members });
                self.detector.look_soon(now);
                self.seek_others(now, Bytes::new());
                return;
            }
        }
        // An observer delivers nothing; what it has seen accepted is behind it.
        self.delivered = self.accepted;
    }

    /// Planted bug: the first message after the own join is skipped.
    pub(crate) fn joiner_starts_late(&self, seqno: Seqno) -> bool {
        self.broken(Planted::JoinerStartsLate) && self.entered_at > 0 && seqno == self.entered_at + 1
    }
}
