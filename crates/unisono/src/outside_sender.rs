//! Sending to a group without joining it.

use crate::error::{LookError, OpenError};
use crate::open;
use crate::options::Options;
use crate::outside::look;
use crate::rpc::{CallFailure, Client, Port};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use unisono_core::outside::{Call, Fate, Position, Sender, SenderError};
use unisono_core::{Quality, Seqno, Uid, debug_as_sentence, rpc};

/// Maximum time for a member to become this sender's relay: it may have to wait until the group has excluded the last one.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// Maximum time for a relay to say what became of messages. After it the sender asks another member.
const SEND_MAX: Duration = Duration::from_secs(10);
/// A relay that leaves questions unanswered for this part of the time after which calls give a server up is left: the next
/// one finds out what became of messages, so it costs little if the relay lives.
const SILENCE_PART: u32 = 4;
/// Least such time, unless calls themselves have less: several questions go in it, so that one that is lost ends nothing.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// Pause after a member had no room, or none became the relay.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum bytes of messages that wait to be sent, a single larger message excepted.
const SENDER_WAITING_BYTES_MAX: usize = 1 << 20;
/// Maximum number of messages whose outcome is open.
const OPEN_MAX: usize = 4_096;
/// Time for a member to say that the group exists although none of its members is open.
const LOOK: Duration = Duration::from_secs(1);

/// Sends messages to a group from a process that is no member. An open member
/// ([`Group::open_to_outside`](crate::Group::open_to_outside)) sends them on as its own, and each member receives them with
/// this process and the message's number ([`Outside`](crate::Outside)).
///
/// The messages of one sender come in the order in which they were given, each at most once, whichever member dies. If the
/// member that sends them on dies, the sender learns from another open member what became of the messages under way, and goes
/// on there; what that member does not know is counted as *unknown*.
///
/// The messages are sent by a thread of the sender's own, many at a time. Dropping the sender drops those that wait:
/// [`OutsideSender::flush`] first.
///
/// ```
/// use unisono::{Event, Group, GroupConfig, Options, OutsideOptions, OutsideSender, Quality};
/// # let name = &format!("outside-docs-{}", std::process::id());
/// let group = Group::create(name, GroupConfig::default(), &Options::default())?;
/// group.open_to_outside()?;
/// # let receiver = group.clone();
/// # let receiving = std::thread::spawn(move || {
/// #     while let Ok(event) = receiver.receive() {
/// #         if let Event::Message { outside: Some(_), .. } = event { break }
/// #     }
/// # });
///
/// // In a process that is no member:
/// let sender = OutsideSender::new(name, OutsideOptions::default(), &Options::default())?;
/// sender.send("hello", Quality::ORDERED)?;
/// assert_eq!(sender.flush()?.accepted, 1);
/// # receiving.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutsideSender {
    inner: Arc<Inner>,
}

/// How a process sends to a group from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutsideOptions {
    /// True if a message counts as accepted as soon as a member has sent it to its group. By default it does when it has its
    /// place, and as many members hold it as its quality asks.
    pub unconfirmed: bool,
}

impl OutsideOptions {
    /// Returns the same options, by which messages count as accepted as soon as a member has sent them.
    pub fn unconfirmed(self) -> OutsideOptions {
        OutsideOptions { unconfirmed: true }
    }
}

/// What became of the messages of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tally {
    /// Messages that have their places, and so come once at every member. Unreliable and unconfirmed ones were sent.
    pub accepted: u64,
    /// Messages that may come, once at most and in their order, or not.
    pub unknown: u64,
    /// Messages that will not come.
    pub not_sent: u64,
    /// Highest seqno of the messages that have one, as far as it is known; 0 if none is.
    pub last: Seqno,
}

/// Why a sender cannot send, or not go on. [`OutsideSender::tally`] says what became of the messages before.
#[derive(Error)]
#[non_exhaustive]
pub enum OutsideError {
    /// The process has no way to send. Nothing was sent.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No member of the group answers: check its name, the key and the seeds.
    #[error("no member of the group answers: {cause}")]
    NoGroup {
        /// What a query to the group found.
        cause: LookError,
    },
    /// The group exists, and none of its members is open.
    #[error(
        "no member of {group} takes messages from outside: start one with `unisono listen {group} --open` (or call \
         Group::open_to_outside in a member)"
    )]
    NotOpen {
        /// Name of the group.
        group: String,
    },
    /// This process sends to the group already, by another [`OutsideSender`] with the same address: use that one, because
    /// two would not agree on the order of this process's messages.
    #[error("this process sends to the group already: use the same sender")]
    Twice,
    /// The members that took the messages refuse them, are gone, or cannot tell what became of them. The reason says which.
    #[error("{0}")]
    Ended(SenderError),
}

debug_as_sentence!(OutsideError { NoGroup, NotOpen, Twice, Ended; of Open });

/// Positions of the clients of this process in their numbers. One client is one life of an endpoint of calls, which all
/// senders with the same options use, and one group.
static POSITIONS: LazyLock<Mutex<BTreeMap<(Uid, unisono_core::Port), Use>>> = LazyLock::new(Mutex::default);

/// A client's position, and whether a sender uses it.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    position: Position,
    is_used: bool,
}

#[derive(Debug)]
struct Inner {
    group: String,
    options: Options,
    client: Client,
    port: Port,
    uid: Uid,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    sender: Sender,
    tally: Tally,
    /// A call is under way.
    calls: bool,
    is_closed: bool,
}

impl OutsideSender {
    /// Returns a sender to the group of this name, whose members are reached as the options say. It sends nothing yet.
    pub fn new(
        group: &str,
        outside: OutsideOptions,
        options: &Options,
    ) -> Result<OutsideSender, OutsideError> {
        crate::reach::port(group)?;
        let options = options.clone();
        let client = Client::new(&options)?;
        let (port, uid) = (open::port(group).public(), client.uid());
        let position = {
            let mut positions = POSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
            let usage = positions.entry((uid, port.0)).or_default();
            if std::mem::replace(&mut usage.is_used, true) {
                return Err(OutsideError::Twice);
            }
            usage.position
        };
        let sender = Sender::new(outside.unconfirmed, position);
        let state = Mutex::new(State { sender, tally: Tally::default(), calls: false, is_closed: false });
        let group = group.to_string();
        let inner = Arc::new(Inner { group, options, client, port, uid, state, changed: Condvar::new() });
        let sender = OutsideSender { inner: inner.clone() };
        let started = thread::Builder::new().name("unisono-outside".into()).spawn(move || inner.run());
        if let Err(cause) = started {
            return Err(OpenError::Socket { what: "start a thread to send from outside", cause }.into());
        }
        Ok(sender)
    }

    /// Gives a message to send. Blocks while many messages wait.
    ///
    /// # Errors
    /// The sender cannot go on; the message is not sent.
    pub fn send(&self, payload: impl Into<Bytes>, quality: Quality) -> Result<(), OutsideError> {
        let is_full = |state: &mut State| {
            let sender = &state.sender;
            sender.error().is_none()
                && (sender.open() >= OPEN_MAX || sender.waiting_bytes() >= SENDER_WAITING_BYTES_MAX)
        };
        let state = self.inner.lock();
        let state = self.inner.changed.wait_while(state, is_full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.sender.push(payload.into(), quality);
        state.collect();
        let error = state.sender.error().cloned();
        drop(state);
        self.inner.changed.notify_all();
        error.map_or(Ok(()), |error| Err(self.inner.explain(error)))
    }

    /// Waits until the outcome of every message is known, and returns the counts.
    ///
    /// # Errors
    /// The sender cannot go on.
    pub fn flush(&self) -> Result<Tally, OutsideError> {
        let state = self.inner.changed.wait_while(self.inner.lock(), |state| state.sender.open() > 0);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let (error, tally) = (state.sender.error().cloned(), state.tally);
        drop(state);
        error.map_or(Ok(tally), |error| Err(self.inner.explain(error)))
    }

    /// Ends the sending, without waiting for what is under way: messages that were sent count as unknown, and those that wait
    /// as not sent. Threads that wait in [`OutsideSender::send`] or [`OutsideSender::flush`] go on, with
    /// [`SenderError::GivenUp`].
    pub fn give_up(&self) {
        let mut state = self.inner.lock();
        state.sender.give_up();
        state.collect();
        drop(state);
        self.inner.changed.notify_all();
    }

    /// Returns the number of messages whose outcome is not known yet.
    pub fn open(&self) -> usize {
        self.inner.lock().sender.open()
    }

    /// Returns what is known of the messages so far.
    pub fn tally(&self) -> Tally {
        self.inner.lock().tally
    }
}

impl Drop for OutsideSender {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.is_closed = true;
        if !state.calls {
            self.inner.give_back(&state);
        }
        drop(state);
        self.inner.changed.notify_all();
    }
}

impl State {
    /// Counts what became of messages.
    fn collect(&mut self) {
        while let Some((_, fate)) = self.sender.poll_fate() {
            match fate {
                Fate::Accepted => self.tally.accepted += 1,
                Fate::Unknown => self.tally.unknown += 1,
                Fate::NotSent => self.tally.not_sent += 1,
            }
        }
        self.tally.last = self.sender.last();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the sender's calls, one after the other, until the handle is dropped.
    fn run(&self) {
        while let Some(call) = self.next_call() {
            if call.pause {
                thread::sleep(PAUSE);
            }
            let deadline = if call.to.is_some() { SEND_MAX } else { BEGIN_MAX };
            let most = self.options.calls.silence;
            let silence = (most / SILENCE_PART).max(SILENCE_MIN).min(most);
            let within = (deadline, silence);
            let answered = self.client.call_with_silence((self.port, call.to), call.request, within);
            let mut state = self.lock();
            state.sender.answered(answered.map_err(for_core));
            state.collect();
            state.calls = false;
            if state.is_closed {
                self.give_back(&state);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for the next call; `None` when the handle is dropped.
    fn next_call(&self) -> Option<Call> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(call) = state.sender.poll_call() {
                state.calls = true;
                return Some(call);
            }
            // It may have failed for want of numbers.
            state.collect();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets another sender of this process go on from where this one is.
    fn give_back(&self, state: &State) {
        let position = state.sender.position();
        let mut positions = POSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert((self.uid, self.port.0), Use { position, is_used: false });
    }

    /// Finds out why no open member answers.
    fn explain(&self, error: SenderError) -> OutsideError {
        let begin = Instant::now();
        match error {
            SenderError::NotFound | SenderError::NoAnswer => {
                match look(&self.group, &self.options, LOOK.saturating_sub(begin.elapsed())) {
                    Ok(_) if error == SenderError::NotFound => {
                        OutsideError::NotOpen { group: self.group.clone() }
                    }
                    Ok(_) => OutsideError::Ended(error),
                    Err(cause) => OutsideError::NoGroup { cause },
                }
            }
            error => OutsideError::Ended(error),
        }
    }
}

/// Returns a failure as the core knows it. A call that was not begun did not happen.
fn for_core(failure: CallFailure) -> rpc::CallFailure {
    match failure {
        CallFailure::NotFound => rpc::CallFailure::NotFound,
        CallFailure::OtherInstance => rpc::CallFailure::OtherInstance,
        CallFailure::Busy => rpc::CallFailure::Busy,
        CallFailure::Refused(reason) => rpc::CallFailure::Refused(reason),
        CallFailure::Unknown => rpc::CallFailure::Unknown,
        CallFailure::NotSent(_) | CallFailure::Failed => rpc::CallFailure::Failed,
    }
}
