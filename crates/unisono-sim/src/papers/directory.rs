//! The directory services of KTV93: how long an operation takes, from calls, sends to the group, and disk operations.
//!
//! Lookups are calls, and run on the testbed. An update is served by one server after the other's update, so the time of an
//! update is the sum of its steps [KTV93 §3.1, §4.1]:
//!
//! | service | steps of an update after the client's call |
//! |---|---|
//! | group | work, a send with r = 2 to three servers, the store |
//! | NVRAM | the same without the store: it happens later, off the path |
//! | pair | work, a call to the other server with one disk operation (its intentions), the store |
//! | single | work, the store |
//!
//! The store writes a new file, the object table and the removal of the old file, each by a call to the file server.

use super::calls::{self, Rates};
use super::costs::{Costs, MachineName};
use super::group::Trial;

const MACHINE: MachineName = MachineName::Sun360;

/// A directory service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Three servers in a group.
    Group,
    /// Two servers that call each other.
    Pair,
    /// Three servers in a group that log to memory that keeps its contents.
    Nvram,
    /// One server.
    Single,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Looks a name up.
    Lookup,
    /// Appends a row and deletes it: a pair of updates.
    AppendDelete,
    /// Makes a file of 4 bytes, enters its name, looks it up, reads the file, deletes name and file.
    TmpFile,
}

/// A directory service with the measured times of its parts, in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    costs: Costs,
    rpc: f64,
    send: f64,
}

impl Directory {
    /// Measures a call and a send on the testbed.
    pub(super) fn new(costs: &Costs) -> Directory {
        let rpc = calls::call_alone(costs, MACHINE, 0.0).delay_us / 1000.0;
        let send = Trial { members: 3, resilience: 2, ..Trial::new(MACHINE) }.simulate(costs);
        Directory { costs: costs.clone(), rpc, send: send.delay_us / 1000.0 }
    }

    /// Returns the number of disk operations of an update that its client waits for.
    pub(super) fn disk_operations(service: Service) -> u32 {
        let store = 3;
        match service {
            Service::Group | Service::Single => store,
            Service::Pair => store + 1,
            Service::Nvram => 0,
        }
    }

    fn store(&self) -> f64 {
        let costs = self.costs.directory();
        costs.short + 2.0 * costs.long + 3.0 * self.rpc
    }

    /// Returns the milliseconds for which an update keeps the service busy.
    fn served(&self, service: Service) -> f64 {
        let costs = self.costs.directory();
        costs.update
            + match service {
                Service::Group => self.send + self.store(),
                Service::Nvram => self.send,
                Service::Pair => self.rpc + costs.short + self.store(),
                Service::Single => self.store(),
            }
    }

    /// Returns the milliseconds of an operation at its client.
    pub(super) fn took(&self, operation: Operation, service: Service) -> f64 {
        let costs = self.costs.directory();
        let pair = 2.0 * (self.rpc + self.served(service));
        let lookup = self.rpc + costs.lookup;
        match operation {
            Operation::Lookup => lookup,
            Operation::AppendDelete => pair,
            Operation::TmpFile => pair + (self.rpc + costs.short) + lookup + (self.rpc + costs.file),
        }
    }

    /// Returns the milliseconds for which a pair of updates keeps the service busy.
    pub(super) fn pair_served(&self, service: Service) -> f64 {
        2.0 * self.served(service)
    }

    /// Returns the pairs of updates a second with this number of clients, whose calls overlap with others' updates.
    pub(super) fn pairs_per_s(&self, service: Service, clients: usize) -> f64 {
        let alone = clients as f64 / self.took(Operation::AppendDelete, service);
        1000.0 * alone.min(1.0 / self.pair_served(service))
    }

    /// Returns the milliseconds of a server for a lookup that its client waits for.
    pub(super) fn lookup_served(&self) -> f64 {
        let machine = self.costs.machine(MACHINE);
        let null = machine.packet_header_bytes() + machine.message_bytes(0);
        let packets = machine.receive_nanos(null) + machine.send_nanos(null);
        packets as f64 / 1e6 + (machine.g2 + machine.us) / 1000.0 + self.costs.directory().lookup
    }

    /// Returns the lookups a second of this number of clients at this number of servers.
    pub(super) fn lookups(&self, servers: usize, clients: usize, seed: u64) -> Rates {
        calls::draw(&self.costs, MACHINE, (servers, clients), 1000.0 * self.costs.directory().lookup, seed)
    }
}

impl Service {
    /// Number of servers in the paper.
    pub fn servers(self) -> usize {
        match self {
            Service::Group | Service::Nvram => 3,
            Service::Pair => 2,
            Service::Single => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(changes: &[&str], operation: Operation, service: Service) -> f64 {
        let mut costs = Costs::default();
        for change in changes {
            costs.set(change).unwrap();
        }
        Directory::new(&costs).took(operation, service)
    }

    #[test]
    fn nvram_does_not_feel_the_disk_and_the_group_does() {
        let pair = |changes: &[&str], service| took(changes, Operation::AppendDelete, service);
        assert_eq!(pair(&["long=x0.5"], Service::Nvram), pair(&[], Service::Nvram));
        let less = pair(&[], Service::Group) - pair(&["long=x0.5"], Service::Group);
        assert!(
            (less - 2.0 * 28.3).abs() < 0.1,
            "two updates, two long operations each, half as long: {less}"
        );
    }

    #[test]
    fn the_pair_needs_one_disk_operation_more() {
        let more = Directory::disk_operations(Service::Pair) - Directory::disk_operations(Service::Group);
        assert_eq!(more, 1);
    }

    #[test]
    fn updates_are_bound_by_the_service_and_not_by_its_clients() {
        let directory = Directory::new(&Costs::default());
        let rates = [1, 2, 7].map(|clients| directory.pairs_per_s(Service::Nvram, clients));
        assert!(rates[0] < rates[1] && rates[1] == rates[2], "{rates:?}");
    }
}
