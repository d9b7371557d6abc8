//! Joining: finding the group, listening, and being numbered in; and the other side, the orderer's door.
//!
//! A joiner asks where the group is (HEREIS comes with a cookie, which shows that it hears what is sent to its
//! address), asks to be let in, and is told the view and where the log begins that it can be served from. From then
//! on it listens as an observer: it receives, repairs, acknowledges, and counts for nothing. When it has caught up
//! the orderer numbers its JOIN; when that is accepted it is a member, and its application sees its first event.

use crate::config::{GroupConfig, Quorum};
use crate::event::{Event, JoinFailure};
use crate::group::{Group, Phase};
use crate::history::{Entry, History};
use crate::identity::{Member, Name, Seqno, Uid, mix};
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::random::Random;
use crate::time::{Pace, Time};
use crate::wire::{Change, Condition, Frame, HereIs, Refusal, ReplayWindow, Welcome};
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

const LOCATE_EVERY: Duration = Duration::from_millis(60);
/// Answers are collected for so long after the first, so that of two groups the older is found.
const COLLECT: Duration = Duration::from_millis(15);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// After so many unanswered requests whoever answered first is not there any more.
const ASKS_MAX: u32 = 12;
/// A plain join gives up locating after so many times the setting `locate`.
const PATIENCE: u32 = 10;
/// From the first answer to being a member.
const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// An observer that is silent for so long is forgotten.
const LEASE: Duration = Duration::from_millis(2000);
const COOKIE_LIFE: Duration = Duration::from_secs(8);
/// An observer has caught up when it lacks at most so many places.
const CAUGHT_UP: u64 = 512;
/// Of a group that stands still so many members answer, more or less.
const HALTED_ANSWERS: u64 = 3;
/// Answers that do not come from the orderer itself are followed up at most this often.
const REDIRECT_EVERY: Duration = Duration::from_millis(25);
/// A joiner that asks again is welcomed again at most so often.
const WELCOME_EVERY: Duration = Duration::from_millis(25);

/// This member is on its way in.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    hello: Bytes,
    /// Founds the group if nobody answers.
    config: Option<GroupConfig>,
    give_up_at: Time,
    nonce: u64,
    /// The best answer so far.
    found: Option<(HereIs, SocketAddr)>,
    /// There is a group, a member said, but none of its orderers answers yet: what to give up with.
    kept_out_by: Option<JoinFailure>,
    choose_at: Option<Time>,
    act_at: Time,
    /// Asked to be let in, by this answer.
    asked: Option<HereIs>,
    asks: u32,
    /// The orderer that lets this joiner listen.
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

/// The orderer's side: who wants in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    secret: [u64; 2],
    /// Who was numbered in lately, and when: a request of theirs that comes again is an old one.
    joined: VecDeque<(Uid, Time)>,
}

impl Door {
    pub(crate) fn seed(&mut self, random: &mut Random) {
        self.secret = [random.next_u64(), random.next_u64()];
    }

    /// Shows that who has it heard what we sent to its address, not long ago.
    fn cookie(&self, now: Time, uid: Uid, address: SocketAddr, age: u64) -> u64 {
        let slot = (now.as_nanos() / COOKIE_LIFE.as_nanos() as u64).saturating_sub(age);
        let mut hash = mix(self.secret[0] ^ slot) ^ mix(self.secret[1] ^ uid.0);
        let ip = match address {
            SocketAddr::V4(v4) => u128::from(u32::from(*v4.ip())),
            SocketAddr::V6(v6) => u128::from(*v6.ip()),
        };
        for word in [ip as u64, (ip >> 64) as u64, u64::from(address.port())] {
            hash = mix(hash ^ word ^ self.secret[1].rotate_left(17));
        }
        hash
    }

    fn cookie_is_good(&self, now: Time, uid: Uid, address: SocketAddr, cookie: u64) -> bool {
        (0..2).any(|age| self.cookie(now, uid, address, age) == cookie)
    }

    pub(crate) fn note_joined(&mut self, now: Time, uid: Uid) {
        self.joined.retain(|&(_, at)| now.since(at) < COOKIE_LIFE * 2);
        self.joined.push_back((uid, now));
    }

    /// `uid` has been a member, or is one: nobody joins twice in one life.
    fn has_joined(&self, uid: Uid) -> bool {
        self.joined.iter().any(|&(known, _)| known == uid)
    }
}

/// It lacks little, and nothing that is not kept any more.
fn has_caught_up(peer: &Peer, history: &History) -> bool {
    peer.is_observer()
        && peer.entered
        && peer.received >= history.base()
        && peer.received + CAUGHT_UP >= history.received()
}

/// It has caught up, and nobody was told that what it lacks may go.
fn is_ready(peer: &Peer, history: &History, told_stable: Seqno) -> bool {
    has_caught_up(peer, history) && peer.received >= told_stable
}

// --- the joiner ---

impl Group {
    /// Begins to look for the group; founds it with `config` if nobody answers.
    pub(crate) fn look_for_group(&mut self, now: Time, config: Option<GroupConfig>, hello: Bytes) {
        self.phase = Phase::Locating;
        let locate = self.settings.locate;
        // Founders that started together shall not found together.
        let jitter = Duration::from_nanos(self.random.below(locate.as_nanos() as u64 / 2 + 1));
        let patience = if config.is_some() { locate + jitter } else { locate * PATIENCE };
        self.joining = Some(Joining {
            hello,
            config,
            give_up_at: now + patience,
            nonce: self.random.next_u64(),
            found: None,
            kept_out_by: None,
            choose_at: None,
            act_at: now,
            asked: None,
            asks: 0,
            welcomer: None,
            redirected: Pace::default(),
        });
        self.joining_timeout(now);
    }

    /// Not a member yet, and what was begun came to nothing: from the beginning.
    pub(crate) fn start_over(&mut self, now: Time) {
        let Some(joining) = self.joining.take() else { return };
        self.forget_group();
        self.look_for_group(now, joining.config, joining.hello);
    }

    pub(crate) fn joining_timeout(&mut self, now: Time) {
        let Some(joining) = &mut self.joining else { return };
        if joining.choose_at.is_some_and(|at| at <= now) {
            joining.choose_at = None;
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
                joining.act_at = now + ASK_EVERY;
                let (name, hello) = (self.me.name.clone(), joining.hello.clone());
                joining.asks += 1;
                if joining.asks > ASKS_MAX {
                    // Whoever answered is not there any more.
                    self.start_over(now);
                    return;
                }
                self.post_outside(here.orderer, Frame::JoinRequest { cookie: here.cookie, name, hello });
            }
            _ => joining.act_at = now + ASK_EVERY * 4,
        }
    }

    fn give_up(&mut self, now: Time) {
        let numbered_in = self.is_member();
        let Some(joining) = &mut self.joining else { return };
        if let (Phase::Locating, None, Some(reason)) = (self.phase, &joining.found, joining.kept_out_by) {
            // No reason to found a second group.
            self.join_failed(reason);
            return;
        }
        match (self.phase, joining.config.take()) {
            (Phase::Locating, Some(config)) if joining.found.is_none() => {
                let hello = joining.hello.clone();
                self.found(now, config, hello);
            }
            (Phase::Locating, _) if joining.found.is_none() => self.join_failed(JoinFailure::NotFound),
            // Its JOIN is in the order: it is a member, and its vote may be needed. A reset ends it, or acceptance.
            (Phase::Joining, _) if numbered_in => joining.give_up_at = now + JOIN_WITHIN,
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
            if here.orderer != from {
                // Not the orderer itself: only that one's cookie is good. Each of two may take the other for it.
                if !joining.redirected.take(now, REDIRECT_EVERY) {
                    return;
                }
                joining.wait_outside(now, JoinFailure::Unreachable { orderer: here.orderer });
                let nonce = joining.nonce;
                self.post_outside(here.orderer, Frame::Locate { nonce });
                return;
            }
            let better = |known: &HereIs| {
                let rank = |here: &HereIs| {
                    let pristine = here.condition == Condition::Pristine;
                    (pristine, core::cmp::Reverse(here.epoch_counter), here.instance)
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
        asked.is_some_and(|here| here.orderer == address)
    }

    pub(crate) fn handle_refused(&mut self, now: Time, by: SocketAddr, reason: Refusal) {
        if self.phase != Phase::Locating
            || self.joining.as_ref().is_none_or(|joining| joining.asked.is_none())
        {
            return;
        }
        match reason {
            Refusal::Full => self.join_failed(JoinFailure::Full { by }),
            Refusal::Name => self.join_failed(JoinFailure::NameRefused { by }),
            Refusal::NotNow => {}
            Refusal::Cookie => self.start_over(now),
        }
    }

    /// An orderer says, in the epoch, that it does not know this joiner: its JOIN will not come.
    pub(crate) fn handle_unknown_here(&mut self) {
        if self.phase == Phase::Joining && !self.is_member() {
            self.join_failed(JoinFailure::TimedOut);
        }
    }

    /// What to listen with.
    pub(crate) fn handle_welcome(&mut self, now: Time, from: Uid, welcome: Welcome) {
        let asked = self.joining.as_ref().and_then(|joining| joining.asked);
        if self.phase != Phase::Locating || asked.is_none_or(|here| here.instance != welcome.instance) {
            return;
        }
        if welcome.config.check().is_err() {
            return;
        }
        self.instance = welcome.instance;
        self.config = welcome.config;
        // What did not open until now may have been this very group's.
        self.foreign = None;
        self.begin_log(now, welcome.epoch, welcome.epoch_start, &welcome.base);
        if let Some(here) = asked
            && self.peers.get(from).is_none()
        {
            // The orderer may have joined after the place where this log begins: it is heard all the same.
            let member = Member { uid: from, name: Name::default(), address: here.orderer };
            self.peers.insert(Peer::new(now, member, Standing::Member, 0));
            self.audience_is_stale = true;
        }
        self.phase = Phase::Joining;
        if let Some(joining) = &mut self.joining {
            joining.welcomer = Some(from);
        }
        self.acknowledging.due = true;
        self.detector.look_soon(now);
    }

    /// Only the orderer knows its observers. When the one that welcomed this joiner has handed the role on, and the
    /// next is heard, no JOIN of this life comes any more unless it is in the order already: another life asks again.
    pub(crate) fn follow_the_role(&mut self) {
        let (term, named) = self.history.term();
        let listens = self.phase == Phase::Joining && !self.is_member();
        let Some(joining) = self.joining.as_ref().filter(|_| listens) else { return };
        if joining.welcomer.is_some_and(|welcomer| welcomer != named) && self.order.is_heard_in(term) {
            self.join_failed(JoinFailure::TimedOut);
        }
    }

    /// The JOIN of this member is accepted: it is in.
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
                self.detector.look_soon(now);
                return;
            }
        }
        // An observer delivers nothing; what it has seen accepted is behind it.
        self.delivered = self.accepted;
    }
}

// --- the door ---

impl Group {
    /// Somebody asks where the group is. The orderer answers; asked directly, any member does. While the group is
    /// reset, or has no quorum to go on, a few of its members do: nobody is to found another beside it.
    pub(crate) fn handle_locate(
        &mut self,
        now: Time,
        from: SocketAddr,
        asker: Uid,
        nonce: u64,
        direct: bool,
    ) {
        let belongs = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        if !belongs || !self.is_member() {
            return;
        }
        if !direct && !self.speaks_for_all(HALTED_ANSWERS) {
            return;
        }
        let named = self.named();
        let orderer = if named == self.me.uid { Some(self.me.address) } else { self.peers.address(named) };
        let Some(orderer) = orderer else { return };
        let condition = match self.is_pristine() {
            _ if self.is_halted() => Condition::Halted,
            true => Condition::Pristine,
            false => Condition::Open,
        };
        let here = HereIs {
            nonce,
            cookie: self.door.cookie(now, asker, from, 0),
            instance: self.instance,
            epoch_counter: self.epoch.counter,
            orderer,
            members: self.history.view().len() as u16,
            condition,
        };
        self.post_outside(from, Frame::HereIs(here));
    }

    /// The group is being reset, or cannot reach its orderer.
    fn is_halted(&self) -> bool {
        self.phase == Phase::Resetting
            || self.recovery.has_promised()
            || self.peers.get(self.named()).is_some_and(|orderer| orderer.suspected.is_some())
    }

    /// This member answers what everybody was asked: it is the orderer, or, where the group stands still, by chance one
    /// of so many.
    pub(crate) fn speaks_for_all(&mut self, answers: u64) -> bool {
        if self.is_halted() {
            let members = self.history.view().len() as u64;
            self.random.below(members.max(1)) < answers
        } else {
            self.order.is_acting()
        }
    }

    pub(crate) fn handle_join_request(
        &mut self,
        now: Time,
        from: SocketAddr,
        joiner: (Uid, u64),
        cookie: u64,
        name: Name,
        hello: Bytes,
    ) {
        let (uid, packet_number) = joiner;
        if !self.order.is_acting() || self.recovery.has_promised() || self.door.has_joined(uid) {
            return;
        }
        if !self.door.cookie_is_good(now, uid, from, cookie) {
            self.post_outside(from, Frame::Refused { reason: Refusal::Cookie });
            return;
        }
        // Below the epoch's beginning nothing is served to somebody who was not there.
        let from_place = self.history.base().max(self.epoch_start);
        let (base, inside_a_message) = self.history.log_base(from_place);
        if inside_a_message {
            self.post_outside(from, Frame::Refused { reason: Refusal::NotNow });
            return;
        }
        match self.peers.get_mut(uid) {
            Some(peer) if peer.is_observer() => {
                // An old request says nothing of somebody who still asks, and is not served again.
                let window = peer.replay.get_or_insert_with(|| ReplayWindow::starting_at(packet_number));
                if !window.fresh(packet_number) || !peer.welcomed.take(now, WELCOME_EVERY) {
                    return;
                }
                peer.last_heard = now;
                self.probe(Probe::JoinRepeated);
            }
            Some(_) => return,
            None => {
                if let Some(reason) = self.why_refuse(&name) {
                    self.post_outside(from, Frame::Refused { reason });
                    return;
                }
                let member = Member { uid, name, address: from };
                let mut peer = Peer::new(now, member, Standing::Observer { hello }, from_place);
                let mut window = ReplayWindow::starting_at(packet_number);
                window.fresh(packet_number);
                peer.replay = Some(window);
                self.peers.insert(peer);
                self.audience_is_stale = true;
            }
        }
        let welcome = Welcome {
            instance: self.instance,
            epoch: self.epoch,
            epoch_start: self.epoch_start,
            config: self.config.clone(),
            base,
        };
        self.post_outside(from, Frame::Welcome(welcome));
        let (first, last) = (from_place + 1, self.history.received());
        if first <= last {
            self.serve(from, self.epoch_tag, None, first, last.min(first + CAUGHT_UP - 1));
        }
    }

    fn why_refuse(&self, name: &Name) -> Option<Refusal> {
        let view = self.history.view();
        let waiting =
            self.peers.iter().filter(|peer| matches!(peer.standing, Standing::Observer { .. })).count();
        if view.len() + waiting >= self.config.members_max as usize {
            return Some(Refusal::Full);
        }
        if let Quorum::MajorityOf(names) = &self.config.quorum
            && !names.contains(name)
        {
            return Some(Refusal::Name);
        }
        None
    }

    /// Every member of the view was heard in this epoch. Somebody new has nothing for those who still are in the epoch
    /// before, and may come to be all that they have to turn to.
    fn all_have_entered(&self) -> bool {
        let entered = |uid: Uid| self.peers.get(uid).is_some_and(|peer| peer.entered);
        self.history.view().iter().all(|member| member.uid == self.me.uid || entered(member.uid))
    }

    /// An observer has caught up and waits for its JOIN.
    pub(crate) fn somebody_may_join(&self) -> bool {
        let stable = self.told_stable();
        self.peers.iter().any(|peer| is_ready(peer, &self.history, stable)) && self.all_have_entered()
    }

    /// The join to be numbered next, if one may be: its joiner has caught up, all members are there to be joined, and no
    /// message is unfinished.
    pub(crate) fn next_join(&mut self, now: Time) -> Option<Change> {
        if !self.peers.iter().any(Peer::is_observer) {
            return None;
        }
        self.forget_stale_observers(now);
        if self.history.inside_a_message() || !self.all_have_entered() {
            return None;
        }
        let stable = self.told_stable();
        let view = self.history.view();
        let listed = matches!(self.config.quorum, Quorum::MajorityOf(_));
        // Two lives of one listed name never stand in one view.
        let barred = |peer: &Peer| listed && view.iter().any(|member| member.name == peer.member.name);
        let ready = self.peers.iter().find(|peer| is_ready(peer, &self.history, stable) && !barred(peer))?;
        let Standing::Observer { hello } = &ready.standing else { return None };
        Some(Change::Join { member: ready.member.clone(), hello: hello.clone() })
    }

    pub(crate) fn forget_stale_observers(&mut self, now: Time) {
        let before = self.peers.len();
        self.peers.retain(|peer| {
            !matches!(peer.standing, Standing::Observer { .. }) || now.since(peer.last_heard) < LEASE
        });
        self.audience_is_stale |= self.peers.len() < before;
    }

    /// Planted bug: the first message after the own join is skipped.
    pub(crate) fn joiner_starts_late(&self, seqno: Seqno) -> bool {
        self.broken(Planted::JoinerStartsLate) && self.entered_at > 0 && seqno == self.entered_at + 1
    }
}
