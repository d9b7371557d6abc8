//! What clients need no more: a service that recognises repeats keeps its replies, and may drop those of these calls.
//!
//! A request says below which number its client knows all outcomes. A client that makes no further call says it in the
//! `Done` that acknowledges the last answers, or with which its life ends. These reports only save memory: one that is
//! lost, or not kept here for lack of room, frees nothing and harms nothing.

use super::Server;
use super::sessions::SessionId;
use crate::identity::{Port, Uid};
use crate::rpc::types::CallNumber;
use alloc::collections::BTreeMap;

/// Maximum number of clients of one service whose reports wait for the application.
const FINISHED_CLIENTS_MAX: usize = 4096;

/// Reports that the application has not taken: for each client the highest number.
#[derive(Debug, Default)]
pub(super) struct Finished(BTreeMap<Uid, CallNumber>);

impl Finished {
    fn note(&mut self, client: Uid, below: CallNumber) {
        if let Some(known) = self.0.get_mut(&client) {
            *known = below.max(*known);
        } else if self.0.len() < FINISHED_CLIENTS_MAX {
            self.0.insert(client, below);
        }
    }
}

impl Server {
    /// Notes that the client of a session knows the outcomes of all its calls below this number, whatever their ports. What says
    /// nothing new costs nothing more.
    pub(super) fn note_finished(&mut self, id: SessionId, below: CallNumber) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if below <= session.finished_below {
            return;
        }
        session.finished_below = below;
        for (_, service) in self.services.iter_mut().filter(|(_, service)| service.options.repeats) {
            service.finished.note(id.client, below);
        }
    }

    pub(in crate::rpc) fn poll_finished(&mut self, port: Port) -> Option<(Uid, CallNumber)> {
        self.services.get_mut(port)?.finished.0.pop_first()
    }
}
