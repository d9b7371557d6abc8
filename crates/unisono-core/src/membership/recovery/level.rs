//! Levelling: fetching, under a ballot, what a member lacks of a longer log.
//!
//! A coordinator pulls the longest log that was voted. A voter pulls what lies below the proposal. A member that
//! learned the decision pulls what lies below the next epoch. The member named as the holder is asked first, and after
//! three requests in vain random peers. When the last entry is in, the step that waited for it goes on. A member that
//! is asked serves what it has.

use super::RESET_REPEAT_EVERY;
use crate::group::Group;
use crate::identity::{Ballot, Seqno, Uid};
use crate::time::Time;
use crate::wire::Frame;

/// With every eighth pull in vain goes an `Inquiry`.
const PULLS_PER_INQUIRY: u32 = 8;
/// Maximum number of seqnos sent for one pull.
const PULL_SEQNOS_MAX: u64 = 512;

/// Entries being fetched under a ballot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    pub(super) ballot: Ballot,
    pub(super) through: Seqno,
    from: Uid,
    pub(super) ask_at: Time,
    asked: u32,
}

impl Group {
    pub(super) fn pull(&mut self, now: Time, ballot: Ballot, through: Seqno, from: Uid) {
        self.recovery.pull = Some(Pull { ballot, through, from, ask_at: now, asked: 0 });
        self.repeat_pull(now);
    }

    pub(super) fn repeat_pull(&mut self, now: Time) {
        let Some(mut pull) = self.recovery.pull else { return };
        if pull.ask_at > now {
            return;
        }
        let next = self.log.received() + 1;
        if next > pull.through {
            self.recovery.pull = None;
            return;
        }
        let target = if pull.asked < 3 { pull.from } else { self.random_peer().unwrap_or(pull.from) };
        pull.asked = pull.asked.saturating_add(1);
        if pull.asked.is_multiple_of(PULLS_PER_INQUIRY) {
            // The epoch may be over for all members that this one knows.
            self.post(target, Frame::Inquiry);
        }
        pull.ask_at = now + RESET_REPEAT_EVERY;
        self.recovery.pull = Some(pull);
        self.post(target, Frame::Pull { ballot: pull.ballot, from: next, to: pull.through });
    }

    /// Serves a member that pulls entries.
    pub(crate) fn handle_pull(&mut self, from: Uid, ballot: Ballot, first: Seqno, last: Seqno) {
        let (first, last) = (first.max(self.log.base() + 1), last.min(self.log.received()));
        if let Some(address) = self.peers.address(from)
            && first <= last
        {
            // The member asks again if it lacks more.
            self.serve(address, self.epoch_tag, Some(ballot), first, last.min(first + PULL_SEQNOS_MAX - 1));
        }
    }

    /// Returns the ballot under which entries are taken now, and the last seqno to take.
    pub(crate) fn taking_level(&self) -> Option<(Ballot, Seqno)> {
        self.recovery.pull.map(|pull| (pull.ballot, pull.through))
    }

    /// Handles entries that arrived under the pull: when it is complete, the step that waited for it goes on.
    #[cold]
    pub(crate) fn note_levelled(&mut self, now: Time) {
        let received = self.log.received();
        let Some(pull) = &mut self.recovery.pull else { return };
        if received < pull.through {
            pull.asked = 0;
            // The answer is still arriving; the rest is requested when it stops.
            pull.ask_at = now + RESET_REPEAT_EVERY / 3;
            return;
        }
        self.recovery.pull = None;
        let view = self.log.history().view().clone();
        self.peers.take_in(now, self.me.uid, &view);
        if let Some(proposal) = self.recovery.decided.take() {
            self.handle_decided(now, self.me.uid, proposal, false);
            return;
        }
        if let Some(prepare) = self.recovery.pending.take() {
            self.handle_prepare(now, prepare.ballot.coordinator, prepare);
        }
        if self.recovery.coordination.is_some() {
            self.coordinate(now);
        }
    }
}
