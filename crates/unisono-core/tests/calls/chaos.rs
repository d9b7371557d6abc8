//! Many calls over a bad network, with servers and clients that crash and come back. No call is executed twice, no call
//! that is reported as not executed was executed, and every reply belongs to its call.

use crate::large::bad_network;
use crate::world::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SERVERS: [u16; 3] = [1, 2, 3];
const CLIENTS: [u16; 4] = [10, 11, 12, 13];

struct Begun {
    client: Uid,
    deadline: Time,
    request: Bytes,
}

/// Calls under way by host and number, how often each was executed, and the outcomes so far.
#[derive(Default)]
struct Books {
    begun: BTreeMap<(u16, CallNumber), Begun>,
    executed: BTreeMap<(Uid, CallNumber), u32>,
    outcomes: BTreeMap<&'static str, u32>,
}

fn answer(request: &[u8]) -> Bytes {
    request.iter().rev().copied().collect()
}

fn name(outcome: &Result<Bytes, CallFailure>) -> &'static str {
    match outcome {
        Ok(_) => "ok",
        Err(CallFailure::NotFound) => "not found",
        Err(CallFailure::Failed) => "failed",
        Err(CallFailure::OtherInstance) => "other instance",
        Err(CallFailure::Busy) => "busy",
        Err(CallFailure::Refused(_)) => "refused",
        Err(CallFailure::Unknown) => "unknown",
    }
}

fn start_server(world: &mut World, host: u16) {
    world.start_echo(host, PRIVATE);
    world.host(host).answers = None;
}

fn run(seed: u64, books: &mut Books) {
    let mut world = World::new();
    let mut random = Random::from_u64(seed);
    let port = public(&PRIVATE);
    SERVERS.into_iter().for_each(|host| start_server(&mut world, host));
    CLIENTS.into_iter().for_each(|host| {
        world.start(host);
    });
    world.fate = bad_network(seed);
    let mut never = Vec::new();
    for round in 0..400 {
        if round < 300 {
            let host = CLIENTS[random.below(4) as usize];
            let size = if random.chance(0.05) { 20_000 } else { random.below(200) };
            let request: Bytes = (0..size).map(|_| random.next_u64() as u8).collect();
            let within = MS * (random.below(1500) as u32 + 1);
            let number = world.call(host, port, &request, within);
            let (client, deadline) = (world.host(host).endpoint.uid(), world.now + within);
            books.begun.insert((host, number), Begun { client, deadline, request });
        }
        for host in SERVERS {
            work(&mut world, host, &mut random, books);
        }
        if random.chance(0.03) {
            start_server(&mut world, SERVERS[random.below(3) as usize]);
        }
        if random.chance(0.01) {
            let host = CLIENTS[random.below(4) as usize];
            settle(&mut world, host, books, &mut never);
            // Calls of the former life have no outcome.
            books.begun.retain(|(begun_at, _), _| *begun_at != host);
            world.start(host);
        }
        if random.chance(0.02) {
            let host = SERVERS[random.below(3) as usize];
            world.host(host).endpoint.withdraw(port);
            world.drain(host);
        }
        world.run(Duration::from_micros(random.below(20_000)));
        CLIENTS.into_iter().for_each(|host| settle(&mut world, host, books, &mut never));
    }
    world.run(Duration::from_secs(2));
    CLIENTS.into_iter().for_each(|host| settle(&mut world, host, books, &mut never));
    assert!(books.begun.is_empty(), "seed {seed}: {} calls without an outcome", books.begun.len());
    for (call, outcome) in never {
        assert_eq!(books.executed.get(&call), None, "seed {seed}: {call:?} was executed, and is {outcome}");
    }
    for host in CLIENTS {
        let account = world.host(host).endpoint.account();
        assert_eq!((account.calls, account.receiving_bytes), (0, 0), "seed {seed}");
    }
}

/// The application of a server: executes, refuses or forwards requests, at once or later.
fn work(world: &mut World, host: u16, random: &mut Random, books: &mut Books) {
    while random.chance(0.8)
        && let Some(request) = world.take(host)
    {
        let now = world.now;
        let call = (request.client, request.call);
        if random.chance(0.3) {
            let to = address(SERVERS[random.below(3) as usize]);
            if world.host(host).endpoint.forward(request.id, to).is_ok() {
                continue;
            }
        }
        let times = books.executed.entry(call).or_default();
        *times += 1;
        assert_eq!(*times, 1, "call {call:?} was executed twice");
        let endpoint = &mut world.host(host).endpoint;
        let _ = match random.chance(0.1) {
            true => endpoint.refuse(now, request.id, answer(&request.payload)),
            false => endpoint.reply(now, request.id, answer(&request.payload)),
        };
    }
    world.drain(host);
}

/// Checks a client's outcomes.
fn settle(
    world: &mut World,
    host: u16,
    books: &mut Books,
    never: &mut Vec<((Uid, CallNumber), &'static str)>,
) {
    let now = world.now;
    for (number, outcome) in std::mem::take(&mut world.host(host).outcomes) {
        let begun = books.begun.remove(&(host, number)).expect("a call that was begun");
        *books.outcomes.entry(name(&outcome)).or_default() += 1;
        match &outcome {
            Ok(reply) | Err(CallFailure::Refused(reply)) => {
                assert_eq!(*reply, answer(&begun.request), "the reply matches the call");
                assert_eq!(books.executed.get(&(begun.client, number)), Some(&1));
            }
            Err(CallFailure::Unknown) => {}
            Err(_) => never.push(((begun.client, number), name(&outcome))),
        }
    }
    for ((at, number), begun) in &books.begun {
        assert!(*at != host || begun.deadline + MS >= now, "call {number} is over its deadline");
    }
}

#[test]
fn nothing_is_executed_twice_and_nothing_that_did_not_happen_has() {
    let mut books = Books::default();
    for seed in 0..40 {
        books.executed.clear();
        run(seed, &mut books);
    }
    println!("{:?}", books.outcomes);
    assert!(books.outcomes["ok"] > 5000, "{:?}", books.outcomes);
    assert!(books.outcomes["unknown"] > 100 && books.outcomes["unknown"] < 3000, "{:?}", books.outcomes);
}
