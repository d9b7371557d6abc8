//! Watches of directories as a server holds them: each is a question for the changes of a directory from a number on, which
//! waits until there is one. Without clock, threads and network.
//!
//! A watcher costs a server one held question. What it has not asked for yet stays in the history that all share, whose
//! length is bounded: so a watcher that is too slow learns that its changes are no longer kept, and holds up nothing.
//!
//! All watches are looked at after each change, so a look must be cheap: a path is walked once, and the capability is proved
//! again only when its directory has changed or has another secret.

use crate::capability::Check;
use crate::refusal::Reason;
use crate::reply::{Answer, Reply};
use crate::request::{Place, Query, Request};
use crate::table::Table;
use alloc::collections::VecDeque;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Maximum number of watches that a server holds.
pub const WATCHES_MAX: usize = 4096;
/// Maximum number of watches that a server holds for one client.
pub const CLIENT_WATCHES_MAX: usize = 256;
/// Time after which a watch without changes gets an empty answer, and its client asks again.
pub const WATCH_HELD_MAX: Duration = Duration::from_secs(5);

/// The watches that a server holds. `R` is what a watch is answered with.
#[derive(Debug)]
pub struct Watches<R> {
    held: VecDeque<Watch<R>>,
    /// Number of watches of each client that has any.
    of_clients: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Watch<R> {
    client: u64,
    request: R,
    /// Its path is empty once the watch was looked at.
    place: Place,
    /// The secret of the directory by which the capability was proved last.
    proved_by: Option<Check>,
    from: u64,
    /// When it gets an empty answer, on the caller's clock.
    until: Duration,
}

impl<R> Default for Watches<R> {
    fn default() -> Watches<R> {
        Watches { held: VecDeque::new(), of_clients: BTreeMap::new() }
    }
}

impl<R> Watches<R> {
    /// Takes a watch of a client: a local query for changes. Gives back one that cannot be held, with the answer, or
    /// without one if this server has its maximum, of all clients or of this one.
    ///
    /// # Errors
    /// The watch and its answer.
    pub fn take(
        &mut self,
        now: Duration,
        client: u64,
        request: R,
        question: &Bytes,
    ) -> Result<(), (R, Option<Bytes>)> {
        let Some(Request::LocalQuery(Query::Changes { place, from })) = Request::decode(question) else {
            let reply = Reply { number: 0, changes: 0, result: Err(Reason::Unreadable.into()) };
            return Err((request, Some(reply.encode())));
        };
        let of_client = self.of_clients.get(&client).copied().unwrap_or(0);
        if self.held.len() >= WATCHES_MAX || of_client >= CLIENT_WATCHES_MAX {
            return Err((request, None));
        }
        self.of_clients.insert(client, of_client + 1);
        let (proved_by, until) = (None, now + WATCH_HELD_MAX);
        self.held.push_back(Watch { client, request, place, proved_by, from, until });
        Ok(())
    }

    /// Returns the number of watches.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if there is no watch.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns when the next watch gets an empty answer.
    pub fn due(&self) -> Option<Duration> {
        self.held.iter().map(|watch| watch.until).min()
    }

    /// Looks at the next `most` watches, in turn, and returns those that have an answer in this state.
    pub fn answer(&mut self, now: Duration, table: &Table, most: usize) -> Vec<(R, Bytes)> {
        let mut answered = Vec::new();
        for _ in 0..most.min(self.held.len()) {
            let Some(mut watch) = self.held.pop_front() else { break };
            match watch.look(now, table) {
                Some(reply) => {
                    self.release(watch.client);
                    answered.push((watch.request, reply.encode()));
                }
                None => self.held.push_back(watch),
            }
        }
        answered
    }

    /// Returns all watches, because this server stops serving: their clients go to another one.
    pub fn give_up(&mut self) -> impl Iterator<Item = R> {
        self.of_clients.clear();
        self.held.drain(..).map(|watch| watch.request)
    }

    /// Notes that a client has one watch less.
    fn release(&mut self, client: u64) {
        if let Entry::Occupied(mut count) = self.of_clients.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<R> Watch<R> {
    fn look(&mut self, now: Duration, table: &Table) -> Option<Reply> {
        if self.until > now && self.is_quiet(table) {
            // So that a directory without changes is never too old.
            self.from = table.number() + 1;
            return None;
        }
        // A server behind the one that answered before may not know the place yet, or not any more.
        let behind = (self.from > table.number() + 1).then(|| table.number());
        let reply = match behind {
            Some(number) => {
                let result = Err(Reason::Future { number }.into());
                Reply { result, ..table.ask(&Query::Info) }
            }
            None => {
                self.resolve(table);
                table.ask(&Query::Changes { place: self.place.clone(), from: self.from })
            }
        };
        let waits = match &reply.result {
            Ok(Answer::Changes { changes, next }) if changes.is_empty() => {
                self.from = *next;
                self.proved_by = table.secret_of(self.place.capability.object);
                true
            }
            _ => behind.is_some(),
        };
        (!waits || self.until <= now).then_some(reply)
    }

    /// True if its directory is as it was when the watch was looked at last, and has no change to answer.
    fn is_quiet(&self, table: &Table) -> bool {
        let directory = self.place.capability.object;
        self.proved_by.is_some()
            && self.from <= table.number() + 1
            && self.proved_by == table.secret_of(directory)
            && table.last_change_of(directory).is_some_and(|last| last < self.from)
    }

    /// Walks the path, so that the watch is one of the directory at its end from now on. What cannot be walked stays, and is
    /// refused.
    fn resolve(&mut self, table: &Table) {
        if !self.place.path.is_empty()
            && let Ok(capability) = table.walk(&self.place.capability, self.place.path.names())
        {
            self.place = Place::of(capability);
        }
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
            watches.take(START, 7, (), &question(Place::of(root), from)).unwrap();
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
        watches.take(START, 7, (), &question(Place::of(root), 4)).unwrap();
        make(&mut table, root, "second");
        make(&mut table, root, "third");
        assert!(watches.answer(START, &table, 1).is_empty());
        let fourth = make(&mut table, root, "fourth");
        assert_eq!(changes(&watches.answer(START, &table, 1)[0].1).0, [fourth]);
    }

    #[test]
    fn a_server_that_does_not_know_the_directory_yet_waits() {
        let (mut ahead, root) = founded(Limits::default());
        let (mut behind, _) = founded(Limits::default());
        make(&mut ahead, root, "quiet");
        let quiet = match ahead.ask(&Query::Lookup { places: vec![in_root(root, "quiet")] }).result {
            Ok(Answer::Looked(looked)) => looked[0].unwrap().capability,
            other => panic!("{other:?}"),
        };
        for place in [Place::of(quiet), in_root(root, "quiet")] {
            let mut watches = Watches::default();
            watches.take(START, 7, (), &question(place.clone(), 3)).unwrap();
            assert!(watches.answer(START, &behind, 1).is_empty());
            let late = Reply::decode(&watches.answer(WATCH_HELD_MAX, &behind, 1)[0].1).unwrap();
            assert_eq!(late.result, Err(Reason::Future { number: 1 }.into()));
        }
        let mut watches = Watches::default();
        watches.take(START, 7, (), &question(Place::of(quiet), 3)).unwrap();
        make(&mut behind, root, "quiet");
        assert!(watches.answer(START, &behind, 1).is_empty());
        let third = make(&mut behind, root, "quiet/x");
        assert_eq!(changes(&watches.answer(START, &behind, 1)[0].1).0, [third]);
    }

    #[test]
    fn an_idle_watch_is_answered_in_time_and_is_never_too_old() {
        let limits = Limits { history_bytes: 1 << 10, ..Limits::default() };
        let (mut table, root) = founded(limits);
        make(&mut table, root, "quiet");
        let quiet = in_root(root, "quiet");
        let mut watches = Watches::default();
        watches.take(START, 7, (), &question(quiet.clone(), 3)).unwrap();
        for index in 0..200 {
            make(&mut table, root, &format!("a-name-that-fills-the-history-{index}"));
            assert!(watches.answer(START, &table, 1).is_empty());
        }
        assert_eq!(watches.due(), Some(WATCH_HELD_MAX));
        let answered = watches.answer(WATCH_HELD_MAX, &table, 1);
        assert_eq!(changes(&answered[0].1), (vec![], table.number() + 1));
        // One that did not ask meanwhile learns it.
        watches.take(START, 7, (), &question(quiet, 3)).unwrap();
        let late = Reply::decode(&watches.answer(START, &table, 1)[0].1).unwrap().result.unwrap_err();
        assert!(matches!(late.reason, Reason::NoLongerKept { .. }));
    }

    #[test]
    fn a_watch_ends_with_the_right_to_it() {
        let (mut table, root) = founded(Limits::default());
        let other = root.restrict(Rights(0x04)).unwrap();
        let mut watches = Watches::default();
        watches.take(START, 7, (), &question(Place::of(other), 2)).unwrap();
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
        watches.take(START, 7, (), &question(in_root(root, "a"), table.number() + 1)).unwrap();
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
        let ask = |watches: &mut Watches<()>, table: &Table| {
            watches.take(START, 7, (), &question(place.clone(), table.number() + 1)).unwrap();
            assert!(watches.answer(START, table, 1).is_empty());
            assert!(watches.held[0].is_quiet(table));
        };
        let mut watches = Watches::default();
        ask(&mut watches, &table);
        make(&mut table, root, "b");
        assert!(watches.held[0].is_quiet(&table), "the change is of another directory");
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
        for index in 0..WATCHES_MAX {
            watches.take(START, (index % 16) as u64, index, &question(Place::of(root), 2)).unwrap();
        }
        assert_eq!(watches.take(START, 99, 0, &question(Place::of(root), 2)), Err((0, None)));
        make(&mut table, root, "x");
        let mut answered: Vec<usize> = Vec::new();
        while !watches.is_empty() {
            answered.extend(watches.answer(START, &table, 64).into_iter().map(|(index, _)| index));
        }
        assert!(answered.into_iter().eq(0..WATCHES_MAX));
        assert!(watches.take(START, 7, 0, &Bytes::from_static(b"?")).unwrap_err().1.is_some());
        watches.take(START, 7, 5, &question(Place::of(root), 9)).unwrap();
        assert_eq!((watches.len(), watches.give_up().next()), (1, Some(5)));
    }

    #[test]
    fn one_client_does_not_take_all_watches() {
        let (mut table, root) = founded(Limits::default());
        let mut watches = Watches::default();
        let ask = |watches: &mut Watches<u64>, client| {
            watches.take(START, client, client, &question(Place::of(root), table.number() + 1))
        };
        (0..CLIENT_WATCHES_MAX).for_each(|_| ask(&mut watches, 7).unwrap());
        assert_eq!(ask(&mut watches, 7), Err((7, None)));
        ask(&mut watches, 8).unwrap();
        // What was answered does not count any more.
        make(&mut table, root, "x");
        assert_eq!(watches.answer(START, &table, 2).len(), 2);
        let mut ask = |client| watches.take(START, client, client, &question(Place::of(root), 9));
        assert_eq!([7, 7, 7].map(|client| ask(client).is_ok()), [true, true, false]);
    }
}
