//! Datagram sockets for group communication.
//!
//! A datagram protocol spends its time on packets, wakes and system calls, hardly ever on bytes. So this crate combines
//! as much as possible:
//!
//! - A run of datagrams of one size leaves in one call and crosses the stack as one packet (UDP_SEGMENT).
//! - Many datagrams arrive in one call (recvmmsg), coalesced where the kernel can (UDP_GRO), in buffers that are handed
//!   on without a copy.
//! - A thread waits for any number of sockets, an alarm and another thread's wakeup in one call, or in the receive of
//!   one socket if all datagrams come from that socket.
//!
//! The crate knows sockets and addresses, and no protocol.
//!
//! - [`Socket`]: a socket to send from and be reached at, or a listener at a multicast address.
//! - [`Receiver`]: the buffers into which datagrams are received.
//! - [`Watch`], [`Wakeup`], [`Alarm`], [`SocketWaker`]: sleeping and waking.
//! - [`Neighbours`], [`Socket::send_buffer`]: addresses that do not answer, and the send buffer that they fill.
//! - [`interfaces`], [`NetworkChanges`]: this machine's addresses, and reports that they have changed.
//!
//! ```
//! use unisono_udp::{Receiver, Socket};
//! let here = "127.0.0.1:0".parse().unwrap();
//! let (left, right) = (Socket::bind(here)?, Socket::bind(here)?);
//! // Five datagrams of at most three bytes, to each of the given addresses.
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

mod neighbours;
mod netlink;
mod network;
mod receive;
mod send;
mod socket;
mod wait;

pub use neighbours::{Neighbour, Neighbours, SendBuffer};
pub use network::{Interface, Link, NetworkChanges, interfaces};
pub use receive::Receiver;
pub use send::Progress;
pub use socket::{Socket, SocketWaker, address_toward};
pub use wait::{Alarm, Ready, Wakeup, Watch};
