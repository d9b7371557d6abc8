//! Members that do not hear multicasts, or are not heard by them.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// A member that no longer hears the multicast answers every probe, so nobody suspects it, and lacks everything, so it
// holds everybody up (hazard H28).
#[test]
fn a_member_that_stops_hearing_the_multicast_is_reached_by_unicast() {
    let config = GroupConfig { resilience: 0, history_messages: 64, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings { transport: Transport::Auto, ..Settings::default() });
    net.run(3000 * MS);
    assert!(net.group(0).audience().multicast);
    net.filter(|seen| if seen.multicast && seen.to == 4 { LOST } else { PROMPT });
    for n in 0..200_u32 {
        net.send(1, &n.to_be_bytes()).ok();
        net.run(2 * MS);
    }
    net.run(30_000 * MS);
    net.show("thirty seconds later");
    assert_eq!(net.delivered(4), 200);
}

/// Five members by multicast, and what this one multicasts is heard by nobody.
fn group_with_a_mute(mute: usize) -> Net {
    let settings = Settings { transport: Transport::Auto, ..Settings::default() };
    let mut net = group_with(5, GroupConfig::default(), settings);
    net.run(3000 * MS);
    assert!((0..5).all(|index| net.group(index).audience().multicast));
    net.filter(move |seen| if seen.multicast && seen.from == mute { LOST } else { PROMPT });
    net
}

// It hears the multicast, and so do all others: the sequencer says that what goes by BB reaches everybody.
#[test]
fn what_a_member_multicasts_in_vain_goes_to_the_sequencer() {
    let mut net = group_with_a_mute(1);
    for _ in 0..200 {
        net.send(1, &[1; 1400]).ok();
        net.run(2 * MS);
    }
    net.run(10_000 * MS);
    net.show("ten seconds later");
    assert!((0..5).all(|index| net.delivered(index) == 200));
}

// Each time it tries whether it is heard costs it the time until something goes again.
#[test]
fn a_member_that_multicasts_in_vain_tries_ever_more_rarely() {
    let mut net = group_with_a_mute(1);
    let (tried, is_mute) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(true)));
    let (tries, mute) = (tried.clone(), is_mute.clone());
    net.filter(move |seen| {
        let tries_it = seen.multicast && seen.from == 1;
        tries.set(tries.get() + u32::from(tries_it && seen.to == 0));
        if tries_it && mute.get() { LOST } else { PROMPT }
    });
    let speak = |net: &mut Net, seconds: u64| {
        let (until, mut slow) = (net.now + seconds * 1000 * MS, 0);
        while net.now < until {
            let before = net.delivered(4);
            net.send(1, &[1; 1400]).unwrap();
            net.run(5 * MS);
            slow += u32::from(net.delivered(4) == before);
            net.run(45 * MS);
        }
        slow
    };
    let slow = speak(&mut net, 60);
    assert!(tried.get() <= 8 && slow <= 8, "{} tries and {slow} slow messages in a minute", tried.get());
    is_mute.set(false);
    speak(&mut net, 60);
    let before = tried.get();
    speak(&mut net, 5);
    assert!(tried.get() - before >= 100, "heard again, it multicast {} of 100", tried.get() - before);
}

// Others write behind it, and what is lacking is asked for: a trial costs a way there and back, and not all that time.
#[test]
fn a_busy_member_that_nobody_hears_is_as_fast_as_by_copies() {
    let mut delivered = Vec::new();
    for is_mute in [true, false] {
        let mut net = group_with_a_mute(1);
        if !is_mute {
            net.filter(|_| PROMPT);
        }
        for _ in 0..1000 {
            (0..3).for_each(|_| {
                net.send(1, &[1; 1400]).ok();
            });
            net.run(MS);
        }
        delivered.push(net.delivered(4));
    }
    assert!(delivered[0] * 10 > delivered[1] * 9, "{delivered:?}");
}

// Whoever sends misses its number, sends again, and is shown by a heartbeat how far the numbers go. That is no sign that it
// hears those for everybody.
#[test]
fn a_busy_group_soon_gets_copies_from_a_sequencer_that_nobody_hears() {
    let config = GroupConfig { broadcast_above_bytes: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings { transport: Transport::Auto, ..Settings::default() });
    // Since one hears none, members speak to each other by copies.
    net.filter(|seen| if seen.multicast && (seen.from == 1 || seen.to == 4) { LOST } else { PROMPT });
    net.run(10_000 * MS);
    let speak = |net: &mut Net, times: u32| {
        for _ in 0..times {
            (0..4).for_each(|sender| {
                net.send(sender, b"who orders?").ok();
            });
            net.run(10 * MS);
        }
    };
    speak(&mut net, 20);
    net.hand_over(0, 1);
    speak(&mut net, 100);
    net.show("a second later");
    let before = net.delivered(2);
    net.send(3, b"at once").unwrap();
    net.run(5 * MS);
    assert_eq!((net.group(1).audience().multicast, net.delivered(2) - before), (false, 1));
}

// It answers whoever asks whether it lives, so nobody suspects it, and what it says to all nobody hears.
#[test]
fn the_role_goes_on_from_and_to_a_member_whose_multicasts_nobody_hears() {
    for (mute, pause) in [0, 1].into_iter().flat_map(|mute| [0, 20, 200, 1000].map(|pause| (mute, pause))) {
        let mut net = group_with_a_mute(mute);
        for round in 0..6 {
            net.hand_over(round % 2, 1 - round % 2);
            net.send(2, b"who orders?").unwrap();
            net.run(pause * MS + 2000 * MS);
        }
        net.show("in the end");
        assert!((0..5).all(|index| net.delivered(index) == 6), "m{mute}, {pause} ms");
    }
}

// m1 has ordered before, and all acknowledged by its multicasts that they hear such. Now m4 hears none of them, nor of the
// hand-over: it goes on acknowledging to m0, which answers when it is asked whether it lives.
#[test]
fn whoever_missed_a_hand_over_hears_of_it_from_the_sequencer_before() {
    let settings = Settings { transport: Transport::Auto, ..Settings::default() };
    let mut net = group_with(5, GroupConfig::default(), settings);
    net.run(3000 * MS);
    for (from, to) in [(0, 1), (1, 0)] {
        net.hand_over(from, to);
        net.run(3000 * MS);
    }
    net.filter(|seen| if seen.multicast && seen.to == 4 { LOST } else { PROMPT });
    net.hand_over(0, 1);
    net.run(50 * MS);
    net.send(2, b"who orders?").unwrap();
    net.run(5000 * MS);
    net.show("in the end");
    assert!((0..5).all(|index| net.delivered(index) == 1));
}

// A sequencer that asks it early whether it lives is heard by that, though none of its heartbeats is.
#[test]
fn whoever_hears_the_sequencer_and_none_of_its_heartbeats_gets_copies() {
    let mut net = Net::new();
    let early = Settings { silence: Duration::from_millis(60), ..Settings::default() };
    net.add(EntryMode::Found(GroupConfig::default()), early);
    for _ in 1..5 {
        net.add(EntryMode::Join, Settings::default());
        net.run(300 * MS);
    }
    net.run(3000 * MS);
    assert_eq!(net.group(0).audience().addresses, []);
    net.filter(|seen| if seen.multicast && seen.to == 4 { LOST } else { PROMPT });
    net.run(1000 * MS);
    net.send(1, b"for all").unwrap();
    net.run(100 * MS);
    net.show("a second later");
    assert_eq!((net.group(0).audience().addresses.clone(), net.delivered(4)), (vec![address(4)], 1));
}

// All of these members are on one machine, where one multicast is cheaper than two copies, and not than one.
#[test]
fn on_one_machine_three_multicast_and_two_do_not() {
    for members in [2, 3] {
        let settings = Settings { transport: Transport::Auto, ..Settings::default() };
        let mut net = group_with(members, GroupConfig::default(), settings);
        net.run(3000 * MS);
        assert_eq!(net.group(0).audience().multicast, members == 3);
    }
}

// What is under way may wait in a queue for longer than a working sequencer is otherwise silent. A member that takes it for
// a sign that multicasts do not come through has a copy sent for each member, and the queue only grows.
#[test]
fn an_overdue_number_does_not_denounce_the_multicast() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings::default());
    net.run(3000 * MS);
    net.filter(|seen| {
        let data = seen.has(|frame| matches!(frame, Frame::Data(_)));
        if seen.from == 1 && data { Some(60 * MS) } else { PROMPT }
    });
    for _ in 0..200 {
        net.send(1, &[7; 100]).ok();
        net.run(5 * MS);
        assert!(net.group(1).audience().multicast, "at {} ms", net.now / MS);
    }
}
