//! Requests of addresses that have shown no right wait behind those of addresses that have, and few of them are taken.

use crate::trickle::{SERVER, Trickler, is_busy};
use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::Payload;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
/// Length of a large request.
const LARGE: usize = 100_000;

/// Returns a server, and its port.
fn server() -> (World, Port) {
    let mut world = World::new();
    let port = world.start(1).endpoint.serve(PRIVATE, ServeOptions::default()).unwrap();
    (world, port)
}

/// Lets host 2 call, and get this answer.
pub(crate) fn call_answered(world: &mut World, port: Port, answer: fn(&mut Endpoint, Time, RequestId)) {
    let call = world.call(2, port, b"mine", Duration::from_secs(10));
    world.run(MS);
    let (request, now) = (world.take(1).unwrap(), world.now);
    answer(&mut world.host(1).endpoint, now, request.id);
    assert!(world.wait(2, call).1.is_ok());
}

fn refuses(endpoint: &mut Endpoint, now: Time, id: RequestId) {
    endpoint.refuse(now, id, "no".into()).unwrap();
}

pub(crate) fn replies(endpoint: &mut Endpoint, now: Time, id: RequestId) {
    endpoint.reply(now, id, "yours".into()).unwrap();
}

fn denies(endpoint: &mut Endpoint, now: Time, id: RequestId) {
    endpoint.deny(now, id, "not yours".into()).unwrap();
}

/// Lets this many other addresses ask, and then host 2. Returns after how many of the others it has its turn, and whether the
/// service takes it for one that has shown no right.
fn turn_of_2(world: &mut World, port: Port, others: &mut [Trickler], number: u64) -> (usize, bool) {
    for other in others.iter_mut() {
        other.request(world, port, (0, number), Payload::Whole("worthless".into()));
    }
    world.call(2, port, b"mine", Duration::from_secs(10));
    world.run(MS);
    let client = world.host(2).endpoint.uid();
    let taken: Vec<Request> = std::iter::from_fn(|| world.take(1)).collect();
    let turn = taken.iter().position(|request| request.client == client).unwrap();
    let now = world.now;
    taken.iter().for_each(|request| refuses(&mut world.host(1).endpoint, now, request.id));
    (turn, taken[turn].is_stranger)
}

#[test]
fn an_address_that_has_shown_a_right_goes_before_others() {
    for (answer, expected) in [(replies as fn(&mut _, _, _), (0, false)), (denies, (20, true))] {
        let (mut world, port) = server();
        let mut others: Vec<_> = (20..40).map(|uid| Trickler::new(&mut world, port, uid)).collect();
        world.start(2);
        call_answered(&mut world, port, answer);
        assert_eq!(turn_of_2(&mut world, port, &mut others, 2), expected);
        // That it was denied something since takes nothing from it for a while.
        assert_eq!(turn_of_2(&mut world, port, &mut others, 3), expected);
        world.run(Duration::from_secs(130));
        let mut others: Vec<_> = (40..60).map(|uid| Trickler::new(&mut world, port, uid)).collect();
        assert_eq!(turn_of_2(&mut world, port, &mut others, 4), (20, true), "that was long ago");
    }
}

#[test]
fn few_strangers_are_taken_a_second_while_an_address_asks_that_has_shown_a_right() {
    for (answer, most) in [(replies as fn(&mut _, _, _), 64), (denies, 512)] {
        let (mut world, port) = server();
        let mut stranger = Trickler::new(&mut world, port, 20);
        world.start(2);
        call_answered(&mut world, port, answer);
        call_answered(&mut world, port, answer);
        let mut taken = 0;
        for slot in 0..512 {
            let answers = stranger.request(&mut world, port, (slot, 2), Payload::Whole("worthless".into()));
            taken += usize::from(!is_busy(&answers));
        }
        assert_eq!(taken, most);
        // Another one has its share.
        let mut newcomer = Trickler::new(&mut world, port, 21);
        assert!(!is_busy(&newcomer.request(&mut world, port, (0, 2), Payload::Whole("new".into()))));
        call_answered_in_turn(&mut world, port);
    }
}

/// Returns a service with 64 places, at which host 2 has shown a right and twenty other addresses have not.
pub(crate) fn twenty_strangers() -> (World, Port, Vec<Trickler>) {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 64, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let strangers = (20..40).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    world.start(2);
    call_answered(&mut world, port, replies);
    call_answered(&mut world, port, replies);
    (world, port, strangers)
}

#[test]
fn strangers_have_half_of_the_places_while_the_application_stands_still() {
    let (mut world, port, mut strangers) = twenty_strangers();
    let mut taken = 0;
    for slot in 0..4 {
        for stranger in &mut strangers {
            let answers = stranger.request(&mut world, port, (slot, 2), Payload::Whole("worthless".into()));
            taken += usize::from(!is_busy(&answers));
        }
    }
    assert_eq!(taken, 25, "the last of the 32 are for addresses that have none");
    let mut newcomer = Trickler::new(&mut world, port, 40);
    assert!(!is_busy(&newcomer.request(&mut world, port, (0, 2), Payload::Whole("new".into()))));
    let calls: Vec<_> = (0..40).map(|_| world.call(2, port, b"mine", Duration::from_secs(10))).collect();
    world.run(MS);
    assert_eq!(world.host(1).endpoint.requests_waiting(port), 26 + calls.len());
    // Their places are free again.
    call_answered_in_turn(&mut world, port);
    assert!(!is_busy(&strangers[0].request(&mut world, port, (0, 3), Payload::Whole("again".into()))));
}

/// Incomplete requests of strangers leave places to whole ones.
#[test]
fn strangers_that_begin_requests_and_never_go_on_do_not_keep_a_newcomer_out() {
    let (mut world, port, mut strangers) = twenty_strangers();
    let mut begun = 0;
    for stranger in &mut strangers {
        begun += usize::from(!is_busy(&stranger.announce(&mut world, port, 0, 10_000)));
        stranger.part(&mut world, 0, 0);
    }
    assert_eq!(begun, 16);
    let mut newcomer = Trickler::new(&mut world, port, 40);
    assert!(!is_busy(&newcomer.request(&mut world, port, (0, 2), Payload::Whole("new".into()))));
    // When they are given up, there is room again.
    world.run(Duration::from_secs(10));
    call_answered_in_turn(&mut world, port);
    assert!(!is_busy(&strangers[0].announce(&mut world, port, 1, 10_000)));
}

/// Lets a stranger begin this many requests. Returns how many it may.
pub(crate) fn begin(world: &mut World, port: Port, stranger: &mut Trickler, requests: u16) -> usize {
    let mut begun = 0;
    for slot in 0..requests {
        begun += usize::from(!is_busy(&stranger.announce(world, port, slot, LARGE)));
        stranger.part(world, slot, 0);
    }
    begun
}

/// Returns how many of the first requests of a stranger have given way or were not taken.
fn lost(world: &mut World, stranger: &mut Trickler, requests: u16) -> usize {
    (0..requests).filter(|slot| is_busy(&stranger.part(world, *slot, 1))).count()
}

#[test]
fn a_stranger_leaves_places_for_large_requests_of_others() {
    let (mut world, port, mut strangers) = twenty_strangers();
    assert_eq!(begin(&mut world, port, &mut strangers[0], 16), 8, "half of the 16 places");
    let mut newcomer = Trickler::new(&mut world, port, 40);
    assert_eq!(begin(&mut world, port, &mut newcomer, 1), 1);
    assert_eq!(lost(&mut world, &mut strangers[0], 8), 0, "there are others");
}

/// All are as young as can be.
#[test]
fn large_requests_of_a_stranger_that_has_many_give_way_to_the_first_of_others() {
    let (mut world, port, mut strangers) = twenty_strangers();
    let mut begun = vec![begin(&mut world, port, &mut strangers[0], 8)];
    begun.extend(strangers[1..].iter_mut().map(|one| begin(&mut world, port, one, 1)));
    // The last four find that each other one has one.
    assert_eq!(begun, [[8].as_slice(), &[1; 15], &[0; 4]].concat());
    assert_eq!(lost(&mut world, &mut strangers[0], 8), 7);
    for one in &mut strangers[1..16] {
        assert_eq!(lost(&mut world, one, 1), 0);
    }
}

#[test]
fn they_do_so_too_while_no_address_asks_that_has_shown_a_right() {
    let (mut world, port, mut others) = twenty_strangers();
    world.run(Duration::from_secs(2));
    others.iter_mut().for_each(|one| _ = begin(&mut world, port, one, 64));
    assert_eq!(world.host(1).endpoint.account().pending, 64, "all places");
    // Those that give way are listed every 50 ms.
    world.run(60 * MS);
    let mut newcomer = Trickler::new(&mut world, port, 40);
    assert_eq!(begin(&mut world, port, &mut newcomer, 3), 1);
}

#[test]
fn a_slow_request_of_a_stranger_gives_up_its_place_to_the_first_of_another_unless_it_shows_a_right() {
    for show_rights in [false, true] {
        let (mut world, port, mut strangers) = twenty_strangers();
        for one in &mut strangers[..16] {
            assert_eq!(begin(&mut world, port, one, 1), 1);
        }
        assert_eq!(begin(&mut world, port, &mut strangers[16], 1), 0, "they are young");
        for one in &mut strangers[..16 * usize::from(show_rights)] {
            one.request(&mut world, port, (1, 1), Payload::Whole("small".into()));
            call_answered_in_turn(&mut world, port);
        }
        for _ in 0..3 {
            world.run(500 * MS);
            call_answered_in_turn(&mut world, port);
        }
        let is_one_lost = usize::from(!show_rights);
        assert_eq!(begin(&mut world, port, &mut strangers[17], 1), is_one_lost);
        let lost: usize = strangers[..16].iter_mut().map(|one| lost(&mut world, one, 1)).sum();
        assert_eq!(lost, is_one_lost);
    }
}

/// Returns a service that looks at beginnings, at which host 2 has shown a right and [`ELSEWHERE`] has not.
pub(crate) fn looking() -> (World, Port) {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    world.start(ELSEWHERE);
    call_answered(&mut world, port, replies);
    (world, port)
}

/// A client that has shown no right begins a large request, and goes on with another one.
#[test]
fn a_beginning_that_is_let_on_for_a_right_entitles_its_address() {
    for shows_right in [true, false] {
        let (mut world, port) = looking();
        world.call(ELSEWHERE, port, &vec![5; 1 << 20], Duration::from_secs(60));
        let beginning = next_of(&mut world, ELSEWHERE);
        assert!(beginning.whole_bytes.is_some() && beginning.is_stranger);
        let now = world.now;
        world.host(1).endpoint.go_on(now, beginning.id, shows_right);
        world.call(ELSEWHERE, port, b"small", Duration::from_secs(60));
        let small = next_of(&mut world, ELSEWHERE);
        assert_eq!((small.whole_bytes, small.is_stranger), (None, !shows_right));
    }
}

/// Three addresses have taken 56 of the 64 MiB for large requests just now.
#[test]
fn large_requests_of_strangers_give_way_to_one_of_an_address_that_has_shown_a_right() {
    for (is_entitled, other_is) in [(true, false), (false, false), (false, true)] {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        let mut strangers: Vec<_> = (20..23).map(|uid| Trickler::new(&mut world, port, uid)).collect();
        world.start(2);
        world.start(ELSEWHERE);
        for (host, shows) in [(2, is_entitled), (ELSEWHERE, other_is)] {
            if shows {
                world.answered(host, port);
            }
        }
        world.run(Duration::from_secs(2));
        for (uid, slot, mib) in [(20, 0, 16), (20, 1, 16), (21, 0, 16), (22, 0, 8)] {
            let one: &mut Trickler = &mut strangers[uid - 20];
            one.announce(&mut world, port, slot, mib << 20);
            assert!(!is_busy(&one.part(&mut world, slot, 0)));
        }
        let call = world.call(2, port, &vec![5; 16 << 20], Duration::from_secs(60));
        let (took, outcome) = world.wait(2, call);
        assert!(outcome.is_ok());
        assert_eq!(
            took < 100 * MS && world.host(2).endpoint.counters().pushed_back == 0,
            is_entitled,
            "{took:?}"
        );
    }
}

/// Lets strangers send parts of large requests until no room is left for one more part. None of them shows a right.
pub(crate) fn fill(world: &mut World, port: Port) {
    const MOST: usize = 64 << 20;
    // They have half while an address asks that has shown one.
    world.run(Duration::from_secs(2));
    for uid in 20..120 {
        let taken = |world: &mut World| world.host(1).endpoint.account().receiving_bytes;
        let part = ((MOST - taken(world)) / 4).min(60_000);
        if part < 300 {
            return;
        }
        let mut one = Trickler::new(world, port, uid);
        let total = (part * 1_000).min(16 << 20);
        one.request(world, port, (0, 1), Payload::Parts { total: total as u32, part: part as u16 });
        for index in 0..total / part {
            let (all, own) = (taken(world), index * part);
            if all + part > MOST / 2 && own + part > (MOST - all) / 2 {
                break;
            }
            let attempt = wire::Attempt { to: SERVER, slot: 0, number: 1 };
            let bytes = vec![7; part].into();
            let part = wire::Part { attempt, reply: false, index: index as u16, bytes };
            assert!(!is_busy(&one.say(world, wire::Frame::Part(part))));
        }
    }
    panic!("room is left");
}

/// Returns the next request of this host, and lets all other large ones go on, without a right.
pub(crate) fn next_of(world: &mut World, host: u16) -> Request {
    let client = world.host(host).endpoint.uid();
    for _ in 0..1000 {
        world.run(MS / 10);
        while let Some(request) = world.take(1) {
            if request.client == client {
                return request;
            }
            let now = world.now;
            world.host(1).endpoint.go_on(now, request.id, false);
        }
    }
    panic!("no request within 100 ms");
}

/// At once if its address has shown a right, and otherwise as soon as requests of others are slow.
#[test]
fn a_large_request_is_looked_at_though_strangers_have_left_no_room() {
    for (host, after) in [(2, Duration::ZERO), (ELSEWHERE, 1100 * MS)] {
        let (mut world, port) = looking();
        fill(&mut world, port);
        world.run(after);
        if host == 2 {
            let small = world.call(2, port, b"mine", Duration::from_secs(10));
            let (asked, now) = (next_of(&mut world, 2), world.now);
            replies(&mut world.host(1).endpoint, now, asked.id);
            assert!(world.wait(2, small).1.is_ok());
        }
        world.call(host, port, &vec![5; LARGE], Duration::from_secs(10));
        let (beginning, now) = (next_of(&mut world, host), world.now);
        assert!(beginning.whole_bytes.is_some());
        world.host(1).endpoint.go_on(now, beginning.id, true);
        assert_eq!(next_of(&mut world, host).payload.len(), LARGE);
        assert_eq!(world.host(host).endpoint.counters().pushed_back, 0);
    }
}

/// Lives are free: many of them with one request each leave less than one place for each.
#[test]
fn a_client_whose_request_is_held_gets_on_beside_many_lives() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 200, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let mut lives: Vec<_> = (20..170).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for one in &mut lives {
        assert!(!is_busy(&one.announce(&mut world, port, 0, 10_000)));
        one.part(&mut world, 0, 0);
    }
    world.start(2);
    (0..2).for_each(|_| _ = world.call(2, port, b"mine", Duration::from_secs(10)));
    world.run(Duration::from_secs(1));
    assert_eq!(world.host(1).endpoint.requests_waiting(port), 2);
}

/// Lets host 2 call, and answers all requests.
pub(crate) fn call_answered_in_turn(world: &mut World, port: Port) {
    let call = world.call(2, port, b"mine", Duration::from_secs(10));
    world.run(MS);
    while let Some(request) = world.take(1) {
        let now = world.now;
        replies(&mut world.host(1).endpoint, now, request.id);
    }
    assert!(world.wait(2, call).1.is_ok());
}
