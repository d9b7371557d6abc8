//! Messages that an application keeps cost little more memory than their bytes, whatever else arrives at the same
//! socket.

mod common;

use common::{PATIENCE, fresh_name, options};
use std::io::Write;
use std::net::UdpSocket;
use unisono::{Bytes, Event, Group, GroupConfig, Key, Options};

const MESSAGES: usize = 400;
/// Maximum growth: many times the size of the messages' datagrams.
const GROWTH_BYTES_MAX: i64 = 16 << 20;

/// Returns the resident memory of this process; `None` where the system does not report it.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? << 10)
}

// A stranger without the key sends large datagrams to a member. If they shared memory with the messages between them, a
// kept message of a few bytes would keep a quarter of a mebibyte.
#[test]
fn a_kept_message_keeps_nothing_that_came_beside_it() {
    let Some(before) = resident_bytes() else {
        let _ = writeln!(std::io::stderr(), "skipped: this system does not report how much memory is in use");
        return;
    };
    let name = fresh_name("retention");
    let options = Options { key: Some(Key::generate().unwrap()), ..options() };
    let sender = Group::create(&name, GroupConfig::default(), &options).unwrap();
    let keeper = Group::join(&name, "", &options).unwrap();
    sender.ignore_events();
    let uid = keeper.info().me;
    let address = keeper.members().iter().find(|member| member.uid == uid).unwrap().address;
    let (stranger, junk) = (UdpSocket::bind("127.0.0.1:0").unwrap(), vec![0; 60_000]);
    let mut kept: Vec<Bytes> = Vec::new();
    while kept.len() < MESSAGES {
        for _ in 0..4 {
            stranger.send_to(&junk, address).unwrap();
        }
        sender.send(format!("message {}", kept.len())).unwrap();
        while let Some(event) = keeper.receive_timeout(PATIENCE).unwrap() {
            if let Event::Message { payload, .. } = event {
                kept.push(payload);
                break;
            }
        }
    }
    let growth = resident_bytes().unwrap() - before;
    let _ = writeln!(std::io::stderr(), "{} messages kept: {} KiB of memory", kept.len(), growth >> 10);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes for {} short messages", kept.len());
}
