//! The number of allocations in the whole library for a message, from `send` to its delivery at all members (one or two
//! small ones), and for a call, from its beginning to its answer (hardly more than its request and its reply).
//!
//! All threads of three members in one process are counted, timers included. The core allocates nothing for a message
//! or a call, as its own tests show. What remains are the lists of wakers, and now and then a block for received
//! datagrams.
//!
//! This is a program of its own because it counts every allocation that is made in it.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use unisono::rpc::{Client, PrivatePort, ServeOptions, Server};
use unisono::{Bytes, Event, Group, Options};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Held by the test that counts.
static COUNTS: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

const MEMBERS: usize = 3;
const MESSAGE: Bytes = Bytes::from_static(&[7; 64]);
const WARM_UP: usize = 20_000;
const MESSAGES: usize = 10_000;
/// Maximum for a message at three members with resilience 1: about eight datagrams, each sent and received.
const ALLOCATIONS_MAX: f64 = 3.0;

#[test]
fn a_message_costs_hardly_an_allocation_in_the_whole_library() {
    let _alone = COUNTS.lock().unwrap();
    let groups = common::members(&common::fresh_name("allocation"), MEMBERS);
    let receive = |group: &Group| {
        let (mut events, mut received) = (Vec::with_capacity(1024), 0);
        while received < WARM_UP + MESSAGES {
            group.receive_many(&mut events).unwrap();
            received += events.drain(..).filter(|event| matches!(event, Event::Message { .. })).count();
        }
    };
    std::thread::scope(|scope| {
        groups.iter().for_each(|group| drop(scope.spawn(|| receive(group))));
        let sender = &groups[MEMBERS - 1];
        let send = |count| (0..count).for_each(|_| assert!(sender.send(MESSAGE).unwrap() > 0));
        send(WARM_UP);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        send(MESSAGES);
        let each = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / MESSAGES as f64;
        let _ = writeln!(std::io::stderr(), "{each:.2} allocations for a message at {MEMBERS} members");
        assert!(each < ALLOCATIONS_MAX, "{each}");
    });
}

const CALLS: usize = 10_000;
/// Maximum for a call: the request, the reply, and a list of wakers at each side.
const CALL_ALLOCATIONS_MAX: f64 = 3.0;

#[test]
fn a_call_costs_hardly_an_allocation_beside_its_request_and_its_reply() {
    let _alone = COUNTS.lock().unwrap();
    let port = PrivatePort::random().unwrap();
    let server = Server::new(&port, ServeOptions::default(), &Options::default()).unwrap();
    let elsewhere = Options { bind: Some(([127, 0, 0, 2], 0).into()), ..Options::default() };
    let client = Client::new(&elsewhere).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(1, |request| request.payload().to_vec().into()));
        let call = |count| (0..count).for_each(|_| drop(client.call(port.public(), vec![7; 64]).unwrap()));
        call(CALLS);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        call(CALLS);
        let each = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / CALLS as f64;
        server.drain(common::PATIENCE).unwrap();
        let _ = writeln!(std::io::stderr(), "{each:.2} allocations for a call");
        assert!(each < CALL_ALLOCATIONS_MAX, "{each}");
    });
}
