//! Seeking: the first member of a group looks for other groups of its port.
//!
//! Several processes may have founded groups at the same time, or without hearing each other. So a founder keeps
//! asking. As long as it is alone and has ordered nothing, its group is of no use to others; of two such groups, one
//! gives way and joins the other. Later no group can give way, because groups never merge. Then the applications of all
//! members of both get `Conflict`, which says which of the two should give way, if one is to. The member of rank 0 goes
//! on asking for as long as the group exists, at growing intervals, so that groups of any size find each other.
//!
//! The group that has ordered fewer events gives way, so none that has ordered something gives way to one that has
//! ordered nothing; of two with as many, the one with the larger instance. The member that asked decides this when the
//! answer comes, and sends its verdict to the members of both groups ([`super::verdict`]).

use super::verdict::Verdicts;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::Instance;
use crate::membership::Otherwise;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Condition, Frame, HereIs};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// A founder asks about every 400 ms for 20 s, while it is alone.
const SEEK_EVERY: Duration = Duration::from_millis(400);
const SEEK_CLOSELY_FOR: Duration = Duration::from_secs(20);
/// Later, or once there are other members, each pause is twice the one before, up to 15 s. All pauses are at random up
/// to a quarter shorter or longer.
const SEEK_PAUSE_MAX: Duration = Duration::from_secs(15);
/// Number of other groups whose answers to one question are looked at.
const ANSWERED_MAX: usize = 16;

/// A member's search for other groups.
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    at: Time,
    pause: Duration,
    closely_until: Time,
    /// Nonce of the last question, so that no answer to an older one counts.
    nonce: u64,
    /// Groups whose answers to the last question were passed on, each with the cookie of its answer.
    answered: Vec<(Instance, u64)>,
    /// A founder's greeting, for its `JoinRequest` if it gives way to another group.
    hello: Bytes,
    /// What is known of other groups that were met.
    pub(super) verdicts: Verdicts,
}

impl Seek {
    pub(crate) fn wake_at(&self) -> Time {
        self.at
    }

    /// True if this group answered the last question with this cookie.
    pub(super) fn was_answered_with(&self, instance: Instance, cookie: u64) -> bool {
        self.answered.contains(&(instance, cookie))
    }
}

impl Group {
    /// Starts looking for other groups; called when this member has entered.
    pub(crate) fn seek_others(&mut self, now: Time, hello: Bytes) {
        self.seek = Some(Seek {
            at: now + SEEK_EVERY / 8,
            pause: SEEK_EVERY,
            closely_until: now + SEEK_CLOSELY_FOR,
            nonce: self.random.next_u64(),
            answered: Vec::new(),
            hello,
            verdicts: Verdicts::default(),
        });
    }

    pub(crate) fn seek_timeout(&mut self, now: Time) {
        let Some(seek) = &mut self.seek else { return };
        if seek.at > now {
            return;
        }
        let alone = self.peers.iter().all(|peer| !peer.is_member());
        let closely = alone && now < seek.closely_until;
        if !closely {
            seek.pause = (seek.pause * 2).min(SEEK_PAUSE_MAX);
            seek.nonce = seek.nonce.wrapping_add(1);
            seek.answered.clear();
        }
        let jitter = Duration::from_nanos(self.random.below(seek.pause.as_nanos() as u64 / 2));
        seek.at = now + seek.pause * 3 / 4 + jitter;
        let nonce = seek.nonce;
        let speaks = self.phase == Phase::Member && self.is_first();
        if speaks && (closely || !self.broken(Planted::OthersUnsought)) {
            self.post_to_rendezvous(Frame::Locate { nonce });
        }
    }

    /// True if this member has rank 0, and so looks for other groups on behalf of all; the sequencer may be any member.
    fn is_first(&self) -> bool {
        self.log.history().view().first().is_some_and(|member| member.uid == self.me.uid)
    }

    /// Handles an answer from another group of this port. A founder that is alone and has ordered nothing gives way if
    /// it is the one that should, and the other group admits joiners. Otherwise the members get a `Conflict`.
    pub(super) fn meet_other_group(&mut self, now: Time, from: SocketAddr, here: HereIs) {
        let pristine = self.is_pristine();
        let goes_first = self.goes_first(here.instance);
        let Some(seek) = &mut self.seek else { return };
        if seek.nonce != here.nonce || here.instance == self.instance {
            return;
        }
        let gives_way = match here.condition {
            Condition::Open => true,
            Condition::Pristine => !goes_first,
            Condition::Halted => false,
        };
        if pristine {
            if gives_way {
                let hello = core::mem::take(&mut seek.hello);
                self.give_way(now, hello, here.condition != Condition::Pristine);
            }
        } else if here.condition != Condition::Pristine && self.phase == Phase::Member {
            let is_repeated = seek.answered.iter().any(|(instance, _)| *instance == here.instance);
            if is_repeated || seek.answered.len() == ANSWERED_MAX {
                return;
            }
            seek.answered.push((here.instance, here.cookie));
            self.decide_conflict(from, here);
        }
    }

    /// True if this group stays when it meets `other` and neither has ordered anything: its instance is the smaller
    /// one. Instances were drawn at random, so both sides get the same verdict.
    pub(super) fn goes_first(&self, other: Instance) -> bool {
        self.instance < other
    }

    /// Gives the group up and looks for the other one. If that `is_used`, no second one is founded in this life.
    fn give_way(&mut self, now: Time, hello: Bytes, is_used: bool) {
        self.probe(Probe::FounderGaveWay);
        let config = self.config.clone();
        self.forget_group();
        self.notices.retain(|event| !matches!(event, Event::Entered { .. }));
        self.look_again(now, Otherwise::Found(config), hello, is_used);
    }

    /// True if this member is alone and its group has never ordered anything.
    pub(super) fn is_pristine(&self) -> bool {
        self.phase == Phase::Member
            && self.epoch.counter == 0
            && self.log.received() == 0
            && self.outbox.len() == 0
            && self.outbox.next_number() == 1
            && self.formed.is_none()
    }
}
