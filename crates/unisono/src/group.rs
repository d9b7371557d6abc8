//! A member's handle for threads that may block.

use crate::commands::{self, Message};
use crate::engine::{Attempt, Membership, Shared};
use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::opening::{Lives, Opening, Owner};
use crate::options::Options;
use crate::seeds::Seeds;
use crate::ticket::{Batch, Ticket};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use unisono_core::look::{Counters, Report};
use unisono_core::{
    EntryMode, Event, ForceError, Formation, GroupConfig, HandOverError, HeldUp, Info, Member, ResetError,
    SendError, Seqno, Standing, Uid,
};

/// A member of a group. Clones are the same member; when the last one is dropped, it leaves (and waits for
/// that for at most a second).
///
/// What one member sends is received by all members, itself included, in one order. Receive what comes: a
/// member that does not takes no part in the order, and after a window of messages everybody waits for it,
/// its own `send` too. Who wants to send only says so with [`Group::ignore_events`].
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
    /// Founds the group of this name, whether or not there is one.
    pub fn create(name: &str, config: GroupConfig, options: &Options) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Found(config), Bytes::new(), options)
    }

    /// Joins the group of this name. The others receive `hello` (at most 512 bytes) with the join.
    pub fn join(name: &str, hello: impl Into<Bytes>, options: &Options) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Join, hello.into(), options)
    }

    /// Joins the group of this name, or founds it if nobody answers.
    pub fn join_or_create(
        name: &str,
        config: GroupConfig,
        hello: impl Into<Bytes>,
        options: &Options,
    ) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::JoinOrFound(config), hello.into(), options)
    }

    /// Forms the group together with the other participants that call this at the same time: at most one group comes
    /// of it, of at least as many members as the formation asks for, or none here within its time
    /// ([`JoinFailure::NotFormed`](crate::JoinFailure::NotFormed)). [`Options::name`] is this participant's.
    pub fn form(
        name: &str,
        formation: Formation,
        config: GroupConfig,
        options: &Options,
    ) -> Result<Group, OpenError> {
        Group::open(name, EntryMode::Form(formation, config), Bytes::new(), options)
    }

    fn open(name: &str, entry: EntryMode, hello: Bytes, options: &Options) -> Result<Group, OpenError> {
        let mut lives = Lives::default();
        loop {
            let seeds = Seeds::new(options)?;
            let known = seeds.resolve();
            let opening = Opening { name, entry: entry.clone(), hello: hello.clone(), options };
            let shared = opening.begin(seeds, known)?;
            let owner = Owner { shared: Arc::new(shared), options: options.clone(), waits: true };
            let group = Group { owner: Arc::new(owner) };
            let entered = group.shared().block(None, |member, _| commands::enter(member)).unwrap_or(Ok(()));
            if let Some(concluded) = lives.conclude(entered) {
                return concluded.map(|()| group);
            }
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// What it was opened with.
    pub(crate) fn options(&self) -> &Options {
        &self.owner.options
    }

    /// Sends a message to all members, this one included, and blocks until it has its place in the order and
    /// is accepted: then it survives as many crashes as the group's resilience. Returns the place.
    ///
    /// It receives nothing meanwhile. If all members only send, their events fill the histories, and nothing more gets a
    /// place: the member that is furthest behind is told so after five seconds ([`SendFailure::NotReceiving`]), the others
    /// wait for it. So receive in another thread, with a clone of the handle:
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
    /// With one thread only, send with [`Group::try_submit`] and receive where that has no room; and a member that is no
    /// receiver at all says so with [`Group::ignore_events`].
    pub fn send(&self, payload: impl Into<Bytes>) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), resilience: None })
    }

    /// As [`Group::send`], for a message that is to survive `resilience` crashes if that is more than the
    /// group's.
    pub fn send_resilient(&self, payload: impl Into<Bytes>, resilience: u8) -> Result<Seqno, SendFailure> {
        self.send_message(Message { payload: payload.into(), resilience: Some(resilience) })
    }

    fn send_message(&self, message: Message) -> Result<Seqno, SendFailure> {
        let (mut number, mut obstacle) = (None, SendError::WindowFull);
        let send = |member: &mut Membership, now| message.send(member, now, &mut number, &mut obstacle);
        self.shared().block(None, send).unwrap_or(Err(SendFailure::Unknown))
    }

    /// As [`Group::send`], but waits at most for `timeout`. Then it fails with [`SendFailure::TimedOut`] if the message
    /// is under way and may still be ordered, and with [`SendFailure::Refused`] if it was not sent.
    pub fn send_timeout(&self, payload: impl Into<Bytes>, timeout: Duration) -> Result<Seqno, SendFailure> {
        let message = Message { payload: payload.into(), resilience: None };
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

    /// Sends a message without waiting for its place. Waits only while the window is full or the group is
    /// being reset; like [`Group::send`] it receives nothing meanwhile, and fails with [`SendError::NotReceiving`] after
    /// five seconds in which only that could make room. While others are under way it may wait for those that follow, to
    /// go along with them.
    pub fn submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.submit_message(payload.into(), None)
    }

    /// As [`Group::submit`], but where that waits this fails, and says what for: [`SendError::WindowFull`],
    /// [`SendError::NotReceiving`], [`SendError::Resetting`], or [`SendError::NotMember`] for a founder that is giving way to an older group.
    pub fn try_submit(&self, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        self.submit_message(payload.into(), Some(Duration::ZERO))
    }

    /// As [`Group::try_submit`], for a message that comes after an earlier one of this member or not at all:
    /// fails with [`SendError::Resetting`] if a reset fell upon that one. So whoever sends failed messages
    /// again can do so before anything later is under way. `before` is to be the last one submitted, and not
    /// asked yet.
    pub fn try_submit_after(&self, before: &Ticket, payload: impl Into<Bytes>) -> Result<Ticket, SendError> {
        let (message, before) = (Message { payload: payload.into(), resilience: None }, before.number());
        let mut obstacle = SendError::WindowFull;
        let number = self.shared().block(Some(Duration::ZERO), |member, now| {
            if member.outcomes.has_failed(before) {
                return Attempt::Done(Err(SendError::Resetting));
            }
            message.submit(member, now, &mut obstacle)
        });
        Ok(Ticket::new(self.shared().clone(), number.unwrap_or(Err(obstacle))?))
    }

    fn submit_message(&self, payload: Bytes, timeout: Option<Duration>) -> Result<Ticket, SendError> {
        let message = Message { payload, resilience: None };
        let mut obstacle = SendError::WindowFull;
        let number = self.shared().block(timeout, |member, now| message.submit(member, now, &mut obstacle));
        Ok(Ticket::new(self.shared().clone(), number.unwrap_or(Err(obstacle))?))
    }

    /// Sends many messages, packed into as few datagrams as possible. Waits only while the window is full. If
    /// one is refused, those before it are under way, as the batch that comes with the error, and those after
    /// it were not sent.
    pub fn submit_all<I>(&self, payloads: I) -> Result<Batch, (Batch, SendError)>
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
                commands::submit_all(member, now, &mut waiting, given)
            });
            if let Some(Err(error)) = submitted {
                return Err((batch, error));
            }
        }
    }

    /// The next event; blocks until there is one. Several threads may receive: each event goes to one of
    /// them.
    pub fn receive(&self) -> Result<Event, Ended> {
        self.shared().take(Membership::lacks_events, commands::receive).unwrap_or(Err(Ended::Left))
    }

    /// The next event, or nothing if there is none for so long.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Event>, Ended> {
        self.shared().block(Some(timeout), |member, _| commands::receive(member)).transpose()
    }

    /// The next event, if there is one now.
    pub fn try_receive(&self) -> Result<Option<Event>, Ended> {
        self.receive_timeout(Duration::ZERO)
    }

    /// Appends events to `events`: blocks until there is one, then takes all that are there, up to 1,024.
    /// Returns how many.
    pub fn receive_many(&self, events: &mut Vec<Event>) -> Result<usize, Ended> {
        let received =
            self.shared().take(Membership::lacks_events, |member| commands::receive_many(member, events));
        received.unwrap_or(Err(Ended::Left))
    }

    /// From now on nobody here wants events: they are taken and dropped, so that nobody waits for this
    /// member.
    pub fn ignore_events(&self) {
        self.shared().with(|member, _| member.ignoring = true);
    }

    /// Begins a reset that must bring together at least `min_members` (and a quorum, whatever that is), whoever else takes
    /// part; until there are so many, or this is called with fewer, the group stands still. The
    /// application's answer to [`Event::Suspected`]. Its end is an [`Event::Reset`]. While nobody is suspected there is
    /// nothing to mend: none begins, and the answer is whether the group has so many members.
    pub fn reset(&self, min_members: usize) -> Result<(), ResetError> {
        self.shared().with(|member, now| member.group.reset(now, min_members))
    }

    /// Goes on without these members of a group that is halted. The caller vouches that they are dead: if one of them
    /// lives on elsewhere, the group may be split for ever. All other members of the view must answer. The end is an
    /// [`Event::Reset`] that says *forced* and *degraded*, within a second or two; if a named member answers first, or
    /// another one does not, the group stays as it is.
    pub fn force(&self, without: &[Uid]) -> Result<(), ForceError> {
        self.shared().with(|member, now| member.group.force(now, without))
    }

    /// Leaves, and blocks until nobody needs this member any more. The others receive `goodbye` (at most 512
    /// bytes) with the leave. What was not received yet can be received afterwards.
    pub fn leave(&self, goodbye: impl Into<Bytes>) -> Result<(), LeaveFailure> {
        let (goodbye, mut begun) = (goodbye.into(), false);
        let left =
            self.shared().block(None, |member, now| commands::leave(member, now, &goodbye, &mut begun));
        left.unwrap_or(Ok(()))
    }

    /// Gives the role of sequencer to another member; only the sequencer can, and not in a group founded with
    /// [`Migration::Never`](crate::Migration::Never). It is done with an [`Event::HandedOver`]. With
    /// [`Migration::ByLoad`](crate::Migration::ByLoad) the load may move it on from there.
    pub fn hand_over(&self, to: Uid) -> Result<(), HandOverError> {
        self.shared().with(|member, now| member.group.hand_over(now, to))
    }

    /// Where this member and its group stand (the papers' GetInfoGroup).
    pub fn info(&self) -> Info {
        self.shared().with(|member, _| member.group.info())
    }

    /// Returns this member's part in the group: whether a leader or the holder of a lock may act.
    pub fn standing(&self) -> Standing {
        self.shared().with(|member, _| member.standing())
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

    /// The members now, in rank order.
    pub fn members(&self) -> Vec<Member> {
        self.info().members
    }

    /// This member's account of the group: who is how far, and who waits for whom.
    pub fn report(&self) -> Report {
        self.shared().with(|member, now| member.group.report(now))
    }

    /// What this member has counted.
    pub fn counters(&self) -> Counters {
        self.shared().with(|member, _| member.group.counters())
    }
}
