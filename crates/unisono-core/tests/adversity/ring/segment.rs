//! A ring on a shared segment of 10 Mbit/s, on which a datagram that finds its host's queue full is lost.

use super::*;

/// Time on the wire of a byte, in nanoseconds.
const BYTE: u64 = 800;
/// Datagrams that wait at a host.
const QUEUE: usize = 82;

/// The segment: hosts take turns, each datagram once, whether or not it is for several.
#[derive(Default)]
struct Segment {
    /// When the datagrams that wait at each host have left.
    leave: [Vec<u64>; 4],
    /// The last datagram, and when it arrives.
    last: (usize, u64, Option<u64>),
    lost: usize,
}

impl Segment {
    fn delay(&mut self, seen: &Seen) -> Option<u64> {
        if seen.multicast && (self.last.0, self.last.1) == (seen.from, seen.number) {
            return self.last.2.map(|at| at - seen.now);
        }
        let others = (0..4)
            .filter(|host| *host != seen.from && self.leave[*host].last().is_some_and(|at| *at > seen.now))
            .count();
        let waiting = &mut self.leave[seen.from];
        waiting.retain(|at| *at > seen.now);
        let is_lost = waiting.len() >= QUEUE;
        let at = (!is_lost).then(|| {
            let begin = waiting.last().map_or(seen.now, |last| *last);
            let hosts = 1 + others as u64;
            waiting.push(begin + (seen.bytes as u64 + 66) * BYTE * hosts);
            begin + (seen.bytes as u64 + 66) * BYTE * hosts + LATENCY
        });
        self.lost += usize::from(is_lost);
        self.last = (seen.from, seen.number, at);
        at.map(|at| at - seen.now)
    }
}

/// Returns how many messages of 1,400 bytes a lone sender gets through in two seconds, and how many datagrams are lost.
fn through(order: Order, transport: Transport) -> (usize, usize) {
    let config = GroupConfig { order, resilience: 0, ..GroupConfig::default() };
    let mut net = group_with(3, config, Settings { transport, ..Settings::default() });
    net.run(3_000 * MS);
    let segment = Rc::new(RefCell::new(Segment::default()));
    let shared = segment.clone();
    net.filter(move |seen| shared.borrow_mut().delay(seen));
    let pour = |net: &mut Net, time: u64| {
        let begin = net.now;
        while net.now < begin + time {
            while net.group(2).info().under_way < 1024 && net.send(2, &[7; 1400]).is_ok() {}
            net.run(MS / 2);
        }
    };
    pour(&mut net, 1_000 * MS);
    let (before, lost) = (net.delivered(1), segment.borrow().lost);
    pour(&mut net, 2_000 * MS);
    (net.delivered(1) - before, segment.borrow().lost - lost)
}

// Each host is a sequencer at times. What a member numbers of its own without regard to the path fills its queue: passes are
// lost behind it, requests for what waits in it bring more, and the ring orders a third as much.
#[test]
fn a_lone_sender_fills_a_slow_segment() {
    for (transport, least) in [(Transport::Multicast, 95), (Transport::Unicast, 50)] {
        let (fixed, _) = through(Order::Sequencer(Migration::Never), transport);
        let (ring, lost) = through(Order::Token, transport);
        assert!(ring * 100 >= fixed * least, "{transport:?}: {ring} messages, {fixed} with a sequencer");
        assert_eq!(lost, 0, "{transport:?}");
    }
}
