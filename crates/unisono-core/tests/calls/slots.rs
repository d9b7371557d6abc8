//! How a server treats the attempts of a client that sends arbitrary frames. Only the last attempt of a slot counts,
//! and frames about another attempt or another life do not affect it.

use crate::plain_agreement::key_of;
use crate::world::*;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Attempt, Cookie, Frame, Part, Payload, Rejection};
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
/// The server's life, and a life that never existed.
const SERVER: Uid = Uid(1001);
const OTHER: Uid = Uid(4);

/// A server at host 1, and a client at host 5 whose frames the test writes by hand.
struct Table {
    world: World,
    port: Port,
    cookie: Option<Cookie>,
    sent: u64,
}

impl Table {
    fn new() -> Table {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        world.host(1).answers = None;
        let mut table = Table { world, port, cookie: None, sent: 0 };
        let here = table.say(&Frame::LocatePort { nonce: 1, port, key: key_of(Uid(9)) });
        table.cookie = here.into_iter().find_map(|frame| match frame {
            Frame::PortHere(here) => Some(here.cookie),
            _ => None,
        });
        table
    }

    /// Returns what the server answers to a frame at once.
    fn say(&mut self, said: impl Into<Said>) -> Vec<Frame> {
        self.sent += 1;
        let datagram = sealed_frame(9, self.sent, said);
        let now = self.world.now;
        let endpoint = &mut self.world.host(1).endpoint;
        endpoint.handle_datagram(now, address(5), BytesMut::from(&datagram[..]));
        let (mut out, mut frames) = (Vec::new(), Vec::new());
        while endpoint.poll_transmit(now, &mut out).is_some() {
            frames.extend(frames_of(&out));
        }
        frames
    }

    fn ask(&mut self, slot: u16, number: u64, payload: Payload) -> Vec<Frame> {
        let request = unisono_core::wire::Request {
            attempt: Attempt { to: SERVER, slot, number },
            call: number,
            finished_below: 1,
            port: self.port,
            instance: 0,
            hops: 0,
            again: false,
            left_ms: 5000,
            wishes: None,
            payload,
        };
        let (frame, cookie) = (Frame::Request(request), self.cookie);
        self.say(Said { frame, cookie, sealed_by: None })
    }

    fn request(&mut self, slot: u16, number: u64) -> Vec<Frame> {
        self.ask(slot, number, Payload::Whole(Bytes::from(number.to_string())))
    }

    /// Takes the next request, and returns its call and its id.
    fn take(&mut self) -> Option<(CallNumber, RequestId)> {
        self.world.take(1).map(|request| (request.call, request.id))
    }

    fn reply(&mut self, id: RequestId, reply: &'static str) -> Result<(), AnswerError> {
        let now = self.world.now;
        let endpoint = &mut self.world.host(1).endpoint;
        let done = endpoint.reply(now, id, reply.into());
        let mut out = Vec::new();
        while endpoint.poll_transmit(now, &mut out).is_some() {}
        done
    }
}

fn is_working(frames: &[Frame]) -> bool {
    matches!(frames, [Frame::Working { .. }])
}

fn is_reply(frames: &[Frame], reply: &'static str) -> bool {
    matches!(frames, [Frame::Reply(said)] if said.payload == Payload::Whole(reply.into()))
}

fn is_rejected(frames: &[Frame], why: Rejection) -> bool {
    matches!(frames, [Frame::Reject { reason, .. }] if *reason == why)
}

#[test]
fn an_acknowledgement_is_about_one_attempt_and_only_if_it_was_answered() {
    let mut table = Table::new();
    table.request(0, 1);
    table.request(0, 2);
    let done = |to, number| Frame::Done { to, finished_below: 1, attempts: vec![(0, number)] };
    table.say(&done(SERVER, 2));
    let (call, id) = table.take().unwrap();
    assert_eq!(call, 2);
    table.say(&done(SERVER, 2));
    assert!(is_working(&table.request(0, 2)), "it is in progress");
    table.reply(id, "two").unwrap();
    for other in [done(SERVER, 1), done(SERVER, 3), done(OTHER, 2)] {
        table.say(&other);
        assert!(is_reply(&table.request(0, 2), "two"), "after {other}");
    }
    table.say(&done(SERVER, 2));
    assert!(table.request(0, 2).is_empty());
    assert_eq!(table.take(), None);
}

#[test]
fn a_cancellation_is_about_one_attempt() {
    let mut table = Table::new();
    table.request(0, 2);
    for (to, number) in [(SERVER, 1), (SERVER, 3), (OTHER, 2)] {
        table.say(&Frame::Cancel { attempt: Attempt { to, slot: 0, number } });
    }
    assert!(is_working(&table.request(0, 2)));
    table.say(&Frame::Cancel { attempt: Attempt { to: SERVER, slot: 0, number: 2 } });
    assert!(is_rejected(&table.request(0, 2), Rejection::Cancelled));
    assert_eq!(table.take(), None);
    table.ask(1, 3, Payload::Parts { total: 600, part: 300 });
    table.say(&Frame::Cancel { attempt: Attempt { to: SERVER, slot: 1, number: 3 } });
    assert_eq!(table.world.host(1).endpoint.account().receiving_bytes, 0, "incomplete requests too");
}

#[test]
fn parts_of_different_attempts_do_not_mix() {
    let mut table = Table::new();
    let announced = Payload::Parts { total: 600, part: 300 };
    let part = |to, number, index, byte| {
        let attempt = Attempt { to, slot: 0, number };
        Frame::Part(Part { attempt, reply: false, index, bytes: vec![byte; 300].into() })
    };
    table.ask(0, 1, announced.clone());
    table.say(&part(SERVER, 1, 0, 1));
    table.ask(0, 2, announced);
    for frame in [part(SERVER, 1, 0, 1), part(SERVER, 1, 1, 1), part(OTHER, 2, 0, 3), part(SERVER, 2, 1, 2)] {
        table.say(&frame);
        assert_eq!(table.world.take(1), None);
    }
    table.say(&part(SERVER, 2, 0, 2));
    assert_eq!(table.world.take(1).unwrap().payload, vec![2; 600]);
}

#[test]
fn parts_are_as_long_as_they_have_to_be() {
    let mut table = Table::new();
    let part = |index, length| {
        let attempt = Attempt { to: SERVER, slot: 0, number: 1 };
        Frame::Part(Part { attempt, reply: false, index, bytes: vec![7; length].into() })
    };
    table.ask(0, 1, Payload::Parts { total: 500, part: 300 });
    for (index, length) in [(0, 299), (0, 301), (1, 199), (1, 201), (1, 300), (2, 300), (u16::MAX, 1)] {
        assert!(table.say(&part(index, length)).is_empty());
    }
    assert_eq!(table.world.host(1).endpoint.counters().malformed, 7);
    table.say(&part(0, 300));
    table.say(&part(1, 200));
    assert_eq!(table.world.take(1).unwrap().payload, vec![7; 500]);
}

#[test]
fn a_request_of_which_parts_come_is_waited_for() {
    let mut table = Table::new();
    let part = |index| {
        let attempt = Attempt { to: SERVER, slot: 0, number: 1 };
        Frame::Part(Part { attempt, reply: false, index, bytes: vec![7; 300].into() })
    };
    table.ask(0, 1, Payload::Parts { total: 600, part: 300 });
    table.world.run(Duration::from_millis(200));
    table.say(&part(0));
    table.world.run(Duration::from_millis(3900));
    for _ in 0..2 {
        assert!(is_working(&table.say(&part(1))), "a repeated part is answered with Working again");
    }
    assert_eq!(table.world.take(1).unwrap().payload, vec![7; 600]);
}

#[test]
fn a_reply_that_is_asked_for_while_it_is_on_its_way_does_not_begin_anew() {
    let mut table = Table::new();
    table.request(0, 1);
    let ((_, id), now) = (table.take().unwrap(), table.world.now);
    table.world.host(1).endpoint.reply(now, id, vec![0; CALL_BYTES_MAX].into()).unwrap();
    let parts = |frames: Vec<Frame>| frames.iter().filter(|frame| matches!(frame, Frame::Part(_))).count();
    assert!(parts(table.ask(0, 1, Payload::Omitted)) > 0);
    assert_eq!(parts(table.ask(0, 1, Payload::Omitted)), 0, "the window is full");
}

#[test]
fn a_client_that_locates_is_granted_the_slots_in_use_as_well() {
    let mut table = Table::new();
    for slot in 0..3 {
        table.request(slot, u64::from(slot) + 1);
    }
    let working = table.request(0, 1);
    let here = table.say(&Frame::LocatePort { nonce: 2, port: table.port, key: key_of(Uid(9)) });
    let ([Frame::Working { grant, .. }], [Frame::PortHere(here)]) = (&working[..], &here[..]) else {
        panic!("{working:?}, {here:?}");
    };
    assert_eq!(here.grant, *grant);
}

#[test]
fn an_answer_goes_to_the_attempt_that_it_was_given_for_or_to_none() {
    let mut table = Table::new();
    table.request(0, 1);
    let (_, first) = table.take().unwrap();
    table.request(0, 2);
    let (_, second) = table.take().unwrap();
    assert_eq!(table.reply(first, "one"), Err(AnswerError::Over), "superseded");
    assert!(is_working(&table.request(0, 2)));
    table.reply(second, "two").unwrap();
    table.request(1, 3);
    let (_, third) = table.take().unwrap();
    for answered in [first, second] {
        assert_eq!(table.reply(answered, "again"), Err(AnswerError::Over));
        let passed_on = table.world.host(1).endpoint.forward(answered, address(2));
        assert_eq!(passed_on, Err(ForwardError::Over));
    }
    assert!(is_working(&table.request(1, 3)));
    table.reply(third, "three").unwrap();
    assert!(is_reply(&table.request(0, 2), "two"));
    assert!(is_reply(&table.request(1, 3), "three"));
}

#[test]
fn a_request_that_supersedes_one_that_waits_is_answered_itself() {
    let mut table = Table::new();
    table.request(0, 1);
    table.request(0, 2);
    assert!(table.request(0, 1).is_empty(), "a lower number is dropped");
    let (call, id) = table.take().unwrap();
    assert_eq!((call, table.take()), (2, None));
    table.reply(id, "two").unwrap();
    assert!(is_reply(&table.request(0, 2), "two"));
}

#[test]
fn a_question_about_a_request_that_never_came_is_answered_lost() {
    let mut table = Table::new();
    table.request(0, 1);
    assert!(is_rejected(&table.ask(1, 2, Payload::Omitted), Rejection::Lost));
    assert!(is_rejected(&table.request(1, 2), Rejection::Lost), "it is not executed later either");
    table.world.run(Duration::from_secs(1));
    assert_eq!(table.take().map(|(call, _)| call), Some(1));
    assert_eq!(table.take(), None);
}

#[test]
fn a_request_that_is_incomplete_when_its_service_ends_is_rejected() {
    let mut table = Table::new();
    table.ask(0, 1, Payload::Parts { total: 600, part: 300 });
    let port = table.port;
    table.world.host(1).endpoint.withdraw(port);
    assert!(is_rejected(&table.request(0, 1), Rejection::NotServed));
    let account = table.world.host(1).endpoint.account();
    assert_eq!((account.receiving_bytes, account.pending), (0, 0));
}

#[test]
fn a_reply_that_is_not_kept_is_said_to_be_lost() {
    let mut table = Table::new();
    for slot in 0..5 {
        table.request(slot, u64::from(slot) + 1);
        let ((_, id), now) = (table.take().unwrap(), table.world.now);
        table.world.host(1).endpoint.reply(now, id, vec![0; CALL_BYTES_MAX].into()).unwrap();
        table.world.now = now + Duration::from_secs(1);
    }
    assert_eq!(
        table.world.host(1).endpoint.account().kept_bytes,
        4 * CALL_BYTES_MAX,
        "all but the oldest are kept"
    );
    let news = table.request(0, 1);
    let is_lost = |frame: &Frame| {
        let Frame::Reject { attempt, reason, .. } = frame else { return false };
        (attempt.slot, attempt.number, *reason) == (0, 1, Rejection::Lost)
    };
    assert!(news.iter().any(is_lost), "{news:?}");
    assert_eq!(table.take(), None);
}
