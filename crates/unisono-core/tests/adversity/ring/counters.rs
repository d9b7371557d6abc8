//! What a ring says about itself: to applications and to processes outside.

use crate::network::*;
use unisono_core::*;

fn ring(n: usize, resilience: u8) -> Net {
    let mut net =
        group_with(n, GroupConfig { resilience, order: Order::Token, ..GroupConfig::default() }, unicast());
    net.run(50 * MS);
    net
}

/// Returns the passes, null passes and rests of all members.
fn counted(net: &Net, n: usize) -> (u64, u64, u64) {
    let counters = (0..n).map(|index| net.group(index).counters());
    counters.fold((0, 0, 0), |(passes, null, rests), counters| {
        (passes + counters.passes, null + counters.null_passes, rests + counters.rests)
    })
}

/// Returns the seqno of the pass by which the present member got the token.
fn term(net: &Net) -> u64 {
    net.group(0).report(Time::from_nanos(net.now)).term
}

#[test]
fn a_member_says_that_its_group_is_a_ring() {
    let net = ring(3, 0);
    for index in 0..3 {
        let group = net.group(index);
        assert_eq!(
            (group.info().order, group.report(Time::from_nanos(net.now)).order),
            (Order::Token, Order::Token)
        );
    }
}

#[test]
fn a_message_at_rest_costs_one_pass_and_a_token_rests_once_a_term() {
    let mut net = ring(3, 0);
    let before = counted(&net, 3);
    for index in 0..9 {
        net.send(index % 3, b"x").expect("there is room");
        net.run(100 * MS);
    }
    let after = counted(&net, 3);
    assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (9, 0, 9));
    let at_rest = term(&net);
    net.run(5_000 * MS);
    assert_eq!((counted(&net, 3), term(&net)), (after, at_rest), "nothing is counted at rest");
}

#[test]
fn a_pass_that_only_shows_who_holds_a_message_is_a_null_pass() {
    let mut net = ring(3, 2);
    let before = counted(&net, 3);
    net.send(0, b"x").expect("there is room");
    net.run(100 * MS);
    let after = counted(&net, 3);
    let (passes, null) = (after.0 - before.0, after.1 - before.1);
    // One member numbers the message, and the others show that they hold it.
    assert!(null >= 1 && passes == null + 1, "{passes} passes, {null} of them null");
}

#[test]
fn a_group_with_a_sequencer_counts_no_passes() {
    let order = Order::Sequencer(Migration::OnRequest);
    let mut net = group_with(3, GroupConfig { order, ..GroupConfig::default() }, unicast());
    net.run(50 * MS);
    net.hand_over(0, 1);
    net.send(2, b"x").expect("there is room");
    net.run(100 * MS);
    assert_eq!(net.group(2).info().order, order);
    assert_eq!(counted(&net, 3), (0, 0, 0));
}

#[test]
fn a_pass_is_no_episode() {
    let mut net = ring(3, 1);
    while net.group_mut(1).poll_episode().is_some() {}
    for index in 0..9 {
        net.send(index % 3, b"x").expect("there is room");
        net.run(100 * MS);
    }
    assert_eq!(net.group_mut(1).poll_episode(), None);
}
