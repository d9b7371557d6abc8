//! Admission: members answer processes that look for the group, and the sequencer admits joiners.
//!
//! A multicast question is answered by the sequencer. A question that is repeated was left unanswered, so a few other
//! members answer it: the process that asks then knows that the group exists, even if it hears nothing of the
//! sequencer, and founds no second one.
//!
//! An answer carries a cookie, so that no process can join under an address at which it does not receive. A process
//! that asks with a good cookie becomes an observer and gets `Welcome`. When it has caught up, all members have entered
//! the epoch and no message is unfinished, the sequencer numbers its JOIN, one at a time. The sequencer forgets
//! observers that fall silent, and observers that could not be numbered in time. It sends `Farewell` to strangers in
//! its epoch.

use crate::config::{Floor, Quorum};
use crate::cookies::CookieKey;
use crate::group::{Group, Phase};
use crate::identity::{Member, Seqno, Uid};
use crate::log::Log;
use crate::membership::join::JOIN_WITHIN;
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::random::Random;
use crate::time::Time;
use crate::wire::{Change, Condition, Frame, HereIs, Refusal, Welcome};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// The sequencer forgets an observer that has been silent for 2 s.
const LEASE: Duration = Duration::from_millis(2000);
const COOKIE_LIFE: Duration = Duration::from_secs(8);
/// An observer has caught up when it lacks at most 512 seqnos.
const CAUGHT_UP: u64 = 512;
/// Number of members that answer a multicast `Locate` if the sequencer does not: expected while the group is halted,
/// maximum for a repeated question.
const LOCATE_ANSWERS: u64 = 3;
/// Expected number of members that answer a status query while the group is halted. Each reply is at most as long as the query.
const STATUS_ANSWERS: u64 = 1;
/// A multicast question counts as repeated 5 ms after the last copy; an earlier one is a copy that the network made.
const REPEATED_AFTER: Duration = Duration::from_millis(5);
/// Number of questions of other processes that are remembered.
const QUESTIONS_MAX: usize = 64;
/// Number of former observers (numbered or forgotten) that are remembered: as many as a group may have members.
const FORMER_MAX: usize = 4096;
/// Number of processes that are remembered because they asked a member of a ring that had no token.
const JOINERS_PUT_OFF_MAX: usize = 16;
/// Minimum interval between two `Welcome` to one joiner.
const WELCOME_EVERY: Duration = Duration::from_millis(25);

/// The sequencer's side of joining.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    cookies: CookieKey,
    /// Observers that were numbered or forgotten lately.
    former: VecDeque<Former>,
    /// Multicast questions of processes that look for the group, the latest last.
    questions: VecDeque<Question>,
    /// Processes that asked this member to be admitted while another one had the token, with the highest packet numbers of
    /// their requests.
    put_off: VecDeque<(Uid, u64)>,
}

/// A multicast `Locate`, how often it was repeated, and when it came last.
#[derive(Clone, Copy, Debug)]
struct Question {
    asker: Uid,
    nonce: u64,
    repeated: u64,
    last: Time,
}

/// A process that was an observer until `since`. Its join requests with packet numbers up to `through` are late copies.
#[derive(Clone, Copy, Debug)]
struct Former {
    uid: Uid,
    through: u64,
    since: Time,
}

impl Admission {
    pub(crate) fn seed(&mut self, random: &mut Random) {
        self.cookies = CookieKey::new(random);
    }

    /// Returns the cookie for `uid` at `address`. It proves that `uid` receives there; it is good for 8 to 16 s.
    fn cookie(&self, now: Time, uid: Uid, address: SocketAddr, age: u64) -> u64 {
        let slot = (now.as_nanos() / COOKIE_LIFE.as_nanos() as u64).saturating_sub(age);
        self.cookies.seal(slot, uid, address)
    }

    pub(crate) fn cookie_is_good(&self, now: Time, uid: Uid, address: SocketAddr, cookie: u64) -> bool {
        (0..2).any(|age| self.cookie(now, uid, address, age) == cookie)
    }

    /// Notes that `uid` is a member now: no process joins twice in one life.
    pub(crate) fn note_joined(&mut self, now: Time, uid: Uid) {
        self.note_former(Former { uid, through: u64::MAX, since: now });
    }

    /// Notes that an observer was forgotten. It may know that; late copies of its requests must not get it numbered.
    fn note_forgotten(&mut self, now: Time, observer: &Peer) {
        let through = observer.highest_number();
        self.note_former(Former { uid: observer.uid(), through, since: now });
    }

    fn note_former(&mut self, former: Former) {
        self.former.retain(|known| former.since.since(known.since) < COOKIE_LIFE * 2);
        if self.former.len() == FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(former);
    }

    /// Notes a multicast question. Returns how often it was repeated; 0 for a new one and for a copy that came with it.
    fn note_question(&mut self, now: Time, asker: Uid, nonce: u64) -> u64 {
        let known = self.questions.iter_mut().find(|known| known.asker == asker && known.nonce == nonce);
        if let Some(known) = known {
            if now.since(known.last) < REPEATED_AFTER {
                return 0;
            }
            known.last = now;
            known.repeated += 1;
            return known.repeated;
        }
        if self.questions.len() == QUESTIONS_MAX {
            self.questions.pop_front();
        }
        self.questions.push_back(Question { asker, nonce, repeated: 0, last: now });
        0
    }

    /// Notes a request that comes while another member has the token. Returns false if it is a late copy.
    fn put_off(&mut self, uid: Uid, packet_number: u64) -> bool {
        if let Some((_, highest)) = self.put_off.iter_mut().find(|(asker, _)| *asker == uid) {
            return packet_number > core::mem::replace(highest, packet_number.max(*highest));
        }
        if self.put_off.len() == JOINERS_PUT_OFF_MAX {
            self.put_off.pop_front();
        }
        self.put_off.push_back((uid, packet_number));
        true
    }

    fn is_old_request(&self, uid: Uid, packet_number: u64) -> bool {
        self.former.iter().any(|former| former.uid == uid && packet_number <= former.through)
    }
}

/// True if the peer is an observer that lacks at most `CAUGHT_UP` seqnos, all of them still kept.
fn has_caught_up(peer: &Peer, log: &Log) -> bool {
    peer.is_observer()
        && peer.has_entered()
        && peer.received() >= log.base()
        && peer.received() + CAUGHT_UP >= log.received()
}

/// True if the observer has caught up and lacks nothing that members may have freed.
fn is_ready(peer: &Peer, log: &Log, announced_stable: Seqno) -> bool {
    has_caught_up(peer, log) && peer.received() >= announced_stable
}

impl Group {
    /// Answers a process that looks for the group. The sequencer answers a multicast; any member answers a direct
    /// question. A few members answer a multicast while the group is halted, or if the sequencer left it unanswered, so
    /// that no second group is founded.
    pub(crate) fn handle_locate(
        &mut self,
        now: Time,
        from: SocketAddr,
        asker: Uid,
        nonce: u64,
        direct: bool,
    ) {
        self.give_precedence(now, asker);
        let belongs = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        if !belongs || !self.is_member() {
            return;
        }
        if !direct && !self.answers_multicast(now, asker, nonce) {
            return;
        }
        // While the token goes round, the member that is asked keeps it when it comes; the one that has it now has given it on
        // before the joiner asks there. A token at rest comes to no other member: its holder is heard.
        let rests = self.order.is_heard_in(self.term()) && !self.broken(Planted::AskedAtRestNamesItself);
        let contact = if direct && self.is_ring() && !rests { self.me.uid } else { self.contact() };
        let sequencer =
            if contact == self.me.uid { Some(self.me.address) } else { self.peers.address(contact) };
        let Some(sequencer) = sequencer else { return };
        let condition = match self.is_pristine() {
            _ if self.is_halted() => Condition::Halted,
            true => Condition::Pristine,
            false => Condition::Open,
        };
        let here = HereIs {
            nonce,
            cookie: self.admission.cookie(now, asker, from, 0),
            instance: self.instance,
            epoch_counter: self.epoch.counter,
            sequencer,
            members: self.log.history().view().len() as u16,
            condition,
            ordered: self.log.accepted(),
        };
        self.post_outside(from, Frame::HereIs(here));
    }

    /// True if this member is to answer a multicast question: see [`Group::speaks_for_all`]. Of the other members, a few
    /// answer each repetition, others each time.
    fn answers_multicast(&mut self, now: Time, asker: Uid, nonce: u64) -> bool {
        let repeated = self.admission.note_question(now, asker, nonce);
        if self.is_halted() || self.contact() == self.me.uid || repeated == 0 {
            return self.speaks_for_all(LOCATE_ANSWERS, self.log.history().view().len());
        }
        let contact = self.contact();
        let others = || self.log.history().view().iter().filter(|member| member.uid != contact);
        let count = others().count().max(1) as u64;
        let Some(place) = others().position(|member| member.uid == self.me.uid) else { return false };
        let first = (nonce % count + repeated % count * LOCATE_ANSWERS) % count;
        (place as u64 + count - first) % count < LOCATE_ANSWERS
    }

    /// True if this member is to answer a multicast status query that `asked` members received. The sequencer answers the first
    /// copy; the members answer the repetitions in turn, because the sequencer may be gone and not suspected yet.
    pub(crate) fn answers_status_query(&mut self, now: Time, asker: Uid, nonce: u64, asked: usize) -> bool {
        let repeated = self.admission.note_question(now, asker, nonce);
        if repeated == 0 || self.is_halted() {
            return self.speaks_for_all(STATUS_ANSWERS, asked);
        }
        let view = self.log.history().view();
        let count = view.len().max(1) as u64;
        let turn = (nonce % count + repeated % count) % count;
        view.iter().position(|member| member.uid == self.me.uid) == Some(turn as usize)
    }

    /// True if the group is being reset, or this member suspects its sequencer.
    fn is_halted(&self) -> bool {
        self.recovery.has_promised()
            || self.peers.get(self.contact()).is_some_and(|sequencer| sequencer.is_suspected())
    }

    /// True if this member is to answer a question that `asked` members received: the sequencer is; while the group is
    /// halted, each member is with probability `answers / asked`.
    pub(crate) fn speaks_for_all(&mut self, answers: u64, asked: usize) -> bool {
        if self.is_halted() { self.random.below(asked.max(1) as u64) < answers } else { self.may_assign() }
    }

    pub(crate) fn handle_join_request(
        &mut self,
        now: Time,
        joiner: Member,
        packet_number: u64,
        cookie: u64,
        hello: Bytes,
    ) {
        let (uid, from) = (joiner.uid, joiner.address);
        let is_old = self.admission.is_old_request(uid, packet_number);
        // A late copy asks for nothing, a member's own one too.
        let may_ask = !self.may_assign() && !is_old && !self.is_in_view(uid);
        if may_ask && self.admission.put_off(uid, packet_number) {
            self.keep_the_token_for_a_joiner(now);
        }
        if !self.may_assign() || is_old {
            return;
        }
        let is_good = self.admission.cookie_is_good(now, uid, from, cookie);
        if !is_good && !self.broken(Planted::JoinCookieUnchecked) {
            self.post_outside(from, Frame::Refused { cookie, reason: Refusal::Cookie });
            return;
        }
        // A joiner is served nothing below the beginning of the epoch: it was not there.
        let from_seqno = self.log.base().max(self.epoch_start);
        let mut base = self.log.history().log_base(from_seqno);
        if self.broken(Planted::SwitchNotInBase) {
            base.order = (0, self.config.order);
        }
        match self.peers.get_mut(uid) {
            Some(peer) if peer.is_observer() => {
                // A late copy of a request does not show that the joiner still asks, and is not served again.
                if !peer.takes_number(packet_number) || !peer.take_welcome(now, WELCOME_EVERY) {
                    return;
                }
                peer.note_heard(now);
                self.probe(Probe::JoinRepeated);
            }
            Some(_) => return self.repeat_formed(uid, from),
            None => {
                if let Some(reason) = self.why_refuse(&joiner) {
                    self.post_outside(from, Frame::Refused { cookie, reason });
                    return;
                }
                let mut peer = Peer::new(now, joiner, Standing::Observer { hello, since: now }, from_seqno);
                peer.takes_number(packet_number);
                self.peers.insert(peer);
            }
        }
        let welcome = Welcome {
            cookie,
            instance: self.instance,
            epoch: self.epoch,
            epoch_start: self.epoch_start,
            config: self.config.clone(),
            base,
        };
        self.post_outside(from, Frame::Welcome(welcome.into()));
        let (first, last) = (from_seqno + 1, self.log.received());
        if first <= last {
            self.serve(from, self.epoch_tag, None, first, last.min(first + CAUGHT_UP - 1));
        }
    }

    fn why_refuse(&self, joiner: &Member) -> Option<Refusal> {
        if let Floor::AtLeast(least) = joiner.floor
            && least > self.config.members_max
        {
            return Some(Refusal::Floor);
        }
        if joiner.floor != Floor::None && !self.counts(joiner) {
            return Some(Refusal::FloorWithoutVote);
        }
        let (members, max) = (self.log.history().view().len(), self.config.members_max as usize);
        let waiting = self.peers.iter().filter(|peer| peer.is_observer()).count();
        if members >= max {
            return Some(Refusal::Full);
        }
        if members + waiting >= max {
            return Some(Refusal::NotNow);
        }
        if let Quorum::MajorityOf(names) = &self.config.quorum
            && !names.contains(&joiner.name)
        {
            return Some(Refusal::Name);
        }
        None
    }

    /// True if every member of the view was heard in this epoch. A newcomer has nothing that members of the previous
    /// epoch need, and may become the only member that they can ask.
    fn all_have_entered(&self) -> bool {
        self.log.history().view().iter().all(|member| self.has_entered(member.uid))
    }

    /// True if the member was heard in this epoch, or is this one.
    pub(crate) fn has_entered(&self, uid: Uid) -> bool {
        uid == self.me.uid || self.peers.get(uid).is_some_and(|peer| peer.has_entered())
    }

    /// True if an observer has caught up and waits for its JOIN.
    pub(crate) fn join_is_possible(&self) -> bool {
        let stable = self.announced_stable();
        self.peers.iter().any(|peer| is_ready(peer, &self.log, stable)) && self.all_have_entered()
    }

    /// Returns the JOIN to be numbered next, if there is one: its joiner has caught up, all members have entered the
    /// epoch, and no message is unfinished.
    pub(crate) fn next_join(&mut self, now: Time) -> Option<Change> {
        if !self.peers.iter().any(Peer::is_observer) {
            return None;
        }
        self.forget_stale_observers(now);
        if self.log.history().inside_a_message() || !self.all_have_entered() {
            return None;
        }
        let stable = self.announced_stable();
        let view = self.log.history().view();
        // A view never contains two lives of one listed name.
        let barred = |peer: &Peer| self.has_voter_named(view, &peer.member().name);
        let ready = self.peers.iter().find(|peer| is_ready(peer, &self.log, stable) && !barred(peer))?;
        let Standing::Observer { hello, .. } = ready.standing() else { return None };
        Some(Change::Join { member: ready.member().clone(), hello: hello.clone() })
    }

    pub(crate) fn forget_stale_observers(&mut self, now: Time) {
        self.forget_observers(now, |peer, since| {
            now.since(peer.last_heard()) >= LEASE || now.since(since) >= JOIN_WITHIN
        });
    }

    /// Forgets the observers for which `which` is true; it gets each observer and the time since when it listens. Their
    /// JOINs will not come. They get `Farewell` at once: soon no member may be left that could send it.
    pub(crate) fn forget_observers(&mut self, now: Time, which: impl Fn(&Peer, Time) -> bool) {
        let mut forgotten: Vec<Member> = Vec::new();
        let admission = &mut self.admission;
        self.peers.retain(|peer| {
            let goes = matches!(peer.standing(), Standing::Observer { since, .. } if which(peer, *since));
            if goes {
                admission.note_forgotten(now, peer);
                forgotten.push(peer.member().clone());
            }
            !goes
        });
        for Member { uid, address, .. } in forgotten {
            self.tell_unneeded(uid, address);
        }
    }

    /// Sends `Farewell` to a process that this member does not know any more, or never knew; this member is the
    /// sequencer, or was until now.
    pub(crate) fn tell_unneeded(&mut self, uid: Uid, address: SocketAddr) {
        let seqno = self.log.accepted().max(1);
        self.post_under(address, self.epoch_tag, Frame::Farewell { uid, seqno });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_8_to_16_seconds_for_one_joiner_at_one_address() {
        let mut admission = Admission::default();
        admission.seed(&mut Random::from_u64(1));
        let (uid, at) = (Uid(1), |port| SocketAddr::from(([127, 0, 0, 1], port)));
        let after = |now: Time, seconds| now + Duration::from_secs(seconds);
        for issued in [Time::ZERO, after(Time::ZERO, 7)] {
            let cookie = admission.cookie(issued, uid, at(1), 0);
            let is_good = |seconds| admission.cookie_is_good(after(issued, seconds), uid, at(1), cookie);
            assert!(is_good(0) && is_good(8) && !is_good(16));
            assert!(!admission.cookie_is_good(issued, Uid(2), at(1), cookie));
            assert!(!admission.cookie_is_good(issued, uid, at(2), cookie));
        }
    }
}
