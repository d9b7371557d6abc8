//! Resets whose decision only a few know.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// The decision is known to nobody alive but those whom it excludes. If they go away at once, or keep it to themselves,
// the rest wait for it for ever (hazard H9).
#[test]
fn the_excluded_tell_the_decision_when_they_alone_know_it() {
    let mut net = group_of(5, 1);
    // m0 hears nothing from m4 but `Prepared`: it suspects m4 and begins a reset. m3's vote is lost. m0, m3 and m4
    // prepare. `Decided` reaches m3 and m4 alone, who are not in the new view {m0, m1, m2}.
    net.filter(|seen| {
        let prepared = seen.has(|frame| matches!(frame, Frame::Prepared { .. }));
        let vote = seen.has(|frame| matches!(frame, Frame::Vote(_)));
        let decided = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        let lost = seen.from == 4 && seen.to == 0 && !prepared
            || seen.from == 3 && vote
            || matches!(seen.from, 1 | 2) && prepared
            || matches!(seen.to, 1 | 2) && decided;
        if lost { LOST } else { PROMPT }
    });
    let excluded = |net: &Net| (3..5).all(|index| net.phase(index) == Phase::Excluded);
    assert!(net.run_until(MS / 20, 10_000 * MS, excluded), "the case was not reached");
    assert_eq!(net.phase(1), Phase::Resetting, "the case was not reached");
    // One crash of five.
    net.crash(0);
    net.drop_flights_from(0);
    net.calm();
    net.run(20_000 * MS);
    net.show("after m0's crash and twenty calm seconds");
    assert_eq!(net.phase(1), Phase::Member, "m1 and m2 are stuck");
}

// m1 comes back when none of those it knew is in the group any more. Unless whom it never knew tells it, it goes on
// asking the dead (hazard H6).
#[test]
fn a_member_is_told_of_its_exclusion_by_one_it_never_knew() {
    let mut net = group_of(2, 1);
    // m2 joins, m1 is left out of a reset, and m0 leaves.
    net.cut_off(1);
    net.add(Entry::Join, unicast());
    net.run(3_000 * MS);
    net.show("without m1");
    net.leave(0);
    net.run(1_000 * MS);
    net.calm();
    net.run(30_000 * MS);
    net.show("m1 is back");
    assert!(matches!(net.phase(1), Phase::Gone | Phase::Excluded), "m1 is never told");
}

// m2 is to go on and lacks what that takes, and an old Pull of its is replayed, which no replay window refuses any
// more. Whoever answers every copy sends a thousand times what m2 needs. When m2 asks itself, it is served.
#[test]
fn replayed_pulls_of_the_epoch_before_are_not_worth_sending() {
    const REPLAYS: usize = 1_000;
    const ALLOWANCE_BYTES: usize = 70_000;
    let settings = Settings { silence: Duration::from_secs(20), ..unicast() };
    let mut net = group_with(4, GroupConfig::default(), settings);
    net.run(50 * MS);
    let is_entries = |seen: &Seen| seen.to == 2 && seen.has(|frame| matches!(frame, Frame::Ordered(_)));
    net.filter(move |seen| if is_entries(seen) { LOST } else { PROMPT });
    let (tag, epoch) = (net.group(2).tag(), net.group(2).marks().epoch);
    let lacking = net.group(2).marks().received + 1;
    for _ in 0..60 {
        net.send(1, &[7; 1_000]).unwrap();
        net.run(MS);
    }
    net.crash(3);
    assert!(net.run_until(MS, 40_000 * MS, |net| net.epoch(0) == 1), "the case was not reached");
    assert_eq!(
        (net.size(0), net.epoch(2), net.phase(2)),
        (3, 0, Phase::Resetting),
        "the case was not reached"
    );

    let answered = Rc::new(Cell::new(0));
    let count = answered.clone();
    net.filter(move |seen| {
        if seen.from == 0 && seen.has(|frame| matches!(frame, Frame::Level { .. } | Frame::Decided { .. })) {
            count.set(count.get() + seen.bytes);
        }
        if seen.concerns(2) { LOST } else { PROMPT }
    });
    let ballot = Ballot { round: 1, coordinator: uid(0) };
    let pull = Frame::Pull { ballot, from: lacking, to: lacking + 59 };
    let pull = forge(tag, epoch, uid(2), 1_000_000, &[pull]);
    for _ in 0..REPLAYS {
        net.inject(0, address(9), &pull);
        net.drain(0);
        net.run(5 * MS);
    }
    let (sent, answered) = (REPLAYS * pull.len(), answered.get());
    println!("{sent} bytes of copies were answered with {answered}");
    assert!(answered > 16_000, "the case was not reached");
    assert!(answered <= sent + ALLOWANCE_BYTES, "{sent} bytes of copies were answered with {answered}");

    // m0 has nothing left for m2, but what m2 sends and gets.
    net.crash(1);
    net.calm();
    net.run(5_000 * MS);
    net.show("m2 is back");
    assert_eq!((net.phase(2), net.epoch(2), net.delivered(2)), (Phase::Member, 1, 60));
}
