//! The way out of a lost majority: an operator vouches that members are dead, and the rest goes on without them.
//!
//! A forced ballot needs no quorum, and heeds no floor of a member. Instead all members of both views that are not named must vote and prepare, and the
//! named ones must be silent at the coordinator. A member that is neither named nor votes prevents it. Everything else
//! is a reset like any other; its event says that it was forced, and that messages may be lost. If a named member lives
//! on elsewhere with a quorum, the group is split: that is what the operator vouches for.
//!
//! A process outside of the group must meet a challenge, so a recorded request forces nothing.

use super::halt::HEARD_WITHIN;
use crate::challenge::Challenge;
use crate::error::ForceError;
use crate::group::{Group, Phase};
use crate::identity::{Member, Uid};
use crate::log::Members;
use crate::time::Time;
use crate::wire::{Forcing, Frame};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// A request lasts for 30 s: coordinators may outbid each other meanwhile, or a proposal that was prepared before may
/// have to be completed first.
const FORCE_LASTS: Duration = Duration::from_secs(30);

/// What an operator vouched for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Force {
    without: Vec<Uid>,
    /// When it takes effect. Until then the named members are invited too.
    from: Time,
    until: Time,
    challenge: Challenge,
}

impl Force {
    pub(super) fn end(&mut self) {
        self.without.clear();
    }

    /// True from the request until its time is over.
    pub(super) fn is_asked(&self, now: Time) -> bool {
        !self.without.is_empty() && now < self.until
    }

    /// True if the request is in force at `now`, and vouches that this member is dead.
    pub(super) fn gives_up(&self, now: Time, uid: Uid) -> bool {
        self.from <= now && self.names(uid)
    }

    fn names(&self, uid: Uid) -> bool {
        self.without.contains(&uid)
    }
}

impl Group {
    /// Goes on without these members although no quorum is left. The caller vouches that they are dead: if one of them
    /// lives on elsewhere, the group may be split for ever. All other members of the view must answer. The end is an
    /// [`Event::Reset`](crate::Event::Reset) that says *forced* and *degraded*.
    ///
    /// # Errors
    /// See [`ForceError`]: nothing was begun.
    pub fn force(&mut self, now: Time, without: &[Uid]) -> Result<(), ForceError> {
        self.check_force(now, without)?;
        self.force.without = without.to_vec();
        self.force.from = now + self.patience(now);
        self.force.until = now + FORCE_LASTS;
        // All members are asked once more, the named ones too.
        self.recovery.unanswered.clear();
        self.recovery.begin_at = Some(now);
        self.recovery_timeout(now);
        self.settle(now);
        Ok(())
    }

    fn check_force(&self, now: Time, without: &[Uid]) -> Result<(), ForceError> {
        if !matches!(self.phase, Phase::Resetting | Phase::Member) {
            return Err(ForceError::NotMember);
        }
        let (before, after) = self.sides(self.log.accepted());
        let is_known = |uid: Uid| before.iter().chain(after.iter()).any(|member| member.uid == uid);
        if let Some(stranger) = without.iter().find(|uid| !is_known(**uid)) {
            return Err(ForceError::NoSuchMember(*stranger));
        }
        if let Some(answers) = without.iter().find(|uid| !self.is_silent(now, **uid)) {
            return Err(ForceError::Answers(*answers));
        }
        if without.is_empty() || !self.halt.is_halted() || !self.may_begin() {
            return Err(ForceError::NotHalted);
        }
        Ok(())
    }

    /// True if this peer was not heard lately.
    fn is_silent(&self, now: Time, uid: Uid) -> bool {
        self.peers.get(uid).map_or(uid != self.me.uid, |peer| now.since(peer.last_heard()) >= HEARD_WITHIN)
    }

    /// Drops a request that is over, or of which a named member answers.
    pub(super) fn review_force(&mut self, now: Time) {
        let answers = |uid: &Uid| !self.is_silent(now, *uid);
        if !self.force.without.is_empty()
            && (now >= self.force.until || self.force.without.iter().any(answers))
        {
            self.force.end();
        }
    }

    /// True if a request is in force, and of both views exactly the members that it does not name `did` what is asked.
    pub(super) fn is_forced(
        &self,
        now: Time,
        before: &Members,
        after: &Members,
        did: impl Fn(&Member) -> bool,
    ) -> bool {
        let agrees = |member: &Member| did(member) != self.force.names(member.uid);
        let is_in_force = !self.force.without.is_empty() && self.force.from <= now;
        is_in_force && before.iter().chain(after.iter()).all(agrees)
    }

    /// Handles a request from outside of the group.
    #[cold]
    pub(crate) fn handle_force(
        &mut self,
        now: Time,
        from: SocketAddr,
        nonce: u64,
        challenge: u64,
        without: &[Uid],
    ) {
        if matches!(self.phase, Phase::Locating | Phase::Joining) {
            return;
        }
        let answer = if self.force.challenge.is_met(now, from.ip(), challenge) {
            match self.force(now, without) {
                Ok(()) => Forcing::Begun,
                Err(ForceError::NotMember | ForceError::NotHalted | ForceError::Forked) => Forcing::NotHalted,
                Err(ForceError::NoSuchMember(uid)) => Forcing::NoSuchMember(uid),
                Err(ForceError::Answers(uid)) => Forcing::Answers(uid),
            }
        } else {
            Forcing::Challenge(self.force.challenge.draw(now, from.ip(), &mut self.random))
        };
        self.post_outside(from, Frame::Forcing { nonce, answer });
    }
}
