//! Calls when nothing goes wrong.

use crate::world::*;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::{Quality, Time};

const PRIVATE: PrivatePort = PrivatePort(77);

#[test]
fn a_call_is_answered_after_locating_and_the_next_one_needs_two_datagrams() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let call = world.call(2, port, b"hello", Duration::from_secs(5));
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome.unwrap(), "hello");
    assert_eq!(took, WAY * 4, "one question, one request, and their answers");
    let before = (world.datagrams(1), world.datagrams(2));
    let call = world.call(2, port, b"again", Duration::from_secs(5));
    let (took, outcome) = world.wait(2, call);
    assert_eq!((outcome.unwrap(), took), ("again".into(), WAY * 2));
    assert_eq!((world.datagrams(1), world.datagrams(2)), (before.0 + 1, before.1 + 1));
}

#[test]
fn what_a_caller_asks_beside_the_request_arrives_with_it_whole_or_in_parts() {
    let mut world = World::new();
    world.settings.datagram_bytes_max = 576;
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let wishes = Wishes { handler: Some("x".repeat(HANDLER_BYTES_MAX).into()), quality: Quality::TOTAL };
    // Around the length at which a request with its wishes no longer fits a datagram.
    for bytes in [0, 100, 150, 170, 180, 190, 200, 210, 220, 300, 430, 500, 5_000] {
        let request = Bytes::from(vec![7; bytes]);
        let (now, wished) = (world.now, wishes.clone());
        let endpoint = &mut world.host(2).endpoint;
        let call = endpoint.call_with(now, port, request.clone(), Duration::from_secs(5), wished).unwrap();
        world.drain(2);
        let arrived = (0..200).find_map(|_| {
            world.run(MS);
            world.take(1)
        });
        let arrived = arrived.unwrap_or_else(|| panic!("{bytes} bytes do not arrive"));
        assert_eq!((arrived.wishes.as_deref(), &arrived.payload), (Some(&wishes), &request));
        world.reply(1, arrived.id, b"done").unwrap();
        assert_eq!(world.wait(2, call).1.unwrap(), "done");
    }
    for name in ["", "a\nb", &"x".repeat(HANDLER_BYTES_MAX + 1), &"x".repeat(1 << 20)] {
        let (now, handler) = (world.now, Some(name.into()));
        let wishes = Wishes { handler, ..Wishes::default() };
        let begun = world.host(2).endpoint.call_with(now, port, Bytes::new(), MS, wishes);
        assert_eq!(begun, Err(CallError::BadHandler));
    }
}

#[test]
fn a_port_without_a_server_is_not_found() {
    let mut world = World::new();
    world.start(1);
    world.start(2);
    let port = unisono_core::Port(5);
    let call = world.call(2, port, b"hello", Duration::from_secs(5));
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::NotFound));
    assert_eq!(took, CallSettings::default().locate);
    let call = world.call(2, port, b"hello", MS * 100);
    assert_eq!(world.wait(2, call), (MS * 100, Err(CallFailure::NotFound)));
}

#[test]
fn a_short_call_finds_a_service_that_has_just_come_back() {
    let mut world = World::new();
    world.start(2);
    let port = public(&PRIVATE);
    // Calls without a server, one beginning before the last has ended: the question is never given up.
    for _ in 0..12 {
        world.call(2, port, b"hello", MS * 450);
        world.run(MS * 300);
    }
    assert_eq!(world.start_echo(1, PRIVATE), port);
    let call = world.call(2, port, b"hello", MS * 300);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome.unwrap(), "hello");
    assert!(took <= MS * 210, "{took:?}");
}

#[test]
fn an_endpoint_tells_what_waits_and_what_is_owed() {
    let mut world = World::new();
    world.start(1);
    world.start(2);
    let port = world.host(1).endpoint.serve(PRIVATE, ServeOptions::default()).unwrap();
    let owed = |world: &mut World| {
        let server = &world.host(1).endpoint;
        let kept = server.replies_kept_since(Time::ZERO);
        (server.requests_waiting(port), server.requests_in_hand(port), kept, server.is_idle())
    };
    assert_eq!(owed(&mut world), (0, 0, 0, true));
    let call = world.call(2, port, b"hello", Duration::from_secs(5));
    assert!(!world.host(2).endpoint.is_idle());
    world.run(MS * 10);
    assert_eq!(owed(&mut world), (1, 0, 0, false));
    let request = world.take(1).unwrap();
    assert_eq!(owed(&mut world), (0, 1, 0, false));
    world.reply(1, request.id, b"there").unwrap();
    assert_eq!(owed(&mut world), (0, 0, 1, false));
    let later = world.now + MS;
    assert_eq!(world.host(1).endpoint.replies_kept_since(later), 0);
    world.wait(2, call).1.unwrap();
    assert!(world.host(2).endpoint.is_idle());
    world.run(Duration::from_secs(1));
    assert_eq!(owed(&mut world), (0, 0, 0, true));
}

#[test]
fn a_call_whose_request_never_left_has_failed() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let call = world.call(2, port, b"to be known", Duration::from_secs(5));
    world.wait(2, call).1.unwrap();
    let now = world.now;
    let endpoint = &mut world.host(2).endpoint;
    let call = endpoint.call(now, port, "stays".into(), MS).unwrap();
    // The driver does not poll for datagrams, so the request never leaves.
    endpoint.handle_timeout(now + MS);
    assert_eq!(endpoint.poll_outcome(), Some((call, Err(CallFailure::Failed))));
}

#[test]
fn a_request_says_which_calls_are_finished() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let call = |world: &mut World| {
        let call = world.call(2, port, b"", Duration::from_secs(5));
        world.run(MS * 10);
        (call, world.take(1).unwrap())
    };
    let (first, request) = call(&mut world);
    assert_eq!((request.call, request.finished_below), (first, first));
    let (second, next) = call(&mut world);
    assert_eq!((next.call, next.finished_below), (second, first));
    world.reply(1, request.id, b"").unwrap();
    world.wait(2, first).1.unwrap();
    let (_, next) = call(&mut world);
    assert_eq!(next.finished_below, second);
    let now = world.now;
    world.host(2).endpoint.cancel(now, second);
    let (_, last) = call(&mut world);
    assert_eq!(last.finished_below, next.call);
}

#[test]
fn an_endpoint_that_calls_and_serves_looks_at_both_in_time() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    // As a server it will forget the idle session later; as a client it must ask for the port much sooner.
    let call = world.call(1, unisono_core::Port(5), b"hello", Duration::from_secs(5));
    assert_eq!(world.wait(1, call), (CallSettings::default().locate, Err(CallFailure::NotFound)));
}
