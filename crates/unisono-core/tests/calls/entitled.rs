//! Addresses that have shown a right have room, whatever the others take; and a newcomer can show its right.

use crate::strangers::*;
use crate::trickle::{Trickler, is_busy};
use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::Payload;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// Asks in this slot, and returns whether the server has one for it.
fn has_slot(world: &mut World, port: Port, client: &mut Trickler, slot: usize, number: u64) -> bool {
    !is_busy(&client.request(world, port, (slot as u16, number), Payload::Omitted))
}

/// Lets sessions at 60 addresses take all slots that they can get, and returns how many those are.
fn take_slots(world: &mut World, port: Port) -> usize {
    let mut taken = 0;
    for address in 20..80 {
        let mut uid = address;
        loop {
            let mut client = Trickler::new(world, port, uid);
            let (mut slots, mut more, mut number) = (0, 128, 1);
            while more > 0 && slots < 1024 {
                match has_slot(world, port, &mut client, slots + more - 1, number) {
                    true => slots += more,
                    false => more /= 2,
                }
                number += 1;
            }
            taken += slots;
            // A client with the same address.
            uid += 256;
            if slots < 1024 {
                break;
            }
        }
    }
    taken
}

#[test]
fn addresses_that_have_shown_no_right_have_half_of_the_slots_together() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 2000, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    call_answered(&mut world, port, replies);
    // They are no strangers while no address asks that has shown a right.
    world.run(2 * SECONDS);
    let has = world.host(1).endpoint.account().slots;
    let taken = take_slots(&mut world, port);
    // Each last session has its first two slots.
    assert!((1 << 17..(1 << 17) + 120).contains(&taken), "{taken}");
    assert_eq!(world.host(1).endpoint.account().slots, has + taken);
    // A newcomer can show its right, and has more then.
    let mut newcomer = Trickler::new(&mut world, port, 100);
    assert!(!has_slot(&mut world, port, &mut newcomer, 2, 1));
    newcomer.request(&mut world, port, (1, 2), Payload::Whole("mine".into()));
    let request = world.take(1).unwrap();
    world.reply(1, request.id, b"yours").unwrap();
    assert!(has_slot(&mut world, port, &mut newcomer, 100, 3));
    let calls: Vec<_> = (0..500).map(|_| world.call(2, port, b"mine", 1000 * SECONDS)).collect();
    world.run(100 * MS);
    assert_eq!(world.host(1).endpoint.requests_waiting(port), calls.len());
    assert_eq!(world.host(2).endpoint.counters().pushed_back, 0);
}

/// Its session lasts, because the server has a request of it.
#[test]
fn an_address_whose_last_right_was_shown_long_ago_is_like_one_that_has_shown_none() {
    for (after, is_refused) in [(30 * SECONDS, false), (150 * SECONDS, true)] {
        let mut world = World::new();
        let port = world.start(1).endpoint.serve(PRIVATE, ServeOptions::default()).unwrap();
        world.start(2);
        call_answered(&mut world, port, replies);
        world.call(2, port, b"held", 1000 * SECONDS);
        world.run(after);
        let held = world.take(1).unwrap();
        take_slots(&mut world, port);
        (0..10).for_each(|_| _ = world.call(2, port, b"mine", 1000 * SECONDS));
        world.run(100 * MS);
        assert_eq!(world.host(2).endpoint.counters().pushed_back > 0, is_refused);
        world.reply(1, held.id, b"yours").unwrap();
        world.run(1000 * MS);
        assert_eq!(world.host(1).endpoint.requests_waiting(port), 10, "it has shown one again");
    }
}

#[test]
fn large_requests_of_an_address_that_has_shown_a_right_share_with_those_of_its_like_alone() {
    let (mut world, port) = looking();
    fill(&mut world, port);
    let small = world.call(2, port, b"mine", 10 * SECONDS);
    let (asked, now) = (next_of(&mut world, 2), world.now);
    replies(&mut world.host(1).endpoint, now, asked.id);
    assert!(world.wait(2, small).1.is_ok());
    let large = vec![5; 1 << 20];
    let calls: Vec<_> = (0..24).map(|_| world.call(2, port, &large, 10 * SECONDS)).collect();
    let mut whole = 0;
    while whole < calls.len() {
        let (request, now) = (next_of(&mut world, 2), world.now);
        match request.whole_bytes {
            Some(_) => world.host(1).endpoint.go_on(now, request.id, true),
            None => whole += 1,
        }
    }
    assert_eq!(world.host(2).endpoint.counters().pushed_back, 0);
    assert_eq!(world.host(1).endpoint.account().taken_bytes, 24 << 20, "none of them is answered yet");
}

#[test]
fn incomplete_requests_of_an_address_that_has_shown_a_right_find_places_though_others_have_all() {
    let (mut world, port, mut others) = twenty_strangers();
    world.run(2 * SECONDS);
    others.iter_mut().for_each(|one| _ = begin(&mut world, port, one, 64));
    assert_eq!(world.host(1).endpoint.account().pending, 64);
    // Those that give way are listed every 50 ms.
    world.run(60 * MS);
    (0..16).for_each(|_| _ = world.call(2, port, &[5; 1 << 20], 10 * SECONDS));
    world.run(100 * MS);
    assert_eq!(world.host(2).endpoint.counters().pushed_back, 0);
    assert_eq!(world.host(1).endpoint.requests_waiting(port), 16);
}

#[test]
fn whole_requests_of_strangers_take_half_of_the_bytes_at_most() {
    let (mut world, port, mut strangers) = twenty_strangers();
    let large = Payload::Parts { total: 16 << 20, part: 60_000 };
    let mut taken = 0;
    for stranger in &mut strangers[..3] {
        let is_taken = !is_busy(&stranger.request(&mut world, port, (0, 1), large.clone()));
        taken += usize::from(is_taken && !is_busy(&stranger.sends(&mut world, 0, 16 << 20, 60_000)));
    }
    assert_eq!(taken, 2);
    assert_eq!(world.host(1).endpoint.account().taken_bytes, 32 << 20);
    (0..2).for_each(|_| _ = world.call(2, port, &vec![5; 16 << 20], 10 * SECONDS));
    world.run(SECONDS);
    assert_eq!(world.host(1).endpoint.account().taken_bytes, 64 << 20);
}

/// An upload of an address that has shown a right takes four minutes. Strangers want the room that it has.
#[test]
fn slow_requests_of_an_address_that_has_shown_a_right_give_way_to_no_stranger() {
    let mut world = World::new();
    let port = world.start(1).endpoint.serve(PRIVATE, ServeOptions::default()).unwrap();
    let mut slow: Vec<_> = (20..22).map(|uid| Trickler::new(&mut world, port, uid)).collect();
    for (one, requests) in slow.iter_mut().zip([2, 1]) {
        one.request(&mut world, port, (9, 1), Payload::Whole("mine".into()));
        let request = world.take(1).unwrap();
        world.reply(1, request.id, b"yours").unwrap();
        for slot in 0..requests {
            one.announce(&mut world, port, slot, 16 << 20);
            assert!(!is_busy(&one.part(&mut world, slot, 0)));
        }
    }
    world.run(2 * SECONDS);
    let mut stranger = Trickler::new(&mut world, port, 30);
    stranger.announce(&mut world, port, 0, 16 << 20);
    assert!(is_busy(&stranger.part(&mut world, 0, 0)));
    assert!((0..2).all(|slot| !is_busy(&slow[0].part(&mut world, slot, 1))));
    assert!(!is_busy(&slow[1].part(&mut world, 0, 1)));
}

/// The application does not look at a request of few parts: that it may come as a whole shows nothing.
#[test]
fn the_first_parts_of_a_short_request_entitle_no_address() {
    let (mut world, port) = looking();
    let mut stranger = Trickler::new(&mut world, port, 20);
    assert!(!is_busy(&stranger.announce(&mut world, port, 0, 10_000)));
    (0..3).for_each(|index| _ = stranger.part(&mut world, 0, index));
    call_answered(&mut world, port, replies);
    assert!(!is_busy(&stranger.request(&mut world, port, (1, 1), Payload::Whole("small".into()))));
    assert!(world.take(1).unwrap().is_stranger);
}

#[test]
fn an_address_that_has_shown_a_right_has_many_calls_under_way_beside_many_others() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 1000, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    call_answered(&mut world, port, replies);
    world.run(2 * SECONDS);
    for uid in 20..220 {
        let mut other = Trickler::new(&mut world, port, uid);
        begin(&mut world, port, &mut other, 1);
    }
    assert_eq!(world.host(1).endpoint.account().pending, 200);
    call_answered(&mut world, port, replies);
    let calls: Vec<_> = (0..200).map(|_| world.call(2, port, b"mine", 10 * SECONDS)).collect();
    world.run(5 * MS);
    assert_eq!(world.host(1).endpoint.requests_waiting(port), calls.len());
}

#[test]
fn a_large_request_whose_beginning_showed_a_right_is_of_no_stranger() {
    let (mut world, port) = looking();
    world.call(ELSEWHERE, port, &vec![5; 1 << 20], 10 * SECONDS);
    let (beginning, now) = (next_of(&mut world, ELSEWHERE), world.now);
    assert!(beginning.is_stranger && beginning.whole_bytes.is_some());
    world.host(1).endpoint.go_on(now, beginning.id, true);
    let whole = next_of(&mut world, ELSEWHERE);
    assert!(whole.whole_bytes.is_none() && !whole.is_stranger);
}
