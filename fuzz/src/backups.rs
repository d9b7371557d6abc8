//! Backups with a right digest.

use bytes::Bytes;
use unisono_table::{Check, Command, Limits, Port, Table};

/// An input is a backup without the digest at its end, which is added.
pub fn run(data: &[u8]) {
    let mut backup = data.to_vec();
    backup.extend_from_slice(blake3::hash(data).as_bytes());
    if let Ok(backup) = unisono_dir::check_backup(&backup[..]) {
        let _ = (backup.service(), backup.servers(), backup.number);
    }
    let _ = unisono_dir::check_backup(data);
}

/// Returns the backup of a small service: as the table of the format in unisono-dir's module `archive` says.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut table = Table::new(Limits::default());
    let service = Bytes::from_static(&[5; 16]);
    table.execute(Command::Found { port: Port(0xaa), secret: Check::from_bits(0xbb), service });
    let mut head = vec![0; 1 + 24 + 8 + 32 + 8 + 8 + 4 + 4];
    head[0] = 2;
    let parts = [vec![Bytes::from(head)], table.snapshot()].concat();
    let mut out = b"uniK\0\x01\0\x09directory".to_vec();
    out.extend(1_u64.to_be_bytes());
    out.extend(5_u128.to_be_bytes());
    out.extend([4_u64.to_be_bytes(), 20_u64.to_be_bytes()].concat());
    out.extend([3, 1, 0, 0]);
    out.extend((parts.len() as u32).to_be_bytes());
    for part in parts {
        out.extend((part.len() as u64).to_be_bytes());
        out.extend_from_slice(&part);
    }
    vec![out, b"uniK\0\x01".to_vec()]
}
