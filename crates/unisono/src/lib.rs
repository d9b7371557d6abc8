//! Reliable, totally ordered group communication.
//!
//! A **group** is a set of processes, its **members**, usually on several machines. Whatever one of them
//! sends, all of them receive, in the same order; and not only messages have a place in that order, but also
//! who joined, who left, and who crashed. So members that begin alike and do what they receive stay alike.
//! That is all it takes to build a replicated service, a lock, a shared variable, a work queue.
//!
//! ```no_run
//! use unisono::{Event, Group, GroupConfig, Options};
//!
//! // Joins the group "kitchen", or founds it if nobody is there. Returns when this process is a member.
//! let group = Group::join_or_create("kitchen", GroupConfig::default(), "hello", &Options::default())?;
//!
//! // Returns when the message has its place in the order, and is safe.
//! let place = group.send("dinner is ready")?;
//!
//! // Everybody, this process included, receives the same events with the same numbers.
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
//! The examples go on from here: `hello` (two processes greet each other), `chat` (names, and a thread for each
//! direction), `counter` (a replicated number that survives `kill -9`), each run by
//! `cargo run -p unisono --example NAME`; and, with calls, `calls` and `open_counter`.
//!
//! # How it works
//!
//! One member, the **sequencer**, gives every message the next number, its **seqno**, and sends it on to all;
//! what gets lost on the way is noticed by the gap in the numbers and asked for again. A message costs two
//! datagrams, or three if the group has no multicast and three members: about what a remote procedure call
//! costs. If the sequencer leaves or crashes, another member takes over. There is no server to set up.
//!
//! Members are told apart by their [`Uid`], 64 random bits for each life; what people call them is the [`Name`] in
//! [`Options`]. The names come with the [`View`] in which a member finds itself ([`Event::Entered`]) and with
//! everybody who joins later; [`Group::members`] has those of now.
//!
//! # What resilience buys
//!
//! [`GroupConfig::resilience`], r, says how many members may crash **at once** without an accepted message
//! being lost.
//!
//! - With r = 0, [`Group::send`] returns when the message has its number. If the sequencer then crashes
//!   before anybody else has the message, it is gone, and nobody who goes on has ever seen it.
//! - With r = 1 (the default) it returns when two members hold the message, with r = 2 when three do. That
//!   costs an acknowledgement by each of them, and a little more than one round trip more. Nobody receives a
//!   message before that many hold it, so what anybody acted upon survives.
//!
//! Single messages can ask for more: [`Group::send_resilient`].
//!
//! # What happens in a crash
//!
//! Members notice within about 300 milliseconds ([`Settings::silence`], [`Settings::patience`]) that one of
//! them is silent, agree on who goes on, give each other what some lack, and go on with an [`Event::Reset`],
//! which has the same place at all of them and says who is missing. Everything before it was received by all
//! who go on, alike. If more than r members are missing, the event says `degraded`: something may have been
//! lost, and never silently.
//!
//! A message that was under way has one of three fates, and `send` says which:
//!
//! | [`send`](Group::send) says | what it means | what to do |
//! |---|---|---|
//! | `Ok(seqno)` | it has its place, and as many hold it as r asks for | nothing |
//! | [`Failed`](SendFailure::Failed) | a reset fell upon it: no member will ever receive it | send it again |
//! | [`Unknown`](SendFailure::Unknown) | this member was cut off first | join again and look |
//!
//! Only a majority goes on ([`GroupConfig::quorum`] changes that), so of a group that is cut in two at most
//! one half does; the other waits, or learns that it was [`Excluded`](Event::Excluded) and may join again as
//! a new member. Of two members the first to have been there is the tie-breaker: the second cannot go on
//! without it.
//!
//! A member that runs but does not receive is not a crash: the others wait for it, or exclude it after a time
//! ([`GroupConfig::slow_member`]). `unisono why GROUP`, or [`Group::report`], names it.
//!
//! # Coming in late
//!
//! A member receives what comes after its own join, and nothing from before. What it has to know of the past the application
//! tells it: when the first member of the view receives the join it sends the state as of that place, and the newcomer keeps
//! what follows until it has that. The example `counter` does it by hand; [`rpc::OpenGroup`] does it for services, however
//! large their state.
//!
//! # Two machines
//!
//! By default nothing leaves this machine. To do so, make a [`Key`] and give it to every member: what is sent
//! is sealed with it, and nobody without it can read or take part.
//!
//! ```no_run
//! use unisono::{Group, GroupConfig, Key, Options};
//! let options = Options {
//!     key: Some(Key::load("/etc/kitchen.key")?),
//!     // Only where multicast does not reach: members to ask for the group.
//!     seeds: vec!["10.0.0.7:7195".into()],
//!     ..Options::default()
//! };
//! let group = Group::join("kitchen", "", &options)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sending much
//!
//! `send` blocks until its message has its place. [`Group::submit`] does not: it returns a [`Ticket`] to be
//! waited for later, or dropped. [`Group::submit_all`] takes many messages, which travel together. A member
//! may have [`GroupConfig::window`] messages under way, in order.
//!
//! Where one member sends much for a while, found the group with [`Migration::ByLoad`]: the role of sequencer then
//! goes to that member, whose messages need a datagram less each and, at r = 0, no way to somebody else and back.
//!
//! Receive while you send: what a member does not receive presses back on everybody, itself included. Use a
//! second thread with a clone of the handle ([`Group::send`] shows it), or say with [`Group::ignore_events`] that this
//! member only sends. If all members only send, the group stands still until the one that is furthest behind is told
//! so, after five seconds: [`SendFailure::NotReceiving`].
//!
//! # Threads and tasks
//!
//! A thread that waits in `receive` or `send` reads the sockets itself, so no other thread stands between the
//! wire and the program. All groups of a process that use one address share a socket. A background thread
//! takes over when nobody waits: it keeps the promises made to others (acknowledgements, repairs, heartbeats)
//! while the program computes.
//!
//! [`AsyncGroup`] is the same for asynchronous programs, on any executor.
//!
//! # Calls
//!
//! [`rpc`] has calls: a process outside of the group, or a member, asks a service and waits for its answer, which may come
//! from one process or from a whole group.
//!
//! # Looking
//!
//! [`Group::info`] is the member's own account: the view and its rank in it, who orders, the next place to be
//! received and the next to be acknowledged, what is buffered and under way, the last reset and why it came about.
//! [`look`] asks any member of a group from outside: who is in, who orders, how far each is, who waits for
//! whom.
#![forbid(unsafe_code)]

mod asynchronous;
mod commands;
mod engine;
mod error;
mod group;
mod key;
mod opening;
mod options;
mod outside;
mod reach;
pub mod rpc;
mod sealed;
mod seeds;
mod ticket;

pub use asynchronous::{AsyncGroup, Events};
pub use bytes::Bytes;
pub use error::{Ended, ForceFailure, KeyError, LeaveFailure, LookError, OpenError, SendFailure};
pub use group::Group;
pub use key::Key;
pub use options::{DEFAULT_PORT, Options};
pub use outside::{force, look, look_at};
pub use reach::MULTICAST_PORT;
pub use seeds::seed_addresses;
pub use ticket::{Batch, BatchOutcome, Ticket};
pub use unisono_core::look::{Counters, LastReset, MemberReport, Report, WaitReason, Waiting};
pub use unisono_core::{
    ConfigError, EpochId, Event, ForceError, Formation, GroupConfig, HandOverError, HeldUp, Info,
    JoinFailure, LeaveError, Member, MessageNumber, Migration, Name, Phase, Port, Quorum, ResetError,
    SendError, Seqno, Settings, SlowMember, Standing, Suspicion, Transport, Uid, View,
};

/// The examples in the README of this crate compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So do those in the README of the workspace: the text file is a symbolic link to it, which makes it part of the package.
#[cfg(doctest)]
#[doc = include_str!("../tests/workspace-readme.txt")]
struct WorkspaceReadme;
