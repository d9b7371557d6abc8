//! Requests and replies larger than a datagram.

use crate::world::*;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Attempt, Frame, Got, Grant, Payload, Reply};

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);
const MIB: usize = 1 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

#[test]
fn sixteen_mebibytes_there_and_back() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let request = pattern(16 * MIB);
    let call = world.call(2, port, &request, 60 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert!(outcome.unwrap() == request);
    // 12,019 parts each way, 256 in each round trip when the window is open.
    assert!(took < Duration::from_millis(40), "{took:?}");
    for host in [1, 2] {
        assert_eq!(world.host(host).endpoint.counters().parts_resent, 0);
        assert!(world.datagrams(host) < 15_000, "few datagrams are acknowledgements");
    }
    world.run(SECONDS);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.receiving_bytes, account.kept_bytes), (0, 0), "nothing stays behind");
}

/// Has a server look at the beginning of a request of 1 MiB and do something with it. Returns the world after that.
fn looked_at(what: impl FnOnce(&mut World, RequestId)) -> (World, CallNumber) {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    let request = pattern(MIB);
    let call = world.call(2, port, &request, 60 * SECONDS);
    let mut steps = 0..1000;
    let beginning = loop {
        steps.next().expect("the beginning within a second");
        world.run(MS / 10);
        if let Some(beginning) = world.take(1) {
            break beginning;
        }
    };
    assert_eq!(beginning.whole_bytes, Some(MIB));
    assert!((1000..1500).contains(&beginning.payload.len()) && request.starts_with(&beginning.payload));
    assert_eq!(world.host(1).endpoint.requests_in_hand(port), 0, "it is no request yet");
    what(&mut world, beginning.id);
    (world, call)
}

#[test]
fn a_large_request_that_is_refused_by_its_beginning_does_not_travel() {
    let (mut world, call) = looked_at(|world, id| world.reply(1, id, b"not yours").unwrap());
    assert_eq!(world.wait(2, call).1.unwrap(), "not yours");
    assert!(world.datagrams(2) < 200, "{} of some 750 parts", world.datagrams(2));
    world.run(SECONDS);
    assert_eq!(world.take(1).map(|request| request.id), None);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.receiving_bytes, account.pending, account.in_hand), (0, 0, 0));
}

#[test]
fn a_large_request_whose_beginning_is_let_through_comes_once_it_is_whole() {
    for shows_right in [true, false] {
        let (mut world, call) = looked_at(|world, id| {
            let now = world.now;
            world.host(1).endpoint.go_on(now, id, shows_right);
            assert_eq!(world.reply(1, id, b"too late"), Err(AnswerError::Over));
        });
        world.run(SECONDS);
        let whole = world.take(1).expect("the whole request");
        assert_eq!((whole.whole_bytes, whole.payload.len()), (None, MIB));
        world.reply(1, whole.id, b"done").unwrap();
        assert_eq!(world.wait(2, call).1.unwrap(), "done");
    }
}

#[test]
fn a_word_on_a_beginning_changes_nothing_once_the_request_is_whole() {
    let mut looked = None;
    let (mut world, call) = looked_at(|_, id| looked = Some(id));
    world.run(SECONDS);
    assert_eq!(world.reply(1, looked.unwrap(), b"not yours"), Err(AnswerError::Over));
    let whole = world.take(1).expect("the whole request");
    world.reply(1, whole.id, b"done").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "done");
    assert_eq!(world.host(1).endpoint.account().in_hand, 0);
}

#[test]
fn beginnings_and_whole_requests_take_turns() {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    [2, 3].iter().for_each(|host| _ = world.start(*host));
    for _ in 0..4 {
        world.call(2, port, &pattern(MIB), 60 * SECONDS);
        world.call(3, port, b"small", 60 * SECONDS);
    }
    // The network is so fast that the large requests are whole soon.
    let mut steps = 0..1000;
    while world.host(1).endpoint.account().pending < 8 {
        steps.next().expect("all requests are there within a second");
        world.run(MS / 10);
    }
    let taken: Vec<bool> =
        std::iter::from_fn(|| world.take(1)).map(|request| request.whole_bytes.is_some()).collect();
    let of_each = taken.iter().filter(|is_beginning| **is_beginning).count().min(4);
    assert!(of_each > 1, "{taken:?}");
    let turns: Vec<bool> = [true, false].into_iter().cycle().take(2 * of_each).collect();
    assert_eq!(taken[..2 * of_each], turns);
}

#[test]
fn beginnings_of_one_address_are_looked_at_a_thousand_times_a_second_at_most() {
    let mut world = World::new();
    let options = ServeOptions { looks_at_beginnings: true, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    let request = pattern(100 << 10);
    let (mut looked, mut begun) = (0, Duration::ZERO);
    (0..200).for_each(|_| _ = world.call(2, port, &request, 60 * SECONDS));
    while begun < 30 * MS {
        world.run(MS / 10);
        begun += MS / 10;
        while let Some(request) = world.take(1) {
            looked += usize::from(request.whole_bytes.is_some());
            world.reply(1, request.id, b"refused").unwrap();
        }
    }
    assert!((60..=64 + 30).contains(&looked), "{looked}: half of a burst of 128, and one each millisecond");
}

#[test]
fn clients_at_one_address_have_a_quarter_of_the_room_for_large_requests_once_half_is_used() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 100, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    world.start(ELSEWHERE);
    let request = pattern(16 * MIB);
    let mut calls: Vec<_> = (0..4).map(|_| (2, world.call(2, port, &request, 60 * SECONDS))).collect();
    world.run(SECONDS);
    assert_eq!(
        world.host(1).endpoint.account().taken_bytes,
        32 * MIB,
        "two wait, the others were pushed back"
    );
    calls.push((ELSEWHERE, world.call(ELSEWHERE, port, &request, 60 * SECONDS)));
    world.run(SECONDS);
    assert_eq!(
        world.host(1).endpoint.account().taken_bytes,
        48 * MIB,
        "another address has a share of its own"
    );
    world.host(1).answers = Some(|_| Bytes::new());
    for (host, call) in calls {
        assert!(world.wait(host, call).1.is_ok());
    }
    assert_eq!(world.host(1).endpoint.account().taken_bytes, 0);
}

#[test]
fn large_messages_come_through_a_bad_network() {
    for size in [1400, 1417, 30_000, MIB + 1] {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        world.start(2);
        world.fate = bad_network(size as u64);
        let request = pattern(size);
        let call = world.call(2, port, &request, 60 * SECONDS);
        let (took, outcome) = world.wait(2, call);
        assert!(outcome.unwrap() == request, "{size} bytes");
        assert!(took < 20 * SECONDS, "{size} bytes took {took:?}");
        assert_eq!(world.host(1).requests.len(), 1);
    }
}

#[test]
fn what_is_lost_costs_little_more_than_itself() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let mut parts = 0;
    world.fate = Box::new(move |from, _, _, datagram| {
        let is_part = from == 2 && datagram.len() > 1300;
        parts += u64::from(is_part);
        if is_part && parts % 100 == 0 { vec![] } else { vec![Duration::ZERO] }
    });
    let request = pattern(4 * MIB);
    let call = world.call(2, port, &request, 60 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert!(outcome.unwrap() == request);
    let resent = world.host(2).endpoint.counters().parts_resent;
    assert!((15..60).contains(&resent), "3,005 parts, about 30 of them lost: {resent} sent again");
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_lost_part_is_sent_again_when_later_ones_have_arrived() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let mut parts = 0;
    world.fate = Box::new(move |from, _, _, datagram| {
        parts += u64::from(from == 2 && datagram.len() > 1300);
        if from == 2 && datagram.len() > 1300 && parts == 5 { vec![] } else { vec![Duration::ZERO] }
    });
    let request = pattern(60_000);
    let call = world.call(2, port, &request, SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert!(outcome.unwrap() == request);
    assert!(took < MS * 4, "before the resend time-out: {took:?}");
}

#[test]
fn a_small_call_overtakes_a_large_one() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    let now = world.now;
    let endpoint = &mut world.host(2).endpoint;
    endpoint.call(now, port, pattern(MIB).into(), SECONDS).unwrap();
    let mut out = Vec::new();
    for _ in 0..5 {
        endpoint.poll_transmit(now, &mut out).unwrap();
    }
    assert!(out.len() > 1400, "parts are under way");
    endpoint.call(now, port, Bytes::from_static(b"small"), SECONDS).unwrap();
    endpoint.poll_transmit(now, &mut out).unwrap();
    assert!(out.windows(5).any(|window| window == b"small"));
}

#[test]
fn incomplete_requests_are_bounded_and_each_client_has_its_turn() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let calls: Vec<_> = (10..16)
        .map(|host| {
            world.start(host);
            (host, world.call(host, port, &pattern(16 * MIB), 60 * SECONDS))
        })
        .collect();
    let mut most = 0;
    while calls.iter().any(|(host, call)| world.outcome(*host, *call).is_none()) {
        assert!(world.step());
        most = most.max(world.host(1).endpoint.account().receiving_bytes);
    }
    assert_eq!(most, 32 * MIB, "half of the room for clients at one address");
    for (host, call) in calls {
        assert!(world.outcome(host, call).unwrap().is_ok());
    }
    assert!(world.host(1).endpoint.counters().rejected > 0, "some requests were rejected as busy");
}

#[test]
fn a_request_beyond_the_maximum_of_its_port_is_refused_at_its_first_part() {
    let mut world = World::new();
    let options = ServeOptions { request_bytes_max: 4096, ..ServeOptions::default() };
    world.start(1).answers = Some(|request| request.payload.clone());
    let port = world.host(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    let fits = world.call(2, port, &pattern(4096), SECONDS);
    let is_longer = world.call(2, port, &pattern(4097), SECONDS);
    let reason = b"a request for this port has at most 4096 bytes; nothing happened";
    assert_eq!(world.wait(2, is_longer).1, Err(CallFailure::Refused(Bytes::from_static(reason))));
    assert!(world.wait(2, fits).1.is_ok());
    let account = world.host(1).endpoint.account();
    assert_eq!((world.host(1).requests.len(), account.receiving_bytes, account.pending), (1, 0, 0));
}

#[test]
fn requests_that_wait_and_those_that_the_application_has_count_too() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    let calls: Vec<_> = (10..16)
        .map(|host| {
            world.start(host);
            (host, world.call(host, port, &pattern(16 * MIB), 60 * SECONDS))
        })
        .collect();
    world.run(5 * SECONDS);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.queued, account.receiving_bytes, account.taken_bytes), (2, 0, 32 * MIB));
    let now = world.now;
    let endpoint = &mut world.host(1).endpoint;
    let taken: Vec<_> = std::iter::from_fn(|| endpoint.poll_request(now)).collect();
    world.run(5 * SECONDS);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.in_hand, account.receiving_bytes, account.taken_bytes), (2, 0, 32 * MIB));
    // Small ones are taken all the same, and what is answered makes room.
    world.start(2);
    world.host(1).answers = Some(|request| request.payload.clone());
    let small = world.call(2, port, b"small", SECONDS);
    assert!(world.wait(2, small).1.is_ok());
    for request in taken {
        let now = world.now;
        world.host(1).endpoint.reply(now, request.id, request.payload).unwrap();
    }
    for (host, call) in calls {
        assert!(world.wait(host, call).1.is_ok(), "{host}");
    }
    world.run(SECONDS);
    assert_eq!(world.host(1).endpoint.account().taken_bytes, 0);
}

#[test]
fn a_client_that_dies_while_it_sends_is_forgotten() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.call(2, port, &pattern(MIB), 60 * SECONDS);
    world.run(MS / 2);
    assert_eq!(world.host(1).endpoint.account().receiving_bytes, MIB);
    world.hosts.remove(&2);
    world.run(10 * SECONDS);
    let account = world.host(1).endpoint.account();
    assert_eq!((account.receiving_bytes, account.pending), (0, 0));
}

#[test]
fn replies_are_kept_within_bounds_and_what_is_dropped_is_said_to_be_lost() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| BytesMut::zeroed(16 << 20).freeze());
    // The announcements of the replies arrive, their parts do not.
    let calls: Vec<_> = (10..16)
        .map(|host| {
            world.start(host);
            world.run(MS);
            (host, world.call(host, port, b"much", 60 * SECONDS))
        })
        .collect();
    world.fate = Box::new(
        |from, _, _, datagram| {
            if from == 1 && datagram.len() > 1300 { vec![] } else { vec![Duration::ZERO] }
        },
    );
    world.run(SECONDS);
    assert!(world.host(1).endpoint.account().kept_bytes <= 64 * MIB);
    assert!(world.host(1).endpoint.counters().replies_dropped > 0);
    world.all_arrives();
    let outcomes: Vec<_> = calls.iter().map(|(host, call)| world.wait(*host, *call).1).collect();
    assert_eq!(outcomes[0], Err(CallFailure::Unknown), "the oldest");
    assert!(outcomes[5].is_ok(), "the youngest");
    let executed = world.host(1).requests.len();
    assert_eq!(executed, 6, "none was executed again");
}

#[test]
fn a_client_that_acknowledges_nothing_loses_its_own_replies() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| BytesMut::zeroed(9 << 20).freeze());
    world.start(3);
    world.start(2);
    world.fate = Box::new(
        |from, _, _, datagram| {
            if from == 1 && datagram.len() > 1300 { vec![] } else { vec![Duration::ZERO] }
        },
    );
    let honest = world.call(3, port, b"much", 60 * SECONDS);
    world.run(100 * MS);
    let greedy: Vec<_> = (0..9).map(|_| world.call(2, port, b"more", 60 * SECONDS)).collect();
    world.run(SECONDS);
    assert!(world.host(1).endpoint.counters().replies_dropped > 0);
    world.all_arrives();
    assert!(world.wait(3, honest).1.is_ok(), "it is the oldest of all");
    let outcomes: Vec<_> = greedy.iter().map(|call| world.wait(2, *call).1).collect();
    assert!(outcomes.contains(&Err(CallFailure::Unknown)));
    assert!(outcomes.iter().any(Result::is_ok), "the last ones");
}

#[test]
fn large_replies_whose_parts_are_under_way_are_looked_at_only_in_time() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| BytesMut::zeroed(MIB).freeze());
    let calls: Vec<_> = (10..30)
        .map(|host| {
            world.start(host);
            (host, world.call(host, port, b"much", 60 * SECONDS))
        })
        .collect();
    world.fate = Box::new(
        |from, _, _, datagram| {
            if from == 1 && datagram.len() > 1300 { vec![] } else { vec![Duration::ZERO] }
        },
    );
    let mut resent = 0;
    for _ in 0..10 {
        world.run(100 * MS);
        let host = world.host(1);
        assert_eq!((host.endpoint.account().sending, host.endpoint.account().kept_bytes), (0, 20 * MIB));
        resent = host.endpoint.counters().parts_resent;
    }
    assert!(resent > 0, "lost parts go again");
    world.all_arrives();
    for (host, call) in calls {
        assert!(world.wait(host, call).1.is_ok());
    }
}

#[test]
fn more_large_replies_than_a_datagram_announces_are_all_sent() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let calls: Vec<_> = (0..100).map(|_| world.call(2, port, b"much", 5 * SECONDS)).collect();
    world.run(10 * MS);
    let requests: Vec<_> = std::iter::from_fn(|| world.take(1)).collect();
    assert_eq!(requests.len(), calls.len());
    // All are there before the first datagram with answers goes.
    let now = world.now;
    for request in requests {
        world.host(1).endpoint.reply(now, request.id, pattern(2048).into()).unwrap();
    }
    world.drain(1);
    for call in calls {
        assert_eq!(world.wait(2, call).1.map(|reply| reply.len()), Ok(2048));
    }
}

/// A tenth of the datagrams is lost, a tenth arrives twice, and all are reordered.
pub(crate) fn bad_network(seed: u64) -> Decide {
    let mut random = unisono_core::Random::from_u64(seed);
    Box::new(move |_, _, _, _| {
        let copies = match random.below(10) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        (0..copies).map(|_| Duration::from_micros(random.below(400))).collect()
    })
}

#[test]
fn a_transfer_that_nothing_came_through_of_gains_speed_again() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.fate =
        Box::new(|_, _, _, datagram| if datagram.len() > 1300 { vec![] } else { vec![Duration::ZERO] });
    let request = pattern(MIB);
    let call = world.call(2, port, &request, 10 * SECONDS);
    world.run(SECONDS);
    world.all_arrives();
    let (took, outcome) = world.wait(2, call);
    assert!(outcome.unwrap() == request);
    assert!(took < Duration::from_millis(300), "{took:?}");
}

#[test]
fn what_is_there_is_not_sent_again() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| pattern(20_000).into());
    world.start(2);
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    world.wait(2, call).1.unwrap();
    world.run(SECONDS);
    assert_eq!(world.host(1).endpoint.counters().parts_resent, 0);
}

#[test]
fn a_reply_whose_last_parts_are_lost_is_sent_again_soon() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| pattern(20_000).into());
    world.start(2);
    let mut parts = 0;
    world.fate = Box::new(move |from, _, _, datagram| {
        parts += u64::from(from == 1 && datagram.len() > 1300);
        if from == 1 && (10..15).contains(&parts) { vec![] } else { vec![Duration::ZERO] }
    });
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert!(outcome.unwrap() == pattern(20_000));
    assert!(took < SECONDS, "{took:?}");
}

#[test]
fn replies_that_are_incomplete_are_bounded() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    for _ in 0..5 {
        world.call(2, port, b"much", 10 * SECONDS);
    }
    world.run(MS);
    let (server, to) = (world.host(1).endpoint.uid(), world.host(2).endpoint.uid());
    for slot in 0..5 {
        let attempt = Attempt { to, slot, number: u64::from(slot) + 1 };
        let payload = Payload::Parts { total: 16 << 20, part: 1400 };
        let reply = Reply { attempt, grant: Grant { slots: 5, load: 0 }, refused: false, payload };
        world.put(1, 2, false, sealed_frame(server.0, 1000, &Frame::Reply(reply)), WAY);
        world.run(MS);
    }
    assert_eq!(world.host(2).endpoint.account().receiving_bytes, 64 * MIB);
    assert_eq!(world.host(2).endpoint.account().calls, 5);
}

#[test]
fn a_server_takes_no_larger_requests_than_it_wants() {
    let mut world = World::new();
    world.settings.message_bytes_max = 10_000;
    let port = world.start_echo(1, PRIVATE);
    world.settings = CallSettings::default();
    world.start(2);
    for (bytes, outcome) in [(10_000, Ok(pattern(10_000).into())), (10_001, Err(CallFailure::Busy))] {
        let call = world.call(2, port, &pattern(bytes), SECONDS);
        assert_eq!(world.wait(2, call).1, outcome);
    }
}

#[test]
fn a_receiver_cannot_have_more_parts_than_there_are() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    let request = pattern(MIB);
    let call = world.call(2, port, &request, SECONDS);
    world.run(WAY * 4);
    let (server, to) = (world.host(1).endpoint.uid(), world.host(2).endpoint.uid());
    let attempt = Attempt { to, slot: 0, number: 1 };
    let got = Got { attempt, reply: false, through: u32::MAX, beyond: [u64::MAX; 4] };
    world.put(1, 2, false, sealed_frame(server.0, 1000, &Frame::Got(got)), WAY);
    assert!(world.wait(2, call).1.unwrap() == request);
}

#[test]
fn a_reply_is_not_sent_for_ever_to_a_silent_client() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.call(2, port, &pattern(MIB), 60 * SECONDS);
    while world.host(1).requests.is_empty() {
        assert!(world.step());
    }
    world.hosts.remove(&2);
    world.run(world.settings.silence + SECONDS);
    let sent = world.datagrams(1);
    world.run(20 * SECONDS);
    assert_eq!(world.datagrams(1), sent);
}
