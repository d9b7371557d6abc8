//! Datagram sockets for group communication.
//!
//! What costs time in a datagram protocol is packets, wake-ups and system calls, hardly ever bytes. So this
//! crate does as much as possible in one go: a run of datagrams of one size leaves in one call and crosses
//! the stack as one packet (UDP_SEGMENT); many datagrams arrive in one call (recvmmsg), coalesced where the
//! kernel can (UDP_GRO), in buffers that are handed on without a copy; a thread waits for any number of sockets, an
//! alarm and another thread's wakeup at once, in one call, or in the receive itself where all comes from one socket. It
//! knows sockets and addresses; it knows no protocol.
//!
//! - [`Socket`]: a socket to send from and be reached at, or one that listens to a multicast address.
//! - [`Receiver`]: the buffers into which datagrams are received.
//! - [`Watch`], [`Wakeup`], [`Alarm`], [`SocketWaker`]: sleeping, and being woken.
//!
//! ```
//! use unisono_udp::{Receiver, Socket};
//! let here = "127.0.0.1:0".parse().unwrap();
//! let (left, right) = (Socket::bind(here)?, Socket::bind(here)?);
//! // Five datagrams of three bytes or less, to each of the given addresses.
//! left.send(b"onetwothrfoufi", 3, &[right.address()]);
//! let mut receiver = Receiver::new();
//! let mut heard = Vec::new();
//! while heard.len() < 5 {
//!     right.wait(None);
//!     receiver.receive(&right, |_from, datagram| heard.push(datagram))?;
//! }
//! assert_eq!(heard[0], &b"one"[..]);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod receive;
mod send;
mod socket;
mod wait;

pub use receive::Receiver;
pub use send::Progress;
pub use socket::{Socket, SocketWaker, address_toward};
pub use wait::{Alarm, Ready, Wakeup, Watch};
