//! The door: who asks for the group is told where it is, and who wants in is let in by the sequencer.
//!
//! An answer carries a cookie, so that nobody is let in under an address at which it does not hear. Who asks with a
//! good one becomes an observer and is told what to listen with. Once it has caught up, all members are there and no
//! message is unfinished, the sequencer numbers its JOIN, one at a time. Observers that fall silent are forgotten, and those
//! that nothing lets in for too long; whoever speaks in the epoch and is unknown here is told so.

use crate::config::Quorum;
use crate::group::{Group, Phase};
use crate::history::History;
use crate::identity::{Member, Name, Seqno, Uid, mix, words_of};
use crate::membership::join::JOIN_WITHIN;
use crate::peers::{Peer, Standing};
use crate::planted::Probe;
use crate::random::Random;
use crate::time::Time;
use crate::wire::{Change, Condition, Frame, HereIs, Refusal, ReplayWindow, Welcome};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// An observer that is silent for so long is forgotten.
const LEASE: Duration = Duration::from_millis(2000);
const COOKIE_LIFE: Duration = Duration::from_secs(8);
/// An observer has caught up when it lacks at most so many places.
const CAUGHT_UP: u64 = 512;
/// Of a group that stands still so many members answer, more or less.
const HALTED_ANSWERS: u64 = 3;
/// So many who were numbered in or forgotten are remembered: as many as a group has members.
const FORMER_MAX: usize = 4096;
/// A joiner that asks again is welcomed again at most so often.
const WELCOME_EVERY: Duration = Duration::from_millis(25);

/// The sequencer's side: who wants in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    secret: [u64; 2],
    /// Who was numbered in or forgotten lately.
    former: VecDeque<Former>,
}

/// An observer no longer, since then: a request of its own that comes again, under one of these packet numbers, is an old
/// one.
#[derive(Clone, Copy, Debug)]
struct Former {
    uid: Uid,
    through: u64,
    since: Time,
}

impl Admission {
    pub(crate) fn seed(&mut self, random: &mut Random) {
        self.secret = [random.next_u64(), random.next_u64()];
    }

    /// Shows that who has it heard what we sent to its address, not long ago.
    fn cookie(&self, now: Time, uid: Uid, address: SocketAddr, age: u64) -> u64 {
        let slot = (now.as_nanos() / COOKIE_LIFE.as_nanos() as u64).saturating_sub(age);
        let mut hash = mix(self.secret[0] ^ slot) ^ mix(self.secret[1] ^ uid.0);
        for word in words_of(address) {
            hash = mix(hash ^ word ^ self.secret[1].rotate_left(17));
        }
        hash
    }

    fn cookie_is_good(&self, now: Time, uid: Uid, address: SocketAddr, cookie: u64) -> bool {
        (0..2).any(|age| self.cookie(now, uid, address, age) == cookie)
    }

    /// `uid` is a member now: nobody joins twice in one life.
    pub(crate) fn note_joined(&mut self, now: Time, uid: Uid) {
        self.note_former(Former { uid, through: u64::MAX, since: now });
    }

    /// Whoever was forgotten may have been told so, and is not to be numbered in by a late copy of what it said.
    fn note_forgotten(&mut self, now: Time, observer: &Peer) {
        let through = observer.replay.as_ref().map_or(0, ReplayWindow::highest);
        self.note_former(Former { uid: observer.member.uid, through, since: now });
    }

    fn note_former(&mut self, former: Former) {
        self.former.retain(|known| former.since.since(known.since) < COOKIE_LIFE * 2);
        if self.former.len() == FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(former);
    }

    fn is_old_request(&self, uid: Uid, packet_number: u64) -> bool {
        self.former.iter().any(|former| former.uid == uid && packet_number <= former.through)
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

impl Group {
    /// Somebody asks where the group is. The sequencer answers; asked directly, any member does. While the group is
    /// reset, or has no quorum to go on, a few of its members do: nobody is to found another beside it.
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
        if !direct && !self.speaks_for_all(HALTED_ANSWERS, self.history.view().len()) {
            return;
        }
        let named = self.named();
        let sequencer = if named == self.me.uid { Some(self.me.address) } else { self.peers.address(named) };
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
            members: self.history.view().len() as u16,
            condition,
        };
        self.post_outside(from, Frame::HereIs(here));
    }

    /// The group is being reset, or cannot reach its sequencer.
    fn is_halted(&self) -> bool {
        self.recovery.has_promised()
            || self.peers.get(self.named()).is_some_and(|sequencer| sequencer.suspected.is_some())
    }

    /// This member answers what `asked` members were asked: it is the sequencer, or, where the group stands still, by
    /// chance one of so many.
    pub(crate) fn speaks_for_all(&mut self, answers: u64, asked: usize) -> bool {
        if self.is_halted() {
            self.random.below(asked.max(1) as u64) < answers
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
        let is_old = self.admission.is_old_request(uid, packet_number);
        if !self.order.is_acting() || is_old {
            return;
        }
        if !self.admission.cookie_is_good(now, uid, from, cookie) {
            self.post_outside(from, Frame::Refused { cookie, reason: Refusal::Cookie });
            return;
        }
        // Below the epoch's beginning nothing is served to somebody who was not there.
        let from_place = self.history.base().max(self.epoch_start);
        let base = self.history.log_base(from_place);
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
                    self.post_outside(from, Frame::Refused { cookie, reason });
                    return;
                }
                let member = Member { uid, name, address: from };
                let mut peer = Peer::new(now, member, Standing::Observer { hello, since: now }, from_place);
                let mut window = ReplayWindow::starting_at(packet_number);
                window.fresh(packet_number);
                peer.replay = Some(window);
                self.peers.insert(peer);
                self.audience_is_stale = true;
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
        let (first, last) = (from_place + 1, self.history.received());
        if first <= last {
            self.serve(from, self.epoch_tag, None, first, last.min(first + CAUGHT_UP - 1));
        }
    }

    fn why_refuse(&self, name: &Name) -> Option<Refusal> {
        let (members, max) = (self.history.view().len(), self.config.members_max as usize);
        let waiting =
            self.peers.iter().filter(|peer| matches!(peer.standing, Standing::Observer { .. })).count();
        if members >= max {
            return Some(Refusal::Full);
        }
        if members + waiting >= max {
            return Some(Refusal::NotNow);
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
        self.history.view().iter().all(|member| self.has_entered(member.uid))
    }

    /// This member was heard in this epoch, or is this one itself.
    pub(crate) fn has_entered(&self, uid: Uid) -> bool {
        uid == self.me.uid || self.peers.get(uid).is_some_and(|peer| peer.entered)
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
        let Standing::Observer { hello, .. } = &ready.standing else { return None };
        Some(Change::Join { member: ready.member.clone(), hello: hello.clone() })
    }

    pub(crate) fn forget_stale_observers(&mut self, now: Time) {
        self.forget_observers(now, |peer, since| {
            now.since(peer.last_heard) >= LEASE || now.since(since) >= JOIN_WITHIN
        });
    }

    /// Those who listen, since some time each, and of whom this holds. No JOIN of theirs comes any more, and they are told
    /// so at once: there may be nobody left to ask soon.
    pub(crate) fn forget_observers(&mut self, now: Time, which: impl Fn(&Peer, Time) -> bool) {
        let mut forgotten: Vec<Member> = Vec::new();
        let admission = &mut self.admission;
        self.peers.retain(|peer| {
            let goes = matches!(peer.standing, Standing::Observer { since, .. } if which(peer, since));
            if goes {
                admission.note_forgotten(now, peer);
                forgotten.push(peer.member.clone());
            }
            !goes
        });
        self.audience_is_stale |= !forgotten.is_empty();
        for Member { uid, address, .. } in forgotten {
            self.tell_unneeded(uid, address);
        }
    }

    /// This member, which orders or did until now, does not know that one, or does no more: nobody needs it.
    pub(crate) fn tell_unneeded(&mut self, uid: Uid, address: SocketAddr) {
        let seqno = self.accepted.max(1);
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
