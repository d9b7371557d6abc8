//! A process without the key that hears everything, replays any of it to any receiver and under any address, and makes
//! others wait. What it sends here is what a member or a joiner sent earlier, and what was sent in answer.

use crate::network::*;
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use unisono_core::wire::*;
use unisono_core::*;

/// The eavesdropper's host.
const EAVESDROPPER: usize = 11;
/// A joiner that was heard once, and does not exist any more.
const NO_MORE: Uid = Uid(555);

/// Returns what the member answers to a datagram from the eavesdropper's address.
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

// m2 is in the next view, and does not know it yet. The answer to another process says that the group went on without
// that process. Replayed to m2, it must not exclude m2.
#[test]
fn an_answer_to_another_process_excludes_no_member() {
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

// A process that is not an observer any more gets a farewell when it sends something, or when the eavesdropper replays
// it. If a joiner took that farewell for its own, it could be kept out for ever.
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

// Any process may ask, and may ask in another's name. The answers must not be longer than the question, however much
// there is to report.
#[test]
fn no_outsider_is_sent_more_than_it_asked_with() {
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
    let join = Frame::JoinRequest {
        cookie: 0,
        name: Name::default(),
        floor: Floor::None,
        hops: 1,
        hello: Bytes::new(),
    };
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

// All members receive a multicast question. If each of them answered, the replay of a recorded question would bring as
// many answers as there are members. But the group must also be found when its sequencer is gone.
#[test]
fn a_question_to_everybody_is_answered_by_one() {
    let mut net = group_of(4, 1);
    let group = net.group(0).tag();
    let answers = |net: &mut Net, nonce: u64| -> Vec<usize> {
        let ask = Frame::Ask { nonce, room: PADDED_BYTES_MIN as u32 };
        let question = forge(group, EpochTag::OUTSIDE, NO_MORE, 1, &[ask]);
        let here = Destination::Address(address(EAVESDROPPER));
        (0..net.members.len())
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
    let again = |net: &mut Net, nonce| {
        net.run(100 * MS);
        answers(net, nonce)
    };
    assert_eq!(answers(&mut net, 3), [1, 0, 0, 0], "the sequencer answers");
    let repeated: [Vec<usize>; 4] = core::array::from_fn(|_| again(&mut net, 3));
    assert!(repeated.iter().all(|answers| answers.iter().sum::<usize>() == 1), "{repeated:?}");
    let of_each = |member: usize| repeated.iter().map(|answers| answers[member]).sum::<usize>();
    assert_eq!([0, 1, 2, 3].map(of_each), [1; 4], "the members answer repetitions in turn");
    net.crash(0);
    assert_eq!(answers(&mut net, 4), [0; 4], "no member suspects the sequencer yet");
    let repeated = [again(&mut net, 4), again(&mut net, 4)].concat();
    assert!(
        (1..=2).contains(&repeated.iter().sum::<usize>()),
        "another one answers a repetition: {repeated:?}"
    );
    [1, 2].into_iter().for_each(|member| net.crash(member));
    net.run(1_500 * MS);
    assert_eq!(answers(&mut net, 5), [0, 0, 0, 1], "the only member left answers");
    let mut net = group_of(1, 0);
    assert_eq!([answers(&mut net, 6), again(&mut net, 6)], [[1], [1]], "it is alone");
}

// What a report has called stable stays stable in later reports, also while the group is halted.
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
