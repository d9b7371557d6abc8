//! Large requests that are announced and do not come, or hardly: they keep no others out.

use crate::world::*;
use bytes::BytesMut;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Attempt, Cookie, Frame, Part, Payload, Rejection, Unopened, Unreadable};
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
/// Host 1.
pub(crate) const SERVER: Uid = Uid(1001);
const SECONDS: Duration = Duration::from_secs(1);
const MIB: usize = 1 << 20;
const PART: u16 = 1024;

/// A client at an address of its own whose frames the test writes by hand.
pub(crate) struct Trickler {
    uid: u64,
    sent: u64,
    cookie: Option<Cookie>,
}

impl Trickler {
    /// Lets a client get a cookie.
    pub(crate) fn new(world: &mut World, port: Port, uid: u64) -> Trickler {
        // The server agrees on keys with one client each millisecond.
        world.run(MS);
        let mut trickler = Trickler { uid, sent: 0, cookie: None };
        let frames = trickler.announce(world, port, 0, MIB);
        trickler.cookie = frames.into_iter().find_map(|frame| match frame {
            Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(cookie), .. }) => Some(cookie),
            _ => None,
        });
        assert!(trickler.cookie.is_some());
        trickler
    }

    /// Returns what host 1 answers to a frame at once.
    pub(crate) fn say(&mut self, world: &mut World, frame: Frame) -> Vec<Frame> {
        self.sent += 1;
        let from = SocketAddr::from(([10, 0, 1, self.uid as u8], 7));
        let datagram =
            sealed_frame(self.uid, self.sent, Said { frame, cookie: self.cookie, sealed_by: None });
        let now = world.now;
        let endpoint = &mut world.host(1).endpoint;
        endpoint.handle_datagram(now, from, BytesMut::from(&datagram[..]));
        let (mut out, mut frames) = (Vec::new(), Vec::new());
        while let Some(to) = endpoint.poll_transmit(now, &mut out) {
            if to.address() == Some(from) {
                frames.extend(frames_of(&out));
            }
        }
        frames
    }

    pub(crate) fn announce(&mut self, world: &mut World, port: Port, slot: u16, total: usize) -> Vec<Frame> {
        self.request(world, port, (slot, 1), Payload::Parts { total: total as u32, part: PART })
    }

    /// Sends the request with this number in a slot.
    pub(crate) fn request(
        &mut self,
        world: &mut World,
        port: Port,
        (slot, number): (u16, u64),
        payload: Payload,
    ) -> Vec<Frame> {
        let request = wire::Request {
            attempt: Attempt { to: SERVER, slot, number },
            call: 1,
            finished_below: 1,
            port,
            instance: 0,
            hops: 0,
            again: false,
            left_ms: 60_000,
            wishes: None,
            payload,
        };
        self.say(world, Frame::Request(request))
    }

    /// Sends all parts of a request, and returns what host 1 answers.
    pub(crate) fn sends(&mut self, world: &mut World, slot: u16, total: usize, part: usize) -> Vec<Frame> {
        let attempt = Attempt { to: SERVER, slot, number: 1 };
        let parts = vec![7; total];
        let frames = parts.chunks(part).enumerate().flat_map(|(index, bytes)| {
            let bytes = bytes.to_vec().into();
            self.say(world, Frame::Part(Part { attempt, reply: false, index: index as u16, bytes }))
        });
        frames.collect()
    }

    pub(crate) fn part(&mut self, world: &mut World, slot: u16, index: u16) -> Vec<Frame> {
        let attempt = Attempt { to: SERVER, slot, number: 1 };
        let bytes = vec![7; usize::from(PART)].into();
        self.say(world, Frame::Part(Part { attempt, reply: false, index, bytes }))
    }
}

pub(crate) fn is_busy(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| matches!(frame, Frame::Reject { reason: Rejection::Busy, .. }))
}

/// Returns how long a call with the largest request takes.
fn took(world: &mut World, port: Port) -> Duration {
    world.start(ELSEWHERE);
    let call = world.call(ELSEWHERE, port, &vec![5; 16 * MIB], 60 * SECONDS);
    let (took, outcome) = world.wait(ELSEWHERE, call);
    assert!(outcome.is_ok());
    took
}

#[test]
fn what_is_announced_and_does_not_begin_takes_nothing_and_is_given_up() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let mut all: Vec<_> = (20..32).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for one in &mut all {
        for slot in 0..4 {
            one.announce(&mut world, port, slot, 16 * MIB);
            assert!(!is_busy(&one.part(&mut world, slot, 1)));
            assert!(!is_busy(&one.part(&mut world, slot, 15)));
        }
    }
    let few = 12 * 4 * 16 * usize::from(PART);
    assert_eq!(world.host(1).endpoint.account().receiving_bytes, few);
    // What goes only after the first parts have been heard of is not kept before the very first.
    all[0].part(&mut world, 0, 16);
    assert_eq!(world.host(1).endpoint.account().receiving_bytes, few);
    world.run(MS * 100);
    assert!(took(&mut world, port) < MS * 100);
    world.run(MS * 250);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.receiving_bytes, account.pending), (0, 0));
    assert!(is_busy(&all[0].part(&mut world, 0, 0)));
}

#[test]
fn what_the_application_has_not_let_on_counts_as_it_comes() {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let mut one = Trickler::new(&mut world, port, 20);
    one.announce(&mut world, port, 0, 16 * MIB);
    let bytes = |world: &mut World| world.host(1).endpoint.account().receiving_bytes;
    (0..3).for_each(|index| _ = one.part(&mut world, 0, index));
    assert_eq!(bytes(&mut world), 3 * usize::from(PART));
    let beginning = world.take(1).unwrap();
    let now = world.now;
    world.host(1).endpoint.go_on(now, beginning.id, true);
    one.part(&mut world, 0, 3);
    assert_eq!(bytes(&mut world), 16 * MIB);
    one.say(&mut world, Frame::Cancel { attempt: Attempt { to: SERVER, slot: 0, number: 1 } });
    assert_eq!(bytes(&mut world), 0);
}

#[test]
fn what_shows_no_right_counts_as_it_comes_though_it_may_come() {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    // Each with the beginning of 16 MiB.
    let mut begin = |uid: usize, shows_right: bool| {
        let mut one = Trickler::new(&mut world, port, uid as u64);
        one.announce(&mut world, port, 0, 16 * MIB);
        one.part(&mut world, 0, 0);
        let beginning = world.take(1).unwrap();
        let now = world.now;
        world.host(1).endpoint.go_on(now, beginning.id, shows_right);
        let is_taken = !is_busy(&one.part(&mut world, 0, 1));
        let account = world.host(1).endpoint.account();
        (is_taken, account.receiving_bytes, account.in_hand)
    };
    for count in 1..=12 {
        assert_eq!(begin(20 + count, false), (true, count * 2 * usize::from(PART), 0));
    }
    let shows_right = begin(40, true);
    assert_eq!(shows_right, (true, 16 * MIB + 12 * 2 * usize::from(PART), 0), "it has room beside them");
}

/// The memory of a request reaches to its last part that has come.
#[test]
fn few_parts_of_what_shows_no_right_take_no_room_for_many() {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let mut one = Trickler::new(&mut world, port, 20);
    one.announce(&mut world, port, 0, 16 * MIB);
    for (index, counted) in [(0, 1), (17, 1), (16, 17), (255, 17), (1, 17), (17, 18)] {
        assert!(!is_busy(&one.part(&mut world, 0, index)));
        let bytes = world.host(1).endpoint.account().receiving_bytes;
        assert_eq!(bytes, counted * usize::from(PART), "part {index}");
    }
}

/// Lets three addresses take 56 of 64 MiB, with a part of each request every 500 ms. Returns how long a call of another
/// address takes that begins after this time, and how often it was told to come again.
fn beside_trickling(after: Duration, parts: u16) -> (Duration, u64) {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let requests = [(20, 0, 16), (20, 1, 16), (21, 0, 16), (22, 0, 8)];
    let mut all: Vec<_> = (20..23).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for (uid, slot, mib) in requests {
        let one = &mut all[uid - 20];
        one.announce(&mut world, port, slot, mib * MIB);
        assert!(!is_busy(&one.part(&mut world, slot, 0)));
    }
    assert_eq!(world.host(1).endpoint.account().receiving_bytes, 56 * MIB);
    let mut next = 1;
    for _ in 0..after.as_millis() / 500 {
        world.run(MS * 500);
        for (uid, slot, _) in requests {
            (next..next + parts).for_each(|index| _ = all[uid - 20].part(&mut world, slot, index));
        }
        next += parts;
    }
    (took(&mut world, port), world.host(ELSEWHERE).endpoint.counters().pushed_back)
}

#[test]
fn a_request_of_which_little_comes_gives_way_to_that_of_an_address_that_has_less() {
    let (took, pushed_back) = beside_trickling(SECONDS * 3 / 2, 1);
    assert!(took < MS * 100 && pushed_back == 0, "{took:?}, {pushed_back}");
    let (took, pushed_back) = beside_trickling(SECONDS / 2, 1);
    assert!(
        (MS * 450..SECONDS).contains(&took) && pushed_back > 0,
        "they are young: {took:?}, {pushed_back}"
    );
}

#[test]
fn a_request_of_which_much_comes_gives_way_to_none() {
    let (took, pushed_back) = beside_trickling(SECONDS * 3 / 2, 60);
    assert!(took > SECONDS / 2 && pushed_back > 0, "{took:?}, {pushed_back}");
}

#[test]
fn short_requests_that_trickle_give_up_their_places() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 16, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.host(1).answers = Some(|request| request.payload.clone());
    // Half of the places are for requests that are incomplete.
    let mut all: Vec<_> = (20..28).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for one in &mut all {
        assert!(!is_busy(&one.announce(&mut world, port, 0, 16 * usize::from(PART))));
        one.part(&mut world, 0, 0);
    }
    let mut late = Trickler::new(&mut world, port, 28);
    assert!(is_busy(&late.announce(&mut world, port, 0, 16 * usize::from(PART))), "they are taken");
    for index in 1..=3 {
        world.run(500 * MS);
        all.iter_mut().for_each(|one| _ = one.part(&mut world, 0, index));
    }
    world.start(ELSEWHERE);
    let call = world.call(ELSEWHERE, port, &vec![5; 10 << 10], SECONDS);
    let (took, outcome) = world.wait(ELSEWHERE, call);
    assert!(outcome.is_ok() && took < 100 * MS, "{took:?} {outcome:?}");
    let busy = all.iter_mut().map(|one| is_busy(&one.part(&mut world, 0, 4))).filter(|busy| *busy).count();
    assert_eq!(busy, 1, "one gave way");
}
