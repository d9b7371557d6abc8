//! The table as the state of a simulated server, as `unisono-dir` runs it, and the bugs of such a server.

use super::{REPLY, marked};
use crate::bugs::{Planted, ServiceBug};
use crate::record::{hash, mix};
use bytes::Bytes;
use unisono_core::replica::NotRestored;
use unisono_table::{Answer, Check, Command, Limits, Place, Query, Reason, Reply, Request, Row, Table};

/// The directory of one server.
#[derive(Debug)]
pub(crate) struct Directory {
    table: Table,
    bug: Option<Planted>,
    /// Differs from server to server.
    server: u64,
    /// The state before the last command, for a bug that looks at it.
    before: Option<Box<Table>>,
    has_prepared: bool,
}

impl Directory {
    pub(crate) fn new(limits: Limits, bug: Option<Planted>, server: u64) -> Directory {
        let mut directory =
            Directory { table: Table::new(limits), bug, server, before: None, has_prepared: false };
        directory.plant();
        directory
    }

    fn plant(&mut self) {
        if let Some(Planted::Table(bug)) = self.bug {
            self.table.plant(bug);
        }
    }

    pub(crate) fn broken(&self, bug: ServiceBug) -> bool {
        self.bug == Some(Planted::Service(bug))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Applies the command with these bytes.
    pub(crate) fn apply(&mut self, request: &Bytes) -> Bytes {
        if self.broken(ServiceBug::LookupSetAtTwoInstants) {
            self.before = Table::restore(&self.table.snapshot()).ok().map(Box::new);
        }
        let reply = match self.broken(ServiceBug::CheckDrawnByServer) {
            true => self.table.apply(&self.with_own_secret(request)),
            false => self.table.apply(request),
        };
        marked(REPLY, &reply)
    }

    /// Returns the reply to the command with these bytes if it is refused before it is ordered.
    pub(crate) fn admit(&self, request: &Bytes) -> Option<Bytes> {
        let refusal = self.table.admit(request).or_else(|| self.refuses_too_much(request));
        refusal.map(|reply| marked(REPLY, &reply))
    }

    /// The same of the first bytes of a command of `bytes` bytes.
    pub(crate) fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Bytes> {
        self.table.admit_beginning(beginning, bytes).map(|reply| marked(REPLY, &reply))
    }

    /// Answers the query with these bytes.
    pub(crate) fn answer(&self, request: &Bytes) -> Bytes {
        let query = match Request::decode(request) {
            Some(Request::Query(query) | Request::LocalQuery(query)) => query,
            _ => return marked(REPLY, &self.table.answer(request)),
        };
        let reply = match &query {
            Query::Lookup { places } => self.lookup(places, &query),
            _ => self.table.ask(&query),
        };
        marked(REPLY, &self.in_own_order(reply).encode())
    }

    pub(crate) fn snapshot(&self) -> Vec<Bytes> {
        self.table.snapshot()
    }

    /// Prepares a snapshot at every second call, so that servers have to ask again.
    pub(crate) fn prepare_snapshot(&mut self) -> bool {
        self.has_prepared = !self.has_prepared;
        !self.has_prepared && self.table.prepare_snapshot(usize::MAX)
    }

    pub(crate) fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.table = Table::restore(parts).map_err(|reason| NotRestored(reason.0))?;
        self.plant();
        Ok(())
    }

    /// Returns a hash of the whole state.
    pub(crate) fn hash(&self) -> u64 {
        self.table.snapshot().iter().fold(6, |all, part| mix(all, hash(part)))
    }

    // --- bugs ---

    fn refuses_too_much(&self, request: &Bytes) -> Option<Bytes> {
        let deletes = |request| matches!(request, Request::Command(Command::DeleteRow { .. }));
        let is_wrong =
            self.broken(ServiceBug::RefusedThoughAllowed) && Request::decode(request).is_some_and(deletes);
        is_wrong
            .then(|| Reply { result: Err(Reason::Denied.into()), ..self.table.ask(&Query::Info) }.encode())
    }

    fn with_own_secret(&self, request: &Bytes) -> Bytes {
        let own = |secret: Check| Check::from_bits(secret.to_bits() ^ u128::from(self.server));
        match Request::decode(request) {
            Some(Request::Command(Command::CreateDirectory { place, columns, masks, secret })) => {
                let secret = own(secret);
                Request::Command(Command::CreateDirectory { place, columns, masks, secret }).encode()
            }
            _ => request.clone(),
        }
    }

    fn lookup(&self, places: &[Place], query: &Query) -> Reply {
        let reply = self.table.ask(query);
        let Some(before) = &self.before else { return reply };
        let first = places.len() / 2;
        let earlier = before.ask(query);
        match (reply.result, earlier.result) {
            (Ok(Answer::Looked(mut looked)), Ok(Answer::Looked(earlier))) => {
                looked.splice(..first, earlier.into_iter().take(first));
                Reply { result: Ok(Answer::Looked(looked)), ..reply }
            }
            (result, _) => Reply { result, ..reply },
        }
    }

    fn in_own_order(&self, mut reply: Reply) -> Reply {
        if self.broken(ServiceBug::RowsInHashOrder)
            && let Ok(Answer::Rows { rows, .. }) = &mut reply.result
        {
            rows.sort_by_key(|row: &Row| mix(hash(row.name.as_str().as_bytes()), self.server));
        }
        reply
    }
}
