//! Switches of the order while the group runs.

use crate::network::*;
use unisono_core::wire::*;
use unisono_core::*;

const SEQUENCER: Order = Order::Sequencer(Migration::OnRequest);

fn found(n: usize, order: Order) -> Net {
    let mut net = group_with(n, GroupConfig { resilience: 1, order, ..GroupConfig::default() }, unicast());
    net.run(100 * MS);
    net
}

fn change(net: &mut Net, index: usize, order: Order) -> Result<(), ChangeOrderError> {
    let now = Time::from_nanos(net.now);
    let done = net.group_mut(index).change_order(now, order);
    net.drain(index);
    done
}

/// Returns the switches that this member's application received: the seqno, and the order.
fn switches(net: &Net, index: usize) -> Vec<(Seqno, Order)> {
    let of = |event: &Event| match event {
        Event::OrderChanged { seqno, order, .. } => Some((*seqno, *order)),
        _ => None,
    };
    net.events[index].iter().filter_map(of).collect()
}

fn passes(net: &Net, n: usize) -> u64 {
    (0..n).map(|index| net.group(index).counters().passes).sum()
}

// Each member asks once, with messages of all under way. No send fails, and all members are told at the same seqnos.
#[test]
fn any_member_switches_the_order_under_load() {
    let mut net = found(4, SEQUENCER);
    let mut sent = 0;
    for (asker, order) in [(2, Order::Token), (1, SEQUENCER), (0, Order::Token), (3, SEQUENCER)] {
        for round in 0..40 {
            if round == 10 {
                change(&mut net, asker, order).unwrap();
            }
            for index in 0..4 {
                net.send(index, b"x").unwrap();
                sent += 1;
            }
            net.run(MS);
        }
        net.run(100 * MS);
        assert!((0..4).all(|index| net.group(index).info().order == order), "{asker}");
        let before = passes(&net, 4);
        for index in 0..4 {
            net.send(index, b"x").unwrap();
            sent += 1;
        }
        net.run(50 * MS);
        assert_eq!(passes(&net, 4) > before, order == Order::Token);
    }
    let told = switches(&net, 0);
    assert_eq!(told.len(), 4);
    for index in 0..4 {
        assert_eq!((net.delivered(index), net.epoch(index)), (sent, 0), "m{index}");
        assert_eq!(switches(&net, index), told, "m{index}");
    }
}

#[test]
fn an_idle_group_switches_though_the_request_is_lost_twice() {
    for (order, other) in [(SEQUENCER, Order::Token), (Order::Token, SEQUENCER)] {
        let mut net = found(3, order);
        let mut lost = 0;
        net.filter(move |seen| {
            let is_request = seen.has(|frame| matches!(frame, wire::Frame::SwitchRequest { .. }));
            lost += u32::from(is_request);
            if is_request && lost <= 2 { LOST } else { PROMPT }
        });
        let asker = (0..3).find(|&index| !net.group(index).marks().acting).unwrap();
        change(&mut net, asker, other).unwrap();
        assert_eq!(change(&mut net, asker, other), Err(ChangeOrderError::UnderWay));
        net.run(200 * MS);
        assert!((0..3).all(|index| net.group(index).info().order == other));
        assert_eq!(change(&mut net, asker, other), Err(ChangeOrderError::InForce));
    }
}

fn assert_switched_back(net: &Net) {
    for index in 0..3 {
        assert_eq!(net.group(index).info().order, SEQUENCER, "m{index}");
        assert_eq!(switches(net, index).len(), 2, "m{index}");
    }
}

// The first request is late: meanwhile the group has been switched, and back by another member.
#[test]
fn a_request_that_comes_after_another_switch_switches_nothing() {
    let mut net = found(3, SEQUENCER);
    let mut seen_one = false;
    net.filter(move |seen| {
        let is_request = seen.has(|frame| matches!(frame, wire::Frame::SwitchRequest { .. }));
        if is_request && !std::mem::replace(&mut seen_one, true) { Some(100 * MS) } else { PROMPT }
    });
    change(&mut net, 2, Order::Token).unwrap();
    net.run(50 * MS);
    change(&mut net, 1, SEQUENCER).unwrap();
    net.run(300 * MS);
    assert_switched_back(&net);
}

// It receives both switches at once, so the order in force is again the one that it wanted to end.
#[test]
fn a_member_that_hears_late_of_its_switch_does_not_ask_again() {
    let mut net = found(3, SEQUENCER);
    net.filter(|seen| if seen.to == 2 { LOST } else { PROMPT });
    change(&mut net, 2, Order::Token).unwrap();
    net.run(30 * MS);
    change(&mut net, 1, SEQUENCER).unwrap();
    net.run(30 * MS);
    assert_eq!(switches(&net, 1).len(), 2);
    net.calm();
    net.run(300 * MS);
    assert_switched_back(&net);
}

#[test]
fn a_joiner_learns_the_order_in_force() {
    let mut net = found(3, SEQUENCER);
    change(&mut net, 1, Order::Token).unwrap();
    net.run(100 * MS);
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(400 * MS);
    assert_eq!((net.phase(joiner), net.group(joiner).info().order), (Phase::Member, Order::Token));
    net.send(joiner, b"x").unwrap();
    net.send(0, b"x").unwrap();
    net.run(100 * MS);
    assert_eq!((net.delivered(joiner), net.delivered(2)), (2, 2));
}

// The sequencer numbers the switch, no other member receives it, and the sequencer crashes.
#[test]
fn a_switch_that_a_reset_cuts_off_was_never_in_force() {
    let mut net = found(4, SEQUENCER);
    let is_switch = |seen: &Seen| {
        seen.has(|frame| matches!(frame, wire::Frame::Change { change: wire::Change::Order { .. }, .. }))
    };
    net.filter(move |seen| if is_switch(seen) { LOST } else { PROMPT });
    change(&mut net, 0, Order::Token).unwrap();
    net.run(5 * MS);
    net.crash(0);
    net.calm();
    net.run(2_000 * MS);
    net.send(2, b"x").unwrap();
    net.run(100 * MS);
    for index in 1..4 {
        assert_eq!((net.size(index), net.group(index).info().order), (3, SEQUENCER), "m{index}");
        assert_eq!((switches(&net, index), net.delivered(index)), (Vec::new(), 1));
    }
}

// A process outside of the group asks. A recorded request switches nothing when it comes again.
#[test]
fn a_request_from_outside_is_taken_once_and_only_with_a_fresh_challenge() {
    let mut net = found(3, SEQUENCER);
    let tag = net.group(1).tag();
    let ask = |challenge, number, order| {
        let frame = Frame::Switch { nonce: 7, challenge, order };
        forge(tag, EpochTag::OUTSIDE, Uid(99), number, &[frame])
    };
    let request = asks_from_outside(&mut net, 1, |frame| match frame {
        Frame::Switching { answer, .. } => Some(*answer),
        _ => None,
    });
    let Some(Switching::Challenge(first)) = request(&mut net, &ask(0, 1, Order::Token)) else {
        panic!("no challenge")
    };
    // Another challenge was drawn since.
    assert!(matches!(request(&mut net, &ask(first ^ 2, 2, Order::Token)), Some(Switching::Challenge(_))));
    let Some(Switching::Challenge(fresh)) = request(&mut net, &ask(first, 3, Order::Token)) else {
        panic!("an old challenge is good")
    };
    assert_eq!(net.group(0).info().order, SEQUENCER);
    let good = ask(fresh, 4, Order::Token);
    assert_eq!(request(&mut net, &good), Some(Switching::Begun));
    net.run(100 * MS);
    assert!((0..3).all(|index| net.group(index).info().order == Order::Token));
    change(&mut net, 2, SEQUENCER).unwrap();
    net.run(100 * MS);
    assert!(matches!(request(&mut net, &good), Some(Switching::Challenge(_))), "a recording");
    net.run(100 * MS);
    assert!((0..3).all(|index| net.group(index).info().order == SEQUENCER));
}
