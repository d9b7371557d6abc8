//! A handle on a member of a group for asynchronous programs, on any executor.

use crate::commands::{self, Message};
use crate::confirmation::Confirmation;
use crate::engine::{Listed, Shared};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::open;
use crate::opening::sealed::Owned;
use crate::opening::{Handle, Lives, Opening, Owner, find_ways, seeds_timeout};
use crate::options::Options;
use crate::rpc::ServiceError;
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
use std::time::Duration;
use unisono_core::look::{Counters, Report};
use unisono_core::{
    ChangeOrderError, ConfirmError, EntryMode, Event, ForceError, Formation, GroupConfig, HandOverError,
    HeldUp, Info, Member, Order, Quality, ResetError, SendError, Seqno, Standing, Uid,
};

/// A handle on one member of a group, as [`Group`](crate::Group), whose waiting calls are futures. A future may be
/// dropped at any time: no event is lost, and a message is either under way or was not taken. When the last clone is
/// dropped, the member leaves in the background.
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
    /// Founds a group, as [`Group::create`](crate::Group::create).
    pub async fn create(name: &str, config: GroupConfig, options: &Options) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::Found(config), Bytes::new(), options).await
    }

    /// Joins a group, as [`Group::join`](crate::Group::join).
    pub async fn join(
        name: &str,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::Join, hello.into(), options).await
    }

    /// Joins a group, or founds a second one if it hears no answer of a group that exists: for groups without state only.
    /// As [`Group::join_or_create`](crate::Group::join_or_create).
    pub async fn join_or_create(
        name: &str,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::JoinOrFound(config), hello.into(), options).await
    }

    /// Joins a group, or forms it with others if no member answers: the safe way in for members with state. As
    /// [`Group::join_or_form`](crate::Group::join_or_form).
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::{AsyncGroup, Formation, GroupConfig, Options};
    ///
    /// # async fn enter() -> Result<(), Box<dyn std::error::Error>> {
    /// let participants = vec!["ann".parse()?, "bob".parse()?, "cleo".parse()?];
    /// let formation = Formation { participants, at_least: 2, within: Duration::from_secs(30) };
    /// let options = Options { name: "ann".parse()?, ..Options::default() };
    /// let config = GroupConfig { members_min: 2, ..GroupConfig::default() };
    /// let group = AsyncGroup::join_or_form("orders", formation, config, "hello", &options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn join_or_form(
        name: &str,
        formation: Formation,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<AsyncGroup, OpenError> {
        AsyncGroup::open(name, EntryMode::JoinOrForm(formation, config), hello.into(), options).await
    }

    /// Forms a group, as [`Group::form`](crate::Group::form).
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
        let mut lives = Lives::new(&entry);
        loop {
            let seeds = Seeds::new(options)?;
            let known = ways(name, &seeds, seeds_timeout(&entry, options), options).await?;
            let opening = Opening { name, hello: hello.clone(), options };
            let shared = opening.begin(&mut lives, &entry, seeds, known)?;
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

    /// Sends a message and returns its seqno, as [`Group::send`](crate::Group::send). If the future is dropped, the
    /// message may be under way all the same.
    pub async fn send(&self, payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), quality: Quality::ORDERED }).await
    }

    /// Sends a message that survives more crashes, as [`Group::send_resilient`](crate::Group::send_resilient).
    pub async fn send_resilient(
        &self,
        payload: impl Into<Bytes>,
        resilience: u8,
    ) -> Result<Seqno, SendFailure> {
        self.send_with(payload, Quality::resilient(resilience)).await
    }

    /// Sends a message of this quality, as [`Group::send_with`](crate::Group::send_with).
    pub async fn send_with(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), quality }).await
    }

    async fn send_message(&self, message: Message) -> Result<Seqno, SendFailure> {
        self.submit_message(&message).await?.await
    }

    /// Sends a message without waiting for its seqno, as [`Group::submit`](crate::Group::submit).
    pub async fn submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.submit_with(payload, Quality::ORDERED).await
    }

    /// Sends a message of this quality without waiting for its seqno, as
    /// [`Group::submit_with`](crate::Group::submit_with).
    pub async fn submit_with(
        &self,
        payload: impl Into<Bytes>,
        quality: Quality,
    ) -> Result<Ticket, SendError> {
        self.submit_message(&Message { payload: payload.into(), quality }).await
    }

    /// Sends like [`AsyncGroup::submit`], but never waits, as [`Group::try_submit`](crate::Group::try_submit): where
    /// `submit` would wait, this fails and names the obstacle.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use unisono::{AsyncGroup, Event, GroupConfig, Options, SendError};
    /// # async fn example(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = GroupConfig { window: 1, ..GroupConfig::default() };
    /// let group = AsyncGroup::create(name, config, &Options::default()).await?;
    /// let mut messages = ["first", "second"].into_iter().peekable();
    /// while let Some(message) = messages.peek() {
    ///     match group.try_submit(*message) {
    ///         Ok(_ticket) => drop(messages.next()),
    ///         // Events make room in the window.
    ///         Err(SendError::WindowFull | SendError::NotReceiving) => drop(group.receive().await?),
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// }
    /// # Ok(()) }
    /// # let name = &format!("async-try-docs-{}", std::process::id());
    /// # let context = &mut Context::from_waker(Waker::noop());
    /// # assert!(matches!(pin!(example(name)).poll(context), Poll::Ready(Ok(()))));
    /// ```
    pub fn try_submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.try_submit_with(payload, Quality::ORDERED)
    }

    /// Sends like [`AsyncGroup::try_submit`] a message of this quality, as
    /// [`Group::try_submit_with`](crate::Group::try_submit_with).
    pub fn try_submit_with(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<Ticket, SendError> {
        let message = Message { payload: payload.into(), quality };
        let mut obstacle = SendError::WindowFull;
        let submitted = self
            .shared()
            .block(Some(Duration::ZERO), |member, now| message.submit(member, now, &mut obstacle));
        Ok(Ticket::new(self.shared().clone(), submitted.unwrap_or(Err(obstacle))?))
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

    /// Sends many messages, as [`Group::submit_all`](crate::Group::submit_all). If the future is dropped, the
    /// messages that fit into the window are under way.
    pub async fn submit_all<I>(&self, payloads: I) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        self.submit_all_with(payloads, Quality::ORDERED).await
    }

    /// Sends like [`AsyncGroup::submit_all`] messages of this quality, as
    /// [`Group::send_with`](crate::Group::send_with).
    pub async fn submit_all_with<I>(&self, payloads: I, quality: Quality) -> Result<Batch, (Batch, SendError)>
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
                    commands::submit_all(member, now, (&mut waiting, quality), given)
                })
            })
            .await;
            if let Err(error) = submitted {
                return Err((batch, error));
            }
        }
    }

    /// Returns the next event. If several tasks receive, each event goes to one of them.
    pub async fn receive(&self) -> Result<Event, Ended> {
        let mut listed = Listed::default();
        poll_fn(|context| self.poll_receive(context, &mut listed)).await
    }

    /// Returns the next event, if there is one now, as [`Group::try_receive`](crate::Group::try_receive).
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use unisono::{AsyncGroup, Event, GroupConfig, Options};
    /// # async fn example(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let group = AsyncGroup::create(name, GroupConfig::default(), &Options::default()).await?;
    /// assert!(matches!(group.try_receive()?, Some(Event::Entered { .. })));
    /// assert_eq!(group.try_receive()?, None);
    /// # Ok(()) }
    /// # let name = &format!("async-receive-docs-{}", std::process::id());
    /// # let context = &mut Context::from_waker(Waker::noop());
    /// # assert!(matches!(pin!(example(name)).poll(context), Poll::Ready(Ok(()))));
    /// ```
    pub fn try_receive(&self) -> Result<Option<Event>, Ended> {
        self.shared().block(Some(Duration::ZERO), |member, _| commands::receive(member)).transpose()
    }

    /// Appends events to `events` and returns their number, as [`Group::receive_many`](crate::Group::receive_many):
    /// waits until there is one, then takes all that are ready, up to 1,024. If the future is dropped, it has taken
    /// none.
    ///
    /// ```no_run
    /// use unisono::{AsyncGroup, Event, GroupConfig, Options};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let group = AsyncGroup::create("orders", GroupConfig::default(), &Options::default()).await?;
    /// let mut events = Vec::new();
    /// loop {
    ///     let count = group.receive_many(&mut events).await?;
    ///     println!("{count} events");
    ///     for event in events.drain(..) {
    ///         println!("{event:?}");
    ///     }
    /// }
    /// # #[allow(unreachable_code)]
    /// # Ok(()) }
    /// ```
    pub async fn receive_many(&self, events: &mut Vec<Event>) -> Result<usize, Ended> {
        let mut listed = Listed::default();
        poll_fn(|context| {
            self.shared().poll(context, &mut listed, |member, _| commands::receive_many(member, events))
        })
        .await
    }

    fn poll_receive(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Result<Event, Ended>> {
        self.shared().poll(context, listed, |member, _| commands::receive(member))
    }

    /// Returns the events as a stream, which ends after the last one.
    pub fn events(&self) -> Events {
        Events { group: self.clone(), listed: Listed::default() }
    }

    /// Drops all events from now on, as [`Group::ignore_events`](crate::Group::ignore_events).
    pub fn ignore_events(&self) {
        self.shared().with(|member, _| member.ignoring = true);
    }

    /// Confirms that the group did not go on without this member, as [`Group::confirm`](crate::Group::confirm).
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use unisono::{AsyncGroup, GroupConfig, Options};
    /// # async fn example(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let group = AsyncGroup::create(name, GroupConfig::default(), &Options::default()).await?;
    /// assert_eq!(group.confirm().await?, 0);
    /// # Ok(()) }
    /// # let name = &format!("async-confirm-docs-{}", std::process::id());
    /// # let context = &mut Context::from_waker(Waker::noop());
    /// # assert!(matches!(pin!(example(name)).poll(context), Poll::Ready(Ok(()))));
    /// ```
    ///
    /// # Errors
    /// [`ConfirmError::Left`] if this member leaves, ends or is excluded first.
    pub async fn confirm(&self) -> Result<Seqno, ConfirmError> {
        self.begin_confirm()?.await
    }

    /// Begins a confirmation without waiting for its result, as
    /// [`Group::begin_confirm`](crate::Group::begin_confirm).
    ///
    /// # Errors
    /// This process is not a member, or no longer one.
    pub fn begin_confirm(&self) -> Result<Confirmation, ConfirmError> {
        let number = self.shared().command(commands::begin_confirm)?;
        Ok(Confirmation::new(self.shared().clone(), number))
    }

    /// Ends this member's life at once, as [`Group::end`](crate::Group::end).
    pub fn end(&self) {
        self.shared().end_life();
    }

    /// Returns what this member held besides, as [`Group::undelivered`](crate::Group::undelivered).
    pub fn undelivered(&self) -> Option<Event> {
        self.shared().with(|member, _| member.undelivered())
    }

    /// Begins a reset, as [`Group::reset`](crate::Group::reset).
    pub fn reset(&self, min_members: usize) -> Result<(), ResetError> {
        self.shared().command(|member, now| member.group.reset(now, min_members))
    }

    /// Like [`Group::force`](crate::Group::force).
    pub fn force(&self, without: &[Uid]) -> Result<(), ForceError> {
        self.shared().command(|member, now| member.group.force(now, without))
    }

    /// Leaves the group, as [`Group::leave`](crate::Group::leave).
    pub async fn leave(&self, goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        let (goodbye, mut begun, mut listed) = (goodbye.into(), false, Listed::default());
        poll_fn(|context| {
            self.shared()
                .poll(context, &mut listed, |member, now| commands::leave(member, now, &goodbye, &mut begun))
        })
        .await
    }

    /// Gives the role of sequencer to another member, as [`Group::hand_over`](crate::Group::hand_over).
    pub fn hand_over(&self, to: Uid) -> Result<(), HandOverError> {
        self.shared().command(|member, now| member.group.hand_over(now, to))
    }

    /// Asks for another order, as [`Group::change_order`](crate::Group::change_order).
    pub fn change_order(&self, order: Order) -> Result<(), ChangeOrderError> {
        self.shared().command(|member, now| member.group.change_order(now, order))
    }

    /// Takes messages of processes that are no members from now on, as [`Group::open_to_outside`](crate::Group::open_to_outside)
    /// says.
    ///
    /// # Errors
    /// The member has no address at which clients could reach it.
    pub fn open_to_outside(&self) -> Result<(), ServiceError> {
        open::open(self)
    }

    /// Returns the state of this member and its group, as [`Group::info`](crate::Group::info).
    pub fn info(&self) -> Info {
        self.shared().with(|member, _| member.group.info())
    }

    /// Like [`Group::standing`](crate::Group::standing).
    pub fn standing(&self) -> Standing {
        self.shared().command(|member, _| member.standing())
    }

    /// Like [`Group::standing_after`](crate::Group::standing_after), without a timeout.
    pub async fn standing_after(&self, known: Standing) -> Standing {
        let mut listed = Listed::default();
        poll_fn(|context| {
            self.shared().poll(context, &mut listed, |member, _| commands::standing_after(member, known))
        })
        .await
    }

    /// Like [`Group::held_up_by`](crate::Group::held_up_by).
    pub fn held_up_by(&self) -> Option<HeldUp> {
        self.shared().with(|member, now| member.group.held_up_by(now))
    }

    /// Returns the present members, as [`Group::members`](crate::Group::members).
    pub fn members(&self) -> Vec<Member> {
        self.info().members
    }

    /// Returns what this member knows of the group, as [`Group::report`](crate::Group::report).
    pub fn report(&self) -> Report {
        self.shared().with(|member, now| member.group.report(now))
    }

    /// Returns this member's counters, as [`Group::counters`](crate::Group::counters).
    pub fn counters(&self) -> Counters {
        self.shared().with(|member, _| member.group.counters())
    }
}

impl Handle for AsyncGroup {}

impl Owned for AsyncGroup {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// The events of a member as a stream, from [`AsyncGroup::events`].
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

/// Calls [`find_ways`], in a thread of its own if that can take long.
async fn ways(
    name: &str,
    seeds: &Seeds,
    seeds_timeout: Duration,
    options: &Options,
) -> Result<Result<Vec<SocketAddr>, OpenError>, OpenError> {
    if !seeds.has_names() && !options.lacks_address() {
        return Ok(seeds.resolve());
    }
    #[derive(Default)]
    struct Exchange {
        result: Option<Result<Result<Vec<SocketAddr>, OpenError>, OpenError>>,
        waker: Option<Waker>,
    }
    let exchange = Arc::new(Mutex::new(Exchange::default()));
    let (theirs, seeds, name, options) = (exchange.clone(), seeds.clone(), name.to_owned(), options.clone());
    let work = move || {
        let result = find_ways(&name, &seeds, seeds_timeout, &options, options.seeds_timeout);
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
            panic!("founding a group has to wait");
        };
        // While no task receives, no more messages get seqnos than the history holds.
        assert!(poll_once(group.submit_all((0..10 * HISTORY).map(|_| "more"))).is_pending());
        let mut messages = 0;
        while let Poll::Ready(Ok(event)) = poll_once(group.receive()) {
            messages += usize::from(matches!(event, Event::Message { .. }));
        }
        assert!(messages >= HISTORY as usize);
        assert!(group.shared().with(|member, _| member.outcomes.is_empty()));
    }
}
