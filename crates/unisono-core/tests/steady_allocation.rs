//! In the steady state a message costs the core no allocation, from `send` to its delivery at all members.
//!
//! Counted is everything that three members do for a message: its datagrams written and read, its number, its place
//! in the histories and its leaving them, acknowledgements, events, outcomes. The payload is handed in as `Bytes`, and
//! each datagram in a buffer of its own, which is part of a larger one as with the real driver; making these is not
//! counted. Nor is what time alone brings about: the calls of `handle_timeout` and what follows from them.
//!
//! This is a program of its own because it counts every allocation that its thread makes.

#[path = "common/lockstep.rs"]
mod lockstep;

use bytes::{Bytes, BytesMut};
use lockstep::{Lockstep, SCENARIOS};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + usize::from(COUNTS.get()));
        // SAFETY: as the caller promised us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PAYLOAD: Bytes = Bytes::from_static(&[7; 64]);
/// Fills the histories, and whatever else grows to its size.
const WARM_UP: usize = 20_000;
const ROUNDS: usize = 5_000;

/// A part of a larger buffer, which nobody counts.
fn received(bytes: &[u8]) -> BytesMut {
    let counts = COUNTS.replace(false);
    let mut buffer = BytesMut::with_capacity(2 * bytes.len());
    buffer.extend_from_slice(bytes);
    let datagram = buffer.split();
    COUNTS.set(counts);
    datagram
}

#[test]
fn a_message_costs_no_allocation_from_sending_to_delivery() {
    for scenario in SCENARIOS {
        let mut lockstep = Lockstep::new(scenario, received);
        (0..WARM_UP).for_each(|_| lockstep.round(&PAYLOAD));
        ALLOCATIONS.set(0);
        for _ in 0..ROUNDS {
            COUNTS.set(true);
            lockstep.send(&PAYLOAD);
            COUNTS.set(false);
            lockstep.pass_time();
        }
        let expected = (scenario.at_once * (WARM_UP + ROUNDS)) as u64;
        assert_eq!(lockstep.delivered, [expected; 3], "{}", scenario.name);
        assert_eq!(ALLOCATIONS.get(), 0, "{}: in {ROUNDS} rounds", scenario.name);
    }
}
