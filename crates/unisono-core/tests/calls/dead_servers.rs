//! Servers that fall silent. Their clients must wake in time, and must look for other servers.

use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// Returns a server that has answered once and sends nothing from now on, its port, and a client at host 2.
fn fallen_silent() -> (World, unisono_core::Port) {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.nothing_arrives_of(1);
    (world, port)
}

#[test]
fn the_outcome_comes_at_the_deadline_whenever_the_next_question_is_due() {
    let (mut world, port) = fallen_silent();
    for limit in [3, 17, 66, 301] {
        let call = world.call(2, port, b"hello", MS * limit);
        assert_eq!(world.wait(2, call), (MS * limit, Err(CallFailure::Unknown)));
    }
}

#[test]
fn calls_shorter_than_the_silence_limit_find_another_server_in_the_end() {
    let (mut world, port) = fallen_silent();
    let other = world.start_echo(3, PRIVATE);
    assert_eq!(other, port);
    // The client gives up the first server when it has been silent for two seconds.
    for _ in 0..10 {
        let call = world.call(2, port, b"hello", MS * 300);
        let _ = world.wait(2, call);
    }
    assert_eq!(world.host(2).endpoint.account().servers_known, 1);
    let call = world.call(2, port, b"hello", MS * 300);
    assert_eq!(world.wait(2, call).1.unwrap(), "hello");
}

#[test]
fn a_client_that_waits_for_another_server_sleeps_meanwhile() {
    let mut world = World::new();
    world.start(1);
    world.start(2);
    let options = ServeOptions { repeats: true, ..ServeOptions::default() };
    let port = world.host(1).endpoint.serve(PRIVATE, options).unwrap();
    let call = world.call(2, port, b"hello", 20 * SECONDS);
    world.run(MS);
    world.hosts.remove(&1);
    let mut steps = 0;
    while world.outcome(2, call).is_none() {
        world.step();
        steps += 1;
        assert!(steps < 1_000, "it does not sleep");
    }
    assert_eq!(world.outcome(2, call), Some(Err(CallFailure::Unknown)));
}

#[test]
fn many_answers_are_acknowledged_in_the_smallest_datagrams() {
    let mut world = World::new();
    world.settings.datagram_bytes_max = 576;
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let calls: Vec<CallNumber> = (0..200).map(|_| world.call(2, port, b"hello", SECONDS)).collect();
    for call in calls {
        world.wait(2, call).1.unwrap();
    }
    world.run(SECONDS);
    assert_eq!(world.host(1).endpoint.account().kept_bytes, 0);
}

#[test]
fn what_is_in_hand_when_a_port_is_served_again_still_counts() {
    let mut world = World::new();
    (1..=3).for_each(|host| _ = world.start(host));
    let options = ServeOptions { queue_max: 1, ..ServeOptions::default() };
    let port = world.host(1).endpoint.serve(PRIVATE, options).unwrap();
    world.call(2, port, b"first", SECONDS);
    world.run(MS);
    let first = world.take(1).unwrap();
    world.host(1).endpoint.withdraw(port);
    world.host(1).endpoint.serve(PRIVATE, options).unwrap();
    let second = world.call(3, port, b"second", MS * 100);
    assert_eq!(world.wait(3, second).1, Err(CallFailure::Busy));
    world.reply(1, first.id, b"done").unwrap();
    let third = world.call(3, port, b"third", SECONDS);
    world.run(MS * 250);
    assert_eq!(world.take(1).map(|request| request.call), Some(third));
}

#[test]
fn a_call_with_a_shorter_silence_gives_its_server_up_for_itself_and_its_port_alone() {
    let (mut world, port) = fallen_silent();
    world.start_echo(3, PRIVATE);
    let patient = world.call(2, port, b"patient", SECONDS * 10);
    let now = world.now;
    let endpoint = &mut world.host(2).endpoint;
    let begin = |endpoint: &mut Endpoint, now, to| {
        endpoint.call_with_silence(now, (port, to), "impatient".into(), SECONDS * 10, MS * 500).unwrap()
    };
    let (pinned, any) = (begin(endpoint, now, Some(address(1))), begin(endpoint, now, None));
    world.drain(2);
    assert_eq!(world.wait(2, pinned), (MS * 500, Err(CallFailure::Unknown)));
    assert_eq!(world.outcome(2, any), Some(Err(CallFailure::Unknown)));
    assert_eq!(world.host(2).endpoint.account().servers_known, 1, "the session is there for the other call");
    // The next one finds another server, though this one is not given up yet.
    let now = world.now;
    let next = begin(&mut world.host(2).endpoint, now, None);
    world.drain(2);
    assert_eq!(world.wait(2, next), (WAY * 4, Ok("impatient".into())));
    let (waited, outcome) = world.wait(2, patient);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!((MS * 1400..MS * 1600).contains(&waited), "{waited:?}");
}

#[test]
fn a_call_to_one_server_with_a_shorter_silence_ends_in_that_time_if_the_server_died_while_idle() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.run(SECONDS);
    world.hosts.remove(&1);
    let (now, to) = (world.now, (port, Some(address(1))));
    let endpoint = &mut world.host(2).endpoint;
    let call = endpoint.call_with_silence(now, to, "?".into(), SECONDS * 10, MS * 500).unwrap();
    world.drain(2);
    assert_eq!(world.wait(2, call), (MS * 500, Err(CallFailure::NotFound)));
}
