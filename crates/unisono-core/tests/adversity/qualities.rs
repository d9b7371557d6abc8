//! Qualities: a message may ask for more holders than the group's resilience gives it (docs/protocol/qualities.md).

use crate::network::*;
use bytes::Bytes;
use core::time::Duration;
use unisono_core::wire::Frame;
use unisono_core::*;

fn send_with(net: &mut Net, index: usize, quality: Quality) -> MessageNumber {
    let now = Time::from_nanos(net.now);
    let number = net.group_mut(index).send_with(now, Bytes::from(quality.to_string()), quality).unwrap();
    net.drain(index);
    number
}

fn steadfast() -> Settings {
    let minute = Duration::from_secs(60);
    Settings { silence: minute, patience: minute, ..unicast() }
}

fn group(n: usize, config: GroupConfig) -> Net {
    group_with(n, config, steadfast())
}

// Nothing that the last members receive reaches their logs, so they acknowledge nothing. A message is delivered only if
// the others are enough. A table that is one too low delivers it.
#[test]
fn a_message_waits_for_as_many_members_as_its_quality_asks() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let five = [
        (Quality::ORDERED, 1),
        (Quality::resilient(1), 2),
        (Quality::resilient(3), 4),
        (Quality::MAJORITY, 3),
        (Quality::TOTAL, 5),
    ];
    for (quality, holders) in five {
        for deaf in 0..5 {
            let mut net = group(5, config.clone());
            net.filter(move |seen| {
                let tells = |frame: &Frame| matches!(frame, Frame::Ordered(_) | Frame::Numbers(_));
                if seen.to >= 5 - deaf && seen.has(tells) { LOST } else { PROMPT }
            });
            send_with(&mut net, 0, quality);
            net.run(200 * MS);
            let is_delivered = net.delivered(0) == 1;
            assert_eq!(is_delivered, 5 - deaf >= holders, "{quality}, {deaf} members lack it");
            net.calm();
            assert!(net.run_until(MS, 2_000 * MS, |net| (0..5).all(|index| net.delivered(index) == 1)));
        }
    }
}

#[test]
fn half_of_a_view_of_even_size_is_no_majority() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group(4, config);
    net.filter(|seen| {
        let tells = |frame: &Frame| matches!(frame, Frame::Ordered(_) | Frame::Numbers(_));
        if seen.to >= 2 && seen.has(tells) { LOST } else { PROMPT }
    });
    send_with(&mut net, 0, Quality::MAJORITY);
    net.run(200 * MS);
    assert_eq!(net.delivered(0), 0, "two of four hold it");
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| (0..4).all(|index| net.delivered(index) == 1)));
}

// Under a fixed list more than half of the view need not meet a quorum: here the quorum is two of the three listed ones.
#[test]
fn under_a_list_of_names_a_majority_includes_a_quorum() {
    let names = ["m0", "m1", "m2"].map(name).to_vec();
    let config =
        GroupConfig { resilience: 0, quorum: Quorum::MajorityOfNamed(names), ..GroupConfig::default() };
    let mut net = group(5, config);
    net.filter(|seen| {
        let tells = |frame: &Frame| matches!(frame, Frame::Ordered(_) | Frame::Numbers(_));
        if [1, 2].contains(&seen.to) && seen.has(tells) { LOST } else { PROMPT }
    });
    send_with(&mut net, 0, Quality::MAJORITY);
    net.run(200 * MS);
    assert_eq!(net.delivered(0), 0, "members 0, 3 and 4 hold it, and members 1 and 2 are a quorum");
    net.calm();
    assert!(net.run_until(MS, 2_000 * MS, |net| (0..5).all(|index| net.delivered(index) == 1)));
}

// Under *at least n*, where n is at most half of the largest view, two halves may both go on (hazard H99).
#[test]
fn qualities_by_quorum_are_refused_where_quorums_need_not_intersect() {
    for (least, refused) in [(1, true), (5, true), (6, false)] {
        let config =
            GroupConfig { quorum: Quorum::AtLeast(least), members_max: 10, ..GroupConfig::default() };
        let mut net = group_with(1, config, unicast());
        for quality in [Quality::MAJORITY, Quality::TOTAL] {
            let now = Time::from_nanos(net.now);
            let sent = net.group_mut(0).send_with(now, Bytes::new(), quality);
            let expected = if refused { Err(SendError::QuorumsDoNotIntersect) } else { Ok(()) };
            assert_eq!(sent.map(|_| ()), expected, "at least {least}, {quality}");
        }
        let now = Time::from_nanos(net.now);
        assert!(net.group_mut(0).send_with(now, Bytes::new(), Quality::resilient(250)).is_ok());
    }
}

// Two of three die after a majority has delivered: the third goes on with the message, or not at all.
#[test]
fn what_a_majority_held_survives_a_reset() {
    let config = GroupConfig { resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(5, config, unicast());
    // The sequencer and member 1 are the only ones that a message reaches besides member 2.
    net.filter(|seen| {
        let tells = |frame: &Frame| matches!(frame, Frame::Ordered(_) | Frame::Numbers(_));
        if seen.to >= 3 && seen.from == 0 && seen.has(tells) { LOST } else { PROMPT }
    });
    send_with(&mut net, 0, Quality::MAJORITY);
    assert!(net.run_until(MS / 10, 50 * MS, |net| net.delivered(0) == 1));
    net.crash(0);
    net.crash(1);
    net.calm();
    let is_over = |net: &Net| (2..5).all(|index| net.size(index) == 3 && net.delivered(index) == 1);
    assert!(net.run_until(10 * MS, 5_000 * MS, is_over), "the message is lost");
}

#[test]
fn messages_of_all_qualities_come_in_one_order() {
    for order in [Order::default(), Order::Token] {
        let mut net = group(4, GroupConfig { order, ..GroupConfig::default() });
        let qualities = [Quality::ORDERED, Quality::TOTAL, Quality::resilient(2), Quality::MAJORITY];
        for round in 0..20 {
            for index in 0..4 {
                send_with(&mut net, index, qualities[(index + round) % 4]);
            }
            net.run(MS / 3);
        }
        assert!(net.run_until(MS, 2_000 * MS, |net| (0..4).all(|index| net.delivered(index) == 80)));
        let events =
            |index: usize| net.events[index].iter().filter(|event| matches!(event, Event::Message { .. }));
        for index in 1..4 {
            assert!(events(0).eq(events(index)), "{order:?}, member {index}");
        }
    }
}

// The log shows the holders by what each member numbered. A ring that shows fewer rests while the message waits for
// heartbeats.
#[test]
fn in_a_ring_the_passes_show_as_many_holders_as_a_quality_asks() {
    for (quality, most) in [(Quality::MAJORITY, 10 * MS), (Quality::TOTAL, 10 * MS)] {
        let mut net = group(5, GroupConfig { resilience: 0, order: Order::Token, ..GroupConfig::default() });
        net.run(300 * MS);
        let begin = net.now;
        send_with(&mut net, 2, quality);
        assert!(net.run_until(MS / 10, 1_000 * MS, |net| (0..5).all(|index| net.delivered(index) == 1)));
        assert!(net.now - begin <= most, "{quality}: {} ns", net.now - begin);
    }
}

// The quality byte of another version, or of an attacker.
#[test]
fn a_datagram_with_an_unknown_quality_is_dropped() {
    let data = |byte: u8| {
        let data = wire::Data {
            sender: uid(0),
            first: 1,
            base: 1,
            method: wire::Method::Pb,
            quality: Quality::ORDERED,
            pieces: wire::Pieces::from_pieces(&[wire::Piece { more: false, bytes: Bytes::new() }]),
        };
        let mut bytes = Frame::Data(data).encode_alone().unwrap();
        // Behind the kind, three numbers and the method.
        bytes[1 + 3 * 8 + 1] = byte;
        Frame::decode_alone(&Bytes::from(bytes))
    };
    for byte in 0..=254 {
        assert!(data(byte).is_ok(), "{byte}");
    }
    assert!(data(255).is_err(), "it has a frame of its own");
}
