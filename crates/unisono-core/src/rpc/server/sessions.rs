//! The sessions of a server: found by client when a datagram arrives, and by a small number from then on.

use super::session::Session;
use crate::identity::Uid;
use crate::rpc::slab::Slab;
use alloc::collections::BTreeMap;

#[derive(Debug, Default)]
pub(in crate::rpc) struct Sessions {
    indices: BTreeMap<Uid, u32>,
    sessions: Slab<Session>,
}

/// Names a session for as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rpc) struct SessionId {
    pub(in crate::rpc) client: Uid,
    index: u32,
}

#[cfg(test)]
impl SessionId {
    /// Returns one that no table has given.
    pub(super) fn of_client(client: u64) -> SessionId {
        SessionId { client: Uid(client), index: 0 }
    }
}

impl Sessions {
    /// Returns the session with this client.
    pub(super) fn find(&self, client: Uid) -> Option<SessionId> {
        self.indices.get(&client).map(|&index| SessionId { client, index })
    }

    /// Opens a session. There must be none with its client.
    pub(super) fn open(&mut self, session: Session) -> SessionId {
        let client = session.client;
        let index = self.sessions.insert(session);
        self.indices.insert(client, index);
        SessionId { client, index }
    }

    #[inline]
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id.index).filter(|session| session.client == id.client)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index).filter(|session| session.client == id.client)
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        if self.get(id).is_some() {
            self.indices.remove(&id.client);
            self.sessions.remove(id.index);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns all sessions, ascending by client.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let named = |(&client, &index)| Some((SessionId { client, index }, self.sessions.get(index)?));
        self.indices.iter().filter_map(named)
    }
}
