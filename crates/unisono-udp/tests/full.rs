//! A full send buffer: no caller waits for it, and nothing is lost.
//!
//! The send buffer never fills on a fast loopback. So the test starts itself again in a network namespace of its own,
//! whose loopback is slow.

#[path = "common/namespace.rs"]
mod namespace;

use namespace::run_inside;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use unisono_udp::{Progress, Receiver, Socket, Watch};

const DATAGRAM_BYTES: usize = 1400;
const DATAGRAMS: u32 = 2000;
/// The loopback carries less than the test sends: 2.8 MB at 20 Mbit/s take more than a second.
const RATE: &str = "20mbit";
/// Maximum time of the fastest call. If calls waited for space, each would take longer, at least a tick of the kernel's
/// clock. A call that does not wait may still be interrupted now and then.
const CALL_MAX: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_full_send_buffer_blocks_no_caller_and_loses_nothing() {
    let slow = format!(
        "ip link set lo up mtu 1500 && tc qdisc add dev lo root tbf rate {RATE} burst 4k latency 60s"
    );
    run_inside(&slow, || [false, true].into_iter().for_each(send_more_than_fits));
}

/// Whether the sender's receives block makes no difference.
fn send_more_than_fits(blocking: bool) {
    let bind = || Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let (sender, receivers) = (bind(), [bind(), bind()]);
    sender.set_blocking(blocking).unwrap();
    let to = receivers.each_ref().map(Socket::address);
    let run: Vec<u8> = (0..DATAGRAMS).flat_map(|n| [n.to_be_bytes(); DATAGRAM_BYTES / 4].concat()).collect();
    let watch = Watch::new().unwrap();
    watch.add(&sender, 0).unwrap();
    watch.set_alarm(PATIENCE);
    receivers.iter().zip(1..).for_each(|(receiver, key)| watch.add(receiver, key).unwrap());

    let (mut progress, mut sent, mut refusals, mut fastest) = (Progress::default(), false, 0, Duration::MAX);
    let (mut receiver, mut taken, begin) = (Receiver::new(), [0, 0], Instant::now());
    while taken != [DATAGRAMS; 2] {
        assert!(begin.elapsed() < PATIENCE, "{taken:?} of {DATAGRAMS}");
        let ready = if refusals == 0 { watch.look() } else { watch.wait() };
        for key in ready.keys().iter().filter(|key| **key > 0) {
            let index = *key as usize - 1;
            receiver
                .receive(&receivers[index], |_, datagram| {
                    assert_eq!(datagram[..4], taken[index].to_be_bytes(), "in order, and none is missing");
                    taken[index] += 1;
                })
                .unwrap();
        }
        if !sent {
            let call = Instant::now();
            sent = sender.send_on(&run, DATAGRAM_BYTES, &to, &mut progress);
            if !sent {
                refusals += 1;
                fastest = fastest.min(call.elapsed());
            }
            watch.await_writable(&sender, 0, !sent);
        }
    }
    assert!(sent && refusals > 0 && progress.refused() == 0);
    assert!(
        fastest < CALL_MAX,
        "with a full send buffer the fastest call took {fastest:?}, blocking: {blocking}"
    );
}
