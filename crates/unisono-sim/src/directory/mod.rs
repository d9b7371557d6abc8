//! Runs of the directory service: the table of `unisono-table` as the state of a replicated service, clients that use it
//! with capabilities of all kinds, watches, backups and restores. The servers, their disks and the faults are those of any
//! replicated service (`replica`, `world::replica`).
//!
//! Requests and replies travel behind a byte that marks them, so that a copy tells them from those of the other states.

mod book;
mod draw;
mod foo;
mod machine;
mod watchers;

pub(crate) use book::Book;
pub(crate) use draw::{draw, draw_long, draw_watch};
pub(crate) use foo::foo;
pub(crate) use machine::Directory;
pub(crate) use watchers::{Next, Watcher};

use crate::record::hash;
use crate::replica::Reply;
use bytes::{BufMut, Bytes};
use unisono_core::replica::Kind;
use unisono_table::{Limits, Request, RequestKind};

/// Marks requests to a directory, and its replies.
pub(crate) const REQUEST: u8 = 0xd1;
const REPLY: u8 = 0xd2;

/// Bounds of simulated directories: so small that runs reach them.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.directories, limits.rows, limits.files) = (24, 60, 16);
    (limits.file_bytes, limits.history_bytes) = (2_000, 1_500);
    limits
}

fn marked(mark: u8, bytes: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + bytes.len());
    out.put_u8(mark);
    out.put_slice(bytes);
    out.into()
}

fn unmarked(mark: u8, bytes: &Bytes) -> Option<Bytes> {
    (bytes.first() == Some(&mark)).then(|| bytes.slice(1..))
}

/// Returns a request to a directory as callers send it.
pub(crate) fn payload(request: &Bytes) -> Bytes {
    marked(REQUEST, request)
}

/// Returns the request in what a caller sent.
pub(crate) fn request_in(payload: &Bytes) -> Option<Bytes> {
    unmarked(REQUEST, payload)
}

/// Returns the reply in what a server answered.
pub(crate) fn answer_in(answer: &Bytes) -> Option<Bytes> {
    unmarked(REPLY, answer)
}

/// Returns the reply of a directory as a server answers it.
pub(crate) fn answer(reply: &Bytes) -> Bytes {
    marked(REPLY, reply)
}

/// Returns what is recorded of an answer: the number of the reply, and its hash.
pub(crate) fn reply_in(answer: &[u8]) -> Option<Reply> {
    let (mark, bytes) = answer.split_first().filter(|(mark, _)| **mark == REPLY)?;
    debug_assert_eq!(*mark, REPLY);
    let number = bytes.get(1..)?.first_chunk()?;
    Some(Reply(u64::from_be_bytes(*number), hash(bytes)))
}

/// Returns how a request is treated.
pub(crate) fn kind(request: &[u8]) -> Kind {
    match Request::kind(request) {
        RequestKind::Command => Kind::Command,
        RequestKind::Query => Kind::Read,
        RequestKind::LocalQuery => Kind::LocalRead,
    }
}
