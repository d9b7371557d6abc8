//! A snapshot is written beside the jobs that follow it.

use super::super::super::Watched;
use super::super::super::disk::{DiskDurability, Loaded};
use super::super::{
    After, DISK_HANGS_AFTER, DISK_LOOK_AGAIN_AFTER, DiskStart, Durable, Job, JobNumber, PREPARES_MAX, Stage,
    WRITES_WITHIN,
};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

const NOW: Time = Time::from_nanos(1_000_000_000);

fn start() -> DiskStart {
    DiskStart {
        name: "service".into(),
        server: 1,
        servers: 3,
        durability: DiskDurability::Majority,
        loaded: None,
        disk: 7,
        nonce: 8,
        replaces: false,
        begins_anew: None,
    }
}

fn durable() -> Durable {
    Durable::new(&start(), 0)
}

fn entry(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn next(durable: &mut Durable) -> Option<(JobNumber, Job)> {
    durable.next_job(NOW, &BTreeMap::new())
}

/// Lets a server begin a snapshot after the first of two entries. Returns the number of the job, which is done.
fn with_a_snapshot_begun() -> (Durable, JobNumber) {
    let mut durable = durable();
    ["a", "b"].iter().for_each(|text| durable.append(entry(text), true));
    durable.write_snapshot(1, vec![entry("state")], vec![entry("b")], &BTreeMap::new());
    let (number, job) = next(&mut durable).unwrap();
    assert!(matches!(job, Job::Append { first: 1, .. }));
    assert_eq!(durable.done(NOW, number), Some(After::Synced(2)));
    let (number, job) = next(&mut durable).unwrap();
    assert!(matches!(job, Job::Snapshot { place: 1, .. }));
    assert_eq!(durable.done(NOW, number), Some(After::SnapshotBegun));
    (durable, number)
}

#[test]
fn entries_are_appended_while_a_snapshot_is_written_and_there_is_one_at_a_time() {
    let (mut durable, snapshot) = with_a_snapshot_begun();
    assert!(durable.is_idle() && !durable.may_write_snapshot());
    durable.append(entry("c"), true);
    let (number, job) = next(&mut durable).unwrap();
    assert!(matches!(job, Job::Append { first: 3, .. }));
    durable.snapshot_written(number);
    assert!(durable.jobs.is_empty(), "it is no snapshot");
    durable.snapshot_written(snapshot);
    durable.done(NOW, number);
    assert!(!durable.may_write_snapshot());
    let (number, job) = next(&mut durable).unwrap();
    assert_eq!(job, Job::Name);
    assert!(!durable.may_write_snapshot());
    durable.done(NOW, number);
    assert!(durable.may_write_snapshot());
}

#[test]
fn what_no_caller_waits_for_is_written_with_what_comes_next_or_soon() {
    let mut durable = durable();
    durable.append(entry("a"), false);
    assert!(next(&mut durable).is_some(), "a server that is not open writes at once");
    let mut durable = self::durable();
    durable.stage = Stage::Open;
    durable.append(entry("a"), false);
    assert_eq!((next(&mut durable), durable.writes_at()), (None, Some(NOW + WRITES_WITHIN)));
    durable.append(entry("b"), true);
    let (number, job) = next(&mut durable).unwrap();
    assert!(matches!(job, Job::Append { first: 1, entries, .. } if entries.len() == 2));
    durable.append(entry("c"), false);
    assert_eq!(durable.writes_at(), None);
    durable.done(NOW, number);
    assert_eq!((next(&mut durable), durable.writes_at()), (None, Some(NOW + WRITES_WITHIN)));
    let (_, job) = durable.next_job(NOW + WRITES_WITHIN, &BTreeMap::new()).unwrap();
    assert!(matches!(job, Job::Append { first: 3, .. }));
}

#[test]
fn a_snapshot_waits_until_its_state_is_prepared_but_not_for_ever() {
    let mut durable = durable();
    durable.note_snapshot_due();
    assert!(!durable.note_prepared(false) && durable.is_snapshot_due(9));
    durable.note_snapshot_due();
    assert!(durable.note_prepared(true) && !durable.is_snapshot_due(9));
    durable.note_snapshot_due();
    assert_eq!((1..).find(|_| durable.note_prepared(false)), Some(PREPARES_MAX));
    assert!(!durable.is_snapshot_due(9));
    durable.note_snapshot_due();
    durable.adopt(None, vec![], BTreeMap::new(), After::Joined, Watched::default());
    assert!(!durable.is_snapshot_due(9), "that state is gone");
    let (mut durable, _) = with_a_snapshot_begun();
    durable.note_snapshot_due();
    assert!(!durable.is_snapshot_due(9), "one is being written");
}

/// All servers were killed while they wrote a snapshot, whose log begins after place 5. They begin again with the one before, and
/// the next is due at 3.
#[test]
fn after_a_crash_during_a_snapshot_the_next_one_waits_for_the_place_of_that_one() {
    let loaded = Loaded {
        block: durable().block,
        parts: Vec::new(),
        snapshot_at: 0,
        entries: vec![entry("entry"); 7],
        log_after: 5,
        heard: BTreeMap::new(),
        last_generation: 0,
    };
    let mut durable = Durable::new(&DiskStart { loaded: Some(loaded), ..start() }, 7);
    durable.note_snapshot_due();
    assert!(!durable.is_snapshot_due(3) && !durable.is_snapshot_due(4), "the disk would refuse it");
    assert!(durable.is_snapshot_due(5));
    assert!(durable.note_prepared(true));
    durable.adopt(Some((2, vec![])), vec![], BTreeMap::new(), After::Joined, Watched::default());
    durable.note_snapshot_due();
    assert!(durable.is_snapshot_due(3), "its log begins after 2");
}

#[test]
fn a_snapshot_hangs_only_if_it_does_not_get_on() {
    let second = |count| NOW + Duration::from_secs(count);
    for is_told in [true, false] {
        let (mut durable, snapshot) = with_a_snapshot_begun();
        for count in 1..=40 {
            // Appends end in time: that is no progress of the snapshot.
            durable.append(entry("c"), true);
            let (number, _) = durable.next_job(second(count), &BTreeMap::new()).unwrap();
            if is_told {
                durable.note_progress(second(count), snapshot, Watched::default());
            }
            durable.done(second(count), number);
            let hangs = durable.hangs(second(count));
            assert!(!hangs || second(count) > NOW + DISK_HANGS_AFTER);
            assert!(durable.looks_at().is_some());
        }
        let last = second(40) + DISK_LOOK_AGAIN_AFTER;
        assert_eq!(durable.hangs(second(40)) || durable.hangs(last), !is_told);
        durable.snapshot_written(snapshot);
        assert!(!durable.hangs(last + DISK_HANGS_AFTER) && durable.looks_at().is_none());
    }
}

#[test]
fn a_state_that_is_adopted_ends_a_snapshot() {
    let (mut durable, snapshot) = with_a_snapshot_begun();
    durable.adopt(None, vec![], BTreeMap::new(), After::Joined, Watched::default());
    durable.snapshot_written(snapshot);
    let (number, job) = next(&mut durable).unwrap();
    assert!(matches!(job, Job::Adopt { .. }));
    durable.done(NOW, number);
    assert!(durable.is_idle() && durable.may_write_snapshot());
    // Also one that was not begun yet.
    durable.append(entry("a"), true);
    durable.write_snapshot(1, vec![], vec![], &BTreeMap::new());
    durable.adopt(None, vec![], BTreeMap::new(), After::Joined, Watched::default());
    for kind in ["append", "snapshot", "adopt"] {
        let (number, job) = next(&mut durable).unwrap();
        let is_it = match job {
            Job::Append { .. } => kind == "append",
            Job::Snapshot { .. } => kind == "snapshot",
            Job::Adopt { .. } => kind == "adopt",
            _ => false,
        };
        assert!(is_it, "{kind}");
        durable.done(NOW, number);
    }
    assert!(durable.is_idle() && durable.may_write_snapshot());
}
