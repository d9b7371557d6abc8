//! A backup: the whole state of a service in one file, with a digest over all of it.
//!
//! | field | bytes | |
//! |---|---|---|
//! | magic, version | 4, 2 | `uniK`, 1 |
//! | name | 2, n | of the service |
//! | number | 8 | of the last command in it |
//! | instance, generation, place | 16, 8, 8 | of the server that made it |
//! | servers, durability | 1, 1 | as the service was created; 1 majority, 2 one |
//! | begun anew | 2, 33 n | server, time, place, former instance of each time |
//! | parts | 4, then 8 and n each | the first holds the memory of commands, the others are those of the table |
//! | digest | 32 | BLAKE3 of everything before |

use crate::ports::{Ports, number};
use bytes::{Buf, BufMut, Bytes};
use std::io::{self, Read, Write};
use thiserror::Error;
use unisono::replica::{Block, Created, DISK_SERVERS_MAX, DiskDurability, DiskState, Escape};
use unisono_table::{Capability, Table};

const MAGIC: u32 = u32::from_be_bytes(*b"uniK");
const MAGIC_BYTES: u64 = 4;
const FORMAT_VERSION: u16 = 1;
const DIGEST_BYTES: usize = 32;
/// Maximum number of parts: those of a snapshot.
const PARTS_MAX: u32 = 400_000;
/// Maximum number of times that a service began anew, and highest place in a log, both sanity limits.
const ANEW_MAX: usize = 100;
const PLACE_MAX: u64 = 1 << 60;
/// Length of a time that the service began anew.
const ESCAPE_BYTES: usize = 1 + 8 + 8 + 16;

/// The file is no backup.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NotABackup {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It begins otherwise.
    #[error("it is not a backup of a directory service")]
    Other,
    /// A newer version of this program has written it.
    #[error("it has format {found}, and this version knows {FORMAT_VERSION}: use a newer version of unisono")]
    Newer {
        /// Version of its format.
        found: u16,
    },
    /// It is not as it was written.
    #[error("it is damaged: its content does not have the digest at its end; use another backup")]
    Damaged,
    /// It has its digest, but no server writes such a content.
    #[error("its content is none that a server has saved: {0}; use another backup")]
    Malformed(&'static str),
}

/// A backup.
#[derive(Clone, Debug)]
pub struct Backup {
    /// Number of the last command in it.
    pub number: u64,
    pub(crate) state: DiskState,
}

impl Backup {
    /// Returns the name of the service.
    pub fn service(&self) -> &str {
        &self.state.block.name
    }

    /// Returns the number of servers of the service.
    pub fn servers(&self) -> u8 {
        self.state.block.servers
    }

    /// Checks that a server can go on with the state in it, and returns the root's capability at that time.
    pub(crate) fn root(&self) -> Result<Capability, NotABackup> {
        self.state.check().map_err(|reason| NotABackup::Malformed(reason.0))?;
        // The first part holds all but the table.
        let parts = self.state.parts.get(1..).unwrap_or_default();
        let table = Table::restore(parts).map_err(|reason| NotABackup::Malformed(reason.0))?;
        let ports = Ports::of_secret(table.service());
        let root =
            table.root().zip(ports).filter(|(root, ports)| root.port.0 == number(ports.service.public()));
        root.map(|(root, _)| root)
            .ok_or(NotABackup::Malformed("it has no root, or the secret of another service"))
    }

    /// Returns the pieces of the file, without the digest.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        let DiskState { block, place, parts } = &self.state;
        let mut out = Vec::new();
        out.put_u32(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u16(block.name.len() as u16);
        out.put_slice(block.name.as_bytes());
        out.put_u64(self.number);
        out.put_u128(block.service);
        out.put_u64(block.generation);
        out.put_u64(*place);
        out.put_u8(block.servers);
        out.put_u8(match block.durability {
            DiskDurability::Majority => 1,
            DiskDurability::One => 2,
        });
        out.put_u16(block.anew.len() as u16);
        for Escape { server, at_ms, from, service } in &block.anew {
            out.put_u8(*server);
            out.put_u64(*at_ms);
            out.put_u64(*from);
            out.put_u128(*service);
        }
        out.put_u32(parts.len() as u32);
        let mut pieces = vec![Bytes::from(out)];
        for part in parts {
            pieces.push(Bytes::copy_from_slice(&(part.len() as u64).to_be_bytes()));
            pieces.push(part.clone());
        }
        pieces
    }

    /// Reads a backup, and checks its digest before anything else. Returns its bytes, too.
    pub(crate) fn read(mut from: impl Read) -> Result<(Bytes, Backup), NotABackup> {
        let mut all = Vec::new();
        // What has no end may be something else.
        from.by_ref().take(MAGIC_BYTES).read_to_end(&mut all)?;
        if !all.starts_with(&MAGIC.to_be_bytes()) {
            return Err(NotABackup::Other);
        }
        from.read_to_end(&mut all)?;
        let all = Bytes::from(all);
        Ok((all.clone(), Backup::decode(all)?))
    }

    fn decode(all: Bytes) -> Result<Backup, NotABackup> {
        let mut head = all.clone();
        if head.try_get_u32() != Ok(MAGIC) {
            return Err(NotABackup::Other);
        }
        match head.try_get_u16() {
            Ok(FORMAT_VERSION) => {}
            Ok(found) => return Err(NotABackup::Newer { found }),
            Err(_) => return Err(NotABackup::Damaged),
        }
        let length = all.len().checked_sub(DIGEST_BYTES).ok_or(NotABackup::Damaged)?;
        if blake3::hash(&all[..length]).as_bytes()[..] != all[length..] || head.len() < DIGEST_BYTES {
            return Err(NotABackup::Damaged);
        }
        head.truncate(head.len() - DIGEST_BYTES);
        let backup = Backup::fields(head).ok_or(NotABackup::Malformed("its fields do not fit"))?;
        backup.check()?;
        Ok(backup)
    }

    fn check(&self) -> Result<(), NotABackup> {
        let block = &self.state.block;
        if !(1..=DISK_SERVERS_MAX).contains(&block.servers) {
            return Err(NotABackup::Malformed("no service has that number of servers"));
        }
        if block.name.is_empty() || block.name.contains(char::is_control) {
            return Err(NotABackup::Malformed("the name of the service is none"));
        }
        if block.anew.len() > ANEW_MAX || self.state.place > PLACE_MAX {
            return Err(NotABackup::Malformed("no service got so far"));
        }
        match number_in(&self.state.parts) == Some(self.number) {
            true => Ok(()),
            false => Err(NotABackup::Malformed("its number is not that of its state")),
        }
    }

    fn fields(mut from: Bytes) -> Option<Backup> {
        let length = usize::from(from.try_get_u16().ok()?);
        let name = String::from_utf8(take(&mut from, length)?.to_vec()).ok()?;
        let number = from.try_get_u64().ok()?;
        let service = from.try_get_u128().ok()?;
        let (generation, place) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let servers = from.try_get_u8().ok()?;
        let durability = match from.try_get_u8().ok()? {
            1 => DiskDurability::Majority,
            2 => DiskDurability::One,
            _ => return None,
        };
        let count = usize::from(from.try_get_u16().ok()?);
        let mut anew = Vec::new();
        for _ in 0..count {
            let mut escape = take(&mut from, ESCAPE_BYTES)?;
            anew.push(Escape {
                server: escape.get_u8(),
                at_ms: escape.get_u64(),
                from: escape.get_u64(),
                service: escape.get_u128(),
            });
        }
        let count = from.try_get_u32().ok().filter(|count| *count <= PARTS_MAX)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            let length = usize::try_from(from.try_get_u64().ok()?).ok()?;
            parts.push(take(&mut from, length)?);
        }
        let block = Block {
            service,
            server: 0,
            servers,
            durability,
            disk: 0,
            starts: 0,
            generation,
            promised: generation,
            view: None,
            created: Created::Done(service),
            snapshot: None,
            log: 0,
            anew,
            name,
        };
        from.is_empty().then_some(Backup { number, state: DiskState { block, place, parts } })
    }
}

/// Returns the number of the last command in a state with these parts.
pub(crate) fn number_in(parts: &[Bytes]) -> Option<u64> {
    Table::number_of_snapshot(parts.get(1)?)
}

fn take(from: &mut Bytes, length: usize) -> Option<Bytes> {
    (from.len() >= length).then(|| from.split_to(length))
}

/// Writes pieces of a backup, and the digest at its end.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    out: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Writer<W> {
        Writer { out, hasher: blake3::Hasher::new() }
    }

    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hasher.update(piece);
        self.out.write_all(piece)
    }

    /// Writes the digest, and returns what was written to.
    pub(crate) fn end(mut self) -> io::Result<W> {
        self.out.write_all(self.hasher.finalize().as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_table::{Check, Command, Port};

    /// The part of a service that remembers no command: version, epoch, position, digest, length of the log; time, no member
    /// and no client.
    fn first_part() -> Bytes {
        let mut part = vec![0; 1 + 24 + 8 + 32 + 8 + 8 + 4 + 4];
        part[0] = 2;
        part.into()
    }

    fn backup() -> Backup {
        let block = Block {
            service: 5,
            server: 0,
            servers: 3,
            durability: DiskDurability::One,
            disk: 0,
            starts: 0,
            generation: 4,
            promised: 4,
            view: None,
            created: Created::Done(5),
            snapshot: None,
            log: 0,
            anew: vec![Escape { server: 2, at_ms: 3, from: 9, service: 1 }],
            name: "directory".into(),
        };
        let mut table = Table::default();
        let secret = Bytes::from_static(&[5; 16]);
        let port = Port(number(Ports::of_secret(&secret).unwrap().service.public()));
        table.execute(Command::Found { port, secret: Check::from_bits(1), service: secret });
        let parts = [vec![first_part()], table.snapshot()].concat();
        Backup { number: 1, state: DiskState { block, place: 20, parts } }
    }

    fn written(backup: &Backup) -> Vec<u8> {
        let mut out = Writer::new(Vec::new());
        backup.pieces().iter().for_each(|piece| out.write(piece).unwrap());
        out.end().unwrap()
    }

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        let (bytes, read) = Backup::read(&written(&backup())[..]).unwrap();
        assert_eq!(bytes, written(&backup()));
        assert_eq!((read.number, read.service(), read.servers()), (1, "directory", 3));
        assert_eq!((&read.state.block, read.state.place), (&backup().state.block, 20));
        assert_eq!(read.state.parts, backup().state.parts);
    }

    #[test]
    fn a_content_that_no_server_saves_is_refused_whatever_its_digest() {
        let spoilt: [fn(&mut Backup); 8] = [
            |backup| backup.state.block.servers = 0,
            |backup| backup.state.block.servers = DISK_SERVERS_MAX + 1,
            |backup| backup.state.block.name = "a\x1bb".into(),
            |backup| backup.state.block.name = String::new(),
            |backup| backup.number = 2,
            |backup| backup.state.parts.truncate(1),
            |backup| backup.state.place = u64::MAX,
            |backup| {
                let escape = Escape { server: 1, at_ms: 0, from: 0, service: 0 };
                backup.state.block.anew = vec![escape; 101];
            },
        ];
        for spoil in spoilt {
            let mut bad = backup();
            spoil(&mut bad);
            let read = Backup::read(&written(&bad)[..]);
            assert!(matches!(read, Err(NotABackup::Malformed(_))), "{read:?}");
        }
    }

    #[test]
    fn a_state_with_which_no_server_goes_on_is_refused() {
        assert!(backup().root().is_ok());
        let mut bad = backup();
        bad.state.parts[2] = Bytes::from_static(&[9]);
        assert!(bad.root().is_err());
        // No root; and the secret of another port.
        let empty = Table::new(unisono_table::Limits::default());
        let mut other = Table::new(unisono_table::Limits::default());
        let service = Bytes::from_static(&[6; 16]);
        other.execute(Command::Found { port: Port(7), secret: Check::from_bits(1), service });
        for table in [empty, other] {
            let mut bad = backup();
            bad.state.parts = [vec![first_part()], table.snapshot()].concat();
            assert!(bad.root().is_err());
        }
        // A first part that cannot be read, and one that refuses all commands of a client for ever.
        let mut long = first_part().to_vec();
        long.truncate(long.len() - 4);
        long.put_u32(1);
        long.put_u64(77);
        [1, u64::MAX, u64::MAX].into_iter().for_each(|number| long.put_u64(number));
        long.put_u8(0);
        long.put_u32(0);
        for part in [Bytes::from_static(b"memory"), first_part().slice(1..), long.into()] {
            let mut bad = backup();
            bad.state.parts[0] = part;
            let words = bad.root().unwrap_err().to_string();
            assert!(words.contains("memory of commands"), "{words}");
        }
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let good = written(&backup());
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 4;
            assert!(Backup::read(&bad[..]).is_err(), "byte {index}");
            assert!(Backup::read(&good[..index]).is_err(), "cut to {index}");
        }
        assert!(matches!(Backup::read(&b"{}"[..]), Err(NotABackup::Other)));
        let mut newer = good;
        newer[5] = 9;
        assert!(matches!(Backup::read(&newer[..]), Err(NotABackup::Newer { found: 9 })));
    }
}
