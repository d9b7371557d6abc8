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
//! `consensus` decides and knows nothing of the group, `founding` says what may be decided on; here is what the group
//! makes of it: it sends what is to be said, enters, or fails, and tells the decision on.

mod consensus;
mod founding;

use crate::event::JoinFailure;
use crate::group::{Destination, Group, Phase};
use crate::identity::{Ballot, Member, Uid};
use crate::time::{Time, earlier};
use crate::wire::{Founding, Frame};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
pub(crate) use consensus::Forming;
use core::net::SocketAddr;
use core::time::Duration;

/// The decision is told unasked so many times, at intervals that double, to those who have not shown that they know.
const TELLS: u32 = 8;
const TELL_FIRST: Duration = Duration::from_millis(20);
/// Who decided a group without itself tells its members for so long.
const FORM_LINGER: Duration = Duration::from_millis(200);

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

impl Formed {
    fn frame(&self, ballot: Ballot) -> Frame {
        Frame::Formed { formation: self.tag, ballot, founding: self.decision.founding.clone().into() }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        earlier(self.tell_at, self.fail_at)
    }
}

impl Group {
    /// A frame of some formation. Who entered by it answers as long as it is a member, whoever else does.
    pub(crate) fn handle_forming(&mut self, now: Time, from: SocketAddr, sender: Uid, frame: Frame) {
        if let (Some(formed), &Frame::Form { formation, ballot, room, .. }) = (&self.formed, &frame) {
            let answer = formed.frame(ballot);
            if formation == formed.tag
                && self.phase != Phase::Excluded
                && answer.datagram_bytes().is_some_and(|bytes| bytes <= room as usize)
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
            self.begin_group(now, decision.founding.clone());
            self.seek_others(now, Bytes::new());
            self.acknowledging.due = true;
            self.detector.look_soon(now);
        }
        self.formed = Some(Box::new(Formed {
            tag,
            decision,
            tell_at: (ours || enters).then(|| if ours { now } else { now + TELL_FIRST }),
            tells: 0,
            fail_at: (!enters).then(|| if ours { give_up_at.min(now + FORM_LINGER) } else { now }),
        }));
        self.formed_timeout(now);
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

    /// Who decided tells everybody, and so does the sequencer; the others tell the sequencer.
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
