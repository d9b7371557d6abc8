//! The replicated state: a table, as a replica's state machine.

use crate::ports::{PORTS_QUESTION, Ports};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use unisono::replica::{Command, Kind, NotRestored, Outcome, StateMachine};
use unisono_table::{Limits, Request, RequestKind, Table};

/// Bytes of rows that are encoded at a time for a snapshot, 512 KiB: half a millisecond of work.
const PREPARED_BYTES: usize = 512 << 10;

/// Maximum time for which a client may wait for the outcome of a command. The clients of this crate wait for 22 s at most,
/// unless a program asks for more.
pub(crate) const COMMAND_WAITS_MAX: Duration = Duration::from_secs(60);

/// What is called after each change. It must not block.
type Observer = Arc<dyn Fn() + Send + Sync>;

/// A table with what its server needs beside it.
pub(crate) struct Directory {
    table: Table,
    /// The ports of the service, once they were asked for.
    ports: OnceLock<Ports>,
    observer: Observer,
}

impl Directory {
    /// Returns an empty directory with these bounds. `observer` is called after each change.
    pub(crate) fn new(limits: Limits, observer: Observer) -> Directory {
        Directory { table: Table::new(limits), ports: OnceLock::new(), observer }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the ports of the service; `None` before it is founded.
    pub(crate) fn ports(&self) -> Option<&Ports> {
        if self.ports.get().is_none() {
            let ports = Ports::of_secret(self.table.service())?;
            // Another thread may have set the same.
            let _ = self.ports.set(ports);
        }
        self.ports.get()
    }
}

impl StateMachine for Directory {
    const COMMAND_WAITS_MAX: Duration = COMMAND_WAITS_MAX;

    fn kind(request: &[u8]) -> Kind {
        if request == PORTS_QUESTION {
            return Kind::LocalRead;
        }
        match Request::kind(request) {
            RequestKind::Command => Kind::Command,
            RequestKind::Query => Kind::Read,
            RequestKind::LocalQuery => Kind::LocalRead,
        }
    }

    fn cost(request: &[u8]) -> u32 {
        Request::cost(request)
    }

    fn admit(&self, request: &Bytes) -> Option<Outcome> {
        self.table.admit(request).map(Outcome::Reply)
    }

    fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Outcome> {
        self.table.admit_beginning(beginning, bytes).map(Outcome::Reply)
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let reply = self.table.apply(command.payload);
        (self.observer)();
        Outcome::Reply(reply)
    }

    fn read(&self, query: &Bytes) -> Outcome {
        if query[..] != PORTS_QUESTION {
            return Outcome::Reply(self.table.answer(query));
        }
        match self.ports() {
            Some(ports) => Outcome::Reply(ports.answer()),
            None => Outcome::Refuse(Bytes::from_static(b"the service is not founded yet")),
        }
    }

    fn shows_right(&self, request: &Bytes) -> bool {
        self.table.shows_right(request)
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.table.snapshot()
    }

    fn prepare_snapshot(&mut self) -> bool {
        self.table.prepare_snapshot(PREPARED_BYTES)
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.table = Table::restore(parts).map_err(|reason| NotRestored(reason.0))?;
        self.ports = OnceLock::new();
        (self.observer)();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::OPERATION_WITHIN;
    use unisono_table::{Capability, Check, Command, ObjectNumber, Place, Port, Reason, Reply};

    #[test]
    fn a_client_may_wait_for_longer_than_any_client_of_this_crate_does() {
        let largest = Duration::from_secs(16);
        assert!(Directory::COMMAND_WAITS_MAX > 2 * (OPERATION_WITHIN + largest));
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_a_place_in_the_order() {
        let root = Capability::of_owner(Port(1), ObjectNumber(1), Check::from_bits(2));
        let good = Request::Command(Command::DeleteRow { place: Place::of(root) }).encode();
        assert_eq!(Directory::kind(&good), Kind::Command);
        let directory = Directory::new(Limits::default(), Arc::new(|| {}));
        for bad in [Bytes::from(vec![1, 0, 99]), good.slice(..good.len() - 1), vec![0; 1 << 20].into()] {
            let refused = match Directory::kind(&bad) {
                Kind::Command => directory.admit(&bad),
                _ => Some(directory.read(&bad)),
            };
            let Some(Outcome::Reply(reply)) = refused else { panic!() };
            let reply = Reply::decode(&reply).unwrap();
            assert_eq!((reply.number, reply.result), (0, Err(Reason::Unreadable.into())));
        }
    }
}
