//! Runs a given number of rounds of null calls between two endpoints, driven by hand: `call_cost SCENARIO ROUNDS`.
//!
//! It measures nothing itself. `.ci/instructions` runs it under callgrind, as it does `message_cost`.

#[path = "../tests/common/block.rs"]
mod block;
#[path = "../tests/common/null_calls.rs"]
mod null_calls;

use null_calls::NullCalls;

/// Name of the scenario, and the number of calls under way at a time.
const SCENARIOS: [(&str, usize); 2] = [("null-call", 1), ("null-call-by-16", 16)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next();
    let scenario = SCENARIOS.into_iter().find(|(name, _)| Some(*name) == named.as_deref());
    let rounds: Option<u64> = arguments.next().and_then(|rounds| rounds.parse().ok());
    let (Some((_, at_once)), Some(rounds)) = (scenario, rounds) else {
        // Without arguments: lists the scenarios, for a caller that runs them all.
        SCENARIOS.iter().for_each(|(name, at_once)| println!("{name} {at_once}"));
        return;
    };
    let mut calls = NullCalls::new(block::receive());
    for _ in 0..rounds {
        calls.round(at_once);
        calls.pass_time();
    }
    assert_eq!(calls.answered, rounds * at_once as u64);
}
