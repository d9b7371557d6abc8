//! The epoch before this one: those who still show it are told what was decided, and served what they lack.
//!
//! Whoever entered the next epoch answers for the one before, so that a straggler can follow; the orderer tells those
//! who do not go on unasked. An excluded member serves its log too, for it may hold what nobody else does: it asks
//! whether it may go, and goes after a while in any case.

use crate::group::{Group, Phase};
use crate::identity::{EpochTag, Member, Uid};
use crate::table::Table;
use crate::time::Time;
use crate::wire::{Frame, Proposal};
use alloc::vec::Vec;
use core::time::Duration;

const TELL_EVERY: Duration = Duration::from_millis(15);
const SERVE_EVERY: Duration = Duration::from_millis(4);
/// How long an excluded member serves its log if nobody tells it that it may go.
const LINGER: Duration = Duration::from_millis(4000);
const ASK_EVERY: Duration = Duration::from_millis(60);
/// How often, and for how long, those who do not go on are told so unasked.
const PUSH_EVERY: Duration = Duration::from_millis(500);
const PUSH_FOR: Duration = Duration::from_secs(60);

/// The epoch before this one: what became of it is told to whoever still shows it.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) tag: EpochTag,
    pub(crate) proposal: Proposal,
    /// Everybody who may still show the old epoch.
    pub(crate) members: Vec<Member>,
    told: Table<Time>,
    served: Table<Time>,
    /// Until then those who do not go on are told so, though they do not ask.
    push_until: Time,
    push_at: Time,
    /// An excluded member asks whether it may go, until this passes.
    ask_at: Option<Time>,
    go_at: Option<Time>,
}

impl Past {
    /// This member goes on, and answers for the epoch that ended.
    pub(crate) fn survived(now: Time, tag: EpochTag, proposal: Proposal, members: Vec<Member>) -> Past {
        Past {
            tag,
            proposal,
            members,
            told: Table::default(),
            served: Table::default(),
            push_until: now + PUSH_FOR,
            push_at: now,
            ask_at: None,
            go_at: None,
        }
    }

    /// This member was excluded by the proposal, and lingers.
    pub(crate) fn lingering(now: Time, tag: EpochTag, proposal: Proposal, members: Vec<Member>) -> Past {
        Past {
            push_until: now,
            ask_at: Some(now + ASK_EVERY),
            go_at: Some(now + LINGER),
            ..Past::survived(now, tag, proposal, members)
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        match (self.ask_at, self.go_at) {
            (Some(ask), Some(go)) => Some(ask.min(go)),
            _ => None,
        }
    }
}

impl Group {
    // --- answering ---

    /// Tells a member of the epoch before this one what was decided, not too often. False if it is none.
    pub(crate) fn tell_decision(&mut self, now: Time, to: Uid) -> bool {
        let entered = self.quorum_has_entered();
        let Some(past) = &mut self.past else { return false };
        let Some(address) = past.members.iter().find(|member| member.uid == to).map(|member| member.address)
        else {
            return false;
        };
        if past.told.get(to).is_none_or(|&at| now.since(at) >= TELL_EVERY) {
            past.told.insert(to, now);
            let (tag, proposal) = (past.tag, past.proposal.clone());
            self.post_under(address, tag, Frame::Decided { proposal, entered });
        }
        true
    }

    /// A straggler of the epoch before may be served now; it was not just before.
    pub(crate) fn may_serve_past(&mut self, now: Time, whom: Uid) -> bool {
        let Some(past) = &mut self.past else { return false };
        let known = past.members.iter().any(|member| member.uid == whom);
        let rested = past.served.get(whom).is_none_or(|&at| now.since(at) >= SERVE_EVERY);
        if known && rested {
            past.served.insert(whom, now);
        }
        known && rested
    }

    /// The orderer tells those who do not go on, now and then: they may know nobody who does.
    pub(crate) fn push_decision(&mut self, now: Time) {
        let Some(past) = &mut self.past else { return };
        if now < past.push_at || now >= past.push_until {
            return;
        }
        past.push_at = now + PUSH_EVERY;
        let out = past.members.iter().map(|member| member.uid);
        let out: Vec<Uid> = out.filter(|uid| !past.proposal.members.contains(uid)).collect();
        for uid in out {
            self.tell_decision(now, uid);
        }
    }

    /// A quorum of the present view is known to have entered the epoch.
    fn quorum_has_entered(&self) -> bool {
        if matches!(self.phase, Phase::Excluded | Phase::Gone) {
            return false;
        }
        let view = self.history.view_at(self.epoch_start);
        self.is_quorum(view, |member| {
            member.uid == self.me.uid || self.peers.get(member.uid).is_some_and(|peer| peer.entered)
        })
    }

    // --- asking ---

    /// An excluded member asks whether it may go, and goes after a while in any case.
    pub(crate) fn past_timeout(&mut self, now: Time) {
        let Some(past) = &mut self.past else { return };
        if past.go_at.is_some_and(|at| at <= now) {
            (past.ask_at, past.go_at) = (None, None);
            if self.phase == Phase::Excluded {
                self.phase = Phase::Gone;
            }
            return;
        }
        if past.ask_at.is_some_and(|at| at <= now) {
            past.ask_at = Some(now + ASK_EVERY);
            let proposal = past.proposal.clone();
            for &uid in &proposal.members {
                self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
                self.post(uid, Frame::Inquiry);
            }
        }
    }

    /// Asks a peer what became of this epoch: it shows another one, or keeps nothing of ours.
    pub(crate) fn inquire(&mut self, now: Time, whom: Uid) {
        if let Some(peer) = self.peers.get_mut(whom)
            && now.since(peer.told_at) > Duration::from_millis(20)
        {
            peer.told_at = now;
            self.post(whom, Frame::Inquiry);
        }
    }
}
