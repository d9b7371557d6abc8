//! What stands in the log: everything that changes the state, in the order in which it does.
//!
//! A replay from disk lacks the group's seqnos and views. So an entry has all that applying it needs: the time of the
//! order, and the member that received a command.

use super::super::machine::Server;
use crate::identity::{Name, Uid};
use crate::rpc::CallNumber;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Number of an entry in the log of a service, from 1.
pub type Place = u64;

/// An entry. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry {
    /// Time of the order in milliseconds.
    pub(in super::super) time_ms: u64,
    pub(in super::super) what: What,
}

/// What an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    /// A command takes effect, unless it did before.
    Command {
        client: Uid,
        call: CallNumber,
        finished_below: CallNumber,
        left_ms: u64,
        received_by: Option<Server>,
        payload: Bytes,
    },
    /// The members are these from here on.
    Members(Vec<Server>),
    /// Clients need no outcome of their commands with lower numbers.
    Finished(Vec<(Uid, CallNumber)>),
}

const COMMAND: u8 = 1;
const MEMBERS: u8 = 2;
const FINISHED: u8 = 3;

impl Entry {
    pub(in super::super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match &self.what {
            What::Command { client, call, finished_below, left_ms, received_by, payload } => {
                out.reserve(64 + payload.len());
                out.put_u8(COMMAND);
                out.put_u64(self.time_ms);
                out.put_u64(client.0);
                [call, finished_below, left_ms].into_iter().for_each(|number| out.put_u64(*number));
                write_servers(&mut out, received_by.as_slice());
                out.put_slice(payload);
            }
            What::Members(servers) => {
                out.put_u8(MEMBERS);
                out.put_u64(self.time_ms);
                write_servers(&mut out, servers);
            }
            What::Finished(clients) => {
                out.put_u8(FINISHED);
                out.put_u64(self.time_ms);
                out.put_u32(clients.len() as u32);
                for (client, below) in clients {
                    out.put_u64(client.0);
                    out.put_u64(*below);
                }
            }
        }
        out.into()
    }

    /// Returns the entry, or `None` if the bytes are not valid.
    pub(in super::super) fn read(mut from: Bytes) -> Option<Entry> {
        let (kind, time_ms) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
        let what = match kind {
            COMMAND => What::Command {
                client: Uid(from.try_get_u64().ok()?),
                call: from.try_get_u64().ok()?,
                finished_below: from.try_get_u64().ok()?,
                left_ms: from.try_get_u64().ok()?,
                received_by: read_servers(&mut from)?.pop(),
                payload: from,
            },
            MEMBERS => What::Members(read_servers(&mut from)?),
            FINISHED => {
                let mut clients = Vec::new();
                for _ in 0..from.try_get_u32().ok()? {
                    clients.push((Uid(from.try_get_u64().ok()?), from.try_get_u64().ok()?));
                }
                What::Finished(clients)
            }
            _ => return None,
        };
        Some(Entry { time_ms, what })
    }
}

fn write_servers(out: &mut Vec<u8>, servers: &[Server]) {
    out.put_u8(servers.len() as u8);
    for server in servers {
        let name = server.name.as_str().as_bytes();
        out.put_u64(server.uid.0);
        out.put_u8(name.len() as u8);
        out.put_slice(name);
    }
}

fn read_servers(from: &mut Bytes) -> Option<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..from.try_get_u8().ok()? {
        let (uid, length) = (Uid(from.try_get_u64().ok()?), usize::from(from.try_get_u8().ok()?));
        let name = (length <= from.remaining()).then(|| from.split_to(length))?;
        let name = Name::new(String::from_utf8(name.into()).ok()?.as_str())?;
        servers.push(Server { uid, name });
    }
    Some(servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn entries_are_read_as_they_were_written_and_nothing_shorter_is() {
        let server = Server { uid: Uid(7), name: Name::new("2").unwrap() };
        let command = What::Command {
            client: Uid(1),
            call: 2,
            finished_below: 1,
            left_ms: 500,
            received_by: Some(server.clone()),
            payload: Bytes::new(),
        };
        for what in [command, What::Members(vec![server; 3]), What::Finished(vec![(Uid(3), 4); 2])] {
            let entry = Entry { time_ms: 9, what };
            let bytes = entry.write();
            assert_eq!(Entry::read(bytes.clone()), Some(entry));
            for end in 0..bytes.len() {
                assert_eq!(Entry::read(bytes.slice(..end)), None);
            }
        }
    }
}
