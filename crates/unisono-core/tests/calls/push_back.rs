//! Back-pressure: servers that are busy, and servers that withdraw.

use crate::trickle::{Trickler, is_busy};
use crate::world::*;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::Frame;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

fn server(queue_max: u16) -> (World, Port) {
    let mut world = World::new();
    let options = ServeOptions { queue_max, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    (world, port)
}

#[test]
fn a_server_never_has_more_than_it_takes_and_everybody_is_served_in_the_end() {
    let (mut world, port) = server(4);
    let mut calls = Vec::new();
    for host in 10..20 {
        world.start(host);
        for _ in 0..5 {
            calls.push((host, world.call(host, port, b"hello", 30 * SECONDS)));
        }
    }
    let mut served = 0;
    while calls.iter().any(|(host, call)| world.outcome(*host, *call).is_none()) {
        world.run(MS * 5);
        assert!(world.host(1).endpoint.account().pending <= 4);
        if let Some(request) = world.take(1) {
            served += 1;
            world.reply(1, request.id, b"done").unwrap();
        }
    }
    assert_eq!(served, 50);
    assert!(calls.iter().all(|(host, call)| world.outcome(*host, *call).unwrap().is_ok()));
}

/// Returns a server with two services: a small one, which takes one request at a time, and a large one.
fn small_beside_large() -> (World, Port, Port) {
    let (mut world, small) = server(1);
    let large = world.host(1).endpoint.serve(PrivatePort(78), ServeOptions::default()).unwrap();
    world.start(2);
    (world, small, large)
}

#[test]
fn a_small_service_beside_a_large_one_is_kept_busy() {
    let (mut world, small, _) = small_beside_large();
    world.host(1).answers = Some(|request| request.payload.clone());
    let begun = world.now;
    let calls: Vec<_> = (0..200).map(|_| world.call(2, small, b"hello", 30 * SECONDS)).collect();
    for call in calls {
        assert_eq!(world.wait(2, call).1.unwrap(), "hello");
    }
    let took = world.now.since(begun);
    assert!(took < MS * 300, "{took:?}");
    // The client sends one call at a time, apart from a trial now and then.
    let pushed_back = world.host(2).endpoint.counters().pushed_back;
    assert!(pushed_back < 250, "{pushed_back} times");
}

#[test]
fn a_service_that_is_full_holds_up_no_other_of_its_server() {
    let (mut world, small, large) = small_beside_large();
    let calls: Vec<_> = (0..20).map(|_| world.call(2, small, b"hello", 30 * SECONDS)).collect();
    world.run(SECONDS);
    let request = world.take(1).unwrap();
    world.host(1).answers = Some(|request| request.payload.clone());
    for _ in 0..100 {
        let call = world.call(2, large, b"quick", SECONDS);
        let (took, outcome) = world.wait(2, call);
        assert_eq!(outcome.unwrap(), "quick");
        assert!(took < MS * 2, "{took:?}");
    }
    // The calls to the small service go on as well.
    world.reply(1, request.id, b"hello").unwrap();
    for call in calls {
        assert_eq!(world.wait(2, call).1.unwrap(), "hello");
    }
}

#[test]
fn a_full_service_is_left_alone_for_ever_longer() {
    let (mut world, small, _) = small_beside_large();
    (0..20).for_each(|_| _ = world.call(2, small, b"hello", 30 * SECONDS));
    world.run(10 * SECONDS);
    // 19 calls are rejected at first, then one more after 5 ms, 10 ms and so on up to 200 ms.
    let pushed_back = world.host(2).endpoint.counters().pushed_back;
    assert!((19 + 45..19 + 65).contains(&pushed_back), "{pushed_back} times");
}

#[test]
fn clients_at_one_address_do_not_take_all_places_of_a_queue() {
    let (mut world, port) = server(64);
    let fill = |world: &mut World, hosts: [u16; 2]| {
        for host in hosts {
            world.start(host);
            (0..200).for_each(|_| _ = world.call(host, port, b"greedy", 30 * SECONDS));
        }
        world.run(SECONDS);
    };
    fill(&mut world, [10, 11]);
    // These two are at one address, which has its share of what is left beyond the maximum.
    let greedy = world.host(1).endpoint.account().pending;
    assert!((65..64 + 20).contains(&greedy), "{greedy}");
    let innocent = ELSEWHERE + 1;
    world.start(innocent);
    let calls: Vec<_> = (0..5).map(|_| world.call(innocent, port, b"hello", 30 * SECONDS)).collect();
    world.run(MS * 500);
    assert_eq!(world.host(innocent).endpoint.counters().pushed_back, 0);
    // A client whose server is full has one call there at a time.
    assert_eq!(world.host(1).endpoint.account().pending, greedy + 1);
    // What was answered makes room again, also in the shares.
    let mut taken = 0;
    while let Some(request) = world.take(1) {
        taken += 1;
        world.reply(1, request.id, b"done").unwrap();
    }
    assert!(taken > greedy);
    world.host(1).answers = Some(|request| request.payload.clone());
    assert!(calls.iter().all(|call| world.wait(innocent, *call).1.is_ok()));
    world.run(5 * SECONDS);
    assert_eq!(world.host(1).endpoint.account().pending, 0);
    world.host(1).answers = None;
    fill(&mut world, [12, 13]);
    assert_eq!(world.host(1).endpoint.account().pending, greedy);
}

#[test]
fn a_request_waits_for_at_most_one_of_each_other_address() {
    let (mut world, port) = server(64);
    let [first, second, innocent] = [10, 11, ELSEWHERE + 1];
    for host in [first, second] {
        world.start(host);
        (0..20).for_each(|_| _ = world.call(host, port, b"greedy", 30 * SECONDS));
    }
    world.run(MS * 100);
    world.start(innocent);
    let call = world.call(innocent, port, b"hello", 30 * SECONDS);
    world.run(MS * 100);
    assert_eq!(world.host(1).endpoint.account().pending, 41);
    let taken: Vec<_> = (0..2).map(|_| world.take(1).unwrap()).collect();
    assert!(taken.iter().any(|request| request.payload[..] == *b"hello"), "the other two are at one address");
    taken.iter().for_each(|request| world.reply(1, request.id, b"done").unwrap());
    assert!(world.wait(innocent, call).1.is_ok());
}

#[test]
fn what_the_application_has_counts_until_it_answers() {
    let (mut world, port) = server(2);
    world.start(2);
    let calls: Vec<_> = (0..4).map(|_| world.call(2, port, b"hello", 300 * MS)).collect();
    world.run(MS * 100);
    let (first, second) = (world.take(1).unwrap(), world.take(1).unwrap());
    world.run(SECONDS);
    assert_eq!(world.take(1), None);
    let outcomes: Vec<_> = calls.iter().map(|call| world.outcome(2, *call).unwrap()).collect();
    assert_eq!(outcomes[..2], [Err(CallFailure::Unknown), Err(CallFailure::Unknown)]);
    assert_eq!(outcomes[2..], [Err(CallFailure::Busy), Err(CallFailure::Busy)]);
    // No client waits any longer, but the two requests count until the application answers them.
    let call = world.call(2, port, b"more", 200 * MS);
    assert_eq!(world.wait(2, call).1, Err(CallFailure::Busy));
    assert_eq!(world.reply(1, first.id, b"late"), Ok(()), "this slot was not used again");
    assert_eq!(world.reply(1, second.id, b"late"), Err(AnswerError::Over));
    let call = world.call(2, port, b"more", SECONDS);
    world.run(MS * 300);
    let request = world.take(1).unwrap();
    world.reply(1, request.id, b"done").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "done");
}

#[test]
fn a_request_that_waited_too_long_is_not_executed() {
    let (mut world, port) = server(10);
    world.start(2);
    let call = world.call(2, port, b"hello", 50 * MS);
    // The client cannot tell the server that it gave up.
    world.run(MS);
    world.nothing_arrives();
    world.run(MS * 100);
    assert_eq!(world.outcome(2, call), Some(Err(CallFailure::Unknown)));
    assert_eq!(world.take(1), None);
    assert_eq!(world.host(1).endpoint.counters().rejected, 1);
    assert_eq!(world.host(1).endpoint.account().pending, 0);
}

#[test]
fn requests_of_the_dead_make_room_when_their_time_is_over() {
    let (mut world, port) = server(1);
    (2..=3).for_each(|client| _ = world.start(client));
    world.call(2, port, b"first", 50 * MS);
    world.run(MS);
    world.hosts.remove(&2);
    world.run(50 * MS);
    let second = world.call(3, port, b"second", SECONDS);
    world.run(MS);
    assert_eq!(world.take(1).map(|request| request.call), Some(second));
}

#[test]
fn a_cancelled_request_is_not_executed_and_has_no_outcome() {
    let (mut world, port) = server(10);
    world.start(2);
    let call = world.call(2, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let now = world.now;
    world.host(2).endpoint.cancel(now, call);
    world.drain(2);
    world.run(MS);
    assert_eq!(world.take(1), None);
    world.run(10 * SECONDS);
    assert_eq!(world.outcome(2, call), None);
    assert_eq!(world.host(2).endpoint.account().calls, 0);
    // The slot of a cancelled call is used again.
    let call = world.call(2, port, b"next", SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.reply(1, request.id, b"yes").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "yes");
    assert_eq!(world.host(1).endpoint.account().slots, 1);
}

#[test]
fn a_withdrawn_service_sends_what_waits_elsewhere_and_answers_what_it_has() {
    let (mut world, port) = server(10);
    world.start(2);
    let in_hand = world.call(2, port, b"in hand", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    let waits = world.call(2, port, b"waits", 5 * SECONDS);
    world.run(MS);
    world.start_echo(3, PRIVATE);
    world.host(1).endpoint.withdraw(port);
    world.drain(1);
    world.reply(1, request.id, b"still").unwrap();
    assert_eq!(world.wait(2, in_hand).1.unwrap(), "still");
    assert_eq!(world.wait(2, waits).1.unwrap(), "waits");
    assert_eq!(world.host(3).requests.len(), 1);
    assert_eq!(world.host(1).endpoint.account().pending, 0);
}

#[test]
fn when_all_withdraw_the_call_has_failed_and_did_not_happen() {
    let (mut world, port) = server(10);
    world.start(2);
    let call = world.call(2, port, b"waits", 5 * SECONDS);
    world.run(MS);
    let now = world.now;
    world.host(1).endpoint.withdraw(port);
    world.drain(1);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::Failed));
    assert!(took <= CallSettings::default().locate + MS, "{took:?}");
    assert_eq!(world.host(1).endpoint.poll_request(now), None);
}

#[test]
fn an_application_may_say_no() {
    let (mut world, port) = server(10);
    world.start(2);
    let call = world.call(2, port, b"please", 5 * SECONDS);
    world.run(MS);
    let (request, now) = (world.take(1).unwrap(), world.now);
    world.host(1).endpoint.refuse(now, request.id, Bytes::from_static(b"no")).unwrap();
    world.drain(1);
    assert_eq!(world.wait(2, call).1, Err(CallFailure::Refused(Bytes::from_static(b"no"))));
}

#[test]
fn calls_are_bounded_and_what_is_too_large_is_refused() {
    let (mut world, port) = server(10);
    let now = world.now;
    let endpoint = &mut world.start(2).endpoint;
    let large = Bytes::from(vec![0; CALL_BYTES_MAX + 1]);
    let refused = endpoint.call(now, port, large.clone(), SECONDS);
    assert_eq!(refused, Err(CallError::TooLarge { bytes: CALL_BYTES_MAX + 1, max: CALL_BYTES_MAX }));
    for _ in 0..1 << 16 {
        endpoint.call(now, port, Bytes::new(), SECONDS).unwrap();
    }
    assert_eq!(endpoint.call(now, port, Bytes::new(), SECONDS), Err(CallError::TooMany));
    world.drain(2);
    world.run(MS);
    let (request, now) = (world.take(1).unwrap(), world.now);
    let refused = world.host(1).endpoint.reply(now, request.id, large);
    assert!(matches!(refused, Err(AnswerError::TooLarge { .. })));
    assert_eq!(world.reply(1, request.id, b"small"), Ok(()));
    world.run(2 * SECONDS);
    assert_eq!(world.host(2).outcomes.len(), 1 << 16, "every call ends");
}

#[test]
fn what_the_queues_still_take_is_shared_by_the_clients_that_have_requests_there() {
    let (mut world, port) = server(10);
    let other = world.host(1).endpoint.serve(PrivatePort(1), ServeOptions::default()).unwrap();
    world.host(1).endpoint.withdraw(other);
    world.recorded = Some(1);
    for (client, calls) in [(2, 4), (3, 2)] {
        world.start(client);
        (0..calls).for_each(|_| _ = world.call(client, port, b"hello", SECONDS));
    }
    world.run(MS * 100);
    let mut granted = std::collections::BTreeMap::new();
    for frame in world.recording.iter().flat_map(|datagram| frames_of(datagram)) {
        if let Frame::Working { attempt, grant } = frame {
            granted.insert(attempt.to, (grant.slots, grant.load));
        }
    }
    // The queue has room for four more, two for each client. Each grant adds the requests that the client has there.
    assert_eq!(granted.into_values().collect::<Vec<_>>(), [(6, 6), (4, 6)]);
}

#[test]
fn incomplete_requests_take_nothing_from_the_grants_of_others() {
    let (mut world, port) = server(64);
    let mut all: Vec<_> = (20..26).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for one in &mut all {
        for slot in 0..4 {
            one.announce(&mut world, port, slot, 10_000);
            assert!(!is_busy(&one.part(&mut world, slot, 0)));
        }
    }
    world.recorded = Some(1);
    world.start(2);
    world.call(2, port, b"hello", SECONDS);
    world.run(MS * 100);
    let mut granted: Vec<u16> = world
        .recording
        .iter()
        .flat_map(|datagram| frames_of(datagram))
        .filter_map(|frame| match frame {
            Frame::Working { grant, .. } => Some(grant.slots),
            _ => None,
        })
        .collect();
    granted.dedup();
    // 63 of the 64 places are left, and seven addresses ask.
    assert_eq!(granted, [1 + 63 / 7]);
}

#[test]
fn a_client_that_is_pushed_back_repeatedly_waits_ever_longer() {
    let (mut world, port) = server(1);
    world.start(2);
    world.start(3);
    world.call(2, port, b"takes long", 10 * SECONDS);
    world.run(MS);
    assert!(world.take(1).is_some());
    let call = world.call(3, port, b"hello", SECONDS);
    assert_eq!(world.wait(3, call).1, Err(CallFailure::Busy));
    let pushed_back = world.host(3).endpoint.counters().pushed_back;
    assert!((5..12).contains(&pushed_back), "{pushed_back} times");
}

#[test]
fn ports_take_turns() {
    let mut world = World::new();
    let endpoint = &mut world.start(1).endpoint;
    let ports = [1, 2, 3].map(|port| endpoint.serve(PrivatePort(port), ServeOptions::default()).unwrap());
    world.start(2);
    for port in ports {
        (0..3).for_each(|_| _ = world.call(2, port, b"hello", SECONDS));
    }
    world.run(MS * 10);
    let taken: Vec<Port> = std::iter::from_fn(|| world.take(1)).map(|request| request.port).collect();
    assert_eq!(taken.len(), 9);
    assert!(taken.windows(3).all(|turn| turn[0] != turn[1] && turn[1] != turn[2] && turn[0] != turn[2]));
}

#[test]
fn so_many_ports_are_served_and_no_more() {
    let mut world = World::new();
    let endpoint = &mut world.start(1).endpoint;
    let mut serve = |private| endpoint.serve(PrivatePort(private), ServeOptions::default());
    assert!((0..256).all(|private| serve(private).is_ok()));
    assert_eq!(serve(256), Err(ServeError::TooMany { max: 256 }));
}

#[test]
fn outcomes_not_taken_and_ports_being_located_count_among_the_calls() {
    let mut world = World::new();
    let now = world.now;
    let endpoint = &mut world.start(1).endpoint;
    for port in 0..1024 {
        endpoint.call(now, Port(port), Bytes::new(), SECONDS).unwrap();
    }
    assert_eq!(endpoint.call(now, Port(1024), Bytes::new(), SECONDS), Err(CallError::TooMany));
    for _ in 1024..1 << 16 {
        endpoint.call(now, Port(0), Bytes::new(), SECONDS).unwrap();
    }
    let now = now + SECONDS;
    endpoint.handle_timeout(now);
    assert_eq!(endpoint.account().calls, 0);
    assert_eq!(endpoint.call(now, Port(0), Bytes::new(), SECONDS), Err(CallError::TooMany));
    assert!(endpoint.poll_outcome().is_some());
    assert!(endpoint.call(now, Port(1024), Bytes::new(), SECONDS).is_ok(), "in place of an unused port");
}

#[test]
fn a_large_call_that_each_server_rejects_goes_round_ever_later() {
    let mut world = World::new();
    world.settings.message_bytes_max = 10_000;
    world.start_echo(1, PRIVATE);
    let port = world.start_echo(2, PRIVATE);
    world.settings = CallSettings::default();
    world.start(3);
    let call = world.call(3, port, &[7; 10_001], 10 * SECONDS);
    world.run(MS * 4);
    assert_eq!(world.host(3).endpoint.counters().pushed_back, 2, "it moves to the other server at once");
    world.run(MS * 4);
    assert!(world.host(3).endpoint.counters().pushed_back > 2, "it comes back after 5 ms");
    assert_eq!(world.wait(3, call).1, Err(CallFailure::Busy));
    // Both reject it once in a round; the pauses after a round are 5 ms, 10 ms and so on up to 200 ms.
    let pushed_back = world.host(3).endpoint.counters().pushed_back;
    assert!((2 * 45..2 * 65).contains(&pushed_back), "{pushed_back} times");
}

#[test]
fn a_large_call_that_waits_holds_up_no_small_one() {
    let mut world = World::new();
    world.settings.message_bytes_max = 10_000;
    let port = world.start_echo(1, PRIVATE);
    world.settings = CallSettings::default();
    world.start(2);
    let large = world.call(2, port, &[7; 10_001], 10 * SECONDS);
    world.run(SECONDS);
    let small = world.call(2, port, b"hello", SECONDS);
    let (took, outcome) = world.wait(2, small);
    assert_eq!(outcome.unwrap(), "hello");
    assert!(took < MS * 2, "{took:?}");
    assert_eq!(world.outcome(2, large), None);
}
