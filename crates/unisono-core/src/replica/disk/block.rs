//! The commit block: the few facts that make a disk count.

use super::super::machine::Position;
use super::super::types::Digest;
use alloc::string::String;
use alloc::vec::Vec;

/// A random number of 128 bits: the instance of a service.
pub type Digest16 = u128;

/// What makes a disk count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Instance of the service; 0 before its creation.
    pub service: Digest16,
    /// Id of this server, from 1 to 9.
    pub server: u8,
    /// Number of servers of the service.
    pub servers: u8,
    /// How many disks hold a command before it is answered.
    pub durability: DiskDurability,
    /// Identity of this disk: a random number.
    pub disk: u64,
    /// Number of starts of a server with this disk.
    pub starts: u64,
    /// Generation of the log: each recovery of the service gives it a new one.
    pub generation: u64,
    /// Highest generation that this server has promised.
    pub promised: u64,
    /// With [`DiskDurability::One`]: number of the last view in its generation, and the ids of its members.
    pub view: Option<(u64, Vec<u8>)>,
    /// How far the creation of the service is.
    pub created: Created,
    /// The snapshot; the log begins after its position. The store sets it.
    pub snapshot: Option<SnapshotName>,
    /// Number of the log file that counts. The store sets it.
    pub log: u64,
    /// Each time that an administrator let this service begin anew.
    pub anew: Vec<Escape>,
    /// Name of the service.
    pub name: String,
}

/// How many disks hold a command before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskDurability {
    /// A majority of the disks.
    #[default]
    Majority,
    /// One disk.
    One,
}

/// How far the creation of a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Created {
    /// Not begun.
    #[default]
    Blank,
    /// This server has written the new root; no caller was ever answered.
    Half(u128),
    /// All servers have written the new root.
    Done(u128),
}

/// Names a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotName {
    /// Position of the last command that it contains.
    pub position: Position,
    /// Digest of its manifest.
    pub digest: Digest,
}

/// An administrator let the service begin anew from one disk, as another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape {
    /// Id of the server whose disk it was.
    pub server: u8,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Position of the last command that was kept.
    pub from: Position,
    /// The old instance.
    pub service: Digest16,
}
