//! Makes null calls between two endpoints, for counting instructions:
//! `valgrind --tool=callgrind target/release/examples/call_cost 1 10000`.

#[path = "../tests/common/null_calls.rs"]
mod null_calls;

use bytes::BytesMut;
use null_calls::NullCalls;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let at_once = arguments.next().unwrap_or(1);
    let rounds = arguments.next().unwrap_or(10_000);
    let mut calls = NullCalls::new(|bytes| BytesMut::from(bytes));
    for _ in 0..rounds {
        calls.round(at_once);
        calls.pass_time();
    }
    println!("{} calls, {} datagrams", calls.answered, calls.datagrams);
}
