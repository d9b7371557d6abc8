//! A few members on a perfect network: the plainest way to drive the core.

mod common;

use bytes::Bytes;
use common::{MS, Net};
use unisono_core::*;

fn group_of(n: usize, resilience: u8) -> Net {
    let mut net = Net::new();
    net.add(Entry::Found(GroupConfig { resilience, ..GroupConfig::default() }));
    for _ in 1..n {
        net.add(Entry::Join);
        net.run(200 * MS);
    }
    for index in 0..n {
        let info = net.members[index].as_ref().unwrap().info();
        assert_eq!((info.phase, info.members.len()), (Phase::Member, n), "member {index}: {info:?}");
    }
    net
}

#[test]
fn members_agree_on_one_order() {
    for resilience in 0..4 {
        let mut net = group_of(4, resilience);
        for round in 0..20 {
            for index in 0..4 {
                net.send(index, &format!("{index}:{round}"));
            }
            net.run(MS / 10);
        }
        net.run(500 * MS);
        let first = net.texts(0);
        assert_eq!(first.len(), 80);
        for index in 1..4 {
            assert_eq!(net.texts(index), first);
        }
        assert!(net.outcomes.iter().all(|o| o.len() == 20), "{:?}", net.outcomes);
    }
}

#[test]
fn a_busy_group_lets_a_joiner_in() {
    for (members, pause) in [(1, MS / 2), (1, MS / 50), (3, MS / 50)] {
        let mut net = group_of(members, 0);
        let joiner = net.add(Entry::Join);
        let began = net.now;
        while net.group(joiner).info().phase != Phase::Member {
            assert!(net.now - began < 500 * MS, "of {members}, one message every {pause} ns: still out");
            net.send(0, "on and on");
            net.run(pause);
        }
    }
}

#[test]
fn the_group_goes_on_without_its_orderer() {
    let mut net = group_of(5, 2);
    for index in 0..5 {
        net.send(index, &format!("before {index}"));
    }
    net.run(20 * MS);
    net.members[0] = None;
    let killed = net.now;
    net.send(3, "after");
    net.run(2000 * MS);
    for index in 1..5 {
        let resets = net.events[index].iter().filter(|event| matches!(event, Event::Reset { .. })).count();
        assert_eq!(resets, 1, "member {index}: {:?}", net.events[index].last());
        assert_eq!(net.texts(index), net.texts(1));
    }
    net.send(4, "later");
    net.run(100 * MS);
    assert_eq!(net.texts(2).last().map(String::as_str), Some("later"));
    let _ = killed;
}

#[test]
fn members_leave_the_orderer_too() {
    let mut net = group_of(3, 1);
    for leaver in [1, 0] {
        let now = Time::from_nanos(net.now);
        net.members[leaver].as_mut().unwrap().leave(now, Bytes::from_static(b"bye")).unwrap();
        net.drain(leaver);
        net.run(500 * MS);
        assert_eq!(net.events[leaver].last(), Some(&Event::Gone), "{:?}", net.events[leaver]);
    }
    net.send(2, "alone");
    net.run(100 * MS);
    assert_eq!(net.texts(2), ["alone"]);
}

#[test]
fn a_large_message_comes_in_one_piece() {
    let mut net = group_of(3, 1);
    let text = "0123456789".repeat(100_000);
    net.send(1, &text);
    net.send(2, "small");
    net.run(3000 * MS);
    for index in 0..3 {
        let mut lengths: Vec<usize> = net.texts(index).iter().map(String::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [5, 1_000_000]);
    }
}
