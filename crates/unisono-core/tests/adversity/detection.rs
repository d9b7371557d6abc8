//! How soon a loss is noticed, and who is given time.

use crate::network::*;
use unisono_core::wire::*;

/// Milliseconds until the group of these members goes on in another epoch.
fn until_reset(net: &mut Net, witness: usize) -> u64 {
    let began = net.now;
    let reset = net.run_until(MS, 5000 * MS, |net| net.epoch(witness) == 1);
    assert!(reset, "nobody noticed");
    (net.now - began) / MS
}

// Whoever waits for a number need not wait for the silence of an idle group to end.
#[test]
fn a_working_group_misses_its_orderer_sooner_than_an_idle_one() {
    let mut idle = group_of(3, 1);
    idle.run(1000 * MS);
    idle.crash(0);
    let idle = until_reset(&mut idle, 1);
    assert!((150..=280).contains(&idle), "{idle} ms when idle");
    let mut working = group_of(3, 1);
    working.run(1000 * MS);
    working.crash(0);
    working.send(1, b"where are you?").unwrap();
    let working = until_reset(&mut working, 1);
    assert!((100..=140).contains(&working), "{working} ms at work");
}

/// A member is silent until 80 ms after it was first asked whether it lives, then answers everything.
fn be_late(net: &mut Net, member: usize) {
    let mut asked = None;
    net.filter(move |seen| {
        if seen.to == member && seen.has(|frame| matches!(frame, Frame::Probe { .. })) {
            asked.get_or_insert(seen.now);
        }
        let answers = asked.is_some_and(|at| seen.now >= at + 80 * MS);
        if seen.from == member && !answers { LOST } else { PROMPT }
    });
    net.run(500 * MS);
    assert_eq!(net.epoch(0), 0, "late, and alive");
}

// On overloaded processors a member is late, and then later still: it is not taken for dead by the first measure.
#[test]
fn whoever_was_late_lately_is_given_more_time() {
    for (calm, expected) in [(0, 500..=1000), (10_000 * MS, 150..=280)] {
        let mut net = group_of(3, 1);
        net.run(1000 * MS);
        be_late(&mut net, 2);
        net.run(calm);
        net.crash(2);
        let took = until_reset(&mut net, 0);
        assert!(expected.contains(&took), "{took} ms, {calm} ns after it was late");
    }
}
