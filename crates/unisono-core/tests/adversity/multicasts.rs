//! Members that do not hear multicasts, or whose multicasts are not heard.

use crate::network::*;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

// A member that stops hearing the multicast answers every probe, so it is not suspected. But it lacks everything, so
// all members wait for it (hazard H28).
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

/// Returns five members that use multicast. No member receives the multicasts of `mute`.
fn group_with_a_mute(mute: usize) -> Net {
    let settings = Settings { transport: Transport::Auto, ..Settings::default() };
    let mut net = group_with(5, GroupConfig::default(), settings);
    net.run(3000 * MS);
    assert!((0..5).all(|index| net.group(index).audience().multicast));
    net.filter(move |seen| if seen.multicast && seen.from == mute { LOST } else { PROMPT });
    net
}

// m1 hears the multicast, and so do all others. So the sequencer announces that BB reaches all members, although m1's
// own multicasts are lost.
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

// Each trial of the multicast delays messages until the resend. So trials must become rare.
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

// Later messages of a busy member reveal to the sequencer what is missing, and it requests that. So a failed trial
// costs one round trip, not the time until the resend.
#[test]
fn a_busy_member_whose_multicasts_are_lost_is_as_fast_as_by_copies() {
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

// A sender misses its seqno and resends, and a heartbeat to it alone shows how far the seqnos go. That heartbeat is no
// sign that the sender hears the sequencer's multicasts.
#[test]
fn a_busy_group_soon_gets_copies_from_a_sequencer_whose_multicasts_are_lost() {
    let config = GroupConfig { broadcast_above_bytes: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, Settings { transport: Transport::Auto, ..Settings::default() });
    // m4 hears no multicasts, so members send copies to each other.
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

// A member whose multicasts are lost answers probes, so it is not suspected. But all that it multicasts is lost.
#[test]
fn the_role_moves_from_and_to_a_member_whose_multicasts_are_lost() {
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

// m1 was sequencer before, and all members have acknowledged its multicasts. Now m4 receives no multicasts, and misses
// the hand-over. It goes on acknowledging to m0, which answers its probes.
#[test]
fn a_member_that_missed_a_hand_over_hears_of_it_from_the_old_sequencer() {
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

// The sequencer probes m4 early. So m4 hears the sequencer, but none of its heartbeats.
#[test]
fn a_member_that_hears_the_sequencer_and_no_heartbeat_gets_copies() {
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

// All members are on one machine. There one multicast is cheaper than two copies, but not than one.
#[test]
fn on_one_machine_three_multicast_and_two_do_not() {
    for members in [2, 3] {
        let settings = Settings { transport: Transport::Auto, ..Settings::default() };
        let mut net = group_with(members, GroupConfig::default(), settings);
        net.run(3000 * MS);
        assert_eq!(net.group(0).audience().multicast, members == 3);
    }
}

// A message under way may wait in a queue for longer than a working sequencer is silent otherwise. If the sender took
// that for a sign that its multicasts are lost, a copy would be sent to each member, and the queue would only grow.
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
