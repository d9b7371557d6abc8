//! A member's handle for threads that may block.

use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::options::Options;
use crate::ticket::{Batch, Ticket};
use bytes::Bytes;
use std::time::Duration;
use unisono_core::look::{Counters, Report};
use unisono_core::{Event, GroupConfig, HandOverError, Info, Member, ResetError, SendError, Seqno, Uid};

/// A member of a group. Clones are the same member; when the last one is dropped, it leaves (and waits for that for
/// at most a second).
#[derive(Clone, Debug)]
pub struct Group {}

impl Group {
    /// Founds the group of this name, whether or not there is one.
    pub fn create(_name: &str, _config: GroupConfig, _options: &Options) -> Result<Group, OpenError> {
        unimplemented!()
    }

    /// Joins the group of this name. The others receive `hello` (at most 512 bytes) with the join.
    pub fn join(_name: &str, _hello: impl Into<Bytes>, _options: &Options) -> Result<Group, OpenError> {
        unimplemented!()
    }

    /// Joins the group of this name, or founds it if nobody answers.
    pub fn join_or_create(
        _name: &str,
        _config: GroupConfig,
        _hello: impl Into<Bytes>,
        _options: &Options,
    ) -> Result<Group, OpenError> {
        unimplemented!()
    }

    /// Sends a message to all members, this one included, and blocks until it has its place in the order and is
    /// accepted: then it survives as many crashes as the group's resilience.
    pub fn send(&self, _payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        unimplemented!()
    }

    /// As [`Group::send`], for a message that is to survive `resilience` crashes if that is more than the group's.
    pub fn send_resilient(&self, _payload: impl Into<Bytes>, _resilience: u8) -> Result<Seqno, SendFailure> {
        unimplemented!()
    }

    /// Sends a message without waiting for its place. Waits only while the window is full.
    pub fn submit(&self, _payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        unimplemented!()
    }

    /// As [`Group::submit`], but fails with [`SendError::WindowFull`] instead of waiting.
    pub fn try_submit(&self, _payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        unimplemented!()
    }

    /// Sends many messages, packed into as few datagrams as possible. Waits only while the window is full. If one
    /// is refused, those before it are under way and those after it were not sent; the error says how many those
    /// before it are.
    pub fn submit_all<I>(&self, _payloads: I) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        unimplemented!()
    }

    /// The next event; blocks until there is one. Several threads may receive: each event goes to one of them.
    pub fn receive(&self) -> Result<Event, Ended> {
        unimplemented!()
    }

    /// The next event, or nothing if there is none for so long.
    pub fn receive_timeout(&self, _timeout: Duration) -> Result<Option<Event>, Ended> {
        unimplemented!()
    }

    /// The next event, if there is one now.
    pub fn try_receive(&self) -> Result<Option<Event>, Ended> {
        unimplemented!()
    }

    /// Appends events to `events`: blocks until there is one, then takes all that are there, up to 1,024. Returns
    /// how many.
    pub fn receive_many(&self, _events: &mut Vec<Event>) -> Result<usize, Ended> {
        unimplemented!()
    }

    /// Begins a reset that must bring together at least `min_members` (and a quorum, whatever that is): the
    /// application's answer to [`Event::Suspected`]. Its end is an [`Event::Reset`].
    pub fn reset(&self, _min_members: usize) -> Result<(), ResetError> {
        unimplemented!()
    }

    /// Leaves, and blocks until nobody needs this member any more. The others receive `goodbye` (at most 512 bytes)
    /// with the leave. What was not received yet can be received afterwards.
    pub fn leave(&self, _goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        unimplemented!()
    }

    /// Gives the role of orderer to another member; only the orderer can.
    pub fn hand_over(&self, _to: Uid) -> Result<(), HandOverError> {
        unimplemented!()
    }

    /// Where this member and its group stand.
    pub fn info(&self) -> Info {
        unimplemented!()
    }

    /// The members now, in rank order.
    pub fn members(&self) -> Vec<Member> {
        unimplemented!()
    }

    /// This member's account of the group: who is how far, and who waits for whom.
    pub fn report(&self) -> Report {
        unimplemented!()
    }

    /// What this member has counted.
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
}
