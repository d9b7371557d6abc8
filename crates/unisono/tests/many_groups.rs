//! A thousand groups in one process: they share sockets and threads, and idle groups cost next to nothing.

mod common;

use common::{fresh_name, options};
use std::io::Write;
use std::time::{Duration, Instant};
use unisono::{Event, Group, GroupConfig};

const GROUPS: usize = 1000;
/// Number of threads that join groups, because a join mostly waits.
const JOINING_AT_ONCE: usize = 8;
/// Maximum time for the whole test.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time for which the use of idle groups is measured.
const IDLE: Duration = Duration::from_secs(2);
/// Maximum for each member's state, its handle and what its neighbours know of it.
const BYTES_EACH_MAX: u64 = 64 << 10;
/// Maximum processor time that all idle members use in a second, as a multiple of what it took to open them and to send
/// a message in each group: both are longer on a slow machine.
const IDLE_SHARE_MAX: f64 = 2.0;

/// What this process uses, as the system reports.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: u64,
    files: u64,
    resident_bytes: u64,
    processor_ticks: u64,
}

/// Reads the use of this process; `None` where the system does not report it.
fn usage() -> Option<Usage> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let number = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may contain anything: user time is the 12th field, system time the 13th.
    let times: Vec<u64> =
        stat.rsplit(')').next()?.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    Some(Usage {
        threads: number("Threads:")?,
        files: std::fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        resident_bytes: number("VmRSS:")? << 10,
        processor_ticks: times.iter().sum(),
    })
}

#[test]
fn a_thousand_groups_share_a_process() {
    let Some(before) = usage() else {
        let _ = writeln!(std::io::stderr(), "skipped: this system does not report what a process uses");
        return;
    };
    let begin = Instant::now();
    let names: Vec<String> = (0..GROUPS).map(|_| fresh_name("many")).collect();
    let (config, options) = (GroupConfig::default(), options());
    let founders: Vec<Group> =
        names.iter().map(|name| Group::create(name, config.clone(), &options).unwrap()).collect();
    let join = &|names: &[String]| -> Vec<Group> {
        names.iter().map(|name| Group::join(name, "", &options).unwrap()).collect()
    };
    let joiners: Vec<Group> = std::thread::scope(|scope| {
        let joining: Vec<_> =
            names.chunks(GROUPS / JOINING_AT_ONCE).map(|names| scope.spawn(move || join(names))).collect();
        joining.into_iter().flat_map(|joining| joining.join().unwrap()).collect()
    });
    let opened = begin.elapsed();

    // Each group has its own order: a message arrives in its group and in no other.
    for (joiner, name) in joiners.iter().zip(&names) {
        drop(joiner.submit(name.clone()).unwrap());
    }
    for group in 0..GROUPS {
        for member in [&founders[group], &joiners[group]] {
            let payload = loop {
                let left = PATIENCE.saturating_sub(begin.elapsed());
                match member.receive_timeout(left).unwrap().expect("a message in time") {
                    Event::Message { payload, .. } => break payload,
                    event => assert!(!matches!(event, Event::Reset { .. }), "{event:?}"),
                }
            };
            assert_eq!(payload, names[group]);
        }
    }
    let exchanged = begin.elapsed();

    let (settled, at) = (usage().unwrap(), Instant::now());
    while at.elapsed() < IDLE {
        // A thread holds the lease, as in any program that waits.
        let event = founders[0].receive_timeout(IDLE.saturating_sub(at.elapsed())).unwrap();
        assert_eq!(event, None);
    }
    let idle = usage().unwrap();
    let members = 2 * GROUPS as u64;
    let each = settled.resident_bytes.saturating_sub(before.resident_bytes) / members;
    // A tick is a hundredth of a second wherever Linux runs.
    let seconds = |ticks: u64| ticks as f64 / 100.0;
    let opening = seconds(settled.processor_ticks - before.processor_ticks);
    let idling = seconds(idle.processor_ticks - settled.processor_ticks) / at.elapsed().as_secs_f64();
    let (threads, files) = (settled.threads - before.threads, settled.files - before.files);
    let _ = writeln!(
        std::io::stderr(),
        "{members} members: opened after {opened:.1?}, a message each after {exchanged:.1?}; {threads} threads, {files} \
         files, {} KiB each, {opening:.2} s of a processor for that, {:.1} % of one when idle",
        each >> 10,
        100.0 * idling
    );
    // Two engines, since a process has two members of each group. Each engine has a thread, a socket, a listener for
    // each multicast address, and what wakes it.
    assert!(threads <= 2, "{threads} threads");
    assert!(files <= 2 * (1 + 32 + 8), "{files} files");
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each member");
    assert!(
        idling < IDLE_SHARE_MAX * opening,
        "{idling} of a processor, and {opening} s of it to begin with"
    );

    let leaving = Instant::now();
    joiners.iter().for_each(|group| group.leave("").unwrap());
    founders.iter().for_each(|group| group.leave("").unwrap());
    drop((joiners, founders));
    let _ = writeln!(std::io::stderr(), "left within {:.1?}", leaving.elapsed());
}
