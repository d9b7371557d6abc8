//! The files of a snapshot: packs, which hold the bytes of its parts, and a manifest that says where each part is.
//!
//! A snapshot writes the parts that no pack has into one new pack, so it costs a few syncs, whatever their number. A part
//! that does not change stays in its pack. Packs would become many and would fill up with parts that do not count any more,
//! so a snapshot writes what counts of some packs anew, into its own: of those with less than half of their bytes in use, and
//! of those with no more in use than the snapshot writes anyway. So the packs together have at most about twice the bytes of
//! the snapshot, each is larger than the next newer one when it is written, and a byte is rewritten a logarithmic number of times.

use super::super::machine::Position;
use super::super::types::Digest;
use super::store::StoreError;
use super::{FORMAT_VERSION, check_version, spoiled};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

const PACK_MAGIC: [u8; 4] = *b"uniP";
const MANIFEST_MAGIC: [u8; 4] = *b"uniM";
/// Version of the format of manifests. Manifests of version 1 listed parts with a file each.
const MANIFEST_VERSION: u16 = 2;
/// Magic and version.
const HEAD_BYTES: usize = 4 + 2;
/// Digest, length, pack and offset of a part in a manifest.
const LISTED_BYTES: usize = 32 + 8 + 8 + 8;

/// Returns the name of a pack's file. No two that a disk ever has share one: `log` is the number of the log that follows the
/// snapshot that wrote it.
pub(super) fn pack_name(log: u64) -> String {
    format!("parts-{log}")
}

/// Returns the name of a manifest's file. No two that a disk ever has share one: `log` is the number of the log that
/// follows the snapshot.
pub(super) fn manifest_name(position: Position, log: u64) -> String {
    format!("snapshot-{position}-{log}")
}

/// True if a store gives files such names. Other files are none of its business.
pub(super) fn is_name_of_store(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.split_once('-') {
        Some(("log" | "parts", number)) => is_number(number),
        // Each part had a file of its own in an earlier version.
        Some(("part", digest)) => is_hex(digest),
        Some(("snapshot", rest)) => {
            rest.split_once('-').is_some_and(|(position, log)| is_number(position) && is_number(log))
        }
        _ => false,
    }
}

/// Returns the beginning of a pack. The bytes of its parts follow.
pub(super) fn pack_head() -> Vec<u8> {
    head(PACK_MAGIC, FORMAT_VERSION)
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) digest: Digest,
    /// Its length.
    pub(super) bytes: u64,
    /// Number of its pack.
    pub(super) pack: u64,
    /// Where it begins in the file.
    pub(super) offset: u64,
}

impl Stored {
    /// Returns the part from the content of its pack, whose file has this name.
    pub(super) fn read(
        &self,
        name: &str,
        pack: &[u8],
        digest: fn(&[u8]) -> Digest,
    ) -> Result<Bytes, StoreError> {
        let end = self.offset.checked_add(self.bytes).and_then(|end| usize::try_from(end).ok());
        let part = end.and_then(|end| pack.get(self.offset as usize..end));
        let part = part.ok_or_else(|| spoiled(name, "it ends before the last part that counts"))?;
        match digest(part) == self.digest {
            true => Ok(Bytes::copy_from_slice(part)),
            false => Err(spoiled(name, "a part does not have the digest that the manifest says")),
        }
    }
}

/// Refuses a pack that does not begin as one.
pub(super) fn check_pack(name: &str, pack: &[u8]) -> Result<(), StoreError> {
    check_head(name, pack, PACK_MAGIC, FORMAT_VERSION)
}

/// The packs of the present snapshot, which are good.
#[derive(Clone, Debug, Default)]
pub(super) struct Packs {
    parts: BTreeMap<Digest, Stored>,
    /// Lengths of the packs.
    bytes: BTreeMap<u64, u64>,
}

impl Packs {
    /// Adds a pack of this length.
    pub(super) fn add_pack(&mut self, pack: u64, bytes: u64) {
        self.bytes.insert(pack, bytes);
    }

    /// Adds a part of a pack.
    pub(super) fn add_part(&mut self, part: Stored) {
        self.parts.insert(part.digest, part);
    }

    /// True if this is the name of one of the packs.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.bytes.keys().any(|pack| pack_name(*pack) == name)
    }

    /// Arranges the parts of the next snapshot, of which digests and lengths are given: the new pack gets this number.
    pub(super) fn arrange(&self, parts: &[(Digest, u64)], pack: u64) -> Arranged {
        let wanted: BTreeMap<Digest, u64> = parts.iter().copied().collect();
        let rewritten = self.to_rewrite(&wanted);
        let stays = |part: &&Stored| !rewritten.contains(&part.pack);
        let mut packs = Packs::default();
        let (mut listed, mut to_write, mut offset) = (Vec::new(), Vec::new(), HEAD_BYTES as u64);
        for (index, (digest, bytes)) in parts.iter().enumerate() {
            let known = packs.parts.get(digest).or_else(|| self.parts.get(digest).filter(stays));
            let part = known.copied().unwrap_or_else(|| {
                to_write.push(index);
                offset += bytes;
                Stored { digest: *digest, bytes: *bytes, pack, offset: offset - bytes }
            });
            let length = self.bytes.get(&part.pack).copied().unwrap_or_default();
            packs.bytes.insert(part.pack, length);
            packs.add_part(part);
            listed.push(part);
        }
        if !to_write.is_empty() {
            packs.bytes.insert(pack, offset);
        }
        Arranged { packs, listed, to_write }
    }

    /// Returns the packs of which the next snapshot, with these parts, writes anew what counts. See the module.
    fn to_rewrite(&self, wanted: &BTreeMap<Digest, u64>) -> BTreeSet<u64> {
        let mut writes = 0;
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        for (digest, bytes) in wanted {
            match self.parts.get(digest) {
                Some(part) => *used.entry(part.pack).or_default() += bytes,
                None => writes += bytes,
            }
        }
        let mut smallest_first: Vec<(u64, u64)> = used.into_iter().map(|(pack, used)| (used, pack)).collect();
        smallest_first.sort_unstable();
        let is_rewritten = |(used, pack): &(u64, u64)| {
            let half = self.bytes.get(pack).copied().unwrap_or_default() / 2;
            let is = *used <= writes || *used < half;
            writes += if is { *used } else { 0 };
            is
        };
        smallest_first.into_iter().filter(is_rewritten).map(|(_, pack)| pack).collect()
    }
}

/// How the parts of a snapshot are arranged.
#[derive(Debug)]
pub(super) struct Arranged {
    /// The packs of the snapshot.
    pub(super) packs: Packs,
    /// Where each part is.
    pub(super) listed: Vec<Stored>,
    /// Indices of the parts of the new pack, in its order. If there are none, there is no new pack.
    pub(super) to_write: Vec<usize>,
}

/// The list of a snapshot's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) position: Position,
    pub(super) parts: Vec<Stored>,
}

impl Manifest {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = head(MANIFEST_MAGIC, MANIFEST_VERSION);
        out.put_u64(self.position);
        out.put_u64(self.parts.len() as u64);
        for Stored { digest, bytes, pack, offset } in &self.parts {
            out.put_slice(digest);
            out.put_u64(*bytes);
            out.put_u64(*pack);
            out.put_u64(*offset);
        }
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    pub(super) fn read(name: &str, file: &[u8]) -> Result<Manifest, StoreError> {
        check_head(name, file, MANIFEST_MAGIC, MANIFEST_VERSION)?;
        Manifest::read_fields(file).ok_or_else(|| spoiled(name, "its checksum or its length is wrong"))
    }

    fn read_fields(file: &[u8]) -> Option<Manifest> {
        let (checked, mut checksum) = file.split_at_checked(file.len().checked_sub(4)?)?;
        if crc32c::crc32c(checked) != checksum.get_u32() {
            return None;
        }
        let mut fields = checked.get(HEAD_BYTES..)?;
        let (position, count) = (fields.try_get_u64().ok()?, fields.try_get_u64().ok()?);
        if count.checked_mul(LISTED_BYTES as u64)? != fields.len() as u64 {
            return None;
        }
        let mut parts = Vec::with_capacity(fields.len() / LISTED_BYTES);
        while fields.has_remaining() {
            let mut digest = Digest::default();
            fields.try_copy_to_slice(&mut digest).ok()?;
            let mut next = || fields.try_get_u64().ok();
            parts.push(Stored { digest, bytes: next()?, pack: next()?, offset: next()? });
        }
        Some(Manifest { position, parts })
    }
}

fn head(magic: [u8; 4], version: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.put_slice(&magic);
    out.put_u16(version);
    out
}

fn check_head(name: &str, file: &[u8], magic: [u8; 4], knows: u16) -> Result<(), StoreError> {
    match file.first_chunk::<HEAD_BYTES>() {
        Some([a, b, c, d, version @ ..]) if [*a, *b, *c, *d] == magic => {
            check_version(name, u16::from_be_bytes(*version), knows)
        }
        _ => Err(spoiled(name, "it does not begin as it should")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_nothing_else_is() {
        let part = |digest, bytes| Stored { digest: [digest; 32], bytes, pack: 3, offset: 6 };
        let manifest = Manifest { position: 9, parts: vec![part(1, 5), part(2, 0)] };
        let file = manifest.write();
        assert_eq!(Manifest::read("m", &file), Ok(manifest));
        for length in 0..file.len() {
            assert!(matches!(Manifest::read("m", &file[..length]), Err(StoreError::Spoiled { .. })));
        }
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::read("m", &flipped).is_err());
        }
        let mut newer = file;
        newer[4..6].copy_from_slice(&[1, 0]);
        let error = StoreError::NewerVersion { file: "m".into(), found: 256, knows: 2 };
        assert_eq!(Manifest::read("m", &newer), Err(error));
        let mut older = newer;
        older[4..6].copy_from_slice(&[0, 1]);
        let error = StoreError::OlderVersion { file: "m".into(), found: 1, knows: 2 };
        assert_eq!(Manifest::read("m", &older), Err(error));
    }

    #[test]
    fn names_of_other_programs_are_left_alone() {
        let part = format!("part-{}", "ab".repeat(16));
        for name in [&pack_name(3), &manifest_name(7, 2), "log-12", &part] {
            assert!(is_name_of_store(name), "{name}");
        }
        for name in ["log-", "log-old", "log", "part-1", "snapshot-1", "snapshot-1-", "block", "lost+found"] {
            assert!(!is_name_of_store(name), "{name}");
        }
    }

    /// Parts with these numbers, of 100 bytes each.
    fn hundreds(numbers: impl Iterator<Item = u8>) -> Vec<(Digest, u64)> {
        numbers.map(|number| ([number; 32], 100)).collect()
    }

    #[test]
    fn a_snapshot_writes_what_is_new_and_little_besides() {
        let first = Packs::default().arrange(&hundreds(0..100), 1);
        assert_eq!((first.to_write.len(), first.packs.bytes[&1]), (100, 10_006));
        // One part is new: the others stay where they are.
        let second = first.packs.arrange(&hundreds(1..101), 2);
        assert_eq!(second.to_write, [99]);
        assert!(second.packs.has_file("parts-1") && second.packs.has_file("parts-2"));
        // The small pack of before is written anew together with what is new.
        let third = second.packs.arrange(&hundreds(2..102), 3);
        assert_eq!(third.to_write, [98, 99]);
        assert_eq!(third.packs.bytes.keys().copied().collect::<Vec<_>>(), [1, 3]);
        // Most of the first pack counts no more: what does is written anew.
        let fourth = third.packs.arrange(&hundreds(60..102), 4);
        assert_eq!((fourth.to_write.len(), fourth.packs.has_file("parts-1")), (40, false));
        // The same state again writes nothing, and a part that is there twice is written once.
        assert!(fourth.packs.arrange(&hundreds(60..102), 5).to_write.is_empty());
        let twice = Packs::default().arrange(&hundreds([7, 7].into_iter()), 1);
        assert_eq!((twice.to_write.len(), twice.listed[0]), (1, twice.listed[1]));
    }

    #[test]
    fn packs_stay_few_and_small_however_many_snapshots_there_are() {
        let (mut packs, mut written) = (Packs::default(), 0);
        let state = |number: u32| {
            // Of 200 parts, each snapshot changes one.
            let digest = |place: u32| {
                let version = (number + 199 - place) / 200;
                let mut digest = [place as u8; 32];
                digest[..4].copy_from_slice(&version.to_be_bytes());
                (digest, 100)
            };
            (0..200).map(digest).collect::<Vec<_>>()
        };
        for number in 0..2_000 {
            let arranged = packs.arrange(&state(number), number.into());
            written += arranged.to_write.len();
            packs = arranged.packs;
            assert!(packs.bytes.len() <= 12, "{number}: {} packs", packs.bytes.len());
            let bytes: u64 = packs.bytes.values().sum();
            assert!(bytes <= 2 * 200 * 106, "{number}: {bytes} bytes");
        }
        assert!(written < 2_000 * 12, "{written} parts");
    }
}
