//! How a service on disk keeps its pace under full load: beside a server whose disk is slow, and beside one that comes back.
//! One test counts the datagrams of a command.
//!
//! Time is simulated, so that the figures are the same on every machine. Processors take no time here: what is measured is
//! who waits for which disk, and for which message.

use super::director::{Director, Run};
use super::history::SERVERS;
use super::plan::Load;
use super::script;
use crate::draw::MILLISECOND;
use std::time::Duration;
use unisono_core::replica::disk::DiskDurability;

/// Time that each job of a disk takes, and of a slow one. Equal disks: of three that are not, the second fastest decides, and
/// of the two that remain beside a slow one, the slower.
const JOB_TAKES: Duration = Duration::from_millis(2);
const SLOW_JOB_TAKES: Duration = Duration::from_millis(50);

/// Time that each job of a fast disk takes: 0.2 ms, where a message takes 0.06 ms.
const FAST_JOB_TAKES: Duration = Duration::from_micros(200);

/// Maximum number of datagrams of one command, heartbeats included, where one client has one command under way. It takes 9.0.
/// With slower disks it takes more, because fewer notes go with another datagram.
const DATAGRAMS_MAX: f64 = 9.3;

/// Three servers that clients keep busy.
struct Course(Director);

impl Course {
    /// Returns a course under the full load of three clients.
    fn begin() -> Course {
        Course::with_clients(3, 2)
    }

    /// Returns a course with clients that each have at most `under_way_max` commands under way.
    fn with_clients(clients: usize, under_way_max: usize) -> Course {
        let mut plan = script::plan(DiskDurability::Majority);
        plan.clients = clients;
        plan.load = Load {
            words: false,
            every: MILLISECOND / 4,
            own_every: 1_000_000 * MILLISECOND,
            burst_max: 1,
            under_way_max,
            reads: 0.0,
            local: 0.0,
            hasty: 0.0,
            large: 0.0,
            large_bytes_max: 0,
        };
        let mut director = Director::of(Run { plan, seed: 1, what: "pace".to_string() }, None, None);
        // Commands have long deadlines.
        director.is_calm = true;
        director.begin_run();
        (0..SERVERS).for_each(|process| director.world.set_steady(process, JOB_TAKES));
        let mut course = Course(director);
        course.run(2_000);
        course
    }

    /// Lets time pass, in milliseconds, and returns the number of commands that were answered.
    fn run(&mut self, lasts: u64) -> u64 {
        let world = &self.0.world;
        let (before, until) = (world.recorder.totals.calls, world.now + lasts * MILLISECOND);
        while let Some(trigger) = self.0.world.advance(until) {
            self.0.handle(trigger);
        }
        assert_eq!(self.0.world.recorder.violation(), None);
        self.0.world.recorder.totals.calls - before
    }

    /// Returns the number of datagrams that servers and clients have sent; a multicast counts once.
    fn datagrams(&self) -> u64 {
        self.0.world.network.traffic.datagrams
    }

    fn bring_back(&mut self, process: usize) {
        let entry = self.0.entry();
        self.0.begin_server(process, entry, None);
        self.0.world.set_steady(process, JOB_TAKES);
    }

    fn slow_down(&mut self, process: usize) {
        self.0.world.set_steady(process, SLOW_JOB_TAKES);
    }

    fn serves(&self, process: usize) -> bool {
        let resident = self.0.world.resident(process);
        resident.and_then(|resident| resident.side.server.as_deref()).is_some_and(|server| server.is_copy())
    }
}

#[test]
fn a_command_by_itself_takes_few_datagrams() {
    let mut course = Course::with_clients(1, 1);
    (0..SERVERS).for_each(|process| course.0.world.set_steady(process, FAST_JOB_TAKES));
    course.run(100);
    let before = course.datagrams();
    let commands = course.run(2_000);
    let each = (course.datagrams() - before) as f64 / commands as f64;
    assert!(commands > 1_000, "{commands} commands in two seconds");
    assert!(each <= DATAGRAMS_MAX, "{each:.2} datagrams each of {commands} commands");
}

#[test]
fn one_slow_disk_holds_no_server_up_and_two_do() {
    for slow in 0..SERVERS {
        let mut course = Course::begin();
        let before = course.run(500);
        course.slow_down(slow);
        course.run(100);
        let beside = course.run(500);
        assert!(before > 300, "{before} commands in half a second are no load");
        assert!(10 * beside >= 9 * before, "{beside} of {before} commands beside the slow disk of m{slow}");
        course.slow_down((slow + 1) % SERVERS);
        course.run(100);
        let held_up = course.run(500);
        assert!(4 * held_up < before, "{held_up} of {before} commands: a majority is two disks");
    }
}

#[test]
fn a_server_that_comes_back_under_full_load_leaves_the_others_their_pace() {
    for victim in 0..SERVERS {
        let mut course = Course::begin();
        course.0.world.crash(victim);
        course.run(500);
        let without = course.run(500);
        assert!(without > 300, "{without} commands in half a second are no load");
        course.bring_back(victim);
        let parts: Vec<u64> = (0..5).map(|_| course.run(100)).collect();
        let beside: u64 = parts.iter().sum();
        assert!(
            10 * beside >= 6 * without,
            "{parts:?} in 100 ms each, of {without} in 500 ms, beside m{victim}"
        );
        assert!(
            parts.iter().all(|part| 5 * part * 10 >= 4 * without),
            "{parts:?} beside m{victim}, {without}"
        );
        course.run(1_500);
        assert!(course.serves(victim), "m{victim} does not catch up under load");
    }
}
