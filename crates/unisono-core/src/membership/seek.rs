//! Seeking: the first member of a group looks for other groups of its port.
//!
//! Several processes may have been started at once, or out of each other's hearing, and nobody was there to answer any
//! of them. So whoever founded a group keeps asking. As long as it is alone and has ordered nothing, nobody would miss
//! its group, and of two one gives way and joins the other. Later it is too late for that: groups never merge. Then all
//! members of both are told of the conflict, and which of the two is to give way, if one is to. So that groups of any
//! size find each other, the first in rank asks as long as there is a group, though ever more rarely.

use crate::episode::Episode;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::Instance;
use crate::peers::Standing;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Condition, Frame, HereIs};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// A founder that is alone asks about so often, for so long.
const SEEK_EVERY: Duration = Duration::from_millis(400);
const SEEK_CLOSELY_FOR: Duration = Duration::from_secs(20);
/// Later, and where there are others, each pause is twice the one before, up to this. By chance all are up to a quarter
/// shorter or longer.
const SEEK_PAUSE_MAX: Duration = Duration::from_secs(15);
/// So many other groups are told apart.
const OTHERS_MAX: usize = 16;

/// A member's search for other groups.
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    at: Time,
    pause: Duration,
    closely_until: Time,
    /// Names the question that was asked last, so that no answer to an older one counts.
    nonce: u64,
    /// The groups whose answers to it were passed on.
    passed_on: Vec<Instance>,
    /// What a founder greets with if it gives way to another group.
    hello: Bytes,
    /// The other groups that the application was told of, the last one last.
    told: Vec<Instance>,
}

impl Seek {
    pub(crate) fn wake_at(&self) -> Time {
        self.at
    }
}

impl Group {
    /// This member is in, and looks for other groups from now on.
    pub(crate) fn seek_others(&mut self, now: Time, hello: Bytes) {
        self.seek = Some(Seek {
            at: now + SEEK_EVERY / 8,
            pause: SEEK_EVERY,
            closely_until: now + SEEK_CLOSELY_FOR,
            nonce: self.random.next_u64(),
            passed_on: Vec::new(),
            hello,
            told: Vec::new(),
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

    /// First in rank, who looks for other groups on behalf of all: the role of sequencer may be anywhere.
    fn is_first(&self) -> bool {
        self.history.view().first().is_some_and(|member| member.uid == self.me.uid)
    }

    /// Somebody answers this member's question with another group of its port: a founder that nobody would miss gives
    /// way if it is its turn, and if the other lets anybody in.
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
            self.note_conflict(from, here.instance);
            if !self.broken(Planted::ConflictUntold) {
                // The cookie is for whoever asked, and nobody else is to ask there.
                self.post_to_each(&Frame::HereIs(HereIs { nonce: 0, cookie: 0, sequencer: from, ..here }));
            }
        }
    }

    /// Of two groups that met, the one with the smaller instance: chance decided, once, and the same for everybody.
    fn goes_first(&self, other: Instance) -> bool {
        self.instance < other
    }

    /// Another group of this port has a member at that address, and neither can be given up by itself: the application is
    /// told, once of each group.
    pub(crate) fn note_conflict(&mut self, address: SocketAddr, other: Instance) {
        let gives_way = !self.goes_first(other);
        let waits = self.notices.iter().any(|notice| matches!(notice, Event::Conflict { .. }));
        // It is told between its first event and its last.
        let is_in =
            matches!(self.phase, Phase::Member | Phase::Resetting) && self.delivered >= self.entered_at;
        let Some(seek) = self.seek.as_mut().filter(|seek| !seek.told.contains(&other)) else { return };
        if other == self.instance || waits || !is_in {
            return;
        }
        if seek.told.len() == OTHERS_MAX {
            seek.told.remove(0);
        }
        seek.told.push(other);
        self.probe(Probe::ConflictTold);
        self.episodes.push(Episode::Conflict { address, gives_way });
        self.notices.push_back(Event::Conflict { address, gives_way });
    }

    fn give_way(&mut self, now: Time, hello: Bytes) {
        self.probe(Probe::FounderGaveWay);
        let config = self.config.clone();
        self.forget_group();
        self.notices.retain(|event| !matches!(event, Event::Entered { .. }));
        self.look_for_group(now, Some(config), hello);
    }

    /// Alone, and nothing was ever ordered: nobody would miss this group.
    pub(super) fn is_pristine(&self) -> bool {
        self.phase == Phase::Member
            && self.epoch.counter == 0
            && self.history.received() == 0
            && self.outbox.len() == 0
            && self.outbox.next_number() == 1
            && self.formed.is_none()
    }
}
