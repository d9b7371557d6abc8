//! The latest moment at which each server knew of each other one, directly or through a third. A server that has known of no
//! majority since a question arrived cannot know that its state is the present one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// What all servers have heard. Moments are counted by questions that arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Rc<RefCell<Table>>);

#[derive(Debug, Default)]
struct Table {
    moment: u64,
    /// Of each server, the latest moment of each other one of which it may know.
    servers: BTreeMap<SocketAddr, BTreeMap<SocketAddr, u64>>,
}

impl Heard {
    /// A new life begins: it has heard nothing.
    pub(super) fn begin(&self, server: SocketAddr) {
        self.0.borrow_mut().servers.insert(server, BTreeMap::new());
    }

    /// A server receives a datagram of another one, and with it perhaps what that one has heard.
    pub(super) fn note(&self, server: SocketAddr, from: SocketAddr) {
        let table = &mut *self.0.borrow_mut();
        let theirs = table.servers.get(&from).cloned().unwrap_or_default();
        let mine = table.servers.entry(server).or_default();
        for (other, moment) in theirs.into_iter().filter(|(other, _)| *other != server) {
            let known = mine.entry(other).or_default();
            *known = moment.max(*known);
        }
        mine.insert(from, table.moment);
    }

    /// A question arrives. Returns the moment.
    pub(super) fn question(&self) -> u64 {
        let table = &mut *self.0.borrow_mut();
        table.moment += 1;
        table.moment
    }

    /// Returns the number of servers of which this one has heard since a moment, itself included.
    pub(super) fn count(&self, server: SocketAddr, since: u64) -> usize {
        let table = self.0.borrow();
        let heard = table.servers.get(&server).into_iter().flat_map(BTreeMap::values);
        1 + heard.filter(|moment| **moment >= since).count()
    }
}
