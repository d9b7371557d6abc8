//! The log as all servers see it: what is ordered and not yet applied, and how far the disk of each server has it.
//!
//! An entry is applied once it is durable: synced in the present generation by a majority of the configured servers, or
//! with durability *one* by one member of a view that all its members have written ([`Views`]). A server counts by its
//! id, whether or not it is a member at present: its disk stays.

use super::super::Watched;
use super::super::disk::{DiskDurability, Escape, Heard};
use super::entry::{Entry, Place};
use super::marks::Mark;
use super::views::Views;
use crate::identity::Uid;
use crate::planted::Planted;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// The log. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Ledger {
    /// Number of configured servers.
    servers: u8,
    /// Instance of the service, and each time that it began anew.
    service: u128,
    anew: Vec<Escape>,
    generation: u64,
    /// Place of the last entry that was applied.
    applied: Place,
    pending: VecDeque<Bytes>,
    /// Place through which each server has synced, in this generation.
    synced: BTreeMap<u8, Place>,
    /// What was heard of each server's disk.
    heard: BTreeMap<u8, Heard>,
    /// Present with durability *one*.
    views: Option<Views>,
    clock: Clock,
    /// What the last change of the view carried over: for a planted bug.
    carried: Place,
}

/// The time of the order, from the clocks of the members that submit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock {
    now_ms: u64,
    /// Offset of each member's stamps to the time of the order.
    offsets: BTreeMap<Uid, i64>,
}

impl Ledger {
    /// Returns the log of a server that begins with a state which contains all entries through `applied`.
    pub(in super::super) fn new(
        (servers, durability): (u8, DiskDurability),
        applied: Place,
        pending: Vec<Bytes>,
    ) -> Ledger {
        let views = (durability == DiskDurability::One).then(Views::default);
        Ledger { servers, views, applied, pending: pending.into(), ..Ledger::default() }
    }

    /// Begins a generation: the disks of `servers` have everything here.
    pub(in super::super) fn begin(
        &mut self,
        generation: u64,
        servers: impl Iterator<Item = u8>,
        now_ms: u64,
    ) {
        let end = self.end();
        self.generation = generation;
        self.synced = servers.map(|server| (server, end)).collect();
        if let Some(views) = &mut self.views {
            views.begin(self.synced.keys().copied().collect());
        }
        let last = self.pending.back().and_then(|bytes| Entry::read(bytes.clone()));
        let last_ms = last.map_or(0, |entry| entry.time_ms);
        self.clock = Clock { now_ms: now_ms.max(last_ms), offsets: BTreeMap::new() };
    }

    pub(in super::super) fn set_service(&mut self, service: u128, anew: Vec<Escape>) {
        (self.service, self.anew) = (service, anew);
    }

    pub(in super::super) fn service(&self) -> (u128, &[Escape]) {
        (self.service, &self.anew)
    }

    /// Returns the options that the service was created with.
    pub(in super::super) fn options(&self) -> (u8, DiskDurability) {
        let durability = self.views.as_ref().map_or(DiskDurability::Majority, |_| DiskDurability::One);
        (self.servers, durability)
    }

    pub(in super::super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Place of the last entry that is ordered.
    pub(in super::super) fn end(&self) -> Place {
        self.applied + self.pending.len() as Place
    }

    pub(in super::super) fn applied(&self) -> Place {
        self.applied
    }

    pub(in super::super) fn pending(&self) -> impl Iterator<Item = &Bytes> {
        self.pending.iter()
    }

    /// Returns the time of the order for something that a member submitted at this time of its own clock.
    pub(in super::super) fn tick(&mut self, member: Uid, stamp_ms: u64) -> u64 {
        let clock = &mut self.clock;
        let offset = *clock.offsets.entry(member).or_insert(clock.now_ms.wrapping_sub(stamp_ms) as i64);
        clock.now_ms = clock.now_ms.max(stamp_ms.wrapping_add_signed(offset));
        clock.now_ms
    }

    /// Returns the time of the order.
    pub(in super::super) fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    pub(in super::super) fn retain_members(&mut self, stays: impl Fn(Uid) -> bool) {
        self.clock.offsets.retain(|member, _| stays(*member));
    }

    pub(in super::super) fn push(&mut self, entry: Bytes) {
        self.pending.push_back(entry);
    }

    /// With durability *majority*: notes the mark of a server. It counts for what this server holds, and stays true whatever
    /// becomes of the other. Returns false if it counts for nothing.
    pub(in super::super) fn note_mark(&mut self, server: u8, mark: Mark) -> bool {
        let counts = self.views.is_none() && (1..=self.servers).contains(&server);
        if counts {
            self.note_synced(server, mark.generation, mark.place);
        }
        counts && mark.generation == self.generation
    }

    /// Notes that a server has synced its log in this generation through `place`.
    pub(in super::super) fn note_synced(&mut self, server: u8, generation: u64, place: Place) {
        if generation != self.generation {
            return;
        }
        let synced = self.synced.entry(server).or_default();
        *synced = place.max(*synced);
        if let Some(heard) = self.heard.get_mut(&server) {
            heard.position = *synced;
        }
    }

    /// Notes what is known of a server's disk.
    pub(in super::super) fn note_disk(&mut self, server: u8, disk: Heard) {
        self.heard.insert(server, disk);
    }

    /// Notes that a server's disk has the state. With durability *one* it counts once all members have written the view
    /// with it.
    pub(in super::super) fn note_joined(&mut self, server: u8, disk: Heard, watched: Watched) {
        self.note_disk(server, disk);
        self.note_synced(server, disk.generation, disk.position);
        if let Some(views) = &mut self.views {
            views.add(server, watched);
        }
    }

    /// Notes that only these servers are members: what others have does not count with durability *one*.
    pub(in super::super) fn note_members(&mut self, here: &BTreeSet<u8>, watched: Watched) {
        if watched.broken(Planted::CarriedOverCounted) {
            self.carried = self.end();
        }
        if let Some(views) = &mut self.views {
            views.keep(here, watched);
        }
    }

    /// Notes that a server has written a view of this generation.
    pub(in super::super) fn note_view_written(&mut self, server: u8, generation: u64, number: u64) {
        if let Some(views) = self.views.as_mut().filter(|_| generation == self.generation) {
            views.note_written(server, number);
        }
    }

    /// With durability *one*: number and members of the present view.
    pub(in super::super) fn view(&self) -> Option<(u64, Vec<u8>)> {
        self.views.as_ref().map(Views::present)
    }

    /// Forgets how far a server has synced: one that comes anew may have another disk.
    pub(in super::super) fn forget(&mut self, server: u8) {
        self.synced.remove(&server);
    }

    pub(in super::super) fn heard(&self) -> &BTreeMap<u8, Heard> {
        &self.heard
    }

    pub(in super::super) fn set_heard(&mut self, heard: BTreeMap<u8, Heard>) {
        self.heard = heard;
    }

    /// Returns the place through which the log is durable.
    fn durable(&self, me: u8, watched: Watched) -> Place {
        let synced = |server: &u8| self.synced.get(server).copied();
        match &self.views {
            Some(views) if views.is_installed(self.servers, me, watched) => {
                views.members().filter_map(synced).max().unwrap_or(0)
            }
            Some(views) if watched.broken(Planted::CarriedOverCounted) => {
                views.members().filter_map(synced).max().unwrap_or(0).min(self.carried)
            }
            Some(_) => 0,
            None => {
                let mut places: Vec<Place> = self.synced.values().copied().collect();
                places.sort_unstable_by(|a, b| b.cmp(a));
                let others = usize::from(self.servers) / 2;
                let others =
                    if watched.broken(Planted::OneMarkLess) { others.saturating_sub(1) } else { others };
                places.get(others).copied().unwrap_or(0)
            }
        }
    }

    /// Returns the place through which all of these have synced: for a planted bug.
    pub(in super::super) fn synced_by_all(&self, servers: &BTreeSet<u8>) -> Place {
        servers.iter().map(|server| self.synced.get(server).copied().unwrap_or(0)).min().unwrap_or(0)
    }

    /// Returns the place through which most of these have synced: for a planted bug.
    pub(in super::super) fn synced_by_most(&self, servers: &BTreeSet<u8>) -> Place {
        let synced = servers.iter().map(|server| self.synced.get(server).copied().unwrap_or(0));
        let mut places: Vec<Place> = synced.collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.get(servers.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the place that would be durable if this server had synced all that it holds: for a planted bug.
    pub(in super::super) fn durable_if_synced(&self, me: u8) -> Place {
        let mut ledger = Ledger { servers: self.servers, synced: self.synced.clone(), ..Ledger::default() };
        ledger.synced.insert(me, self.end());
        ledger.durable(me, Watched::default())
    }

    /// Forgets everything after a place: for a planted bug.
    pub(in super::super) fn truncate(&mut self, end: Place) {
        self.pending.truncate(end.saturating_sub(self.applied) as usize);
    }

    /// Takes out the next entry that is durable at this server, and its length in bytes. What lies at or below `early` is
    /// taken although it is not.
    pub(in super::super) fn take_durable(
        &mut self,
        me: u8,
        early: Place,
        watched: Watched,
    ) -> Option<(Entry, usize)> {
        if self.applied >= self.durable(me, watched).max(early) {
            return None;
        }
        let bytes = self.pending.pop_front()?;
        self.applied += 1;
        let length = bytes.len();
        Entry::read(bytes).map(|entry| (entry, length))
    }

    // --- for a newcomer ---

    pub(in super::super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(self.servers);
        out.put_u128(self.service);
        out.put_u8(self.anew.len() as u8);
        for escape in &self.anew {
            out.put_u8(escape.server);
            out.put_u64(escape.at_ms);
            out.put_u64(escape.from);
            out.put_u128(escape.service);
        }
        out.put_u64(self.generation);
        out.put_u64(self.applied);
        out.put_u8(self.synced.len() as u8);
        for (server, place) in &self.synced {
            out.put_u8(*server);
            out.put_u64(*place);
        }
        write_heard(out, &self.heard);
        match &self.views {
            None => out.put_u8(0),
            Some(views) => {
                out.put_u8(1);
                views.write(out);
            }
        }
        out.put_u64(self.clock.now_ms);
        out.put_u32(self.clock.offsets.len() as u32);
        for (member, offset) in &self.clock.offsets {
            out.put_u64(member.0);
            out.put_i64(*offset);
        }
        out.put_u32(self.pending.len() as u32);
        for entry in &self.pending {
            out.put_u32(entry.len() as u32);
            out.put_slice(entry);
        }
    }

    pub(in super::super) fn read(from: &mut Bytes) -> Option<Ledger> {
        let mut ledger = Ledger { servers: from.try_get_u8().ok()?, ..Ledger::default() };
        ledger.service = from.try_get_u128().ok()?;
        for _ in 0..from.try_get_u8().ok()? {
            ledger.anew.push(Escape {
                server: from.try_get_u8().ok()?,
                at_ms: from.try_get_u64().ok()?,
                from: from.try_get_u64().ok()?,
                service: from.try_get_u128().ok()?,
            });
        }
        ledger.generation = from.try_get_u64().ok()?;
        ledger.applied = from.try_get_u64().ok()?;
        for _ in 0..from.try_get_u8().ok()? {
            let server = from.try_get_u8().ok()?;
            ledger.synced.insert(server, from.try_get_u64().ok()?);
        }
        ledger.heard = read_heard(from)?;
        if from.try_get_u8().ok()? != 0 {
            ledger.views = Some(Views::read(from)?);
        }
        ledger.clock.now_ms = from.try_get_u64().ok()?;
        for _ in 0..from.try_get_u32().ok()? {
            let member = Uid(from.try_get_u64().ok()?);
            ledger.clock.offsets.insert(member, from.try_get_i64().ok()?);
        }
        for _ in 0..from.try_get_u32().ok()? {
            let length = from.try_get_u32().ok()? as usize;
            let entry = (length <= from.remaining()).then(|| from.split_to(length))?;
            Entry::read(entry.clone())?;
            ledger.pending.push_back(entry);
        }
        Some(ledger)
    }
}

pub(super) fn write_heard(out: &mut Vec<u8>, heard: &BTreeMap<u8, Heard>) {
    out.put_u8(heard.len() as u8);
    for (server, disk) in heard {
        out.put_u8(*server);
        [disk.disk, disk.generation, disk.starts, disk.position].into_iter().for_each(|n| out.put_u64(n));
    }
}

pub(super) fn read_heard(from: &mut Bytes) -> Option<BTreeMap<u8, Heard>> {
    let mut heard = BTreeMap::new();
    for _ in 0..from.try_get_u8().ok()? {
        let server = from.try_get_u8().ok()?;
        let disk = Heard {
            disk: from.try_get_u64().ok()?,
            generation: from.try_get_u64().ok()?,
            starts: from.try_get_u64().ok()?,
            position: from.try_get_u64().ok()?,
        };
        heard.insert(server, disk);
    }
    Some(heard)
}

#[cfg(test)]
mod tests {
    use super::super::entry::What;
    use super::*;
    use alloc::vec;

    fn entry() -> Bytes {
        Entry { time_ms: 5, what: What::Finished(vec![]) }.write()
    }

    fn ledger() -> Ledger {
        of(DiskDurability::Majority)
    }

    fn of(durability: DiskDurability) -> Ledger {
        let mut ledger = Ledger::new((3, durability), 10, vec![entry(), entry()]);
        ledger.begin(4, [1, 2].into_iter(), 0);
        ledger
    }

    fn take(ledger: &mut Ledger) -> Option<(Entry, usize)> {
        ledger.take_durable(1, 0, Watched::default())
    }

    #[test]
    fn the_base_of_a_majority_is_durable_and_what_comes_later_waits_for_two_disks() {
        let mut ledger = ledger();
        ledger.push(entry());
        while take(&mut ledger).is_some() {}
        assert_eq!((ledger.applied(), ledger.end()), (12, 13));
        ledger.note_synced(1, 4, 13);
        assert_eq!(take(&mut ledger), None);
        ledger.note_synced(3, 3, 13);
        assert_eq!(take(&mut ledger), None, "of another generation");
        ledger.note_synced(3, 4, 13);
        assert!(take(&mut ledger).is_some());
    }

    #[test]
    fn a_mark_counts_in_its_generation_for_what_is_held_and_never_goes_back() {
        let mut ledger = ledger();
        while take(&mut ledger).is_some() {}
        let mark = |generation, place| Mark { generation, place };
        let note = |ledger: &mut Ledger, server, mark| ledger.note_mark(server, mark);
        note(&mut ledger, 1, mark(4, 14));
        note(&mut ledger, 3, mark(4, 15));
        assert_eq!(take(&mut ledger), None, "nothing more is held");
        ledger.push(entry());
        assert!(take(&mut ledger).is_some());
        note(&mut ledger, 3, mark(4, 13));
        ledger.push(entry());
        assert!(take(&mut ledger).is_some(), "3 said 15 before");
        ledger.push(entry());
        note(&mut ledger, 1, mark(3, 15));
        note(&mut ledger, 4, mark(4, 15));
        note(&mut ledger, 0, mark(4, 15));
        assert_eq!(take(&mut ledger), None, "of another generation, and of no server");
        let mut one = of(DiskDurability::One);
        while take(&mut one).is_some() {}
        one.push(entry());
        note(&mut one, 1, mark(4, 13));
        assert_eq!(take(&mut one), None, "with one, the order says it");
    }

    #[test]
    fn with_durability_one_a_disk_of_a_written_view_suffices() {
        let mut ledger = of(DiskDurability::One);
        while take(&mut ledger).is_some() {}
        (0..2).for_each(|_| ledger.push(entry()));
        ledger.note_synced(1, 4, 13);
        assert!(take(&mut ledger).is_some());
        assert_eq!(take(&mut ledger), None, "no disk has it");
        // A joiner's disk counts when all members have written the view with it, and nothing counts until then.
        let disk = Heard { disk: 9, generation: 4, starts: 2, position: 14 };
        ledger.note_joined(3, disk, Watched::default());
        ledger.note_synced(1, 4, 14);
        assert_eq!((ledger.view(), take(&mut ledger)), (Some((1, vec![1, 2, 3])), None));
        ledger.note_view_written(1, 4, 1);
        ledger.note_view_written(2, 4, 1);
        ledger.note_view_written(3, 3, 1);
        assert_eq!(take(&mut ledger), None, "of another generation");
        ledger.note_view_written(3, 4, 1);
        assert!(take(&mut ledger).is_some());
    }

    #[test]
    fn a_ledger_is_read_as_it_was_written() {
        for durability in [DiskDurability::Majority, DiskDurability::One] {
            let mut ledger = of(durability);
            ledger.tick(Uid(4), 77);
            ledger.note_disk(3, Heard { disk: 9, generation: 4, starts: 2, position: 12 });
            let mut out = Vec::new();
            ledger.write(&mut out);
            assert_eq!(Ledger::read(&mut out.clone().into()), Some(ledger));
            for end in 0..out.len() {
                assert_eq!(Ledger::read(&mut Bytes::copy_from_slice(&out[..end])), None);
            }
        }
    }
}
