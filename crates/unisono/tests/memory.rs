//! A group forgets what it has dealt with: a million messages leave the memory of their members where it was.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};
use unisono::{Bytes, Event, Group};

const MEMBERS: usize = 3;
const MESSAGE: Bytes = Bytes::from_static(&[7; 64]);
const BATCH: usize = 1000;
/// Number of messages that fill the histories, the windows and the allocator's own stores.
const WARM_UP: usize = 200_000;
const MESSAGES: usize = 1_000_000;
/// Maximum number of rounds of which one must not grow. The receive buffers of a member have a bound, and now and then
/// a burst fills them further than any burst before. A leak grows with every million messages.
const ROUNDS_MAX: usize = 20;
/// A quarter of a byte for each message.
const GROWTH_BYTES_MAX: i64 = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the resident memory of this process; `None` where the system does not report it.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? << 10)
}

/// The last member sends `count` messages; all receive them.
fn exchange(groups: &[Group], count: usize) {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for group in groups {
            scope.spawn(move || {
                let (mut events, mut received) = (Vec::new(), 0);
                while received < count {
                    group.receive_many(&mut events).unwrap();
                    received +=
                        events.drain(..).filter(|event| matches!(event, Event::Message { .. })).count();
                    assert!(begin.elapsed() < PATIENCE, "{received} of {count}");
                }
            });
        }
        for _ in 0..count / BATCH {
            let batch = groups[MEMBERS - 1].submit_all(std::iter::repeat_n(MESSAGE, BATCH)).unwrap();
            assert_eq!(batch.wait().accepted, BATCH);
        }
    });
}

#[test]
fn a_million_messages_leave_memory_where_it_was() {
    if resident_bytes().is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: this system does not report how much memory is in use");
        return;
    }
    let groups = common::members(&common::fresh_name("memory"), MEMBERS);
    exchange(&groups, WARM_UP);
    let leaves_it = (0..ROUNDS_MAX).any(|_| {
        let (before, begin) = (resident_bytes().unwrap(), Instant::now());
        exchange(&groups, MESSAGES);
        let growth = resident_bytes().unwrap() - before;
        let _ = writeln!(
            std::io::stderr(),
            "{MESSAGES} messages in {:.1?}: {} KiB of memory before, {:+} KiB after",
            begin.elapsed(),
            before >> 10,
            growth >> 10
        );
        growth < GROWTH_BYTES_MAX
    });
    assert!(leaves_it, "memory grew with each of {ROUNDS_MAX} million messages");
}
