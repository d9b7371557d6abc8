//! The minimum of a service in memory: a command is carried out, and a caller is answered, only while enough members have
//! the state.
//!
//! All copies know from the order which members have the state, so they agree on which commands come too early. Such a
//! command takes effect nowhere; the member that received it submits it again once there are enough copies.
//!
//! A command that a reset has accepted may be held by fewer copies than when it got its seqno. The group announces such
//! commands ([`Event::ResetAhead`](crate::Event::ResetAhead)). They are applied, because another copy may have answered
//! them; what follows from them is held back until the reset is over and enough members have the state again.

use super::Watched;
use super::machine::{Outcome, Position};
use super::types::ReplicaSettings;
use crate::event::View;
use crate::identity::{Member, Name, Seqno, Uid};
use crate::planted::Planted;
use crate::rpc::CallNumber;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many members have to have the state, which count, and how many there are.
#[derive(Clone, Debug)]
pub(super) struct Minimum {
    least: usize,
    /// The names that count; all do if there are none.
    names: Vec<Name>,
    copies: usize,
    members: usize,
}

impl Minimum {
    pub(super) fn of(settings: &ReplicaSettings) -> Minimum {
        let (least, names) = (settings.members_min.into(), settings.names.clone());
        Minimum { least, names, copies: 0, members: 0 }
    }

    /// Counts the members of a view, and those that have the state.
    pub(super) fn recount(&mut self, view: Option<&View>, has_state: impl Fn(Uid) -> bool) {
        let count = |is_in: &dyn Fn(Uid) -> bool| view.map_or(0, |view| counted(&self.names, view, is_in));
        (self.members, self.copies) = (count(&|_| true), count(&has_state));
    }

    /// Returns the number of members that have the state and count.
    pub(super) fn copies(&self, watched: Watched) -> usize {
        if watched.broken(Planted::NewcomerCounted) { self.members } else { self.copies }
    }

    pub(super) fn is_met(&self, watched: Watched) -> bool {
        self.copies(watched) >= self.least
    }
}

/// Returns the number of members of `view` that count and satisfy `is_in`.
pub(super) fn counted(names: &[Name], view: &View, is_in: &dyn Fn(Uid) -> bool) -> usize {
    let counts = |member: &&Member| names.is_empty() || names.contains(&member.name);
    view.members.iter().filter(counts).filter(|member| is_in(member.uid)).count()
}

/// The position after a command, and its outcome; none if no client can be waiting for it.
type Held = (Position, Option<Outcome>);

/// Outcomes that are held back, by client and number.
#[derive(Default)]
pub(super) struct HeldBack {
    /// Seqno of the reset that has accepted what comes before it.
    reset_at: Option<Seqno>,
    outcomes: BTreeMap<(Uid, CallNumber), Held>,
}

impl HeldBack {
    /// Notes that a reset with this seqno has accepted what comes before it.
    pub(super) fn reset_ahead(&mut self, seqno: Seqno) {
        self.reset_at = self.reset_at.max(Some(seqno));
    }

    /// Notes that the event of a reset has come.
    pub(super) fn reset_came(&mut self, seqno: Seqno) {
        self.reset_at = self.reset_at.filter(|at| *at > seqno);
    }

    /// True while events of before a reset come.
    pub(super) fn awaits_reset(&self) -> bool {
        self.reset_at.is_some()
    }

    pub(super) fn add(&mut self, command: (Uid, CallNumber), held: Held) {
        self.outcomes.insert(command, held);
    }

    pub(super) fn take(&mut self) -> BTreeMap<(Uid, CallNumber), Held> {
        core::mem::take(&mut self.outcomes)
    }
}
