//! Seeking: the first member of a group looks for other groups of its port.
//!
//! Several processes may have founded groups at the same time, or without hearing each other. So a founder keeps
//! asking. As long as it is alone and has ordered nothing, its group is of no use to others; of two such groups, one
//! gives way and joins the other. Later no group can give way, because groups never merge. Then the applications of all
//! members of both get `Conflict`, which says which of the two should give way, if one is to. The member of rank 0 goes
//! on asking for as long as the group exists, at growing intervals, so that groups of any size find each other.
//!
//! The group that has ordered fewer events gives way, so none that has ordered something gives way to one that has
//! ordered nothing; of two with as many, the one with the larger instance. Both groups may be ordering, so two members
//! that compare at different moments may disagree. Therefore one of them decides: the member that asked compares when
//! the answer comes, and sends its verdict (`Met`) to its own members and to the member that answered, which passes it
//! on to its group. A member keeps the first verdict that it learns.

use crate::episode::Episode;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::{Instance, Seqno, Uid};
use crate::membership::Otherwise;
use crate::peers::Standing;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Condition, Frame, HereIs, Met};
use alloc::vec::Vec;
use bytes::Bytes;
use core::cmp::Ordering;
use core::net::SocketAddr;
use core::time::Duration;

/// A founder asks about every 400 ms for 20 s, while it is alone.
const SEEK_EVERY: Duration = Duration::from_millis(400);
const SEEK_CLOSELY_FOR: Duration = Duration::from_secs(20);
/// Later, or once there are other members, each pause is twice the one before, up to 15 s. All pauses are at random up
/// to a quarter shorter or longer.
const SEEK_PAUSE_MAX: Duration = Duration::from_secs(15);
/// Number of other groups that are remembered.
const OTHERS_MAX: usize = 16;

/// A member's search for other groups.
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    at: Time,
    pause: Duration,
    closely_until: Time,
    /// Nonce of the last question, so that no answer to an older one counts.
    nonce: u64,
    /// Groups whose answers to the last question were passed on.
    passed_on: Vec<Instance>,
    /// A founder's greeting, for its `JoinRequest` if it gives way to another group.
    hello: Bytes,
    /// Other groups that were met, the latest last.
    others: Vec<Other>,
}

/// Another group of this port.
#[derive(Clone, Copy, Debug)]
struct Other {
    instance: Instance,
    /// True if this member's group is the one to give way.
    gives_way: bool,
    /// True if the application got a `Conflict` for it.
    told: bool,
    /// Cookie of the last verdict that was passed on for that group.
    passed_on: u64,
}

impl Seek {
    pub(crate) fn wake_at(&self) -> Time {
        self.at
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
            passed_on: Vec::new(),
            hello,
            others: Vec::new(),
        });
    }

    pub(crate) fn seek_timeout(&mut self, now: Time) {
        let Some(seek) = &mut self.seek else { return };
        if seek.at > now {
            return;
        }
        let alone = self.peers.iter().all(|peer| peer.standing != Standing::Member);
        let closely = alone && now < seek.closely_until;
        if !closely {
            seek.pause = (seek.pause * 2).min(SEEK_PAUSE_MAX);
            seek.nonce = seek.nonce.wrapping_add(1);
            seek.passed_on.clear();
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
        self.history.view().first().is_some_and(|member| member.uid == self.me.uid)
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
                self.give_way(now, hello);
            }
        } else if here.condition != Condition::Pristine && self.phase == Phase::Member {
            if seek.passed_on.contains(&here.instance) || seek.passed_on.len() == OTHERS_MAX {
                return;
            }
            seek.passed_on.push(here.instance);
            self.decide_conflict(from, here);
        }
    }

    /// Compares this group with the one that answered, and sends the verdict to the members of both.
    fn decide_conflict(&mut self, from: SocketAddr, here: HereIs) {
        let computed = self.is_to_give_way(here.ordered, here.instance);
        let Some(known) = self.note_other(here.instance, computed) else { return };
        let gives_way = known.gives_way;
        let theirs = Met {
            cookie: here.cookie,
            instance: self.instance,
            ordered: self.accepted,
            gives_way: !gives_way,
            address: self.me.address,
        };
        // Only the member that asked may use the cookie.
        let ours =
            Met { cookie: 0, instance: here.instance, ordered: here.ordered, gives_way, address: from };
        self.note_met(&ours);
        if !self.broken(Planted::ConflictUntold) {
            self.post_to_each(&Frame::Met(ours));
            self.post_outside(from, Frame::Met(theirs));
        }
    }

    /// Handles the verdict of another group whose question this member answered: its cookie shows that this is no copy
    /// of an earlier one, and that it comes from the member that asked.
    pub(crate) fn handle_verdict(&mut self, now: Time, from: SocketAddr, sender: Uid, met: Met) {
        if self.phase != Phase::Member
            || met.instance == self.instance
            || !self.admission.cookie_is_good(now, sender, from, met.cookie)
        {
            return;
        }
        let Some(known) = self.note_other(met.instance, met.gives_way) else { return };
        if core::mem::replace(&mut known.passed_on, met.cookie) == met.cookie {
            return;
        }
        let gives_way = known.gives_way;
        let met = Met { cookie: 0, gives_way, address: from, ..met };
        self.note_met(&met);
        if !self.broken(Planted::ConflictUntold) {
            self.post_to_each(&Frame::Met(met));
        }
    }

    /// True if this group stays when it meets `other` and neither has ordered anything: its instance is the smaller
    /// one. Instances were drawn at random, so both sides get the same verdict.
    fn goes_first(&self, other: Instance) -> bool {
        self.instance < other
    }

    /// True if this group is to give way to `other`, which has ordered this number of events.
    fn is_to_give_way(&self, ordered: Seqno, other: Instance) -> bool {
        match self.accepted.cmp(&ordered) {
            _ if self.broken(Planted::GivesWayByLot) => !self.goes_first(other),
            Ordering::Equal => !self.goes_first(other),
            order => order == Ordering::Less,
        }
    }

    /// Returns what is known of another group; `gives_way` is the verdict if there is none yet.
    fn note_other(&mut self, instance: Instance, gives_way: bool) -> Option<&mut Other> {
        let others = &mut self.seek.as_mut()?.others;
        if let Some(index) = others.iter().position(|other| other.instance == instance) {
            return others.get_mut(index);
        }
        if others.len() == OTHERS_MAX {
            others.remove(0);
        }
        others.push(Other { instance, gives_way, told: false, passed_on: 0 });
        others.last_mut()
    }

    /// Reports a `Conflict` to the application, once for each other group: another group of this port has a member at
    /// this address, and neither can give way.
    pub(crate) fn note_met(&mut self, met: &Met) {
        let waits = self.notices.iter().any(|notice| matches!(notice, Event::Conflict { .. }));
        // Notices lie between an application's first event and its last.
        let is_in =
            matches!(self.phase, Phase::Member | Phase::Resetting) && self.delivered >= self.entered_at;
        if met.instance == self.instance {
            return;
        }
        let Some(other) = self.note_other(met.instance, met.gives_way) else { return };
        if other.told || waits || !is_in {
            return;
        }
        other.told = true;
        let (address, gives_way, other_ordered) = (met.address, other.gives_way, met.ordered);
        self.probe(Probe::ConflictTold);
        self.episodes.push(Episode::Conflict { address, gives_way, other_ordered });
        self.notices.push_back(Event::Conflict { address, gives_way, other_ordered });
    }

    fn give_way(&mut self, now: Time, hello: Bytes) {
        self.probe(Probe::FounderGaveWay);
        let config = self.config.clone();
        self.forget_group();
        self.notices.retain(|event| !matches!(event, Event::Entered { .. }));
        self.look_for_group(now, Otherwise::Found(config), hello);
    }

    /// True if this member is alone and its group has never ordered anything.
    pub(super) fn is_pristine(&self) -> bool {
        self.phase == Phase::Member
            && self.epoch.counter == 0
            && self.history.received() == 0
            && self.outbox.len() == 0
            && self.outbox.next_number() == 1
            && self.formed.is_none()
    }
}
