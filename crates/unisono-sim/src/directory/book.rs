//! The capabilities that the clients of a run have learned. They share them, as people pass capabilities on.

use crate::draw::Draw;
use bytes::Bytes;
use std::collections::VecDeque;
use unisono_core::Random;
use unisono_table::{
    Answer, Capability, Check, Looked, ObjectNumber, Place, Port, Query, Reason, Reply, Request, Rights,
};

/// Maximum number of capabilities that are remembered; then the oldest but the root's are forgotten.
const KNOWN_MAX: usize = 96;
/// Maximum number of rows that are remembered as they were shown.
const SHOWN_MAX: usize = 12;

/// What the clients know, or one of them.
#[derive(Debug)]
pub(crate) struct Book {
    /// The root's capability, with all rights, or that of the client. It is known before the service is founded.
    pub(crate) root: Capability,
    known: Vec<Capability>,
    /// What lookups have shown, the latest last.
    shown: VecDeque<(Place, Capability)>,
    /// Highest number in a reply.
    pub(crate) number: u64,
}

impl Book {
    pub(crate) fn new(random: &mut Random) -> Book {
        let port = Port(u128::from(random.next_u64()));
        Book::of(Capability::of_owner(port, unisono_table::ROOT, secret(random)))
    }

    /// Returns what a client knows that was given this capability and no other.
    pub(crate) fn of(root: Capability) -> Book {
        Book { root, known: Vec::new(), shown: VecDeque::new(), number: 0 }
    }

    /// Notes what a reply says.
    pub(crate) fn learn(&mut self, request: &Bytes, reply: &Bytes) {
        let Some(reply) = Reply::decode(reply) else { return };
        self.number = self.number.max(reply.number);
        match &reply.result {
            Ok(Answer::Capability(capability)) => self.add(*capability),
            Ok(Answer::Looked(looked)) => {
                looked.iter().flatten().for_each(|looked| self.add(looked.capability));
                if let Some(Request::Query(Query::Lookup { places })) = Request::decode(request) {
                    self.show(places.into_iter().zip(looked));
                }
            }
            Ok(Answer::Rows { rows, .. }) => {
                rows.iter().filter_map(|row| row.capability.ok()).for_each(|capability| self.add(capability));
            }
            _ => {}
        }
    }

    fn show<'a>(&mut self, rows: impl Iterator<Item = (Place, &'a Result<Looked, Reason>)>) {
        let rows = rows.filter_map(|(place, looked)| Some((place, looked.ok()?.capability)));
        self.shown.extend(rows);
        self.shown.drain(..self.shown.len().saturating_sub(SHOWN_MAX));
    }

    /// Returns a row as a lookup has shown it lately.
    pub(crate) fn shown(&self, random: &mut Random) -> Option<(Place, Capability)> {
        let shown = self.shown.len() as u64;
        (shown > 0).then(|| self.shown[random.below(shown) as usize].clone())
    }

    fn add(&mut self, capability: Capability) {
        if self.known.contains(&capability) || capability == self.root {
            return;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(capability);
    }

    /// Returns a capability as it was learned: the root's, a recent one, or any.
    pub(crate) fn good(&self, random: &mut Random) -> Capability {
        let known = self.known.len() as u64;
        match random.below(8) {
            0..3 => self.root,
            _ if known == 0 => self.root,
            3..6 => self.known[(known - 1 - random.below(known.min(10))) as usize],
            _ => self.known[random.below(known) as usize],
        }
    }

    /// Returns a capability of any kind: as learned, restricted, forged, or of another service.
    pub(crate) fn any(&self, random: &mut Random) -> Capability {
        let good = self.good(random);
        let rights = Rights(random.below(256) as u8);
        match random.below(40) {
            0 => {
                Capability { check: Check::from_bits(good.check.to_bits() ^ 1 << random.below(128)), ..good }
            }
            1 => Capability { rights: good.rights.or(rights), ..good },
            2 => Capability { object: ObjectNumber(random.between(0, 40)), ..good },
            3 => Capability { port: Port(5), ..good },
            4..9 => good.restrict(rights).unwrap_or(good),
            9..13 => good.restrict(Rights(random.pick(&[0x04, 0x02, 0x42, 0x46, 0xc3]))).unwrap_or(good),
            _ => good,
        }
    }
}

/// Draws the secret of an object.
pub(crate) fn secret(random: &mut Random) -> Check {
    Check::from_bits(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()))
}
