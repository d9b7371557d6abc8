//! Who is in the group: views and quorums, suspicion, joining, leaving, resets.
//!
//! Membership changes in two ways only. A join or a leave is an entry of the order, one at a time, accepted when
//! quorums of both sides hold it. Everything else (crash, slowness, partition) is a reset: a new epoch with a new
//! first view, decided by the members of the old one.

mod admission;
mod detector;
mod form;
mod join;
mod leave;
mod previous;
mod recovery;
mod seek;
mod view;

pub(crate) use admission::Admission;
pub(crate) use detector::Detector;
pub(crate) use form::{Formed, Forming};
pub(crate) use join::Joining;
pub(crate) use leave::{Departures, Leaving};
pub(crate) use previous::{INQUIRE_BYTES, INQUIRY_BYTES, PreviousEpoch};
pub(crate) use recovery::{Invitation, Recovery};
pub(crate) use seek::Seek;
