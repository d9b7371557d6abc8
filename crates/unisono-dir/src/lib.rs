//! A fault-tolerant directory service and file store: names for protected objects, kept on the disks of several servers.
//!
//! The service is that of Kaashoek, Tanenbaum and Verstoep, "Using Group Communication to Implement a Fault-Tolerant
//! Directory Service" (1993). [`unisono_table`] says what directories, capabilities and files are, and has the rules of
//! watches. This crate runs them: a [`Server`] keeps a copy on its disk and agrees with the others on every command; a
//! [`Client`] asks any of them. A majority of the servers goes on whatever crashes, and loses nothing that was answered;
//! fewer refuse, and say which servers are missing.
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
//! | module | subject |
//! |---|---|
//! | `attempts` | what a client does with one request |
//! | `status` | what a server says of itself |
//! | `operation` | operations and what their answers contain |
//! | `machine` | the table as a replica's state machine |
//! | `ports` | the ports of a service |
//! | `root` | files with a capability |
//! | `archive` | the file of a backup |
//! | `server` | servers |
//! | `client` | clients |
#![forbid(unsafe_code)]

mod archive;
mod attempts;
mod client;
mod machine;
pub mod operation;
mod ports;
mod root;
mod server;
mod status;

pub use archive::{Backup, NotABackup};
pub use client::{Client, ClientError, Done, OPERATION_WITHIN, Pending, SILENCE, SaveError, Saved, Watch};
pub use operation::Operation;
pub use root::{CapabilityFileError, ROOT_FILE, looks_like_a_capability, read_capability};
pub use server::{RestoreError, Server, ServerEnd, ServerOptions, StartError, check_backup, restore};
pub use status::{
    BegunAnew, STATUS_QUESTION, ServerStatus, Standing, State, diverged, servers_heard, standing,
};
pub use unisono::replica::{
    DiskDurability, DiskError, DiskOptions, Notice, ReplicaEnd, ReplicaError, StopReason,
};
pub use unisono::{Key, OpenError, Options};
pub use unisono_table::*;

/// Returns 128 random bits of the operating system, for the secret of a new object.
pub fn random_check() -> std::io::Result<Check> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
    Ok(Check::from_bits(u128::from_ne_bytes(bits)))
}
