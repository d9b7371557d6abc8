//! Several servers of one port share the work.

use crate::world::*;
use std::collections::VecDeque;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// Returns the number of calls that each server executes in `time`. Server i takes `takes[i]` for one call, and each
/// client always has one call under way.
fn shares(clients: u16, takes: &[Duration], time: Duration) -> Vec<usize> {
    let mut world = World::new();
    let port = public(&PRIVATE);
    let servers: Vec<u16> = (1..=takes.len() as u16).collect();
    for server in &servers {
        world.start_echo(*server, PRIVATE);
        world.host(*server).answers = None;
    }
    let mut calls = Vec::new();
    for client in 100..100 + clients {
        world.start(client);
        calls.push((client, world.call(client, port, b"x", 60 * SECONDS)));
    }
    let mut working: Vec<VecDeque<(Time, RequestId)>> = vec![VecDeque::new(); takes.len()];
    let mut shares = vec![0; takes.len()];
    let until = world.now + time;
    while world.now < until {
        for (index, server) in servers.iter().enumerate() {
            while let Some((at, id)) = working[index].front().copied()
                && at <= world.now
            {
                working[index].pop_front();
                let _ = world.reply(*server, id, b"y");
                shares[index] += 1;
            }
            // A server executes one call at a time.
            while working[index].is_empty()
                && let Some(request) = world.take(*server)
            {
                working[index].push_back((world.now + takes[index], request.id));
            }
        }
        world.run(MS / 10);
        for (client, call) in &mut calls {
            if world.outcome(*client, *call).is_some() {
                *call = world.call(*client, port, b"x", 60 * SECONDS);
            }
        }
    }
    shares
}

#[test]
fn equal_servers_get_equal_shares() {
    let shares = shares(7, &[MS; 3], 2 * SECONDS);
    let total: usize = shares.iter().sum();
    assert!(total > 5000, "{shares:?}");
    for share in &shares {
        assert!(share.abs_diff(total / 3) < total / 3 / 10, "{shares:?}");
    }
}

#[test]
fn a_slow_server_gets_less() {
    let shares = shares(8, &[MS, 4 * MS], 2 * SECONDS);
    let total = shares[0] + shares[1];
    assert!(shares[0] > total / 2 && total > 2200, "{shares:?}");
}

#[test]
fn a_call_goes_to_the_one_server_that_takes_it() {
    let mut world = World::new();
    for server in [1, 2] {
        let options = ServeOptions { queue_max: 1, ..ServeOptions::default() };
        world.start(server).endpoint.serve(PRIVATE, options).unwrap();
    }
    let port = world.start_echo(3, PRIVATE);
    world.start(4);
    let mut busy = 0;
    for _ in 0..100 {
        world.call(4, port, b"x", 60 * SECONDS);
        world.run(MS);
        busy += [1, 2].into_iter().filter(|server| world.take(*server).is_some()).count();
    }
    assert_eq!(busy, 2, "both are full");
    for _ in 0..20 {
        let call = world.call(4, port, b"x", SECONDS);
        assert_eq!(world.wait(4, call), (WAY * 2, Ok("x".into())));
    }
}

#[test]
fn servers_that_come_later_get_their_share() {
    let mut world = World::new();
    let port = world.start_echo(1, PRIVATE);
    world.start(3);
    world.answered(3, port);
    world.start_echo(2, PRIVATE);
    for _ in 0..60 {
        world.answered(3, port);
        world.run(MS * 100);
    }
    assert!(!world.host(2).requests.is_empty());
    assert_eq!(world.host(3).endpoint.counters().locates, 2, "one question in five seconds");
}

#[test]
fn so_many_servers_of_a_port_are_remembered() {
    let mut world = World::new();
    (1..=40).for_each(|server| _ = world.start_echo(server, PRIVATE));
    let port = public(&PRIVATE);
    world.start(100);
    for _ in 0..500 {
        world.answered(100, port);
    }
    let used = (1..=40).filter(|server| !world.hosts[server].requests.is_empty()).count();
    assert_eq!(used, 32);
}
