//! The sequencer's role moves by load: to which member, when, and what prevents a move.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

fn migrating(n: usize, resilience: u8) -> Net {
    let config =
        GroupConfig { resilience, order: Order::Sequencer(Migration::ByLoad), ..GroupConfig::default() };
    let mut net = group_with(n, config, unicast());
    net.run(50 * MS);
    net
}

/// Sends one message every millisecond. `sender` returns the sender of each message by its index.
fn talk(net: &mut Net, messages: usize, sender: impl Fn(usize) -> usize) {
    for index in 0..messages {
        net.send(sender(index), b"x").expect("there is room");
        net.run(MS);
    }
}

/// Returns how often the role has moved, by this member's events.
fn moves(net: &Net, index: usize) -> usize {
    net.events[index].iter().filter(|event| matches!(event, Event::HandedOver { .. })).count()
}

fn sequencer(net: &Net, index: usize) -> usize {
    (net.group(index).info().sequencer.0 - uid(0).0) as usize
}

#[test]
fn the_role_goes_to_the_member_that_sends_everything_and_stays_there() {
    for resilience in 0..3 {
        let mut net = migrating(4, resilience);
        talk(&mut net, 300, |_| 2);
        for index in 0..4 {
            assert_eq!((sequencer(&net, index), moves(&net, index)), (2, 1), "r {resilience}, m{index}");
        }
        net.run(5_000 * MS);
        talk(&mut net, 300, |_| 2);
        net.run(100 * MS);
        assert_eq!((moves(&net, 0), net.delivered(3)), (1, 600), "r {resilience}");
    }
}

#[test]
fn it_stays_where_several_send() {
    let mut net = migrating(3, 1);
    talk(&mut net, 2_000, |index| index % 2);
    talk(&mut net, 2_000, |index| index % 3);
    // Also by turns of a few messages.
    talk(&mut net, 2_000, |index| index / 20 % 2 + 1);
    assert_eq!((sequencer(&net, 1), moves(&net, 1)), (0, 0));
}

#[test]
fn two_that_send_by_turns_of_bursts_do_not_make_it_flap() {
    let mut net = migrating(3, 1);
    let bursts = 120;
    talk(&mut net, bursts * 300, |index| index / 300 % 2 + 1);
    let moves = moves(&net, 0);
    assert!((2..=20).contains(&moves), "{moves} moves in {bursts} bursts of 300 ms");
}

#[test]
fn it_moves_only_if_the_founder_said_so() {
    for migration in [Migration::Never, Migration::OnRequest] {
        let mut net = group_with(
            3,
            GroupConfig { order: Order::Sequencer(migration), ..GroupConfig::default() },
            unicast(),
        );
        talk(&mut net, 500, |_| 1);
        assert_eq!(moves(&net, 0), 0, "{migration:?}");
        let now = Time::from_nanos(net.now);
        let refused = net.group_mut(0).hand_over(now, uid(1)).err();
        assert_eq!(refused, (migration == Migration::Never).then_some(HandOverError::Never));
    }
}

#[test]
fn joiners_are_told_the_founders_choice() {
    let mut net = migrating(3, 0);
    net.leave(0);
    net.run(1_000 * MS);
    assert_eq!(sequencer(&net, 1), 1);
    talk(&mut net, 300, |_| 2);
    assert_eq!((sequencer(&net, 1), moves(&net, 1)), (2, 1), "m1 joined, and has the same rule");
}

// If the role went to a member that first had to request what it lacks, no message would be numbered meanwhile.
#[test]
fn it_does_not_go_to_a_sender_that_lags_behind() {
    let mut net = migrating(3, 0);
    // m2 receives no entries, but goes on sending. Its watermarks show that it holds nothing.
    net.filter(|seen| {
        let numbered = seen.has(|frame| matches!(frame, Frame::Ordered(_) | Frame::Change { .. }));
        if seen.to == 2 && numbered { LOST } else { PROMPT }
    });
    talk(&mut net, 300, |_| 2);
    assert_eq!((sequencer(&net, 1), moves(&net, 1)), (0, 0));
    net.calm();
    talk(&mut net, 300, |_| 2);
    assert_eq!(sequencer(&net, 1), 2, "once it has caught up");
}

// While a process joins, the sequencer keeps state for it. A move of the role would begin the join anew.
#[test]
fn it_does_not_move_while_there_is_an_observer_or_a_join_is_not_accepted() {
    let mut net = migrating(3, 1);
    net.filter(|seen| if seen.from == 3 && !seen.outside { LOST } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS / 20, 10_000 * MS, |net| net.phase(joiner) == Phase::Joining));
    talk(&mut net, 300, |_| 2);
    assert_eq!(moves(&net, 1), 0, "there is an observer");
    // The joiner is numbered in, and all acknowledgements of its join are lost.
    let joined = Rc::new(Cell::new(false));
    let seen_join = joined.clone();
    net.filter(move |seen| {
        seen_join.set(seen_join.get() || seen.has_join());
        let says_so = seen.has(|frame| matches!(frame, Frame::Watermarks(_)));
        if seen_join.get() && seen.to == 0 && says_so { LOST } else { PROMPT }
    });
    assert!(net.run_until(MS, 2_000 * MS, |_| joined.get()), "the join is numbered");
    talk(&mut net, 100, |_| 2);
    assert_eq!(moves(&net, 1), 0, "the join is not accepted");
    net.calm();
    talk(&mut net, 300, |_| 2);
    assert_eq!((sequencer(&net, 1), net.size(1)), (2, 4));
}

// The role event travels with the last seqnos, and the new sequencer's first seqnos travel with its first heartbeat. So
// the move leaves no pause.
#[test]
fn a_move_leaves_no_pause_behind() {
    let mut net = migrating(3, 0);
    let mut slowest = 0;
    for _ in 0..300 {
        let (begin, before) = (net.now, net.delivered(2));
        net.send(2, b"x").expect("there is room");
        assert!(net.run_until(LATENCY / 5, 100 * MS, |net| net.delivered(2) > before));
        slowest = slowest.max(net.now - begin);
        net.run(MS / 2);
    }
    assert_eq!(sequencer(&net, 0), 2);
    assert!(slowest <= 3 * LATENCY, "{slowest} ns");
}

// Earlier sequencers have announced what the log holds when the role moves. If the new sequencer announced it again, it
// would send a whole history once more, to all members.
#[test]
fn a_new_sequencer_tells_only_what_it_numbers() {
    let mut net = group_of(3, 0);
    (0..16).for_each(|_| _ = net.send(0, b"x").unwrap());
    net.run(MS);
    let told = Rc::new(Cell::new(0));
    let counted = told.clone();
    net.filter(move |seen| {
        let places = |frame: &Frame| match frame {
            Frame::Ordered(ordered) => ordered.pieces.len(),
            _ => 0,
        };
        if (seen.from, seen.to) == (1, 2) {
            counted.set(counted.get() + seen.frames.iter().map(places).sum::<usize>());
        }
        PROMPT
    });
    net.hand_over(0, 1);
    net.run(MS);
    net.send(1, b"x").unwrap();
    net.run(MS);
    assert_eq!((sequencer(&net, 2), net.delivered(2), told.get()), (1, 17, 1));
}

// Members that go on without the holders of the event must not repeat what other applications have received. So the
// event waits for as many holders as a message, and for its successor, without which nothing follows.
#[test]
fn the_role_has_not_moved_before_enough_members_hold_the_event_and_its_successor_does() {
    for (resilience, unheard) in [(0, [1, 1]), (2, [2, 3])] {
        let mut net = group_of(4, resilience);
        net.filter(move |seen| if unheard.contains(&seen.to) { LOST } else { PROMPT });
        net.hand_over(0, 1);
        net.run(50 * MS);
        for index in 0..4 {
            assert_eq!(moves(&net, index), 0, "r {resilience}, m{index}");
        }
        net.calm();
        net.run(500 * MS);
        for index in 0..4 {
            assert_eq!((sequencer(&net, index), moves(&net, index)), (1, 1), "r {resilience}, m{index}");
        }
    }
}

// The old sequencer dies before its successor has received the event. A member that knows the event sends it to the
// successor, before any member is suspected.
#[test]
fn a_member_that_knows_of_a_hand_over_tells_the_successor() {
    let mut net = group_of(3, 1);
    net.filter(|seen| if seen.from == 0 && seen.to == 1 { LOST } else { PROMPT });
    net.hand_over(0, 1);
    net.run(MS);
    net.crash(0);
    net.run(150 * MS);
    net.show("m0 is dead, and m2 knows that m1 is the sequencer");
    assert!(net.group(1).marks().acting && net.epoch(1) == 0, "m1 does not know that it is the sequencer");
}
