//! Passes that are lost, and members that no other hears.

use super::*;

/// True for a heartbeat of a member that has given the token away.
fn says_successor(seen: &Seen) -> bool {
    seen.has(|frame| matches!(frame, Frame::Heartbeat(heartbeat) if !heartbeat.acting))
}

// The successor alone does not hear of the pass. Without a repetition the ring stands still until the idle period of
// heartbeats is over (hazard H68).
#[test]
fn a_lost_pass_is_repeated_to_all_after_ten_ms() {
    let mut net = ring_at_m0();
    let before = net.delivered(1);
    let (is_lost, named) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (lost, by_name) = (is_lost.clone(), named.clone());
    net.filter(move |seen| {
        by_name.set(by_name.get() + u32::from(!seen.multicast && seen.from == 0 && says_successor(seen)));
        let loses =
            has_pass(seen) && seen.to == 1 && !lost.replace(lost.get() || has_pass(seen) && seen.to == 1);
        if loses { LOST } else { PROMPT }
    });
    let begin = net.now;
    net.send(0, b"x").unwrap();
    net.run(MS / 2);
    net.send(2, b"y").unwrap();
    assert!(net.run_until(LATENCY / 5, 200 * MS, move |net| net.delivered(1) > before));
    assert!(is_lost.get(), "the case was not reached");
    let took = net.now - begin;
    assert!((10 * MS..=12 * MS).contains(&took), "{took} ns");
    assert_eq!(named.get(), 0, "to all, and not by name");
}

// No datagram comes to the giver after its pass. It repeats the pass after 10 ms all the same, and not with its next
// input: in an idle ring no other member sends anything (hazard H68).
#[test]
fn a_pass_is_repeated_after_ten_ms_though_nothing_else_happens() {
    let mut net = ring_at_m0();
    let before = net.delivered(1);
    net.filter(|seen| {
        if has_pass(seen) && seen.to == 1 && seen.from == 0 && seen.multicast { LOST } else { PROMPT }
    });
    let begin = net.now;
    net.send(0, b"x").unwrap();
    assert!(net.run_until(LATENCY / 5, 200 * MS, move |net| net.delivered(1) > before));
    assert!(net.now - begin <= 12 * MS, "{} ms", (net.now - begin) / MS);
}

// m1 hears no multicast of m0. What is repeated to all does not reach it either (hazard H97).
#[test]
fn a_pass_repeated_in_vain_goes_to_its_successor_by_name() {
    let mut net = ring_at_m0();
    let before = net.delivered(1);
    let said = Rc::new(RefCell::new(Vec::new()));
    let noted = said.clone();
    let begin = net.now;
    net.filter(move |seen| {
        if seen.from == 0 && seen.to == 1 && says_successor(seen) {
            noted.borrow_mut().push(((seen.now - begin) / MS, seen.multicast));
        }
        if seen.multicast && seen.from == 0 && seen.to == 1 { LOST } else { PROMPT }
    });
    net.send(0, b"x").unwrap();
    net.run(MS / 2);
    net.send(2, b"y").unwrap();
    assert!(net.run_until(LATENCY / 5, 200 * MS, move |net| net.delivered(1) > before));
    // With the pass itself, then after 10 ms, and 20 ms later by name.
    assert_eq!(*said.borrow(), [(0, true), (10, true), (30, false)]);
}

// The giver dies with its pass. A member that has it and hears nothing of the next term tells the one that it names,
// before any member is suspected.
#[test]
fn a_member_that_knows_of_a_pass_tells_the_successor_if_its_giver_dies() {
    let mut net = ring_at_m0();
    let before = net.delivered(1);
    net.filter(|seen| if seen.from == 0 && seen.to == 1 { LOST } else { PROMPT });
    net.send(0, b"x").unwrap();
    net.run(MS);
    net.crash(0);
    assert!(
        net.run_until(MS, 130 * MS, move |net| net.delivered(1) > before),
        "m1 does not know of the pass"
    );
    assert_eq!((net.epoch(1), net.delivered(1), net.delivered(2)), (0, before + 1, before + 1));
}

/// Five members, each of which has sent. No member hears the multicasts of m1 while `is_mute`. Counts the datagrams of the
/// order that m1 multicasts.
fn ring_with_a_mute() -> (Net, Rc<Cell<bool>>, Rc<Cell<u32>>) {
    let mut net = ring(5, 1);
    warm_up(&mut net);
    let (is_mute, tried) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let (mute, tries) = (is_mute.clone(), tried.clone());
    net.filter(move |seen| {
        let is_m1 = seen.multicast && seen.from == 1;
        let is_of_order = seen.has(|frame| !matches!(frame, Frame::Heartbeat(Heartbeat { asks: true, .. })));
        tries.set(tries.get() + u32::from(is_m1 && is_of_order && seen.to == 0));
        if is_m1 && mute.get() { LOST } else { PROMPT }
    });
    (net, is_mute, tried)
}

// In a busy ring every datagram of the order ends with a pass. The giver has to notice all the same that a later member
// acts, or it never learns that its multicasts are lost, and each rotation takes 30 ms (hazard H97).
#[test]
fn a_member_that_no_other_hears_learns_it_in_a_busy_ring() {
    let (mut net, _, _) = ring_with_a_mute();
    talk(&mut net, 4_000, &[0, 2, 3, 4]);
    assert!(!net.group(1).audience().multicast, "m1 goes on with multicasts");
    net.run(200 * MS);
    let (begin, before) = (net.now, net.delivered(1));
    talk(&mut net, 4_000, &[0, 1, 2, 3, 4]);
    assert!(
        net.run_until(LATENCY, 200 * MS, |net| (0..5).all(|index| net.delivered(index) == before + 4_000))
    );
    assert!(net.now - begin <= 120 * MS, "{} ms for 100", (net.now - begin) / MS);
}
