//! Holds the formats of the files of `docs/protocol/replica.md` to the code: the examples of its tables, one after the
//! other, are the bytes that a store writes.

use std::collections::BTreeMap;
use unisono::Bytes;
use unisono_core::replica::disk::{Block, Created, DiskDurability, Files, Heard, MemoryFiles, Store};
use unisono_core::replica::{
    Command, Digest, DiskStart, Durability, Job, NotRestored, Outcome, Output, Replica, ReplicaSettings,
    StateMachine,
};
use unisono_core::{EpochId, Event, Member, Name, Time, Uid, View};

/// A symbolic link to the page, so that the package contains it.
const PAGE: &str = include_str!("replica-page.txt");
/// Length of a slot of the block.
const SLOT_BYTES: usize = 4096;

fn sha256(bytes: &[u8]) -> Digest {
    let (mut hash, computed) = (Digest::default(), ring::digest::digest(&ring::digest::SHA256, bytes));
    hash.copy_from_slice(computed.as_ref());
    hash
}

/// Returns the bytes of the examples under a heading; each has the length that its row says.
fn examples(heading: &str) -> Vec<u8> {
    let lines = PAGE.lines().skip_while(|line| *line != format!("### {heading}")).skip(1);
    let mut bytes = Vec::new();
    for line in lines.take_while(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, length, field, example, _, _] = cells[..] else { continue };
        if field == "field" || field.starts_with('-') {
            continue;
        }
        let digits: String = example.chars().filter(|c| !c.is_whitespace() && *c != '`').collect();
        let read = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect(line);
        let example: Vec<u8> = (0..digits.len()).step_by(2).map(read).collect();
        if let Ok(length) = length.parse::<usize>() {
            assert_eq!(length, example.len(), "{line}");
        }
        bytes.extend(example);
    }
    assert!(!bytes.is_empty(), "the page has no table under {heading}");
    bytes
}

fn check(heading: &str, written: &[u8]) {
    let hex: Vec<String> = written.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(examples(heading), written, "{heading}: {}", hex.join(""));
}

fn block() -> Block {
    Block {
        service: 0x1111 << 112 | 0x22,
        server: 2,
        servers: 3,
        durability: DiskDurability::One,
        disk: 0xD15C,
        starts: 1,
        generation: 4,
        promised: 5,
        view: Some((6, vec![1, 2, 3])),
        created: Created::Done(7),
        snapshot: None,
        log: 0,
        anew: vec![],
        name: "votes".into(),
    }
}

#[test]
fn the_files_of_a_store_are_as_the_page_says() {
    let (mut store, _) = Store::open(MemoryFiles::new(), sha256).unwrap();
    store.commit(block()).unwrap();
    store.append(1, &[Bytes::from_static(b"one")], &BTreeMap::new()).unwrap();
    let writer = store.begin_snapshot(1, vec![Bytes::from_static(b"state")], &[]).unwrap();
    let slot = store.files().read("block").unwrap()[..SLOT_BYTES].to_vec();
    let fields = usize::from(u16::from_be_bytes([slot[10], slot[11]]));
    check("A slot of `block` while a snapshot is written", &slot[20 + fields - 28..20 + fields]);
    assert_eq!(slot[5], 2, "its version");
    let written = writer.write(store.files_mut()).unwrap();
    store.name_snapshot(written).unwrap();
    let heard = Heard { disk: 0xD15D, generation: 4, starts: 9, position: 1 };
    store.append(2, &[Bytes::from_static(b"two")], &BTreeMap::from([(3, heard)])).unwrap();

    let files = store.files();
    let slot = &files.read("block").unwrap()[..SLOT_BYTES];
    let fields = usize::from(u16::from_be_bytes([slot[10], slot[11]]));
    check("A slot of `block`", &slot[..20 + fields]);
    assert!(slot[20 + fields..].iter().all(|byte| *byte == 0), "the rest of a slot is zero");
    let log = files.read("log-2").unwrap();
    check("The beginning of `log-N`", &log[..34]);
    assert!(
        log[34..512].iter().chain(&log[532..1024]).all(|byte| *byte == 0),
        "the rest before the records is zero"
    );
    check("The reach of `log-N`", &log[512..532]);
    check("A record of `log-N`", &log[1024..]);
    check("`snapshot-P-N`", &files.read("snapshot-1-2").unwrap());
    check("`parts-N`", &files.read("parts-2").unwrap());
}

/// Keeps nothing.
struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _command: &Command<'_>) -> Outcome {
        Outcome::Reply(Bytes::new())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        Vec::new()
    }

    fn restore(&mut self, _parts: &[Bytes]) -> Result<(), NotRestored> {
        Ok(())
    }
}

/// The only server of a service, whose messages get their seqnos at once, and the entries that it logs.
struct Alone {
    replica: Replica<Nothing>,
    seqno: u64,
    entries: Vec<Bytes>,
}

impl Alone {
    const NOW: Time = Time::from_nanos(1_000_000_000);

    fn settle(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            match output {
                Output::Submit(payload, _) => {
                    self.seqno += 1;
                    let (seqno, number) = (self.seqno, self.seqno);
                    let event = Event::Message { seqno, sender: Uid(5), number, outside: None, payload };
                    self.replica.handle_event(Alone::NOW, event);
                }
                Output::Store(number, job) => {
                    if let Job::Append { entries, .. } = *job {
                        self.entries.extend(entries);
                    }
                    self.replica.handle_stored(Alone::NOW, number, Ok(()));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn the_entries_of_a_log_are_as_the_page_says() {
    let start = DiskStart {
        name: "votes".into(),
        server: 1,
        servers: 1,
        durability: DiskDurability::Majority,
        loaded: None,
        disk: 1,
        nonce: 2,
        replaces: false,
        begins_anew: None,
    };
    let settings = ReplicaSettings {
        client: Uid(9),
        durability: Durability::HeldByAll,
        message_bytes_max: 1 << 20,
        members_min: 1,
        names: Vec::new(),
        window: 1024,
        quorums_intersect: true,
        digest: sha256,
    };
    let replica = Replica::with_disk(Uid(5), Nothing, settings, &start).unwrap();
    let mut alone = Alone { replica, seqno: 0, entries: Vec::new() };
    let (name, address) = (Name::new("1").unwrap(), ([127, 0, 0, 1], 7195).into());
    let member = Member { uid: Uid(5), name, address, floor: Default::default(), hops: 1 };
    let view = View::new(EpochId::default(), vec![member], Uid(5), 0);
    alone.replica.handle_event(Alone::NOW, Event::Entered { seqno: 0, view });
    alone.settle();
    let until = Time::from_nanos(3_000_000_000);
    alone.replica.command(Alone::NOW, Bytes::from_static(b"add"), until);
    alone.settle();
    alone.replica.handle_finished(Alone::NOW, Uid(9), 2);
    alone.replica.handle_timeout(alone.replica.poll_timeout().unwrap());
    alone.settle();
    let [members, command, finished] = &alone.entries[..] else { panic!("{:?}", alone.entries) };
    check("Entry: members", members);
    check("Entry: command", command);
    check("Entry: finished", finished);
}
