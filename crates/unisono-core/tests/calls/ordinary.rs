//! Calls when nothing goes wrong.

use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;

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
fn nobody_is_found_where_nobody_serves() {
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
