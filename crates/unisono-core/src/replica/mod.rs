//! Replicated state machines: the same state at every member of a group, changed by commands in the group's order.
//!
//! A [`Replica`] is one member's copy for one life of that member: a pure state machine beside the member's
//! [`Group`](crate::Group) and the [`Endpoint`](crate::rpc::Endpoint) with which it answers callers. It takes the
//! group's events, the requests of callers and the commands and reads of its own process, and returns what the driver
//! is to do next. `docs/protocol/replica.md` describes the protocol.
//!
//! | module | subject |
//! |---|---|
//! | `machine` | what a user writes: the trait [`StateMachine`] and its types |
//! | `word` | the messages of replicas to each other, in the group's order |
//! | `replicated` | everything that is the same at each member after the same event |
//! | `memory` | the commands that were executed, and their outcomes |
//! | `minimum` | how many members have to have the state, and outcomes that are held back until they do |
//! | `chain` | digests over all outcomes, and the comparison of copies |
//! | `waiting` | requests and own commands whose outcome is not known yet |
//! | `handlers` | which member answers a request that names a handler |
//! | `reads` | reads that wait for a confirmation or for a command |
//! | `repeats` | how many repeats of refused commands are ordered |
//! | `snapshot` | a state as parts named by digest, and what a donor answers |
//! | `fetch` | how a newcomer gets the state |
//! | `backlog` | events that a newcomer keeps until it has the state |
//! | [`disk`] | the storage of a durable replica |
//! | `entering`, `ordering`, `answering` | what a [`Replica`] does with them |

mod answering;
mod backlog;
mod chain;
pub mod disk;
mod durable;
mod entering;
mod fetch;
mod handlers;
mod machine;
mod memory;
mod minimum;
mod ordering;
mod parked;
mod reads;
mod recovering;
mod repeats;
mod replicated;
mod snapshot;
#[cfg(test)]
mod tests;
mod types;
mod waiting;
mod word;

pub use durable::{DiskStart, Job, JobNumber, Place};
pub use handlers::{HANDLERS_MAX, HandlerError};
pub use machine::*;
pub use replicated::check_first_part;
pub use snapshot::{CopyStatus, Donor, Hashed, Present, Snapshot};
pub use types::*;

use crate::config::GroupConfig;
use crate::event::{Event, View};
use crate::group::EntryMode;
use crate::identity::{Instance, Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::{CallFailure, CallNumber, Request};
use crate::time::{Time, earlier};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use answering::{NO_QUORUMS, NO_READS, waits_too_long};
use backlog::Backlog;
use bytes::Bytes;
use chain::Agreement;
use core::ops::Range;
use core::time::Duration;
use disk::Block;
use durable::{Durable, Plan, Stage};
use fetch::Fetch;
use handlers::Handlers;
use memory::COMMAND_WAITS_MAX_MS;
use minimum::{HeldBack, counted};
use reads::Reads;
use repeats::Repeats;
use replicated::Replicated;
use waiting::{Asked, Waiting};
use word::Word;

/// Interval at which requests are dropped whose clients do not wait any longer, and at which acknowledged outcomes are
/// freed.
const REPLICA_TIDIES_EVERY: Duration = Duration::from_secs(1);
/// How long a server with a disk takes part in one formation: at least and at most. Each server draws its time by lot.
/// Servers that give up after equal times can miss each other again and again.
pub const DISK_FORMS_WITHIN: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(3);
/// Time after which a server with a disk begins anew to enter: its group may have lost its quorum meanwhile.
pub const DISK_ENTERS_WITHIN: Duration = Duration::from_millis(3500);
/// Maximum time for which a client or this process may wait for the outcome of a command.
const COMMAND_WAITS_BOUND: Duration = Duration::from_millis(COMMAND_WAITS_MAX_MS);
/// Number of clients whose acknowledgements are collected before the members are told.
const FINISHED_MAX: usize = 1024;

/// One member's copy of a replicated state, for one life of the member. See the module.
///
/// The methods are of the same kinds as those of [`Group`](crate::Group): inputs (`handle_…`), commands, and outputs.
/// After each input and command take all of [`poll_output`](Replica::poll_output), and call
/// [`handle_timeout`](Replica::handle_timeout) at the time that [`poll_timeout`](Replica::poll_timeout) returns.
pub struct Replica<S> {
    me: Uid,
    settings: ReplicaSettings,
    /// View after the last event, whether or not it was applied here.
    view: Option<View>,
    /// Present as soon as this member has the state.
    replicated: Option<Replicated<S>>,
    /// The user's state machine while this member lacks the state, and what it needs to get it.
    arriving: Option<Arriving<S>>,
    waiting: Waiting,
    reads: Reads,
    repeats: Repeats,
    handlers: Handlers,
    agreement: Agreement,
    /// Messages to the group that this member has not seen in the order yet, besides commands.
    unseen: VecDeque<Word>,
    outputs: VecDeque<Output>,
    /// Clients that acknowledged outcomes since the members were last told to free them.
    finished: BTreeMap<Uid, CallNumber>,
    tidy_at: Option<Time>,
    /// Present while requests may be answered that were too many, or too costly, for one input.
    serves_at: Option<Time>,
    /// Time of the last input.
    now: Time,
    is_stopped: bool,
    /// The group's reset finds no quorum.
    has_no_quorum: bool,
    /// Number of members that have the state, while that is below the group's minimum.
    below_minimum: Option<usize>,
    held_back: HeldBack,
    /// Commands may be carried out and callers answered, as of the last event.
    may_answer: bool,
    /// State with which the service begins, as the program gave it: a life may follow one that had another state. `None` at
    /// a server with a disk.
    beginning: Option<Vec<Bytes>>,
    /// The state machine may have another state than that.
    is_used: bool,
    watched: Watched,
    /// Present at a server with a disk.
    durable: Option<Durable>,
    /// The state of a server that is not open.
    closed: Option<Replicated<S>>,
    /// The recovery whose state this server fetches, with the view of it and its donor.
    adopting: Option<(Plan, View)>,
}

/// A member that lacks the state.
struct Arriving<S> {
    /// Replaced by the state that arrives. `None` at a server with a disk, which keeps its state until then.
    machine: Option<S>,
    backlog: Backlog,
    fetch: Fetch,
}

/// What the simulator plants and observes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    planted: Option<Planted>,
    probes: u128,
}

impl Watched {
    /// Returns what has this bug.
    pub(crate) fn with(planted: Option<Planted>) -> Watched {
        Watched { planted, probes: 0 }
    }

    /// True if this planted bug is switched on.
    #[inline]
    pub(crate) fn broken(self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    /// Notes that a rare state was met.
    #[inline]
    pub(crate) fn probe(&mut self, probe: Probe) {
        if cfg!(feature = "planted") {
            self.probes |= 1 << (probe as u32);
        }
    }
}

impl<S: StateMachine> Replica<S> {
    /// Returns the copy of a member that is about to enter its group. `me` is the uid of that life, and `machine` the
    /// state with which a founder begins; a joiner's is replaced.
    pub fn new(me: Uid, machine: S, settings: ReplicaSettings) -> Replica<S> {
        let mut replica = Replica::empty(me, settings);
        let (backlog, fetch) = (Backlog::default(), Fetch::new());
        replica.beginning = Some(machine.snapshot());
        replica.arriving = Some(Arriving { machine: Some(machine), backlog, fetch });
        replica
    }

    fn empty(me: Uid, settings: ReplicaSettings) -> Replica<S> {
        Replica {
            me,
            waiting: Waiting::new(settings.client, settings.window),
            settings,
            view: None,
            replicated: None,
            arriving: None,
            reads: Reads::default(),
            repeats: Repeats::default(),
            handlers: Handlers::default(),
            agreement: Agreement::default(),
            unseen: VecDeque::new(),
            outputs: VecDeque::new(),
            finished: BTreeMap::new(),
            tidy_at: None,
            serves_at: None,
            now: Time::ZERO,
            is_stopped: false,
            has_no_quorum: false,
            below_minimum: None,
            held_back: HeldBack::default(),
            may_answer: false,
            beginning: None,
            is_used: false,
            watched: Watched::default(),
            durable: None,
            closed: None,
            adopting: None,
        }
    }

    // --- inputs ---

    /// Handles the next event of the group. A life that ends at once ([`Output::Reenter`]) may still hold events: those
    /// that the group returns after [`Group::end`](crate::Group::end), and those of
    /// [`Group::poll_undelivered`](crate::Group::poll_undelivered). They come here too, before
    /// [`into_next`](Replica::into_next).
    pub fn handle_event(&mut self, now: Time, event: Event) {
        self.now = now;
        if self.is_stopped {
            return self.keep(now, &event);
        }
        self.report(&event);
        let reset = matches!(event, Event::Reset { .. });
        let resumed = matches!(event, Event::Resumed);
        match event {
            Event::ResetAhead { seqno } => self.held_back.reset_ahead(seqno),
            Event::Reset { seqno, .. } => self.held_back.reset_came(seqno),
            _ => {}
        }
        match event {
            Event::Entered { seqno, view } => self.enter(now, seqno, view),
            event if event.seqno().is_some() => self.follow(now, event),
            Event::Note { member, note } => self.hear_mark(now, member, note),
            Event::Excluded { .. } | Event::Gone => self.end(),
            // A group without a quorum orders nothing more; the disks of other servers may form another.
            Event::Halted { .. } | Event::Conflict { gives_way: true, .. } if self.durable.is_some() => {
                self.reenter();
            }
            Event::Conflict { gives_way: true, .. } => self.give_way(),
            _ => {}
        }
        self.note_minimum(resumed);
        if reset {
            self.repeat_all(now);
        }
        self.note_answering(now, reset);
    }

    /// Handles a request of a caller.
    pub fn handle_request(&mut self, now: Time, request: Request) {
        self.now = now;
        if self.is_stopped || self.replicated.is_none() {
            return self.pass_on(request.id, 0);
        }
        if request.whole_bytes.is_some() {
            self.tidy_by(now);
            return self.look_at(request);
        }
        let kind = S::kind(&request.payload);
        // Before the request is forwarded or waits for a holder: when one comes, nothing asks again.
        if kind == Kind::Command
            && let Some(refusal) = self.never_executes(&request)
        {
            return self.answer(Asked::of(&request), &Outcome::Refuse(refusal));
        }
        let Some(request) = self.route(request) else { return };
        match kind {
            Kind::LocalRead => self.read_locally(request),
            Kind::Read if !self.settings.durability.has_linearizable_reads() => {
                let outcome = Outcome::Refuse(Bytes::from_static(NO_READS));
                self.answer(Asked::of(&request), &outcome);
            }
            Kind::Read => {
                self.tidy_by(now);
                self.reads.add_request(request);
                self.ask_for_confirmation();
            }
            Kind::Command => {
                self.tidy_by(now);
                self.look_at(request);
            }
        }
    }

    /// Returns why no service of these settings executes such a command, whatever its state is.
    fn never_executes(&self, request: &Request) -> Option<Bytes> {
        let (bytes, max) = (request.payload.len(), self.command_bytes_max());
        if bytes > max {
            let reason = CommandFailure::TooLarge { bytes, max };
            return Some(alloc::format!("{reason}; nothing happened").into());
        }
        if self.lacks_quorums_for(request) {
            return Some(Bytes::from_static(NO_QUORUMS));
        }
        let (waits, max) = (request.deadline.since(self.now), waits_max::<S>());
        let is_too_long = waits > max && !self.watched.broken(Planted::DeadlineUnbounded);
        is_too_long.then(|| waits_too_long(max))
    }

    /// Handles the acknowledgements of a client: it needs the outcomes of none of its commands with numbers below
    /// `below` any more; [`CallNumber::MAX`] if it has ended. The members free them within about a second.
    pub fn handle_finished(&mut self, now: Time, client: Uid, below: CallNumber) {
        let knows = self.replicated.as_ref().is_some_and(|state| state.remembers_below(client, below));
        if !knows || self.is_stopped {
            return;
        }
        let most = self.finished.entry(client).or_default();
        *most = below.max(*most);
        if self.finished.len() >= FINISHED_MAX {
            self.free_finished();
        }
        self.tidy_by(now);
    }

    /// Handles the outcome of the confirmation that [`Output::Confirm`] asked for: what this member held then.
    pub fn handle_confirmed(&mut self, seqno: Seqno) {
        let own_end = self.replicated.as_ref().map_or(seqno, Replicated::at);
        let seqno = if self.watched.broken(Planted::ReadWaitsForOwnEnd) { own_end } else { seqno };
        self.reads.confirmed(seqno);
        self.serve_reads();
        self.ask_for_confirmation();
    }

    /// Handles the outcome of a call that [`Output::Fetch`] asked for.
    pub fn handle_fetched(&mut self, now: Time, call: FetchNumber, reply: Result<Bytes, CallFailure>) {
        let reply = reply.map(|reply| Hashed::new(reply, self.settings.digest));
        self.handle_hashed(now, call, reply);
    }

    /// Like [`Replica::handle_fetched`], with a reply that is hashed already.
    pub fn handle_hashed(&mut self, now: Time, call: FetchNumber, reply: Result<Hashed, CallFailure>) {
        let Some(arriving) = &mut self.arriving else { return };
        arriving.fetch.handle(now, call, reply, &mut self.watched);
        self.take_state(now);
        self.fetch_more(now);
        self.note_minimum(false);
        self.note_answering(now, false);
    }

    /// Does what is due at the time that [`Replica::poll_timeout`] returned. Harmless at any other time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if self.tidy_at.is_some_and(|at| at <= now) {
            self.tidy(now);
        }
        self.answer_overdue(now);
        if self.serves_at.is_some() {
            self.serve_reads_of(false);
        }
        self.check_disk(now);
        self.fetch_more(now);
    }

    /// Gives up requests and commands that are past their deadlines, and frees outcomes that clients have acknowledged.
    fn tidy(&mut self, now: Time) {
        self.tidy_at = None;
        self.free_finished();
        let (own, requests) = self.waiting.drop_expired(now);
        for number in own {
            self.outputs.push_back(Output::Done(number, Err(CommandFailure::Unknown)));
        }
        for id in requests.into_iter().chain(self.reads.drop_expired(now)) {
            self.give_up(id);
        }
        self.submit_in_turn();
        if !self.waiting.is_empty() || self.reads.has_requests() {
            self.tidy_by(now);
        }
    }

    fn tidy_by(&mut self, now: Time) {
        if self.tidy_at.is_none() {
            self.tidy_at = Some(now + REPLICA_TIDIES_EVERY);
        }
    }

    /// Lets all members free the outcomes that clients have acknowledged. A client that goes on says so with its next
    /// command, so most of them are free by now.
    fn free_finished(&mut self) {
        let Some(state) = &self.replicated else { return };
        let finished = core::mem::take(&mut self.finished).into_iter();
        let kept: Vec<_> =
            finished.filter(|(client, below)| state.remembers_below(*client, *below)).collect();
        if !kept.is_empty() && !self.is_stopped {
            self.say(Word::Finished(kept));
        }
    }

    // --- commands of this process ---

    /// Begins a command of this process; [`Output::Done`] has its outcome. It may begin before this member has the
    /// state. Until `deadline`, and for an hour at most, it is repeated as often as necessary, and takes effect once.
    pub fn command(&mut self, now: Time, payload: Bytes, deadline: Time) -> CommandNumber {
        let (bytes, max) = (payload.len(), self.command_bytes_max());
        let failure = match () {
            () if bytes > max => Some(CommandFailure::TooLarge { bytes, max }),
            () if !self.waiting.has_room(bytes) => Some(CommandFailure::Busy),
            () => None,
        };
        if let Some(failure) = failure {
            let number = self.waiting.skip();
            self.outputs.push_back(Output::Done(number, Err(failure)));
            return number;
        }
        // Those that execute it remember it no longer.
        let deadline = deadline.min(now + COMMAND_WAITS_BOUND);
        self.tidy_by(now);
        let service = self.replicated.as_ref().filter(|_| !self.is_stopped).map(Replicated::founded_in);
        let (number, command) = self.waiting.add_own(now, payload, deadline, service);
        if service.is_some() {
            self.submit_command(command);
        }
        number
    }

    /// Begins a wait until the local state contains everything that was answered anywhere before now;
    /// [`Output::Ready`] ends it.
    ///
    /// # Errors
    /// The service was founded with [`Durability::Ordered`], which has local reads only.
    pub fn barrier(&mut self) -> Result<ReadNumber, OnlyLocalReads> {
        if !self.settings.durability.has_linearizable_reads() {
            return Err(OnlyLocalReads);
        }
        let number = self.reads.add_barrier();
        self.ask_for_confirmation();
        Ok(number)
    }

    /// Begins a wait until the command with this position is applied here; [`Output::Ready`] ends it.
    pub fn wait_for(&mut self, position: Position) -> ReadNumber {
        let number = self.reads.add_position(position);
        self.serve_reads();
        number
    }

    /// Stops this copy, which takes no more input. Requests that wait go to other members.
    pub fn end(&mut self) {
        if self.is_stopped {
            return;
        }
        self.is_stopped = true;
        let parked = self.handlers.take_requests().map(|asked| asked.id);
        let requests = self.waiting.take_requests().into_iter().chain(self.reads.take_requests());
        for (turn, id) in requests.chain(parked).enumerate() {
            self.pass_on(id, turn);
        }
    }

    /// Returns the maximum length of a command in bytes.
    pub fn command_bytes_max(&self) -> usize {
        self.settings.message_bytes_max.saturating_sub(word::COMMAND_HEAD_BYTES)
    }

    /// True if this member may leave without the loss of the state: it is not the only copy while other members wait
    /// for one.
    pub fn may_leave(&self) -> bool {
        let Some(state) = self.replicated.as_ref().filter(|_| !self.is_stopped) else { return true };
        let has_others = self.view.as_ref().is_some_and(|view| view.members.len() > 1);
        !has_others || state.copies().any(|copy| copy != self.me)
    }

    /// Returns the state, and the own commands and waits that have no outcome yet, for the copy of the next life.
    pub fn into_next(self, me: Uid) -> Replica<S> {
        let mut next = Replica::empty(me, self.settings);
        match self.durable {
            Some(mut durable) => {
                let mut closed = self.replicated.or(self.closed);
                if self.watched.broken(Planted::SurvivorForgets)
                    && let Some(closed) = &mut closed
                {
                    closed.forget_after(durable.forget_unwritten());
                }
                (durable.stage, durable.first) = (Stage::Closed, None);
                next.durable = Some(durable);
                next.closed = closed;
            }
            None => {
                next.is_used = self.is_used || self.replicated.is_some();
                let arriving = self.arriving.and_then(|arriving| arriving.machine);
                let machine = self.replicated.map(Replicated::into_machine).or(arriving);
                let (backlog, fetch) = (Backlog::default(), Fetch::new());
                next.arriving = Some(Arriving { machine, backlog, fetch });
                next.beginning = self.beginning;
            }
        }
        next.waiting.take_own(self.waiting);
        next.reads.take_own(self.reads);
        next.handlers = self.handlers.into_next();
        next.watched = self.watched;
        next
    }

    /// Returns the same copy with other settings: those of the group that was entered. For a copy that has taken no event.
    pub fn with_settings(mut self, settings: ReplicaSettings) -> Replica<S> {
        self.waiting.set_window(settings.window);
        self.settings = settings;
        self
    }

    /// Returns the own commands that have no outcome, and gives them up.
    pub fn give_up_commands(&mut self) -> Vec<CommandNumber> {
        self.waiting.take_all_own()
    }

    /// Returns how the next life of a member enters its group after the last one was excluded. It never founds: the
    /// members that excluded it go on with the state.
    pub fn entry_after_exclusion(&self, config: &GroupConfig) -> EntryMode {
        if self.watched.broken(Planted::ExcludedFounds) {
            return EntryMode::JoinOrFound(config.clone());
        }
        EntryMode::Join
    }

    // --- outputs ---

    /// Returns the next thing for the driver to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if matches!(output, Some(Output::Confirm)) {
            self.reads.confirmation_begins();
        }
        output
    }

    /// Returns when to call [`Replica::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_stopped {
            // Own commands wait for the next life, until their deadlines.
            return self.tidy_at;
        }
        let fetch = self.arriving.as_ref().and_then(|arriving| arriving.fetch.wake_at());
        let handlers = self.handlers.wake_at();
        let wakes = earlier(earlier(fetch, self.tidy_at), earlier(handlers, self.disk_wakes_at()));
        earlier(wakes, self.serves_at)
    }

    // --- what it is like now ---

    /// Returns the state that is here, whether or not this member serves with it. `replicated` and `closed` are never
    /// both present.
    fn state_here(&self) -> Option<&Replicated<S>> {
        self.replicated.as_ref().or(self.closed.as_ref())
    }

    /// Returns the user's state, or `None` as long as this member lacks it.
    pub fn machine(&self) -> Option<&S> {
        self.replicated.as_ref().map(Replicated::machine)
    }

    /// Returns the user's state as it is here: like [`Replica::machine`], but while this member lacks the state, the state
    /// machine that is to get it, with the state of an earlier life, if there was one. `None` only if it panicked in
    /// [`StateMachine::restore`].
    pub fn machine_at_hand(&self) -> Option<&S> {
        self.machine()
            .or_else(|| self.closed.as_ref().map(Replicated::machine))
            .or_else(|| self.arriving.as_ref().and_then(|arriving| arriving.machine.as_ref()))
    }

    /// True if this member has the state and may serve callers. A server with a disk that has opened the service waits until
    /// everything of before is durable, and one that has joined until its disk has the state.
    pub fn serves(&self) -> bool {
        let has_begun = |durable: &Durable| durable.first.is_none() && durable.has_state();
        self.replicated.is_some() && self.durable.as_ref().is_none_or(has_begun)
    }

    /// True if this member has fetched the state, and its disk does not have all of it yet.
    pub fn is_storing(&self) -> bool {
        self.replicated.is_some() && self.durable.as_ref().is_some_and(|durable| !durable.has_state())
    }

    /// Returns the position of the last command that was applied here: their number since the service was founded.
    pub fn position(&self) -> Position {
        self.state_here().map_or(0, Replicated::position)
    }

    /// Returns the place of the last entry that this server holds, applied or not, counted from the creation of the
    /// service; 0 without a disk.
    pub fn held(&self) -> Place {
        let state = self.state_here();
        state.and_then(Replicated::ledger).map_or(0, |ledger| ledger.end())
    }

    /// Returns the number of entries of the log that this server holds and has not applied; 0 without a disk.
    pub fn unapplied(&self) -> Place {
        let ledger = self.state_here().and_then(Replicated::ledger);
        ledger.map_or(0, |ledger| ledger.end() - ledger.applied())
    }

    /// Returns the digest of all outcomes through [`Replica::position`].
    pub fn chain(&self) -> Option<Digest> {
        self.replicated.as_ref().map(Replicated::chain)
    }

    /// Returns the members that have the state, as far as this member knows.
    pub fn copies(&self) -> Vec<Uid> {
        self.replicated.as_ref().map_or_else(Vec::new, |state| state.copies().collect())
    }

    /// Returns the view after the last event.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Returns the bytes that arrived and that are missing of the state that this member fetches.
    pub fn fetching(&self) -> Option<Progress> {
        self.arriving.as_ref().map(|arriving| arriving.fetch.progress())
    }

    /// Returns amounts that have named bounds, for checkers.
    pub fn account(&self) -> ReplicaAccount {
        let (clients, reply_bytes) = self.replicated.as_ref().map_or((0, 0), Replicated::remembered);
        let backlog_bytes = self.arriving.as_ref().map_or(0, |arriving| arriving.backlog.bytes());
        ReplicaAccount {
            clients,
            reply_bytes,
            commands: self.replicated.as_ref().map_or(0, Replicated::remembered_commands),
            waiting_bytes: self.waiting.bytes(),
            backlog_bytes,
            outputs: self.outputs.len(),
            bad_marks: self.durable.as_ref().map_or(0, |durable| durable.bad_marks),
        }
    }

    /// Returns the reply to a question that asks for this copy's status ([`CopyStatus::question`]); `None` if it asks for
    /// something else, which the [`Donor`] answers. `behind` is what the group says of this member
    /// ([`Group::behind_for`](crate::Group::behind_for)).
    pub fn answer_status(&self, question: &Bytes, behind: Duration) -> Option<Bytes> {
        let status = || CopyStatus {
            has_state: self.serves() && !self.is_stopped,
            is_halted: self.is_halted(),
            behind,
            position: self.position(),
            digest: self.chain().unwrap_or_default(),
            fetching: self.fetching().unwrap_or_default(),
            server: self.durable.as_ref().map_or(0, |durable| durable.block.server),
            generation: self.durable.as_ref().map_or(0, |durable| durable.block.generation),
            disk: self.disk_identity(),
            synced: self.durable.as_ref().map_or(0, Durable::synced),
            servers: self.durable.as_ref().map_or(0, |durable| durable.block.servers),
            process: self.process(),
            created_at_ms: self.block().and_then(Block::created_at_ms).unwrap_or(0),
            waits_for: self.waits_for(),
            anew: self.durable.as_ref().map_or_else(Vec::new, |durable| durable.block.anew.clone()),
        };
        CopyStatus::is_asked_by(question).then(|| status().write())
    }

    /// Returns a random number that tells this process from others, also those with a copy of its disk. It is a hash, since
    /// the uid under which the commands of this process are remembered is for no one else.
    pub fn process(&self) -> u64 {
        let hash = (self.settings.digest)(&self.settings.client.0.to_be_bytes());
        hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Prepares a part of the state that [`Replica::present_for`] and [`Replica::applied_state`] copy. Returns true if nothing is
    /// left to prepare. They copy all the same what is not prepared, which takes longer.
    pub fn prepare_state(&mut self) -> bool {
        self.replicated.as_mut().is_none_or(Replicated::prepare)
    }

    /// Returns what this member has for a newcomer. A state is copied only for a member of the group. Its parts are those
    /// of [`StateMachine::snapshot`]; digests are computed later, by [`Donor::answer`].
    pub fn present_for(&self, newcomer: Uid) -> Present {
        let state = self.replicated.as_ref().or(self.closed.as_ref().filter(|_| self.gives_closed()));
        match state.filter(|_| !self.is_stopped) {
            Some(state) if state.has_member(newcomer) => Present::State(state.snapshot(self.watched)),
            Some(_) => Present::TooOld,
            None => Present::Nothing,
        }
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.watched.planted = Some(bug);
    }

    /// Returns the rare states met so far: bit `n` stands for the `n`th of [`Probe::ALL`](crate::Probe::ALL).
    pub fn probes(&self) -> u128 {
        self.watched.probes
    }

    // --- notices ---

    /// Reports what an operator has to know, because no caller learns it.
    fn report(&mut self, event: &Event) {
        let notice = match event {
            // A reset by a quorum keeps what a majority holds, however many members are missing.
            Event::Reset { degraded: true, forced, excluded, .. }
                if *forced || self.settings.durability != Durability::HeldByMajority =>
            {
                Notice::Degraded { excluded: excluded.clone() }
            }
            Event::Conflict { address, gives_way, .. } => {
                Notice::OtherGroup { address: *address, gives_way: *gives_way }
            }
            Event::Halted { missing } => {
                self.has_no_quorum = true;
                Notice::Halted { missing: missing.clone() }
            }
            _ => return,
        };
        self.outputs.push_back(Output::Notice(notice));
    }

    /// Reports that the group has too few copies to carry out commands, or that it goes on. `resumed` is true if it has its
    /// quorum again.
    fn note_minimum(&mut self, resumed: bool) {
        let (copies, needed) = self.copies_and_minimum();
        // A view without members is that of a member that has left.
        let is_in = self.view.as_ref().is_some_and(|view| !view.members.is_empty());
        let lacks = is_in && copies < needed && !self.is_stopped;
        let (was_halted, before) = (self.is_halted(), self.below_minimum);
        self.has_no_quorum &= !resumed;
        self.below_minimum = lacks.then_some(copies);
        if lacks && before != self.below_minimum {
            self.outputs.push_back(Output::Notice(Notice::BelowMinimum { members: copies, needed }));
        } else if was_halted && !self.is_halted() && !self.is_stopped {
            self.outputs.push_back(Output::Notice(Notice::Resumed));
        }
    }

    /// Returns the number of members that have the state, and the number below which no command is carried out. A member
    /// that lacks the state does not know which have it, and counts all; so does a server with a disk, where other rules say
    /// what counts.
    fn copies_and_minimum(&self) -> (usize, usize) {
        let members = |view| counted(&self.settings.names, view, &|_| true);
        let copies = match &self.replicated {
            Some(state) if self.durable.is_none() => state.minimum().copies(self.watched),
            _ => self.view.as_ref().map_or(0, members),
        };
        (copies, self.settings.members_min.into())
    }

    /// True if no command is carried out at present: the group lacks its quorum, or has fewer copies than its minimum.
    pub fn is_halted(&self) -> bool {
        self.has_no_quorum || self.below_minimum.is_some()
    }
}

/// Returns the maximum time for which a client of such a state may wait for the outcome of a command.
fn waits_max<S: StateMachine>() -> Duration {
    S::COMMAND_WAITS_MAX.min(COMMAND_WAITS_BOUND)
}

/// Returns the identity under which a group's service is called: a caller stays with the instance that it spoke to.
pub fn instance_of(group: Instance) -> u64 {
    let folded = group.0 as u64 ^ (group.0 >> 64) as u64;
    folded.max(1)
}
