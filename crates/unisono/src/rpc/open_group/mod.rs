//! Open groups over closed ones: a service that is a whole group.
//!
//! Only members can send to a group. To let any client use what a group keeps, all its members serve one port. The
//! member that receives a call sends it to the group, all members execute it in the order, and the one that received
//! it answers. It does not matter which member a client reaches. If that member dies, the client's library asks
//! another one, with the same call number, by which the members recognise a call that they have executed before.
//!
//! | | |
//! |---|---|
//! | `replica` | a member's copy: what each event does to it |
//! | `memory` | the calls that were executed, and their outcomes |
//! | `word` | the messages of members to each other |

mod memory;
mod replica;
mod word;

pub use memory::Outcome;

use super::Port;
use super::error::OpenGroupError;
use super::port::PrivatePort;
use super::server::{Answer, Request, ServeOptions, Server};
use crate::error::Ended;
use crate::group::Group;
use crate::options::Options;
use bytes::Bytes;
use replica::{Applied, Replica};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::rpc::CallNumber;
use unisono_core::{Event, GroupConfig, Member, SendError, Seqno, Uid};
use word::{Command, Word};

/// Time for which a founder that is alone does not serve yet: it may meet another founder and give way.
const SETTLE: Duration = Duration::from_secs(1);
/// Interval at which requests are dropped whose clients do not wait any longer.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes of the state in one message.
const STATE_PART_BYTES: usize = 1 << 20;
/// Maximum time for which dropping the last handle waits until requests are answered.
const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum number of notices that are kept; beyond it the oldest are dropped.
const NOTICES_MAX: usize = 16;

/// The application's part of a replicated service. Every member has a copy, which is the same at each seqno. So what
/// it does may depend only on the calls and on its state: on no clock, no random numbers, nothing of its process. If
/// it panics, its member leaves the group.
pub trait Service: Send + 'static {
    /// Executes a call, at its seqno in the order.
    fn apply(&mut self, asked: &Asked<'_>) -> Outcome;

    /// Returns the whole state, for a member that has none yet. It is sent with the answers that clients may still
    /// request, in as many messages as necessary; the sender keeps a copy meanwhile.
    fn snapshot(&self) -> Bytes;

    /// Replaces the state by that of another member.
    fn restore(&mut self, snapshot: &[u8]);

    /// Returns the answer in place of the member that received the call. That member returned `word` in
    /// [`Outcome::Pass`]. Changes nothing.
    fn take_over(&self, word: &Bytes, me: &Member) -> Bytes {
        let _ = me;
        word.clone()
    }
}

/// A call at its seqno in the order, where it takes effect.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Bytes of the call.
    pub payload: &'a Bytes,
    /// Uid of the client.
    pub client: Uid,
    /// Number of the client's call.
    pub call: CallNumber,
    /// Seqno at which the call takes effect.
    pub seqno: Seqno,
    /// The member that received the call, unless it has died meanwhile.
    pub received_by: Option<&'a Member>,
}

/// A condition that an operator has to know, because no client learns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Notice {
    /// More members were lost at once than the group's resilience covers: executed calls may be lost.
    Degraded {
        /// The lost members.
        excluded: Vec<Member>,
    },
    /// Another group of this name serves the same port with a state of its own, and each client reaches one of them
    /// by chance: the groups did not hear each other when the second was founded. Groups never merge. To have one
    /// again, end all members of one group, whose calls are lost with it, and open them anew.
    OtherGroup {
        /// Address of one of its members.
        address: SocketAddr,
        /// True if this group is the one to end, unless there are reasons for the other. All its members get true,
        /// and those of the other group false.
        gives_way: bool,
    },
}

/// A member of a group whose members all serve one port, so that each call takes effect at all of them, once.
///
/// ```
/// use unisono::rpc::{Asked, Client, OpenGroup, Outcome, PrivatePort, Service};
/// use unisono::{Bytes, GroupConfig, Options};
///
/// /// A number to which clients add.
/// struct Counter(i64);
///
/// impl Service for Counter {
///     fn apply(&mut self, asked: &Asked) -> Outcome {
///         match &asked.payload[..] {
///             b"add" => self.0 += 1,
///             b"get" => {}
///             _ => return Outcome::Refuse("add or get".into()),
///         }
///         Outcome::Reply(self.0.to_string().into())
///     }
///
///     fn snapshot(&self) -> Bytes {
///         self.0.to_be_bytes().to_vec().into()
///     }
///
///     fn restore(&mut self, snapshot: &[u8]) {
///         self.0 = snapshot.try_into().map_or(0, i64::from_be_bytes);
///     }
/// }
///
/// # let name = &format!("open-docs-{}", std::process::id());
/// // The same in three processes, and any one of them may be killed.
/// let port = PrivatePort::from_name(name);
/// let member = OpenGroup::open(name, &port, Counter(0), GroupConfig::default(), &Options::default())?;
///
/// let client = Client::new(&Options::default())?;
/// assert_eq!(client.call(port.public(), "add")?, "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OpenGroup<S: Service> {
    inner: Arc<Inner<S>>,
    server: Server,
}

struct Inner<S> {
    group: Group,
    begun: Instant,
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S> {
    replica: Replica<S>,
    /// Requests that this member received and has not answered, by client and number.
    pending: HashMap<(Uid, CallNumber), Vec<Request>>,
    /// Time since which a founder has been alone.
    alone_since: Option<Instant>,
    ended: Option<Ended>,
    /// Notices that the application has not taken yet.
    notices: VecDeque<Notice>,
}

/// Work that follows from events and may block, for threads other than the one that takes the events.
struct Errands {
    /// Calls to submit again.
    again: Sender<(Uid, CallNumber)>,
    /// States to send.
    give: Sender<replica::State>,
}

impl<S: Service> OpenGroup<S> {
    /// Joins the group of this name, or founds it if no member answers, gets the state from the others, and serves
    /// the port. Returns when it serves. `service` is the state with which a founder begins.
    pub fn open(
        name: &str,
        port: &PrivatePort,
        service: S,
        config: GroupConfig,
        options: &Options,
    ) -> Result<OpenGroup<S>, OpenGroupError> {
        OpenGroup::serve_in(Group::join_or_create(name, config, "", options)?, port, service)
    }

    /// Serves as [`OpenGroup::open`] does, in a group that was entered already and none of whose events were
    /// received, such as one formed with [`Group::form`]. All that form it begin with `service`.
    pub fn serve_in(group: Group, port: &PrivatePort, service: S) -> Result<OpenGroup<S>, OpenGroupError> {
        let state = State {
            replica: Replica::new(group.info().me, service),
            pending: HashMap::new(),
            alone_since: None,
            ended: None,
            notices: VecDeque::new(),
        };
        let inner = Arc::new(Inner {
            group,
            begun: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        match OpenGroup::serve(&inner, port) {
            Ok(server) => Ok(OpenGroup { inner, server }),
            Err(error) => {
                // The threads that were started end when the group does.
                let _ = inner.group.leave("");
                Err(error)
            }
        }
    }

    fn serve(inner: &Arc<Inner<S>>, port: &PrivatePort) -> Result<Server, OpenGroupError> {
        let (again, repeats) = mpsc::channel();
        let (give, states) = mpsc::channel();
        let errands = Errands { again, give };
        spawn("state", inner, move |inner| inner.give_states(&states))?;
        spawn("order", inner, move |inner| inner.follow(&errands))?;
        inner.await_state()?;
        let serve = ServeOptions { repeats: true, ..ServeOptions::default() };
        let server = Server::beside(&inner.group, port, serve)?;
        spawn("repeats", inner, move |inner| inner.submit_again(&repeats))?;
        let receiving = server.clone();
        spawn("requests", inner, move |inner| inner.receive(&receiving))?;
        Ok(server)
    }

    /// Returns the port to which clients send.
    pub fn port(&self) -> Port {
        self.server.port()
    }

    /// Returns the member of the group. Its events are received here, not by the caller.
    pub fn group(&self) -> &Group {
        &self.inner.group
    }

    /// Lets the caller read this member's copy, which may be behind those of others.
    pub fn look<T>(&self, at: impl FnOnce(&S) -> T) -> T {
        at(self.inner.lock().replica.service())
    }

    /// Blocks until this member is out of the group, because another thread closed it, the others excluded it, or the
    /// service panicked; returns why. It may then be opened again.
    pub fn wait(&self) -> Ended {
        let mut state = self.inner.lock();
        loop {
            match state.ended {
                Some(ended) => return ended,
                None => state = self.inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Returns the next notice for the operator; blocks until there is one. Returns `None` once the member is out.
    pub fn notice(&self) -> Option<Notice> {
        let mut state = self.inner.lock();
        loop {
            if let Some(notice) = state.notices.pop_front() {
                return Some(notice);
            }
            if state.ended.is_some() {
                return None;
            }
            state = self.inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more calls, answers those that were taken within `timeout`, and leaves the group.
    pub fn close(&self, timeout: Duration) {
        // A client that gets no answer learns from its own library whether its call may have happened.
        let _ = self.server.drain(timeout);
        let _ = self.inner.group.leave("");
    }
}

impl<S: Service> Drop for OpenGroup<S> {
    fn drop(&mut self) {
        self.close(FAREWELL);
    }
}

fn spawn<S: Service>(
    name: &str,
    inner: &Arc<Inner<S>>,
    work: impl FnOnce(&Inner<S>) + Send + 'static,
) -> Result<(), OpenGroupError> {
    let inner = inner.clone();
    let spawned = thread::Builder::new().name(format!("unisono-{name}")).spawn(move || work(&inner));
    spawned.map(drop).map_err(OpenGroupError::Thread)
}

/// Makes a member leave if its service panics: it takes no more events, and the others would wait for it.
struct Following<'a, S: Service>(&'a Inner<S>);

impl<S: Service> Drop for Following<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(Ended::Left);
            let _ = self.0.group.leave("");
        }
    }
}

impl<S: Service> Inner<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until this member has the state. Fails if its group is to give way to another.
    fn await_state(&self) -> Result<(), OpenGroupError> {
        let mut state = self.lock();
        loop {
            if let Some(ended) = state.ended {
                return Err(OpenGroupError::Ended(ended));
            }
            if state.notices.iter().any(|notice| matches!(notice, Notice::OtherGroup { gives_way: true, .. }))
            {
                return Err(OpenGroupError::Conflict);
            }
            let settled = state.alone_since.map(|since| since + SETTLE);
            if state.replica.is_informed() && settled.is_none_or(|settled| settled <= Instant::now()) {
                return Ok(());
            }
            let patience = settled.map_or(SETTLE, |at| at.saturating_duration_since(Instant::now()));
            let (next, _) =
                self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
    }

    /// Takes the group's events until they end.
    fn follow(&self, errands: &Errands) {
        let _following = Following(self);
        let mut events = Vec::new();
        let ended = loop {
            match self.group.receive_many(&mut events) {
                Ok(_) => events.drain(..).for_each(|event| self.take(event, errands)),
                Err(ended) => break ended,
            }
        };
        self.end(ended);
    }

    /// Takes an event and does what follows from it: answers the calls received here, sends the state to joiners, and
    /// submits again what a reset may have dropped.
    fn take(&self, event: Event, errands: &Errands) {
        let (entered, reset) = (matches!(event, Event::Entered { .. }), matches!(event, Event::Reset { .. }));
        let notice = notice(&event);
        let mut applied = Vec::new();
        let mut state = self.lock();
        state.replica.take(event, &mut applied);
        state.notices.extend(notice);
        if state.notices.len() > NOTICES_MAX {
            state.notices.pop_front();
        }
        match state.replica.members().len() {
            1 if entered => state.alone_since = Some(Instant::now()),
            1 => {}
            _ => state.alone_since = None,
        }
        for newcomer in state.replica.newcomers() {
            // The thread that receives from this channel runs as long as this member is in the group.
            errands.give.send(state.replica.give(newcomer)).unwrap_or(());
        }
        if reset {
            // Likewise.
            state.pending.keys().for_each(|call| errands.again.send(*call).unwrap_or(()));
        }
        let answers: Vec<_> =
            applied.into_iter().flat_map(|applied| state.answers(applied, &self.group)).collect();
        drop(state);
        self.changed.notify_all();
        answers.into_iter().for_each(|(request, answer)| request.answer(answer));
    }

    /// Ends the service of this member, whose events have ended. Its clients are sent to the other members, which
    /// know what was executed.
    fn end(&self, ended: Ended) {
        let mut state = self.lock();
        state.ended = Some(ended);
        let others = state.others(self.group.info().me);
        let left: Vec<Request> = state.pending.drain().flat_map(|(_, requests)| requests).collect();
        drop(state);
        self.changed.notify_all();
        for (number, request) in left.into_iter().enumerate() {
            if let Some(other) = others.get(number % others.len().max(1)) {
                // If this fails, the client does not wait any longer, or finds another way.
                let _ = request.forward(other);
            }
        }
    }

    /// Takes requests and submits them to the group, until there are no more.
    fn receive(&self, server: &Server) {
        let mut tidied = Instant::now();
        while let Ok(request) = server.get_request_timeout(TIDY_EVERY) {
            if let Some(request) = request {
                let call = (request.client(), request.call());
                let mut state = self.lock();
                if state.ended.is_some() {
                    // No thread here executes it any more.
                    let other = state.others(self.group.info().me).first().cloned();
                    drop(state);
                    let _ = other.map(|other| request.forward(&other));
                    continue;
                }
                state.pending.entry(call).or_default().push(request);
                drop(state);
                self.submit(call);
            }
            if tidied.elapsed() >= TIDY_EVERY {
                tidied = Instant::now();
                self.lock().drop_expired();
            }
        }
    }

    /// Sends the state to joiners, until the events end.
    fn give_states(&self, states: &Receiver<replica::State>) {
        for state in states {
            for part in state.parts(STATE_PART_BYTES) {
                if !self.lock().replica.gives(&state) {
                    break;
                }
                if self.group.submit(Word::State(part).write()).map(drop).is_err() {
                    // The next event makes this member send it again.
                    self.lock().replica.take_back(&state);
                }
            }
        }
    }

    fn submit_again(&self, calls: &Receiver<(Uid, CallNumber)>) {
        calls.iter().for_each(|call| self.submit(call));
    }

    /// Submits a call that waits here to the group; blocks while there is no room.
    fn submit(&self, call: (Uid, CallNumber)) {
        let Some(command) = self.command(call) else { return };
        match self.group.submit(Word::Command(command).write()) {
            Ok(ticket) => drop(ticket),
            Err(error @ SendError::TooLarge { .. }) => {
                let requests = self.lock().pending.remove(&call).unwrap_or_default();
                let reason = Answer::Refuse(error.to_string().into());
                requests.into_iter().for_each(|request| request.answer(reason.clone()));
            }
            // The end of the events takes care of it, or a reset does.
            Err(_) => {}
        }
    }

    fn command(&self, call: (Uid, CallNumber)) -> Option<Command> {
        let state = self.lock();
        let request = state.pending.get(&call)?.last()?;
        Some(Command {
            client: request.client(),
            call: request.call(),
            finished_below: request.finished_below(),
            left_ms: request.time_left().as_millis() as u64,
            stamp_ms: self.begun.elapsed().as_millis() as u64,
            payload: request.payload().clone(),
        })
    }
}

/// Returns the notice that an event gives rise to.
fn notice(event: &Event) -> Option<Notice> {
    match event {
        Event::Reset { degraded: true, excluded, .. } => {
            Some(Notice::Degraded { excluded: excluded.clone() })
        }
        Event::Conflict { address, gives_way, .. } => {
            Some(Notice::OtherGroup { address: *address, gives_way: *gives_way })
        }
        _ => None,
    }
}

impl<S: Service> State<S> {
    /// Returns the other members that are known to have the state, beginning with the next by rank.
    fn others(&self, me: Uid) -> Vec<Member> {
        let members = self.replica.members();
        let own = members.iter().position(|member| member.uid == me).unwrap_or(0);
        let (before, after) = members.split_at(own);
        let others = after.iter().chain(before).filter(|member| member.uid != me);
        others.filter(|member| self.replica.has_state(member.uid)).cloned().collect()
    }

    /// Returns the answers to the requests that wait here for this call.
    fn answers(&mut self, applied: Applied, group: &Group) -> Vec<(Request, Answer)> {
        let requests = self.pending.remove(&(applied.client, applied.call)).unwrap_or_default();
        let me = if requests.is_empty() { return Vec::new() } else { group.info().me };
        let answer = |request: &Request| match &applied.outcome {
            Some(Outcome::Reply(reply)) => Answer::Reply(reply.clone()),
            Some(Outcome::Refuse(reason)) => Answer::Refuse(reason.clone()),
            Some(Outcome::Pass(word)) => match self.others(me).first() {
                Some(other) if request.hops() == 0 => Answer::Forward(other.address),
                _ => {
                    let members = self.replica.members();
                    let own = members.iter().find(|member| member.uid == me);
                    Answer::Reply(
                        own.map_or_else(|| word.clone(), |me| self.replica.service().take_over(word, me)),
                    )
                }
            },
            None => Answer::Refuse("no client waits for this call".into()),
        };
        requests
            .into_iter()
            .map(|request| {
                let answer = answer(&request);
                (request, answer)
            })
            .collect()
    }

    /// Drops requests whose clients do not wait any longer.
    fn drop_expired(&mut self) {
        self.pending.retain(|_, requests| {
            requests.retain(|request| !request.time_left().is_zero());
            !requests.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::{EpochId, Name, View};

    #[test]
    fn only_degraded_resets_become_notices_with_the_lost_members() {
        let lost = Member { uid: Uid(2), name: Name::default(), address: ([127, 0, 0, 1], 1).into() };
        let reset = |degraded| {
            let view = View::new(EpochId::default(), Vec::new(), Uid(1), 1);
            Event::Reset { seqno: 7, view, excluded: vec![lost.clone()], degraded, forced: false }
        };
        assert_eq!(notice(&reset(true)), Some(Notice::Degraded { excluded: vec![lost.clone()] }));
        assert_eq!(notice(&reset(false)), None);
    }
}
