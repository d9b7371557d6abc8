//! Calls: one process asks, another answers. A call is executed at most once.
//!
//! A [`Server`] offers a **service** at a **port**; a [`Client`] that knows the port calls it. The client need not
//! know where the servers are, or how many there are. It looks for the port by multicast or at the seeds of its
//! [`Options`](crate::Options), remembers the servers, and looks again when they fail.
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
//! A program can also take request by request, as in the papers: [`Server::get_request`], then [`Request::reply`],
//! [`refuse`](Request::refuse) or [`forward`](Request::forward). A server may call others while it serves.
//!
//! # Promises
//!
//! - **At most once.** The application of a server gets a request at most once, whatever is lost, repeated or
//!   overtaken on the way, and whichever process restarts. A reply belongs to its call.
//! - **True outcomes.** Every call ends by its deadline, and [`CallFailure`] says whether it may have happened.
//!   [`CallFailure::Unknown`] is returned only if it may have.
//! - **Push-back.** A server takes as many requests as its queue holds ([`ServeOptions::queue_max`]) and tells each
//!   client how many calls it may have under way. Further calls wait in the client. They fail as
//!   [`Busy`](CallFailure::Busy) at their deadline, or at once as [`NotSent::TooMany`].
//! - **Several servers** of a port share its calls: of two servers drawn by lot, the one with less to do gets the
//!   next call.
//!
//! Requests and replies have at most 16 MiB.
//!
//! # Ports
//!
//! A server listens with a [`PrivatePort`], clients send to its public image, a [`Port`]. When a client looks for
//! servers, they sign their answers with a key derived from the private port. So a process that knows where to send
//! cannot serve. A port made from a name ([`Port::from_name`]) gives no such protection, because any process can make
//! the private one too. It is for tests, and for services that a group key ([`Options::key`](crate::Options::key))
//! protects. `unisono rpc newport` prints a pair.
//!
//! # Servers in a group
//!
//! A server may have the address of a group's member ([`Server::beside`]). Then a request can be passed on to another
//! member. The client's library sends the same call there, and the client's application does not notice:
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
//! A [`Replica`](crate::replica::Replica) can serve a port too: all its members do, and each call takes effect at all of
//! them, once, even if some of them crash.

mod agreement;
mod client;
mod error;
mod opening;
mod port;
mod server;

#[cfg(test)]
pub(crate) use agreement::LifeKey;
pub use client::{Call, Client};
pub use error::{CallFailure, NotDrained, NotForwarded, NotSent, ServiceError, Withdrawn};
pub use port::{NotAPort, Port, PrivatePort};
pub(crate) use server::answer_all;
pub use server::{Answer, Request, Requests, ServeOptions, Server, Target};
pub use unisono_core::rpc::{
    AnswerError, BUSY_NOW, CallCounters, CallNumber, CallSettings, ForwardError, HANDLER_BYTES_MAX,
    NOTHING_HAPPENED, ServeError, Source, Wishes,
};

use std::time::Duration;

/// Time for which a call waits for its answer by default.
pub const DEADLINE: Duration = Duration::from_secs(10);
