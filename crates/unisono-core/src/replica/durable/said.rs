//! What the members of a round say: what their disks have, and how far they are.

use super::super::disk::{Created, DiskDurability, Heard};
use super::entry::Place;
use super::ledger::{read_heard, write_heard};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// What a member says of its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Said {
    pub(in super::super) server: u8,
    pub(in super::super) servers: u8,
    pub(in super::super) durability: DiskDurability,
    pub(in super::super) created: Created,
    pub(in super::super) disk: u64,
    pub(in super::super) starts: u64,
    pub(in super::super) generation: u64,
    pub(in super::super) promised: u64,
    /// Place of the last entry on the disk.
    pub(in super::super) place: Place,
    /// With durability *one*: number of the last view on the disk, and its members.
    pub(in super::super) view: Option<(u64, Vec<u8>)>,
    /// With durability *one*: it has been up ever since it wrote that view, of which it is a member.
    pub(in super::super) survived: bool,
    /// A random number; that of one server becomes the instance of a new service.
    pub(in super::super) nonce: u128,
    /// An administrator lets the service begin anew from this disk alone.
    pub(in super::super) alone: bool,
    /// Instances from which this one began anew.
    pub(in super::super) former: Vec<u128>,
    pub(in super::super) heard: BTreeMap<u8, Heard>,
}

/// A word of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum RoundWord {
    Said(Said),
    /// The sender has written *half*.
    Half,
    /// The sender has written *done*.
    Done,
    /// The sender has promised the generation.
    Promised,
    /// The sender has adopted the chosen state.
    Adopted,
    /// The sender's disk does not get on.
    Stalls,
}

impl Said {
    /// What decides whose view is the last one.
    pub(super) fn view_key(&self) -> (u64, Option<u64>) {
        (self.generation, self.view.as_ref().map(|(number, _)| *number))
    }

    /// True if it is a member of this view.
    pub(super) fn is_of(&self, view: &[u8]) -> bool {
        view.contains(&self.server)
    }
}

const SAID: u8 = 1;
const HALF: u8 = 2;
const DONE: u8 = 3;
const PROMISED: u8 = 4;
const ADOPTED: u8 = 5;
const STALLS: u8 = 6;

impl RoundWord {
    pub(in super::super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            RoundWord::Said(said) => {
                out.put_u8(SAID);
                out.put_slice(&[said.server, said.servers, (said.durability == DiskDurability::One).into()]);
                let (code, root) = match said.created {
                    Created::Blank => (0, 0),
                    Created::Half(root) => (1, root),
                    Created::Done(root) => (2, root),
                };
                out.put_u8(code);
                out.put_u128(root);
                let numbers = [said.disk, said.starts, said.generation, said.promised, said.place];
                numbers.into_iter().for_each(|number| out.put_u64(number));
                out.put_u128(said.nonce);
                match &said.view {
                    None => out.put_u8(0),
                    Some((number, view)) => {
                        out.put_u8(1 + u8::from(said.survived));
                        out.put_u64(*number);
                        out.put_u8(view.len() as u8);
                        out.put_slice(view);
                    }
                }
                out.put_u8(said.alone.into());
                out.put_u8(said.former.len() as u8);
                said.former.iter().for_each(|service| out.put_u128(*service));
                write_heard(out, &said.heard);
            }
            RoundWord::Half => out.put_u8(HALF),
            RoundWord::Done => out.put_u8(DONE),
            RoundWord::Promised => out.put_u8(PROMISED),
            RoundWord::Adopted => out.put_u8(ADOPTED),
            RoundWord::Stalls => out.put_u8(STALLS),
        }
    }

    pub(in super::super) fn read(from: &mut Bytes) -> Option<RoundWord> {
        Some(match from.try_get_u8().ok()? {
            SAID => {
                let mut said = Said {
                    server: from.try_get_u8().ok()?,
                    servers: from.try_get_u8().ok()?,
                    ..Said::default()
                };
                if from.try_get_u8().ok()? != 0 {
                    said.durability = DiskDurability::One;
                }
                let (code, root) = (from.try_get_u8().ok()?, from.try_get_u128().ok()?);
                said.created = match code {
                    0 => Created::Blank,
                    1 => Created::Half(root),
                    2 => Created::Done(root),
                    _ => return None,
                };
                said.disk = from.try_get_u64().ok()?;
                said.starts = from.try_get_u64().ok()?;
                said.generation = from.try_get_u64().ok()?;
                said.promised = from.try_get_u64().ok()?;
                said.place = from.try_get_u64().ok()?;
                said.nonce = from.try_get_u128().ok()?;
                let has_view = from.try_get_u8().ok()?;
                if has_view != 0 {
                    let (number, length) = (from.try_get_u64().ok()?, from.try_get_u8().ok()?);
                    let view =
                        (usize::from(length) <= from.remaining()).then(|| from.split_to(length.into()))?;
                    (said.view, said.survived) = (Some((number, view.to_vec())), has_view == 2);
                }
                said.alone = from.try_get_u8().ok()? != 0;
                for _ in 0..from.try_get_u8().ok()? {
                    said.former.push(from.try_get_u128().ok()?);
                }
                said.heard = read_heard(from)?;
                RoundWord::Said(said)
            }
            HALF => RoundWord::Half,
            DONE => RoundWord::Done,
            PROMISED => RoundWord::Promised,
            ADOPTED => RoundWord::Adopted,
            STALLS => RoundWord::Stalls,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn words_are_read_as_they_were_written_and_nothing_shorter_is() {
        let mut all = Said { server: 1, servers: 3, created: Created::Half(3), place: 5, ..Said::default() };
        all.generation = 4;
        (all.view, all.survived) = (Some((7, vec![1, 3])), true);
        all.heard.insert(2, Heard::default());
        all.former.push(8);
        for word in [RoundWord::Said(all), RoundWord::Half, RoundWord::Adopted, RoundWord::Stalls] {
            let mut out = Vec::new();
            word.write(&mut out);
            assert_eq!(RoundWord::read(&mut out.clone().into()), Some(word));
            for end in 0..out.len() {
                assert_eq!(RoundWord::read(&mut Bytes::copy_from_slice(&out[..end])), None);
            }
        }
    }
}
