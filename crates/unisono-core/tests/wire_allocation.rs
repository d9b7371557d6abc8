//! The hot path allocates nothing for a message, and no input makes a reader allocate much.
//!
//! This is a program of its own because it counts every allocation that its thread makes.

use bytes::{Bytes, BytesMut};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use unisono_core::wire::*;
use unisono_core::{EpochTag, GroupTag, Instance, Quality, Uid};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
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

/// Returns the result of `run`, and the number of its allocations and of the bytes that it allocated.
fn counted<T>(run: impl FnOnce() -> T) -> (T, usize, usize) {
    let (allocations, bytes) = (ALLOCATIONS.get(), BYTES.get());
    let result = run();
    (result, ALLOCATIONS.get() - allocations, BYTES.get() - bytes)
}

const HEADER: Header = Header {
    protection: ProtectionKind::Checksum,
    group: GroupTag(1),
    epoch: EpochTag(2),
    sender: Uid(3),
    number: 4,
    salt: 0,
};
const CONTEXT: KeyContext = KeyContext { instance: Instance(5), sender: Uid(3), salt: 0 };

fn write(out: &mut Vec<u8>) -> u16 {
    out.clear();
    HEADER.write(out);
    let mut writer = Writer::new(out, 1472);
    assert!(writer.begin(&RunHead::Ordered {
        seqno: 1,
        sender: Uid(3),
        first: 1,
        quality: Quality::ORDERED
    }));
    while writer.piece(false, b"sixteen bytes...") {}
    let count = writer.end();
    assert!(seal(out, &HEADER, &CONTEXT, &mut Checksum));
    count
}

#[test]
fn a_message_costs_no_allocation() {
    let mut out = Vec::with_capacity(1472);
    let (written, allocations, _) = counted(|| write(&mut out));
    assert_eq!((written, allocations), (76, 0));

    // As in a real driver: a part of a larger buffer that other datagrams share.
    let mut buffer = BytesMut::with_capacity(1 << 16);
    buffer.extend_from_slice(&out);
    let datagram = buffer.split();
    let (read, allocations, _) = counted(|| {
        let header = Header::parse(&datagram).unwrap();
        let payload = open(datagram, &header, &CONTEXT, &mut Checksum).unwrap();
        let mut read = 0;
        for frame in Decoder::new(payload) {
            let Ok(Frame::Ordered(ordered)) = frame else { panic!("not a run") };
            read += ordered.pieces.iter().filter(|piece| &piece.bytes[..] == b"sixteen bytes...").count();
        }
        read
    });
    assert_eq!((read, allocations), (76, 0));
}

/// Only frames with lists allocate. Their counts are the only values that could make a reader allocate more than its
/// input has. So each count is set to its maximum, with nothing behind it.
#[test]
fn no_count_makes_a_reader_allocate_beyond_its_input() {
    let counts: &[(FrameKind, usize)] = &[
        (FrameKind::Nack, 0),
        (FrameKind::Ordered, 25),
        (FrameKind::Welcome, 8 + 16 + 24 + 8 + 38),
        (FrameKind::Welcome, 8 + 16 + 24 + 8 + 40 + 24),
        (FrameKind::Prepare, 12 + 2 + 24 + 8 + 1),
        (FrameKind::Decided, 1 + 24 + 8 + 1),
        (FrameKind::Parcel, 6),
    ];
    for &(kind, offset) in counts {
        for count in [32_u16, 4096, u16::MAX] {
            for filler in [0_u8, 1, 4] {
                let mut body = vec![filler; 400];
                body[offset..offset + 2].copy_from_slice(&count.to_be_bytes());
                let mut frame = vec![kind as u8];
                frame.extend_from_slice(&(body.len() as u16).to_be_bytes());
                frame.append(&mut body);
                let payload = Bytes::from(frame);
                // A Bytes made from a Vec allocates a reference counter when it is first shared.
                let shared = payload.clone();
                let (_, _, bytes) = counted(|| Decoder::new(payload).for_each(drop));
                assert!(bytes <= 8 * shared.len(), "{kind} with {count}: {bytes} bytes");
            }
        }
    }
}
