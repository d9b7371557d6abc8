//! unisono's protocols as pure state machines: no sockets, clocks, threads or chance of their own.
//!
//! Programs that want a group use the crate `unisono`, which drives this one over UDP. This one is for whoever drives the
//! protocols in another way: over another network, inside an event loop of their own, on a simulated clock.
//!
//! A [`Group`] is one member's side of one group. Nothing runs by itself and nothing calls back: it is told what time it is
//! and what came, and asked what is to be done.
//!
//! ```text
//!    handle_datagram(now, from, bytes) ┐          ┌ poll_transmit → datagrams, each with a destination
//!    handle_timeout(now)               ├─▶ Group ─┤ poll_event    → the ordered stream of events
//!    send, leave, reset, hand_over     ┘          │ poll_sent     → what became of messages of its own
//!                                                 └ poll_timeout  → when to come back, and what for
//! ```
//!
//! 1. After each input drain [`poll_transmit`](Group::poll_transmit) and [`poll_sent`](Group::poll_sent), and take from
//!    [`poll_event`](Group::poll_event) what the application wants; then come back when something arrives, or at
//!    [`poll_timeout`](Group::poll_timeout).
//! 2. Time is a number of nanoseconds from any origin that never goes back; chance is a seeded [`Random`]. The same seed
//!    and the same inputs give the same outputs.
//! 3. Events that are not taken press back on the senders. What comes from the network may be anything: what is bad is
//!    counted and dropped.
//!
//! A member that is alone already orders what it sends:
//!
//! ```
//! use bytes::Bytes;
//! use unisono_core::wire::Checksum;
//! use unisono_core::{EntryMode, Event, Group, GroupConfig, Member, Name, Port, Random, Settings, Time, Uid};
//!
//! let now = Time::from_nanos(1);
//! let me = Member {
//!     uid: Uid(7), // random in earnest: one for each life
//!     name: Name::new("Ann").unwrap(),
//!     address: "10.0.0.1:7195".parse().unwrap(), // what others are told
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
//! Three members, a network between them, and the death of the one who orders: the example `by_hand`
//! (`cargo run -p unisono-core --example by_hand`).
//!
//! - [`rpc`]: calls, driven in the same way.
//! - [`wire`]: the bytes. Who seals datagrams hands in a [`wire::Protection`] in place of the checksum.
//! - [`look`]: what a member says of its group to those who ask from outside.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allowance;
mod blocks;
mod config;
mod episode;
mod epoch;
mod error;
mod event;
mod flow;
mod fragment;
mod group;
mod history;
mod identity;
pub mod look;
mod membership;
mod multicasts;
mod order;
mod path;
mod peers;
mod planted;
mod random;
mod repair;
mod round_trip;
pub mod rpc;
mod stability;
mod table;
mod time;
mod unordered;
mod versions;
pub mod wire;

pub use config::*;
pub use episode::Episode;
pub use error::*;
pub use event::*;
pub use group::*;
pub use identity::*;
pub use planted::{Planted, Probe};
pub use random::Random;
pub use time::Time;
