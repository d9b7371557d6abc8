//! Serving: services, requests, and the answers to a request.

use super::client::Client;
use super::error::{NotDrained, NotForwarded, ServiceError, Withdrawn};
use super::opening;
use super::port::{Port, PrivatePort};
use crate::engine::{Attempt, CallInterest, Calls, Listed, OfFork, Shared};
use crate::opening::Handle;
use crate::options::Options;
use bytes::Bytes;
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::rpc::{self, AnswerError, CallNumber, ForwardError, RequestId, Source, Wishes};
use unisono_core::{Member, Time, Uid};

pub use unisono_core::rpc::ServeOptions;

/// Refusal that a client gets if the application dropped its request without an answer.
const NO_ANSWER: &str = "the server gave no answer";
/// Refusal that a client gets if its answer was too large to send.
const TOO_LARGE: &str = "the answer is larger than a reply may be";

/// Maximum time after the last answer until living clients have acknowledged their replies.
const ARRIVAL_MAX: Duration = Duration::from_millis(500);

/// A handle on a service, which takes requests for one port. Clones are the same service. When the last one is
/// dropped, no more requests are taken; those that were taken may still be answered.
///
/// Several processes may serve one port; clients spread their calls over them.
///
/// ```
/// use unisono::Options;
/// use unisono::rpc::{Client, Port, PrivatePort, ServeOptions, Server};
/// # let name = &format!("server-docs-{}", std::process::id());
/// let server = Server::new(&PrivatePort::from_name(name), ServeOptions::default(), &Options::default())?;
/// let client = Client::new(&Options::default())?;
/// let call = client.start(server.port(), "hello", std::time::Duration::from_secs(5))?;
/// let request = server.get_request()?;
/// assert_eq!(request.payload(), "hello");
/// request.reply("hello yourself")?;
/// assert_eq!(call.wait()?, "hello yourself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Server {
    owner: Arc<Owner>,
}

/// Withdraws the service when the last handle is dropped.
#[derive(Debug)]
struct Owner(Arc<Service>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.shared.withdraw(self.0.port.0);
    }
}

/// A service, as long as a handle or a request refers to it.
#[derive(Debug)]
struct Service {
    shared: Shared<Calls>,
    port: Port,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.end_service(self.port.0);
    }
}

impl Server {
    /// Serves a port at the address that these options say.
    pub fn new(port: &PrivatePort, serve: ServeOptions, options: &Options) -> Result<Server, ServiceError> {
        Server::begin(opening::for_service(options)?, port, serve)
    }

    /// Serves a port at the address of a member of a group, with the member's options. So the other members know
    /// where to [forward](Request::forward) a request. The member's handle is a [`Group`](crate::Group) or an
    /// [`AsyncGroup`](crate::AsyncGroup).
    ///
    /// ```no_run
    /// use unisono::rpc::{PrivatePort, ServeOptions, Server};
    /// use unisono::{AsyncGroup, GroupConfig, Options};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let (config, options) = (GroupConfig::default(), Options::default());
    /// let group = AsyncGroup::join_or_create("archive", config, "", &options).await?;
    /// let port = PrivatePort::from_name("archive");
    /// let server = Server::beside(&group, &port, ServeOptions::default())?;
    /// loop {
    ///     let request = server.next_request().await?;
    ///     let seqno = group.send(request.payload().clone()).await?;
    ///     request.reply(seqno.to_string())?;
    /// }
    /// # #[allow(unreachable_code)]
    /// # Ok(()) }
    /// ```
    pub fn beside(
        member: &impl Handle,
        port: &PrivatePort,
        serve: ServeOptions,
    ) -> Result<Server, ServiceError> {
        Server::begin(opening::beside(member)?, port, serve)
    }

    fn begin(shared: Shared<Calls>, port: &PrivatePort, serve: ServeOptions) -> Result<Server, ServiceError> {
        let port = Port(shared.begin_service(port.for_core(), serve)?);
        Ok(Server { owner: Arc::new(Owner(Arc::new(Service { shared, port }))) })
    }

    fn service(&self) -> &Arc<Service> {
        &self.owner.0
    }

    /// Returns the port to which clients send.
    pub fn port(&self) -> Port {
        self.service().port
    }

    /// Returns the address of the service.
    pub fn address(&self) -> SocketAddr {
        self.service().shared.address()
    }

    /// Returns a client at the same address.
    pub fn client(&self) -> Client {
        Client::at(self.service().shared.another())
    }

    /// Returns the next request; blocks until there is one. If several threads ask, each request goes to one of them.
    pub fn get_request(&self) -> Result<Request, Withdrawn> {
        self.take(None).unwrap_or(Err(Withdrawn))
    }

    /// Returns the next request, or `None` if there is none within `timeout`.
    pub fn get_request_timeout(&self, timeout: Duration) -> Result<Option<Request>, Withdrawn> {
        self.take(Some(timeout)).transpose()
    }

    /// Like [`Server::get_request_timeout`], or without a limit, for a thread whose requests are less urgent than what other
    /// threads of this process wait for at this address. Such a thread does not receive for the others, which would have to be
    /// woken for each datagram; its own requests may come some milliseconds later.
    pub fn get_request_aside(&self, timeout: Option<Duration>) -> Result<Option<Request>, Withdrawn> {
        let service = self.service();
        let taken = service.shared.block_aside(timeout, |calls, now| next(calls, now, service.port));
        taken.map(|taken| taken.map(|asked| Request::new(asked, service))).transpose()
    }

    /// Takes no more requests, and does not wait for those that were taken.
    pub(crate) fn withdraw(&self) {
        self.service().shared.withdraw(self.service().port.0);
    }

    /// Returns the requests that wait, at most `max`; blocks until there is one.
    pub(crate) fn get_requests(&self, max: usize) -> Result<Vec<Request>, Withdrawn> {
        let service = self.service();
        let port = service.port.0;
        let several = |calls: &mut Calls, now| {
            if calls.is_withdrawn(port) {
                return Attempt::Done(Err(Withdrawn));
            }
            let next = || calls.endpoint.poll_request_for(now, port);
            let all: Vec<rpc::Request> = std::iter::from_fn(next).take(max).collect();
            if all.is_empty() { Attempt::Wait(CallInterest::Request(port)) } else { Attempt::Taken(Ok(all)) }
        };
        let taken = service.shared.block(None, several).unwrap_or(Err(Withdrawn));
        taken.map(|all| all.into_iter().map(|asked| Request::new(asked, service)).collect())
    }

    /// Takes the next request, if there is one.
    pub(crate) fn try_next(&self, calls: &mut Calls, now: Time) -> Option<Request> {
        let service = self.service();
        if calls.is_withdrawn(service.port.0) {
            return None;
        }
        let asked = calls.endpoint.poll_request_for(now, service.port.0);
        asked.map(|asked| Request::new(asked, service))
    }

    /// Returns the endpoint that takes the requests.
    pub(crate) fn shared(&self) -> &Shared<Calls> {
        &self.service().shared
    }

    /// Takes what clients have said of replies: each needs none of its calls with lower numbers any more.
    pub(crate) fn finished(&self) -> Vec<(Uid, CallNumber)> {
        let service = self.service();
        let next = |calls: &mut Calls| calls.endpoint.poll_finished(service.port.0);
        service.shared.with(|calls, _| std::iter::from_fn(|| next(calls)).collect())
    }

    fn take(&self, timeout: Option<Duration>) -> Option<Result<Request, Withdrawn>> {
        let service = self.service();
        let taken = service.shared.block(timeout, |calls, now| next(calls, now, service.port));
        taken.map(|taken| taken.map(|asked| Request::new(asked, service)))
    }

    /// Returns the next request, for asynchronous programs. The future may be dropped at any time: no request is
    /// lost.
    pub async fn next_request(&self) -> Result<Request, Withdrawn> {
        let mut listed = Listed::default();
        poll_fn(|context| self.poll_request(context, &mut listed)).await
    }

    fn poll_request(
        &self,
        context: &mut Context<'_>,
        listed: &mut Listed,
    ) -> Poll<Result<Request, Withdrawn>> {
        let service = self.service();
        let polled = service.shared.poll(context, listed, |calls, now| next(calls, now, service.port));
        polled.map(|taken| taken.map(|asked| Request::new(asked, service)))
    }

    /// Returns the requests as a stream, which ends when the service is withdrawn.
    pub fn requests(&self) -> Requests {
        Requests { server: self.clone(), listed: Listed::default() }
    }

    /// Answers requests with `handler`, in `threads` threads, the calling thread included. Returns when the service
    /// is [drained](Server::drain), by another thread or by the handler itself.
    ///
    /// A handler may call other services and wait for them; each such wait occupies a thread. If a handler panics,
    /// its client is refused, and this panics once the other threads are done.
    pub fn serve(&self, threads: usize, handler: impl Fn(&Request) -> Answer + Sync) {
        let work = || {
            while let Ok(request) = self.get_request() {
                let answer = handler(&request);
                request.answer(answer);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    /// Withdraws the service: it takes no more requests, and clients whose requests still wait go elsewhere. Then
    /// blocks until all requests that were taken are answered, and up to half a second longer until the replies are
    /// known to have arrived; at most `timeout` in all.
    pub fn drain(&self, timeout: Duration) -> Result<(), NotDrained> {
        let service = self.service();
        service.shared.withdraw(service.port.0);
        let begun = Instant::now();
        let answered = |calls: &mut Calls, _| match calls.endpoint.requests_in_hand(service.port.0) {
            0 => Attempt::Done(Ok(())),
            _ => Attempt::Wait(CallInterest::Answers),
        };
        service.shared.block(Some(timeout), answered).unwrap_or(Err(NotDrained))?;
        // A client that has died acknowledges no reply.
        let patience = timeout.saturating_sub(begun.elapsed()).min(ARRIVAL_MAX);
        let received = |calls: &mut Calls, _| match calls.endpoint.replies_kept_since(Time::ZERO) {
            0 => Attempt::Done(()),
            _ => Attempt::Wait(CallInterest::Answers),
        };
        service.shared.block(Some(patience), received);
        Ok(())
    }
}

fn next(calls: &mut Calls, now: Time, port: Port) -> Attempt<Result<rpc::Request, Withdrawn>, CallInterest> {
    if calls.is_withdrawn(port.0) {
        return Attempt::Done(Err(Withdrawn));
    }
    match calls.endpoint.poll_request_for(now, port.0) {
        Some(request) => Attempt::Taken(Ok(request)),
        None => Attempt::Wait(CallInterest::Request(port.0)),
    }
}

/// The requests to a service as a stream, from [`Server::requests`].
#[derive(Debug)]
pub struct Requests {
    server: Server,
    listed: Listed,
}

impl Stream for Requests {
    type Item = Request;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Request>> {
        let Requests { server, listed } = &mut *self;
        server.poll_request(context, listed).map(Result::ok)
    }
}

/// What a [handler](Server::serve) does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Answer {
    /// Replies with these bytes.
    Reply(Bytes),
    /// The same, to a request that showed no right to what it asks for. Requests of addresses that got no other reply lately wait
    /// behind the others.
    Deny(Bytes),
    /// Refuses the request, for this reason.
    Refuse(Bytes),
    /// Passes the request on to the server of the port at this address.
    Forward(SocketAddr),
    /// Lets the rest of a large request come whose beginning this is ([`Request::whole_bytes`]). As the answer to a whole
    /// request it is a refusal.
    GoOn {
        /// The beginning showed a right, as a request does that gets a reply and is not denied. Then the request takes room for the
        /// whole at once, and otherwise as its parts come.
        shows_right: bool,
    },
}

impl<T: Into<Bytes>> From<T> for Answer {
    fn from(reply: T) -> Answer {
        Answer::Reply(reply.into())
    }
}

/// The server to which a request is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(SocketAddr);

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target(address)
    }
}

impl From<&Member> for Target {
    fn from(member: &Member) -> Target {
        Target(member.address)
    }
}

/// A client's request. Answer it once: reply, refuse, or forward. A request that is dropped is refused.
#[must_use = "a request that is dropped is refused"]
pub struct Request {
    asked: rpc::Request,
    service: Arc<Service>,
    answered: bool,
}

impl Request {
    fn new(asked: rpc::Request, service: &Arc<Service>) -> Request {
        Request { asked, service: service.clone(), answered: false }
    }

    /// Returns the request as the core has it, with its deadline on another clock, whose present time is `now`.
    pub(crate) fn for_core(&self, now: Time) -> rpc::Request {
        let mut asked = self.asked.clone();
        asked.deadline = now + self.time_left();
        asked
    }

    /// Returns the address at which the request arrived.
    pub(crate) fn arrived_at(&self) -> SocketAddr {
        self.service.shared.address()
    }

    /// Returns the bytes of the request.
    pub fn payload(&self) -> &Bytes {
        &self.asked.payload
    }

    /// Returns the length of the whole request, if this is only its beginning ([`ServeOptions::looks_at_beginnings`]).
    /// Answer it to spare the client the rest, or say [`go_on`](Request::go_on).
    pub fn whole_bytes(&self) -> Option<usize> {
        self.asked.whole_bytes
    }

    /// Lets the rest of the request come, which is then a request of its own: as a reply, this says that it has shown a right. Refuses a request
    /// that is whole.
    pub fn go_on(self) {
        self.answer(Answer::GoOn { shows_right: true });
    }

    /// Returns the uid of the client: one life of one process.
    pub fn client(&self) -> Uid {
        self.asked.client
    }

    /// Returns the client's address, as shares count it.
    pub fn source(&self) -> Source {
        self.asked.source
    }

    /// Returns what the client asks beside the request, if anything. A replica heeds it; a service of another kind may.
    pub fn wishes(&self) -> Option<&Wishes> {
        self.asked.wishes.as_deref()
    }

    /// Returns the call's number among those of its client. Client and number name the call for ever, also when it is
    /// passed on.
    pub fn call(&self) -> CallNumber {
        self.asked.call
    }

    /// Returns a call number: the client knows the outcomes of all its calls with lower numbers, and repeats none of
    /// them.
    pub fn finished_below(&self) -> CallNumber {
        self.asked.finished_below
    }

    /// Returns how often the request was passed on.
    pub fn hops(&self) -> u8 {
        self.asked.hops
    }

    /// Returns the time for which the client still waits for the answer.
    pub fn time_left(&self) -> Duration {
        self.asked.deadline.since(self.service.shared.now())
    }

    /// Answers the request. A reply that is too large is refused instead.
    ///
    /// # Errors
    /// The client does not wait for the answer any longer, or the reply is too large.
    pub fn reply(mut self, reply: impl Into<Bytes>) -> Result<(), AnswerError> {
        let (id, reply) = (self.asked.id, reply.into());
        let replied = self.give(|calls, now| calls.endpoint.reply(now, id, reply));
        self.replied(replied)
    }

    /// Answers the request like [`reply`](Request::reply), and notes that it showed no right. Requests of its address wait behind those
    /// of addresses that this service has lately given another reply, and few of them are taken while those ask: so clients
    /// without rights, from many addresses, do not hold up the others.
    ///
    /// # Errors
    /// As for [`reply`](Request::reply).
    pub fn deny(mut self, reply: impl Into<Bytes>) -> Result<(), AnswerError> {
        let (id, reply) = (self.asked.id, reply.into());
        let replied = self.give(|calls, now| calls.endpoint.deny(now, id, reply));
        self.replied(replied)
    }

    fn replied(&mut self, replied: Result<(), AnswerError>) -> Result<(), AnswerError> {
        if let Err(AnswerError::TooLarge { .. }) = replied {
            self.turn_down(TOO_LARGE.into()).ok();
        }
        replied
    }

    /// Refuses the request for a reason: the client's call fails with [`Refused`](super::CallFailure::Refused).
    ///
    /// # Errors
    /// The client does not wait for the answer any longer, or the reason is too large.
    pub fn refuse(mut self, reason: impl Into<Bytes>) -> Result<(), AnswerError> {
        self.turn_down(reason.into())
    }

    fn turn_down(&mut self, reason: Bytes) -> Result<(), AnswerError> {
        let id = self.asked.id;
        self.give(|calls, now| calls.endpoint.refuse(now, id, reason))
    }

    /// Passes the request on to another server of the port: a member of the same group, or any other address at which
    /// the port is served. The client's library sends the call there, and the client's application does not notice.
    /// If the port is not served there, the library looks for another server.
    ///
    /// # Errors
    /// The request was passed on too often and comes back, to be answered here; or the client does not wait for an
    /// answer any longer.
    pub fn forward(mut self, to: impl Into<Target>) -> Result<(), NotForwarded> {
        let (id, Target(address)) = (self.asked.id, to.into());
        match self.give(|calls, _| calls.endpoint.forward(id, address)) {
            Ok(()) => Ok(()),
            Err(reason) => {
                self.answered = matches!(reason, ForwardError::Over);
                Err(NotForwarded { request: Box::new(self), reason })
            }
        }
    }

    /// Does what a handler decided.
    fn answer(self, answer: Answer) {
        answer_all(&mut [(self, answer)]);
    }

    /// Gives the core an answer, which may wait for more answers while other requests are ready.
    fn give<T, E: OfFork>(&mut self, answer: impl FnOnce(&mut Calls, Time) -> Result<T, E>) -> Result<T, E> {
        self.answered = true;
        let port = self.service.port.0;
        let (mut answer, mut given) = (Some(answer), None);
        self.service.shared.block(Some(Duration::ZERO), |calls, now| {
            given = answer.take().map(|answer| answer(calls, now));
            let returns_soon = calls.endpoint.requests_waiting(port) > 0;
            match calls.gathers(now, returns_soon) {
                true => Attempt::Kept(()),
                false => Attempt::Done(()),
            }
        });
        // `block` makes at least one attempt, except in a forked child.
        given.unwrap_or_else(|| Err(E::of_fork()))
    }
}

/// Does what was decided on requests. Answers of services at one address share datagrams.
pub(crate) fn answer_all(answers: &mut [(Request, Answer)]) {
    let unanswered = |(request, _): &&(Request, Answer)| !request.answered;
    while let Some(service) = answers.iter().find(unanswered).map(|(request, _)| request.service.clone()) {
        service.shared.block(Some(Duration::ZERO), |calls, now| {
            // The requests are dropped later: the last one of a service may end it, for which the engine is locked.
            for (request, answer) in answers.iter_mut() {
                if request.answered || !request.service.shared.is_same(&service.shared) {
                    continue;
                }
                request.answered = true;
                let answer = std::mem::replace(answer, Answer::Refuse(Bytes::new()));
                let is_beginning = request.asked.whole_bytes.is_some();
                settle(calls, now, (request.asked.id, is_beginning), answer);
            }
            let returns_soon = calls.endpoint.requests_waiting(service.port.0) > 0;
            match calls.gathers(now, returns_soon) {
                true => Attempt::Kept(()),
                false => Attempt::Done(()),
            }
        });
        // An engine that has ended takes no answers.
        let at_same = |request: &Request| request.service.shared.is_same(&service.shared);
        answers
            .iter_mut()
            .filter(|(request, _)| at_same(request))
            .for_each(|(request, _)| request.answered = true);
    }
}

/// Gives the core an answer. If it cannot be given, the request is refused with the reason, unless its client does not
/// wait any longer.
fn settle(calls: &mut Calls, now: Time, (id, is_beginning): (RequestId, bool), answer: Answer) {
    let reason = match answer {
        Answer::Reply(reply) => match calls.endpoint.reply(now, id, reply) {
            Err(AnswerError::TooLarge { .. }) => Bytes::from_static(TOO_LARGE.as_bytes()),
            _ => return,
        },
        Answer::Deny(reply) => match calls.endpoint.deny(now, id, reply) {
            Err(AnswerError::TooLarge { .. }) => Bytes::from_static(TOO_LARGE.as_bytes()),
            _ => return,
        },
        Answer::Refuse(reason) => reason,
        Answer::GoOn { shows_right } if is_beginning => return calls.endpoint.go_on(now, id, shows_right),
        Answer::GoOn { .. } => Bytes::from_static(NO_ANSWER.as_bytes()),
        Answer::Forward(to) => match calls.endpoint.forward(id, to) {
            Ok(()) | Err(ForwardError::Over) => return,
            Err(reason) => reason.to_string().into(),
        },
    };
    let _ = calls.endpoint.refuse(now, id, reason);
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            // If this fails, the client does not wait any longer.
            let _ = self.turn_down(NO_ANSWER.into());
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Request({} bytes, call {} of {}, {} hops)",
            self.asked.payload.len(),
            self.asked.call,
            self.asked.client,
            self.asked.hops
        )
    }
}
