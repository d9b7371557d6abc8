//! What the store promises, at every crash and for every flipped bit.

use super::super::{Position, types::Digest};
use super::block::tests::sample;
use super::store::EARLIER_LOGS_MAX;
use super::*;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    digest[..4].copy_from_slice(&crc32c::crc32c(bytes).to_be_bytes());
    digest[4..8].copy_from_slice(&crc32c::crc32c_append(77, bytes).to_be_bytes());
    digest
}

/// A deterministic source of choices.
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

fn open(files: MemoryFiles) -> Result<(Store<MemoryFiles>, Option<Loaded>), StoreError> {
    Store::open(files, digest)
}

fn reopened(store: Store<MemoryFiles>) -> (Store<MemoryFiles>, Option<Loaded>) {
    open(store.into_files()).unwrap()
}

/// Returns the entry at a position: some longer than a sector, some empty.
fn entry(position: Position) -> Bytes {
    vec![position as u8; (position as usize * 377) % 1500].into()
}

fn entries(from: Position, through: Position) -> Vec<Bytes> {
    (from..=through).map(entry).collect()
}

/// Returns parts of which some are the same at each position.
fn parts(position: Position) -> Vec<Bytes> {
    let fixed = Bytes::from_static(b"the same in all snapshots");
    vec![fixed.clone(), vec![position as u8; 1200].into(), Bytes::new(), fixed]
}

fn heard(position: Position) -> BTreeMap<u8, Heard> {
    let of = |disk| Heard { disk, generation: 1, starts: 2, position };
    BTreeMap::from([(1, of(1)), (3, of(3))])
}

/// What a store holds, as the tests expect it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holds {
    block: Option<Block>,
    parts: Vec<Bytes>,
    snapshot_at: Position,
    entries: Vec<Bytes>,
    heard: BTreeMap<u8, Heard>,
}

impl Holds {
    fn of(loaded: Option<Loaded>) -> Holds {
        let Some(loaded) = loaded else { return Holds::default() };
        let Loaded { block, parts, snapshot_at, entries, heard, .. } = loaded;
        assert_eq!(block.snapshot.map_or(0, |snapshot| snapshot.position), snapshot_at);
        // The names of files are not compared.
        let block = Some(Block { snapshot: None, log: 0, ..block });
        Holds { block, parts, snapshot_at, entries, heard }
    }

    fn end(&self) -> Position {
        self.snapshot_at + self.entries.len() as u64
    }
}

/// Writes a snapshot, all three steps of it.
fn snapshot<F: Files>(
    store: &mut Store<F>,
    position: Position,
    parts: Vec<Bytes>,
    entries: &[Bytes],
) -> Result<(), StoreError> {
    let writer = store.begin_snapshot(position, parts, entries)?;
    let written = writer.write(store.files_mut())?;
    store.name_snapshot(written)
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Commit(u64),
    /// Begin a snapshot.
    Begin(u64),
    /// Write its parts, and let it count.
    Name,
    /// Make room for the log.
    Room,
    Adopt {
        snapshot: Option<Position>,
        entries: u64,
    },
}

impl Step {
    fn draw(choices: &mut Choices) -> Step {
        match choices.below(9) {
            0 | 1 => Step::Commit(choices.below(100)),
            5 => Step::Room,
            2 => Step::Begin(choices.below(4)),
            3 => Step::Name,
            4 if choices.below(2) == 0 => {
                let snapshot = (choices.below(2) == 0).then(|| choices.below(30));
                Step::Adopt { snapshot, entries: choices.below(5) }
            }
            _ => Step::Append(choices.below(5)),
        }
    }

    /// Does the step, and returns what the store holds if it succeeds. `begun` is the snapshot that has begun.
    fn apply(
        &self,
        store: &mut Store<impl Files>,
        before: &Holds,
        begun: &mut Option<SnapshotWriter>,
    ) -> (Holds, Result<(), StoreError>) {
        let mut after = before.clone();
        let end = before.end();
        let generation = before.block.as_ref().map_or(0, |block| block.generation) + 1;
        let next = Block { generation, ..sample() };
        let has_block = before.block.is_some();
        let done = match self {
            Step::Append(count) if has_block => {
                after.entries.extend(entries(end + 1, end + count));
                after.heard = heard(end);
                store.append(end + 1, &entries(end + 1, end + count), &after.heard)
            }
            Step::Begin(kept) if has_block && begun.is_none() => {
                // No place before that of a snapshot that a crash has interrupted.
                let position = end.saturating_sub(*kept).max(store.log.after);
                store
                    .begin_snapshot(position, parts(position), &entries(position + 1, end))
                    .map(|writer| *begun = Some(writer))
            }
            Step::Name => begun.take().map_or(Ok(()), |writer| {
                after.entries = entries(writer.position + 1, end);
                (after.snapshot_at, after.parts) = (writer.position, writer.parts.clone());
                let written = writer.write(store.files_mut())?;
                store.name_snapshot(written)
            }),
            Step::Adopt { snapshot, entries: count } => {
                // Some of a snapshot may be written that is worth nothing any more.
                _ = begun.take().map(|writer| writer.write(store.files_mut()));
                after.snapshot_at = snapshot.unwrap_or(0);
                after.parts = snapshot.map(parts).unwrap_or_default();
                after.entries = entries(after.snapshot_at + 1, after.snapshot_at + count);
                after.block = Some(Block { log: 0, ..next.clone() });
                after.heard = heard(*count);
                let snapshot = snapshot.map(|position| (position, &after.parts[..]));
                store.adopt(next, snapshot, &after.entries, &after.heard)
            }
            Step::Commit(promised) => {
                // Some blocks are longer than a sector.
                let name = "x".repeat(*promised as usize * 30);
                let block = Block { promised: *promised, name, ..next };
                after.block = Some(Block { log: 0, ..block.clone() });
                store.commit(block)
            }
            Step::Room if has_block => store.make_room(),
            Step::Append(_) | Step::Begin(_) | Step::Room => Ok(()),
        };
        (after, done)
    }
}

#[test]
fn a_store_opens_with_what_was_written() {
    let (mut store, loaded) = open(MemoryFiles::new()).unwrap();
    assert_eq!((loaded, store.block(), store.end()), (None, None, 0));
    assert_eq!(store.append(1, &entries(1, 1), &heard(1)), Err(StoreError::Blank));
    assert_eq!(store.begin_snapshot(0, vec![], &[]).map(|_| ()), Err(StoreError::Blank));
    store.commit(sample()).unwrap();
    store.append(1, &entries(1, 9), &heard(3)).unwrap();
    assert_eq!(
        store.append(9, &entries(9, 9), &heard(1)),
        Err(StoreError::Misplaced { position: 9, end: 9 })
    );
    snapshot(&mut store, 5, parts(5), &entries(6, 9)).unwrap();
    for (position, after) in [(4, 5), (10, 0), (7, 1), (7, 3), (Position::MAX, 9)] {
        let begun = store.begin_snapshot(position, vec![], &entries(1, after));
        assert_eq!(begun.map(|_| ()), Err(StoreError::Misplaced { position, end: 9 }));
    }
    store.append(10, &entries(10, 11), &BTreeMap::new()).unwrap();
    let (store, loaded) = reopened(store);
    let loaded = loaded.unwrap();
    assert_eq!((loaded.snapshot_at, store.end(), loaded.parts), (5, 11, parts(5)));
    assert_eq!((loaded.entries, loaded.heard), (entries(6, 11), heard(3)));
    assert_eq!(Some(&loaded.block), store.block());
    let length = store.files().read(&format!("log-{}", loaded.block.log)).unwrap().len();
    assert_eq!(store.log_bytes(), length as u64);
}

#[test]
fn a_large_state_is_adopted_in_several_records() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    let large: Vec<Bytes> = (0..5).map(|number| vec![number; 700_000].into()).collect();
    store.adopt(sample(), Some((7, &[])), &large, &heard(1)).unwrap();
    let (store, loaded) = reopened(store);
    assert_eq!((loaded.unwrap().entries, store.end()), (large, 12));
}

#[test]
fn what_counts_no_more_is_removed_and_parts_are_written_once() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    store.append(1, &entries(1, 3), &heard(3)).unwrap();
    snapshot(&mut store, 1, parts(1), &entries(2, 3)).unwrap();
    // The block, the log, the file of the next one, the manifest and the pack with three different parts.
    assert_eq!(store.files().list().unwrap().len(), 5);
    let before = store.files().writes();
    snapshot(&mut store, 2, parts(2), &entries(3, 3)).unwrap();
    // A log and two slots, a pack and a manifest, two slots; each synced. The pack has three writes: its head, the large part
    // that is new, and with it a small one of before. The log gets the file of an earlier one, and two files are removed.
    assert_eq!(store.files().writes() - before, 16 + 3);
    assert_eq!(store.files().list().unwrap().len(), 5);
    // What does not change stays where it is.
    let before = store.files().writes();
    snapshot(&mut store, 3, parts(2), &[]).unwrap();
    assert_eq!(store.files().writes() - before, 12 + 2);
    store.make_room().unwrap();
    let before = store.files().writes();
    store.append(4, &entries(4, 4), &heard(9)).unwrap();
    assert_eq!(store.files().writes() - before, 2);
    store.append(5, &[], &heard(9)).unwrap();
    assert_eq!(store.files().writes() - before, 2, "nothing is new");
}

#[test]
fn a_snapshot_costs_as_many_syncs_with_many_parts_as_with_few() {
    // Each part is one write; all else is the same.
    let costs = |count: u32| {
        let (mut store, _) = open(MemoryFiles::new()).unwrap();
        store.commit(sample()).unwrap();
        let before = store.files().writes();
        let parts: Vec<Bytes> = (0..count).map(|number| number.to_be_bytes().to_vec().into()).collect();
        snapshot(&mut store, 0, parts.clone(), &[]).unwrap();
        let (store, loaded) = reopened(store);
        assert_eq!(loaded.unwrap().parts, parts);
        (store.files().writes() - before) as u32 - count
    };
    assert_eq!(costs(5_000), costs(5));
}

#[test]
fn a_large_part_is_written_with_several_syncs() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    let before = store.files().writes();
    let large: Vec<Bytes> = vec![vec![7; (8 << 20) - 6].into(), vec![8; 9 << 20].into()];
    snapshot(&mut store, 0, large.clone(), &[]).unwrap();
    // The pack has three syncs, as no sync has more than 8 MiB to do. What else is written has 12 operations.
    assert_eq!(store.files().writes() - before, (1 + 1 + 2) + 3 + 12);
    assert_eq!(reopened(store).1.unwrap().parts, large);
}

#[test]
fn every_crash_leaves_the_state_before_or_after() {
    let (mut kept, mut lost, mut several, mut recycled) = (0, 0, 0, 0);
    for seed in 0..900 {
        let (mut choices, mut files, mut holds) = (Choices(seed), MemoryFiles::new(), Holds::default());
        for _ in 0..16 {
            // Not every life ends with a failure, and some end while the store is opened.
            files.fail_after(choices.below(50));
            let mut interrupted = holds.clone();
            match Store::open(&mut files, digest) {
                Ok((mut store, loaded)) => {
                    assert_eq!(Holds::of(loaded), holds);
                    several += u32::from(!store.before.is_empty());
                    assert!(store.before.len() <= EARLIER_LOGS_MAX);
                    let mut begun = None;
                    for _ in 0..choices.below(7) {
                        let step = Step::draw(&mut choices);
                        recycled += u32::from(matches!(step, Step::Begin(_)) && store.has_spare());
                        let (after, done) = step.apply(&mut store, &holds, &mut begun);
                        interrupted = after;
                        if done.is_err() {
                            // The parts of a snapshot are not written by the store.
                            if !matches!(step, Step::Name) {
                                assert_eq!(store.commit(sample()), Err(StoreError::Unusable));
                            }
                            break;
                        }
                        holds = interrupted.clone();
                    }
                }
                Err(StoreError::Files(_)) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
            files.repair();
            files.crash(&mut || choices.below(2) == 0);
            let found = open(files.clone()).unwrap_or_else(|error| panic!("seed {seed}: {error}")).1;
            let found = Holds::of(found);
            if interrupted != holds {
                *if found == interrupted { &mut kept } else { &mut lost } += 1;
            }
            if found != interrupted {
                assert_eq!(found, holds, "seed {seed}");
            }
            holds = found;
        }
    }
    assert!(kept > 100 && lost > 500, "{kept} interrupted calls took effect, {lost} did not");
    assert!(several > 100, "{several} stores were opened with several logs");
    assert!(recycled > 20, "{recycled} logs got the file of an earlier one");
}

#[test]
fn an_append_leaves_the_length_of_the_file_as_it_is() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    assert_eq!((store.lacks_room(), store.make_room()), (false, Err(StoreError::Blank)));
    store.commit(sample()).unwrap();
    assert!(store.lacks_room());
    store.make_room().unwrap();
    let log = |store: &Store<MemoryFiles>| log::name(store.block().unwrap().log);
    let length = |store: &Store<MemoryFiles>| store.files().read(&log(store)).unwrap().len() as u64;
    let mut end = 0;
    for _ in 0..5 {
        let before = length(&store);
        while !store.lacks_room() {
            end += 1;
            store.append(end, &[Bytes::from(vec![end as u8; 100])], &BTreeMap::new()).unwrap();
            assert_eq!(length(&store), before);
        }
        store.make_room().unwrap();
        assert!(!store.lacks_room() && length(&store) <= store.log_bytes() + 2 * log::STEP_BYTES);
    }
    // The file goes to the log after the next, and room in it need not be made with zeros.
    snapshot(&mut store, end, vec![], &[]).unwrap();
    let long = store.files().list().unwrap().into_iter().find(|name| *name == "log-1").unwrap();
    let before = store.files().read(&long).unwrap().len() as u64;
    snapshot(&mut store, end, vec![], &[]).unwrap();
    assert_eq!((length(&store), log(&store)), (before, "log-3".into()));
    store.make_room().unwrap();
    assert_eq!(length(&store), before);
    store.append(end + 1, &entries(end + 1, end + 1), &BTreeMap::new()).unwrap();
    assert_eq!(reopened(store).1.unwrap().entries, entries(end + 1, end + 1));
}

#[test]
fn a_start_reads_no_more_of_a_log_than_two_steps_behind_its_records() {
    /// Counts what is read of logs.
    struct Counted(MemoryFiles, core::cell::Cell<u64>);

    impl Files for Counted {
        fn list(&self) -> Result<Vec<alloc::string::String>, FileError> {
            self.0.list()
        }
        fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
            self.read_first(name, u64::MAX).map(|(bytes, _)| bytes)
        }
        fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError> {
            let (bytes, length) = self.0.read_first(name, most)?;
            if name.starts_with("log-") {
                self.1.set(self.1.get() + bytes.len() as u64);
            }
            Ok((bytes, length))
        }
        fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
            self.0.write(name, at, bytes)
        }
        fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
            self.0.truncate(name, length)
        }
        fn sync(&mut self, name: &str) -> Result<(), FileError> {
            self.0.sync(name)
        }
        fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError> {
            self.0.rename(from, to)
        }
        fn remove(&mut self, name: &str) -> Result<(), FileError> {
            self.0.remove(name)
        }
    }

    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    for position in 1..200 {
        store.append(position, &entries(position, position), &BTreeMap::new()).unwrap();
    }
    snapshot(&mut store, 199, vec![], &[]).unwrap();
    snapshot(&mut store, 199, vec![], &[]).unwrap();
    store.make_room().unwrap();
    store.append(200, &entries(200, 200), &BTreeMap::new()).unwrap();
    let (files, log_bytes) = (store.files().clone(), store.log_bytes());
    assert!(files.read("log-3").unwrap().len() as u64 > 20 * log::STEP_BYTES);
    let (store, loaded) = Store::open(Counted(files, Default::default()), digest).unwrap();
    assert_eq!(loaded.unwrap().entries, entries(200, 200));
    assert!(store.files().1.get() <= log::RECORDS_AT as u64 + log_bytes + 2 * log::STEP_BYTES);
}

#[test]
fn a_disk_that_fails_while_room_is_made_leaves_the_log_whole() {
    for operations in 0..3 {
        let (files, holds) = furnished();
        let (mut store, _) = open(files).unwrap();
        store.files_mut().fail_after(operations);
        assert!(matches!(store.make_room(), Err(StoreError::Files(_))), "{operations}");
        assert_eq!(store.append(8, &entries(8, 8), &heard(5)), Err(StoreError::Unusable));
        assert!(!store.lacks_room());
        let mut files = store.into_files();
        files.repair();
        for choice in 0..20 {
            let (mut choices, mut files) = (Choices(choice), files.clone());
            files.crash(&mut || choices.below(2) == 0);
            let (mut store, loaded) = open(files).unwrap();
            assert_eq!(Holds::of(loaded), holds);
            store.make_room().unwrap();
            store.append(8, &entries(8, 8), &heard(5)).unwrap();
            assert_eq!(reopened(store).0.end(), 8);
        }
    }
}

#[test]
fn a_record_that_was_cut_off_does_not_come_back_with_the_next_one() {
    // Both have the same last sector, and a crash keeps that of the second only.
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    store.make_room().unwrap();
    let at = store.log_bytes();
    let torn = |store: &mut Store<MemoryFiles>, entry: Vec<u8>, keep: fn(u32) -> bool| {
        let before = store.files().clone();
        store.append(1, &[entry.into()], &BTreeMap::new()).unwrap();
        let (mut files, after) = (before, store.files().read("log-1").unwrap());
        let sector = 512;
        for index in 0..3 {
            if keep(index) {
                let begin = (at as usize / sector + index as usize) * sector;
                files.write("log-1", begin as u64, &after[begin..begin + sector]).unwrap();
            }
        }
        files.sync("log-1").unwrap();
        open(files).unwrap()
    };
    let first = [vec![1; 300], vec![7; 1100]].concat();
    let (mut store, loaded) = torn(&mut store, first, |index| index != 2);
    assert_eq!(loaded.unwrap().entries.len(), 0);
    let second = [vec![2; 300], vec![7; 1100]].concat();
    let (_, loaded) = torn(&mut store, second, |index| index == 2);
    assert_eq!(loaded.unwrap().entries.len(), 0, "nobody has answered for the first one");
}

#[test]
fn a_log_in_the_file_of_an_earlier_one_is_as_good_as_another() {
    let (files, holds) = recycled();
    let (store, _) = open(files.clone()).unwrap();
    let (log, length) = (log::name(store.block().unwrap().log), store.log_bytes());
    let last = Holds { entries: vec![], heard: heard(6), ..holds.clone() };
    let (mut noticed, mut torn) = (0, 0);
    for bit in 0..(length + 100) * 8 {
        let mut flipped = files.clone();
        flipped.flip(&log, bit);
        match open(flipped) {
            Ok((_, loaded)) => {
                let found = Holds::of(loaded);
                torn += u32::from(found == last);
                assert!(found == holds || found == last, "{bit}");
            }
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 0 && torn > 0);
}

/// Returns what the version before would have written.
fn of_version_1(mut files: MemoryFiles) -> MemoryFiles {
    let block::Slots::Block { counts, .. } =
        block::read(&files.read(block::BLOCK_FILE).unwrap(), true).unwrap()
    else {
        panic!("no block");
    };
    let mut slot = *counts;
    let less = (log::RECORDS_AT - log::LOG_HEAD_BYTES) as u64;
    let numbers: Vec<u64> = slot.before.iter().map(|log| log.number).chain([slot.block.log]).collect();
    for number in numbers {
        let name = log::name(number);
        let file = files.read(&name).unwrap();
        let log = log::Log::read(number, file.clone().into(), 0, Default::default()).unwrap();
        let old = [&log.head.write_as(1), &file[log::RECORDS_AT..log.bytes as usize]].concat();
        files.truncate(&name, old.len() as u64).unwrap();
        files.write(&name, 0, &old).unwrap();
        files.sync(&name).unwrap();
    }
    slot.before.iter_mut().for_each(|log| log.bytes -= less);
    slot.log_bytes -= less;
    for _ in 0..2 {
        slot.sequence += 1;
        files.write(block::BLOCK_FILE, block::slot_at(slot.sequence), &slot.write().unwrap()).unwrap();
        files.sync(block::BLOCK_FILE).unwrap();
    }
    files
}

#[test]
fn a_folder_of_the_version_before_is_opened_and_gets_the_present_format() {
    let several = {
        let (mut store, _) = open(furnished().0).unwrap();
        store.begin_snapshot(6, parts(6), &entries(7, 7)).unwrap();
        store.append(8, &entries(8, 8), &heard(5)).unwrap();
        store.into_files()
    };
    for files in [furnished().0, several] {
        let holds = Holds::of(open(files.clone()).unwrap().1);
        let mut old = of_version_1(files);
        let log = old.list().unwrap().into_iter().rfind(|name| name.starts_with("log-")).unwrap();
        let length = old.read(&log).unwrap().len() as u64;
        old.write(&log, length, b"torn").unwrap();
        for operations in 0.. {
            let mut files = old.clone();
            files.fail_after(operations);
            let is_done = Store::open(&mut files, digest).is_ok();
            files.repair();
            let mut choices = Choices(operations);
            files.crash(&mut || choices.below(2) == 0);
            let (mut store, loaded) = open(files).unwrap();
            assert_eq!(Holds::of(loaded), holds);
            let log = log::name(store.block().unwrap().log);
            assert_eq!(store.files().read(&log).unwrap()[5], 2);
            store.make_room().unwrap();
            let end = store.end();
            store.append(end + 1, &entries(end + 1, end + 1), &heard(6)).unwrap();
            assert_eq!(reopened(store).0.end(), end + 1);
            if is_done {
                break;
            }
        }
        // A record before the last is spoiled.
        old.flip(&log, 8 * 120);
        assert!(matches!(open(old), Err(StoreError::Spoiled { .. })));
    }
}

#[test]
fn commands_go_on_while_a_snapshot_is_written_and_no_crash_at_any_write_loses_one() {
    let before = || {
        let (mut store, _) = open(MemoryFiles::new()).unwrap();
        store.commit(sample()).unwrap();
        store.append(1, &entries(1, 5), &heard(3)).unwrap();
        snapshot(&mut store, 2, parts(2), &entries(3, 5)).unwrap();
        store
    };
    let holds = |snapshot_at, end| Holds {
        block: Some(Block { snapshot: None, log: 0, ..sample() }),
        parts: parts(snapshot_at),
        snapshot_at,
        entries: entries(snapshot_at + 1, end),
        heard: heard(3),
    };
    let (mut named, mut unnamed) = (0, 0);
    for operations in 0.. {
        let mut store = before();
        let mut appended = 5;
        store.files_mut().fail_after(operations);
        let done = (|| {
            let writer = store.begin_snapshot(4, parts(4), &entries(5, 5))?;
            store.append(6, &entries(6, 6), &heard(3))?;
            appended = 6;
            let written = writer.write(store.files_mut())?;
            store.append(7, &entries(7, 7), &heard(3))?;
            appended = 7;
            store.name_snapshot(written)?;
            store.append(8, &entries(8, 8), &heard(3))?;
            appended = 8;
            Ok::<(), StoreError>(())
        })();
        let mut files = store.into_files();
        files.repair();
        for choice in 0..20 {
            let (mut choices, mut files) = (Choices(choice), files.clone());
            files.crash(&mut || choices.below(2) == 0);
            let found = Holds::of(open(files).unwrap().1);
            assert!((appended..=appended + 1).contains(&found.end()), "{operations}: {found:?}");
            let is_named = found.snapshot_at == 4;
            *if is_named { &mut named } else { &mut unnamed } += 1;
            assert_eq!(found, holds(if is_named { 4 } else { 2 }, found.end()), "{operations}");
        }
        if done.is_ok() {
            break;
        }
    }
    assert!(named > 20 && unnamed > 200, "{named}, {unnamed}");
}

#[test]
fn snapshots_that_are_interrupted_leave_few_logs() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    for count in 1..=9 {
        let end = store.end();
        store.append(end + 1, &entries(end + 1, end + 3), &heard(end)).unwrap();
        store.begin_snapshot(end + 2, parts(end), &entries(end + 3, end + 3)).unwrap();
        let loaded;
        (store, loaded) = reopened(store);
        assert_eq!(loaded.unwrap().entries, entries(1, end + 3));
        assert_eq!(store.before.len(), count % (EARLIER_LOGS_MAX + 1));
        // The block and the logs, and nothing of the snapshots.
        assert_eq!(store.files().list().unwrap().len(), 2 + store.before.len());
    }
    let end = store.end();
    snapshot(&mut store, end, parts(end), &[]).unwrap();
    assert_eq!(store.files().list().unwrap().len(), 5);
    let loaded = reopened(store).1.unwrap();
    assert_eq!((loaded.snapshot_at, loaded.parts, loaded.entries), (end, parts(end), vec![]));
}

/// A crash between the two steps of a snapshot: the log goes on in a second file, and the next snapshot may not be of an earlier
/// position than the second file begins after.
#[test]
fn a_store_says_where_its_log_begins_after_a_snapshot_that_does_not_count() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    store.append(1, &entries(1, 5), &heard(1)).unwrap();
    store.begin_snapshot(4, parts(4), &entries(5, 5)).unwrap();
    let (mut store, loaded) = open(store.into_files()).unwrap();
    let loaded = loaded.unwrap();
    assert_eq!((loaded.snapshot_at, loaded.entries.len(), loaded.log_after), (0, 5, 4));
    let begun = store.begin_snapshot(3, parts(3), &entries(4, 5));
    assert_eq!(begun.map(|_| ()), Err(StoreError::Misplaced { position: 3, end: 5 }));
    snapshot(&mut store, 4, parts(4), &entries(5, 5)).unwrap();
    let (_, loaded) = open(store.into_files()).unwrap();
    assert_eq!(loaded.map(|loaded| (loaded.snapshot_at, loaded.log_after)), Some((4, 4)));
}

#[test]
fn only_the_snapshot_that_was_begun_last_can_count() {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    store.append(1, &entries(1, 3), &heard(1)).unwrap();
    let first = store.begin_snapshot(1, parts(1), &entries(2, 3)).unwrap();
    let first = first.write(store.files_mut()).unwrap();
    let second = store.begin_snapshot(2, parts(2), &entries(3, 3)).unwrap();
    let second = second.write(store.files_mut()).unwrap();
    let misplaced = |position| Err(StoreError::Misplaced { position, end: 3 });
    assert_eq!(store.name_snapshot(first), misplaced(1));
    store.name_snapshot(second.clone()).unwrap();
    assert_eq!(store.name_snapshot(second), misplaced(2));
    let third = store.begin_snapshot(3, parts(3), &[]).unwrap();
    let third = third.write(store.files_mut()).unwrap();
    store.adopt(sample(), Some((3, &parts(3))), &[], &heard(1)).unwrap();
    assert_eq!(store.name_snapshot(third), misplaced(3));
    assert_eq!(store.files().list().unwrap().len(), 4);
}

/// Returns a store with all kinds of files, whose last append no block write followed.
fn furnished() -> (MemoryFiles, Holds) {
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    store.commit(sample()).unwrap();
    store.append(1, &entries(1, 5), &heard(3)).unwrap();
    snapshot(&mut store, 3, parts(3), &entries(4, 5)).unwrap();
    store.append(6, &entries(6, 7), &heard(5)).unwrap();
    // The file that is kept for the next log is none of those that count.
    let (store, loaded) = reopened(store);
    (store.into_files(), Holds::of(loaded))
}

/// Returns such a store whose log has the file of an earlier one, behind whose last record are records of that.
fn recycled() -> (MemoryFiles, Holds) {
    let (files, _) = furnished();
    let (mut store, _) = open(files).unwrap();
    store.append(8, &entries(8, 17), &heard(6)).unwrap();
    snapshot(&mut store, 17, parts(3), &[]).unwrap();
    snapshot(&mut store, 17, parts(4), &[]).unwrap();
    store.append(18, &entries(18, 18), &heard(7)).unwrap();
    let (length, log) = (store.log_bytes() as usize, log::name(store.block().unwrap().log));
    let (store, loaded) = reopened(store);
    let file = store.files().read(&log).unwrap();
    assert!(file[length..].iter().any(|byte| *byte != 0), "an earlier log is behind it");
    (store.into_files(), Holds::of(loaded))
}

/// True if nothing that counts is at this place of a log.
fn is_between_head_and_records(byte: u64) -> bool {
    (log::LOG_HEAD_BYTES as u64..log::RECORDS_AT as u64).contains(&byte)
}

#[test]
fn a_flipped_bit_is_harmless_or_noticed() {
    let (files, holds) = furnished();
    let last = Holds { entries: entries(4, 5), heard: heard(3), ..holds.clone() };
    let (mut harmless, mut noticed, mut torn) = (0, 0, 0);
    for name in files.list().unwrap() {
        for bit in 0..files.read(&name).unwrap().len() as u64 * 8 {
            let mut flipped = files.clone();
            flipped.flip(&name, bit);
            match open(flipped) {
                Ok((_, loaded)) => match Holds::of(loaded) {
                    found if found == holds => harmless += 1,
                    // The last record may always be one that a crash has interrupted.
                    found => {
                        assert!(name.starts_with("log-") && found == last, "{name}: {bit}");
                        torn += 1;
                    }
                },
                Err(StoreError::Spoiled { file, .. } | StoreError::NewerVersion { file, .. }) => {
                    assert_eq!(file, name);
                    noticed += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(harmless > 0 && noticed > 0 && torn > 0);
}

#[test]
fn a_flipped_bit_of_any_of_several_logs_is_noticed_but_in_a_last_record() {
    let (files, holds) = furnished();
    let (mut store, _) = open(files).unwrap();
    store.begin_snapshot(6, parts(6), &entries(7, 7)).unwrap();
    let first = log::name(store.before[0].number);
    store.append(8, &entries(8, 8), &heard(5)).unwrap();
    let files = store.into_files();
    let all = Holds { entries: entries(4, 8), ..holds.clone() };
    let mut torn = 0;
    for name in files.list().unwrap().into_iter().filter(|name| name.starts_with("log-")) {
        for bit in 0..files.read(&name).unwrap().len() as u64 * 8 {
            let mut flipped = files.clone();
            flipped.flip(&name, bit);
            match open(flipped).map(|(_, loaded)| Holds::of(loaded)) {
                Ok(found) if is_between_head_and_records(bit / 8) => assert_eq!(found, all),
                // It looks like a record that a crash has torn, of an append that has not returned.
                Ok(found) => {
                    assert_eq!((name == first, &found), (false, &holds));
                    torn += 1;
                }
                Err(StoreError::Spoiled { file, .. } | StoreError::NewerVersion { file, .. }) => {
                    assert_eq!(file, name);
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(torn > 0);
    assert_eq!(Holds::of(open(files).unwrap().1), all);
}

#[test]
fn what_was_synced_before_the_block_was_written_is_never_cut() {
    let (files, holds) = furnished();
    let (mut store, _) = open(files).unwrap();
    store.commit(sample()).unwrap();
    let log = log::name(store.block().unwrap().log);
    let (files, length) = (store.files().clone(), store.log_bytes());
    for bit in 0..length * 8 {
        let mut flipped = files.clone();
        flipped.flip(&log, bit);
        assert_eq!(open(flipped).is_err(), !is_between_head_and_records(bit / 8));
    }
    let mut short = files;
    short.truncate(&log, length - 1).unwrap();
    assert!(matches!(open(short), Err(StoreError::Spoiled { .. })));
    assert_eq!(holds.end(), 7);
}

#[test]
fn a_missing_file_is_noticed() {
    let (files, _) = furnished();
    for name in files.list().unwrap() {
        let mut without = files.clone();
        without.remove(&name).unwrap();
        let error = open(without).unwrap_err();
        assert!(matches!(error, StoreError::Spoiled { file, .. } if file == name));
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let (files, _) = furnished();
    for name in files.list().unwrap() {
        let mut newer = files.clone();
        let knows = if name.starts_with("parts-") { 1 } else { 2 };
        newer.write(&name, 4, &[0, 3]).unwrap();
        if name == block::BLOCK_FILE {
            // A newer version writes both slots.
            newer.write(&name, block::SLOT_BYTES as u64 + 4, &[0, 3]).unwrap();
        }
        let error = StoreError::NewerVersion { file: name, found: 3, knows };
        assert_eq!(open(newer).unwrap_err(), error);
    }
}

#[test]
fn either_slot_alone_is_enough_and_is_copied() {
    let (files, holds) = furnished();
    let zeros = [0; block::SLOT_BYTES];
    for slot in 0..2 {
        let mut spoiled = files.clone();
        spoiled.write(block::BLOCK_FILE, block::slot_at(slot), &zeros).unwrap();
        let (store, loaded) = open(spoiled).unwrap();
        assert_eq!(Holds::of(loaded), holds);
        let mut other = store.into_files();
        other.write(block::BLOCK_FILE, block::slot_at(1 - slot), &zeros).unwrap();
        assert_eq!(Holds::of(open(other.clone()).unwrap().1), holds);
        let both = [zeros, zeros].concat();
        other.write(block::BLOCK_FILE, 0, &both).unwrap();
        assert!(matches!(open(other), Err(StoreError::Spoiled { .. })));
    }
}

#[test]
fn files_of_others_stay() {
    let (mut files, holds) = furnished();
    files.write("notes.txt", 0, b"mine").unwrap();
    files.write("log-99", 0, b"left by a crash").unwrap();
    let (store, loaded) = open(files).unwrap();
    assert_eq!(Holds::of(loaded), holds);
    let names = store.files().list().unwrap();
    assert!(names.iter().any(|name| name == "notes.txt") && !names.iter().any(|name| name == "log-99"));
}

#[test]
fn a_block_that_is_too_large_changes_nothing() {
    let large = Block { name: "x".repeat(5000), ..sample() };
    let (mut store, _) = open(MemoryFiles::new()).unwrap();
    assert!(matches!(store.commit(large.clone()), Err(StoreError::TooLarge { .. })));
    assert!(store.files().list().unwrap().is_empty());
    store.commit(sample()).unwrap();
    assert!(matches!(store.commit(large), Err(StoreError::TooLarge { .. })));
    store.append(1, &entries(1, 1), &heard(1)).unwrap();
    assert_eq!(store.adopt(sample(), Some((Position::MAX, &[])), &[], &heard(1)).map_err(|_| ()), Err(()));
    assert_eq!(reopened(store).0.end(), 1);
}
