//! Replicated services: their clients stay with one instance, leave servers that answer late, and say what they need
//! no more.

use crate::trickle::{SERVER, Trickler};
use crate::world::*;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::Frame;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);
const CLIENT: u16 = 9;

fn replicated(instance: u64) -> ServeOptions {
    ServeOptions { repeats: true, instance, ..ServeOptions::default() }
}

/// Starts a server of this instance, which echoes requests or leaves them to the test.
fn start(world: &mut World, host: u16, instance: u64, echoes: bool) {
    let host = world.start(host);
    host.answers = echoes.then_some(|request: &Request| request.payload.clone());
    host.endpoint.serve(PRIVATE, replicated(instance)).unwrap();
}

/// Returns servers of these instances at hosts 1, 2, …, the port, and a client.
fn services(instances: &[u64], echo: bool) -> (World, Port) {
    let mut world = World::new();
    for (host, instance) in (1..).zip(instances) {
        start(&mut world, host, *instance, echo);
    }
    world.start(CLIENT);
    (world, public(&PRIVATE))
}

fn outcome_of(
    world: &mut World,
    port: Port,
    within: Duration,
) -> (Duration, Result<bytes::Bytes, CallFailure>) {
    let call = world.call(CLIENT, port, b"hello", within);
    world.wait(CLIENT, call)
}

fn forget(world: &mut World, port: Port) {
    let now = world.now;
    world.host(CLIENT).endpoint.forget_instance(now, port);
    world.drain(CLIENT);
}

fn at_address(world: &mut World, port: Port, host: u16, request: &[u8], within: Duration) -> CallNumber {
    let (now, request) = (world.now, bytes::Bytes::copy_from_slice(request));
    let call = world.host(CLIENT).endpoint.call_at(now, port, address(host), request, within).unwrap();
    world.drain(CLIENT);
    call
}

#[test]
fn a_call_that_a_replicated_service_passed_on_may_have_happened() {
    for (instance, outcome) in [(7, CallFailure::Unknown), (0, CallFailure::Failed)] {
        let mut world = World::new();
        let host = world.start(1);
        host.answers = None;
        let options = if instance == 0 { ServeOptions::default() } else { replicated(instance) };
        host.endpoint.serve(PRIVATE, options).unwrap();
        world.start(CLIENT);
        let port = public(&PRIVATE);
        let call = world.call(CLIENT, port, b"hello", SECONDS);
        world.run(MS);
        let request = world.take(1).unwrap();
        // No process is there.
        world.host(1).endpoint.forward(request.id, address(5)).unwrap();
        world.host(1).endpoint.withdraw(port);
        world.drain(1);
        assert_eq!(world.wait(CLIENT, call).1, Err(outcome), "instance {instance}");
    }
}

// --- instances ---

#[test]
fn a_client_stays_with_the_instance_that_it_called_until_it_forgets_it() {
    let (mut world, port) = services(&[7], true);
    world.answered(CLIENT, port);
    world.hosts.remove(&1);
    start(&mut world, 2, 8, true);
    world.run(3 * SECONDS);
    let (took, outcome) = outcome_of(&mut world, port, 20 * SECONDS);
    // The life at host 1 is gone: the call is unknown when its silence ends. Later ones find the other instance only.
    assert!(
        outcome == Err(CallFailure::Unknown) || outcome == Err(CallFailure::OtherInstance),
        "{outcome:?}"
    );
    assert!(took <= 20 * SECONDS);
    let (took, outcome) = outcome_of(&mut world, port, 20 * SECONDS);
    assert_eq!((took, outcome), (2 * SECONDS, Err(CallFailure::OtherInstance)));
    assert_eq!(world.host(2).endpoint.counters().requests, 0);
    forget(&mut world, port);
    assert!(outcome_of(&mut world, port, 5 * SECONDS).1.is_ok());
    assert_eq!(world.host(2).endpoint.counters().requests, 1);
}

#[test]
fn a_call_that_waits_goes_to_the_other_instance_once_the_first_is_forgotten() {
    let (mut world, port) = services(&[7], true);
    world.answered(CLIENT, port);
    world.host(1).endpoint.withdraw(port);
    start(&mut world, 2, 8, true);
    let call = world.call(CLIENT, port, b"hello", 5 * SECONDS);
    world.run(SECONDS);
    assert_eq!(world.outcome(CLIENT, call), None);
    forget(&mut world, port);
    assert!(world.wait(CLIENT, call).0 < 100 * MS);
}

#[test]
fn a_call_that_may_have_happened_is_repeated_at_no_other_instance() {
    for forgets in [false, true] {
        let (mut world, port) = services(&[7], false);
        let call = world.call(CLIENT, port, b"hello", 9 * SECONDS);
        world.run(MS);
        assert!(world.take(1).is_some());
        start(&mut world, 2, 8, true);
        world.hosts.remove(&1);
        if forgets {
            forget(&mut world, port);
            // This one the other instance takes.
            world.answered(CLIENT, port);
        }
        assert_eq!(world.wait(CLIENT, call).1, Err(CallFailure::Unknown), "forgets: {forgets}");
        assert_eq!(world.host(2).endpoint.counters().requests, u64::from(forgets));
    }
}

#[test]
fn the_first_instance_of_two_gets_all_calls() {
    let (mut world, port) = services(&[7, 8, 7, 8], true);
    for _ in 0..50 {
        world.answered(CLIENT, port);
        world.run(200 * MS);
    }
    let taken = [1, 2, 3, 4].map(|host| world.host(host).endpoint.counters().requests);
    let (first, second) = (taken[0] + taken[2], taken[1] + taken[3]);
    assert!(first.min(second) == 0 && first.max(second) == 50, "{taken:?}");
}

#[test]
fn a_call_is_not_passed_on_to_another_instance() {
    let (mut world, port) = services(&[7, 8], false);
    let call = world.call(CLIENT, port, b"hello", 5 * SECONDS);
    world.run(MS);
    let (at, request) = [1, 2].into_iter().find_map(|host| Some((host, world.take(host)?))).unwrap();
    world.host(at).endpoint.forward(request.id, address(3 - at)).unwrap();
    world.drain(at);
    world.run(SECONDS);
    assert_eq!(world.take(3 - at), None);
    let again = world.take(at).unwrap();
    assert_eq!(again.call, request.call);
    world.reply(at, again.id, b"by the first").unwrap();
    assert!(world.wait(CLIENT, call).1.is_ok());
}

#[test]
fn a_server_that_serves_another_instance_now_executes_no_call_for_the_one_before() {
    let (mut world, port) = services(&[7], true);
    world.answered(CLIENT, port);
    world.host(1).endpoint.withdraw(port);
    world.host(1).endpoint.serve(PRIVATE, replicated(8)).unwrap();
    assert_eq!(outcome_of(&mut world, port, 5 * SECONDS).1, Err(CallFailure::OtherInstance));
    assert_eq!(world.host(1).endpoint.counters().requests, 1);
}

#[test]
fn a_refusal_of_its_own_attempt_says_nothing_of_an_earlier_one() {
    let refused = |reason: &'static [u8]| Err(CallFailure::Refused(reason.into()));
    let own: &'static [u8] = b"busy: much waits; nothing happened";
    let cases = [
        (own, false, refused(own)),
        (own, true, Err(CallFailure::Unknown)),
        // The service's own word for the call, whichever attempt it was.
        (b"no", true, refused(b"no")),
    ];
    for (reason, is_repeated, outcome) in cases {
        let (mut world, port) = services(&[7, 7], false);
        let call = world.call(CLIENT, port, b"hello", 20 * SECONDS);
        world.run(MS);
        let first = [1, 2].into_iter().find_map(|host| Some((host, world.take(host)?))).unwrap();
        let (at, request) = match is_repeated {
            false => first,
            true => {
                world.hosts.remove(&first.0);
                let other = 3 - first.0;
                let take = |world: &mut World| {
                    world.run(100 * MS);
                    world.take(other)
                };
                (other, (0..100).find_map(|_| take(&mut world)).unwrap())
            }
        };
        let now = world.now;
        world.host(at).endpoint.refuse(now, request.id, bytes::Bytes::from_static(reason)).unwrap();
        world.drain(at);
        assert_eq!(world.wait(CLIENT, call).1, outcome);
    }
}

#[test]
fn a_client_knows_with_which_instance_it_stays() {
    let (mut world, port) = services(&[7], true);
    assert_eq!(world.host(CLIENT).endpoint.instance_of(port), None);
    world.answered(CLIENT, port);
    assert_eq!(world.host(CLIENT).endpoint.instance_of(port), Some(7));
    forget(&mut world, port);
    assert_eq!(world.host(CLIENT).endpoint.instance_of(port), None);
}

// --- calls to an address ---

#[test]
fn a_call_to_an_address_goes_there() {
    let (mut world, port) = services(&[7, 7, 7], true);
    for host in [2, 1, 3, 3, 2] {
        let before = world.host(host).endpoint.counters().requests;
        let call = at_address(&mut world, port, host, b"hello", SECONDS);
        assert!(world.wait(CLIENT, call).1.is_ok());
        assert_eq!(world.host(host).endpoint.counters().requests, before + 1);
        world.run(100 * MS);
    }
}

#[test]
fn a_call_to_an_address_fails_where_the_port_is_not_served() {
    let (mut world, port) = services(&[7, 7], true);
    world.start(3);
    let call = at_address(&mut world, port, 3, b"hello", 9 * SECONDS);
    let (took, outcome) = world.wait(CLIENT, call);
    assert_eq!(outcome, Err(CallFailure::NotFound));
    assert!(took < 10 * MS, "the process there says so");
    let call = at_address(&mut world, port, 4, b"hello", 9 * SECONDS);
    assert_eq!(world.wait(CLIENT, call), (2 * SECONDS, Err(CallFailure::NotFound)));
    // It was just heard there, and has withdrawn.
    world.answered(CLIENT, port);
    let call = at_address(&mut world, port, 1, b"hello", 9 * SECONDS);
    world.wait(CLIENT, call).1.unwrap();
    world.host(1).endpoint.withdraw(port);
    let call = at_address(&mut world, port, 1, b"hello", 9 * SECONDS);
    assert_eq!(world.wait(CLIENT, call).1, Err(CallFailure::Failed));
    world.host(2).endpoint.withdraw(port);
    start(&mut world, 5, 8, true);
    let call = at_address(&mut world, port, 5, b"hello", 9 * SECONDS);
    assert_eq!(world.wait(CLIENT, call).1, Err(CallFailure::OtherInstance));
}

#[test]
fn a_call_to_an_address_is_passed_on_to_no_other_server_and_repeated_at_none() {
    let (mut world, port) = services(&[7, 7], false);
    let call = at_address(&mut world, port, 1, b"hello", 9 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    world.host(1).endpoint.forward(request.id, address(2)).unwrap();
    world.drain(1);
    assert_eq!(world.wait(CLIENT, call).1, Err(CallFailure::Unknown));
    let call = at_address(&mut world, port, 1, b"hello", 9 * SECONDS);
    world.run(MS);
    assert!(world.take(1).is_some());
    world.hosts.remove(&1);
    let (took, outcome) = world.wait(CLIENT, call);
    assert_eq!(outcome, Err(CallFailure::Unknown));
    assert!(took < 3 * SECONDS);
    assert_eq!(world.take(2), None);
}

#[test]
fn eight_large_replies_come_from_one_address_at_once() {
    let (mut world, port) = services(&[7, 7], true);
    for host in [1, 2] {
        world.host(host).answers = Some(|_| vec![5; 1 << 20].into());
    }
    let calls: Vec<_> = (0..8).map(|_| at_address(&mut world, port, 2, b"part", 20 * SECONDS)).collect();
    for call in calls {
        assert_eq!(world.wait(CLIENT, call).1.unwrap().len(), 1 << 20);
    }
    assert_eq!(world.host(1).endpoint.counters().requests, 0);
}

#[test]
fn a_call_to_an_address_that_is_pushed_back_waits_for_its_turn() {
    let mut world = World::new();
    let port = public(&PRIVATE);
    for host in [1, 2] {
        let options = ServeOptions { queue_max: 1, ..replicated(7) };
        world.start(host).endpoint.serve(PRIVATE, options).unwrap();
    }
    world.start(CLIENT);
    let calls: Vec<_> = (0..3).map(|_| at_address(&mut world, port, 1, b"hello", 20 * SECONDS)).collect();
    for _ in 0..3 {
        world.run(300 * MS);
        let request = world.take(1).unwrap();
        world.reply(1, request.id, b"done").unwrap();
    }
    for call in calls {
        assert!(world.wait(CLIENT, call).1.is_ok());
    }
}

// --- servers that answer late ---

#[test]
fn callers_of_a_server_that_dies_are_answered_by_others_within_300_ms() {
    for lived in [1, 50, 333, 1000] {
        let (mut world, port) = services(&[7, 7, 7], false);
        let calls: Vec<_> = (0..30).map(|_| world.call(CLIENT, port, b"hello", 20 * SECONDS)).collect();
        world.run(MS * lived);
        let mut in_hand = Vec::new();
        for host in [1, 2, 3] {
            while let Some(request) = world.take(host) {
                in_hand.push((host, request));
            }
        }
        let dies = in_hand[0].0;
        let lost: Vec<_> =
            in_hand.iter().filter(|(host, _)| *host == dies).map(|(_, request)| request.call).collect();
        assert!(lost.len() >= 5, "{} calls are lost", lost.len());
        world.run(MS * lived);
        world.hosts.remove(&dies);
        let died = world.now;
        for host in [1, 2, 3].into_iter().filter(|host| *host != dies) {
            world.host(host).answers = Some(|request: &Request| request.payload.clone());
        }
        for call in lost {
            world.wait(CLIENT, call).1.unwrap();
            let took = world.now.since(died);
            assert!(took <= 300 * MS, "{took:?}, after {lived} ms");
        }
        // No further call waits for it.
        for _ in 0..20 {
            assert!(outcome_of(&mut world, port, SECONDS).0 < 5 * MS);
        }
        assert_eq!(calls.len(), 30);
    }
}

#[test]
fn a_client_that_knows_one_server_finds_another_when_that_one_dies() {
    let (mut world, port) = services(&[7], false);
    let call = world.call(CLIENT, port, b"hello", 20 * SECONDS);
    world.run(MS);
    assert!(world.take(1).is_some());
    start(&mut world, 2, 7, true);
    world.hosts.remove(&1);
    let (took, outcome) = world.wait(CLIENT, call);
    assert!(outcome.is_ok() && took <= 300 * MS, "{outcome:?} after {took:?}");
}

#[test]
fn a_server_that_is_heard_again_gets_calls_again() {
    let (mut world, port) = services(&[7, 7], true);
    for _ in 0..20 {
        world.answered(CLIENT, port);
    }
    world.nothing_arrives_of(1);
    for _ in 0..50 {
        assert!(outcome_of(&mut world, port, SECONDS).0 <= 300 * MS);
    }
    world.all_arrives();
    world.run(300 * MS);
    let before = world.host(1).endpoint.counters().requests;
    for _ in 0..20 {
        world.answered(CLIENT, port);
    }
    assert!(world.host(1).endpoint.counters().requests > before);
    assert_eq!(world.host(CLIENT).endpoint.counters().given_up, 0);
}

#[test]
fn work_that_takes_long_and_a_long_way_are_no_silence() {
    let (mut world, port) = services(&[7, 7], false);
    let call = world.call(CLIENT, port, b"hello", 20 * SECONDS);
    world.run(3 * SECONDS);
    let taken = [1, 2].map(|host| world.take(host));
    assert_eq!(taken.iter().flatten().count(), 1);
    for (host, request) in [1, 2].into_iter().zip(taken) {
        if let Some(request) = request {
            world.reply(host, request.id, b"done").unwrap();
        }
    }
    assert!(world.wait(CLIENT, call).1.is_ok());
    let (mut world, port) = services(&[7, 7], true);
    world.fate = Box::new(|_, _, _, _| vec![150 * MS]);
    for _ in 0..10 {
        world.answered(CLIENT, port);
    }
    let before = world.host(1).endpoint.counters().requests + world.host(2).endpoint.counters().requests;
    for _ in 0..10 {
        world.answered(CLIENT, port);
    }
    let after = world.host(1).endpoint.counters().requests + world.host(2).endpoint.counters().requests;
    assert_eq!(after - before, 10, "once the client knows that answers take 300 ms, it repeats no call");
}

#[test]
fn a_client_that_was_asleep_repeats_no_call() {
    let (mut world, port) = services(&[7, 7], false);
    let call = world.call(CLIENT, port, b"hello", 20 * SECONDS);
    world.run(Duration::from_micros(150));
    let host = world.hosts.remove(&CLIENT).unwrap();
    world.now = world.now + SECONDS;
    world.hosts.insert(CLIENT, host);
    world.run(10 * MS);
    assert_eq!([1, 2].into_iter().filter_map(|host| world.take(host)).count(), 1);
    assert_eq!(world.outcome(CLIENT, call), None);
}

// --- what is finished ---

fn finished(world: &mut World, port: Port) -> Option<(Uid, CallNumber)> {
    world.host(1).endpoint.poll_finished(port)
}

#[test]
fn a_client_without_further_calls_says_which_are_finished() {
    let (mut world, port) = services(&[7], true);
    let calls: Vec<_> = (0..3).map(|_| world.call(CLIENT, port, b"hello", 9 * SECONDS)).collect();
    world.run(5 * MS);
    assert_eq!(finished(&mut world, port), None);
    world.run(40 * MS);
    let (client, below) = finished(&mut world, port).unwrap();
    assert_eq!(client, world.host(CLIENT).endpoint.uid());
    assert!(calls.iter().all(|call| *call < below));
    let next = world.call(CLIENT, port, b"hello", 9 * SECONDS);
    assert!(next >= below, "the next call is not among the finished ones");
    assert_eq!(finished(&mut world, port), None);
}

// Nothing detects recordings of what a client says of its calls, so the application is told only what is new.
#[test]
fn what_is_finished_is_told_once() {
    let (mut world, port) = services(&[7], false);
    let mut client = Trickler::new(&mut world, port, 20);
    client.announce(&mut world, port, 0, 1 << 20);
    for (below, told) in [(5, Some(5)), (5, None), (4, None), (6, Some(6))] {
        let done = Frame::Done { to: SERVER, finished_below: below, attempts: Vec::new() };
        client.say(&mut world, done);
        assert_eq!(finished(&mut world, port).map(|(_, below)| below), told, "{below}");
    }
}

#[test]
fn a_call_under_way_is_not_finished() {
    let (mut world, port) = services(&[7], false);
    let first = world.call(CLIENT, port, b"hello", 9 * SECONDS);
    world.run(MS);
    let slow = world.take(1).unwrap();
    world.call(CLIENT, port, b"hello", 9 * SECONDS);
    world.run(MS);
    let quick = world.take(1).unwrap();
    world.reply(1, quick.id, b"done").unwrap();
    world.run(40 * MS);
    assert_eq!(finished(&mut world, port).unwrap().1, first);
    world.reply(1, slow.id, b"done").unwrap();
    world.run(40 * MS);
    assert!(finished(&mut world, port).unwrap().1 > quick.call);
}

#[test]
fn a_client_that_ends_says_so_at_once_and_can_call_again() {
    let (mut world, port) = services(&[7], false);
    let call = world.call(CLIENT, port, b"hello", 9 * SECONDS);
    world.run(MS);
    let request = world.take(1).unwrap();
    // It has no session before the server has answered something.
    world.run(50 * MS);
    let now = world.now;
    world.host(CLIENT).endpoint.end_calls(now);
    world.drain(CLIENT);
    assert!(world.host(CLIENT).endpoint.is_idle());
    world.run(MS);
    assert!(finished(&mut world, port).unwrap().1 > call);
    assert_eq!(world.outcome(CLIENT, call), None);
    assert_eq!(world.reply(1, request.id, b"done"), Ok(()));
    world.host(1).answers = Some(|request: &Request| request.payload.clone());
    world.answered(CLIENT, port);
}

#[test]
fn services_that_do_not_recognise_repeats_hear_of_no_finished_calls() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(CLIENT);
    world.answered(CLIENT, port);
    world.run(40 * MS);
    assert_eq!(finished(&mut world, port), None);
}
