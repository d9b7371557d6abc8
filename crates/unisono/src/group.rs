//! A handle on a member of a group, for threads that may block.

use crate::commands::{self, Message};
use crate::confirmation::Confirmation;
use crate::engine::{Attempt, Membership, Shared};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::open;
use crate::opening::sealed::Owned;
use crate::opening::{Handle, Lives, Opening, Owner, find_ways, seeds_timeout};
use crate::options::Options;
use crate::rpc::ServiceError;
use crate::seeds::Seeds;
use crate::ticket::{Batch, Ticket};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use unisono_core::look::{Counters, Report};
use unisono_core::{
    ChangeOrderError, ConfirmError, EntryMode, Event, ForceError, Formation, GroupConfig, HandOverError,
    HeldUp, Info, Member, Order, Quality, ResetError, SendError, Seqno, Standing, Uid,
};

/// Interval at which an entry looks whether it is cancelled.
const LOOK_FOR_CANCEL_EVERY: Duration = Duration::from_millis(20);

/// A handle on one member of a group. Clones are handles on the same member. When the last one is dropped, the member
/// leaves; the drop waits for that, at most one second.
///
/// Every member receives all messages, its own included, in one order. An application must receive events: after a
/// window of messages all members wait for one that does not, and its own `send` waits too. A member that only sends
/// calls [`Group::ignore_events`].
///
/// ```
/// use unisono::{Event, Group, GroupConfig, Options};
/// # let name = &format!("group-docs-{}", std::process::id());
/// let group = Group::create(name, GroupConfig::default(), &Options::default())?;
/// let seqno = group.send("hello")?;
/// loop {
///     if let Event::Message { seqno: place, payload, .. } = group.receive()? {
///         assert_eq!((place, &payload[..]), (seqno, &b"hello"[..]));
///         break;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    owner: Arc<Owner>,
}

impl Group {
    /// Founds a group of this name, whether or not there is one already.
    pub fn create(name: &str, config: GroupConfig, options: &Options) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Found(config), Bytes::new(), options)
    }

    /// Joins the group of this name. The other members receive `hello` (at most 512 bytes) with the join.
    pub fn join(name: &str, hello: impl Into<Bytes>, options: &Options) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Join, hello.into(), options)
    }

    /// Joins the group of this name, or founds a second one if it hears no answer of a group that exists: for groups
    /// without state only.
    ///
    /// A process that no member answers in time founds a group alone: it cannot know whether members exist that it does
    /// not hear. Where members have state, use [`Group::join_or_form`].
    pub fn join_or_create(
        name: &str,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::JoinOrFound(config), hello.into(), options)
    }

    /// Joins the group of this name, or forms it together with the other participants if no member answers: the safe way
    /// in for members with state. A process alone never founds a group. [`Options::name`] is this participant's name; the
    /// participants start within [`Formation::within`] of each other.
    ///
    /// The process looks for the group all the while, and takes part in the formation after one search
    /// ([`Settings::locate`](crate::Settings::locate)). Once a member answers, it only joins. If the others form the
    /// group without it, it joins that one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::{Formation, Group, GroupConfig, Options};
    /// # let name = &format!("join-or-form-docs-{}", std::process::id());
    /// # let start = |me: &str| {
    /// #     let (name, me) = (name.clone(), me.to_string());
    /// #     std::thread::spawn(move || {
    /// let participants = vec!["ann".parse()?, "bob".parse()?, "cleo".parse()?];
    /// let formation = Formation { participants, at_least: 2, within: Duration::from_secs(30) };
    /// let options = Options { name: me.parse()?, ..Options::default() };
    /// let group = Group::join_or_form(&name, formation, GroupConfig::default(), "hello", &options)?;
    /// assert!(group.info().members.len() >= 2);
    /// #         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(group)
    /// #     })
    /// # };
    /// # let (ann, bob) = (start("ann"), start("bob"));
    /// # let (ann, bob) = (ann.join().unwrap().unwrap(), bob.join().unwrap().unwrap());
    /// # assert_eq!(ann.info().instance, bob.info().instance);
    /// ```
    ///
    /// # Errors
    /// When the formation's time is over: [`JoinFailure::NotFormed`](crate::JoinFailure::NotFormed) if no group was
    /// heard and too few participants met; `Lost`, `Unreachable` or `Halted` if a group was heard that did not let this
    /// process in.
    pub fn join_or_form(
        name: &str,
        formation: Formation,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::JoinOrForm(formation, config), hello.into(), options)
    }

    /// Forms a group together with the other participants that call this at the same time. At most one group results
    /// (unless too many participants restart meanwhile: see [`Formation::at_least`]), and it has at least as many members
    /// as the formation asks for. If this process is not in one within the formation's time, the call fails with
    /// [`JoinFailure::NotFormed`](crate::JoinFailure::NotFormed). [`Options::name`] is this participant's name.
    pub fn form(
        name: &str,
        formation: Formation,
        config: GroupConfig,
        options: &Options,
    ) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Form(formation, config), Bytes::new(), options)
    }

    fn open(name: &str, entry: EntryMode, hello: Bytes, options: &Options) -> Result<Group, OpenError> {
        let mut lives = Lives::new(&entry);
        loop {
            let begun = (&mut lives, hello.clone(), options.seeds_timeout);
            let group = Group::begin(name, &entry, begun, options, &[])?;
            let entered = group.shared().block(None, |member, _| commands::enter(member)).unwrap_or(Ok(()));
            if let Some(concluded) = lives.conclude(entered) {
                return concluded.map(|()| group);
            }
        }
    }

    /// Opens a member, but gives up and returns `None` soon after `is_cancelled`, which may look at the member, returns true.
    /// `former` are the addresses of the members that an earlier life had with it, which are asked like seeds.
    pub(crate) fn open_unless(
        name: &str,
        entry: &EntryMode,
        options: &Options,
        former: &[SocketAddr],
        is_cancelled: impl Fn(&Group) -> bool,
    ) -> Result<Option<Group>, OpenError> {
        let mut lives = Lives::new(entry);
        loop {
            let begun = (&mut lives, Bytes::new(), Duration::ZERO);
            let group = Group::begin(name, entry, begun, options, former)?;
            let entered = loop {
                let look = |member: &mut Membership, _| commands::enter(member);
                match group.shared().block(Some(LOOK_FOR_CANCEL_EVERY), look) {
                    Some(entered) => break entered,
                    None if is_cancelled(&group) => {
                        // A life that no handle holds would stand in the way of the next one at its address.
                        group.end();
                        return Ok(None);
                    }
                    None => {}
                }
            };
            if let Some(concluded) = lives.conclude(entered) {
                return concluded.map(|()| Some(group));
            }
        }
    }

    /// Begins the next life of an entry. Waits for at most `patience` for an address of this machine.
    fn begin(
        name: &str,
        entry: &EntryMode,
        (lives, hello, patience): (&mut Lives, Bytes, Duration),
        options: &Options,
        former: &[SocketAddr],
    ) -> Result<Group, OpenError> {
        let seeds = Seeds::new(options)?.with_former(former);
        let known = find_ways(name, &seeds, seeds_timeout(entry, options), options, patience)?;
        let shared = Opening { name, hello, options }.begin(lives, entry, seeds, known)?;
        let owner = Owner { shared: Arc::new(shared), options: options.clone(), waits: true };
        Ok(Group { owner: Arc::new(owner) })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Sends a message to all members, this one included, and returns its seqno. Blocks until the message is
    /// accepted: from then on it survives as many crashes as the group's resilience.
    ///
    /// The call receives no events. If all members only send, their events fill the histories, and no further message
    /// gets a seqno. After five seconds the member that is furthest behind gets [`SendFailure::NotReceiving`]; the
    /// others wait for it. So receive in another thread, with a clone of the handle:
    ///
    /// ```
    /// # use unisono::{Event, Group, GroupConfig, Options};
    /// # let name = &format!("send-docs-{}", std::process::id());
    /// # let group = Group::create(name, GroupConfig::default(), &Options::default())?;
    /// let receiver = group.clone();
    /// let receiving = std::thread::spawn(move || {
    ///     while let Ok(event) = receiver.receive() {
    ///         # if let Event::Message { seqno: 100, .. } = event { break }
    ///         println!("{event:?}");
    ///     }
    /// });
    /// for number in 0..100 {
    ///     group.send(number.to_string())?;
    /// }
    /// # receiving.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A program with one thread can send with [`Group::try_submit`] and receive when that fails for lack of room. A
    /// member that never receives calls [`Group::ignore_events`].
    pub fn send(&self, payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), quality: Quality::ORDERED })
    }

    /// Sends like [`Group::send`], but the message survives `resilience` crashes if that is more than the group's
    /// resilience: short for [`Group::send_with`] and [`Quality::resilient`].
    pub fn send_resilient(&self, payload: impl Into<Bytes>, resilience: u8) -> Result<Seqno, SendFailure> {
        self.send_with(payload, Quality::resilient(resilience))
    }

    /// Sends like [`Group::send`] a message of this quality: no member receives it, and the call does not return, before
    /// as many members hold it as the quality asks. Messages of all qualities come in one order, so an ordered one that
    /// has a later seqno waits with it. Those of [`Quality::UNORDERED`] and [`Quality::SOURCE_ORDERED`] may come before, as
    /// [`Event::Early`].
    ///
    /// A message of [`Quality::UNRELIABLE`] is outside of this order. It has no seqno: the call returns 0 as soon as the
    /// message is sent, and each member that receives it gets [`Event::Early`].
    ///
    /// ```
    /// use unisono::{Group, GroupConfig, Options, Quality};
    /// # let name = &format!("quality-docs-{}", std::process::id());
    /// let group = Group::create(name, GroupConfig::default(), &Options::default())?;
    /// group.send_with("move the pawn", Quality::ORDERED)?;
    /// group.send_with("pay ten to Ann", Quality::MAJORITY)?;
    /// assert_eq!(group.send_with("the mouse is at 3, 4", Quality::UNRELIABLE)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_with(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), quality })
    }

    fn send_message(&self, message: Message) -> Result<Seqno, SendFailure> {
        let (mut number, mut obstacle) = (None, SendError::WindowFull);
        let send = |member: &mut Membership, now| message.send(member, now, &mut number, &mut obstacle);
        self.shared().block(None, send).unwrap_or(Err(SendFailure::Unknown))
    }

    /// As [`Group::send`], but waits at most for `timeout`. Then it fails with [`SendFailure::TimedOut`] if the message
    /// is under way and may still be ordered, and with [`SendFailure::Refused`] if it was not sent.
    pub fn send_timeout(&self, payload: impl Into<Bytes>, timeout: Duration) -> Result<Seqno, SendFailure> {
        let message = Message { payload: payload.into(), quality: Quality::ORDERED };
        let (mut number, mut obstacle) = (None, SendError::WindowFull);
        let send = |member: &mut Membership, now| message.send(member, now, &mut number, &mut obstacle);
        if let Some(sent) = self.shared().block(Some(timeout), send) {
            return sent;
        }
        Err(match number {
            None => SendFailure::Refused(obstacle),
            Some(number) => {
                self.shared().forget(number);
                SendFailure::TimedOut { held_up_by: self.held_up_by() }
            }
        })
    }

    /// Sends a message without waiting for its seqno, and returns a ticket for the outcome. Blocks only while the
    /// window is full or the group is being reset. Like [`Group::send`] it receives no events; if only receiving
    /// could make room, it fails with [`SendError::NotReceiving`] after five seconds. While earlier messages are
    /// under way, the message may wait for later ones, to share their datagrams.
    pub fn submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.submit_with(payload, Quality::ORDERED)
    }

    /// Sends like [`Group::submit`] a message of this quality, as [`Group::send_with`].
    pub fn submit_with(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<Ticket, SendError> {
        self.submit_message(Message { payload: payload.into(), quality }, None)
    }

    /// Sends like [`Group::submit`], but never blocks: where `submit` would wait, this fails and names the obstacle:
    /// [`SendError::WindowFull`], [`SendError::NotReceiving`], [`SendError::Resetting`], or [`SendError::NotMember`]
    /// for a founder that is giving way to an older group.
    pub fn try_submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.try_submit_with(payload, Quality::ORDERED)
    }

    /// Sends like [`Group::try_submit`] a message of this quality, as [`Group::send_with`].
    pub fn try_submit_with(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<Ticket, SendError> {
        self.submit_message(Message { payload: payload.into(), quality }, Some(Duration::ZERO))
    }

    /// Sends like [`Group::try_submit`], unless a reset dropped the earlier message `before` of this member: then it
    /// sends nothing and fails with [`SendError::Resetting`]. So an application can send its failed messages again
    /// before any later one is under way. `before` must be the last message that was submitted, and its ticket must
    /// not have returned an outcome yet.
    pub fn try_submit_after(&self, before: &Ticket, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.try_submit_after_with(before, payload, Quality::ORDERED)
    }

    /// Sends like [`Group::try_submit_after`] a message of this quality, as [`Group::send_with`].
    pub fn try_submit_after_with(
        &self,
        before: &Ticket,
        payload: impl Into<Bytes>,
        quality: Quality,
    ) -> Result<Ticket, SendError> {
        let (message, before) = (Message { payload: payload.into(), quality }, before.number());
        let mut obstacle = SendError::WindowFull;
        let number = self.shared().block(Some(Duration::ZERO), |member, now| {
            if member.outcomes.has_failed(before) {
                return Attempt::Done(Err(SendError::Resetting));
            }
            message.submit(member, now, &mut obstacle)
        });
        Ok(Ticket::new(self.shared().clone(), number.unwrap_or(Err(obstacle))?))
    }

    fn submit_message(&self, message: Message, timeout: Option<Duration>) -> Result<Ticket, SendError> {
        let mut obstacle = SendError::WindowFull;
        let number = self.shared().block(timeout, |member, now| message.submit(member, now, &mut obstacle));
        Ok(Ticket::new(self.shared().clone(), number.unwrap_or(Err(obstacle))?))
    }

    /// Sends many messages, packed into as few datagrams as possible. Blocks only while the window is full. If a
    /// message is refused, the messages before it are under way, as the batch that comes with the error, and those
    /// after it were not sent.
    pub fn submit_all<I>(&self, payloads: I) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        self.submit_all_with(payloads, Quality::ORDERED)
    }

    /// Sends like [`Group::submit_all`] messages of this quality, as [`Group::send_with`].
    pub fn submit_all_with<I>(&self, payloads: I, quality: Quality) -> Result<Batch, (Batch, SendError)>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        let mut payloads = payloads.into_iter().map(Into::into);
        let mut batch = Batch::new();
        loop {
            let mut waiting = commands::handful(&mut payloads);
            if waiting.is_empty() {
                return Ok(batch);
            }
            let submitted = self.shared().block(None, |member, now| {
                let given = |number| batch.expect(self.shared(), number);
                commands::submit_all(member, now, (&mut waiting, quality), given)
            });
            if let Some(Err(error)) = submitted {
                return Err((batch, error));
            }
        }
    }

    /// Returns the next event; blocks until there is one. If several threads receive, each event goes to one of them.
    pub fn receive(&self) -> Result<Event, Ended> {
        self.shared().take(Membership::lacks_events, commands::receive).unwrap_or(Err(Ended::Left))
    }

    /// Returns the next event, or `None` if there is none within `timeout`.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Event>, Ended> {
        self.shared().block(Some(timeout), |member, _| commands::receive(member)).transpose()
    }

    /// Returns the next event, if there is one now.
    pub fn try_receive(&self) -> Result<Option<Event>, Ended> {
        self.receive_timeout(Duration::ZERO)
    }

    /// Appends events to `events` and returns their number. Blocks until there is one, then takes all that are ready,
    /// up to 1,024.
    pub fn receive_many(&self, events: &mut Vec<Event>) -> Result<usize, Ended> {
        let received =
            self.shared().take(Membership::lacks_events, |member| commands::receive_many(member, events));
        received.unwrap_or(Err(Ended::Left))
    }

    /// Drops all events from now on, so that no member waits for this one to receive them.
    pub fn ignore_events(&self) {
        self.shared().with(|member, _| member.ignoring = true);
    }

    /// Asks a quorum of the members whether the group went on without this one, and returns a seqno: once the caller has
    /// applied the events through it, its state is as new as any state that a member had when the call began. Blocks
    /// until a quorum has answered, also through a reset.
    ///
    /// Without this call, a member that was cut off reads old state and does not know it. The members that can answer
    /// need no seqno for it: two small datagrams in a group of three. Calls that come while another one is under way
    /// share one answer.
    ///
    /// The state is as new as that if each message has a holder in every quorum: with the quorum *majority of the view*,
    /// if the resilience is at least half of the number of members (1 of 2 or 3 members, 2 of 4 or 5). With a lower
    /// resilience the seqno covers messages of [`Quality::MAJORITY`] and [`Quality::TOTAL`], and otherwise what the members
    /// of the quorum held. With the quorum *at least n*, another half of the group may have gone on.
    ///
    /// ```
    /// use unisono::{Event, Group, GroupConfig, Options};
    /// # let name = &format!("confirm-docs-{}", std::process::id());
    /// let group = Group::create(name, GroupConfig::default(), &Options::default())?;
    /// group.send("one")?;
    /// let (mut count, mut applied) = (0, 0);
    /// let through = group.confirm()?;
    /// while applied < through {
    ///     let event = group.receive()?;
    ///     count += usize::from(matches!(event, Event::Message { .. }));
    ///     applied = event.seqno().unwrap_or(applied);
    /// }
    /// assert_eq!(count, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfirmError::Left`] if this member leaves, ends or is excluded first.
    pub fn confirm(&self) -> Result<Seqno, ConfirmError> {
        self.confirm_within(None).unwrap_or(Err(ConfirmError::Left))
    }

    /// As [`Group::confirm`], but waits at most for `timeout`: `None` if no quorum has answered by then.
    ///
    /// # Errors
    /// As [`Group::confirm`].
    pub fn confirm_timeout(&self, timeout: Duration) -> Result<Option<Seqno>, ConfirmError> {
        self.confirm_within(Some(timeout)).transpose()
    }

    fn confirm_within(&self, timeout: Option<Duration>) -> Option<Result<Seqno, ConfirmError>> {
        let mut number = None;
        self.shared().block(timeout, |member, now| commands::confirm(member, now, &mut number))
    }

    /// Begins a confirmation as [`Group::confirm`], without waiting for its result.
    ///
    /// # Errors
    /// This process is not a member, or no longer one.
    pub fn begin_confirm(&self) -> Result<Confirmation, ConfirmError> {
        let number = self.shared().command(commands::begin_confirm)?;
        Ok(Confirmation::new(self.shared().clone(), number))
    }

    /// Ends this member's life at once. After the call this process acknowledges, confirms, serves and sends nothing for
    /// it; the other members exclude it by a reset as if it had crashed. Use it where this member's state is about to
    /// go on in another life, and [`Group::leave`] otherwise. Messages under way fail with [`SendFailure::Unknown`].
    ///
    /// [`Group::receive`] still returns the accepted events that were not received yet, and then fails with
    /// [`Ended::Left`]. After that [`Group::undelivered`] returns the rest. Dropping the handle does not wait.
    pub fn end(&self) {
        self.shared().end_life();
    }

    /// Returns the next entry that this member held when [`Group::end`] was called and that it did not know to be
    /// accepted, after [`Group::receive`] has failed with [`Ended::Left`]. The other members may have accepted these
    /// entries, or may have dropped them.
    pub fn undelivered(&self) -> Option<Event> {
        self.shared().with(|member, _| member.undelivered())
    }

    /// Begins a reset that must bring together at least `min_members` members, and a quorum. Until it does, or until
    /// a later call asks for fewer, the group is halted. The application calls this after [`Event::Suspected`]; the
    /// reset ends with [`Event::Reset`]. While no member is suspected no reset begins, and the result says whether
    /// the group has `min_members` members.
    pub fn reset(&self, min_members: usize) -> Result<(), ResetError> {
        self.shared().command(|member, now| member.group.reset(now, min_members))
    }

    /// Goes on without these members of a group that is halted. The caller vouches that they are dead: if one of them
    /// lives on elsewhere, the group may be split for ever. All other members of the view must answer. The end is an
    /// [`Event::Reset`] that says *forced* and *degraded*, within a second or two; if a named member answers first, or
    /// another one does not, the group stays as it is.
    pub fn force(&self, without: &[Uid]) -> Result<(), ForceError> {
        self.shared().command(|member, now| member.group.force(now, without))
    }

    /// Leaves the group, and blocks until no other member needs this one. The others receive `goodbye` (at most 512
    /// bytes) with the leave. Events that were not received yet can be received afterwards. Under the manual policy
    /// another thread goes on answering [`Event::Suspected`] until this returns: the leave may have to wait for a reset.
    pub fn leave(&self, goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        let (goodbye, mut begun) = (goodbye.into(), false);
        let left =
            self.shared().block(None, |member, now| commands::leave(member, now, &goodbye, &mut begun));
        left.unwrap_or(Ok(()))
    }

    /// Gives the role of sequencer to another member. Only the sequencer can do so, and not in a group founded with
    /// [`Migration::Never`](crate::Migration::Never). The role has moved when [`Event::HandedOver`] is received. With
    /// [`Migration::ByLoad`](crate::Migration::ByLoad) the load may move it on.
    pub fn hand_over(&self, to: Uid) -> Result<(), HandOverError> {
        self.shared().command(|member, now| member.group.hand_over(now, to))
    }

    /// Asks for another order: a sequencer, or a token that goes round. Any member can ask. The order has changed when
    /// [`Event::OrderChanged`] is received; a reset drops the request, and its event comes instead.
    pub fn change_order(&self, order: Order) -> Result<(), ChangeOrderError> {
        self.shared().command(|member, now| member.group.change_order(now, order))
    }

    /// Takes messages of processes that are no members ([`OutsideSender`](crate::OutsideSender)) from now on, for as long as
    /// this member lives, and sends them on as its own. A process finds any open member by the group's name, as it finds a
    /// service; one thread of the library serves all of them.
    ///
    /// The member learns what became of a client's messages from the events that its application receives, as it needs to
    /// for a client whose last relay died. So an application whose member is open receives, or calls [`Group::ignore_events`].
    ///
    /// # Errors
    /// The member has no address at which clients could reach it.
    pub fn open_to_outside(&self) -> Result<(), ServiceError> {
        open::open(self)
    }

    /// Returns the state of this member and its group (the papers' GetInfoGroup).
    pub fn info(&self) -> Info {
        self.shared().with(|member, _| member.group.info())
    }

    /// Returns this member's part in the group: whether a leader or the holder of a lock may act.
    pub fn standing(&self) -> Standing {
        self.shared().command(|member, _| member.standing())
    }

    /// Blocks until the standing is another than `known`, for at most `timeout` if one is given. Returns the standing.
    pub fn standing_after(&self, known: Standing, timeout: Option<Duration>) -> Standing {
        let changed = self.shared().block(timeout, |member, _| commands::standing_after(member, known));
        changed.unwrap_or_else(|| self.standing())
    }

    /// Returns the member whose application holds up all members, and since when. Only the sequencer knows it; any
    /// member can ask the sequencer with [`look_at`](crate::look_at).
    pub fn held_up_by(&self) -> Option<HeldUp> {
        self.shared().with(|member, now| member.group.held_up_by(now))
    }

    /// Returns the present members, in rank order.
    pub fn members(&self) -> Vec<Member> {
        self.info().members
    }

    /// Returns what this member knows of the group: how far each member is, and which member waits for which.
    pub fn report(&self) -> Report {
        self.shared().with(|member, now| member.group.report(now))
    }

    /// Returns this member's counters.
    pub fn counters(&self) -> Counters {
        self.shared().with(|member, _| member.group.counters())
    }
}

impl Handle for Group {}

impl Owned for Group {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}
