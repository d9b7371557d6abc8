//! Servers and clients that crash, restart, fall silent, or are forgotten.

use crate::plain_agreement::key_of;
use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Attempt, Frame, Grant, Header, PortHere, Rejection, Unopened, Unreadable};
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// Returns a server at host 1 that echoes requests, its port, and a client at host 2.
fn server_and_client() -> (World, Port) {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    (world, port)
}

/// Host 1 executes a call, and its reply is lost. Then both hosts are cut off for 150 s, until the session is forgotten.
/// The client would give the server up after 200 s of silence.
fn executed_and_forgotten() -> (World, Port, CallNumber) {
    let mut world = World::new();
    world.settings.silence = 200 * SECONDS;
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.nothing_arrives_of(1);
    let call = world.call(2, port, b"old", 300 * SECONDS);
    world.run(MS);
    assert_eq!(world.host(1).requests.len(), 2);
    world.nothing_arrives();
    world.run(150 * SECONDS);
    assert_eq!(world.host(1).endpoint.account().sessions, 0);
    (world, port, call)
}

#[test]
fn a_call_to_a_server_that_dies_with_it_is_unknown() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    world.run(MS);
    assert!(world.take(1).is_some());
    world.hosts.remove(&1);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!(took < CallSettings::default().silence + MS * 300, "{took:?}");
}

#[test]
fn a_server_that_restarted_executes_nothing_that_its_former_life_had() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    world.run(MS);
    assert!(world.take(1).is_some(), "the former life executes it");
    world.start_echo(1, PRIVATE);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!(took < MS * 50, "the other life answers at once: {took:?}");
    assert!(world.host(1).requests.is_empty());
}

#[test]
fn a_call_that_left_after_the_restart_is_certain_not_to_have_happened_and_goes_on() {
    let (mut world, port) = server_and_client();
    world.answered(2, port);
    world.start_echo(1, PRIVATE);
    world.run(SECONDS);
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome.unwrap(), "hello");
    assert!(took < MS * 150, "{took:?}");
    assert_eq!(world.host(1).requests.len(), 1);
}

#[test]
fn a_client_that_restarted_is_another_one() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    world.call(2, port, b"old", 10 * SECONDS);
    world.run(MS);
    let old = world.take(1).unwrap();
    world.start(2);
    let call = world.call(2, port, b"new", 10 * SECONDS);
    world.run(MS);
    let new = world.take(1).unwrap();
    assert_ne!(old.client, new.client);
    world.reply(1, old.id, b"to the old one").unwrap();
    world.run(MS);
    assert_eq!(world.outcome(2, call), None, "the answer to another life is ignored");
    world.reply(1, new.id, b"to the new one").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "to the new one");
}

#[test]
fn a_service_that_recognises_repeats_is_asked_again_elsewhere() {
    let mut world = World::new();
    for host in [1, 2] {
        let options = ServeOptions { repeats: true, ..ServeOptions::default() };
        world.start(host).endpoint.serve(PRIVATE, options).unwrap();
    }
    let port = public(&PRIVATE);
    world.start(3);
    let call = world.call(3, port, b"hello", 10 * SECONDS);
    world.run(MS);
    let (dead, alive, first) = match world.take(1) {
        Some(request) => (1, 2, request),
        None => (2, 1, world.take(2).unwrap()),
    };
    world.hosts.remove(&dead);
    world.run(3 * SECONDS);
    let second = world.take(alive).unwrap();
    assert_eq!((second.client, second.call), (first.client, first.call), "the same call");
    world.reply(alive, second.id, b"here").unwrap();
    assert_eq!(world.wait(3, call).1.unwrap(), "here");
}

#[test]
fn an_address_that_moves_to_an_older_life_proves_nothing() {
    let mut world = World::new();
    world.start(3);
    world.run(MS * 10);
    let port = world.start_echo(1, PRIVATE);
    world.start(2);
    world.answered(2, port);
    world.run(10 * SECONDS);
    // The call is executed, and its reply is lost. Then the address moves to another machine.
    world.nothing_arrives_of(1);
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    world.run(MS);
    assert_eq!(world.host(1).requests.len(), 2);
    world.all_arrives();
    let older = world.hosts.remove(&3).unwrap();
    world.hosts.insert(1, older);
    assert_eq!(world.wait(2, call).1, Err(CallFailure::Unknown));
}

#[test]
fn a_call_that_may_have_happened_goes_only_to_servers_that_recognise_repeats() {
    for passed_on in [false, true] {
        let mut world = World::new();
        let options = ServeOptions { repeats: true, ..ServeOptions::default() };
        let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
        world.start(3);
        let call = world.call(3, port, b"hello", 10 * SECONDS);
        world.run(MS);
        assert!(world.take(1).is_some());
        // The server falls silent. Two other servers of the port are there: one that recognises repeats, and one that
        // does not.
        world.start_echo(2, PRIVATE);
        if passed_on {
            world.start(4).endpoint.serve(PRIVATE, options).unwrap();
        }
        world.hosts.remove(&1);
        world.run(5 * SECONDS);
        if passed_on {
            let request = world.take(4).unwrap();
            world.host(4).endpoint.forward(request.id, address(2)).unwrap();
            world.drain(4);
        }
        let other = world.call(3, port, b"another", 10 * SECONDS);
        world.run(SECONDS);
        while passed_on && let Some(request) = world.take(4) {
            world.reply(4, request.id, b"there").unwrap();
        }
        assert!(world.wait(3, other).1.is_ok(), "other calls may go to either server");
        let executed = &world.host(2).requests;
        assert!(executed.iter().all(|request| request.call != call));
        assert!(passed_on || world.wait(3, call).1 == Err(CallFailure::Unknown));
    }
}

#[test]
fn recordings_of_a_dead_server_do_not_show_that_it_lives() {
    let (mut world, port) = server_and_client();
    world.recorded = Some(1);
    // Several calls at once, so that slots are left unused later.
    let known: Vec<_> = (0..4).map(|_| world.call(2, port, b"known", 100 * SECONDS)).collect();
    known.into_iter().for_each(|call| world.wait(2, call).1.map(drop).unwrap());
    world.host(1).answers = None;
    let call = world.call(2, port, b"hello", 100 * SECONDS);
    world.run(MS);
    world.hosts.remove(&1);
    let begun = world.now;
    while world.outcome(2, call).is_none() {
        assert!(world.now.since(begun) < 8 * SECONDS, "the dead server is taken for alive");
        for datagram in world.recording.clone() {
            world.put(1, 2, false, datagram, WAY);
        }
        world.run(MS * 500);
    }
    assert_eq!(world.outcome(2, call), Some(Err(CallFailure::Unknown)));
}

#[test]
fn a_recorded_answer_of_a_dead_server_is_not_its_last_word() {
    let (mut world, port) = server_and_client();
    world.recorded = Some(1);
    world.answered(2, port);
    let answers: Vec<Vec<u8>> =
        world.recording.iter().filter(|datagram| frames_of(datagram).any(says_here)).cloned().collect();
    assert_eq!(answers.len(), 1);
    world.run(SECONDS);
    world.start_echo(1, PRIVATE);
    world.run(SECONDS);
    world.put(1, 2, false, answers[0].clone(), WAY);
    world.run(SECONDS);
    // The second life is not older than the last real answer of the first one. So its age shows that the first life
    // cannot have had this request.
    let call = world.call(2, port, b"hello", 5 * SECONDS);
    assert_eq!(world.wait(2, call).1.unwrap(), "hello");
}

#[test]
fn a_server_that_answers_too_late_lives() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    for _ in 0..10 {
        let call = world.call(2, port, b"hello", MS);
        world.run(MS);
        let request = world.take(1).unwrap();
        world.run(MS * 500);
        assert_eq!(world.outcome(2, call), Some(Err(CallFailure::Unknown)));
        world.reply(1, request.id, b"late").unwrap();
        world.run(MS * 10);
    }
    assert_eq!(world.host(2).endpoint.counters().given_up, 0);
}

#[test]
fn a_life_that_is_hardly_older_than_an_attempt_proves_nothing() {
    for (age_ms, from, life, outcome) in [
        (1035, 1, 0, Some(CallFailure::Unknown)),
        (1037, 1, 0, None),
        // Ignored: a frame from another address, and a frame about another life of the server.
        (1035, 4, 0, None),
        (1035, 1, 1, None),
    ] {
        let mut world = World::new();
        let port = world.start_echo(1, PRIVATE);
        world.start(2);
        world.answered(2, port);
        world.run(3 * SECONDS);
        let server = world.host(1).endpoint.uid();
        world.hosts.remove(&1);
        world.recorded = Some(2);
        let call = world.call(2, port, b"hello", 10 * SECONDS);
        world.run(SECONDS - WAY);
        let asked = Header::parse(world.recording.last().unwrap()).unwrap().number;
        let client = world.host(2).endpoint.uid();
        let binding = Unopened::binding(client, Uid(server.0 + life), address(1));
        let reason = Unreadable::OtherLife { age_ms };
        let frame = Frame::Unopened(Unopened { binding, number: asked, reason });
        world.put(from, 2, false, sealed_frame(7, 1, &frame), WAY);
        world.run(MS);
        assert_eq!(world.outcome(2, call).map(Result::unwrap_err), outcome, "{age_ms} ms, from {from}");
        let given_up = world.host(2).endpoint.counters().given_up;
        assert_eq!(given_up, u64::from((from, life) == (1, 0)));
    }
}

#[test]
fn what_waits_for_a_server_that_is_given_up_goes_elsewhere() {
    let mut world = World::new();
    let options = ServeOptions { queue_max: 1, ..ServeOptions::default() };
    let port = world.start(1).endpoint.serve(PRIVATE, options).unwrap();
    world.start(2);
    let at_server = world.call(2, port, b"at the server", 10 * SECONDS);
    world.run(MS);
    let waits = world.call(2, port, b"waits", 10 * SECONDS);
    world.run(MS * 10);
    world.hosts.remove(&1);
    world.start_echo(3, PRIVATE);
    assert_eq!(world.wait(2, at_server).1, Err(CallFailure::Unknown));
    let (took, outcome) = world.wait(2, waits);
    assert_eq!(outcome.unwrap(), "waits");
    assert!(took < MS * 100, "{took:?}");
}

#[test]
fn a_server_that_is_asked_is_not_followed_to_another_address() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    world.recorded = Some(2);
    let call = world.call(2, port, b"slow", 10 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    // The same life answers the same question from another address.
    let nonce = world.recording.iter().find_map(|datagram| frames_of(datagram).find_map(nonce_of)).unwrap();
    let (client, server) = (world.host(2).endpoint.uid(), world.host(1).endpoint.uid());
    let (cookie, grant) = (Cookie { issued: 0, seal: 0 }, Grant { slots: 1, load: 0 });
    let proof = prove(&PRIVATE, &claim(nonce, client, server, 4, port));
    let key = key_of(server);
    let here = PortHere { nonce, port, cookie, grant, repeats: false, instance: 0, key, proof };
    world.put(4, 2, false, sealed_frame(server.0, 1000, &Frame::PortHere(here.into())), WAY);
    world.fate = Box::new(|_, to, _, _| {
        assert_ne!(to, 4, "all of an attempt goes to one address");
        vec![Duration::ZERO]
    });
    world.run(SECONDS);
    world.reply(1, request.id, b"there").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "there");
}

#[test]
fn what_did_not_leave_before_its_server_was_given_up_goes_elsewhere() {
    let (mut world, port) = server_and_client();
    world.answered(2, port);
    world.hosts.remove(&1);
    let left = world.call(2, port, b"left", 10 * SECONDS);
    world.run(world.settings.silence - MS);
    let now = world.now;
    let endpoint = &mut world.host(2).endpoint;
    let stayed = endpoint.call(now, port, "stayed".into(), 10 * SECONDS).unwrap();
    endpoint.handle_timeout(now + MS);
    assert_eq!(endpoint.poll_outcome(), Some((left, Err(CallFailure::Unknown))));
    world.start_echo(3, PRIVATE);
    assert_eq!(world.wait(2, stayed).1.unwrap(), "stayed");
}

#[test]
fn what_was_executed_in_a_session_that_was_forgotten_is_not_executed_again() {
    let (mut world, port) = server_and_client();
    world.recorded = Some(2);
    for round in 0..3 {
        // Two calls at a time: the second slot is not used again later.
        let calls = [0, 1].map(|_| world.call(2, port, &[round], 10 * SECONDS));
        calls.into_iter().for_each(|call| assert!(world.wait(2, call).1.is_ok()));
    }
    let replay = |world: &mut World| {
        for datagram in world.recording.clone() {
            world.put(2, 1, false, datagram, MS);
        }
        world.run(MS * 100);
    };
    replay(&mut world);
    assert_eq!(world.host(1).requests.len(), 6, "in the session");
    world.run(200 * SECONDS);
    assert_eq!(world.host(1).endpoint.account().sessions, 0, "the session is forgotten");
    assert_eq!(world.host(1).endpoint.account().slots, 0);
    replay(&mut world);
    assert_eq!(world.host(1).requests.len(), 6, "without a session");
    let call = world.call(2, port, b"fresh", 10 * SECONDS);
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome.unwrap(), "fresh");
    assert_eq!(took, WAY * 4, "a cookie costs a round trip");
    replay(&mut world);
    assert_eq!(world.host(1).requests.len(), 7, "in another session of the same lives");
}

#[test]
fn an_attempt_that_may_have_been_forgotten_is_unknown() {
    let (mut world, _, call) = executed_and_forgotten();
    world.all_arrives();
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!((49 * SECONDS..=51 * SECONDS).contains(&took), "the server's silence about it counts: {took:?}");
    assert_eq!(world.host(1).requests.len(), 2, "it was executed, once");
}

#[test]
fn an_attempt_that_may_have_been_forgotten_shows_no_cookie_that_another_was_given() {
    let (mut world, port, old) = executed_and_forgotten();
    // The server asks a new attempt for a cookie. Its answers are lost until the client asks after the old attempt
    // again.
    let mut asked = false;
    world.fate = Box::new(move |from, _, _, datagram| {
        let arrives = from == 2 || asks_for_cookie(datagram) && !std::mem::replace(&mut asked, true);
        if arrives { vec![Duration::ZERO] } else { vec![] }
    });
    let new = world.call(2, port, b"new", 300 * SECONDS);
    world.run(SECONDS);
    world.all_arrives();
    assert_eq!(world.wait(2, new).1.unwrap(), "new");
    assert_eq!(world.wait(2, old).1, Err(CallFailure::Unknown));
    let executed: Vec<_> = world.host(1).requests.iter().map(|request| request.payload.clone()).collect();
    assert_eq!(executed, ["known", "old", "new"]);
}

#[test]
fn a_question_for_a_cookie_that_was_overtaken_is_about_nothing() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    let call = world.call(2, port, b"known", 10 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.reply(1, request.id, b"known").unwrap();
    world.wait(2, call).1.unwrap();
    world.run(200 * SECONDS);
    // The server's request for a cookie arrives twice, the second time after it has answered `Working`.
    world.fate = Box::new(|_, _, _, datagram| match asks_for_cookie(datagram) {
        true => vec![Duration::ZERO, MS * 100],
        false => vec![Duration::ZERO],
    });
    let call = world.call(2, port, b"slow", 10 * SECONDS);
    world.run(MS * 500);
    let request = world.take(1).unwrap();
    world.reply(1, request.id, b"slow").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "slow");
}

#[test]
fn a_server_that_has_forgotten_all_its_clients_sleeps() {
    let (mut world, port) = server_and_client();
    world.answered(2, port);
    world.hosts.remove(&2);
    world.run(150 * SECONDS);
    assert_eq!(world.host(1).endpoint.poll_timeout(), None);
}

#[test]
fn a_session_in_which_something_is_worked_on_is_not_forgotten() {
    let mut world = World::new();
    world.settings.silence = 1000 * SECONDS;
    let port = world.start_echo(1, PRIVATE);
    world.host(1).answers = None;
    world.start(2);
    let call = world.call(2, port, b"long", 400 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.nothing_arrives();
    world.run(200 * SECONDS);
    world.all_arrives();
    world.reply(1, request.id, b"done").unwrap();
    assert_eq!(world.wait(2, call).1.unwrap(), "done");
}

#[test]
fn a_server_without_the_private_port_is_not_believed() {
    let mut world = World::new();
    let port = public(&PRIVATE);
    world.start(2);
    world.recorded = Some(2);
    let call = world.call(2, port, b"hello", SECONDS);
    world.run(MS * 10);
    let nonce = world.recording.iter().find_map(|datagram| frames_of(datagram).find_map(nonce_of));
    // The right answer, but with the proof of another port.
    let cookie = Cookie { issued: 0, seal: 0 };
    let grant = Grant { slots: 1, load: 0 };
    let (nonce, key) = (nonce.unwrap(), key_of(Uid(4)));
    let here = |proof| PortHere { nonce, port, cookie, grant, repeats: false, instance: 0, key, proof };
    let client = world.host(2).endpoint.uid();
    let answer = |private| here(prove(&private, &claim(nonce, client, Uid(4), 4, port)));
    let other = nonce + 1;
    let proof = prove(&PRIVATE, &claim(other, client, Uid(4), 4, port));
    let to_another_question = PortHere { nonce: other, ..here(proof) };
    // A server with the private port that states the uid of another life, to which this key does not belong.
    let mut claimed = claim(nonce, client, Uid(4), 4, port);
    let place = claimed.windows(32).rposition(|bytes| bytes == key.0).unwrap();
    let another = key_of(Uid(5));
    claimed[place..place + 32].copy_from_slice(&another.0);
    let with_another_key = PortHere { key: another, ..here(prove(&PRIVATE, &claimed)) };
    let answers =
        [(answer(PrivatePort(5)), 0), (to_another_question, 0), (with_another_key, 0), (answer(PRIVATE), 1)];
    for (here, known) in answers {
        world.put(4, 2, false, sealed_frame(4, 1, &Frame::PortHere(here.into())), WAY);
        world.run(MS);
        assert_eq!(world.host(2).endpoint.account().servers_known, known);
    }
    assert_eq!(world.host(2).endpoint.counters().malformed, 2);
    assert_eq!(world.wait(2, call).1, Err(CallFailure::Unknown));
}

#[test]
fn who_hears_a_question_to_all_cannot_deny_that_a_server_serves_the_port() {
    let (mut world, port) = server_and_client();
    world.recorded = Some(2);
    world.answered(2, port);
    let asked = |frame| match frame {
        Frame::LocatePort { nonce, .. } => Some(nonce),
        _ => None,
    };
    let nonce = world.recording.iter().flat_map(|datagram| frames_of(datagram)).find_map(asked).unwrap();
    let server = world.host(1).endpoint.uid();
    for (from, nonce) in [(1, 1), (1, nonce), (4, nonce)] {
        let denies = Frame::PortNotHere { nonce, port, address: address(from) };
        world.put(from, 2, false, sealed_frame(server.0, 1000, &denies), WAY);
        world.run(MS);
        let call = world.call(2, port, b"hello", SECONDS);
        assert_eq!(world.wait(2, call).0, WAY * 2, "the client need not locate a server");
    }
}

#[test]
fn a_server_that_asks_for_one_cookie_after_another_is_shown_one_at_once() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    world.call(2, port, b"hello", SECONDS);
    world.run(MS);
    world.recorded = Some(2);
    let (server, to) = (world.host(1).endpoint.uid(), world.host(2).endpoint.uid());
    let attempt = Attempt { to, slot: 0, number: 1 };
    for issued in 1..10 {
        let reason = Rejection::ShowCookie(Cookie { issued: u64::MAX - 10 + issued, seal: 0 });
        let frame = Frame::Reject { attempt, grant: Grant { slots: 1, load: 0 }, reason };
        world.put(1, 2, false, sealed_frame(server.0, 1000 + issued, &frame), WAY);
    }
    world.run(MS);
    assert_eq!(world.recording.len(), 1);
}

/// Returns what a server claims, as `docs/protocol/wire-format.md` says (PortHere), with a cookie of zeros.
fn claim(nonce: u64, client: Uid, server: Uid, from: u16, port: Port) -> Vec<u8> {
    let mut claim = b"unisono: I serve".to_vec();
    claim.extend_from_slice(&port.0.to_be_bytes());
    for word in [nonce, client.0, server.0, 0, 0] {
        claim.extend_from_slice(&word.to_be_bytes());
    }
    claim.extend_from_slice(&[0; 9]);
    claim.extend_from_slice(&key_of(client).0);
    claim.extend_from_slice(&key_of(server).0);
    claim.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    claim.extend_from_slice(&from.to_be_bytes());
    claim
}

fn asks_for_cookie(datagram: &[u8]) -> bool {
    frames_of(datagram).any(|frame| {
        let is_cookie = |reason: &Unreadable| matches!(reason, Unreadable::ShowCookie(_));
        matches!(&frame, Frame::Unopened(unopened) if is_cookie(&unopened.reason))
    })
}

fn nonce_of(frame: Frame) -> Option<u64> {
    match frame {
        Frame::LocatePort { nonce, .. } => Some(nonce),
        _ => None,
    }
}

fn says_here(frame: Frame) -> bool {
    matches!(frame, Frame::PortHere(_))
}

#[test]
fn a_client_that_gets_another_address_gets_the_reply_of_the_call_that_it_had_begun() {
    let (mut world, port) = server_and_client();
    world.host(1).answers = None;
    let call = world.call(2, port, b"hello", 10 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.moves(2, 3);
    world.run(SECONDS);
    world.reply(1, request.id, b"once").unwrap();
    assert_eq!(world.wait(3, call).1.unwrap(), "once");
    world.run(SECONDS);
    assert!(world.take(1).is_none(), "the call is executed once");
}

#[test]
fn a_server_that_gets_another_address_is_found_there_by_the_clients_that_knew_it() {
    let (mut world, port) = server_and_client();
    world.answered(2, port);
    world.moves(1, 3);
    let lost = world.call(2, port, b"lost", 10 * SECONDS);
    assert_eq!(world.wait(2, lost).1, Err(CallFailure::Unknown), "nothing answers at the old address");
    world.answered(2, port);
    assert_eq!(world.host(3).requests.len(), 2);
}

// A life that is older than the call, but has come to the address since, does not show that the life before it has not
// executed the call.
#[test]
fn a_life_that_comes_to_the_address_of_a_server_proves_nothing_about_its_calls() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start_echo(4, PrivatePort(78));
    world.start(2);
    world.answered(2, port);
    world.run(SECONDS);
    world.nothing_arrives_of(1);
    let call = world.call(2, port, b"once", 10 * SECONDS);
    world.run(MS);
    assert_eq!(world.host(1).requests.len(), 2, "it is executed, and the reply is lost");
    world.moves(1, 3);
    world.moves(4, 1);
    world.all_arrives();
    let (took, outcome) = world.wait(2, call);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!(took < MS * 300, "the life that is there now answers at once: {took:?}");
    assert_eq!(world.host(3).requests.len(), 2);
}
