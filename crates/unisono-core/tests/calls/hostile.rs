//! Whatever arrives, nothing panics, nothing grows without bound, and no address is sent more than came from it.

use crate::strategies::frame_of;
use crate::world::*;
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::Ordering;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::*;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
/// Key of the clients that only ask.
const KEY: PublicKey = PublicKey([1; 32]);

fn call_kinds() -> Vec<FrameKind> {
    FrameKind::ALL.iter().copied().filter(|kind| *kind as u8 >= 0x70).collect()
}

/// Returns a frame of calls with plausible names: existing lives, slots and numbers.
fn plausible() -> impl Strategy<Value = (usize, Frame)> {
    let kind = proptest::sample::select(call_kinds());
    (kind.prop_flat_map(frame_of), 0..4_usize, 0..3_u16, 1..6_u64).prop_map(
        |(mut frame, to, slot, number)| {
            let named = Attempt { to: LIVES[to], slot, number };
            match &mut frame {
                Frame::Request(request) => {
                    (request.attempt, request.port) = (named, public(&PRIVATE));
                }
                Frame::Reply(reply) => reply.attempt = named,
                Frame::Part(part) => (part.attempt, part.index) = (named, part.index % 8),
                Frame::Got(got) => (got.attempt, got.through) = (named, got.through % 16),
                Frame::Reject { attempt, .. }
                | Frame::Forward { attempt, .. }
                | Frame::Working { attempt, .. }
                | Frame::Cancel { attempt } => *attempt = named,
                Frame::Done { to, .. } => *to = named.to,
                _ => {}
            }
            (to, frame)
        },
    )
}

/// The server, the client, and two lives that never existed.
const LIVES: [Uid; 4] = [Uid(1001), Uid(2002), Uid(3), Uid(4)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_survived(datagrams in vec(vec(any::<u8>(), 0..300), 0..20)) {
        let mut world = World::new();
        world.start_echo(1, PRIVATE);
        for datagram in datagrams {
            let now = world.now;
            world.host(1).endpoint.handle_datagram(now, address(5), BytesMut::from(&datagram[..]));
            world.drain(1);
        }
    }

    /// During calls, frames arrive that break no rule of the format and do not fit the state.
    #[test]
    fn frames_in_wrong_states_are_survived(
        frames in vec((plausible(), 0..4_usize, any::<bool>()), 1..60),
    ) {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        world.start(2);
        for (number, ((_, frame), from, to_server)) in frames.into_iter().enumerate() {
            let request = vec![7; number % 7 * 1000];
            world.call(2, port, &request, Duration::from_secs(3));
            let datagram = sealed_frame(LIVES[from].0, 1_000_000 + number as u64, &frame);
            let (from, to) = if to_server { (2, 1) } else { (1, 2) };
            world.put(from, to, number % 2 == 0, datagram, WAY);
            world.run(MS);
        }
        world.run(Duration::from_secs(10));
        let account = world.host(2).endpoint.account();
        prop_assert_eq!(account.calls, 0, "every call ends");
        world.run(Duration::from_secs(200));
        for host in [1, 2] {
            let account = world.host(host).endpoint.account();
            prop_assert_eq!(
                (account.sessions, account.slots, account.pending, account.kept_bytes, account.receiving_bytes),
                (0, 0, 0, 0, 0)
            );
        }
    }

    /// A process that does not receive at an address cannot have it flooded.
    #[test]
    fn an_unproved_address_is_sent_no_more_than_came(frames in vec(plausible(), 1..12), multicast in any::<bool>()) {
        let mut world = World::new();
        world.start_echo(1, PRIVATE);
        let now = world.now;
        let endpoint = &mut world.host(1).endpoint;
        let mut datagram = Vec::new();
        for (number, (_, frame)) in frames.iter().enumerate() {
            let one = sealed_frame(9, number as u64 + 1, frame);
            // The same frames in one datagram.
            datagram.extend_from_slice(&one[HEADER_BYTES..]);
            let mut out = Vec::new();
            let mut answered = 0;
            let came = one.len();
            match multicast {
                true => endpoint.handle_multicast(now, address(5), BytesMut::from(&one[..])),
                false => endpoint.handle_datagram(now, address(5), BytesMut::from(&one[..])),
            }
            while endpoint.poll_transmit(now, &mut out).is_some() {
                answered += out.len();
            }
            prop_assert!(answered <= came, "{answered} bytes for {came}: {frame}");
        }
        let whole = sealed_bytes(9, 100, &datagram);
        endpoint.handle_datagram(now, address(5), BytesMut::from(&whole[..]));
        let (mut out, mut answered) = (Vec::new(), 0);
        while endpoint.poll_transmit(now, &mut out).is_some() {
            answered += out.len();
        }
        prop_assert!(answered <= whole.len(), "{answered} bytes for {}", whole.len());
    }
}

/// Every server of a port answers a multicast question, and no server knows of the others.
#[test]
fn five_servers_together_answer_a_question_that_all_hear_with_no_more_than_it_has() {
    let port = public(&PRIVATE);
    // As a client asks, and as short as a question may be.
    for (datagram_bytes_max, servers) in [(1472, 5), (576, 2)] {
        let mut world = World::new();
        world.settings.datagram_bytes_max = datagram_bytes_max;
        world.start(9);
        world.recorded = Some(9);
        world.call(9, port, b"?", Duration::from_secs(1));
        let question = world.recording.pop().unwrap();
        for server in 1..=servers {
            world.start_echo(server, PRIVATE);
        }
        let (now, mut out, mut answered) = (world.now, Vec::new(), 0);
        for server in 1..=servers {
            let endpoint = &mut world.host(server).endpoint;
            endpoint.handle_multicast(now, address(5), BytesMut::from(&question[..]));
            let before = answered;
            while endpoint.poll_transmit(now, &mut out).is_some() {
                answered += out.len();
            }
            assert!(answered > before, "each of them answers");
        }
        assert!(answered <= question.len(), "{answered} bytes for {}", question.len());
    }
}

/// Number of slots that the server gives a session at once, of a session, and of all sessions from one address.
const AT_ONCE: u64 = 128;
const OF_SESSION: u64 = SLOTS_MAX as u64;
const OF_ADDRESS: usize = 1 << 17;

/// Lets this many clients take as many slots as they can.
fn take_slots(world: &mut World, port: Port, uids: std::ops::Range<u64>) {
    for uid in uids {
        let mut cookie = cookie_for(world, uid, port);
        for number in 1..=OF_SESSION / AT_ONCE {
            let slot = (number * AT_ONCE - 1) as u16;
            ask(world, uid, 1 + number, small_request(port, (slot, number), cookie.take())).count();
        }
    }
}

#[test]
fn the_clients_of_one_address_cannot_take_all_slots() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    take_slots(&mut world, port, 10_000..10_150);
    assert_eq!(world.host(1).endpoint.account().slots, OF_ADDRESS);
    assert_eq!(world.host(1).requests.len(), OF_ADDRESS / AT_ONCE as usize);
    assert!(world.host(1).endpoint.counters().rejected > 0);
    // Clients of another address get in, and have their own share.
    for uid in FROM_OTHER_HOST..FROM_OTHER_HOST + 3 {
        let executed = world.host(1).requests.len();
        let cookie = cookie_for(&mut world, uid, port);
        ask(&mut world, uid, 2, small_request(port, (0, 1), cookie)).count();
        assert_eq!(world.host(1).requests.len(), executed + 1);
    }
}

#[test]
fn the_clients_of_one_address_lose_their_own_replies_first_whatever_their_lives() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = Some(|_| BytesMut::zeroed(1 << 20).freeze());
    let mut news = |uid, number| {
        let cookie = if number == 2 { cookie_for(&mut world, uid, port) } else { None };
        let request = small_request(port, (0, 1), cookie);
        let is_kept = ask(&mut world, uid, number, request).any(|frame| matches!(frame, Frame::Reply(_)));
        (is_kept, world.host(1).endpoint.account().kept_bytes)
    };
    assert!(news(FROM_OTHER_HOST, 2).0);
    // None of these lives has more than its share.
    for uid in 10_000..10_150 {
        assert!(news(uid, 2).0);
    }
    assert!(!news(10_000, 3).0, "it was dropped");
    let (is_kept, kept_bytes) = news(FROM_OTHER_HOST, 3);
    assert!(is_kept, "the oldest of all");
    assert_eq!(kept_bytes, 64 << 20);
}

#[test]
fn a_session_gets_slots_in_order() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let cookie = cookie_for(&mut world, 9, port);
    ask(&mut world, 9, 2, small_request(port, (AT_ONCE as u16, 1), cookie)).count();
    assert_eq!((world.host(1).requests.len(), world.host(1).endpoint.account().slots), (0, 0));
    ask(&mut world, 9, 3, small_request(port, (AT_ONCE as u16 - 1, 2), None)).count();
    assert_eq!(world.host(1).endpoint.account().slots, AT_ONCE as usize);
}

#[test]
fn what_was_rejected_for_want_of_a_slot_is_never_executed() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let request = |slot, number, cookie| small_request(port, (slot, number), cookie);
    take_slots(&mut world, port, 10_000..10_128);
    assert_eq!(world.host(1).endpoint.account().slots, OF_ADDRESS);
    let cookie = cookie_for(&mut world, 9, port);
    let busy = |frame: &Frame| matches!(frame, Frame::Reject { reason: Rejection::Busy, .. });
    assert!(ask(&mut world, 9, 2, request(3, 5, cookie)).any(|frame| busy(&frame)));
    // The other sessions are forgotten. This client's is not.
    world.run(Duration::from_secs(50));
    assert!(ask(&mut world, 9, 3, request(3, 7, None)).any(|frame| busy(&frame)));
    world.run(Duration::from_secs(30));
    assert_eq!(world.host(1).endpoint.account().sessions, 1);
    let executed = world.host(1).requests.len();
    assert!(ask(&mut world, 9, 4, request(3, 7, None)).any(|frame| busy(&frame)), "under way all the time");
    assert!(ask(&mut world, 9, 5, request(2, 6, None)).any(|frame| busy(&frame)), "sent before it");
    assert!(ask(&mut world, 9, 6, request(3, 7, None)).any(|frame| busy(&frame)), "still");
    assert_eq!(world.host(1).requests.len(), executed);
    ask(&mut world, 9, 7, request(3, 8, None)).count();
    assert_eq!(world.host(1).requests.len(), executed + 1);
    assert_eq!(ask(&mut world, 9, 8, request(3, 7, None)).count(), 0);
    assert_eq!(world.host(1).requests.len(), executed + 1, "nor in a slot that is in use");
}

#[test]
fn what_was_rejected_for_want_of_a_session_is_never_executed() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    for uid in 10_000..10_000 + (1 << 15) {
        let cookie = cookie_for(&mut world, uid, port);
        ask(&mut world, uid, 2, small_request(port, (0, 1), cookie)).count();
    }
    assert_eq!(world.host(1).endpoint.account().sessions, 1 << 15, "no more from one address");
    let cookie = cookie_for(&mut world, 9, port);
    let busy = |frame: &Frame| matches!(frame, Frame::Unopened(Unopened { reason: Unreadable::Busy, .. }));
    assert!(ask(&mut world, 9, 2, small_request(port, (1, 31), cookie)).any(|frame| busy(&frame)));
    world.run(Duration::from_secs(80));
    assert_eq!(world.host(1).endpoint.account().sessions, 0);
    let executed = world.host(1).requests.len();
    // An attempt with a lower number opens a session, with a fresh cookie. Then a copy of the rejected attempt arrives.
    let fresh = cookie_for(&mut world, 9, port);
    ask(&mut world, 9, 3, small_request(port, (0, 30), fresh)).count();
    ask(&mut world, 9, 4, small_request(port, (1, 31), cookie)).count();
    assert_eq!(world.host(1).requests.len(), executed + 1);
    ask(&mut world, 9, 5, small_request(port, (1, 32), fresh)).count();
    ask(&mut world, 9, 6, small_request(port, (2, 33), None)).count();
    assert_eq!(world.host(1).requests.len(), executed + 3, "new requests are executed");
}

#[test]
fn requests_that_supersede_each_other_do_not_fill_the_queue() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 3, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let cookie = cookie_for(&mut world, 9, port);
    let now = world.now;
    for number in 1..=1000 {
        let request = small_request(port, ((number % 3) as u16, number), cookie);
        let datagram = sealed_frame(9, number + 1, request);
        world.host(1).endpoint.handle_datagram(now, address(5), BytesMut::from(&datagram[..]));
        assert!(world.host(1).endpoint.requests_waiting(port) <= 6);
    }
    let taken: Vec<_> = std::iter::from_fn(|| world.take(1)).map(|request| request.call).collect();
    assert_eq!(taken, [998, 999, 1000], "the last request of each slot");
}

#[test]
fn requests_that_are_cancelled_do_not_fill_the_queue() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 3, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    let cookie = cookie_for(&mut world, 9, port);
    let now = world.now;
    for number in 1..100 {
        let attempt = Attempt { to: LIVES[0], slot: number as u16, number };
        let request = small_request(port, (attempt.slot, number), cookie);
        for (packet, said) in [(2 * number, request), (2 * number + 1, (&Frame::Cancel { attempt }).into())] {
            let datagram = sealed_frame(9, packet, said);
            world.host(1).endpoint.handle_datagram(now, address(5), BytesMut::from(&datagram[..]));
        }
        assert!(world.host(1).endpoint.requests_waiting(port) <= 6);
    }
}

#[test]
fn a_flood_of_questions_is_answered_up_to_a_bound() {
    let mut world = World::new();
    world.start(1);
    let now = world.now;
    let endpoint = &mut world.host(1).endpoint;
    for nonce in 0..5000 {
        let datagram = sealed_frame(9, nonce + 1, &Frame::LocatePort { nonce, port: Port(5), key: KEY });
        endpoint.handle_datagram(now, address(5), BytesMut::from(&datagram[..]));
    }
    let (mut out, mut answers) = (Vec::new(), 0);
    while endpoint.poll_transmit(now, &mut out).is_some() {
        answers += frames_of(&out).count();
    }
    assert_eq!(answers, 4096);
}

/// Sends host 1 a question every 20 µs for 100 ms. Returns the number of answers.
fn flood(world: &mut World, question: impl Fn(u64) -> Frame) -> usize {
    world.recorded = Some(1);
    let before = world.recording.len();
    for copy in 0..5000 {
        let datagram = sealed_frame(9, copy + 1, &question(copy));
        world.put(5, 1, true, datagram, Duration::from_micros(20 * copy));
    }
    world.run(Duration::from_millis(101));
    world.recording[before..].iter().map(|datagram| frames_of(datagram).count()).sum()
}

fn signed(world: &mut World, host: u16) -> usize {
    world.host(host).work.load(Ordering::Relaxed)
}

#[test]
fn copies_of_a_question_cost_no_signature_and_few_answers() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let answers = flood(&mut world, |_| Frame::LocatePort { nonce: 7, port, key: KEY });
    assert!((1..=3).contains(&signed(&mut world, 1)), "{} signatures", signed(&mut world, 1));
    assert!((2..=21).contains(&answers), "{answers} answers");
    world.start(2);
    let call = world.call(2, port, b"fresh", Duration::from_secs(1));
    assert!(world.wait(2, call).0 <= WAY * 4, "a fresh question is answered at once");
}

#[test]
fn a_copy_of_a_question_gets_the_same_answer_again() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let question = Frame::LocatePort { nonce: 7, port, key: KEY };
    let first: Vec<Frame> = ask(&mut world, 9, 1, &question).collect();
    assert!(matches!(first[..], [Frame::PortHere(_)]));
    assert_eq!(ask(&mut world, 9, 2, &question).count(), 0, "the network made this copy");
    world.run(MS * 20);
    assert_eq!(ask(&mut world, 9, 3, &question).collect::<Vec<_>>(), first);
    assert_eq!(signed(&mut world, 1), 1);
    // A recording that is sent from many ports of a host costs what other questions of this host cost.
    for port in 100..300 {
        let datagram = sealed_frame(9, 1000 + u64::from(port), &question);
        let now = world.now;
        world.host(1).endpoint.handle_datagram(
            now,
            ([10, 0, 0, 9], port).into(),
            BytesMut::from(&datagram[..]),
        );
        world.drain(1);
    }
    let signatures = signed(&mut world, 1);
    assert!((64..100).contains(&signatures), "{signatures} signatures");
    // Another life asks another question with the same words.
    assert!(ask(&mut world, 10, 1, &question).next().is_some_and(|answer| answer != first[0]));
    world.run(MS * 40);
    assert!(ask(&mut world, 9, 4, &question).next().is_some_and(|answer| answer != first[0]), "a later one");
    assert_eq!(signed(&mut world, 1), signatures + 2);
}

#[test]
fn a_client_is_answered_though_a_stranger_sends_its_question_from_other_ports_before_it() {
    let mut world = World::new();
    let service = world.start_echo(1, PRIVATE);
    let question = Frame::LocatePort { nonce: 7, port: service, key: KEY };
    for port in 100..108 {
        let datagram = sealed_frame(9, 1000 + u64::from(port), &question);
        let now = world.now;
        world.host(1).endpoint.handle_datagram(
            now,
            ([10, 0, 0, 9], port).into(),
            BytesMut::from(&datagram[..]),
        );
        world.drain(1);
    }
    assert!(matches!(ask(&mut world, 9, 1, &question).next(), Some(Frame::PortHere(_))));
}

#[test]
fn a_client_that_asks_from_two_addresses_is_answered_at_both() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let question = Frame::LocatePort { nonce: 7, port, key: KEY };
    let answer = ask(&mut world, 9, 1, &question).next();
    world.recorded = Some(1);
    let before = world.recording.len();
    world.put(6, 1, true, sealed_frame(9, 2, &question), WAY);
    world.run(MS * 2);
    let others: Vec<Frame> =
        world.recording[before..].iter().flat_map(|datagram| frames_of(datagram)).collect();
    assert!(answer.is_some() && matches!(others[..], [Frame::PortHere(_)]), "{others:?}");
}

#[test]
fn questions_that_differ_are_signed_within_a_budget() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    flood(&mut world, |nonce| Frame::LocatePort { nonce, port, key: KEY });
    assert!((64..=64 + 101).contains(&signed(&mut world, 1)), "{} signatures", signed(&mut world, 1));
    world.start(2);
    let call = world.call(2, port, b"fresh", Duration::from_secs(1));
    assert!(world.wait(2, call).1.is_ok());
}

#[test]
fn answers_are_checked_once_and_others_within_a_budget() {
    for is_varied in [false, true] {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        world.start(2);
        world.recorded = Some(1);
        world.answered(2, port);
        let answer = world.recording.iter().find_map(|datagram| {
            frames_of(datagram).find_map(|frame| match frame {
                Frame::PortHere(here) => Some(here),
                _ => None,
            })
        });
        let (mut answer, server) = (answer.unwrap(), world.host(1).endpoint.uid().0);
        let before = signed(&mut world, 2);
        for copy in 0..5000_u64 {
            if is_varied {
                answer.proof.0[..8].copy_from_slice(&copy.to_be_bytes());
                answer.cookie.issued += 1;
            }
            let datagram = sealed_frame(server, 1000 + copy, &Frame::PortHere(answer.clone()));
            world.put(1, 2, false, datagram, Duration::from_micros(20 * copy));
        }
        world.run(Duration::from_millis(101));
        let checked = signed(&mut world, 2) - before;
        match is_varied {
            false => assert_eq!(checked, 0, "a copy is known before it is checked"),
            true => assert!((64..=64 + 101).contains(&checked), "{checked} checked"),
        }
        world.answered(2, port);
    }
}

#[test]
fn what_comes_from_another_address_than_the_server_is_not_from_the_server() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    let client = world.start(2).endpoint.uid();
    let server = world.host(1).endpoint.uid();
    let call = world.call(2, port, b"slow", Duration::from_secs(10));
    world.run(MS);
    let request = world.take(1).unwrap();
    let attempt = Attempt { to: client, slot: 0, number: 1 };
    let grant = Grant { slots: 1, load: 0 };
    let whole = Payload::Whole("forged".into());
    let reply = unisono_core::wire::Reply { attempt, grant, refused: false, payload: whole };
    let forged = [
        Frame::Reply(reply.clone()),
        Frame::Reject { attempt, grant, reason: Rejection::Lost },
        Frame::Reject { attempt, grant, reason: Rejection::NotServed },
        Frame::Forward { attempt, grant, to: address(4) },
        Frame::Working { attempt, grant: Grant { slots: 0, load: 9 } },
    ];
    for (number, frame) in forged.iter().enumerate() {
        world.put(4, 2, false, sealed_frame(server.0, 1000 + number as u64, frame), WAY);
        world.run(MS);
        assert_eq!(world.outcome(2, call), None, "{frame}");
    }
    assert_eq!(world.host(2).endpoint.counters().stale, forged.len() as u64);
    world.reply(1, request.id, b"genuine").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "genuine");
    // The same from the server's own address would have been believed.
    let call = world.call(2, port, b"slow", Duration::from_secs(10));
    world.run(MS);
    let attempt = Attempt { number: 2, ..attempt };
    let frame = Frame::Reply(unisono_core::wire::Reply { attempt, ..reply });
    world.put(1, 2, false, sealed_frame(server.0, 2000, &frame), WAY);
    assert_eq!(world.wait(2, call).1.unwrap(), "forged");
}

#[test]
fn what_comes_from_another_address_than_the_client_is_not_from_the_client() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    let client = world.start(2).endpoint.uid();
    let call = world.call(2, port, b"mine", Duration::from_secs(10));
    world.run(MS);
    let attempt = Attempt { to: LIVES[0], slot: 0, number: 1 };
    world.put(4, 1, false, sealed_frame(client.0, 1000, &Frame::Cancel { attempt }), WAY);
    world.run(MS);
    let request = world.take(1).expect("it was not cancelled");
    world.reply(1, request.id, b"yours").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "yours");
}

#[test]
fn a_server_denies_a_port_only_to_a_question_to_its_address_alone() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let now = world.now;
    let endpoint = &mut world.host(1).endpoint;
    endpoint.withdraw(port);
    for (port, multicast, answers) in
        [(port, true, 0), (port, false, 1), (Port(5), true, 0), (Port(5), false, 1)]
    {
        let datagram = sealed_frame(9, 1, &Frame::LocatePort { nonce: 1, port, key: KEY });
        let datagram = BytesMut::from(&datagram[..]);
        match multicast {
            true => endpoint.handle_multicast(now, address(5), datagram),
            false => endpoint.handle_datagram(now, address(5), datagram),
        }
        let (mut out, mut said) = (Vec::new(), Vec::new());
        while endpoint.poll_transmit(now, &mut out).is_some() {
            said.extend(frames_of(&out));
        }
        assert_eq!(said, vec![Frame::PortNotHere { nonce: 1, port, address: address(1) }; answers]);
    }
}

#[test]
fn what_is_sealed_for_others_is_no_question_for_a_port() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let mut question = Vec::new();
    Writer::new(&mut question, 1 << 17).frame(&Frame::LocatePort { nonce: 1, port, key: KEY });
    for (group, epoch) in [(GroupTag(5), EpochTag::OUTSIDE), (CALLS_TAG, EpochTag(5))] {
        let datagram = sealed_under((group, epoch), 9, 1, &question);
        world.put(2, 1, false, datagram, WAY);
    }
    world.run(MS);
    assert_eq!(world.datagrams(1), 0);
}

/// Returns the cookie that the server issues for a client at host 5 that asks for the port.
fn cookie_for(world: &mut World, uid: u64, port: Port) -> Option<Cookie> {
    // The server agrees on keys with one client each millisecond.
    world.now = world.now + MS;
    let request = small_request(port, (0, 1), None);
    ask(world, uid, 1, request).find_map(|frame| match frame {
        Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(cookie), .. }) => Some(cookie),
        _ => None,
    })
}

/// Returns a request to host 1 in this slot, with this number.
fn small_request(port: Port, (slot, number): (u16, u64), cookie: Option<Cookie>) -> Said {
    let frame = Frame::Request(unisono_core::wire::Request {
        attempt: Attempt { to: LIVES[0], slot, number },
        call: number,
        finished_below: 1,
        port,
        instance: 0,
        hops: 0,
        again: false,
        left_ms: 1000,
        wishes: None,
        payload: Payload::Whole("x".into()),
    });
    Said { frame, cookie, sealed_by: None }
}

/// The first client of those on another machine; the others are at host 5.
const FROM_OTHER_HOST: u64 = 1 << 40;
const OTHER_HOST: ([u8; 4], u16) = ([10, 0, 0, 2], 5);

/// Returns what host 1 answers a client at once.
fn ask(world: &mut World, uid: u64, number: u64, said: impl Into<Said>) -> std::vec::IntoIter<Frame> {
    let now = world.now;
    let from = if uid < FROM_OTHER_HOST { address(5) } else { OTHER_HOST.into() };
    let datagram = sealed_frame(uid, number, said);
    let host = world.host(1);
    host.endpoint.handle_datagram(now, from, BytesMut::from(&datagram[..]));
    while let Some(request) = host.endpoint.poll_request(now) {
        let reply = host.answers.map_or(request.payload.clone(), |answers| answers(&request));
        host.endpoint.reply(now, request.id, reply).unwrap();
        host.requests.push(request);
    }
    let (mut out, mut frames) = (Vec::new(), Vec::new());
    while let Some(to) = host.endpoint.poll_transmit(now, &mut out) {
        assert_eq!(to.address(), Some(from));
        frames.extend(frames_of(&out));
    }
    frames.into_iter()
}

#[test]
fn a_session_is_opened_with_the_key_of_its_client() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let cookie = cookie_for(&mut world, 9, port);
    for (sealed_by, sessions) in [(Uid(10), 0), (Uid(9), 1)] {
        let request = Said { sealed_by: Some(sealed_by), ..small_request(port, (0, 1), cookie) };
        ask(&mut world, 9, 1000 + sealed_by.0, request);
        assert_eq!(world.host(1).endpoint.account().sessions, sessions, "sealed by {sealed_by:?}");
    }
}

#[test]
fn a_server_agrees_on_keys_within_a_budget() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let clients: Vec<_> = (100..300).map(|uid| (uid, cookie_for(&mut world, uid, port))).collect();
    for (uid, cookie) in clients {
        assert!(cookie.is_some());
        ask(&mut world, uid, 1000, small_request(port, (0, 1), cookie));
    }
    let sessions = world.host(1).endpoint.account().sessions;
    assert_eq!(
        sessions,
        1 + 64,
        "each took one agreement, the first one before its address had shown a right"
    );
}

#[test]
fn a_session_belongs_to_the_address_that_was_proved() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let client = world.start(2).endpoint.uid();
    let call = world.call(2, port, b"mine", Duration::from_secs(1));
    world.wait(2, call).1.unwrap();
    let request = small_request(port, (0, 9), None);
    let answers: Vec<_> = ask(&mut world, client.0, 50, request).collect();
    let shows =
        |frame: &Frame| matches!(frame, Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(_), .. }));
    assert!(answers.len() == 1 && shows(&answers[0]), "{answers:?}");
    assert_eq!(world.host(1).requests.len(), 1, "and nothing is executed");
    let Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(cookie), .. }) = answers[0] else {
        panic!()
    };
    let request = small_request(port, (0, 9), Some(cookie));
    let moved = ask(&mut world, client.0, 51, request).any(|frame| matches!(frame, Frame::Reply(_)));
    assert!(moved, "a client that proves its new address is answered there");
}

// The next tests are about a process that reads all datagrams and sends with forged addresses, but has no group key. It can
// have any process answer a copy of a datagram, and pass the answer on.

/// Returns what the host answers to a copy of a datagram that seems to come from `from`. The answer itself is lost.
fn answers_to_copy(world: &mut World, host: u16, from: u16, datagram: Vec<u8>) -> Vec<Vec<u8>> {
    world.nothing_arrives_of(host);
    world.recorded = Some(host);
    world.recording.clear();
    world.put(from, host, false, datagram, WAY);
    world.run(WAY);
    world.recorded = None;
    world.all_arrives();
    std::mem::take(&mut world.recording)
}

/// Starts a call whose reply is outstanding, and returns the client's last datagram.
fn call_under_way(world: &mut World, port: Port, first_asked: Duration) -> (CallNumber, Vec<u8>) {
    world.recorded = Some(2);
    let call = world.call(2, port, b"hello", Duration::from_secs(60));
    world.run(first_asked);
    world.recorded = None;
    let asked = std::mem::take(&mut world.recording).pop().unwrap();
    (call, asked)
}

#[test]
fn that_another_life_lives_elsewhere_proves_nothing() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.run(Duration::from_secs(5));
    world.start(3);
    world.run(Duration::from_secs(2));
    world.host(1).answers = None;
    let (call, asked) = call_under_way(&mut world, port, MS);
    let request = world.take(1).unwrap();
    let answers = answers_to_copy(&mut world, 3, 2, asked);
    let is_other_life = |frame: Frame| {
        matches!(frame, Frame::Unopened(Unopened { reason: Unreadable::OtherLife { .. }, .. }))
    };
    assert!(answers.len() == 1 && frames_of(&answers[0]).any(is_other_life));
    world.put(1, 2, false, answers[0].clone(), WAY);
    world.run(MS);
    assert_eq!(world.host(2).endpoint.counters().given_up, 0);
    world.reply(1, request.id, b"done").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "done");
}

#[test]
fn the_answer_to_another_client_ends_no_call() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.run(Duration::from_secs(5));
    // The life that the client knows is dead, and the call is for it. Another client asked the same server for the same.
    let server = world.host(1).endpoint.uid();
    world.host(1).answers = None;
    let (call, asked) = call_under_way(&mut world, port, MS);
    let number = Header::parse(&asked).unwrap().number;
    for (client, given_up) in [(Uid(9), 0), (world.host(2).endpoint.uid(), 1)] {
        let binding = Unopened::binding(client, server, address(1));
        let reason = Unreadable::OtherLife { age_ms: 0 };
        let frame = Frame::Unopened(Unopened { binding, number, reason });
        world.put(1, 2, false, sealed_frame(7, 1, &frame), WAY);
        world.run(MS);
        assert_eq!(world.host(2).endpoint.counters().given_up, given_up, "{client:?}");
    }
    assert_eq!(world.outcome(2, call), Some(Err(CallFailure::Unknown)));
}

#[test]
fn a_cookie_for_another_address_ends_no_call() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.host(1).answers = None;
    // The server says that it has the request. From then on a session that was forgotten would have had it.
    let (call, asked) = call_under_way(&mut world, port, MS * 300);
    let request = world.take(1).unwrap();
    let cookies =
        |answers: &[Vec<u8>]| answers.iter().filter(|answer| frames_of(answer).any(asks_for_cookie)).count();
    let answers = answers_to_copy(&mut world, 1, 9, asked);
    assert_eq!(cookies(&answers), 0, "a copy that comes after the datagram is not answered");
    // The next datagram is overtaken by its copy.
    world.nothing_arrives();
    world.recorded = Some(2);
    world.run(MS * 300);
    let asked = world.recording.pop().unwrap();
    let answers = answers_to_copy(&mut world, 1, 9, asked);
    assert_eq!(cookies(&answers), 1);
    for answer in answers {
        world.put(1, 2, false, answer, WAY);
    }
    world.run(MS);
    assert_eq!(world.outcome(2, call), None);
    world.reply(1, request.id, b"done").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "done");
}

#[test]
fn a_recorded_request_does_not_move_the_session() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    let cookie = cookie_for(&mut world, 9, port);
    ask(&mut world, 9, 2, small_request(port, (0, 1), cookie)).count();
    let now = world.now;
    // Returns what the server answers to this host: the cookie that it asks for, or none if it answers the request.
    let mut answers = |from: u16, number: u64, shown| {
        let datagram = sealed_frame(9, number, small_request(port, (0, 1), shown));
        let server = &mut world.host(1).endpoint;
        server.handle_datagram(now, address(from), BytesMut::from(&datagram[..]));
        let (mut out, mut cookies) = (Vec::new(), Vec::new());
        while let Some(to) = server.poll_transmit(now, &mut out) {
            let cookie = frames_of(&out).find_map(|frame| match frame {
                Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(cookie), .. }) => Some(cookie),
                _ => None,
            });
            let (proved, unproved) = (CallDestination::Address, CallDestination::Unproved);
            assert_eq!(to, if cookie.is_some() { unproved } else { proved }(address(from)));
            cookies.push(cookie);
        }
        cookies
    };
    // The client moves from host 5 to host 6. Then what it sent from host 5 arrives once more.
    let moved = answers(6, 3, None);
    assert!(matches!(moved[..], [Some(_)]), "{moved:?}");
    assert_eq!(answers(6, 4, moved[0]), [None]);
    assert_eq!(answers(5, 2, cookie), []);
    assert_eq!(answers(6, 5, None), [None], "the client is still at host 6");
}

fn asks_for_cookie(frame: Frame) -> bool {
    matches!(frame, Frame::Unopened(Unopened { reason: Unreadable::ShowCookie(_), .. }))
}

#[test]
fn that_another_address_does_not_serve_a_port_ends_no_call() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    (2..=3).for_each(|host| _ = world.start(host));
    world.recorded = Some(2);
    world.nothing_arrives();
    let now = world.now;
    let call = world.host(2).endpoint.call_at(now, port, address(1), "hello".into(), Duration::from_secs(9));
    world.drain(2);
    let question = world.recording.pop().unwrap();
    let answers = answers_to_copy(&mut world, 3, 2, question);
    assert!(matches!(frames_of(&answers[0]).next(), Some(Frame::PortNotHere { .. })));
    world.nothing_arrives();
    world.put(1, 2, false, answers[0].clone(), WAY);
    world.run(MS);
    assert_eq!(world.outcome(2, call.unwrap()), None);
    world.all_arrives();
    assert_eq!(world.wait(2, call.unwrap()).1.unwrap(), "hello");
}
