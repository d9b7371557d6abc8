//! Reliable, totally ordered group communication.
//!
//! A **group** is a set of processes, its **members**, usually on several machines. Every member receives all messages
//! of all members, its own included, in the same order. Joins, leaves and crashes are events in this order too. So
//! members that start in the same state and apply the same events stay in the same state. With this you can build a
//! replicated service, a lock, a shared variable or a work queue. There is no server to set up.
//!
//! # The first program
//!
//! ```no_run
//! use unisono::{Event, Group, GroupConfig, Options};
//!
//! // Joins the group "kitchen", or founds it if no member answers. Returns when this process is a member.
//! let group = Group::join_or_create("kitchen", GroupConfig::default(), "hello", &Options::default())?;
//!
//! // Returns when the message has a sequence number (seqno), and a second member, if there is one, holds it.
//! let place = group.send("dinner is ready")?;
//!
//! // Every member, this one included, receives the same events with the same seqnos.
//! loop {
//!     match group.receive()? {
//!         Event::Message { seqno, payload, .. } => println!("{seqno}: {payload:?}"),
//!         Event::Joined { seqno, member, .. } => println!("{seqno}: {} came in", member.name),
//!         Event::Left { seqno, member, .. } => println!("{seqno}: {} went home", member.name),
//!         Event::Reset { seqno, excluded, .. } => println!("{seqno}: lost {} of us", excluded.len()),
//!         _ => {}
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start it twice: the second process joins the group that the first one founded, and from then on both print the same
//! lines. More programs are in the folder `examples`: `hello` (two processes greet each other), `chat` (names, and a
//! thread for each direction), `calls`; and, with replicas, `ledger` (accounts on the disks of three machines), `counter`
//! (a number that survives `kill -9`), `map`, `lock`, `queue` and `tsp`. Run them with `cargo run -p unisono --example NAME`.
//!
//! # State on three machines
//!
//! A [`Replica`](replica::Replica) keeps a state equal on several machines, in memory or on their disks. One server of
//! three, on disk, with traffic sealed by a key:
//!
//! ```no_run
//! # #[derive(Default)]
//! # struct Ledger(std::collections::BTreeMap<String, i64>);
//! # impl unisono::replica::StateMachine for Ledger {
//! #     fn apply(&mut self, _: &unisono::replica::Command<'_>) -> unisono::replica::Outcome { "".into() }
//! #     fn snapshot(&self) -> Vec<unisono::Bytes> { Vec::new() }
//! #     fn restore(&mut self, _: &[unisono::Bytes]) -> Result<(), unisono::replica::NotRestored> { Ok(()) }
//! # }
//! use unisono::replica::{DiskOptions, Replica, ReplicaOptions};
//! use unisono::{Key, Options, rpc::PrivatePort};
//!
//! let options = Options {
//!     key: Some(Key::load("ledger.key")?),
//!     bind: Some("192.0.2.1:7195".parse()?),
//!     seeds: ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(String::from).into(),
//!     ..Options::default()
//! };
//! let disk = DiskOptions::of_three(1, "/var/lib/ledger");
//! // After the first start, `DiskOptions { existing: true, ..disk }` refuses an empty folder: a disk is not mounted.
//! // `Ledger` is a `StateMachine`. Waits until two of the three servers are there; for the first time, until all are.
//! let ledger = Replica::open_on_disk("ledger", disk, Ledger::default(), ReplicaOptions::default(), &options)?;
//! ledger.serve(&PrivatePort::from_name("ledger"))?;
//! ledger.command("ann 5")?; // two of the three disks have it
//! let balance = ledger.read(|ledger| ledger.0.get("ann").copied())?; // includes all that was answered before
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The handles
//!
//! | handle | what it does |
//! |---|---|
//! | [`Group`] | one member of a group; its calls block the thread |
//! | [`AsyncGroup`] | the same; its calls are futures, for any executor |
//! | [`Ticket`], [`Batch`] | the outcome of one message, of several messages, that were sent without waiting |
//! | [`OutsideSender`] | sends to a group from a process that is no member |
//! | [`look`] | asks a group for a report; the caller need not be a member |
//! | [`replica::Replica`] | this process's copy of a state that all members keep, in memory or on disk |
//! | [`locks::LockService`] | locks and leader election |
//! | [`rpc::Client`], [`rpc::Server`] | calls: ask a service, offer one |
//!
//! [`Options`] say how a process takes part: its name, address, [`Key`] and seeds. [`GroupConfig`] says how the group
//! works; its founder chooses it.
//!
//! # Errors
//!
//! Every error type lists what can fail, and each variant says whether anything changed, what caused it, and what to
//! do next: [`OpenError`] for entering a group, [`SendError`] and [`SendFailure`] for messages, [`Ended`] for the end
//! of the events, [`LeaveFailure`], [`LookError`], [`KeyError`], and [`rpc::CallFailure`] for calls. The texts of the
//! errors are written for the person who runs the program. Their `Debug` contains that text too, after the name of
//! the variant, so a `main` that returns an error prints what to do:
//!
//! ```
//! use unisono::rpc::CallFailure;
//! let failure = CallFailure::NotFound;
//! assert_eq!(format!("{failure:?}"), format!("NotFound: {failure}"));
//! ```
//!
//! # How it works
//!
//! One member, the **sequencer**, gives every message the next seqno and sends it to all members. A member recognises
//! a lost message by the gap in the seqnos and requests a retransmission. A message costs two datagrams, or three in
//! a group of three members without multicast: about as much as a remote procedure call. If the sequencer leaves or
//! crashes, another member takes over.
//!
//! Each life of a member has a [`Uid`] of 64 random bits, which is never used again. People call the member by the
//! [`Name`] in its [`Options`]. The names are in the [`View`] that a member receives first ([`Event::Entered`]) and
//! in every later [`Event::Joined`]; [`Group::members`] returns the present ones.
//!
//! # What resilience buys
//!
//! [`GroupConfig::resilience`], r, is the number of members that may crash **at once** without the loss of an accepted
//! message. A message is accepted when r + 1 members hold it (with fewer members, when all do).
//!
//! - With r = 0, [`Group::send`] returns when the message has its seqno. If the sequencer then crashes before another
//!   member has the message, it is lost, and none of the remaining members has received it.
//! - With r = 1 (the default) it returns when two members hold the message, with r = 2 when three do. That costs an
//!   acknowledgement by each of them, and a little more than one additional round trip. No member receives a message
//!   before r + 1 members hold it, so a message that an application has acted upon survives r crashes.
//!
//! A single message can ask for more, by its [`Quality`]: [`Group::send_with`].
//!
//! # What happens in a crash
//!
//! By default the other members suspect a crashed member after about 250 ms ([`Settings::silence`] plus
//! [`Settings::patience`]), or after about 125 ms if a message waits for it. They agree on the members that remain, and
//! exchange the messages that some of them lack. Then they go on with an [`Event::Reset`], which has the same seqno at all
//! of them and names the excluded members. All remaining members have received the same events before it. If r > 0 and
//! more than r members are missing, the event says `degraded`: messages may be lost, but never silently.
//!
//! A message that was under way has one of three outcomes:
//!
//! | [`send`](Group::send) returns | meaning | what to do |
//! |---|---|---|
//! | `Ok(seqno)` | it has this seqno, and r + 1 members hold it | nothing |
//! | [`Failed`](SendFailure::Failed) | a reset dropped it: no remaining member will ever receive it | send it again |
//! | [`Unknown`](SendFailure::Unknown) | this member was cut off: the others may have it or not | join again and look |
//!
//! A reset needs a majority of the members ([`GroupConfig::quorum`] changes that). So if the network splits a group,
//! at most one part goes on. The members of the other part wait, or receive [`Excluded`](Event::Excluded) and may
//! join again as new members. In a group of two, the member that joined first is the majority: the second cannot go
//! on without it.
//!
//! A member that runs, but whose application does not receive, is not suspected as crashed. The others wait for it, or
//! exclude it after a time ([`GroupConfig::slow_member`]). The command `unisono why GROUP`, or [`Group::report`], names
//! it.
//!
//! # Joining a running group
//!
//! A member receives the events after its own join, and none from before. The earlier state has to come from the
//! application. A [`Replica`](replica::Replica) does all of that: it fetches a state of any size from the other members,
//! repeats commands that a reset dropped, and enters again after an exclusion.
//!
//! # Two machines
//!
//! By default no datagram leaves this machine. For a group on several machines, make a [`Key`] and give it to every
//! member. All datagrams are then sealed with it, and a process without the key can neither read them nor take part.
//!
//! ```no_run
//! use unisono::{Group, GroupConfig, Key, Options};
//! let options = Options {
//!     key: Some(Key::load("/etc/kitchen.key")?),
//!     // Only without multicast between the machines: members to ask for the group.
//!     seeds: vec!["10.0.0.7:7195".into()],
//!     ..Options::default()
//! };
//! let group = Group::join("kitchen", "", &options)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sending many messages
//!
//! `send` blocks until its message has a seqno. [`Group::submit`] does not block: it returns a [`Ticket`], to wait
//! for later or to drop. [`Group::submit_all`] takes many messages and packs them into few datagrams. A member may
//! have [`GroupConfig::window`] messages under way; they stay in order.
//!
//! If one member sends most messages for a while, found the group with [`Migration::ByLoad`]. The role of sequencer
//! then moves to that member. Each of its messages needs one datagram less, and at r = 0 no round trip to another
//! member.
//!
//! Receive while you send: events that an application does not receive slow down all senders, its own process included.
//! Receive in a second thread, with a clone of the handle ([`Group::send`] shows it), or call [`Group::ignore_events`]
//! in a member that only sends. If no member receives, soon no message gets a seqno any more. After five seconds the
//! sends of the member that is furthest behind fail with [`SendFailure::NotReceiving`].
//!
//! # Threads and tasks
//!
//! A thread that waits in `receive` or `send` reads the sockets itself, so no other thread stands between the network
//! and the program. All groups of a process that use one address share a socket. While no thread waits, a background
//! thread of the library acknowledges, retransmits and sends heartbeats, so the program may compute.
//!
//! [`AsyncGroup`] is the same for asynchronous programs, on any executor.
//!
//! If a process forks, its members stay with it. In the child their handles return errors ([`SendError::Forked`] and
//! the like). The child sends nothing and receives nothing, and when it exits, no member leaves. [`Group::info`] and the
//! like return what was known at the fork, or panic if another thread of the parent held the library's lock then. A
//! child that wants to take part must open handles of its own. A program that forks to run in the background must fork
//! before it opens a handle.
//!
//! A child is recognized by its process number. So a child that has its parent's number must not use its parent's
//! handles: it would send as its parent. This is possible only in another PID namespace, where a child of a
//! container's process 1 is process 1 again, and after the parent's end, when the system reuses its number.
//!
//! # Calls
//!
//! [`rpc`] has calls: a process, member or not, asks a service and waits for its answer. The service may be one
//! process or a whole group.
//!
//! # Observing a group
//!
//! [`Group::info`] returns what this member knows: the view and its own rank, the sequencer, the next seqno to be
//! received and the next to be acknowledged, how much is buffered and under way, the last reset and its reason.
//! [`look`] asks a member of a group from outside: which members there are, which is the sequencer, how far each is,
//! and which member waits for which.
//!
//! # Serialisation
//!
//! The cargo feature `serde` (off by default) implements `Serialize` and `Deserialize` for the plain data types: events,
//! views, reports, configurations and their parts. Variants are written in snake case. In text formats uids, instances
//! and ports are hexadecimal digits, as people see them. A [`GroupConfig`] or [`Settings`] needs only the fields that
//! differ from the default, and refuses unknown ones; call [`GroupConfig::check`] to find values out of range.
//!
//! # Logs
//!
//! The library emits `tracing` events under the target `unisono`: one for each occurrence in the table below, never one
//! for each datagram. Each has the fields `group` and `me` (the name of the member that emits it), unless the table
//! says otherwise. The cargo feature `tracing` is on by default; without it the library emits no events.
//!
//! | level | message | further fields |
//! |---|---|---|
//! | info | `group entered` | `how` (`founded`, `joined`, `formed`), `seqno`, `members` |
//! | info | `member joined`, `member left` | `member`, `uid`, `seqno`, `members` |
//! | info | `sequencer changed` (a hand-over, or the sequencer left) | `member`, `uid`, `seqno` |
//! | warn | `member suspected` | `member`, `uid`, `reason` (`silent`, `deaf`, `replaced`, `slow`) |
//! | warn | `reset begun` | `coordinator` |
//! | info | `reset ended` | `seqno`, `members`, `excluded`, `degraded`, `took_ms` |
//! | warn | `group degraded` (messages may be lost) | `seqno`, `excluded` |
//! | warn | `excluded from the group` (this member) | `epoch` |
//! | warn | `another group has this name` | `address`, `gives_way` |
//! | warn | `datagram under another key` (again only after a minute without one) | `address` |
//! | warn | `datagram of another wire version` (again only after a minute without one) | `address`, `version` |
//! | warn | `waiting for an address of the seeds` (without `me`) | `seeds`, `timeout_ms` |
//! | warn | `waiting for an address of this machine` (without `me`) | |
//! | warn | `address changed` (without `group` and `me`) | `from`, `to` |
//! | info | `interface made again` (without `group` and `me`) | `address` |
//! | info | `key changed` (without `group` and `me`) | `file` |
//! | warn | `key file changed and cannot be read: the former keys are used` (without `group` and `me`) | `reason` |
//! | warn | `no thread to follow the key file` (without `group` and `me`) | `reason` |
//!
//! Events are emitted at once, whether or not the application receives, by the thread that serves the group at that
//! moment, after it has released the library's lock. That thread waits for the subscriber, and meanwhile no other thread
//! may serve the group: if the subscriber takes longer than about 300 ms, the others may exclude this member. So a
//! subscriber whose output can block writes from a thread of its own, and no subscriber waits for a group of the same
//! process.
#![forbid(unsafe_code)]

mod asynchronous;
mod commands;
mod confirmation;
mod engine;
mod error;
#[cfg(test)]
mod golden;
mod group;
mod key;
pub mod locks;
mod log;
mod names;
mod open;
mod opening;
mod options;
mod outside;
mod outside_sender;
mod reach;
pub mod replica;
pub mod rpc;
mod salt;
mod sealed;
mod secret_file;
mod seeds;
mod ticket;
mod versions;

pub use asynchronous::{AsyncGroup, Events};
pub use bytes::Bytes;
pub use confirmation::Confirmation;
pub use error::{
    ChangeOrderFailure, Ended, ForceFailure, KeyError, LeaveFailure, LookError, OpenError, SendFailure,
};
pub use group::Group;
pub use key::Key;
pub use opening::Handle;
pub use options::{DEFAULT_PORT, Options};
pub use outside::{change_order, force, look, look_at, look_with_key_at};
pub use outside_sender::{OutsideError, OutsideOptions, OutsideSender, Tally};
pub use reach::MULTICAST_PORT;
pub use seeds::seed_addresses;
pub use ticket::{Batch, BatchOutcome, Ticket};
pub use unisono_core::look::{Counters, LastReset, MemberReport, Report, WaitReason, Waiting};
pub use unisono_core::outside::SenderError;
pub use unisono_core::{
    ChangeOrderError, ConfigError, ConfirmError, EpochId, Event, Floor, FloorError, ForceError, Formation,
    GroupConfig, HandOverError, HeldUp, Info, Instance, JoinFailure, LeaveError, Member, MessageNumber,
    Migration, Name, NameError, Order, Outside, Phase, Port, Quality, QualityError, Quorum, ResetError,
    SendError, Seqno, Settings, SlowMember, Standing, Suspicion, Transport, Uid, View,
};
pub use versions::hear_other_version;

/// Compiles the examples in the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles those in the README of the workspace too: the text file is a symbolic link to it, which makes it part of
/// the package.
#[cfg(doctest)]
#[doc = include_str!("../tests/workspace-readme.txt")]
struct WorkspaceReadme;
