//! In the steady state the core allocates nothing for a message, from `send` to its delivery at all members.
//!
//! Counted is everything that three members do for a message: writing and reading datagrams, numbering, filing the
//! message in the histories and removing it, acknowledgements, events, outcomes. The payload is passed as `Bytes`, and
//! each datagram in a buffer that is part of a larger one, as in the real driver. Making these is not counted. Nor is
//! the work of timers: the calls of `handle_timeout` and what follows from them.
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
/// Number of rounds before counting: enough to fill the histories and everything that grows with them.
const WARM_UP: usize = 20_000;
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
