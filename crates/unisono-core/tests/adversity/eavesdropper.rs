//! Somebody without the key, who hears everything, sends any of it again, to whomever it likes and under any address, and
//! lets others wait. What it sends here is what a member or a joiner has sent once, and what is sent in answer.

use crate::network::*;
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use unisono_core::wire::*;
use unisono_core::*;

/// Where it lives.
const EAVESDROPPER: usize = 11;
/// A joiner that was heard once, and is no more.
const NO_MORE: Uid = Uid(555);

/// What the member answers when this comes from the eavesdropper's address.
fn answers(net: &mut Net, member: usize, datagram: &[u8]) -> Vec<Vec<u8>> {
    net.drain(member);
    net.inject(member, address(EAVESDROPPER), datagram);
    let here: SocketAddr = address(EAVESDROPPER);
    let (now, mut answer, mut answers) = (Time::from_nanos(net.now), Vec::new(), Vec::new());
    while let Some(to) = net.group_mut(member).poll_transmit(now, &mut answer) {
        if to == Destination::Address(here) {
            answers.push(answer.clone());
        }
    }
    answers
}

// m2 is in the next view and has not heard of it. Somebody else, who was let in by nobody, is told that the group went on
// without it; m2 must not believe that it was meant.
#[test]
fn what_was_said_to_another_excludes_nobody() {
    let mut net = group_of(4, 1);
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    net.filter(|seen| {
        let decided = seen.has(|frame| matches!(frame, Frame::Decided { .. }));
        if seen.to == 2 && decided { LOST } else { PROMPT }
    });
    net.crash(3);
    let decided = |net: &Net| (0..2).all(|index| net.epoch(index) == 1 && net.size(index) == 3);
    assert!(net.run_until(MS, 4_000 * MS, decided), "the case was not reached");
    assert_eq!((net.epoch(2), net.phase(2)), (0, Phase::Resetting), "the case was not reached");
    let told = answers(&mut net, 0, &forge(group, epoch, NO_MORE, 1, &[Frame::Inquiry]));
    assert!(!told.is_empty(), "the case was not reached");
    told.iter().for_each(|datagram| net.inject(2, address(0), datagram));
    net.calm();
    net.run(3_000 * MS);
    net.show("three calm seconds later");
    assert_eq!((net.epoch(2), net.phase(2)), (1, Phase::Member));
}

// Whoever is no observer any more is told so whenever it speaks, or somebody in its name. A joiner that takes that for
// itself is kept out for as long as somebody cares to.
#[test]
fn what_was_said_to_another_keeps_no_joiner_out() {
    let mut net = group_of(2, 1);
    let (group, epoch) = (net.group(0).tag(), net.group(0).marks().epoch);
    net.filter(|seen| if seen.has_change() { LOST } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    let listens = |net: &Net| net.phase(joiner) == Phase::Joining;
    assert!(net.run_until(MS, 1_000 * MS, listens), "the case was not reached");
    let marks =
        Watermarks { received: 0, accepted: 0, delivered: 0, stamp: 0, hears_multicast: false, late_ms: 0 };
    let told = answers(&mut net, 0, &forge(group, epoch, NO_MORE, 1, &[Frame::Watermarks(marks)]));
    assert!(!told.is_empty(), "the case was not reached");
    told.iter().for_each(|datagram| net.inject(joiner, address(0), datagram));
    net.calm();
    net.run(1_000 * MS);
    net.show("a calm second later");
    assert_eq!(net.phase(joiner), Phase::Member);
}

// Whoever may ask can ask in another's name. A question of the least length that is answered gets no longer answer, be
// there ever so much to tell.
#[test]
fn nobody_outside_is_answered_with_more_than_it_asked() {
    let long = |index: usize| format!("{:-<60}", format!("m{index}"));
    let mut net = Net::new();
    net.add_named(EntryMode::Found(GroupConfig::default()), unicast(), &long(0));
    for index in 1..9 {
        net.add_named(EntryMode::Join, unicast(), &long(index));
        net.run(400 * MS);
    }
    assert_eq!(net.size(0), 9);
    let group = net.group(0).tag();
    let ask = |room| Frame::Ask { nonce: 3, room };
    let join = Frame::JoinRequest { cookie: 0, name: Name::default(), hello: Bytes::new() };
    let least = PADDED_BYTES_MIN as u32;
    let questions = [
        vec![Frame::Locate { nonce: 1 }],
        vec![ask(least)],
        vec![ask(600); 20],
        vec![ask(1200)],
        vec![ask(30_000)],
        vec![join.clone()],
        vec![join; 100],
    ];
    for (number, question) in (1..).zip(&questions) {
        for member in [0, 4] {
            let datagram = forge(group, EpochTag::OUTSIDE, NO_MORE, number, question);
            let bytes: usize = answers(&mut net, member, &datagram).iter().map(Vec::len).sum();
            println!("m{member}: {} bytes ask, {bytes} answer: {:?}", datagram.len(), question[0].kind());
            assert!(bytes <= datagram.len(), "{bytes} bytes answer {:?}", question[0]);
        }
    }
}

// What is asked by multicast everybody hears. If each of them answered, a recorded question would be worth as many answers
// as there are members to whoever sends it again. And the group is found all the same when its sequencer is gone.
#[test]
fn a_question_to_everybody_is_answered_by_one() {
    let mut net = group_of(4, 1);
    let group = net.group(0).tag();
    let question = forge(
        group,
        EpochTag::OUTSIDE,
        NO_MORE,
        1,
        &[Frame::Ask { nonce: 3, room: PADDED_BYTES_MIN as u32 }],
    );
    let answers = |net: &mut Net| -> Vec<usize> {
        let here = Destination::Address(address(EAVESDROPPER));
        (0..4)
            .map(|member| {
                let (now, mut answer, mut count) = (Time::from_nanos(net.now), Vec::new(), 0);
                if net.members[member].is_none() {
                    return 0;
                }
                net.drain(member);
                let datagram = BytesMut::from(&question[..]);
                net.group_mut(member).handle_multicast(now, address(EAVESDROPPER), datagram);
                while let Some(to) = net.group_mut(member).poll_transmit(now, &mut answer) {
                    count += usize::from(to == here);
                }
                count
            })
            .collect()
    };
    assert_eq!(answers(&mut net), [1, 0, 0, 0], "the sequencer answers");
    [0, 1, 2].into_iter().for_each(|member| net.crash(member));
    net.run(1_500 * MS);
    assert_eq!(answers(&mut net), [0, 0, 0, 1], "whoever is left alone answers");
}

// What was held by everybody stays so, whoever tells it.
#[test]
fn a_sequencer_that_stands_still_knows_what_it_counted() {
    let mut net = group_of(3, 1);
    net.send(0, b"held by all").unwrap();
    net.run(500 * MS);
    let stable = |net: &mut Net| {
        let now = Time::from_nanos(net.now);
        net.group_mut(0).report(now).stable
    };
    let before = stable(&mut net);
    assert!(before > 0);
    [1, 2].into_iter().for_each(|member| net.crash(member));
    net.run(1_000 * MS);
    assert_eq!(net.phase(0), Phase::Resetting, "the case was not reached");
    assert!(stable(&mut net) >= before);
}
