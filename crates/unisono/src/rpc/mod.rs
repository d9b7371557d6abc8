//! Calls: one process asks, another answers, at most once.
//!
//! A **service** is offered at a **port** by a [`Server`]; whoever knows the port calls it by a [`Client`]. Nobody has to
//! know where the server is, or how many there are: the client looks for the port, by multicast or at the seeds of its
//! [`Options`](crate::Options), keeps what it found, and looks again when that fails.
//!
//! # A call
//!
//! ```no_run
//! use unisono::Options;
//! use unisono::rpc::{CallFailure, Client, Port};
//!
//! let client = Client::new(&Options::default())?;
//! match client.call(Port::from_name("upper"), "hello") {
//!     Ok(reply) => println!("{}", String::from_utf8_lossy(&reply)),
//!     Err(failure) if failure.did_not_happen() => println!("try again: {failure}"),
//!     Err(CallFailure::Refused(reason)) => println!("no: {}", String::from_utf8_lossy(&reason)),
//!     Err(failure) => println!("it may have happened, once at most: {failure}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A service
//!
//! ```no_run
//! use unisono::Options;
//! use unisono::rpc::{PrivatePort, ServeOptions, Server};
//!
//! let port = PrivatePort::from_name("upper");
//! let server = Server::new(&port, ServeOptions::default(), &Options::default())?;
//! // Four threads, this one included.
//! server.serve(4, |request| request.payload().to_ascii_uppercase().into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Or request by request, as the papers have it: [`Server::get_request`], then [`Request::reply`],
//! [`refuse`](Request::refuse) or [`forward`](Request::forward). A server may call others while it serves.
//!
//! # What may be relied on
//!
//! - **At most once.** Whatever is lost, repeated or overtaken on the way, whoever restarts: a request is given to an
//!   application once at most, and a reply belongs to its call.
//! - **The truth about failures.** Every call ends by its deadline, and [`CallFailure`] says whether it may have happened.
//!   [`CallFailure::Unknown`] is said only if it may have.
//! - **Push-back.** A server takes as much as its queue holds ([`ServeOptions::queue_max`]) and tells clients how many
//!   calls they may have under way; the rest waits in the client, which says so in the end
//!   ([`Busy`](CallFailure::Busy)) or at once ([`NotSent::TooMany`]).
//! - **Several servers** of a port share its calls: of two drawn by lot the one with less to do gets the next.
//!
//! Requests and replies have up to 16 MiB.
//!
//! # Ports
//!
//! A server listens with a [`PrivatePort`], clients send to its public image, a [`Port`]. Servers sign, with a key that
//! comes from the private port, when a client looks for them; so knowing where to send does not let anybody serve. A port
//! made of a name ([`Port::from_name`]) protects nobody, since anybody can make the private one too: it is for trying
//! out, and for where a group key ([`Options::key`](crate::Options::key)) keeps strangers out. `unisono rpc newport`
//! prints a pair.
//!
//! # Members of groups that serve
//!
//! A service may be a member of a group ([`Server::beside`]): then its address is the member's, and a request can be
//! passed on to another member. The client's library sends it there, as the same call, and whoever called notices
//! nothing:
//!
//! ```no_run
//! use unisono::rpc::{PrivatePort, ServeOptions, Server};
//! use unisono::{Group, GroupConfig, Options};
//!
//! let group = Group::join_or_create("archive", GroupConfig::default(), "", &Options::default())?;
//! let server = Server::beside(&group, &PrivatePort::from_name("archive"), ServeOptions::default())?;
//! loop {
//!     let request = server.get_request()?;
//!     let info = group.info();
//!     match info.members.iter().find(|member| member.uid == info.sequencer) {
//!         Some(sequencer) if info.sequencer != info.me && request.hops() == 0 => request.forward(sequencer)?,
//!         _ => request.reply("from the sequencer's shelf")?,
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A group whose members all serve one port, so that a call takes effect at all of them, once, whoever dies: that is an
//! [`OpenGroup`].

mod client;
mod error;
mod open_group;
mod opening;
mod port;
mod server;

pub use client::{Call, Client};
pub use error::{CallFailure, NotDrained, NotForwarded, NotSent, OpenGroupError, ServiceError, Withdrawn};
pub use open_group::{Asked, Notice, OpenGroup, Outcome, Service};
pub use port::{NotAPort, Port, PrivatePort};
pub use server::{Answer, Request, Requests, ServeOptions, Server, Target};
pub use unisono_core::rpc::{AnswerError, CallCounters, CallNumber, CallSettings, ForwardError, ServeError};

use std::time::Duration;

/// How long a call waits for its answer unless it is told otherwise.
pub const DEADLINE: Duration = Duration::from_secs(10);
