//! Unreliable messages: delivered on receipt, at most once, without a seqno (docs/protocol/qualities.md).

use crate::network::*;
use bytes::Bytes;
use core::time::Duration;
use unisono_core::wire::{Frame, cut, unreliable_bytes_max};
use unisono_core::*;

fn send_unreliable(net: &mut Net, index: usize, text: &str) {
    let now = Time::from_nanos(net.now);
    let payload = Bytes::copy_from_slice(text.as_bytes());
    assert_eq!(net.group_mut(index).send_with(now, payload, Quality::UNRELIABLE), Ok(0));
    net.drain(index);
}

/// Returns the unreliable messages that a member's application has received, as text, with their senders.
fn early(net: &Net, index: usize) -> Vec<(Uid, String)> {
    let of_event = |event: &Event| match event {
        Event::Early { sender, quality: Quality::UNRELIABLE, payload, .. } => {
            Some((*sender, String::from_utf8_lossy(payload).into_owned()))
        }
        _ => None,
    };
    net.events[index].iter().filter_map(of_event).collect()
}

fn is_unreliable(frame: &Frame) -> bool {
    matches!(frame, Frame::Unreliable { .. })
}

fn tags(net: &Net, index: usize) -> (GroupTag, EpochTag) {
    (net.group(index).tag(), net.group(index).marks().epoch)
}

fn hi(number: u64) -> Frame {
    Frame::Unreliable { number, payload: "hi".into() }
}

#[test]
fn an_unreliable_message_comes_at_once_and_takes_no_seqno() {
    for order in [Order::default(), Order::Token] {
        let mut net = group_with(4, GroupConfig { order, ..GroupConfig::default() }, unicast());
        net.run(300 * MS);
        let end = net.group(0).marks().received;
        send_unreliable(&mut net, 2, "left");
        net.run(LATENCY);
        for index in 0..4 {
            assert_eq!(early(&net, index), [(uid(2), "left".to_string())], "{order:?}, member {index}");
            assert_eq!(net.group(index).counters().unreliable, 1);
        }
        assert!(net.run_until(MS, 200 * MS, |net| net.delivered(0) == 0));
        assert_eq!(net.outcomes[2], [], "it has no outcome");
        net.send(2, b"text").unwrap();
        assert!(net.run_until(MS, 200 * MS, |net| (0..4).all(|index| net.delivered(index) == 1)));
        assert!(net.outcomes[2].iter().any(|(number, _)| *number == 1), "{order:?}: it took a number");
        if order == Order::default() {
            assert_eq!(net.group(0).marks().received, end + 1);
        }
    }
}

// Without numbers of its own a lost message would be a gap that holds up what the same member sends afterwards.
#[test]
fn a_lost_unreliable_message_is_not_repaired_and_holds_up_nothing() {
    let mut net = group_of(3, 1);
    let sent = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen_sent = sent.clone();
    net.filter(move |seen| {
        let is_one = seen.has(is_unreliable);
        seen_sent.set(seen_sent.get() + u32::from(is_one));
        if is_one && seen.to == 0 { LOST } else { PROMPT }
    });
    for text in ["a", "b", "c"] {
        send_unreliable(&mut net, 1, text);
        net.send(1, text.as_bytes()).unwrap();
        net.run(3 * MS);
    }
    assert!(net.run_until(MS, 100 * MS, |net| (0..3).all(|index| net.delivered(index) == 3)));
    net.run(500 * MS);
    assert_eq!(sent.get(), 6, "each goes to each other member once");
    assert_eq!([0, 1, 2].map(|index| early(&net, index).len()), [0, 3, 3]);
}

#[test]
fn an_unreliable_message_larger_than_a_datagram_is_refused() {
    let settings = Settings { datagram_bytes_max: 900, ..unicast() };
    let mut net = group_with(2, GroupConfig::default(), settings);
    let max = unreliable_bytes_max(900);
    let now = Time::from_nanos(net.now);
    let large = Bytes::from(vec![b'x'; max + 1]);
    let refused = net.group_mut(1).send_with(now, large, Quality::UNRELIABLE);
    assert_eq!(refused, Err(SendError::NotOneDatagram { bytes: max + 1, max }));
    let most = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen_most = most.clone();
    net.filter(move |seen| {
        if seen.has(is_unreliable) {
            seen_most.set(seen.bytes);
        }
        PROMPT
    });
    send_unreliable(&mut net, 1, &"x".repeat(max));
    net.run(MS);
    assert_eq!((early(&net, 0).len(), most.get()), (1, 900));
}

#[test]
fn a_repeated_datagram_a_stranger_and_another_epoch_deliver_nothing() {
    let mut net = group_of(3, 1);
    let (group, epoch) = tags(&net, 0);
    // Its own next datagrams must not be too old for the window of numbers.
    let number = 900;
    let datagram = forge(group, epoch, uid(1), number, &[hi(1)]);
    for _ in 0..3 {
        net.inject(0, address(1), &datagram);
        net.drain(0);
    }
    assert_eq!(early(&net, 0).len(), 1, "the same datagram again");
    net.inject(0, address(1), &forge(group, epoch, Uid(77), 1, &[hi(1)]));
    net.drain(0);
    assert_eq!(early(&net, 0).len(), 1, "a stranger's");
    let recorded = forge(group, epoch, uid(1), number + 1, &[hi(2)]);
    net.crash(2);
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| net.size(0) == 2 && net.size(1) == 2));
    let stale = net.group(0).counters().stale;
    net.inject(0, address(1), &recorded);
    net.drain(0);
    assert_eq!(early(&net, 0).len(), 1, "recorded in the epoch before");
    assert_eq!(net.group(0).counters().stale, stale + 1);
}

#[test]
fn an_unreliable_message_in_parcels_or_outside_of_an_epoch_is_malformed() {
    let mut net = group_of(2, 0);
    let (group, epoch) = tags(&net, 0);
    let large = Frame::Unreliable { number: 1, payload: vec![7; 2_000].into() };
    let parcels = cut(&large, 1, 1_000).unwrap();
    let malformed = net.group(0).counters().malformed;
    for (parcel, number) in parcels.iter().zip(1_000_000..) {
        net.inject(0, address(1), &forge(group, epoch, uid(1), number, std::slice::from_ref(parcel)));
    }
    net.inject(0, address(1), &forge(group, EpochTag::OUTSIDE, uid(1), 2_000_000, &[hi(1)]));
    net.drain(0);
    assert_eq!(early(&net, 0), []);
    assert_eq!(net.group(0).counters().malformed, malformed + 2);
}

// The application of member 0 takes no events while member 2 joins and sends. It must know the sender first.
#[test]
fn an_unreliable_message_waits_for_the_join_of_its_sender() {
    let mut net = group_of(2, 0);
    net.asleep[0] = true;
    net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 500 * MS, |net| net.phase(2) == Phase::Member && net.size(1) == 3));
    net.run(10 * MS);
    for number in 0..100 {
        send_unreliable(&mut net, 2, &number.to_string());
        net.run(MS);
    }
    net.asleep[0] = false;
    net.drain(0);
    let joined = net.events[0]
        .iter()
        .position(|event| matches!(event, Event::Joined { member, .. } if member.uid == uid(2)));
    let first = net.events[0].iter().position(|event| matches!(event, Event::Early { .. }));
    assert!(joined.is_some() && joined < first, "{:?}", net.events[0]);
    assert_eq!(early(&net, 0).len(), 64, "what waits is bounded");
    assert_eq!(early(&net, 1).len(), 100);
}

// Member 0 does not take the event of the reset: a message of the new epoch must not come before it.
#[test]
fn an_unreliable_message_of_an_epoch_comes_after_its_reset_event() {
    let mut net = group_of(3, 1);
    net.asleep[0] = true;
    net.crash(2);
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| net.size(0) == 2 && net.size(1) == 2));
    net.run(50 * MS);
    send_unreliable(&mut net, 1, "after");
    net.run(MS);
    net.asleep[0] = false;
    net.drain(0);
    let reset = net.events[0].iter().position(|event| matches!(event, Event::Reset { .. }));
    let early = net.events[0].iter().position(|event| matches!(event, Event::Early { .. }));
    assert!(reset.is_some() && early.is_some() && reset < early, "{:?}", net.events[0]);
}

#[test]
fn an_application_that_takes_no_events_keeps_a_bounded_number_of_unreliable_messages() {
    let settings =
        Settings { silence: Duration::from_secs(60), patience: Duration::from_secs(60), ..unicast() };
    let mut net = group_with(2, GroupConfig::default(), settings);
    net.asleep[0] = true;
    for number in 0..3_000 {
        send_unreliable(&mut net, 1, &number.to_string());
        net.run(LATENCY * 2);
    }
    net.asleep[0] = false;
    net.drain(0);
    assert_eq!(early(&net, 0).len(), 1_024);
    assert_eq!(early(&net, 1).len(), 3_000);
    send_unreliable(&mut net, 1, "later");
    net.run(MS);
    assert_eq!(early(&net, 0).len(), 1_025);
}

#[test]
fn who_is_not_in_the_group_sends_no_unreliable_message() {
    let mut net = group_of(2, 0);
    net.leave(1);
    assert!(net.run_until(MS, 2_000 * MS, |net| net.size(0) == 1));
    let now = Time::from_nanos(net.now);
    let refused = net.group_mut(1).send_with(now, Bytes::new(), Quality::UNRELIABLE);
    assert_eq!(refused, Err(SendError::Left));
    send_unreliable(&mut net, 0, "alone");
    assert_eq!(early(&net, 0), [(uid(0), "alone".to_string())]);
}
