//! unisono's protocols as pure state machines, without sockets, clocks, threads or randomness of their own.
//!
//! A program that wants a group uses the crate `unisono`, which drives this crate over UDP. Use this crate directly to
//! drive the protocols in another way: over another network, inside an event loop, or on a simulated clock.
//!
//! A [`Group`] is one member's side of one group. It starts no threads and calls nothing back: the caller passes in the
//! time and the datagrams that arrived, and then polls for the output.
//!
//! ```text
//!    handle_datagram(now, from, bytes) ┐          ┌ poll_transmit → datagrams, each with a destination
//!    handle_timeout(now)               ├─▶ Group ─┤ poll_event    → the ordered stream of events
//!    send, leave, reset, hand_over     ┘          │ poll_sent     → outcomes of the member's own messages
//!                                                 └ poll_timeout  → when to call again, and why
//! ```
//!
//! 1. After each input call [`poll_transmit`](Group::poll_transmit) and [`poll_sent`](Group::poll_sent) until they
//!    return nothing. Call [`poll_event`](Group::poll_event) as long as the application takes events. Then wait until
//!    the time that [`poll_timeout`](Group::poll_timeout) returns, or until the next datagram or command.
//! 2. Time is a number of nanoseconds from any origin, and never goes back. Randomness comes from a seeded [`Random`].
//!    The same seed and the same inputs give the same outputs.
//! 3. Events that the application does not take slow down the senders.
//! 4. A datagram may contain anything. A bad one is counted and dropped.
//! 5. A driver that writes a log takes its lines from [`poll_episode`](Group::poll_episode).
//!
//! A member that is alone numbers its own messages:
//!
//! ```
//! use bytes::Bytes;
//! use unisono_core::wire::Checksum;
//! use unisono_core::{EntryMode, Event, Floor, Group, GroupConfig, Member, Name, Port, Random, Settings, Time, Uid};
//!
//! let now = Time::from_nanos(1);
//! let me = Member {
//!     uid: Uid(7), // in a real program random, and new for each life
//!     name: Name::new("Ann").unwrap(),
//!     address: "10.0.0.1:7195".parse().unwrap(), // the address that others use
//!     floor: Floor::None,                        // `Settings::floor` and `Settings::hops` count for this member
//!     hops: 1,
//! };
//! let entry = EntryMode::Found(GroupConfig::default());
//! let (port, random) = (Port::from_name("kitchen"), Random::from_u64(1));
//! let mut ann =
//!     Group::new(now, me, port, entry, Bytes::new(), Settings::default(), Box::new(Checksum), random)?;
//! ann.send(now, Bytes::from_static(b"dinner is ready")).unwrap();
//!
//! assert!(matches!(ann.poll_event(), Some(Event::Entered { seqno: 0, .. })));
//! assert!(matches!(ann.poll_event(), Some(Event::Message { seqno: 1, .. })));
//! let (_when, _what_for) = ann.poll_timeout().expect("it looks for others of its name from time to time");
//! # Ok::<(), unisono_core::ConfigError>(())
//! ```
//!
//! The example `by_hand` shows three members, a network between them, and the crash of the sequencer:
//! `cargo run -p unisono-core --example by_hand`.
//!
//! - [`rpc`]: calls, driven in the same way.
//! - [`replica`]: replicated state machines on top of both.
//! - [`locks`]: a table of locks, for such a state machine.
//! - [`outside`]: messages of processes that are no members, above both.
//! - [`wire`]: the wire format. A caller that encrypts datagrams passes a [`wire::Protection`] of its own instead of
//!   the checksum.
//! - [`look`]: the report that a member sends about its group to a process outside.
//!
//! The cargo feature `serde` (off by default) implements `Serialize` and `Deserialize` for plain data types: events,
//! views, reports, configurations and their parts.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allowance;
mod challenge;
mod config;
mod cookies;
mod episode;
mod epoch;
mod error;
mod event;
mod flow;
mod fragment;
mod group;
mod identity;
mod lanes;
pub mod locks;
mod log;
pub mod look;
mod membership;
mod multicasts;
mod notes;
mod ordering;
pub mod outside;
mod path;
mod peers;
mod planted;
mod quality;
mod random;
mod repair;
pub mod replica;
mod round_trip;
pub mod rpc;
mod sentence;
#[cfg(feature = "serde")]
mod serialized;
mod shares;
mod stability;
mod table;
mod time;
mod unreliable;
mod versions;
pub mod wire;

pub use config::*;
pub use episode::Episode;
pub use error::*;
pub use event::*;
pub use group::*;
pub use identity::*;
pub use ordering::Passed;
pub use peers::Audience;
pub use planted::{Planted, Probe};
pub use quality::{Quality, QualityError};
pub use random::Random;
#[doc(hidden)]
pub use sentence::write_sentence;
pub use time::Time;
