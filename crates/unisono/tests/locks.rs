//! Lock services over sockets, several in one process.

mod common;

use common::{PATIENCE, fresh_name, watchful};
use std::thread;
use std::time::{Duration, Instant};
use unisono::locks::{Held, LockRefusal, LockService, LockStanding, NotAcquired};
use unisono::replica::{Founding, ReplicaOptions, ReplicaState};
use unisono::{GroupConfig, Name, Options};

fn open(group: &str, me: &str, founding: Founding) -> LockService {
    let settings = ReplicaOptions { open_within: Some(PATIENCE), ..ReplicaOptions::default() };
    let options = Options { name: Name::new(me).unwrap(), ..watchful() };
    LockService::open(group, founding, settings, &options, |_| ()).unwrap()
}

fn pair(group: &str) -> (LockService, LockService) {
    (open(group, "ann", Founding::Create), open(group, "bob", Founding::Join))
}

fn fence(held: &Held) -> u64 {
    held.standing().fence().expect("the lock is held")
}

#[test]
fn a_lock_goes_from_one_process_to_the_next() {
    let (ann, bob) = pair(&fresh_name("locks"));
    let first = ann.acquire("door").unwrap();
    assert_eq!(bob.try_acquire("door").err(), Some(NotAcquired::Refused(LockRefusal::Held)));
    let other = bob.try_acquire("window").unwrap();
    assert!(fence(&other) > fence(&first));
    let next = thread::spawn(move || (bob.acquire("door").unwrap(), bob));
    let waits =
        |service: &LockService| service.replica().look(|locks| locks.table().line("door").count()) == 2;
    while !waits(&ann) {
        thread::yield_now();
    }
    let before = fence(&first);
    assert_eq!(first.confirm(), Ok(LockStanding::Holds(before)));
    first.release().unwrap();
    let (next, bob) = next.join().unwrap();
    assert!(fence(&next) > fence(&other));
    // A member that leaves has no claims.
    bob.end(Duration::from_secs(1));
    assert_eq!(next.standing(), LockStanding::Lost);
    assert!(fence(&ann.acquire("door").unwrap()) > before);
}

#[test]
fn a_process_has_one_claim_and_a_dropped_one_ends() {
    let (ann, bob) = pair(&fresh_name("locks"));
    let held = ann.acquire("door").unwrap();
    assert_eq!(ann.acquire("door").err(), Some(NotAcquired::AlreadyAsked));
    assert_eq!(ann.acquire("").err(), Some(NotAcquired::Refused(LockRefusal::BadName)));
    let short = Duration::from_millis(1);
    assert_eq!(bob.acquire_within("door", short).err(), Some(NotAcquired::TimedOut));
    assert_eq!(bob.acquire_within("door", Duration::ZERO).err(), Some(NotAcquired::TimedOut));
    let mut before = fence(&held);
    drop(held);
    // The claims that gave up do not stand before this one, and a process that dropped a lock may have it again.
    for service in [&bob, &ann, &ann, &bob] {
        let held = service.acquire_within("door", PATIENCE).unwrap();
        assert!(fence(&held) > before);
        before = fence(&held);
    }
}

#[test]
fn a_try_ends_promptly_while_the_group_carries_out_no_commands() {
    let group = fresh_name("locks");
    let config = GroupConfig { members_min: 2, ..GroupConfig::default() };
    let settings = ReplicaOptions { config, ..ReplicaOptions::default() };
    let options = Options { name: Name::new("ann").unwrap(), ..watchful() };
    let ann = LockService::begin(&group, Founding::Create, settings, &options, |_| ()).unwrap();
    let bob = open(&group, "bob", Founding::Join);
    ann.acquire("window").unwrap().release().unwrap();
    bob.end(Duration::from_secs(1));
    let deadline = Instant::now() + PATIENCE;
    while ann.replica().status().state != ReplicaState::Halted {
        assert!(Instant::now() < deadline, "it goes on");
        thread::yield_now();
    }
    for _ in 0..2 {
        let begun = Instant::now();
        assert_eq!(ann.try_acquire("door").err(), Some(NotAcquired::Halted));
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }
    let cy = open(&group, "cy", Founding::Join);
    // What the try may have claimed has ended.
    assert!(ann.try_acquire("door").is_ok());
    drop(cy);
}

#[test]
fn the_next_leads_when_a_leader_ends() {
    let (ann, bob) = pair(&fresh_name("locks"));
    let (changes, news) = std::sync::mpsc::channel();
    for (name, service) in [("ann", ann.clone()), ("bob", bob.clone())] {
        let changes = changes.clone();
        thread::spawn(move || {
            let end = service.lead("leader", |fence| _ = changes.send((name, fence)));
            assert_eq!(end, NotAcquired::Ended);
        });
        if name == "ann" {
            assert!(matches!(news.recv_timeout(PATIENCE), Ok(("ann", Some(_)))));
        }
    }
    // Ann was the first in line.
    ann.end(Duration::from_secs(1));
    let mut changes: Vec<_> = (0..2).map(|_| news.recv_timeout(PATIENCE).unwrap()).collect();
    changes.sort();
    assert!(matches!(changes[..], [("ann", None), ("bob", Some(_))]), "{changes:?}");
    bob.end(Duration::from_secs(1));
}
