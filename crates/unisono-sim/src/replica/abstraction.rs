//! What two moments of a history must have in common to count as one: disks, memories and callers as far as they decide
//! what can follow. The names of servers are of no importance, of generations and views only the order counts, and of logs
//! only by how much one is longer than another. A job that is not done adds nothing to what its process holds.

use super::history::{Event, SERVERS};
use crate::record::mix;
use crate::world::JobKind;

/// A moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) servers: [ServerMoment; SERVERS],
    /// Commands that were given, and whether the last of them is under way.
    pub(crate) commands: (u64, bool),
}

/// A server at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerMoment {
    pub(crate) is_up: bool,
    pub(crate) is_slow: bool,
    pub(crate) disk: DiskMoment,
    /// A job of this kind is done, and its process does not know.
    pub(crate) untold: Option<JobKind>,
    /// `None` if it is down or has just begun.
    pub(crate) memory: Option<MemoryMoment>,
    /// Servers whose marks do not reach it.
    pub(crate) lacks_marks: Mask,
}

/// What a disk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskMoment {
    /// Not begun, half, or done.
    pub(crate) created: u8,
    pub(crate) generation: u64,
    pub(crate) promised: u64,
    pub(crate) view: Option<(u64, Mask)>,
    pub(crate) end: u64,
}

/// What a process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryMoment {
    pub(crate) serves: bool,
    pub(crate) is_member: bool,
    pub(crate) is_sequencer: bool,
    pub(crate) view: Mask,
    pub(crate) generation: u64,
    /// Place of the last entry that it holds.
    pub(crate) held: u64,
    /// Entries that it holds and has not applied: of importance only where marks are withheld.
    pub(crate) unapplied: u64,
}

/// Servers, as bits.
pub(crate) type Mask = u8;

fn bit(server: u8) -> Mask {
    1 << (server - 1)
}

const ORDERS: [[usize; SERVERS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl Moment {
    /// True if this may happen now.
    pub(crate) fn allows(&self, event: Event) -> bool {
        let is_up = |server: u8| self.servers[usize::from(server) - 1].is_up;
        match event {
            Event::Crash(server) => is_up(server),
            // Of one server alone, it is a crash.
            Event::Power => self.servers.iter().filter(|server| server.is_up).count() > 1,
            Event::Return(server) => !is_up(server),
            Event::Withhold(from, to) => {
                let lacks = |server: u8| self.servers[usize::from(server) - 1].lacks_marks;
                is_up(from) && is_up(to) && lacks(to) & bit(from) == 0
            }
            _ => false,
        }
    }

    /// Returns the moment after a crash or return.
    pub(crate) fn after(&self, event: Event) -> Moment {
        let mut after = self.clone();
        let crash =
            |server: &mut ServerMoment| (server.is_up, server.untold, server.memory) = (false, None, None);
        match event {
            Event::Crash(server) => crash(&mut after.servers[usize::from(server) - 1]),
            Event::Power => after.servers.iter_mut().for_each(crash),
            Event::Return(server) => after.servers[usize::from(server) - 1].is_up = true,
            Event::Withhold(from, to) => after.servers[usize::from(to) - 1].lacks_marks |= bit(from),
            _ => {}
        }
        after
    }

    /// Returns a number that is the same for moments that count as one.
    pub(crate) fn key(&self) -> u64 {
        let order = Order::of(self);
        ORDERS.iter().map(|servers| self.key_in(servers, &order)).min().unwrap_or(0)
    }

    fn key_in(&self, servers: &[usize; SERVERS], order: &Order) -> u64 {
        let renamed = |mask: Mask| {
            let renamed = servers.iter().enumerate().filter(|(_, old)| mask & 1 << **old != 0);
            renamed.fold(0, |mask, (new, _)| mask | 1 << new)
        };
        let start = mix(self.commands.0, u64::from(self.commands.1));
        let key = servers.iter().map(|old| self.servers[*old].key(order, renamed)).fold(start, mix);
        if self.servers.iter().all(|server| server.lacks_marks == 0) {
            return key;
        }
        let of_marks = |old: &usize| {
            let ServerMoment { lacks_marks, memory, .. } = &self.servers[*old];
            [renamed(*lacks_marks), memory.map_or(0, |memory| memory.unapplied)]
        };
        servers.iter().flat_map(of_marks).fold(key, mix)
    }
}

/// The generations, views and ends of logs of a moment, each sorted.
struct Order {
    generations: Vec<u64>,
    views: Vec<u64>,
    shortest: u64,
}

impl Order {
    fn of(moment: &Moment) -> Order {
        let disks = || moment.servers.iter().map(|server| &server.disk);
        let memories = moment.servers.iter().filter_map(|server| server.memory);
        let generations = disks().flat_map(|disk| [disk.generation, disk.promised]);
        let mut generations: Vec<u64> = generations.chain(memories.map(|memory| memory.generation)).collect();
        let mut views: Vec<u64> = disks().filter_map(|disk| disk.view).map(|(number, _)| number).collect();
        for numbers in [&mut generations, &mut views] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        Order { generations, views, shortest: disks().map(|disk| disk.end).min().unwrap_or(0) }
    }
}

fn rank(numbers: &[u64], number: u64) -> u64 {
    numbers.partition_point(|known| *known < number) as u64
}

impl ServerMoment {
    fn key(&self, order: &Order, renamed: impl Fn(Mask) -> u64) -> u64 {
        let DiskMoment { created, generation, promised, view, end } = self.disk;
        let Order { generations, views, shortest } = order;
        let flags = u64::from(self.is_up) | u64::from(self.is_slow) << 1 | u64::from(created) << 2;
        let untold = self.untold.map_or(0, |kind| 1 + kind as u64);
        let [generation, promised] = [generation, promised].map(|number| rank(generations, number));
        let view = view.map_or([0, 0], |(number, mask)| [1 + rank(views, number), renamed(mask)]);
        let memory = self.memory.map_or([0; 4], |memory| {
            let MemoryMoment { serves, is_member, is_sequencer, view, generation, held, .. } = memory;
            let flags = [serves, is_member, is_sequencer, true];
            let flags = flags.into_iter().fold(0, |flags, flag| flags << 1 | u64::from(flag));
            [flags, renamed(view), rank(generations, generation), held.saturating_sub(*shortest)]
        });
        let fields = [flags, untold, generation, promised, end - shortest];
        fields.into_iter().chain(view).chain(memory).fold(5, mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment() -> Moment {
        let mut moment = Moment::default();
        for (server, index) in moment.servers.iter_mut().zip(0..) {
            server.is_up = index < 2;
            server.disk = DiskMoment { generation: index, view: Some((1, 0b011)), ..DiskMoment::default() };
        }
        moment
    }

    #[test]
    fn names_and_distances_are_of_no_importance() {
        let one = moment();
        let mut other = one.clone();
        other.servers.swap(0, 2);
        other.servers.iter_mut().for_each(|server| server.disk.view = Some((1, 0b110)));
        assert_eq!(one.key(), other.key());
        for server in &mut other.servers {
            server.disk.generation *= 7;
            server.disk.end += 5;
        }
        assert_eq!(one.key(), other.key());
        other.servers[0].disk.view = Some((1, 0b011));
        assert_ne!(one.key(), other.key());
        assert_ne!(one.key(), one.after(Event::Crash(1)).key());
        assert_ne!(one.after(Event::Crash(1)).key(), one.after(Event::Crash(2)).key());
    }

    #[test]
    fn it_matters_which_marks_are_withheld_and_then_what_is_applied() {
        let mut moment = moment();
        let key = moment.key();
        let withheld = moment.after(Event::Withhold(1, 2));
        assert_ne!(withheld.key(), key);
        assert_ne!(withheld.key(), moment.after(Event::Withhold(2, 1)).key());
        assert!(moment.allows(Event::Withhold(1, 2)) && withheld.allows(Event::Withhold(2, 1)));
        assert!(!withheld.allows(Event::Withhold(1, 2)) && !moment.allows(Event::Withhold(1, 3)));
        moment.servers[1].memory = Some(MemoryMoment::default());
        let mut other = moment.clone();
        other.servers[1].memory = Some(MemoryMoment { unapplied: 1, ..MemoryMoment::default() });
        assert_eq!(moment.key(), other.key());
        assert_ne!(moment.after(Event::Withhold(1, 2)).key(), other.after(Event::Withhold(1, 2)).key());
    }

    #[test]
    fn what_is_up_can_crash_and_what_is_down_can_return() {
        let moment = moment();
        let allowed = |event| moment.allows(event);
        assert!(allowed(Event::Crash(1)) && allowed(Event::Power) && allowed(Event::Return(3)));
        assert!(!allowed(Event::Crash(3)) && !allowed(Event::Return(1)));
        let power = moment.after(Event::Power);
        assert!(!power.allows(Event::Power) && !power.allows(Event::Crash(1)));
        assert!(power.after(Event::Return(2)).allows(Event::Crash(2)));
    }
}
