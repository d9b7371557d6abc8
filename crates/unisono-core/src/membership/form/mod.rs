//! Forming: named participants that start at about the same time make one group of at least m of them, or none (KT96
//! §5: atomic group creation).
//!
//! This is single-decree consensus among the participants, outside of any epoch. A coordinator asks for promises
//! (`Form`) and waits a moment for those beyond the minimum. Then it proposes a founding: instance, first epoch,
//! configuration, and as members the participants that promised. When m participants have prepared it under one ballot,
//! it is decided. A proposal that was prepared before is taken over as it is. Any two quorums share a participant,
//! since each is more than half. A participant that is named in the founding enters when it learns of the decision; the
//! first member is the sequencer. A participant that is not named learns so, and may join like any process. All others
//! fail, when their time is over, because the group was not formed here.
//!
//! **What holds.** A participant counts by its name and by the life (uid) in which it promised: of two lives under one
//! name, none counts in that ballot. Promises are kept in memory, so a restarted participant has forgotten its own. Two
//! quorums of `at_least` (m) of n names share 2m − n names. As long as fewer names than that restart between the first
//! and the last ballot in which they take part, two quorums share a *life*, and there is at most one group. With m = 2
//! of n = 3, no participant may restart; with m = 4 of 5, two may; with m = n, all but one may. If more restart, a
//! second group can form, but only where the first cannot be heard: every member of the first answers every question
//! with the decision, for as long as it is a member. Waiting after a start would not close this hole, because the
//! participants with which the restarted one forms again may have started later still. Only a disk would.
//!
//! **Join or form.** A process that may also join looks for the group all the while, and is silent in the formation for
//! the time of one search. Once a member of a group answers, it promises and prepares nothing until no member has
//! answered for a second. It then enters in one of two ways. If the group that answered is the one that this formation decided, with this
//! process as a member, the sequencer answers its request to join with the decision. Otherwise it joins.
//!
//! `consensus` decides and knows nothing of the group; `founding` says what may be decided. This file connects them to
//! the group: it sends frames, enters or fails, and passes the decision on.

mod consensus;
mod founding;

use crate::config::{Formation, GroupConfig};
use crate::error::ConfigError;
use crate::event::JoinFailure;
use crate::group::{Destination, Group, Phase};
use crate::identity::{Ballot, Member, Uid};
use crate::membership::Otherwise;
use crate::planted::Planted;
use crate::time::{Time, earlier};
use crate::wire::{Founding, Frame};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
pub(crate) use consensus::Forming;
use core::net::SocketAddr;
use core::time::Duration;

/// The decision is sent unasked up to 8 times, at doubling intervals, to members that have not shown that they know it.
const TELLS: u32 = 8;
const TELL_FIRST: Duration = Duration::from_millis(20);
/// How long a coordinator that decided a group without itself sends the decision.
const FORM_LINGER: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
struct Decision {
    ballot: Ballot,
    founding: Founding,
    /// True if this member's own ballot decided it.
    ours: bool,
}

/// The decision, kept to answer later questions.
#[derive(Clone, Debug)]
pub(crate) struct Formed {
    tag: u64,
    decision: Decision,
    tell_at: Option<Time>,
    tells: u32,
    /// When to report a decision that leaves this member out.
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
    /// Begins to look for the group, and to take part in a formation once the time of a search is over.
    pub(crate) fn join_or_form(
        &mut self,
        now: Time,
        formation: Formation,
        config: GroupConfig,
        hello: Bytes,
    ) -> Result<(), ConfigError> {
        let (me, within) = (self.me.clone(), formation.within);
        let mut forming = Forming::new(now, me, formation, config, &self.settings, &mut self.random)?;
        // A formation with little time still gets half of it.
        forming.wait_until(now + self.settings.locate.min(within / 2));
        self.forming = Some(Box::new(forming));
        self.look_for_group(now, Otherwise::Form(now + within), hello);
        Ok(())
    }

    /// Sends the decision to a process that asks to join, and is a member by that decision without knowing it.
    pub(crate) fn repeat_formed(&mut self, uid: Uid, address: SocketAddr) {
        let entered = self.peers.get(uid).is_some_and(|peer| peer.has_entered());
        if let Some(formed) = &self.formed
            && !entered
            && formed.decision.founding.names(uid)
        {
            let frame = formed.frame(formed.decision.ballot);
            self.post_outside(address, frame);
        }
    }

    /// Handles a frame of a formation. Members of the group that was formed answer every question about it.
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
        let takes_any_nonce = self.broken(Planted::PrepareUnechoed);
        let takes_any_question = self.broken(Planted::PromiseUnechoed);
        if let Some(forming) = &mut self.forming {
            (forming.takes_any_nonce, forming.takes_any_question) = (takes_any_nonce, takes_any_question);
            forming.handle(now, from, sender, frame, &mut self.random);
            self.follow_forming(now);
        }
    }

    pub(crate) fn forming_timeout(&mut self, now: Time) {
        if let Some(forming) = &mut self.forming {
            let is_over = forming.give_up_at <= now && self.joining.is_none();
            if is_over && forming.complete_ballot(now).is_none() {
                self.join_failed(JoinFailure::NotFormed);
                return;
            }
            forming.timeout(now, &mut self.random);
            self.follow_forming(now);
        }
        self.formed_timeout(now);
    }

    /// Sends the frames that consensus produced, and carries out its decision.
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
        // A process that may also join fails only if it does not find the group that the others formed.
        let joins = self.joining.is_some();
        let (ours, enters) = (decision.ours, decision.founding.names(self.me.uid));
        if enters {
            self.begin_group(now, decision.founding.clone());
            self.seek_others(now, Bytes::new());
            self.acknowledging.report_now();
            self.detector.look_soon(now);
        }
        if joins && !enters {
            self.formed_without();
            if !ours {
                return;
            }
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

    /// Sends the decision to members that may not know it, and reports a decision that leaves this member out.
    fn formed_timeout(&mut self, now: Time) {
        let Some(formed) = &self.formed else { return };
        if formed.fail_at.is_some_and(|at| at <= now) {
            self.formed = None;
            if self.phase == Phase::Locating && self.joining.is_none() {
                self.join_failed(JoinFailure::NotFormed);
            }
            return;
        }
        if formed.tell_at.is_none_or(|at| at > now) {
            return;
        }
        let frame = formed.frame(formed.decision.ballot);
        let target = self.not_known_to_have_entered(formed);
        let more = !target.is_empty() && formed.tells + 1 < TELLS && self.epoch.counter == 0;
        let next = now + TELL_FIRST * (1 << formed.tells);
        for address in target {
            self.post_outside(address, frame.clone());
        }
        if let Some(formed) = &mut self.formed {
            formed.tells += 1;
            formed.tell_at = more.then_some(next);
        }
    }

    /// Returns the addresses to send the decision to, among members not known to have entered: the coordinator and the
    /// sequencer send it to all of them, the others only to the sequencer.
    fn not_known_to_have_entered(&self, formed: &Formed) -> Vec<SocketAddr> {
        let Decision { founding, ours, .. } = &formed.decision;
        let all = *ours || self.may_assign();
        let tells = |member: &&Member| {
            let entered = self.peers.get(member.uid).is_some_and(|peer| peer.has_entered());
            member.uid != self.me.uid && !entered && (all || member.uid == founding.members[0].uid)
        };
        founding.members.iter().filter(tells).map(|member| member.address).collect()
    }
}
