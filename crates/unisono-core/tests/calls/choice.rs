//! Several servers of one port share the work.

use crate::world::*;
use std::collections::VecDeque;
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::*;

const PRIVATE: PrivatePort = PrivatePort(77);
const SECONDS: Duration = Duration::from_secs(1);

/// How many calls each server executes, if each takes so long for one and clients always have one under way.
fn shares(clients: u16, takes: &[Duration], time: Duration) -> Vec<usize> {
    let mut world = World::new();
    let port = PlainProof.public(&PRIVATE);
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
            // One at a time.
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
