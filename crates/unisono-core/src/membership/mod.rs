//! Membership: views and quorums, failure detection, joining, leaving, resets.
//!
//! Membership changes in two ways only. A join or a leave is an ordered event with a seqno; one is open at a time, and
//! it is accepted when quorums of the view before and the view after it hold it. Every other change (crash, slowness,
//! partition) is a reset: the members of the old epoch decide the first view of a new epoch.

mod admission;
mod confirm;
mod detector;
mod end;
mod form;
mod join;
mod leave;
mod previous;
mod recovery;
mod seek;
mod verdict;
mod view;

pub(crate) use admission::Admission;
pub(crate) use confirm::Confirming;
pub(crate) use end::Ending;
pub(crate) use form::{Formed, Forming};
pub(crate) use join::{Joining, Otherwise};
pub(crate) use leave::{Departures, LeaveRequest, Leaving};
pub(crate) use previous::{INQUIRE_BYTES, INQUIRY_BYTES, PreviousEpoch};
pub(crate) use recovery::{Force, Halt, Invitation, Recovery};
pub(crate) use seek::Seek;
pub(crate) use view::{Scope, check_floor, is_quorum};
