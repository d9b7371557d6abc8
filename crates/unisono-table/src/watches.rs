//! Watches of directories as a server holds them: each is a question for the changes of a directory from a number on, which
//! waits until there is one. Without clock, threads and network.
//!
//! A watcher costs a server one held question. What it has not asked for yet stays in the history that all share, whose
//! length is bounded: so a watcher that is too slow learns that its changes are no longer kept, and holds up nothing.
//!
//! A watch is held only with a capability that opens its directory, and its path is walked once, before that. After a change
//! only the watches of its directory are looked at; those that ask from the future, once the table gets there. So a watcher
//! costs the watchers of other directories nothing. The sources of watches that are to be looked at take turns, and so do the
//! watches of one source: one that has much to search waits behind the others between its looks.

use crate::capability::{Check, ObjectNumber};
use crate::refusal::Reason;
use crate::reply::{Answer, Reply};
use crate::request::{Place, Query, Request};
use crate::table::Table;
use alloc::collections::BTreeSet;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;

/// Maximum number of watches that a server holds.
pub const WATCHES_MAX: usize = 4096;
/// Maximum number of watches that a server holds for one client.
pub const CLIENT_WATCHES_MAX: usize = 256;
/// Share of a source once half of the watches are held: one in this many of those that are left.
const SOURCE_PART: usize = 4;
/// How many looks of one round may search much of the history: the changes of more commands than this.
const SEARCHES_MAX: usize = 4;
const MUCH: u64 = 1_024;
/// Time after which a watch without changes gets an empty answer, and its client asks again.
pub const WATCH_HELD_MAX: Duration = Duration::from_secs(5);

/// The watches that a server holds. `R` is what a watch is answered with, `S` tells the addresses apart from which they come.
#[derive(Debug)]
pub struct Watches<R, S> {
    /// By the order in which they came, which is also that in which they get an empty answer.
    held: BTreeMap<u64, Watch<R, S>>,
    taken: u64,
    of_directories: BTreeMap<ObjectNumber, BTreeSet<u64>>,
    /// Watches from a number that the table has not got to, by that number.
    future: BTreeSet<(u64, u64)>,
    /// Watches that are to be looked at.
    due: Due<S>,
    /// Number of the last command whose changes have been looked at.
    looked_through: u64,
    /// Number of watches of each client and each source that has any.
    of_clients: BTreeMap<u64, usize>,
    of_sources: BTreeMap<S, usize>,
}

#[derive(Debug)]
struct Watch<R, S> {
    client: u64,
    source: S,
    request: R,
    /// Its path is empty.
    place: Place,
    /// The secret of the directory by which the capability was proved last, at a look that found no change.
    proved_by: Option<Check>,
    from: u64,
    /// When it gets an empty answer, on the caller's clock.
    until: Duration,
    /// Its turn, if it is due.
    turn: Option<u64>,
}

/// The watches that are to be looked at, each once: by source, turn and number.
#[derive(Debug)]
struct Due<S> {
    turns: BTreeSet<(S, u64, u64)>,
    last_turn: u64,
    /// Source of the last one that was taken out: the next source is next.
    last_source: Option<S>,
}

impl<S: Copy + Ord> Due<S> {
    /// Adds a watch unless it is there, behind the others of its source. Returns true if it was added.
    fn add<R>(&mut self, id: u64, watch: &mut Watch<R, S>) -> bool {
        let is_new = watch.turn.is_none();
        if is_new {
            self.last_turn += 1;
            watch.turn = Some(self.last_turn);
            self.turns.insert((watch.source, self.last_turn, id));
        }
        is_new
    }

    fn remove<R>(&mut self, id: u64, watch: &mut Watch<R, S>) {
        if let Some(turn) = watch.turn.take() {
            self.turns.remove(&(watch.source, turn, id));
        }
    }

    /// Returns the watch whose turn it is.
    fn next(&self) -> Option<u64> {
        let after = |last: S| self.turns.range((Excluded((last, u64::MAX, u64::MAX)), Unbounded)).next();
        let next = self.last_source.and_then(after).or_else(|| self.turns.first());
        next.map(|(_, _, id)| *id)
    }
}

impl<R, S> Default for Watches<R, S> {
    fn default() -> Watches<R, S> {
        Watches {
            held: BTreeMap::new(),
            taken: 0,
            of_directories: BTreeMap::new(),
            future: BTreeSet::new(),
            due: Due { turns: BTreeSet::new(), last_turn: 0, last_source: None },
            looked_through: 0,
            of_clients: BTreeMap::new(),
            of_sources: BTreeMap::new(),
        }
    }
}

impl<R, S: Copy + Ord> Watches<R, S> {
    /// Takes a watch of a client at a source: a local query for changes. Gives back one that cannot be held, with the answer,
    /// or without one if this server has its maximum, of all clients, of this one or of its source.
    ///
    /// # Errors
    /// The watch and its answer.
    pub fn take(
        &mut self,
        now: Duration,
        (client, source): (u64, S),
        request: R,
        question: &Bytes,
        table: &Table,
    ) -> Result<(), (R, Option<Bytes>)> {
        // What asks for something else may name thousands of places.
        let asked = Request::asks_for_local_changes(question).then(|| Request::decode(question)).flatten();
        let Some(Request::LocalQuery(Query::Changes { place, from })) = asked else {
            let reply = Reply { number: 0, changes: 0, result: Err(Reason::Unreadable.into()) };
            return Err((request, Some(reply.encode())));
        };
        let found = table.walk(&place.capability, place.path.names());
        let capability = match found.and_then(|found| table.open(&found).map(|_| found)) {
            Ok(capability) => capability,
            // A server behind the one that answered before may not know the place yet, or not any more.
            Err(_) if from > table.number() + 1 => return Err((request, Some(behind(table).encode()))),
            Err(_) => {
                let reply = table.ask(&Query::Changes { place, from });
                return Err((request, Some(reply.encode())));
            }
        };
        if !self.has_room_for(client, source) {
            return Err((request, None));
        }
        *self.of_clients.entry(client).or_default() += 1;
        *self.of_sources.entry(source).or_default() += 1;
        self.taken += 1;
        let directory = capability.object;
        let (proved_by, until) = (None, now + WATCH_HELD_MAX);
        let place = Place::of(capability);
        let mut watch = Watch { client, source, request, place, proved_by, from, until, turn: None };
        self.due.add(self.taken, &mut watch);
        self.held.insert(self.taken, watch);
        self.of_directories.entry(directory).or_default().insert(self.taken);
        Ok(())
    }

    fn has_room_for(&self, client: u64, source: S) -> bool {
        let of_client = self.of_clients.get(&client).copied().unwrap_or(0);
        let of_source = self.of_sources.get(&source).copied().unwrap_or(0);
        let left = WATCHES_MAX.saturating_sub(self.len());
        let has_share = self.len() < WATCHES_MAX / 2 || of_source < (left / SOURCE_PART).max(1);
        left > 0 && of_client < CLIENT_WATCHES_MAX && has_share
    }

    /// Returns the number of watches.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if there is no watch.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// True if watches are still to be looked at in the state of the last look.
    pub fn has_due(&self) -> bool {
        !self.due.turns.is_empty()
    }

    /// Returns when the next watch gets an empty answer.
    pub fn wake_at(&self) -> Option<Duration> {
        self.held.first_key_value().map(|(_, watch)| watch.until)
    }

    /// Looks at the watches which the changes of this state concern, and at those whose time is over, at most at `most`, and at
    /// few that have much to search; the others are [due](Watches::has_due). Returns those that have an answer.
    pub fn answer(&mut self, now: Duration, table: &Table, most: usize) -> Vec<(R, Bytes)> {
        self.note_changes(table);
        let (mut answered, mut searches) = (Vec::new(), 0);
        for _ in 0..most {
            if searches == SEARCHES_MAX {
                break;
            }
            let late = self.held.first_key_value().filter(|(_, watch)| watch.until <= now).map(|(id, _)| *id);
            let Some(id) = late.or_else(|| self.due.next()) else { break };
            let Some(watch) = self.held.get_mut(&id) else { break };
            self.due.remove(id, watch);
            self.due.last_source = Some(watch.source);
            searches += usize::from(watch.searches_much(table));
            match watch.look(now, table) {
                Some(reply) => {
                    self.future.remove(&(watch.from, id));
                    answered.extend(self.release(id).map(|request| (request, reply.encode())));
                }
                None if watch.from > table.number() + 1 => _ = self.future.insert((watch.from, id)),
                // There is more to search.
                None if watch.from <= table.number() => _ = self.due.add(id, watch),
                None => {}
            }
        }
        answered
    }

    /// Finds the watches which the changes since the last look concern.
    fn note_changes(&mut self, table: &Table) {
        let number = table.number();
        let changes = table.touched.since(self.looked_through).filter(|_| self.looked_through <= number);
        match changes {
            Some(changes) => {
                // Each directory once, however often it changed.
                let directories: BTreeSet<_> = changes.map(|(_, directory)| directory).collect();
                let watches = directories.iter().filter_map(|directory| self.of_directories.get(directory));
                for id in watches.flatten() {
                    if let Some(watch) = self.held.get_mut(id)
                        && self.due.add(*id, watch)
                    {
                        // Its directory was quiet until then, so what was dropped from the history does not concern it.
                        watch.from = watch.from.max(self.looked_through + 1);
                    }
                }
            }
            None => self.held.iter_mut().for_each(|(id, watch)| _ = self.due.add(*id, watch)),
        }
        while let Some(&(from, id)) = self.future.first()
            && from <= number + 1
        {
            self.future.pop_first();
            if let Some(watch) = self.held.get_mut(&id) {
                self.due.add(id, watch);
            }
        }
        self.looked_through = number;
    }

    /// Returns all watches, because this server stops serving: their clients go to another one.
    pub fn give_up(&mut self) -> impl Iterator<Item = R> {
        let held = core::mem::take(self).held;
        held.into_values().map(|watch| watch.request)
    }

    /// Lets a watch go that has an answer.
    fn release(&mut self, id: u64) -> Option<R> {
        let mut watch = self.held.remove(&id)?;
        self.due.remove(id, &mut watch);
        subtract(&mut self.of_clients, watch.client);
        subtract(&mut self.of_sources, watch.source);
        if let Entry::Occupied(mut same) = self.of_directories.entry(watch.place.capability.object) {
            same.get_mut().remove(&id);
            if same.get().is_empty() {
                same.remove();
            }
        }
        Some(watch.request)
    }
}

/// Returns the answer of a server that has not got to the number of a watch.
fn behind(table: &Table) -> Reply {
    let result = Err(Reason::Future { number: table.number() }.into());
    Reply { result, ..table.ask(&Query::Info) }
}

/// Notes that one has one watch less.
fn subtract<K: Ord>(counts: &mut BTreeMap<K, usize>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl<R, S> Watch<R, S> {
    fn look(&mut self, now: Duration, table: &Table) -> Option<Reply> {
        if self.is_quiet(table) {
            // So that a directory without changes is never too old.
            self.from = table.number() + 1;
            if self.until > now {
                return None;
            }
        }
        let is_behind = self.from > table.number() + 1;
        let reply = match is_behind {
            true => behind(table),
            false => table.ask(&Query::Changes { place: self.place.clone(), from: self.from }),
        };
        let waits = match &reply.result {
            Ok(Answer::Changes { changes, next }) if changes.is_empty() => {
                self.from = *next;
                self.proved_by = table.secret_of(self.place.capability.object);
                true
            }
            _ => is_behind,
        };
        (!waits || self.until <= now).then_some(reply)
    }

    /// True if the next look searches the changes of many commands, whether or not it gets to the end.
    fn searches_much(&self, table: &Table) -> bool {
        table.number().saturating_sub(self.from) > MUCH && !self.is_quiet(table)
    }

    /// True if its directory has the secret by which the capability was proved, and no change to answer.
    fn is_quiet(&self, table: &Table) -> bool {
        let directory = self.place.capability.object;
        self.proved_by.is_some()
            && self.from <= table.number() + 1
            && self.proved_by == table.secret_of(directory)
            && table.last_change_of(directory).is_some_and(|last| last < self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Limits;
    use crate::capability::{Capability, Check, Port, Rights};
    use crate::request::Command;
    use alloc::format;
    use alloc::vec;

    const START: Duration = Duration::ZERO;
    /// A client and its source.
    const ME: (u64, u8) = (7, 1);

    fn founded(limits: Limits) -> (Table, Capability) {
        let mut table = Table::new(limits);
        let secret = Check::from_bits(1);
        table.execute(Command::Found { port: Port(7), secret, service: Bytes::new() });
        let root = table.root().unwrap();
        (table, root)
    }

    fn make(table: &mut Table, root: Capability, path: &str) -> u64 {
        let place = in_root(root, path);
        let columns = vec!["owner".parse().unwrap()];
        let secret = Check::from_bits(2);
        let made = table.execute(Command::CreateDirectory { place, columns, masks: None, secret });
        made.result.unwrap();
        made.number
    }

    fn in_root(root: Capability, path: &str) -> Place {
        Place { capability: root, path: path.parse().unwrap() }
    }

    fn question(place: Place, from: u64) -> Bytes {
        Request::LocalQuery(Query::Changes { place, from }).encode()
    }

    fn changes(reply: &Bytes) -> (Vec<u64>, u64) {
        match Reply::decode(reply).unwrap().result.unwrap() {
            Answer::Changes { changes, next } => (changes.iter().map(|change| change.number).collect(), next),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_change_comes_once_and_in_order() {
        let (mut table, root) = founded(Limits::default());
        let (mut watches, mut from, mut seen, mut made) = (Watches::default(), 1, Vec::new(), Vec::new());
        for index in 0..20 {
            watches.take(START, ME, (), &question(Place::of(root), from), &table).unwrap();
            assert!(watches.answer(START, &table, 9).is_empty(), "nothing has changed");
            made.push(make(&mut table, root, &format!("d{index}")));
            if index % 3 == 0 {
                made.push(make(&mut table, root, &format!("e{index}")));
            }
            make(&mut table, root, &format!("d{index}/elsewhere"));
            let answered = watches.answer(START, &table, 9);
            let (numbers, next) = changes(&answered[0].1);
            seen.extend(numbers);
            from = next;
        }
        assert_eq!(seen, made);
    }

    #[test]
    fn a_server_that_is_behind_waits() {
        let (mut table, root) = founded(Limits::default());
        let mut watches = Watches::default();
        watches.take(START, ME, (), &question(Place::of(root), 4), &table).unwrap();
        make(&mut table, root, "second");
        make(&mut table, root, "third");
        assert!(watches.answer(START, &table, 1).is_empty());
        let fourth = make(&mut table, root, "fourth");
        assert_eq!(changes(&watches.answer(START, &table, 1)[0].1).0, [fourth]);
    }

    #[test]
    fn a_server_that_does_not_know_the_directory_yet_holds_no_watch_of_it() {
        let (mut ahead, root) = founded(Limits::default());
        let (mut behind, _) = founded(Limits::default());
        make(&mut ahead, root, "quiet");
        let quiet = ahead.walk(&root, "quiet".parse::<crate::name::Path>().unwrap().names()).unwrap();
        let mut watches = Watches::default();
        for place in [Place::of(quiet), in_root(root, "quiet")] {
            let refused = watches.take(START, ME, (), &question(place, 3), &behind).unwrap_err();
            let reply = Reply::decode(&refused.1.unwrap()).unwrap();
            assert_eq!(reply.result, Err(Reason::Future { number: 1 }.into()));
        }
        assert!(watches.is_empty());
        make(&mut behind, root, "quiet");
        watches.take(START, ME, (), &question(Place::of(quiet), 3), &behind).unwrap();
        assert!(watches.answer(START, &behind, 1).is_empty());
        let third = make(&mut behind, root, "quiet/x");
        assert_eq!(changes(&watches.answer(START, &behind, 1)[0].1).0, [third]);
    }

    #[test]
    fn a_watch_from_the_future_is_held_with_a_good_capability_alone() {
        let (table, root) = founded(Limits::default());
        let wrong = Capability { check: Check::from_bits(99), ..root };
        let mut watches = Watches::default();
        for (place, from, reason) in [
            (Place::of(wrong), 1 << 62, Reason::Future { number: 1 }),
            (Place::of(wrong), 2, Reason::NotFound),
            (in_root(root, "nothing"), 1 << 62, Reason::Future { number: 1 }),
        ] {
            let refused = watches.take(START, ME, (), &question(place, from), &table).unwrap_err();
            assert_eq!(Reply::decode(&refused.1.unwrap()).unwrap().result, Err(reason.into()));
        }
        watches.take(START, ME, (), &question(Place::of(root), 1 << 62), &table).unwrap();
        assert_eq!(watches.len(), 1);
        assert!(watches.answer(START, &table, 9).is_empty());
        let over = &watches.answer(WATCH_HELD_MAX, &table, 9)[0].1;
        assert_eq!(Reply::decode(over).unwrap().result, Err(Reason::Future { number: 1 }.into()));
        assert!(watches.future.is_empty() && watches.of_directories.is_empty());
    }

    #[test]
    fn few_watches_of_a_round_search_the_changes_of_many_commands() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        let from = table.number() + 1;
        for index in 0..MUCH + 2 {
            make(&mut table, root, &format!("a/{index}"));
        }
        let mut watches = Watches::default();
        for index in 0..10 {
            watches.take(START, (index, 1), (), &question(Place::of(root), from), &table).unwrap();
        }
        for left in [6, 2, 0] {
            // Each look gets to the end at once.
            assert!(watches.answer(START, &table, 64).is_empty());
            assert_eq!(watches.due.turns.len(), left);
        }
    }

    #[test]
    fn a_change_looks_at_the_watches_of_its_directory_alone() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        make(&mut table, root, "b");
        let mut watches = Watches::default();
        let from = table.number() + 1;
        for index in 0..40 {
            let place = in_root(root, if index == 17 { "b" } else { "a" });
            watches.take(START, (index, 1), index, &question(place, from), &table).unwrap();
        }
        while watches.has_due() {
            assert!(watches.answer(START, &table, 9).is_empty());
        }
        let change = make(&mut table, root, "b/x");
        make(&mut table, root, "c");
        // One look is enough, so no other watch is due.
        let answered = watches.answer(START, &table, 1);
        assert_eq!((answered[0].0, changes(&answered[0].1).0), (17, vec![change]));
        assert!(!watches.has_due());
        // A table whose last changes are not known concerns all.
        make(&mut table, root, "e");
        let parts = table.snapshot();
        let mut restored = Table::restore(&parts).unwrap();
        make(&mut restored, root, "d");
        assert!(watches.answer(START, &restored, 38).is_empty() && watches.has_due());
        assert!(watches.answer(START, &restored, 38).is_empty() && !watches.has_due());
        let change = make(&mut restored, root, "a/x");
        let answered = watches.answer(START, &restored, 64);
        assert_eq!((answered.len(), changes(&answered[0].1).0), (39, vec![change]));
    }

    #[test]
    fn more_changes_than_are_listed_concern_all_watches() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        let mut watches = Watches::default();
        watches.take(START, ME, (), &question(in_root(root, "a"), 3), &table).unwrap();
        assert!(watches.answer(START, &table, 1).is_empty());
        let change = make(&mut table, root, "a/x");
        for index in 0..2000 {
            make(&mut table, root, &format!("d{index}"));
        }
        assert_eq!(changes(&watches.answer(START, &table, 1)[0].1).0, [change]);
    }

    #[test]
    fn lives_of_one_source_do_not_take_all_watches() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        let mut watches = Watches::default();
        let mut ask = |client, source| {
            let asked = question(Place::of(root), table.number() + 1);
            watches.take(START, (client, source), (), &asked, &table).is_ok()
        };
        let greedy = (0..WATCHES_MAX as u64).filter(|index| ask(*index, 9_u8)).count();
        assert_eq!(greedy, WATCHES_MAX / 2);
        assert!((0..200).all(|index| ask(100_000 + index, 8)));
    }

    #[test]
    fn watches_that_have_much_to_search_hold_up_none_of_the_others() {
        let (mut table, root) = founded(Limits { history_bytes: 1 << 30, ..Limits::default() });
        ["a", "b", "b/x"].into_iter().for_each(|path| _ = make(&mut table, root, path));
        let from = table.number() + 1;
        // The history is searched in three looks.
        for index in 0..(1 << 17) {
            let place = in_root(root, "b/r");
            let command = match index % 2 {
                0 => Command::Append { place, capability: root, masks: None },
                _ => Command::DeleteRow { place },
            };
            table.execute(command).result.unwrap();
        }
        let change = make(&mut table, root, "a/late");
        let mut watches = Watches::default();
        for index in 0..12 {
            let costly = question(in_root(root, "a"), from);
            watches.take(START, (7, 1), index, &costly, &table).unwrap();
        }
        let quick = question(in_root(root, "a"), table.number());
        watches.take(START, (8, 1), 800, &quick, &table).unwrap();
        watches.take(START, (9, 2), 900, &quick, &table).unwrap();
        let mut looks = Vec::new();
        while !watches.is_empty() {
            let answered = watches.answer(START, &table, 64);
            assert!(answered.iter().all(|(_, reply)| changes(reply).0 == [change]));
            looks.push(answered.into_iter().map(|(index, _)| index).collect::<Vec<_>>());
        }
        assert_eq!(looks[0], [900], "another source has the second turn");
        let at = looks.iter().position(|look| look.contains(&800));
        assert!(at.is_some_and(|at| at <= 3), "{at:?}: it waits for one look at each of the others");
        assert!(looks.len() >= 6, "{}: few of those that search are looked at at once", looks.len());
    }

    #[test]
    fn an_idle_watch_is_answered_in_time_and_is_never_too_old() {
        let limits = Limits { history_bytes: 1 << 10, ..Limits::default() };
        let (mut table, root) = founded(limits);
        make(&mut table, root, "quiet");
        let quiet = in_root(root, "quiet");
        let mut watches = Watches::default();
        watches.take(START, ME, (), &question(quiet.clone(), 3), &table).unwrap();
        for index in 0..200 {
            make(&mut table, root, &format!("a-name-that-fills-the-history-{index}"));
            assert!(watches.answer(START, &table, 1).is_empty());
        }
        assert_eq!(watches.wake_at(), Some(WATCH_HELD_MAX));
        let answered = watches.answer(WATCH_HELD_MAX, &table, 1);
        assert_eq!(changes(&answered[0].1), (vec![], table.number() + 1));
        // One that did not ask meanwhile learns it.
        watches.take(START, ME, (), &question(quiet, 3), &table).unwrap();
        let late = Reply::decode(&watches.answer(START, &table, 1)[0].1).unwrap().result.unwrap_err();
        assert!(matches!(late.reason, Reason::NoLongerKept { .. }));
    }

    #[test]
    fn a_watch_ends_with_the_right_to_it() {
        let (mut table, root) = founded(Limits::default());
        let other = root.restrict(Rights(0x04)).unwrap();
        let mut watches = Watches::default();
        watches.take(START, ME, (), &question(Place::of(other), 2), &table).unwrap();
        assert!(watches.answer(START, &table, 1).is_empty());
        table.execute(Command::Revoke { place: Place::of(root), secret: Check::from_bits(9) });
        let over = Reply::decode(&watches.answer(START, &table, 1)[0].1).unwrap().result.unwrap_err();
        assert_eq!(over.reason, Reason::NotFound);
    }

    #[test]
    fn a_watch_follows_the_directory_to_which_its_path_led() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        let first = table.walk(&root, "a".parse::<crate::name::Path>().unwrap().names()).unwrap();
        let mut watches = Watches::default();
        let asked = question(in_root(root, "a"), table.number() + 1);
        watches.take(START, ME, (), &asked, &table).unwrap();
        assert!(watches.answer(START, &table, 1).is_empty());
        // Another directory takes the name.
        table.execute(Command::DeleteRow { place: in_root(root, "a") });
        make(&mut table, root, "a");
        make(&mut table, root, "a/elsewhere");
        assert!(watches.answer(START, &table, 1).is_empty());
        let change = make(&mut table, first, "b");
        assert_eq!(changes(&watches.answer(START, &table, 1)[0].1).0, [change]);
    }

    #[test]
    fn a_quiet_watch_is_looked_at_again_when_its_directory_changes_or_goes() {
        let (mut table, root) = founded(Limits::default());
        make(&mut table, root, "a");
        let place = in_root(root, "a");
        let ask = |watches: &mut Watches<(), u8>, table: &Table| {
            watches.take(START, ME, (), &question(place.clone(), table.number() + 1), table).unwrap();
            assert!(watches.answer(START, table, 1).is_empty());
            assert!(watches.held.values().next().unwrap().is_quiet(table));
        };
        let mut watches = Watches::default();
        ask(&mut watches, &table);
        make(&mut table, root, "b");
        assert!(watches.held.values().next().unwrap().is_quiet(&table), "the change is of another directory");
        let change = make(&mut table, root, "a/c");
        assert_eq!(changes(&watches.answer(START, &table, 1)[0].1).0, [change]);
        let end = [
            Command::DeleteRow { place: in_root(root, "a/c") },
            Command::DeleteDirectory { place: place.clone() },
        ];
        table.execute(end[0].clone());
        ask(&mut watches, &table);
        table.execute(end[1].clone());
        let over = Reply::decode(&watches.answer(START, &table, 1)[0].1).unwrap().result.unwrap_err();
        assert_eq!(over.reason, Reason::NotFound);
    }

    #[test]
    fn the_number_of_watches_is_bounded_and_all_are_looked_at_in_turn() {
        let (mut table, root) = founded(Limits::default());
        let mut watches = Watches::default();
        let quiet = question(Place::of(root), 2);
        for index in 0..WATCHES_MAX {
            watches.take(START, ((index % 16) as u64, index), index, &quiet, &table).unwrap();
        }
        assert_eq!(watches.take(START, (99, 99_999), 0, &quiet, &table), Err((0, None)));
        make(&mut table, root, "x");
        let mut answered: Vec<usize> = Vec::new();
        while !watches.is_empty() {
            answered.extend(watches.answer(START, &table, 64).into_iter().map(|(index, _)| index));
        }
        assert!(answered.into_iter().eq(0..WATCHES_MAX));
        let unreadable = watches.take(START, (7, 0), 0, &Bytes::from_static(b"?"), &table);
        assert!(unreadable.unwrap_err().1.is_some());
        watches.take(START, (7, 0), 5, &question(Place::of(root), 9), &table).unwrap();
        assert_eq!((watches.len(), watches.give_up().next()), (1, Some(5)));
        assert_eq!((watches.len(), watches.wake_at()), (0, None));
    }

    #[test]
    fn one_client_does_not_take_all_watches() {
        let (mut table, root) = founded(Limits::default());
        let mut watches = Watches::default();
        let ask = |watches: &mut Watches<u64, u8>, client, table: &Table| {
            watches.take(START, (client, 1), client, &question(Place::of(root), table.number() + 1), table)
        };
        (0..CLIENT_WATCHES_MAX).for_each(|_| ask(&mut watches, 7, &table).unwrap());
        assert_eq!(ask(&mut watches, 7, &table), Err((7, None)));
        ask(&mut watches, 8, &table).unwrap();
        // What was answered does not count any more.
        make(&mut table, root, "x");
        assert_eq!(watches.answer(START, &table, 2).len(), 2);
        assert_eq!([7, 7, 7].map(|client| ask(&mut watches, client, &table).is_ok()), [true, true, false]);
    }
}
