//! A fault-tolerant directory service and file store: names for protected objects, kept on the disks of several servers.
//!
//! The service is that of Kaashoek, Tanenbaum and Verstoep, "Using Group Communication to Implement a Fault-Tolerant
//! Directory Service" (1993). What directories, capabilities and files are is said by [`unisono_table`]. This crate runs
//! them: a [`Server`] keeps a copy on its disk and agrees with the others on every command; a [`Client`] asks any of them.
//! A majority of the servers goes on whatever crashes, and loses nothing that was answered; fewer refuse, and say which
//! servers are missing.
//!
//! Most people use the commands `unisono dir` and `unisono file`. A program uses [`Client`] with an
//! [`operation`]:
//!
//! ```no_run
//! use unisono_dir::{Client, ClientError, Options, Place, operation, read_capability};
//! let client = Client::new(&Options::default())?;
//! let root = read_capability("/var/lib/unisono/root.cap")?;
//! match client.list(&Place { capability: root, path: "home".parse()? }, false) {
//!     Ok(listed) => listed.value.rows.iter().for_each(|row| println!("{}", row.name)),
//!     Err(ClientError::NoMajority { missing, .. }) => println!("start servers {missing:?}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | subject | needs the network |
//! |---|---|---|
//! | `attempts` | what a client does with one request | yes |
//! | `watches` | watches as a server holds them | no |
//! | `following` | watches as a client follows them | no |
//! | `status` | what a server says of itself | no |
//! | `operation` | operations and what their answers contain | yes |
//! | `machine` | the table as a replica's state machine | yes |
//! | `ports` | the ports of a service | yes |
//! | `root` | files with a capability | yes |
//! | `archive` | the file of a backup | yes |
//! | `server` | servers | yes |
//! | `client` | clients | yes |
//!
//! Without the feature `net` the crate is what the simulator drives: both sides of watches, and the status of servers.
#![forbid(unsafe_code)]

#[cfg(feature = "net")]
mod archive;
#[cfg(feature = "net")]
mod attempts;
#[cfg(feature = "net")]
mod client;
mod following;
#[cfg(feature = "net")]
mod machine;
#[cfg(feature = "net")]
pub mod operation;
#[cfg(feature = "net")]
mod ports;
#[cfg(feature = "net")]
mod root;
#[cfg(feature = "net")]
mod server;
mod status;
mod watches;

#[cfg(feature = "net")]
pub use archive::{Backup, NotABackup};
#[cfg(feature = "net")]
pub use client::{Client, ClientError, Done, OPERATION_WITHIN, Pending, SILENCE, SaveError, Saved, Watch};
pub use following::{Followed, Follower, Lost, NotAPosition, Position};
#[cfg(feature = "net")]
pub use operation::Operation;
#[cfg(feature = "net")]
pub use root::{CapabilityFileError, ROOT_FILE, read_capability};
#[cfg(feature = "net")]
pub use server::{RestoreError, Server, ServerEnd, ServerOptions, StartError, restore};
pub use status::{BegunAnew, STATUS_QUESTION, ServerStatus, Standing, State, diverged, heard, standing};
#[cfg(feature = "net")]
pub use unisono::replica::{
    DiskDurability, DiskError, DiskOptions, Notice, ReplicaEnd, ReplicaError, StopReason,
};
#[cfg(feature = "net")]
pub use unisono::{Key, OpenError, Options};
pub use unisono_table::*;
pub use watches::{CLIENT_WATCHES_MAX, WATCH_HELD_MAX, WATCHES_MAX, Watches};

/// Returns 128 random bits of the operating system, for the secret of a new object.
#[cfg(feature = "net")]
pub fn random_check() -> std::io::Result<Check> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
    Ok(Check::from_bits(u128::from_ne_bytes(bits)))
}
