//! A server and a client of calls behind free cryptography: every datagram is genuine to them.

use crate::free::{Free, FreeKeys};
use crate::input::{Input, put_piece};
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::rpc::{CallSettings, Endpoint, KeyAgreement, PortProof, PrivatePort, ServeOptions};
use unisono_core::{Port, Random, Time, Uid};

/// Maximum number of datagrams that one input makes an endpoint send before it is given up.
const SENT_MAX: usize = 100_000;
const PORT: u128 = 77;

fn address(host: u16) -> SocketAddr {
    ([10, 0, 0, 1], host).into()
}

fn endpoint(now: Time, host: u16) -> Option<Endpoint> {
    let keys: (Box<dyn PortProof>, Box<dyn KeyAgreement>) =
        (Box::new(Free), Box::new(FreeKeys(Uid(1000 + u64::from(host)))));
    let random = Random::from_u64(host.into());
    Endpoint::new(now, address(host), CallSettings::default(), Box::new(Free), keys, random).ok()
}

fn drain(endpoint: &mut Endpoint, now: Time) -> Vec<Vec<u8>> {
    let (mut out, mut sent) = (Vec::new(), Vec::new());
    while endpoint.poll_transmit(now, &mut out).is_some() {
        sent.push(out.clone());
        assert!(sent.len() < SENT_MAX, "datagrams without end");
    }
    while endpoint.poll_outcome().is_some() {}
    sent
}

/// Returns a server at host 1, and a client at host 2 that calls it.
fn pair(now: Time) -> Option<[Endpoint; 2]> {
    let (mut server, mut client) = (endpoint(now, 1)?, endpoint(now, 2)?);
    server.serve(PrivatePort(PORT), ServeOptions::default()).ok()?;
    client.call(now, Port(PORT), Bytes::from(vec![3; 3000]), Duration::from_secs(10)).ok()?;
    Some([server, client])
}

/// An input is a sequence of steps. The lowest bit of the first byte says which endpoint, the next two what: a datagram, a
/// datagram by multicast, a time, or replies to all requests.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut now = Time::from_nanos(1_000_000_000);
    let Some(mut endpoints) = pair(now) else { return };
    for _ in 0..256 {
        if input.is_empty() {
            break;
        }
        let kind = input.byte();
        let endpoint = &mut endpoints[usize::from(kind & 1)];
        let from = address(u16::from(kind >> 3));
        match kind >> 1 & 3 {
            0 => endpoint.handle_datagram(now, from, BytesMut::from(input.piece())),
            1 => endpoint.handle_multicast(now, from, BytesMut::from(input.piece())),
            2 => now = now + Duration::from_millis(input.u16().into()),
            _ => {
                let bytes = usize::from(input.u16());
                while let Some(request) = endpoint.poll_request(now) {
                    let _ = endpoint.reply(now, request.id, Bytes::from(vec![5; bytes]));
                }
                while endpoint.poll_finished(Port(PORT)).is_some() {}
            }
        }
        for endpoint in &mut endpoints {
            endpoint.handle_timeout(now);
            drain(endpoint, now);
        }
    }
}

/// Returns the datagrams of a call that is answered, one by one and as steps.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut now = Time::from_nanos(1_000_000_000);
    let Some(mut endpoints) = pair(now) else { return vec![] };
    let (mut seeds, mut all) = (Vec::new(), Vec::new());
    for round in 0..60 {
        now = now + Duration::from_millis(5);
        all.extend_from_slice(&[4, 0, 5]);
        if round % 10 == 9 {
            all.extend_from_slice(&[6, 16, 0]);
            while let Some(request) = endpoints[0].poll_request(now) {
                let _ = endpoints[0].reply(now, request.id, Bytes::from(vec![5; 4096]));
            }
        }
        let mut under_way = Vec::new();
        for (place, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.handle_timeout(now);
            under_way.extend(drain(endpoint, now).into_iter().map(|datagram| (place, datagram)));
        }
        for (from, datagram) in under_way {
            let to = 1 - from;
            let mut step = vec![to as u8 | (from as u8 + 1) << 3];
            put_piece(&mut step, &datagram);
            all.extend_from_slice(&step);
            seeds.push(step);
            endpoints[to].handle_datagram(now, address(from as u16 + 1), BytesMut::from(&datagram[..]));
        }
    }
    seeds.push(all);
    seeds
}
