//! Answers for the server's status from its beginning to its end, whether or not it serves.

use super::spawn;
use crate::machine::Directory;
use crate::status::{BegunAnew, STATUS_QUESTION, ServerStatus, State};
use bytes::Bytes;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use unisono::replica::{
    Block, Created, DiskDurability, DiskOptions, Replica, ReplicaState, Status, instance_of, not_applying,
};
use unisono::rpc::{PrivatePort, ServeOptions, Server, ServiceError};
use unisono::{Instance, Options};
use unisono_table::VERSION;

/// Time for answers that are under way when the desk closes.
const CLOSES_WITHIN: Duration = Duration::from_millis(100);
/// Time for which an answer is given again, 10 ms: making one takes several locks of the replica, and anyone with the clients'
/// key may ask.
const ANSWER_LASTS: Duration = Duration::from_millis(10);
/// Maximum length of a question, far above that of the only one.
const QUESTION_BYTES_MAX: u32 = 1 << 10;

pub(super) struct StatusDesk {
    answering: Arc<Answering>,
    open: Mutex<Vec<Server>>,
}

/// What the threads that answer look at.
struct Answering {
    disk: DiskOptions,
    /// Present once the folder has been read.
    replica: OnceLock<Replica<Directory>>,
}

impl Drop for StatusDesk {
    /// A server that did not begin answers no longer, so that the next one may.
    fn drop(&mut self) {
        self.close();
    }
}

impl StatusDesk {
    /// Returns the desk of a server that has not read its folder yet.
    pub(super) fn new(disk: &DiskOptions) -> StatusDesk {
        let answering = Answering { disk: disk.clone(), replica: OnceLock::new() };
        StatusDesk { answering: Arc::new(answering), open: Mutex::default() }
    }

    /// Answers at this port too.
    pub(super) fn open(&self, port: &PrivatePort, reach: &Options) -> Result<(), ServiceError> {
        let serve = ServeOptions { request_bytes_max: QUESTION_BYTES_MAX, ..ServeOptions::default() };
        let server = Server::new(port, serve, reach)?;
        let (requests, answering) = (server.clone(), self.answering.clone());
        let begun = spawn("status", move || {
            let mut last = None;
            while let Ok(Some(request)) = requests.get_request_aside(None) {
                // If this fails, the caller does not wait any longer. Anyone may ask, so no question shows a right.
                let _ = match request.payload()[..] == STATUS_QUESTION {
                    true => {
                        request.deny(given_again(&mut last, Instant::now(), || answering.status().encode()))
                    }
                    false => request.refuse("this port answers for the status of a server"),
                };
            }
        });
        begun.map_err(|cause| {
            ServiceError::Open(unisono::OpenError::Socket { what: "start a thread", cause })
        })?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(server);
        Ok(())
    }

    /// Says what the replica is from now on.
    pub(super) fn set(&self, replica: Replica<Directory>) {
        let _ = self.answering.replica.set(replica);
    }

    pub(super) fn status(&self) -> ServerStatus {
        self.answering.status()
    }

    pub(super) fn close(&self) {
        for server in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A caller that gets no answer asks again.
            let _ = server.drain(CLOSES_WITHIN);
        }
    }
}

/// Returns the last answer, or makes one if that is too old.
fn given_again(last: &mut Option<(Instant, Bytes)>, now: Instant, make: impl FnOnce() -> Bytes) -> Bytes {
    let known = last.take().filter(|(made_at, _)| now.duration_since(*made_at) < ANSWER_LASTS);
    last.insert(known.unwrap_or_else(|| (now, make()))).1.clone()
}

impl Answering {
    fn status(&self) -> ServerStatus {
        self.replica.get().map_or_else(
            || ServerStatus {
                server: self.disk.id,
                servers: self.disk.servers,
                state: State::Recovering,
                why: "it reads its folder".into(),
                version: VERSION,
                ..ServerStatus::default()
            },
            |replica| status(replica, self.disk.replace),
        )
    }
}

/// Returns the status of a server that has read its folder, which replaces another one if `replaces`.
fn status(replica: &Replica<Directory>, replaces: bool) -> ServerStatus {
    let (present, disk) = (replica.status(), replica.disk());
    let number = replica.look(|directory| directory.table().number());
    let Some((block, mut waits_for)) = disk else { return ServerStatus::default() };
    let hears = others_in_group(&present, block.server);
    let useless_disks = replica.useless_disks();
    let empty = empty_beside_others(&block, &hears, &useless_disks);
    let is_created = matches!(block.created, Created::Done(_));
    let (state, why) = match present.state {
        ReplicaState::Serving => (State::Serving, not_applying(present.behind).unwrap_or_default()),
        ReplicaState::Ended => (State::Stopped, "it ends".into()),
        _ if empty.is_some() && !replaces && !waits_for.is_empty() => {
            waits_for.retain(|id| *id != block.server);
            (State::Waiting, empty.unwrap_or_default())
        }
        _ if !is_created && block.generation == 0 && !replaces && !waits_for.is_empty() => {
            (State::Creating, "all servers have to be there once to create the service".into())
        }
        _ if !waits_for.is_empty() && hears.is_empty() => (State::Waiting, "it hears no other server".into()),
        _ if !waits_for.is_empty() && block.durability == DiskDurability::One => {
            (State::Waiting, "a disk that may have the last changes is missing".into())
        }
        _ if !waits_for.is_empty() => (State::Waiting, "too few servers with a good disk are there".into()),
        ReplicaState::Halted => (State::Waiting, "the others do not answer".into()),
        ReplicaState::Fetching { bytes_here, bytes_total } if bytes_total > 0 => {
            (State::Joining, format!("it fetches the state: {bytes_here} of {bytes_total} bytes"))
        }
        ReplicaState::Storing => (State::Joining, "it writes the state to its disk".into()),
        ReplicaState::Entering | ReplicaState::Reentering => {
            (State::Recovering, "it looks for the other servers".into())
        }
        _ => (State::Recovering, "it finds out with the others which state goes on".into()),
    };
    ServerStatus {
        server: block.server,
        servers: block.servers,
        state,
        why,
        number,
        waits_for: if state == State::Serving { Vec::new() } else { waits_for },
        generation: block.generation,
        disk: block.disk,
        digest: present.digest.filter(|_| state == State::Serving),
        begun_anew: block
            .anew
            .iter()
            .map(|escape| BegunAnew { server: escape.server, at_ms: escape.at_ms, number: escape.from })
            .collect(),
        version: VERSION,
        one_disk: block.durability == DiskDurability::One,
        instance: if block.service == 0 { 0 } else { instance_of(Instance(block.service)) },
        created_at_ms: block.created_at_ms(),
        hears,
        useless_disks,
    }
}

/// Says which servers have the service, if the disk of this one is empty and others in its group have it.
fn empty_beside_others(block: &Block, hears: &[u8], useless_disks: &[u8]) -> Option<String> {
    if block.created != Created::Blank || !useless_disks.contains(&block.server) {
        return None;
    }
    let have: Vec<String> =
        hears.iter().filter(|id| !useless_disks.contains(id)).map(u8::to_string).collect();
    match &have[..] {
        [] => None,
        [one] => Some(format!("its disk is empty, and server {one} has the service")),
        _ => Some(format!("its disk is empty, and servers {} have the service", have.join(", "))),
    }
}

/// Returns the ids of the servers that a server is in a group with.
fn others_in_group(present: &Status, server: u8) -> Vec<u8> {
    let ids = present.members.iter().filter_map(|member| member.name.as_str().parse().ok());
    ids.filter(|id| *id != server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_again_for_ten_milliseconds() {
        let (begun, mut last, mut made) = (Instant::now(), None, 0_u8);
        let mut at = |millis| {
            let make = || {
                made += 1;
                Bytes::copy_from_slice(&[made])
            };
            given_again(&mut last, begun + Duration::from_millis(millis), make)[0]
        };
        assert_eq!([at(0), at(5), at(9), at(10), at(19), at(40)], [1, 1, 1, 2, 2, 3]);
    }
}
