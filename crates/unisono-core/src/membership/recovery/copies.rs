//! The state is not left behind: in a group whose members keep a state, no reset goes on without a member that has it.
//!
//! A joiner counts in every quorum as soon as its join is in the order, and fetches the state after that. So members
//! that all lack the state can be a quorum of the view, and the member that has it may only be cut off for a moment.
//! Each vote says whether the voter has the state. A coordinator proposes no view in which no voter has it: the group
//! halts until such a member is back, or until an operator vouches that it is dead (`force`). The rule narrows what may
//! be proposed and changes nothing in what is decided.

use super::coordinator::Coordination;
use crate::group::Group;
use crate::identity::Uid;
use crate::log::Members;
use crate::planted::Planted;
use alloc::vec::Vec;

impl Group {
    /// Notes that this member, which joined a group that [keeps a state](crate::GroupConfig::keeps_state), has fetched
    /// it. A founder has the state from the beginning.
    pub fn note_state(&mut self) {
        self.state_for = Some(self.entered_at);
    }

    /// True if this member has the state that the group keeps, or if the group keeps none.
    pub fn has_state(&self) -> bool {
        let is_founder = self.entered_at == 0 && self.joining.is_none();
        !self.config.keeps_state || is_founder || self.state_for == Some(self.entered_at)
    }

    /// True if the state goes on with these members of a view: one of them voted in this member's ballot that it has the
    /// state, or all of the view voted and none has it.
    pub(super) fn goes_on_with_state(&self, own: &Coordination, members: &[Uid], view: &Members) -> bool {
        let has_state = |uid: &Uid| own.vote_of(*uid).is_some_and(|vote| !vote.lacks_state);
        let none_has = || view.iter().all(|m| own.vote_of(m.uid).is_some_and(|vote| vote.lacks_state));
        !self.config.keeps_state
            || self.broken(Planted::StateLeftBehind)
            || members.iter().any(has_state)
            || none_has()
    }

    /// True if the voters of this member's ballot are waiting for a member that has the state.
    pub(super) fn ballot_lacks_state(&self, view: &Members) -> bool {
        let own = self.recovery.coordination.as_deref();
        own.is_some_and(|own| {
            let voters: Vec<Uid> =
                view.iter().map(|m| m.uid).filter(|uid| own.vote_of(*uid).is_some()).collect();
            !self.goes_on_with_state(own, &voters, view)
        })
    }
}
