//! FLIP, the papers' network layer: messages of any size, in packets that fit an Ethernet.
//!
//! A message is cut into packets, each with the headers of Ethernet, flow control and FLIP. It is handed up when all its
//! packets have arrived; if one is lost, the message is. On other machines the same module stands for IP and UDP.

use super::costs::Machine;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A message under way. All its packets share it.
#[derive(Debug)]
pub(super) struct Envelope<M> {
    pub(super) number: u64,
    pub(super) to: Audience,
    /// Number of packets.
    pub(super) packets: usize,
    pub(super) message: M,
}

/// The nodes for which a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// One node.
    One(usize),
    /// All nodes of a range but its sender: a multicast.
    All(Range<usize>),
}

/// A part of a message that fits a frame.
#[derive(Debug)]
pub(super) struct Packet<M> {
    /// Bytes of the frame, headers included.
    pub(super) bytes: u64,
    pub(super) envelope: Rc<Envelope<M>>,
}

impl<M> Clone for Packet<M> {
    fn clone(&self) -> Packet<M> {
        Packet { bytes: self.bytes, envelope: self.envelope.clone() }
    }
}

impl Audience {
    /// True if a node gets what `from` sends to this audience.
    pub(super) fn has(&self, node: usize, from: usize) -> bool {
        match self {
            Audience::One(one) => *one == node,
            Audience::All(range) => range.contains(&node) && node != from,
        }
    }
}

/// Returns the sizes of the packets in which `bytes` travel, headers included.
pub(super) fn cut(bytes: u64, machine: &Machine) -> Vec<u64> {
    let headers = machine.packet_header_bytes();
    let room = machine.packet_bytes_max - headers;
    let mut sizes = vec![headers + room; (bytes / room) as usize];
    if !bytes.is_multiple_of(room) || sizes.is_empty() {
        sizes.push(headers + bytes % room);
    }
    sizes
}

/// Counts the packets of messages that have not arrived as a whole.
#[derive(Debug, Default)]
pub(super) struct Assembly(BTreeMap<u64, usize>);

impl Assembly {
    /// Takes a packet. Returns true if its message is complete.
    pub(super) fn take<M>(&mut self, packet: &Packet<M>) -> bool {
        let Envelope { number, packets, .. } = *packet.envelope;
        let arrived = self.0.entry(number).or_default();
        *arrived += 1;
        let complete = *arrived == packets;
        if complete {
            self.0.remove(&number);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{Costs, MachineName};
    use super::*;

    fn mc68030() -> Machine {
        Costs::default().machine(MachineName::Mc68030)
    }

    #[test]
    fn a_message_is_cut_into_full_packets_and_a_rest() {
        let machine = mc68030();
        assert_eq!(cut(60, &machine), [116], "a null message [KT93 §6.2]");
        assert_eq!(cut(28, &machine), [84]);
        assert_eq!(cut(0, &machine), [56]);
        assert_eq!(cut(1458, &machine), [1514]);
        assert_eq!(cut(1459, &machine), [1514, 57]);
        assert_eq!(cut(8060, &machine).len(), 6);
        let bytes: u64 = cut(8060, &machine).iter().sum();
        assert_eq!(bytes, 8060 + 6 * 56, "no byte is lost");
    }

    #[test]
    fn a_message_is_complete_with_its_last_packet() {
        let envelope =
            |number| Rc::new(Envelope { number, to: Audience::One(0), packets: 2, message: "text" });
        let packet = |envelope: &Rc<Envelope<_>>| Packet { bytes: 100, envelope: envelope.clone() };
        let (one, other) = (envelope(1), envelope(2));
        let mut assembly = Assembly::default();
        let taken = [&one, &other, &one, &other].map(|envelope| assembly.take(&packet(envelope)));
        assert_eq!(taken, [false, false, true, true]);
        assert!(assembly.0.is_empty());
    }

    #[test]
    fn a_multicast_reaches_the_others_of_its_range() {
        let all = Audience::All(2..5);
        assert_eq!([1, 2, 3, 4, 5].map(|node| all.has(node, 3)), [false, true, false, true, false]);
        assert!(Audience::One(3).has(3, 3));
    }
}
