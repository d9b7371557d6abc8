//! A member's handle for asynchronous programs, on any executor.

use crate::commands::{self, Message};
use crate::engine::{Listed, Shared};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::opening::{Lives, Opening, Owner};
use crate::options::Options;
use crate::seeds::Seeds;
use crate::ticket::{Batch, Ticket};
use bytes::Bytes;
use futures_core::Stream;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use unisono_core::look::{Counters, Report};
use unisono_core::{
    EntryMode, Event, ForceError, Formation, GroupConfig, HandOverError, HeldUp, Info, Member, ResetError,
    SendError, Seqno, Standing, Uid,
};

/// A member of a group, as [`Group`](crate::Group), whose waiting calls are futures. Any of them may be
/// dropped at any time: no event is lost, and a message is either under way or was never taken. When the last
/// clone is dropped the member leaves in the background.
///
/// ```no_run
/// use unisono::{AsyncGroup, Event, GroupConfig, Options};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let (config, options) = (GroupConfig::default(), Options::default());
/// let group = AsyncGroup::join_or_create("orders", config, "hello", &options).await?;
/// let ticket = group.submit("two of these").await?;
/// if let Event::Message { seqno, payload, .. } = group.receive().await? {
///     println!("{seqno}: {payload:?}");
/// }
/// println!("mine is at {}", ticket.await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncGroup {
    owner: Arc<Owner>,
}

impl AsyncGroup {
    /// As [`Group::create`](crate::Group::create).
    pub async fn create(name: &str, config: GroupConfig, options: &Options) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::Found(config), Bytes::new(), options).await
    }

    /// As [`Group::join`](crate::Group::join).
    pub async fn join(
        name: &str,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::Join, hello.into(), options).await
    }

    /// As [`Group::join_or_create`](crate::Group::join_or_create).
    pub async fn join_or_create(
        name: &str,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::JoinOrFound(config), hello.into(), options).await
    }

    /// As [`Group::form`](crate::Group::form).
    pub async fn form(
        name: &str,
        formation: Formation,
        config: GroupConfig,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::Form(formation, config), Bytes::new(), options).await
    }

    async fn open(
        name: &str,
        entry: EntryMode,
        hello: Bytes,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        let mut lives = Lives::default();
        loop {
            let seeds = Seeds::new(options)?;
            let known = resolve(&seeds).await;
            let opening = Opening { name, entry: entry.clone(), hello: hello.clone(), options };
            let shared = opening.begin(seeds, known)?;
            let owner = Owner { shared: Arc::new(shared), options: options.clone(), waits: false };
            let group = AsyncGroup { owner: Arc::new(owner) };
            let mut listed = Listed::default();
            let entered = poll_fn(|context| {
                group.shared().poll(context, &mut listed, |member, _| commands::enter(member))
            })
            .await;
            if let Some(concluded) = lives.conclude(entered) {
                return concluded.map(|()| group);
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// As [`Group::send`](crate::Group::send). If the future is dropped the message may be under way all the
    /// same.
    pub async fn send(&self, payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), resilience: None }).await
    }

    /// As [`Group::send_resilient`](crate::Group::send_resilient).
    pub async fn send_resilient(
        &self,
        payload: impl Into<Bytes>,
        resilience: u8,
    ) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), resilience: Some(resilience) }).await
    }

    async fn send_message(&self, message: Message) -> Result<Seqno, SendFailure> {
        self.submit_message(&message).await?.await
    }

    /// As [`Group::submit`](crate::Group::submit).
    pub async fn submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.submit_message(&Message { payload: payload.into(), resilience: None }).await
    }

    async fn submit_message(&self, message: &Message) -> Result<Ticket, SendError> {
        let mut listed = Listed::default();
        let submitted = poll_fn(|context| {
            self.shared().poll(context, &mut listed, |member, now| {
                message.submit(member, now, &mut SendError::WindowFull)
            })
        })
        .await;
        Ok(Ticket::new(self.shared().clone(), submitted?))
    }

    /// As [`Group::submit_all`](crate::Group::submit_all). If the future is dropped, those messages that the
    /// window had room for are under way.
    pub async fn submit_all<I>(&self, payloads: I) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        let mut payloads = payloads.into_iter().map(Into::into);
        let (mut batch, mut listed) = (Batch::new(), Listed::default());
        loop {
            let mut waiting = commands::handful(&mut payloads);
            if waiting.is_empty() {
                return Ok(batch);
            }
            let submitted = poll_fn(|context| {
                self.shared().poll(context, &mut listed, |member, now| {
                    let given = |number| batch.expect(self.shared(), number);
                    commands::submit_all(member, now, &mut waiting, given)
                })
            })
            .await;
            if let Err(error) = submitted {
                return Err((batch, error));
            }
        }
    }

    /// The next event. Several tasks may receive: each event goes to one of them.
    pub async fn receive(&self) -> Result<Event, Ended> {
        let mut listed = Listed::default();
        poll_fn(|context| self.poll_receive(context, &mut listed)).await
    }

    fn poll_receive(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Result<Event, Ended>> {
        self.shared().poll(context, listed, |member, _| commands::receive(member))
    }

    /// The events as a stream, which ends after the last one.
    pub fn events(&self) -> Events {
        Events { group: self.clone(), listed: Listed::default() }
    }

    /// As [`Group::ignore_events`](crate::Group::ignore_events).
    pub fn ignore_events(&self) {
        self.shared().with(|member, _| member.ignoring = true);
    }

    /// As [`Group::reset`](crate::Group::reset).
    pub fn reset(&self, min_members: usize) -> Result<(), ResetError> {
        self.shared().with(|member, now| member.group.reset(now, min_members))
    }

    /// As [`Group::force`](crate::Group::force).
    pub fn force(&self, without: &[Uid]) -> Result<(), ForceError> {
        self.shared().with(|member, now| member.group.force(now, without))
    }

    /// As [`Group::leave`](crate::Group::leave).
    pub async fn leave(&self, goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        let (goodbye, mut begun, mut listed) = (goodbye.into(), false, Listed::default());
        poll_fn(|context| {
            self.shared()
                .poll(context, &mut listed, |member, now| commands::leave(member, now, &goodbye, &mut begun))
        })
        .await
    }

    /// As [`Group::hand_over`](crate::Group::hand_over).
    pub fn hand_over(&self, to: Uid) -> Result<(), HandOverError> {
        self.shared().with(|member, now| member.group.hand_over(now, to))
    }

    /// As [`Group::info`](crate::Group::info).
    pub fn info(&self) -> Info {
        self.shared().with(|member, _| member.group.info())
    }

    /// As [`Group::standing`](crate::Group::standing).
    pub fn standing(&self) -> Standing {
        self.shared().with(|member, _| member.standing())
    }

    /// As [`Group::standing_after`](crate::Group::standing_after), without a timeout.
    pub async fn standing_after(&self, known: Standing) -> Standing {
        let mut listed = Listed::default();
        poll_fn(|context| {
            self.shared().poll(context, &mut listed, |member, _| commands::standing_after(member, known))
        })
        .await
    }

    /// As [`Group::held_up_by`](crate::Group::held_up_by).
    pub fn held_up_by(&self) -> Option<HeldUp> {
        self.shared().with(|member, now| member.group.held_up_by(now))
    }

    /// As [`Group::members`](crate::Group::members).
    pub fn members(&self) -> Vec<Member> {
        self.info().members
    }

    /// As [`Group::report`](crate::Group::report).
    pub fn report(&self) -> Report {
        self.shared().with(|member, now| member.group.report(now))
    }

    /// As [`Group::counters`](crate::Group::counters).
    pub fn counters(&self) -> Counters {
        self.shared().with(|member, _| member.group.counters())
    }
}

/// See [`AsyncGroup::events`].
#[derive(Debug)]
pub struct Events {
    group: AsyncGroup,
    listed: Listed,
}

impl Stream for Events {
    type Item = Event;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Events { group, listed } = &mut *self;
        group.poll_receive(context, listed).map(Result::ok)
    }
}

/// [`Seeds::resolve`] by a thread of its own if that can take long.
async fn resolve(seeds: &Seeds) -> Result<Vec<SocketAddr>, OpenError> {
    if !seeds.has_names() {
        return seeds.resolve();
    }
    #[derive(Default)]
    struct Exchange {
        result: Option<Result<Vec<SocketAddr>, OpenError>>,
        waker: Option<Waker>,
    }
    let exchange = Arc::new(Mutex::new(Exchange::default()));
    let (theirs, seeds) = (exchange.clone(), seeds.clone());
    let work = move || {
        let result = seeds.resolve();
        let mut exchange = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.result = Some(result);
        exchange.waker.take()
    };
    thread::Builder::new()
        .name("unisono-names".into())
        .spawn(move || work().map(Waker::wake))
        .map_err(|cause| OpenError::Socket { what: "start a thread", cause })?;
    poll_fn(|context| {
        let mut exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
        match exchange.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                exchange.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn nothing_is_kept_of_messages_whose_future_was_dropped() {
        const HISTORY: u32 = 16;
        let name = format!("dropped-batch-{}", std::process::id());
        let config = GroupConfig { history_messages: HISTORY, window: 4, ..GroupConfig::default() };
        let Poll::Ready(Ok(group)) = poll_once(AsyncGroup::create(&name, config, &Options::default())) else {
            panic!("who founds a group waits for nobody");
        };
        // As long as nobody receives, no more get places than the history holds.
        assert!(poll_once(group.submit_all((0..10 * HISTORY).map(|_| "more"))).is_pending());
        let mut messages = 0;
        while let Poll::Ready(Ok(event)) = poll_once(group.receive()) {
            messages += usize::from(matches!(event, Event::Message { .. }));
        }
        assert!(messages >= HISTORY as usize);
        assert!(group.shared().with(|member, _| member.outcomes.is_empty()));
    }
}
