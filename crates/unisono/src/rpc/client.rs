//! Calling services: a client, and a call under way.

use super::error::{CallFailure, NotSent};
use super::port::Port;
use super::{DEADLINE, opening};
use crate::engine::{Attempt, CallInterest, Calls, Listed, Shared};
use crate::error::OpenError;
use crate::opening::Handle;
use crate::options::Options;
use bytes::Bytes;
use std::future::Future;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_core::rpc::{CallCounters, CallNumber, Wishes};
use unisono_core::{Time, Uid};

/// A handle for calling services. Clones are the same client, for any number of threads and tasks. Thousands of calls
/// may be under way at once.
///
/// All clients and services of a process that have the same [`Options`] share one socket.
///
/// ```
/// use unisono::Options;
/// use unisono::rpc::{CallFailure, Client, Port};
/// # use unisono::rpc::{PrivatePort, ServeOptions, Server};
/// # let name = &format!("client-docs-{}", std::process::id());
/// # let server = Server::new(&PrivatePort::from_name(name), ServeOptions::default(), &Options::default())?;
/// # std::thread::spawn(move || server.serve(1, |request| request.payload().to_ascii_uppercase().into()));
/// let client = Client::new(&Options::default())?;
/// match client.call(Port::from_name(name), "hello") {
///     Ok(reply) => assert_eq!(reply, "HELLO"),
///     Err(CallFailure::Unknown) => println!("it may have happened, once"),
///     Err(failure) => println!("it did not happen: {failure}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared<Calls>>,
}

impl Client {
    /// Returns a client that looks for servers as these options say. It sends nothing yet. If the options have seeds,
    /// it looks their names up, which may take seconds.
    pub fn new(options: &Options) -> Result<Client, OpenError> {
        Ok(Client { shared: Arc::new(opening::for_client(options)?) })
    }

    /// Returns a client at the address of a member of a group, with the member's options. The member's handle is a
    /// [`Group`](crate::Group) or an [`AsyncGroup`](crate::AsyncGroup).
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use unisono::rpc::{Client, Port};
    /// use unisono::{AsyncGroup, Options};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let group = AsyncGroup::join("archive", "", &Options::default()).await?;
    /// let client = Client::beside(&group)?;
    /// let call = client.start(Port::from_name("upper"), "hello", Duration::from_secs(5))?;
    /// println!("{:?}", call.await?);
    /// # Ok(()) }
    /// ```
    pub fn beside(member: &impl Handle) -> Result<Client, OpenError> {
        Ok(Client { shared: Arc::new(opening::beside(member)?) })
    }

    pub(super) fn at(shared: Shared<Calls>) -> Client {
        Client { shared: Arc::new(shared) }
    }

    /// Calls a service and returns its reply. Blocks for at most ten seconds ([`DEADLINE`]).
    pub fn call(&self, port: Port, request: impl Into<Bytes>) -> Result<Bytes, CallFailure> {
        self.call_within(port, request, DEADLINE)
    }

    /// Calls a service and returns its reply. Blocks until `deadline` has passed at most; a server does not begin to
    /// work on a request after that.
    pub fn call_within(
        &self,
        port: Port,
        request: impl Into<Bytes>,
        deadline: Duration,
    ) -> Result<Bytes, CallFailure> {
        self.start(port, request, deadline)?.wait()
    }

    /// Begins a call and returns it, to wait for its reply later or to await it. Other calls may be made meanwhile,
    /// to the same service too.
    pub fn start(&self, port: Port, request: impl Into<Bytes>, deadline: Duration) -> Result<Call, NotSent> {
        self.begin(port, None, (request.into(), Wishes::default()), (deadline, None))
    }

    /// Calls a replicated service with wishes beside the request, and returns its reply; see [`Client::start_with`]. Blocks
    /// until `deadline` has passed at most.
    pub fn call_with(
        &self,
        port: Port,
        request: impl Into<Bytes>,
        wishes: Wishes,
        deadline: Duration,
    ) -> Result<Bytes, CallFailure> {
        self.start_with(port, request, wishes, deadline)?.wait()
    }

    /// Begins a call to a replicated service with wishes beside the request. With [`Wishes::handler`] the member that holds
    /// the handler answers ([`Replica::claim_handler`](crate::replica::Replica::claim_handler)); if no member holds it, the
    /// call is refused. A service that is no replica takes no notice of
    /// wishes, unless its program looks at them ([`Request::wishes`](super::Request::wishes)).
    pub fn start_with(
        &self,
        port: Port,
        request: impl Into<Bytes>,
        wishes: Wishes,
        deadline: Duration,
    ) -> Result<Call, NotSent> {
        self.begin(port, None, (request.into(), wishes), (deadline, None))
    }

    /// Begins a call to the server at this address, and to no other one. If the port is not served there, the call
    /// fails as [`NotFound`](CallFailure::NotFound) or [`Failed`](CallFailure::Failed); if the server falls silent, as
    /// [`Unknown`](CallFailure::Unknown).
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::Options;
    /// use unisono::rpc::Client;
    /// # use unisono::rpc::{PrivatePort, ServeOptions, Server};
    /// # let name = &format!("start-at-docs-{}", std::process::id());
    /// # let server = Server::new(&PrivatePort::from_name(name), ServeOptions::default(), &Options::default())?;
    /// # let (port, address) = (server.port(), server.address());
    /// # std::thread::spawn(move || server.serve(1, |request| request.payload().to_ascii_uppercase().into()));
    /// let client = Client::new(&Options::default())?;
    /// let call = client.start_at(port, address, "hello", Duration::from_secs(5))?;
    /// assert_eq!(call.wait()?, "HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_at(
        &self,
        port: Port,
        address: SocketAddr,
        request: impl Into<Bytes>,
        deadline: Duration,
    ) -> Result<Call, NotSent> {
        self.begin(port, Some(address), (request.into(), Wishes::default()), (deadline, None))
    }

    /// Calls the server at this address, and no other one, and returns its reply; see [`Client::start_at`]. Blocks until
    /// `deadline` has passed at most.
    pub fn call_at(
        &self,
        port: Port,
        address: SocketAddr,
        request: impl Into<Bytes>,
        deadline: Duration,
    ) -> Result<Bytes, CallFailure> {
        self.start_at(port, address, request, deadline)?.wait()
    }

    /// Calls any server of the port, or the one at this address, and gives it up if it leaves the call unanswered for `silence`:
    /// for a caller that finds out by itself what became of the call.
    pub(crate) fn call_with_silence(
        &self,
        (port, to): (Port, Option<SocketAddr>),
        request: Bytes,
        (deadline, silence): (Duration, Duration),
    ) -> Result<Bytes, CallFailure> {
        self.begin(port, to, (request, Wishes::default()), (deadline, Some(silence)))?.wait()
    }

    fn begin(
        &self,
        port: Port,
        address: Option<SocketAddr>,
        mut request: (Bytes, Wishes),
        within: (Duration, Option<Duration>),
    ) -> Result<Call, NotSent> {
        let begin = |calls: &mut Calls, now: Time| {
            let returns_soon = calls.has_outcomes();
            // The first attempt succeeds; and a copy of the handle could cost an allocation.
            let begun = calls.call(now, (port.0, address), mem::take(&mut request), within);
            match begun.is_ok() && calls.gathers(now, returns_soon) {
                true => Attempt::Kept(begun),
                false => Attempt::Done(begun),
            }
        };
        let begun = self.shared.block(Some(Duration::ZERO), begin).unwrap_or(Err(NotSent::TooMany));
        Ok(Call { shared: self.shared.clone(), number: begun?, asked: false })
    }

    /// Accepts any instance of the service at this port from now on, after a call failed as
    /// [`OtherInstance`](CallFailure::OtherInstance). The client, with all others at its address, then stays with the
    /// instance that gets its next call. A call that may have happened still goes to no other instance.
    ///
    /// ```no_run
    /// use unisono::Options;
    /// use unisono::rpc::{CallFailure, Client, Port};
    /// let (client, port) = (Client::new(&Options::default())?, Port::from_name("archive"));
    /// if let Err(CallFailure::OtherInstance) = client.call(port, "hello") {
    ///     println!("the archive was founded anew: what was stored before may be missing");
    ///     client.forget_instance(port);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_instance(&self, port: Port) {
        self.shared.forget_instance(port.0);
    }

    /// Returns the instance of the service at this port with which this client stays, with all others at its address: that
    /// of the first server with one that got a call. `None` before that, and after [`Client::forget_instance`].
    pub fn instance_of(&self, port: Port) -> Option<u64> {
        self.shared.with(|calls, _| calls.endpoint.instance_of(port.0))
    }

    /// Returns the uid of the life of this client, which servers see.
    pub(crate) fn uid(&self) -> Uid {
        self.shared.with(|calls, _| calls.endpoint.uid())
    }

    /// Returns the counters of this address, of all clients and services that use it.
    pub fn counters(&self) -> CallCounters {
        self.shared.with(|calls, _| *calls.endpoint.counters())
    }

    /// Returns the address from which this client sends.
    pub fn address(&self) -> SocketAddr {
        self.shared.address()
    }
}

/// A call under way. Get its reply with [`Call::wait`] or by awaiting it. Dropping it cancels the call: a server that
/// has not begun with it does not begin.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct Call {
    shared: Arc<Shared<Calls>>,
    number: CallNumber,
    asked: bool,
}

impl Call {
    /// Returns the call's number among those of this client's life: a server sees the same number in all attempts at
    /// the call.
    pub fn number(&self) -> CallNumber {
        self.number
    }

    /// Returns the reply. Blocks until the outcome is known, at most until the call's deadline.
    pub fn wait(mut self) -> Result<Bytes, CallFailure> {
        let number = self.number;
        let known = self.shared.take(|_| None, |calls| outcome(calls, number));
        self.asked = true;
        known.unwrap_or(Err(CallFailure::Unknown))
    }

    /// Returns the outcome if it is known now, else the call.
    pub fn try_wait(mut self) -> Result<Result<Bytes, CallFailure>, Call> {
        let number = self.number;
        match self.shared.block(Some(Duration::ZERO), |calls, _| outcome(calls, number)) {
            Some(known) => {
                self.asked = true;
                Ok(known)
            }
            None => Err(self),
        }
    }
}

fn outcome(calls: &mut Calls, number: CallNumber) -> Attempt<Result<Bytes, CallFailure>, CallInterest> {
    match calls.outcome(number) {
        Some(outcome) => Attempt::Taken(outcome.map_err(CallFailure::from)),
        None => Attempt::Wait(CallInterest::Outcome(number)),
    }
}

impl Future for Call {
    type Output = Result<Bytes, CallFailure>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        // Not on a list: one task waits for an outcome, and dropping the call informs the engine.
        let listed = &mut Listed::default();
        let polled = self.shared.poll(context, listed, |calls, _| outcome(calls, number));
        self.asked |= polled.is_ready();
        polled
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.asked {
            self.shared.cancel(self.number);
        }
    }
}
