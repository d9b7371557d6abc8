//! Calls that a server forwards to another one.

use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Frame, Grant, PortHere};
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// Returns servers at these hosts that leave their requests to the test, the port, and a client at host 9.
fn servers(hosts: &[u16]) -> (World, Port) {
    let mut world = World::new();
    for host in hosts {
        world.start_echo(*host, PRIVATE);
        world.host(*host).answers = None;
    }
    world.start(9);
    (world, public(&PRIVATE))
}

fn pass_on(world: &mut World, from: u16, id: RequestId, to: u16) -> Result<(), ForwardError> {
    let done = world.host(from).endpoint.forward(id, address(to));
    world.drain(from);
    done
}

/// Takes the next request of one of these hosts, and returns the host with it.
fn taken(world: &mut World, hosts: &[u16]) -> Option<(u16, Request)> {
    hosts.iter().find_map(|host| world.take(*host).map(|request| (*host, request)))
}

#[test]
fn a_call_is_answered_by_the_one_it_was_passed_on_to() {
    let (mut world, port) = servers(&[1, 2]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let (first, request) = taken(&mut world, &[1, 2]).unwrap();
    let other = 3 - first;
    pass_on(&mut world, first, request.id, other).unwrap();
    assert_eq!(pass_on(&mut world, first, request.id, other), Err(ForwardError::Over));
    world.run(MS);
    let again = world.take(other).unwrap();
    assert_eq!((again.client, again.call, again.hops), (request.client, request.call, 1));
    assert_eq!(again.payload, "hello");
    world.reply(other, again.id, b"from the other").unwrap();
    assert_eq!(world.wait(9, call).1.unwrap(), "from the other");
    assert_eq!(world.take(first), None);
}

#[test]
fn a_call_that_is_passed_on_to_a_dead_server_finds_a_live_one() {
    let (mut world, port) = servers(&[1, 2, 3]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let (first, request) = taken(&mut world, &[1, 2, 3]).unwrap();
    let others: Vec<u16> = [1, 2, 3].into_iter().filter(|host| *host != first).collect();
    // Longer than the 50 ms for which a client trusts that a server is there.
    world.run(MS * 200);
    world.hosts.remove(&others[0]);
    pass_on(&mut world, first, request.id, others[0]).unwrap();
    world.run(SECONDS);
    let (second, again) = taken(&mut world, &[first, others[1]]).unwrap();
    assert_eq!(second, others[1], "not the server that forwarded it");
    assert_eq!(again.hops, 1);
    world.reply(second, again.id, b"alive").unwrap();
    assert_eq!(world.wait(9, call).1.unwrap(), "alive");
}

#[test]
fn a_call_that_is_forwarded_to_no_server_returns_if_there_is_no_other() {
    let (mut world, port) = servers(&[1]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    // A process is at that address, and does not serve the port.
    world.start(5);
    pass_on(&mut world, 1, request.id, 5).unwrap();
    world.run(SECONDS);
    let again = world.take(1).unwrap();
    assert_eq!((again.call, again.hops), (request.call, 1));
    world.reply(1, again.id, b"myself then").unwrap();
    assert_eq!(world.wait(9, call).1.unwrap(), "myself then");
}

#[test]
fn a_call_goes_round_so_often_and_no_further() {
    let (mut world, port) = servers(&[1, 2]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    for hop in 0..=HOPS_MAX {
        world.run(MS);
        let (at, request) = taken(&mut world, &[1, 2]).unwrap();
        assert_eq!(request.hops, hop);
        let done = pass_on(&mut world, at, request.id, 3 - at);
        if hop < HOPS_MAX {
            done.unwrap();
        } else {
            assert_eq!(done, Err(ForwardError::TooFar { hops: HOPS_MAX }));
            world.reply(at, request.id, b"enough").unwrap();
        }
    }
    assert_eq!(world.wait(9, call).1.unwrap(), "enough");
    assert_eq!(world.host(9).endpoint.counters().forwards, u64::from(HOPS_MAX));
}

#[test]
fn many_calls_that_are_forwarded_locate_the_server_once() {
    let (mut world, port) = servers(&[1]);
    let calls: Vec<_> = (0..50).map(|_| world.call(9, port, b"hello", 5 * SECONDS)).collect();
    world.run(MS);
    world.start_echo(2, PRIVATE);
    while let Some(request) = world.take(1) {
        world.host(1).endpoint.forward(request.id, address(2)).unwrap();
    }
    world.drain(1);
    for call in calls {
        assert!(world.wait(9, call).1.is_ok());
    }
    assert_eq!(world.host(2).requests.len(), 50);
    assert_eq!(world.host(9).endpoint.counters().locates, 2);
}

#[test]
fn a_lost_word_that_a_call_was_passed_on_is_said_again() {
    let (mut world, port) = servers(&[1]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.start_echo(2, PRIVATE);
    let mut left = 2;
    world.fate = Box::new(move |from, _, _, _| {
        let lost = from == 1 && left > 0;
        left -= i32::from(lost);
        if lost { vec![] } else { vec![Duration::ZERO] }
    });
    pass_on(&mut world, 1, request.id, 2).unwrap();
    assert_eq!(world.wait(9, call).1.unwrap(), "hello");
    assert_eq!(world.host(2).requests.len(), 1);
}

#[test]
fn a_call_that_avoids_a_server_delays_no_other_call() {
    let (mut world, port) = servers(&[1]);
    let call = world.call(9, port, b"avoids", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.start(5);
    pass_on(&mut world, 1, request.id, 5).unwrap();
    // The process there does not serve the port, and the client knows that by now.
    world.run(MS * 5);
    let next = world.call(9, port, b"next", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    assert_eq!(request.call, next);
    world.run(SECONDS);
    assert_eq!(world.take(1).unwrap().call, call);
}

#[test]
fn an_old_answer_of_the_server_that_a_call_was_forwarded_to_is_not_believed() {
    let (mut world, port) = servers(&[1]);
    let call = world.call(9, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    pass_on(&mut world, 1, request.id, 5).unwrap();
    world.run(MS);
    let cookie = Cookie { issued: 0, seal: 0 };
    let (nonce, grant, proof) = (3, Grant { slots: 1, load: 0 }, Proof([0; 96]));
    let here =
        PortHere { nonce, port, cookie, grant, repeats: false, instance: 0, key: PublicKey([7; 32]), proof };
    world.put(5, 9, false, sealed_frame(7, 1, &Frame::PortHere(here.into())), WAY);
    world.put(5, 9, false, sealed_frame(7, 2, &Frame::PortNotHere { nonce, port, address: address(5) }), WAY);
    world.run(MS * 10);
    assert_eq!(world.host(9).endpoint.counters().malformed, 0, "its proof is not checked");
    // The client goes on asking host 5, which serves the port by the time of the next question.
    world.start_echo(5, PRIVATE);
    assert_eq!(world.wait(9, call).1.unwrap(), "hello");
    assert_eq!(world.host(5).requests[0].hops, 1);
}
