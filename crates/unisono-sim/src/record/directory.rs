//! The records of the directory service: the bytes of requests and replies, and what watches and backups got. The
//! records of replicated state contain the caller, the server and the time of each.

use super::{Life, OpId, Place, Service};
use bytes::Bytes;
use unisono_core::Time;

/// What a record says of a directory.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectoryRecord {
    /// A caller begins an operation with this request.
    Asked {
        /// The operation.
        id: OpId,
        /// The request.
        request: Bytes,
    },
    /// An operation ends with this reply.
    Got {
        /// The operation.
        id: OpId,
        /// The reply.
        reply: Bytes,
    },
    /// A server got a command.
    Taken {
        /// The client, and the client's number of the command.
        name: (Life, u64),
        /// True if an earlier attempt at it may have been executed.
        again: bool,
    },
    /// A copy applied a command.
    Applied {
        /// Where the copy is after it.
        at: Place,
        /// The client, and the client's number of the command.
        name: (Life, u64),
        /// The request.
        request: Bytes,
        /// The reply.
        reply: Bytes,
    },
    /// A copy begins to serve from this place on.
    Serves {
        /// The place.
        at: Place,
        /// Number of commands that it remembers.
        remembered: usize,
    },
    /// A watch got a reply to this request, at any server.
    Watched {
        /// Number of the watch in the run.
        watch: u32,
        /// The client, and the number of its call.
        name: (Life, u64),
        /// The request.
        request: Bytes,
        /// The reply.
        reply: Bytes,
    },
    /// A server answered a watch.
    WatchAnswered {
        /// Its service.
        service: Service,
        /// The client, and the number of its call.
        name: (Life, u64),
        /// The number from which the client asked for changes.
        from: u64,
    },
    /// A server answered a linearizable query.
    Confirmed {
        /// The client, and the number of its call.
        name: (Life, u64),
        /// Number of servers of which this one had heard since the query arrived, itself included.
        heard: usize,
    },
    /// An administrator put a backup with this number into the place of a disk, from which the service begins anew.
    Restored {
        /// Number of the last command in the backup.
        number: u64,
        /// Number of commands that the server remembered which made it.
        remembered: usize,
    },
    /// A server made a backup.
    BackedUp {
        /// Where its copy was.
        at: Place,
        /// When it was asked for the backup.
        asked: Time,
        /// Number of the last command, as the backup says.
        number: u64,
        /// The state of the table in parts.
        parts: Vec<Bytes>,
    },
}
