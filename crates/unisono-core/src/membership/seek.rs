//! Seeking: a founder that is alone looks for other groups of its port.
//!
//! Several processes may have been started at once, and nobody was there to answer any of them. So a founder keeps
//! asking for a while. As long as it has ordered nothing, nobody would miss its group, and of two one gives way and
//! joins the other. Later it is too late for that, and the application is told of the conflict.

use crate::event::Event;
use crate::group::{Group, Phase};
use crate::peers::Standing;
use crate::planted::Probe;
use crate::time::Time;
use crate::wire::{Condition, Frame, HereIs};
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// How often a founder that is alone looks for others, and for how long.
const SEEK_EVERY: Duration = Duration::from_millis(400);
const SEEK_FOR: Duration = Duration::from_secs(20);

/// A founder's search for other groups.
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    at: Time,
    until: Time,
    nonce: u64,
    /// What it greets with if it gives way to another group.
    hello: Bytes,
    conflict_told: bool,
}

impl Seek {
    pub(crate) fn wake_at(&self) -> Time {
        self.at
    }
}

impl Group {
    /// Whoever founded a group alone looks for others for a while.
    pub(crate) fn seek_others(&mut self, now: Time, hello: Bytes) {
        let nonce = self.random.next_u64();
        let (at, until) = (now + SEEK_EVERY / 8, now + SEEK_FOR);
        self.seek = Some(Seek { at, until, nonce, hello, conflict_told: false });
    }

    pub(crate) fn seek_timeout(&mut self, now: Time) {
        let Some(seek) = &mut self.seek else { return };
        if seek.at > now {
            return;
        }
        let alone = self.peers.iter().all(|peer| peer.standing != Standing::Member);
        if now >= seek.until || !alone || self.phase != Phase::Member {
            self.seek = None;
            return;
        }
        seek.at = now + SEEK_EVERY;
        let nonce = seek.nonce;
        self.post_to_rendezvous(Frame::Locate { nonce });
    }

    /// Somebody answers this founder's question with another group of its port: one gives way if one can, and if the
    /// other lets anybody in.
    pub(super) fn meet_other_group(&mut self, now: Time, from: SocketAddr, here: HereIs) {
        let pristine = self.is_pristine();
        let Some(seek) = &mut self.seek else { return };
        if seek.nonce != here.nonce || here.instance == self.instance {
            return;
        }
        let gives_way = match here.condition {
            Condition::Open => true,
            Condition::Pristine => here.instance < self.instance,
            Condition::Halted => false,
        };
        if pristine {
            if gives_way {
                let hello = core::mem::take(&mut seek.hello);
                self.give_way(now, hello);
            }
        } else if here.condition != Condition::Pristine && !seek.conflict_told {
            seek.conflict_told = true;
            self.notices.push_back(Event::Conflict { address: from });
        }
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
