//! Frames, reports and explanations; and a founder of a group and a joiner, to which every datagram is genuine.

use crate::free::Free;
use crate::input::{Input, put_piece};
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::{
    Assembler, Checksum, Decoder, Frame, HEADER_BYTES, Header, KeyContext, ProtectionKind, Writer,
    decode_report, explain, seal,
};
use unisono_core::*;

/// Maximum number of datagrams that one input makes a process send before it is given up.
const SENT_MAX: usize = 10_000;

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn process(now: Time, number: u64, entry: EntryMode) -> Option<Group> {
    let name = Name::new(&number.to_string())?;
    let me = Member { uid: Uid(number), name, address: address(1000 + number as u16) };
    let (port, random) = (Port::from_name("fuzz"), Random::from_u64(number));
    let settings = Settings { transport: Transport::Unicast, ..Settings::default() };
    Group::new(now, me, port, entry, Bytes::new(), settings, Box::new(Free), random).ok()
}

/// Takes what a process has for its caller. Returns its datagrams.
fn drain(group: &mut Group, now: Time) -> Vec<Vec<u8>> {
    let (mut out, mut sent) = (Vec::new(), Vec::new());
    while group.poll_event().is_some() {}
    while group.poll_episode().is_some() {}
    while group.poll_transmit(now, &mut out).is_some() {
        sent.push(out.clone());
        assert!(sent.len() < SENT_MAX, "datagrams without end");
    }
    sent
}

fn read(bytes: &Bytes) {
    let mut assembler = Assembler::new();
    for frame in Decoder::new(bytes.clone()).flatten() {
        let mut written = Vec::new();
        assert!(Writer::new(&mut written, 1 << 17).frame(&frame), "{frame}");
        assert_eq!(Decoder::new(written.into()).next(), Some(Ok(frame)));
    }
    let _ = Frame::decode_alone(bytes);
    let _ = decode_report(bytes);
    let _ = assembler.take(1, 0, 2, bytes);
    let header = Header {
        protection: ProtectionKind::Checksum,
        group: GroupTag(1),
        epoch: EpochTag::OUTSIDE,
        sender: Uid(3),
        number: 4,
        salt: 0,
    };
    let mut datagram = Vec::new();
    header.write(&mut datagram);
    datagram.extend_from_slice(bytes);
    let context = KeyContext { instance: Instance(0), sender: header.sender, salt: header.salt };
    if seal(&mut datagram, &header, &context, &mut Checksum) {
        let words = explain(&datagram);
        assert!(words.chars().all(|c| c == '\n' || !c.is_control()), "{words:?}");
    }
    explain(bytes);
}

/// An input is a sequence of steps: which process (the lowest bit) gets the datagram, by multicast or not, after how many
/// milliseconds, and the datagram.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut now = Time::from_nanos(1_000_000_000);
    let entries = [EntryMode::Found(GroupConfig::default()), EntryMode::JoinOrFound(GroupConfig::default())];
    let [first, second] = entries;
    let (Some(founder), Some(joiner)) = (process(now, 1, first), process(now, 2, second)) else { return };
    let mut processes = [founder, joiner];
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let (kind, milliseconds) = (input.byte(), input.byte());
        let datagram = input.piece();
        if let Some(frames) = datagram.get(HEADER_BYTES..) {
            read(&Bytes::copy_from_slice(frames));
        }
        now = now + Duration::from_millis(milliseconds.into());
        let group = &mut processes[usize::from(kind & 1)];
        let from = address(1000 + u16::from(kind >> 2));
        match kind & 2 {
            0 => group.handle_datagram(now, from, BytesMut::from(datagram)),
            _ => group.handle_multicast(now, from, BytesMut::from(datagram)),
        }
        for group in &mut processes {
            group.handle_timeout(now);
            drain(group, now);
        }
    }
}

/// Returns what a founder and joiners send each other, as the steps of both.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut now = Time::from_nanos(1_000_000_000);
    let entries = [EntryMode::Found(GroupConfig::default()), EntryMode::JoinOrFound(GroupConfig::default())];
    let [first, second] = entries;
    let (Some(founder), Some(joiner)) = (process(now, 1, first), process(now, 2, second)) else {
        return vec![];
    };
    let mut processes = [founder, joiner];
    let (mut all, mut seeds) = (Vec::new(), Vec::new());
    for round in 0..120 {
        now = now + Duration::from_millis(5);
        let mut under_way = Vec::new();
        for (place, group) in processes.iter_mut().enumerate() {
            group.handle_timeout(now);
            if round == 60 {
                let _ = group.send(now, Bytes::from_static(b"hello"));
            }
            under_way.extend(drain(group, now).into_iter().map(|datagram| (place, datagram)));
        }
        for (from, datagram) in under_way {
            let to = 1 - from;
            let kind = to as u8 | (from as u8 + 1) << 2;
            let mut step = vec![kind, 5];
            put_piece(&mut step, &datagram);
            if seeds.len() < 200 {
                seeds.push(step.clone());
            }
            if all.len() < 8000 {
                all.extend_from_slice(&step);
            }
            processes[to].handle_datagram(now, address(1001 + from as u16), BytesMut::from(&datagram[..]));
        }
    }
    seeds.push(all);
    seeds
}
