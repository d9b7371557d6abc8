//! Early delivery: unordered and source ordered messages come before their seqno, once, and stay (docs/protocol/qualities.md).

use crate::network::*;
use bytes::Bytes;
use core::time::Duration;
use unisono_core::wire::Frame;
use unisono_core::*;

fn send_with(net: &mut Net, index: usize, text: &str, quality: Quality) -> MessageNumber {
    let now = Time::from_nanos(net.now);
    let number =
        net.group_mut(index).send_with(now, Bytes::copy_from_slice(text.as_bytes()), quality).unwrap();
    net.drain(index);
    number
}

/// Returns the messages that a member's application received, and whether each came early.
fn came(net: &Net, index: usize) -> Vec<(String, bool)> {
    let of_event = |event: &Event| match event {
        Event::Early { payload, .. } => Some((String::from_utf8_lossy(payload).into_owned(), true)),
        Event::Message { payload, .. } => Some((String::from_utf8_lossy(payload).into_owned(), false)),
        _ => None,
    };
    net.events[index].iter().filter_map(of_event).collect()
}

fn texts(net: &Net, index: usize) -> Vec<String> {
    came(net, index).into_iter().map(|(text, _)| text).collect()
}

fn steadfast() -> Settings {
    let minute = Duration::from_secs(60);
    Settings { silence: minute, patience: minute, ..unicast() }
}

fn is_numbered(frame: &Frame) -> bool {
    matches!(frame, Frame::Ordered(_) | Frame::Numbers(_))
}

fn is_data(frame: &Frame) -> bool {
    matches!(frame, Frame::Data(_))
}

#[test]
fn weak_messages_come_before_their_seqno_and_once() {
    for order in [Order::default(), Order::Token] {
        let config = GroupConfig { order, ..GroupConfig::default() };
        let mut net = group_with(4, config, steadfast());
        net.run(300 * MS);
        net.filter(|seen| if seen.has(is_numbered) { LOST } else { PROMPT });
        let sender = 2;
        send_with(&mut net, sender, "u", Quality::UNORDERED);
        send_with(&mut net, sender, "s", Quality::SOURCE_ORDERED);
        send_with(&mut net, sender, "o", Quality::ORDERED);
        send_with(&mut net, sender, "s2", Quality::SOURCE_ORDERED);
        send_with(&mut net, sender, "u2", Quality::UNORDERED);
        net.run(5 * MS);
        for index in 0..4 {
            let mut early = came(&net, index);
            early.retain(|(_, is_early)| *is_early);
            assert_eq!(early.len(), 3, "{order:?}, member {index}: {early:?}");
            assert!(!texts(&net, index).contains(&"s2".to_string()), "it follows an ordered message");
        }
        net.calm();
        assert!(net.run_until(MS, 2_000 * MS, |net| (0..4).all(|index| came(net, index).len() == 5)));
        net.run(200 * MS);
        for index in 0..4 {
            let mut all = texts(&net, index);
            all.sort();
            assert_eq!(all, ["o", "s", "s2", "u", "u2"], "{order:?}, member {index}");
        }
        assert_eq!(net.outcomes[sender].len(), 5);
        assert!(net.outcomes[sender].iter().all(|(_, outcome)| matches!(outcome, Outcome::Ok { .. })));
    }
}

// Only member 1 has the message when its sender dies. What it delivered must be delivered by all.
#[test]
fn what_a_survivor_delivered_early_is_kept_by_a_reset() {
    let mut net = group_with(4, GroupConfig { resilience: 0, ..GroupConfig::default() }, unicast());
    net.run(100 * MS);
    net.filter(|seen| if seen.has(is_data) && seen.to != 1 { LOST } else { PROMPT });
    send_with(&mut net, 3, "u", Quality::UNORDERED);
    net.run(2 * LATENCY);
    assert_eq!(came(&net, 1), [("u".to_string(), true)]);
    net.crash(3);
    net.calm();
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| (0..3).all(|index| net.size(index) == 3)));
    net.run(100 * MS);
    assert_eq!([0, 1, 2].map(|index| came(&net, index).len()), [1, 1, 1]);
    assert_eq!(came(&net, 0), [("u".to_string(), false)], "it has its place before the reset event");
    let position = |net: &Net, test: &dyn Fn(&Event) -> bool| net.events[0].iter().position(test);
    let message = position(&net, &|event| matches!(event, Event::Message { .. }));
    let reset = position(&net, &|event| matches!(event, Event::Reset { .. }));
    assert!(message < reset, "{:?}", net.events[0]);
    net.send(0, b"later").unwrap();
    assert!(net.run_until(MS, 500 * MS, |net| (0..3).all(|index| came(net, index).len() == 2)));
}

// No other member received message 1, and one survivor received message 2: a reset fails the first and keeps the second.
#[test]
fn a_tail_has_holes_and_each_send_has_its_own_outcome() {
    let mut net = group_with(4, GroupConfig { resilience: 0, ..GroupConfig::default() }, unicast());
    net.run(100 * MS);
    net.filter(|seen| if seen.has(is_data) { LOST } else { PROMPT });
    let ordered = send_with(&mut net, 2, "o", Quality::ORDERED);
    net.filter(move |seen| {
        let is_second = |frame: &Frame| matches!(frame, Frame::Data(data) if data.first == ordered + 1);
        match seen.has(is_data) {
            true if seen.to == 1 && seen.has(is_second) => PROMPT,
            true => LOST,
            false => PROMPT,
        }
    });
    let unordered = send_with(&mut net, 2, "u", Quality::UNORDERED);
    net.run(2 * LATENCY);
    net.crash(3);
    assert!(net.run_until(10 * MS, 5_000 * MS, |net| (0..3).all(|index| net.size(index) == 3)));
    net.calm();
    net.run(100 * MS);
    let outcome = |net: &Net, number| net.outcomes[2].iter().find(|(named, _)| *named == number).unwrap().1;
    assert_eq!(outcome(&net, ordered), Outcome::Failed);
    assert!(matches!(outcome(&net, unordered), Outcome::Ok { .. }), "{:?}", net.outcomes[2]);
    for index in 0..3 {
        assert_eq!(texts(&net, index), ["u"], "member {index}");
    }
    send_with(&mut net, 2, "later", Quality::SOURCE_ORDERED);
    assert!(net.run_until(MS, 500 * MS, |net| (0..3).all(|index| texts(net, index) == ["u", "later"])));
}

#[test]
fn nothing_is_early_where_a_message_may_never_get_its_place() {
    for config in [
        GroupConfig { members_min: 2, ..GroupConfig::default() },
        GroupConfig { keeps_state: true, ..GroupConfig::default() },
    ] {
        let mut net = Net::new();
        net.add(EntryMode::Found(config.clone()), unicast());
        for _ in 1..3 {
            net.add(EntryMode::Join, unicast());
            net.run(300 * MS);
        }
        let number = send_with(&mut net, 1, "u", Quality::UNORDERED);
        assert!(net.run_until(MS, 500 * MS, |net| (0..3).all(|index| net.delivered(index) == 1)), "{number}");
        assert_eq!(came(&net, 2), [("u".to_string(), false)]);
    }
}

#[test]
fn a_message_of_several_pieces_is_never_early() {
    let mut net = group_with(3, GroupConfig::default(), unicast());
    let large = "x".repeat(5_000);
    send_with(&mut net, 1, &large, Quality::UNORDERED);
    assert!(net.run_until(MS, 500 * MS, |net| (0..3).all(|index| net.delivered(index) == 1)));
    assert_eq!(came(&net, 2), [(large, false)]);
}

// What is early and has no place yet is bounded by bytes: the rest comes at its seqno.
#[test]
fn what_is_early_is_bounded() {
    let mut net = group_with(4, GroupConfig::default(), steadfast());
    net.run(100 * MS);
    net.filter(|seen| if seen.has(is_numbered) { LOST } else { PROMPT });
    for _ in 0..100 {
        send_with(&mut net, 2, &"x".repeat(100), Quality::UNORDERED);
        net.run(LATENCY);
    }
    net.run(5 * MS);
    for index in 0..4 {
        let early = came(&net, index).iter().filter(|(_, is_early)| *is_early).count();
        assert_eq!(early, wire::TAIL_BYTES_MAX / 4 / 132, "member {index}");
    }
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| (0..4).all(|index| came(net, index).len() == 100)));
}
