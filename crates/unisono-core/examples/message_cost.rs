//! Runs a given number of rounds of messages among three members, driven by hand: `message_cost SCENARIO ROUNDS`.
//!
//! It measures nothing itself. `.ci/instructions` runs it under callgrind, with two numbers of rounds, and compares
//! what a message costs with a table.

#[path = "../tests/common/block.rs"]
mod block;
#[path = "../tests/common/lockstep.rs"]
mod lockstep;

use bytes::Bytes;
use lockstep::{Lockstep, SCENARIOS};

const PAYLOAD: Bytes = Bytes::from_static(&[7; 64]);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next();
    let scenario = SCENARIOS.into_iter().find(|scenario| Some(scenario.name) == named.as_deref());
    let rounds: Option<u64> = arguments.next().and_then(|rounds| rounds.parse().ok());
    let (Some(scenario), Some(rounds)) = (scenario, rounds) else {
        // Without arguments: lists the scenarios, for a caller that runs them all.
        SCENARIOS.iter().for_each(|scenario| println!("{} {}", scenario.name, scenario.at_once));
        return;
    };
    let mut lockstep = Lockstep::new(scenario, block::receive());
    (0..rounds).for_each(|_| lockstep.round(&PAYLOAD));
    let expected = rounds * scenario.at_once as u64;
    assert!(lockstep.delivered.iter().all(|delivered| *delivered == expected), "{:?}", lockstep.delivered);
}
