//! A request is executed at most once, whatever the network does to it.

use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

#[test]
fn a_lost_request_is_sent_again() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let mut left = 2;
    world.fate = Box::new(move |from, _, _, datagram| {
        // Requests are shorter than 300 bytes, questions (`LocatePort`) longer.
        let lost = from == 2 && datagram.len() < 300 && left > 0;
        left -= u64::from(lost);
        if lost { vec![] } else { vec![Duration::ZERO] }
    });
    let call = world.call(2, port, b"hello", 5 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome.unwrap(), "hello");
    assert!((MS * 60..MS * 62).contains(&took), "20 ms, then 40 ms: {took:?}");
    assert_eq!(world.host(1).requests.len(), 1);
}

#[test]
fn a_lost_reply_is_sent_again_and_nothing_executed_twice() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let mut left = 2;
    world.fate = Box::new(move |from, _, _, datagram| {
        let lost = from == 1 && datagram.len() < 200 && left > 0;
        left -= u64::from(lost);
        if lost { vec![] } else { vec![Duration::ZERO] }
    });
    let call = world.call(2, port, b"hello", 5 * SECONDS);
    assert_eq!(world.wait(2, call).1.unwrap(), "hello");
    assert_eq!(world.host(1).requests.len(), 1);
    assert_eq!(world.host(1).endpoint.counters().duplicates, 2);
}

#[test]
fn a_slow_call_lives_as_long_as_its_server_says_that_it_works() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let call = world.call(2, port, b"slow", 30 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.run(20 * SECONDS);
    assert_eq!(world.outcome(2, call), None);
    world.reply(1, request.id, b"at last").unwrap();
    assert_eq!(world.reply(1, request.id, b"twice"), Err(AnswerError::Over));
    assert_eq!(world.wait(2, call).1.unwrap(), "at last");
    assert_eq!(world.take(1), None);
}

#[test]
fn an_attempt_that_is_overtaken_while_the_session_opens_belongs_to_it() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let mut delayed = false;
    world.fate = Box::new(move |from, _, _, datagram| {
        let is_first = from == 2 && datagram.len() > 1300 && !delayed;
        delayed |= is_first;
        vec![if is_first { MS * 5 } else { Duration::ZERO }]
    });
    // Each request fills a datagram.
    let slow = world.call(2, port, &[1; 1300], 5 * SECONDS);
    let fast = world.call(2, port, &[2; 1300], 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    assert_eq!(request.payload[0], 2, "the second comes first");
    world.reply(1, request.id, b"fast").unwrap();
    assert_eq!(world.wait(2, fast).1.unwrap(), "fast");
    world.run(MS * 10);
    let request = world.take(1).unwrap();
    world.run(SECONDS);
    assert_eq!(world.outcome(2, slow), None, "the client asks after it, and it is in progress");
    world.reply(1, request.id, b"slow").unwrap();
    assert_eq!(world.wait(2, slow).1.unwrap(), "slow");
}
