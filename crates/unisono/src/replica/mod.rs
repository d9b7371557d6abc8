//! Replicas: the same state at every member of a group, changed by commands that each take effect once.
//!
//! A program writes a [`StateMachine`]: what a command does to its state, how the state is written down and restored.
//! A [`Replica`] keeps one copy of it in this process and agrees with the replicas of the same name in other processes
//! on the order of all commands. So all copies are the same after each command, a command that was answered is held by
//! all of them, and a copy that starts later gets the state from the others. If processes die, the rest goes on.
//!
//! ```
//! use std::time::Duration;
//! use unisono::replica::{Command, NotRestored, Outcome, Replica, StateMachine};
//! use unisono::{Bytes, Formation, Options};
//!
//! #[derive(Default)]
//! struct Counter {
//!     value: i64,
//! }
//!
//! impl StateMachine for Counter {
//!     fn apply(&mut self, command: &Command<'_>) -> Outcome {
//!         match std::str::from_utf8(command.payload).ok().and_then(|text| text.parse::<i64>().ok()) {
//!             Some(number) => self.value += number,
//!             None => return Outcome::Refuse("type a number".into()),
//!         }
//!         Outcome::Reply(self.value.to_string().into())
//!     }
//!
//!     fn snapshot(&self) -> Vec<Bytes> {
//!         vec![Bytes::copy_from_slice(&self.value.to_be_bytes())]
//!     }
//!
//!     fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
//!         let bytes = parts.concat().try_into().map_err(|_| NotRestored("not eight bytes"))?;
//!         self.value = i64::from_be_bytes(bytes);
//!         Ok(())
//!     }
//! }
//!
//! # let start = |me: &'static str| {
//! #     std::thread::spawn(move || -> Result<Replica<Counter>, Box<dyn std::error::Error + Send + Sync>> {
//! // In three processes, one with each of the names. Two suffice to begin.
//! let participants = vec!["ann".parse()?, "bob".parse()?, "cleo".parse()?];
//! let formation = Formation { participants, at_least: 2, within: Duration::from_secs(30) };
//! let options = Options { name: me.parse()?, ..Options::default() };
//! # let service = &format!("replica-docs-{}", std::process::id());
//! let replica = Replica::join_or_form(service, formation, Counter::default(), &options)?;
//!
//! let done = replica.command("5")?;
//! println!("{} after command {}", String::from_utf8_lossy(&done.reply), done.position);
//! println!("at least that: {}", replica.read(|counter| counter.value)?);
//! # assert!(replica.read(|counter| counter.value)? >= 5);
//! #         // The other one cannot read without this one.
//! #         Ok(replica)
//! #     })
//! # };
//! # let (ann, bob) = (start("ann"), start("bob"));
//! # let both = [ann.join().unwrap().unwrap(), bob.join().unwrap().unwrap()];
//! # drop(both);
//! ```
//!
//! # Callers
//!
//! Processes without a copy call the service: [`Replica::serve`] answers at a port, and any member may get the call. It
//! takes effect once, whichever members die meanwhile. [`StateMachine::kind`] says which requests only read.
//!
//! # Reading
//!
//! | | what it returns | cost |
//! |---|---|---|
//! | [`look`](Replica::look) | the local state, which may be behind | none |
//! | [`look_at`](Replica::look_at) | the local state with a certain command in it: read what you wrote | usually none |
//! | [`read`](Replica::read) | a state with everything in it that was answered anywhere before | one round trip to a majority, shared by all reads that wait |
//!
//! # Founding
//!
//! The founder of a service begins with an empty state, so founding must not happen by accident. [`Founding`] has the
//! ways in; [`Replica::join_or_form`] is the one for processes that are started and restarted by themselves. A member that
//! the others exclude, because it was cut off or stopped for a while, comes back by itself and fetches the state.
//!
//! # On disk
//!
//! [`Replica::open_on_disk`] keeps the state in a folder of each of up to nine servers, which have ids. What was answered
//! survives the crash of all of them: any majority goes on with it. A server that waits says for which others
//! ([`Replica::disk`]), and [`DiskOptions`] has what an operator decides when disks are lost for ever.
//!
//! # Threads
//!
//! A replica has three threads, on disk two more and one while it writes a snapshot, and one for each door. The state machine is called by any of them and by
//! those of the program, one at a time. A call that takes long delays everything else of this member.

// The modules:
//
// | | |
// |---|---|
// | `disk` | a server with a disk: which one it is, and the thread that answers while it is in no group |
// | `writing` | jobs for the disk: the thread that does them, and those that another thread does at once |
// | `copy` | the state behind its lock, and what each input leads to |
// | `doors` | callers with another key |
// | `life` | one life: a member of the group, and what is served beside it |
// | `order` | the thread that takes all input: events, and callers' requests |
// | `errands` | the thread for what has to wait |
// | `transfer` | the thread that gives the state to newcomers; questions to others |
// | `pending`, `waits` | handles on what is under way |
// | `folder` | the folder where a durable replica keeps its state |
// | `options`, `status`, `error` | types of the interface |

mod copy;
mod disk;
mod doors;
mod errands;
mod error;
mod folder;
mod life;
mod options;
mod order;
mod pending;
mod status;
#[cfg(test)]
mod tests;
mod transfer;
pub(crate) mod waits;
mod writing;

pub use disk::{
    DISK_NAME_BYTES_MAX, DISK_SERVERS_MAX, DiskDurability, DiskError, DiskOptions, DiskState, check_folder,
};
pub use error::{NotServed, ReadFailure, ReplicaEnd, ReplicaError};
use options::OPEN_WITHIN;
pub use options::{Founding, ReplicaOptions};
pub use pending::{Notices, PendingCommand, PendingRead, Ready};
pub use status::{ReplicaState, Status, any_copy_status, copy_status, not_applying};
pub use unisono_core::replica::disk::{Block, Created, Escape};
pub use unisono_core::replica::{
    Command, CommandFailure, CopyStatus, Digest, Done, Durability, HANDLERS_MAX, HandlerError, Kind,
    NotRestored, Notice, OnlyLocalReads, Outcome, Position, Server, StateMachine, StopReason, instance_of,
};

use crate::engine::Listed;
use crate::error::OpenError;
use crate::opening::random;
use crate::options::Options;
use crate::rpc::{Port, PrivatePort};
use bytes::Bytes;
use copy::{Copy, State};
use folder::Folder;
use life::Life;
use pending::Awaited;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::replica as core;
use unisono_core::replica::disk::Store;
use unisono_core::{Formation, Uid};
use waits::block_on;

/// Maximum time for which dropping the last handle of a replica waits until the member is out.
const REPLICA_FAREWELL: Duration = Duration::from_secs(1);

/// A handle on this process's copy of a replicated state. Clones are the same copy. When the last one is dropped, the
/// copy leaves its group, which takes at most a second.
pub struct Replica<S: StateMachine + Send + 'static> {
    owner: Arc<Owner<S>>,
}

/// Ends the replica when the last handle is dropped.
struct Owner<S: StateMachine + Send + 'static>(Arc<Copy<S>>);

impl<S: StateMachine + Send + 'static> Drop for Owner<S> {
    fn drop(&mut self) {
        match thread::panicking() {
            false => self.0.end(REPLICA_FAREWELL),
            true => self.0.end(Duration::ZERO),
        }
    }
}

impl<S: StateMachine + Send + 'static> Clone for Replica<S> {
    fn clone(&self) -> Replica<S> {
        Replica { owner: self.owner.clone() }
    }
}

impl<S: StateMachine + Send + 'static> Replica<S> {
    /// Joins the service of this name, or forms it together with the other participants if no member answers: the safe
    /// way in. Blocks until this process has the state, at most 30 s, which count anew while the state arrives. `machine` is
    /// the state with which a founder begins.
    pub fn join_or_form(
        name: &str,
        formation: Formation,
        machine: S,
        options: &Options,
    ) -> Result<Replica<S>, ReplicaError> {
        Replica::open(name, Founding::JoinOrForm(formation), machine, ReplicaOptions::default(), options)
    }

    /// Founds the service of this name or enters it. Blocks until this process has the state, at most for
    /// [`ReplicaOptions::open_within`]. `machine` is the state with which a founder begins; a joiner's is replaced.
    pub fn open(
        name: &str,
        founding: Founding,
        machine: S,
        settings: ReplicaOptions,
        options: &Options,
    ) -> Result<Replica<S>, ReplicaError> {
        let within = settings.open_within.unwrap_or(OPEN_WITHIN);
        let replica = Replica::begin(name, founding, machine, settings, options)?;
        replica.wait_for_state(Some(within))?;
        Ok(replica)
    }

    /// Like [`Replica::open`], but returns at once. [`Replica::ready`] waits for the state; to cancel the opening, drop
    /// the replica. Commands may be given before it is ready.
    pub fn begin(
        name: &str,
        founding: Founding,
        machine: S,
        settings: ReplicaOptions,
        options: &Options,
    ) -> Result<Replica<S>, ReplicaError> {
        settings.check()?;
        let client = client()?;
        let copy = core::Replica::new(client, machine, Copy::<S>::provisional(client, &settings));
        Replica::run(Copy::new(name, founding, settings, options, (client, copy)), None)
    }

    /// Opens this process's copy of a service on disk, as one of its servers. Blocks until it serves, however late the other
    /// servers start, unless [`ReplicaOptions::open_within`] sets a limit. `machine` is the state with which the service
    /// begins; that of the disk replaces it. All servers together create the service; afterwards any majority of them goes on
    /// with everything that was answered, whatever crashed in between.
    ///
    /// To show what it waits for, use [`Replica::begin_on_disk`], [`Replica::ready`] and [`Replica::disk`], as the example
    /// `ledger` does.
    ///
    /// # Errors
    /// The folder cannot be used ([`DiskError`]); this process cannot be this server ([`ReplicaEnd::Stopped`] says why); or
    /// it did not come to serve within the limit, and the error names the servers that it waited for.
    pub fn open_on_disk(
        name: &str,
        disk: DiskOptions,
        machine: S,
        settings: ReplicaOptions,
        options: &Options,
    ) -> Result<Replica<S>, ReplicaError> {
        let within = settings.open_within;
        let replica = Replica::begin_on_disk(name, disk, machine, settings, options)?;
        replica.wait_for_state(within)?;
        Ok(replica)
    }

    /// Like [`Replica::open_on_disk`], but returns as soon as the folder has been read.
    pub fn begin_on_disk(
        name: &str,
        disk: DiskOptions,
        machine: S,
        settings: ReplicaOptions,
        options: &Options,
    ) -> Result<Replica<S>, ReplicaError> {
        let client = client()?;
        // How many members hold a command follows from how many disks have to.
        let settings = ReplicaOptions { durability: Durability::HeldByAll, ..settings };
        let (start, store) = disk::open(name, &disk)?;
        let provisional = Copy::<S>::provisional(client, &settings);
        let copy = core::Replica::with_disk(client, machine, provisional, &start)
            .map_err(|reason| ReplicaEnd::Stopped(StopReason::NotRestored(reason)))?;
        let options = Options { name: disk.name(), ..options.clone() };
        let mut copy = Copy::new(name, disk.founding(), settings, &options, (client, copy));
        copy.disk = Some(disk);
        Replica::run(copy, Some(store))
    }

    /// Waits until this process has the state. The time counts anew while the state arrives or is written to the disk.
    fn wait_for_state(&self, within: Option<Duration>) -> Result<(), ReplicaError> {
        let mut before = self.status().state;
        // A limit that the clock cannot hold is none.
        let within = within.unwrap_or(Duration::MAX);
        while !self.ready().wait(within)? {
            let present = self.status().state;
            let gets_on = match present {
                ReplicaState::Fetching { bytes_here, .. } => bytes_here > 0 && present != before,
                // A disk that does not get on ends the replica.
                ReplicaState::Storing => true,
                _ => false,
            };
            if !gets_on {
                let last = self.copy().lock().last_failure.clone();
                return Err(match self.disk() {
                    Some((_, waits_for)) => ReplicaError::ServersMissing { within, waits_for, last },
                    None => ReplicaError::TimedOut { within, last },
                });
            }
            before = present;
        }
        Ok(())
    }

    /// Starts the threads.
    fn run(copy: Copy<S>, store: Option<Store<Folder>>) -> Result<Replica<S>, ReplicaError> {
        let copy = Arc::new(copy);
        let (questions, asked) = mpsc::channel();
        let (hashes, to_hash) = mpsc::channel();
        let (arrives, hash) = (hashes.clone(), copy.clone());
        let (errand, donor, order) = (copy.clone(), copy.clone(), copy.clone());
        let begun = Replica::write_to(&copy, store)
            .and_then(|()| spawn("hash", move || transfer::hash(&hash, &to_hash)))
            .and_then(|()| spawn("errands", move || errands::run(&errand, &arrives)))
            .and_then(|()| spawn("transfer", move || transfer::take(&donor, &asked, &hashes)))
            .and_then(|()| spawn("order", move || order::follow(&order, &questions)));
        if let Err(error) = begun {
            // The threads that were started end.
            copy.conclude(ReplicaEnd::Closed);
            return Err(ReplicaError::Thread(error));
        }
        Ok(Replica { owner: Arc::new(Owner(copy)) })
    }

    /// Starts the threads of a server with a disk.
    fn write_to(copy: &Arc<Copy<S>>, store: Option<Store<Folder>>) -> io::Result<()> {
        let Some(store) = store else { return Ok(()) };
        let (jobs, to_do) = writing::jobs(store);
        copy.lock().jobs = Some(jobs);
        let (writer, desk) = (copy.clone(), copy.clone());
        spawn("disk", move || writing::write(&writer, &to_do))?;
        spawn("desk", move || disk::answer_while_waiting(&desk))
    }

    fn copy(&self) -> &Arc<Copy<S>> {
        &self.owner.0
    }

    fn awaited(&self) -> Arc<dyn Awaited> {
        self.copy().clone()
    }

    /// Returns a handle to wait, or to await, that this process has the state.
    pub fn ready(&self) -> Ready {
        Ready::new(self.awaited())
    }

    // --- commands ---

    /// Gives a command, and returns the reply of the state machine with the command's position. Blocks until the outcome
    /// is known, for about [`ReplicaOptions::command_within`] at most. The command takes effect once, also if members die
    /// or this one is excluded meanwhile and comes back.
    pub fn command(&self, payload: impl Into<Bytes>) -> Result<Done, CommandFailure> {
        self.start(payload).wait()
    }

    /// Begins a command and returns it, to wait for its outcome later or to await it.
    pub fn start(&self, payload: impl Into<Bytes>) -> PendingCommand {
        let (payload, within) = (payload.into(), self.copy().settings.command_within);
        let begin = |state: &mut State<S>, now| {
            if state.end.is_some() {
                return Err(CommandFailure::Ended);
            }
            let begun = state.copy_mut().map(|copy| copy.command(now, payload, now + within));
            let number = begun.ok_or(CommandFailure::Ended)?;
            state.commands.expect(number);
            Ok(number)
        };
        let begun = match self.copy().is_elsewhere() {
            true => Err(CommandFailure::Ended),
            false => self.copy().step(begin).unwrap_or(Err(CommandFailure::Ended)),
        };
        PendingCommand::new(self.awaited(), begun)
    }

    // --- reads ---

    /// Lets the caller read the local state, which may be behind that of others. Before the replica is
    /// [ready](Replica::ready) this is the state that the program gave; while it re-enters, that of its earlier life.
    ///
    /// # Panics
    /// The state machine is gone, because it panicked in [`StateMachine::restore`].
    pub fn look<T>(&self, at: impl FnOnce(&S) -> T) -> T {
        let state = self.copy().lock();
        let machine = state.copy().and_then(core::Replica::machine_at_hand);
        at(machine.unwrap_or_else(|| panic!("the state machine panicked when it restored a state")))
    }

    /// Reads the local state once the command at this position is applied here: a program that knows the position of its
    /// command ([`Done::position`]) reads what it wrote, at any replica.
    pub fn look_at<T>(&self, position: Position, at: impl FnOnce(&S) -> T) -> Result<T, ReadFailure> {
        self.look_at_start(position).wait(self.copy().settings.command_within)?;
        Ok(self.look(at))
    }

    /// Begins to wait until the command at this position is applied here.
    pub fn look_at_start(&self, position: Position) -> PendingRead {
        self.begin_read(|copy| Ok(copy.wait_for(position)))
    }

    /// Blocks until the local state contains everything that was answered anywhere before this call, so that
    /// [`look`](Replica::look) is a linearizable read. Takes no place in the order, and works while a minority is dead.
    pub fn barrier(&self) -> Result<(), ReadFailure> {
        self.barrier_start().wait(self.copy().settings.command_within)
    }

    /// Begins a [`barrier`](Replica::barrier), to wait for it later or to await it. All that begin while one is under
    /// way share the next.
    pub fn barrier_start(&self) -> PendingRead {
        self.begin_read(|copy| copy.barrier().map_err(ReadFailure::from))
    }

    /// Reads a state that contains everything that was answered anywhere before this call: a barrier, then a look.
    pub fn read<T>(&self, at: impl FnOnce(&S) -> T) -> Result<T, ReadFailure> {
        self.barrier()?;
        Ok(self.look(at))
    }

    // --- handlers ---

    /// Claims a handler: the first member that claims it holds it, and answers the calls that name it
    /// ([`Wishes::handler`](crate::rpc::Wishes::handler)). When this member ends, however it ends, the next in line holds it.
    /// The claim is this process's: its member makes it again when it enters the group again. Claiming twice is one claim.
    ///
    /// At most one member holds a handler at each point of the order. A member that the others have excluded may not know it
    /// yet, so two members may answer two attempts at the same call: what a holder does besides its answer must tell repeats
    /// by the call's client and number.
    ///
    /// # Errors
    /// The name is none, or this process claims too many handlers.
    pub fn claim_handler(&self, name: &str) -> Result<(), HandlerError> {
        let claim =
            |state: &mut State<S>, _| state.copy_mut().map_or(Ok(()), |copy| copy.claim_handler(name));
        self.copy().step(claim).unwrap_or(Ok(()))
    }

    /// Gives a handler up. If this member holds it, the next in line has it then.
    pub fn give_up_handler(&self, name: &str) {
        let give_up = |state: &mut State<S>, _| {
            state.copy_mut().into_iter().for_each(|copy| copy.give_up_handler(name));
        };
        self.copy().step(give_up);
    }

    /// Returns the life of the member that holds a handler, as far as this copy knows.
    pub fn handler_holder(&self, name: &str) -> Option<Uid> {
        self.copy().lock().copy()?.handler_holder(name)
    }

    fn begin_read(
        &self,
        begin: impl FnOnce(&mut core::Replica<S>) -> Result<core::ReadNumber, ReadFailure>,
    ) -> PendingRead {
        let begin = |state: &mut State<S>, _| {
            if state.end.is_some() {
                return Err(ReadFailure::Ended);
            }
            let number = state.copy_mut().map_or(Err(ReadFailure::Ended), begin)?;
            state.reads.expect(number);
            Ok(number)
        };
        let begun = match self.copy().is_elsewhere() {
            true => Err(ReadFailure::Ended),
            false => self.copy().step(begin).unwrap_or(Err(ReadFailure::Ended)),
        };
        PendingRead::new(self.awaited(), begun)
    }

    // --- callers ---

    /// Answers callers at this port from now on, or from when this process has the state, also after re-entries. Returns
    /// the port to which they send. All replicas may serve the same port: a caller reaches any of them.
    pub fn serve(&self, port: &PrivatePort) -> Result<Port, NotServed> {
        self.copy().serve(port)?;
        Ok(port.public())
    }

    /// Answers callers at this port that reach this process by other options than the members do: callers that have
    /// another key can neither join nor read what members say to each other. Otherwise as [`Replica::serve`].
    ///
    /// `options` need another port of UDP than the members', unless both are chosen by the system. What this process
    /// serves at other ports by the same options shares the address.
    pub fn serve_with(&self, port: &PrivatePort, options: &Options) -> Result<Port, NotServed> {
        doors::open(self.copy(), port, options)?;
        Ok(port.public())
    }

    // --- observing ---

    /// Returns what makes this server's disk count, and the ids of the servers that it waits for; `None` without a disk.
    pub fn disk(&self) -> Option<(Block, Vec<u8>)> {
        let state = self.copy().lock();
        let copy = state.copy()?;
        Some((copy.block()?.clone(), copy.waits_for()))
    }

    /// True if this process took part in creating the service on disk, which began with nothing.
    pub fn has_created(&self) -> bool {
        self.copy().lock().copy().is_some_and(core::Replica::has_created)
    }

    /// Returns the ids of the servers in this one's group whose disks do not count, because they are empty or older than
    /// another server knows them to have been; only while this server waits for a good one.
    pub fn useless_disks(&self) -> Vec<u8> {
        self.copy().lock().copy().map_or_else(Vec::new, core::Replica::useless_disks)
    }

    /// Returns the state of a server with a disk that serves, for a backup; `None` if it does not serve at present.
    /// [`DiskState::write_to`] makes a folder of it.
    pub fn disk_state(&self) -> Option<DiskState> {
        self.copy().prepare_state();
        let state = self.copy().lock();
        let copy = state.copy()?;
        let (place, parts) = copy.applied_state()?;
        Some(DiskState { block: copy.block()?.clone(), place, parts })
    }

    /// Returns the number of datagrams that the present life in the group has sent, those of calls included. A multicast
    /// counts once.
    pub fn datagrams_sent(&self) -> u64 {
        let life = self.copy().lock().life.clone();
        let sent =
            |life: Arc<Life>| life.group.counters().datagrams_sent + life.client.counters().datagrams_sent;
        life.map_or(0, sent)
    }

    /// Returns what this replica is doing, and how far it is.
    pub fn status(&self) -> Status {
        let behind = self.copy().behind();
        let state = self.copy().lock();
        let copy = state.copy();
        let progress = copy.and_then(core::Replica::fetching).unwrap_or_default();
        let what = match (&state.end, &state.life) {
            (Some(_), _) => ReplicaState::Ended,
            (None, None) if state.lives > 0 => ReplicaState::Reentering,
            (None, None) => ReplicaState::Entering,
            (None, Some(_)) if state.is_halted => ReplicaState::Halted,
            (None, Some(_)) if state.is_informed() => ReplicaState::Serving,
            (None, Some(_)) if copy.is_some_and(core::Replica::is_storing) => ReplicaState::Storing,
            (None, Some(_)) => ReplicaState::fetching(progress),
        };
        let view = copy.and_then(core::Replica::view).filter(|_| state.life.is_some());
        Status {
            state: what,
            behind,
            position: copy.map_or(0, core::Replica::position),
            members: view.map_or_else(Vec::new, |view| view.members.clone()),
            copies: copy.map_or_else(Vec::new, core::Replica::copies),
            digest: copy.and_then(core::Replica::chain),
            bad_marks: copy.map_or(0, |copy| copy.account().bad_marks),
        }
    }

    /// Returns the uid of this process's present life in the group: that of the member that receives its commands
    /// ([`Command::received_by`]). `None` while it is in no group.
    pub fn me(&self) -> Option<Uid> {
        let life = self.copy().lock().life.clone()?;
        Some(life.group.info().me)
    }

    /// Returns the last address that sent a datagram of this group under another key, or with a key where this process has
    /// none: neither process can read what the other sends. See [`Info::foreign`](crate::Info::foreign).
    pub fn foreign(&self) -> Option<SocketAddr> {
        let (life, before) = {
            let state = self.copy().lock();
            (state.life.clone(), state.foreign)
        };
        life.and_then(|life| life.group.info().foreign).or(before)
    }

    /// Returns the next notice for the operator; blocks until there is one. Returns `None` once the replica has ended.
    pub fn next_notice(&self) -> Option<Notice> {
        let mut listed = Listed::default();
        block_on(None, |context| self.copy().poll_notice(context, &mut listed))?
    }

    /// Returns the notices for the operator as a stream. Each notice goes to one of those that ask for it.
    pub fn notices(&self) -> Notices {
        Notices::new(self.awaited())
    }

    // --- the end ---

    /// Takes no more requests, answers those that were taken, waits until another member has the state if others are
    /// there, and leaves the group: all that within `timeout`, or else at once. Commands that have no outcome then fail
    /// as [`CommandFailure::Unknown`]. Blocks; an asynchronous program awaits [`Replica::end_async`].
    pub fn end(&self, timeout: Duration) {
        self.copy().end(timeout);
    }

    /// Ends as [`Replica::end`] does, for asynchronous programs: a thread of its own does it, also if the future is
    /// dropped. Where the system grants no thread, the replica ends at once.
    pub async fn end_async(&self, timeout: Duration) {
        let copy = self.copy().clone();
        if spawn("end", move || copy.end(timeout)).is_err() {
            self.copy().end(Duration::ZERO);
        }
        self.ended().await;
    }

    /// Blocks until this replica has ended, and returns why.
    pub fn wait(&self) -> ReplicaEnd {
        let mut listed = Listed::default();
        let end = block_on(None, |context| self.copy().poll_end(context, &mut listed));
        end.unwrap_or(ReplicaEnd::Closed)
    }

    /// Waits until this replica has ended, and returns why: as [`Replica::wait`], for asynchronous programs.
    pub async fn ended(&self) -> ReplicaEnd {
        let mut listed = Listed::default();
        poll_fn(|context| self.copy().poll_end(context, &mut listed)).await
    }
}

impl<S: StateMachine + Send + 'static> Copy<S> {
    /// Ends this replica: [`Replica::end`].
    fn end(&self, timeout: Duration) {
        if self.is_elsewhere() {
            return;
        }
        let begun = Instant::now();
        let rest = |share: f64| timeout.mul_f64(share).saturating_sub(begun.elapsed());
        let life = self.change(|state| {
            state.is_closing = true;
            state.life.clone()
        });
        if let Some(life) = life {
            life.drain(rest(0.5));
            let mut listed = Listed::default();
            block_on(Some(Instant::now() + rest(0.75)), |context| {
                let mut state = self.lock();
                state.register(context, &mut listed);
                let may_leave = state.end.is_some() || state.copy().is_none_or(core::Replica::may_leave);
                if may_leave { Poll::Ready(()) } else { Poll::Pending }
            });
            life.leave(rest(1.0));
        }
        // The thread that follows the order concludes this. If it looks for seeds just now, nothing waits for it.
        let (mut listed, until) = (Listed::default(), Instant::now() + rest(1.0));
        if block_on(Some(until), |context| self.poll_end(context, &mut listed)).is_none() {
            self.conclude(ReplicaEnd::Closed);
        }
    }
}

impl<S: StateMachine + Send + 'static> fmt::Debug for Replica<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replica({:?}, {:?})", self.copy().name, self.status().state)
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("unisono-{name}")).spawn(work).map(drop)
}

/// Returns a uid under which the commands of a process are remembered.
fn client() -> Result<Uid, ReplicaError> {
    let refused = |error: OpenError| ReplicaError::Ended(ReplicaEnd::NotEntered(Arc::new(error)));
    Ok(Uid(u64::from_ne_bytes(random().map_err(refused)?)))
}
