//! The files of a snapshot: its parts, each named by its digest, and a manifest that lists them.

use super::super::machine::Position;
use super::super::types::Digest;
use super::store::StoreError;
use super::{FORMAT_VERSION, check_version, spoiled};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

const PART_MAGIC: [u8; 4] = *b"uniP";
const MANIFEST_MAGIC: [u8; 4] = *b"uniM";
/// Magic and version.
const PART_HEAD_BYTES: usize = 4 + 2;
/// Digest and length of a part in a manifest.
const LISTED_BYTES: usize = 32 + 8;

/// Returns the name of a part's file.
pub(super) fn part_name(digest: &Digest) -> String {
    format!("part-{:032x}", u128::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 16])))
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
        Some(("log", number)) => is_number(number),
        Some(("part", digest)) => is_hex(digest),
        Some(("snapshot", rest)) => {
            rest.split_once('-').is_some_and(|(position, log)| is_number(position) && is_number(log))
        }
        _ => false,
    }
}

/// Returns what precedes the bytes of a part in its file.
pub(super) fn part_head() -> Vec<u8> {
    head(PART_MAGIC)
}

/// Returns the bytes of a part from its file, whose digest the caller has to check.
pub(super) fn read_part(name: &str, mut file: Bytes) -> Result<Bytes, StoreError> {
    check_head(name, &file, PART_MAGIC)?;
    file.advance(PART_HEAD_BYTES);
    Ok(file)
}

/// The list of a snapshot's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) position: Position,
    /// Digest and length of each part.
    pub(super) parts: Vec<(Digest, u64)>,
}

impl Manifest {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = head(MANIFEST_MAGIC);
        out.put_u64(self.position);
        out.put_u64(self.parts.len() as u64);
        for (digest, length) in &self.parts {
            out.put_slice(digest);
            out.put_u64(*length);
        }
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    pub(super) fn read(name: &str, file: &[u8]) -> Result<Manifest, StoreError> {
        check_head(name, file, MANIFEST_MAGIC)?;
        Manifest::read_fields(file).ok_or_else(|| spoiled(name, "its checksum or its length is wrong"))
    }

    fn read_fields(file: &[u8]) -> Option<Manifest> {
        let (checked, mut checksum) = file.split_at_checked(file.len().checked_sub(4)?)?;
        if crc32c::crc32c(checked) != checksum.get_u32() {
            return None;
        }
        let mut fields = checked.get(PART_HEAD_BYTES..)?;
        let (position, count) = (fields.try_get_u64().ok()?, fields.try_get_u64().ok()?);
        if count.checked_mul(LISTED_BYTES as u64)? != fields.len() as u64 {
            return None;
        }
        let mut parts = Vec::with_capacity(fields.len() / LISTED_BYTES);
        while fields.has_remaining() {
            let mut digest = Digest::default();
            fields.try_copy_to_slice(&mut digest).ok()?;
            parts.push((digest, fields.try_get_u64().ok()?));
        }
        Some(Manifest { position, parts })
    }
}

fn head(magic: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PART_HEAD_BYTES);
    out.put_slice(&magic);
    out.put_u16(FORMAT_VERSION);
    out
}

fn check_head(name: &str, file: &[u8], magic: [u8; 4]) -> Result<(), StoreError> {
    match file.first_chunk::<PART_HEAD_BYTES>() {
        Some([a, b, c, d, version @ ..]) if [*a, *b, *c, *d] == magic => {
            check_version(name, u16::from_be_bytes(*version))
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
        let manifest = Manifest { position: 9, parts: vec![([1; 32], 5), ([2; 32], 0)] };
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
        let error = StoreError::NewerVersion { file: "m".into(), found: 256, knows: 1 };
        assert_eq!(Manifest::read("m", &newer), Err(error));
    }

    #[test]
    fn names_of_other_programs_are_left_alone() {
        for name in [&part_name(&[0xAB; 32]), &manifest_name(7, 2), "log-12"] {
            assert!(is_name_of_store(name), "{name}");
        }
        assert_eq!(part_name(&[0xAB; 32]).len(), 37);
        for name in ["log-", "log-old", "log", "part-1", "snapshot-1", "snapshot-1-", "block", "lost+found"] {
            assert!(!is_name_of_store(name), "{name}");
        }
    }
}
