//! A few members on a network without faults: the simplest way to drive the core.

mod common;

use bytes::Bytes;
use common::{MS, Net, uid};
use unisono_core::wire::Frame;
use unisono_core::*;

fn group_of(n: usize, resilience: u8) -> Net {
    let mut net = Net::new();
    net.add(EntryMode::Found(GroupConfig { resilience, ..GroupConfig::default() }));
    for _ in 1..n {
        net.add(EntryMode::Join);
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

// All members answer each heartbeat. Above 32 members heartbeats grow rarer in proportion, so the number of answers per
// second does not grow.
#[test]
fn in_groups_of_more_than_32_members_heartbeats_are_rarer() {
    for (members, beats) in [(32, 100), (33, 50)] {
        let mut net = group_of(members, 1);
        net.notable = |frame| matches!(frame, Frame::Heartbeat(beat) if beat.acting).then_some("heartbeat");
        net.run(1_000 * MS);
        net.counts.clear();
        net.run(10_000 * MS);
        // A few more go by multicast, to find out which members hear it.
        let counted = net.counts["heartbeat"];
        assert!(
            (beats..=beats + beats / 5).contains(&counted),
            "{members} members: {counted} in ten seconds"
        );
    }
}

// No member waits for a report on the events that the sequencer's own application has taken. What may leave the history
// leaves it with the next input.
#[test]
fn the_events_that_a_sequencer_takes_are_no_reason_to_drain_it_again() {
    let mut net = group_of(1, 0);
    let now = net.time();
    let group = net.group(0);
    let mut out = Vec::new();
    for _ in 0..2 * GroupConfig::default().history_messages {
        group.send(now, Bytes::from_static(b"x")).unwrap();
        while group.poll_transmit(now, &mut out).is_some() {}
        assert!(group.poll_event().is_some());
        assert!(!group.events_matter(), "{:?}", group.info());
    }
}

#[test]
fn a_busy_group_lets_a_joiner_in() {
    for (members, pause) in [(1, MS / 2), (1, MS / 50), (3, MS / 50)] {
        let mut net = group_of(members, 0);
        let joiner = net.add(EntryMode::Join);
        let began = net.now;
        while net.group(joiner).info().phase != Phase::Member {
            assert!(net.now - began < 500 * MS, "of {members}, one message every {pause} ns: not admitted");
            net.send(0, "on and on");
            net.run(pause);
        }
    }
}

#[test]
fn the_group_goes_on_without_its_sequencer() {
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
    let (now, mut reasons) = (net.time(), Vec::new());
    for index in 1..5 {
        let report = net.group(index).report(now);
        let Some(Event::Reset { seqno, .. }) =
            net.events[index].iter().find(|event| matches!(event, Event::Reset { .. }))
        else {
            unreachable!("counted above")
        };
        let reset = report.last_reset.unwrap();
        assert_eq!((reset.seqno, reset.excluded, reset.degraded), (*seqno, 1, false), "member {index}");
        reasons.push(reset.reason);
        let since = net.now - killed;
        assert!((1..u128::from(since)).contains(&report.in_epoch.as_nanos()), "{:?}", report.in_epoch);
        assert_eq!(net.group(index).info().last_reset, report.last_reset);
    }
    // The member that began the reset knows the reason; the others followed its suspicion.
    assert!(reasons.contains(&Some(Suspicion::Silent)), "{reasons:?}");
    assert!(reasons.iter().flatten().all(|reason| *reason == Suspicion::Silent), "{reasons:?}");
}

#[test]
fn what_is_under_way_and_kept_is_told() {
    let mut net = Net::new();
    net.add(EntryMode::Found(GroupConfig { resilience: 0, window: 16, ..GroupConfig::default() }));
    net.add(EntryMode::Join);
    net.run(200 * MS);
    for number in 0..5 {
        net.send(1, &number.to_string());
    }
    let now = net.time();
    let report = net.group(1).report(now);
    assert_eq!((report.window, report.under_way, report.last_reset), (16, 5, None));
    net.run(MS / 5);
    let (report, info) = (net.group(0).report(now), net.group(0).info());
    assert!(report.buffered > 0);
    assert_eq!((report.buffered as usize, info.window), (info.buffered, 16));
}

#[test]
fn members_leave_the_sequencer_too() {
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

/// Returns the views that a life's events lead to, with their seqnos.
fn followed(events: &[Event]) -> Vec<(Seqno, View)> {
    let Some(Event::Entered { view, .. }) = events.first() else { panic!("not entered: {events:?}") };
    let mut view = view.clone();
    let mut views = Vec::new();
    for event in events {
        if view.follow(event) {
            views.push((event.seqno().unwrap(), view.clone()));
        }
    }
    views
}

#[test]
fn the_events_lead_to_the_view_and_the_sequencer() {
    let mut net = group_of(5, 2);
    let agree = |net: &mut Net| {
        net.run(500 * MS);
        for life in (0..net.members.len()).filter(|&life| net.members[life].is_some()) {
            let (views, info) = (followed(&net.events[life]), net.members[life].as_ref().unwrap().info());
            if info.phase == Phase::Gone {
                continue;
            }
            let (_, last) = views.last().unwrap();
            assert_eq!(
                (last.epoch, &last.members, last.sequencer, last.resilience),
                (info.epoch, &info.members, info.sequencer, info.resilience),
                "member {life}"
            );
            let longest = followed(&net.events[4]);
            assert!(views.iter().all(|view| longest.contains(view) || view.0 < longest[0].0), "{views:?}");
        }
    };
    agree(&mut net);
    let now = net.time();
    net.group(0).hand_over(now, uid(2)).unwrap();
    net.drain(0);
    agree(&mut net);
    // First the sequencer leaves, which is in the middle of the ranks; then a member that is not the sequencer.
    for leaver in [2, 1] {
        let now = net.time();
        net.group(leaver).leave(now, Bytes::new()).unwrap();
        net.drain(leaver);
        agree(&mut net);
    }
    net.members[3] = None;
    net.run(1500 * MS);
    net.add(EntryMode::Join);
    agree(&mut net);
    assert!(net.events[4].iter().any(|event| matches!(event, Event::Reset { .. })));
    let successor = |event: &Event| match event {
        Event::Left { member, successor, .. } => Some((member.uid, *successor)),
        _ => None,
    };
    let left: Vec<_> = net.events[4].iter().filter_map(successor).collect();
    assert_eq!(left, [(uid(2), Some(uid(3))), (uid(1), None)]);
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
