//! In the steady state the core allocates nothing for a call, from `call` to its outcome. A client that a server knows
//! costs it little memory.
//!
//! Counted is everything that client and server do for a call: writing and reading requests and replies, slots,
//! sessions, the application's part. Payloads are passed as `Bytes`, and each datagram in a buffer that is part of a
//! larger one, as in the real driver. Making these is not counted. Nor is the work of timers.
//!
//! This is a program of its own because it counts every allocation that its thread makes.

#[path = "common/null_calls.rs"]
mod null_calls;

use bytes::BytesMut;
use null_calls::NullCalls;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Bytes allocated and not freed.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            BYTES.set(BYTES.get() + layout.size() as isize);
        }
        // SAFETY: as the caller promised us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTS.get() {
            BYTES.set(BYTES.get() - layout.size() as isize);
        }
        // SAFETY: as the caller promised us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const WARM_UP: usize = 1_000;
const ROUNDS: usize = 5_000;

/// Returns a part of a larger buffer. This allocation is not counted.
fn received(bytes: &[u8]) -> BytesMut {
    let counts = COUNTS.replace(false);
    let mut buffer = BytesMut::with_capacity(2 * bytes.len());
    buffer.extend_from_slice(bytes);
    let datagram = buffer.split();
    COUNTS.set(counts);
    datagram
}

#[test]
fn a_call_costs_no_allocation_and_calls_under_way_together_share_datagrams() {
    for at_once in [1, 64] {
        let mut calls = NullCalls::new(received);
        for _ in 0..WARM_UP {
            calls.round(at_once);
            calls.pass_time();
        }
        ALLOCATIONS.set(0);
        let (answered, datagrams) = (calls.answered, calls.datagrams);
        for _ in 0..ROUNDS {
            COUNTS.set(true);
            calls.round(at_once);
            COUNTS.set(false);
            calls.pass_time();
        }
        assert_eq!(calls.answered - answered, (at_once * ROUNDS) as u64);
        assert_eq!(ALLOCATIONS.get(), 0, "{at_once} at once, in {ROUNDS} rounds");
        // Besides these, a few hundred datagrams carry acknowledgements alone.
        let expected = if at_once == 1 { 2 * ROUNDS } else { 5 * ROUNDS } as u64;
        let sent = calls.datagrams - datagrams;
        assert!((expected..expected + expected / 20).contains(&sent), "{sent} datagrams, {at_once} at once");
    }
}

#[test]
fn ten_thousand_clients_cost_their_server_less_than_fifty_megabytes() {
    const CLIENTS: u64 = 10_000;
    let mut calls = NullCalls::new(|bytes| BytesMut::from(bytes));
    BYTES.set(0);
    COUNTS.set(true);
    for client in 0..CLIENTS {
        calls.change_client(100 + client);
        calls.round(1);
    }
    COUNTS.set(false);
    let each = BYTES.get() / CLIENTS as isize;
    assert!((100..1000).contains(&each), "{each} bytes each");
}
