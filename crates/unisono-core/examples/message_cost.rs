//! So many rounds of messages among three members, driven by hand: `message_cost SCENARIO ROUNDS`.
//!
//! It measures nothing itself. `.ci/instructions` runs it under callgrind, with two numbers of rounds, and compares what
//! a message costs with a table.

#[path = "../tests/common/lockstep.rs"]
mod lockstep;

use bytes::{Bytes, BytesMut};
use lockstep::{Lockstep, SCENARIOS};

const PAYLOAD: Bytes = Bytes::from_static(&[7; 64]);
const BLOCK_BYTES: usize = 2048;

/// Small datagrams lie side by side in a block, as with the real driver.
fn receive() -> impl FnMut(&[u8]) -> BytesMut {
    let mut block = BytesMut::new();
    move |datagram| {
        if block.capacity() < datagram.len() {
            block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        block.extend_from_slice(datagram);
        block.split()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next();
    let scenario = SCENARIOS.into_iter().find(|scenario| Some(scenario.name) == named.as_deref());
    let rounds: Option<u64> = arguments.next().and_then(|rounds| rounds.parse().ok());
    let (Some(scenario), Some(rounds)) = (scenario, rounds) else {
        // The names, for those who want to run them all.
        SCENARIOS.iter().for_each(|scenario| println!("{} {}", scenario.name, scenario.at_once));
        return;
    };
    let mut lockstep = Lockstep::new(scenario, receive());
    (0..rounds).for_each(|_| lockstep.round(&PAYLOAD));
    let expected = rounds * scenario.at_once as u64;
    assert!(lockstep.delivered.iter().all(|delivered| *delivered == expected), "{:?}", lockstep.delivered);
}
