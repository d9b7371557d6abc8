//! A member's handle for asynchronous programs, on any executor.

use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::options::Options;
use crate::ticket::{Batch, Ticket};
use bytes::Bytes;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use unisono_core::look::{Counters, Report};
use unisono_core::{Event, GroupConfig, HandOverError, Info, Member, ResetError, SendError, Seqno, Uid};

/// A member of a group, as [`Group`](crate::Group), whose waiting calls are futures. Any of them may be dropped at
/// any time: no event is lost, and a message is either under way or was never taken. When the last clone is dropped
/// the member leaves in the background.
#[derive(Clone, Debug)]
pub struct AsyncGroup {}

impl AsyncGroup {
    /// As [`Group::create`](crate::Group::create).
    pub async fn create(
        _name: &str,
        _config: GroupConfig,
        _options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        unimplemented!()
    }

    /// As [`Group::join`](crate::Group::join).
    pub async fn join(
        _name: &str,
        _hello: impl Into<Bytes>,
        _options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        unimplemented!()
    }

    /// As [`Group::join_or_create`](crate::Group::join_or_create).
    pub async fn join_or_create(
        _name: &str,
        _config: GroupConfig,
        _hello: impl Into<Bytes>,
        _options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        unimplemented!()
    }

    /// As [`Group::send`](crate::Group::send). If the future is dropped the message may be under way all the same.
    pub async fn send(&self, _payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        unimplemented!()
    }

    /// As [`Group::send_resilient`](crate::Group::send_resilient).
    pub async fn send_resilient(
        &self,
        _payload: impl Into<Bytes>,
        _resilience: u8,
    ) -> Result<Seqno, SendFailure> {
        unimplemented!()
    }

    /// As [`Group::submit`](crate::Group::submit).
    pub async fn submit(&self, _payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        unimplemented!()
    }

    /// As [`Group::submit_all`](crate::Group::submit_all).
    pub async fn submit_all<I>(&self, _payloads: I) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        unimplemented!()
    }

    /// The next event.
    pub async fn receive(&self) -> Result<Event, Ended> {
        unimplemented!()
    }

    /// The events as a stream, which ends after the last one.
    pub fn events(&self) -> Events {
        unimplemented!()
    }

    /// As [`Group::reset`](crate::Group::reset).
    pub fn reset(&self, _min_members: usize) -> Result<(), ResetError> {
        unimplemented!()
    }

    /// As [`Group::leave`](crate::Group::leave).
    pub async fn leave(&self, _goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        unimplemented!()
    }

    /// As [`Group::hand_over`](crate::Group::hand_over).
    pub fn hand_over(&self, _to: Uid) -> Result<(), HandOverError> {
        unimplemented!()
    }

    /// As [`Group::info`](crate::Group::info).
    pub fn info(&self) -> Info {
        unimplemented!()
    }

    /// As [`Group::members`](crate::Group::members).
    pub fn members(&self) -> Vec<Member> {
        unimplemented!()
    }

    /// As [`Group::report`](crate::Group::report).
    pub fn report(&self) -> Report {
        unimplemented!()
    }

    /// As [`Group::counters`](crate::Group::counters).
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
}

/// See [`AsyncGroup::events`].
#[derive(Debug)]
pub struct Events {}

impl Stream for Events {
    type Item = Event;
    fn poll_next(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Event>> {
        unimplemented!()
    }
}
