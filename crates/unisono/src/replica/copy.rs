//! A replica's copy of the state with everything that belongs to it, behind one lock, and what the threads do with it.
//!
//! Each input is one step: a thread locks, gives the core the input, takes the core's outputs and unlocks. It carries
//! out what needs no lock afterwards, mostly itself: a request is answered by the thread that took it, and a command is
//! on its way when the call returns. What has to wait goes to the errands thread.

use super::disk::DiskOptions;
use super::errands::{Errands, Report};
use super::error::ReplicaEnd;
use super::life::Life;
use super::options::{Founding, ReplicaOptions};
use super::transfer;
use super::waits::{Waits, block_on};
use super::writing::{AtOnce, Jobs};
use super::{NotServed, ReadFailure, StateMachine};
use crate::commands::Message;
use crate::engine::{Listed, WaitList, clock_ns};
use crate::error::OpenError;
use crate::opening::by_lot;
use crate::options::Options;
use crate::rpc::{self, PrivatePort};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use unisono_core::replica::{
    Answer, CommandFailure, CommandNumber, DISK_FORMS_WITHIN, Done, FetchNumber, NO_COPY, Notice, Output,
    ReadNumber, Replica, ReplicaSettings, StopReason,
};
use unisono_core::rpc::{CallNumber, RequestId};
use unisono_core::{EntryMode, GroupConfig, Time, Uid};
use unisono_fork::Process;

/// Maximum number of notices that are kept; beyond it the oldest are dropped.
const REPLICA_NOTICES_MAX: usize = 64;

/// Maximum number of pieces in which a state is prepared for a copy: commands may change it faster.
const PREPARES_MAX: usize = 4096;

/// Interval at which replies are freed that clients need no more.
const ASKS_FINISHED_EVERY: Duration = Duration::from_millis(500);
/// Time for a desk to close.
const DESK_CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// Pause before a port is tried again that could not be served in a later life.
const SERVE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What the threads and handles of a replica share.
pub(super) struct Copy<S> {
    pub(super) name: String,
    pub(super) founding: Founding,
    pub(super) settings: ReplicaOptions,
    pub(super) options: Options,
    /// Present for a server with a disk.
    pub(super) disk: Option<DiskOptions>,
    /// Uid under which the commands of this process are remembered.
    client: Uid,
    pub(super) errands: Errands,
    /// When this replica began, by the system's clock, in nanoseconds.
    origin_ns: u64,
    /// The process in which its threads run.
    process: Process,
    state: Mutex<State<S>>,
    noted: Noted,
}

/// What is behind the lock.
pub(super) struct State<S> {
    /// Present but for a moment between two lives.
    copy: Option<Replica<S>>,
    pub(super) life: Option<Arc<Life>>,
    /// Number of lives so far.
    pub(super) lives: u64,
    /// Number of notes that the core has made.
    notes: u64,
    /// Requests that were given to the core and are not answered yet.
    requests: HashMap<RequestId, Caller>,
    pub(super) commands: Waits<CommandNumber, Result<Done, CommandFailure>>,
    pub(super) reads: Waits<ReadNumber, Result<(), ReadFailure>>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) is_halted: bool,
    /// A life had the state.
    pub(super) was_ready: bool,
    pub(super) stop: Option<StopReason>,
    /// This process ends the replica.
    pub(super) is_closing: bool,
    pub(super) end: Option<ReplicaEnd>,
    /// Why the last attempt to enter the group failed.
    pub(super) last_failure: Option<Arc<OpenError>>,
    /// Last address that sent a datagram under another key to an attempt to enter.
    pub(super) foreign: Option<SocketAddr>,
    changed: WaitList,
    /// Time until which the errands thread sleeps.
    timer_at: Time,
    /// When clients are asked which replies they need no more.
    ask_finished_at: Option<Time>,
    /// The ports that this process serves to callers.
    ports: Vec<PrivatePort>,
    /// Number of doors so far, each for a port that callers with another key call.
    pub(super) doors: u16,
    /// Those that could not be served in the present life, and when that is tried again.
    unserved: Vec<PrivatePort>,
    serve_at: Option<Time>,
    /// Where jobs for the disk go, until this replica has ended.
    pub(super) jobs: Option<Jobs>,
    /// The next life begins by itself.
    pub(super) reenters: bool,
    /// True while this process is a member, or about to be one.
    pub(super) has_group: bool,
    /// Answers questions while it is none.
    desk: Option<rpc::Server>,
    desk_is_open: bool,
}

/// A caller that waits for an answer.
struct Caller {
    request: rpc::Request,
    /// True if no other server can be reached at the address that it has in the group.
    is_at_door: bool,
}

impl Caller {
    /// Returns the request with the core's answer. A caller at a door, if another server has to answer it, asks here once
    /// more, where the port is no longer served, and so looks for another server.
    fn with(self, answer: Answer) -> (rpc::Request, rpc::Answer) {
        let elsewhere = self.is_at_door && answer.is_for_another_server();
        let answer = match answer {
            _ if elsewhere => rpc::Answer::Forward(self.request.arrived_at()),
            Answer::Reply(reply) => rpc::Answer::Reply(reply),
            Answer::Deny(reply) => rpc::Answer::Deny(reply),
            Answer::Refuse(reason) => rpc::Answer::Refuse(reason),
            Answer::NoCopy => rpc::Answer::Refuse(Bytes::from_static(NO_COPY)),
            Answer::Forward(to) => rpc::Answer::Forward(to),
            Answer::GoOn { shows_right } => rpc::Answer::GoOn { shows_right },
        };
        (self.request, answer)
    }
}

impl<S> State<S> {
    fn new(copy: Replica<S>) -> State<S> {
        State {
            copy: Some(copy),
            life: None,
            lives: 0,
            notes: 0,
            requests: HashMap::new(),
            commands: Waits::default(),
            reads: Waits::default(),
            notices: VecDeque::new(),
            is_halted: false,
            was_ready: false,
            stop: None,
            is_closing: false,
            end: None,
            last_failure: None,
            foreign: None,
            changed: WaitList::default(),
            timer_at: Time::NEVER,
            ask_finished_at: None,
            ports: Vec::new(),
            doors: 0,
            unserved: Vec::new(),
            serve_at: None,
            jobs: None,
            reenters: false,
            has_group: false,
            desk: None,
            desk_is_open: false,
        }
    }

    /// Wakes the task or thread when the state of this replica, its members or its notices change.
    pub(super) fn register(&mut self, context: &Context<'_>, listed: &mut Listed) {
        self.changed.register(context.waker(), listed);
    }

    pub(super) fn add_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Halted { .. } | Notice::BelowMinimum { .. } => self.is_halted = true,
            Notice::Resumed | Notice::Reentering => self.is_halted = false,
            _ => {}
        }
        self.notices.push_back(notice);
        if self.notices.len() > REPLICA_NOTICES_MAX {
            self.notices.pop_front();
        }
    }
}

impl<S: StateMachine> State<S> {
    pub(super) fn copy(&self) -> Option<&Replica<S>> {
        self.copy.as_ref()
    }

    pub(super) fn copy_mut(&mut self) -> Option<&mut Replica<S>> {
        self.copy.as_mut()
    }

    /// True if this member has the state and serves, in a life that is not over.
    pub(super) fn is_informed(&self) -> bool {
        self.copy.as_ref().is_some_and(Replica::serves) && self.life.is_some()
    }

    /// Takes callers' requests, which the core answers. `door` is 0, or the number of the door at which they arrived.
    pub(super) fn take_requests(
        &mut self,
        now: Time,
        requests: impl IntoIterator<Item = rpc::Request>,
        door: u16,
    ) {
        self.ask_finished_at.get_or_insert(now + ASKS_FINISHED_EVERY);
        for request in requests {
            let mut asked = request.for_core(now);
            asked.id = asked.id.of_endpoint(door);
            self.requests.insert(asked.id, Caller { request, is_at_door: door > 0 });
            if let Some(copy) = &mut self.copy {
                copy.handle_request(now, asked);
            }
        }
    }

    /// Returns when something is due for the errands thread.
    fn wake_at(&self) -> Time {
        let core = self.copy.as_ref().and_then(Replica::poll_timeout);
        let times = [core, self.ask_finished_at, self.serve_at];
        times.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    /// Takes the core's outputs, and sorts out what is done without the lock. With `may_append` the caller's thread may append to
    /// a log in memory.
    fn take_outputs(&mut self, may_append: bool) -> Work {
        let mut work = Work::default();
        // A replica that is being ended waits until another member has the state.
        let mut is_changed = self.is_closing;
        while let Some(output) = self.copy.as_mut().and_then(Replica::poll_output) {
            match output {
                Output::Submit(payload, quality) => work.submits.push(Message { payload, quality }),
                Output::Store(number, job) => {
                    work.at_once = self.jobs.as_ref().and_then(|jobs| jobs.give(number, job, may_append));
                }
                Output::Reenter => {
                    self.reenters = true;
                    (work.stops, is_changed) = (true, true);
                }
                Output::Answer(id, answer) => {
                    work.answers.extend(self.requests.remove(&id).map(|caller| caller.with(answer)));
                }
                Output::Done(number, outcome) => work.wakes.extend(self.commands.resolve(number, outcome)),
                Output::Ready(number) => work.wakes.extend(self.reads.resolve(number, Ok(()))),
                Output::Confirm => work.confirms = true,
                Output::Fetch { call, to, request } => work.fetches.push((call, to, request)),
                Output::Informed => {
                    // A port that comes later is served by the thread that brings it.
                    work.ports.clone_from(&self.ports);
                    (self.was_ready, is_changed) = (true, true);
                }
                // The last one counts.
                Output::Note { note, at_once } => {
                    let was_urgent = work.note.is_some_and(|note| note.at_once);
                    self.notes += 1;
                    work.note = Some(Note { number: self.notes, note, at_once: at_once || was_urgent });
                }
                Output::StateFetched => work.has_fetched = true,
                Output::Notice(notice) => {
                    self.add_notice(notice);
                    is_changed = true;
                }
                Output::Stop(reason) => {
                    self.stop.get_or_insert(reason);
                    (work.stops, is_changed) = (true, true);
                }
                _ => {}
            }
        }
        if is_changed {
            self.changed.wake(&mut work.wakes);
        }
        work.wakes_errands = self.wake_at() < self.timer_at;
        work.life.clone_from(&self.life);
        work
    }
}

/// This member's note in the group.
struct Note {
    /// Its number among all that the core has made.
    number: u64,
    note: Bytes,
    /// True if it has to go at once.
    at_once: bool,
}

/// Number of the last note that was set in the group.
#[derive(Default)]
struct Noted(Mutex<u64>);

impl Noted {
    /// Sets a note, unless another thread has set a later one: the last one that is set stays.
    fn set(&self, number: u64, set: impl FnOnce()) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if number > *last {
            *last = number;
            set();
        }
    }
}

/// What a step leaves to be done without the lock.
#[derive(Default)]
struct Work {
    life: Option<Arc<Life>>,
    wakes: Vec<Waker>,
    submits: Vec<Message>,
    answers: Vec<(rpc::Request, rpc::Answer)>,
    fetches: Vec<(FetchNumber, SocketAddr, Bytes)>,
    confirms: bool,
    /// Ports to serve, since this member has the state.
    ports: Vec<PrivatePort>,
    note: Option<Note>,
    /// The job for the disk that this thread does.
    at_once: Option<AtOnce>,
    /// This member has fetched the state.
    has_fetched: bool,
    stops: bool,
    wakes_errands: bool,
}

impl<S: StateMachine> Copy<S> {
    /// Returns a replica that is about to enter. `client` is the uid under which its commands are remembered.
    pub(super) fn new(
        name: &str,
        founding: Founding,
        settings: ReplicaOptions,
        options: &Options,
        (client, copy): (Uid, Replica<S>),
    ) -> Copy<S> {
        Copy {
            name: name.to_owned(),
            founding,
            settings,
            options: options.clone(),
            disk: None,
            client,
            errands: Errands::default(),
            origin_ns: clock_ns(),
            process: Process::current(),
            state: Mutex::new(State::new(copy)),
            noted: Noted::default(),
        }
    }

    /// Returns for how long the group has known of commands while none reached the copy. To be called without the lock.
    pub(super) fn behind(&self) -> Duration {
        let life = self.lock().life.clone();
        let behind = |life: Arc<Life>| life.group.shared().with(|member, now| member.group.behind_for(now));
        life.map_or(Duration::ZERO, behind)
    }

    /// Returns the configuration with which the group is founded.
    pub(super) fn group_config(&self) -> GroupConfig {
        let config = self.settings.group_config();
        self.disk.as_ref().map_or(config.clone(), |disk| disk.config(config))
    }

    /// Returns how a life enters the group. A server with a disk draws for how long it tries to form it.
    pub(super) fn entry(&self) -> EntryMode {
        let mut entry = self.founding.entry(self.group_config());
        if let EntryMode::JoinOrForm(formation, _) = &mut entry
            && self.disk.is_some()
        {
            formation.within = by_lot(DISK_FORMS_WITHIN);
        }
        entry
    }

    /// Returns the settings of a copy that is not in its group yet.
    pub(super) fn provisional(client: Uid, settings: &ReplicaOptions) -> ReplicaSettings {
        ReplicaSettings {
            client,
            durability: settings.durability,
            message_bytes_max: settings.config.message_bytes_max as usize,
            members_min: settings.config.members_min,
            names: ReplicaSettings::names_of(&settings.config),
            window: settings.config.window,
            quorums_intersect: settings.config.quorums_intersect(),
            digest: transfer::sha256,
        }
    }

    /// Returns this replica's time, which goes on from life to life.
    pub(super) fn now(&self) -> Time {
        Time::from_nanos(1 + clock_ns().saturating_sub(self.origin_ns))
    }

    /// True in a forked child, which has none of the threads.
    pub(super) fn is_elsewhere(&self) -> bool {
        !self.process.is_current()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        match self.state.try_lock() {
            Ok(state) => state,
            // A thread of the parent held the lock at the fork, and never releases it here.
            Err(TryLockError::WouldBlock) if self.is_elsewhere() => {
                panic!("this replica belongs to the process that forked")
            }
            Err(_) => self.state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Prepares the state for a copy of it, piece by piece: commands are carried out in between.
    pub(super) fn prepare_state(&self) {
        for _ in 0..PREPARES_MAX {
            let is_ready = self.step(|state, _| state.copy_mut().map(Replica::prepare_state)).flatten();
            if is_ready != Some(false) {
                return;
            }
        }
    }

    /// Gives the core an input, and does what follows from it. Returns `None` if the state machine panicked.
    pub(super) fn step<T>(&self, act: impl FnOnce(&mut State<S>, Time) -> T) -> Option<T> {
        let (result, mut work) = self.take_step(true, act);
        loop {
            let (life, at_once) = (work.life.clone(), work.at_once.take());
            let reports = self.carry_out(work);
            // After what others wait for.
            let stored = at_once.and_then(AtOnce::carry_out);
            if reports.is_empty() && stored.is_none() {
                return result;
            }
            // What follows is for the thread that does the jobs: while the order goes on, one append follows another.
            (_, work) = self.take_step(false, |state, now| {
                if let Some(((number, done), copy)) = stored.zip(state.copy_mut()) {
                    copy.handle_stored(now, number, done);
                }
                if let Some(life) = life {
                    state.hear(now, &life, reports);
                }
            });
        }
    }

    fn take_step<T>(
        &self,
        may_append: bool,
        act: impl FnOnce(&mut State<S>, Time) -> T,
    ) -> (Option<T>, Work) {
        let mut state = self.lock();
        let now = self.now();
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut state, now))).ok();
        if result.is_none()
            && let Some(copy) = &mut state.copy
        {
            let position = copy.position() + 1;
            copy.end();
            state.stop.get_or_insert(StopReason::Panicked { position });
        }
        let mut work = state.take_outputs(may_append);
        work.stops |= result.is_none();
        (result, work)
    }

    /// Does what needs no lock. Returns what is known at once of the errands that began.
    fn carry_out(&self, mut work: Work) -> Vec<Report> {
        work.wakes.into_iter().for_each(Waker::wake);
        rpc::answer_all(&mut work.answers);
        let mut reports = Vec::new();
        if let Some(life) = work.life {
            if let Some(note) = work.note {
                self.noted.set(note.number, || life.note(note.note, note.at_once));
            }
            if !work.submits.is_empty() {
                life.submit(work.submits);
            }
            if work.has_fetched {
                life.note_state();
            }
            if work.confirms {
                reports.extend(life.confirm().map(Report::Confirmed));
            }
            if !work.ports.is_empty() {
                self.try_to_serve(&life, work.ports);
            }
            for (call, to, request) in work.fetches {
                reports.extend(self.errands.begin(transfer::fetch(life.clone(), call, to, request)));
            }
            if work.stops {
                life.group.end();
            }
        }
        if work.wakes_errands {
            self.errands.wake();
        }
        reports
    }

    /// Changes the state of this replica without input for the core, and wakes all that wait for a change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State<S>) -> T) -> T {
        let (mut state, mut wakes) = (self.lock(), Vec::new());
        let result = change(&mut state);
        state.changed.wake(&mut wakes);
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    // --- lives ---

    /// True if this process is no member, so that a desk may be opened. [`Copy::desk_is_closed`] must follow.
    pub(super) fn may_open_desk(&self) -> bool {
        let mut state = self.lock();
        state.desk_is_open = !state.has_group;
        state.desk_is_open
    }

    /// Notes what answers questions while this process is no member. Returns false if it is one.
    pub(super) fn take_desk(&self, desk: &rpc::Server) -> bool {
        let mut state = self.lock();
        if !state.has_group {
            state.desk = Some(desk.clone());
        }
        !state.has_group
    }

    /// Notes that nothing of a desk is left.
    pub(super) fn desk_is_closed(&self) {
        self.change(|state| {
            state.desk_is_open = false;
            state.desk = None;
        });
    }

    /// True while questions are answered in place of a member.
    pub(super) fn has_desk(&self) -> bool {
        let state = self.lock();
        state.desk.is_some() && state.end.is_none()
    }

    /// Notes that this process is a member from here on, whose life answers questions.
    pub(super) fn close_desk(&self) {
        let desk = {
            let mut state = self.lock();
            state.has_group = true;
            state.desk.take()
        };
        desk.iter().for_each(rpc::Server::withdraw);
        drop(desk);
        // Both serve the same port, maybe at the same address, so one has to end before the other begins.
        let mut listed = Listed::default();
        block_on(Some(Instant::now() + DESK_CLOSES_WITHIN), |context| {
            let mut state = self.lock();
            state.register(context, &mut listed);
            if state.desk_is_open { Poll::Pending } else { Poll::Ready(()) }
        });
    }

    /// Begins a life in the group that was entered. Returns false if the replica is ended or stops.
    pub(super) fn begin_life(&self, life: &Arc<Life>) -> bool {
        self.change(|state| {
            if state.is_closing || state.stop.is_some() {
                return false;
            }
            let Some(copy) = state.copy.take() else { return false };
            let settings = life.settings(self.client, self.disk.is_some(), transfer::sha256);
            state.copy = Some(copy.into_next(life.me).with_settings(settings));
            state.life = Some(life.clone());
            state.lives += 1;
            state.last_failure = None;
            true
        })
    }

    /// Ends a life. Requests that wait go to other members.
    pub(super) fn end_life(&self, life: &Life) {
        // Before the core sends callers away, so that they do not come back here.
        life.close_doors();
        self.step(|state, _| state.copy.as_mut().map(Replica::end));
        life.withdraw();
        // The next life has the state; nothing may count this one as a member any more.
        life.group.end();
        let held = life.held();
        self.step(|state, now| {
            if let Some(copy) = &mut state.copy {
                held.into_iter().for_each(|event| copy.handle_event(now, event));
            }
        });
        self.change(|state| {
            (state.life, state.has_group) = (None, false);
            // The core has answered all. What is left has no answer.
            state.requests.drain().collect::<Vec<_>>()
        });
    }

    /// Ends this replica: nothing that waits gets another outcome.
    pub(super) fn conclude(&self, end: ReplicaEnd) {
        let mut wakes = Vec::new();
        let mut state = self.lock();
        state.end.get_or_insert(end);
        state.life = None;
        state.jobs = None;
        if let Some(copy) = &mut state.copy {
            copy.end();
            // Each of them is resolved below.
            copy.give_up_commands();
        }
        state.commands.resolve_all(|| Err(CommandFailure::Unknown), &mut wakes);
        state.reads.resolve_all(|| Err(ReadFailure::Ended), &mut wakes);
        state.changed.wake(&mut wakes);
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        self.errands.wake();
    }

    // --- callers ---

    /// Returns the instance of a service on disk, to which callers stay through all of its groups.
    pub(super) fn service(&self) -> Option<u128> {
        self.lock().copy().map(Replica::service).filter(|service| *service != 0)
    }

    /// Serves a port from now on, or from when this member has the state.
    pub(super) fn serve(&self, port: &PrivatePort) -> Result<(), NotServed> {
        let life = {
            let mut state = self.lock();
            if state.end.is_some() || state.is_closing {
                return Err(NotServed::Ended);
            }
            state.ports.push(port.clone());
            state.life.clone().filter(|_| state.is_informed())
        };
        let served = life.map_or(Ok(()), |life| life.serve(port, self.service()));
        served.map_err(|error| {
            // The last one, unless another thread serves one at the same time.
            let mut state = self.lock();
            let last = state.ports.iter().rposition(|known| known.public() == port.public());
            last.map(|index| state.ports.remove(index));
            error.into()
        })
    }

    /// Serves ports in a life that has the state.
    fn try_to_serve(&self, life: &Life, ports: Vec<PrivatePort>) {
        let service = self.service();
        let unserved: Vec<_> = ports.into_iter().filter(|port| life.serve(port, service).is_err()).collect();
        let mut state = self.lock();
        state.serve_at = (!unserved.is_empty()).then(|| self.now() + SERVE_AGAIN_AFTER);
        state.unserved = unserved;
    }

    // --- the errands thread ---

    /// Does what is due now. Returns when the next thing is due, or `None` if this replica has ended.
    pub(super) fn tick(&self) -> Option<Time> {
        let due = self.step(|state, now| {
            if let Some(copy) = &mut state.copy
                && copy.poll_timeout().is_some_and(|at| at <= now)
            {
                copy.handle_timeout(now);
            }
            let asks = state.ask_finished_at.take_if(|at| *at <= now).is_some();
            let serves = state.serve_at.take_if(|at| *at <= now).is_some();
            let ports = if serves { std::mem::take(&mut state.unserved) } else { Vec::new() };
            (state.life.clone(), asks, ports)
        });
        if let Some((Some(life), asks, ports)) = due {
            if asks {
                self.hear_finished(life.finished());
            }
            if !ports.is_empty() {
                self.try_to_serve(&life, ports);
            }
        }
        let mut state = self.lock();
        state.timer_at = state.wake_at();
        state.end.is_none().then_some(state.timer_at)
    }

    /// Gives the core what clients have said of replies that they need no more.
    fn hear_finished(&self, finished: Vec<(Uid, CallNumber)>) {
        self.step(|state, now| {
            let Some(copy) = &mut state.copy else { return };
            for (client, below) in finished {
                copy.handle_finished(now, client, below);
            }
            if copy.account().clients > 0 {
                state.ask_finished_at = Some(now + ASKS_FINISHED_EVERY);
            }
        });
    }

    /// Gives the core what errands came to.
    pub(super) fn report(&self, life: &Arc<Life>, report: Report) {
        self.step(|state, now| state.hear(now, life, vec![report]));
    }
}

impl<S: StateMachine> State<S> {
    fn hear(&mut self, now: Time, life: &Arc<Life>, reports: Vec<Report>) {
        // What an earlier life asked for is of no use.
        if self.life.as_ref().is_none_or(|present| !Arc::ptr_eq(present, life)) {
            return;
        }
        let Some(copy) = &mut self.copy else { return };
        for report in reports {
            match report {
                Report::Confirmed(seqno) => copy.handle_confirmed(seqno),
                // It came before the call was over.
                Report::Arrived(call, reply) => copy.handle_fetched(now, call, Ok(reply)),
                Report::Fetched(call, reply) => copy.handle_hashed(now, call, reply),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_another_thread_overtook_is_not_set() {
        let (noted, set) = (Noted::default(), Mutex::new(Vec::new()));
        for number in [1, 3, 2, 4] {
            noted.set(number, || set.lock().unwrap().push(number));
        }
        assert_eq!(*set.lock().unwrap(), [1, 3, 4]);
    }
}
