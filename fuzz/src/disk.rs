//! The folder of a server, as files with right checksums, and the replica that begins with it.

use crate::input::{Input, put_piece};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_core::replica::disk::{
    Block, Created, DiskDurability, Escape, Files, Heard, Loaded, MemoryFiles, Store, instance_begun,
};
use unisono_core::replica::{
    Command, Digest, DiskStart, Durability, NotRestored, Outcome, Output, Replica, ReplicaSettings,
    StateMachine,
};
use unisono_core::{EpochId, Event, Member, Name, Time, Uid, View};

const NOW: Time = Time::from_nanos(1_000_000_000);
/// Length of a slot of the block, where its checksum is in a slot, and where what it covers begins.
const SLOT_BYTES: usize = 4096;
const SLOT_SUM_AT: usize = 6;
const SLOT_HEAD_BYTES: usize = 20;
/// Maximum number of outputs of one input before it is given up.
const OUTPUTS_MAX: usize = 100_000;

/// A state that takes everything.
#[derive(Clone, Debug, Default)]
struct Parts(Vec<Bytes>);

impl StateMachine for Parts {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        self.0.push(command.payload.clone());
        Outcome::Reply(Bytes::new())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.clone()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.0 = parts.to_vec();
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

fn settings() -> ReplicaSettings {
    ReplicaSettings {
        client: Uid(1000),
        durability: Durability::HeldByAll,
        message_bytes_max: 1 << 20,
        members_min: 1,
        names: Vec::new(),
        digest,
    }
}

/// Starts a server with what its disk has, and lets it form a group alone.
fn start(loaded: Loaded) {
    let Block { server, servers, durability, name, .. } = loaded.block.clone();
    // The driver refuses such a folder.
    if !(1..=9).contains(&servers) || !(1..=servers).contains(&server) {
        return;
    }
    let start = DiskStart {
        name,
        server,
        servers,
        durability,
        loaded: Some(loaded),
        disk: 7,
        nonce: instance_begun(1_700_000_000_000, 3),
        replaces: false,
        begins_anew: None,
    };
    let Ok(mut replica) = Replica::with_disk(Uid(1), Parts::default(), settings(), &start) else { return };
    let Some(name) = Name::new(&server.to_string()) else { return };
    let member = Member { uid: Uid(1), name, address: ([127, 0, 0, 1], 1).into() };
    let view = View::new(EpochId::default(), vec![member], Uid(1), 1);
    replica.handle_event(NOW, Event::Entered { seqno: 0, view });
    let mut seqno = 0;
    for _ in 0..OUTPUTS_MAX {
        match replica.poll_output() {
            Some(Output::Submit(payload)) => {
                seqno += 1;
                let event = Event::Message { seqno, sender: Uid(1), number: seqno, payload };
                replica.handle_event(NOW, event);
            }
            Some(Output::Confirm) => replica.handle_confirmed(seqno),
            Some(Output::Store(number, _)) => replica.handle_stored(NOW, number, Ok(())),
            Some(_) => {}
            None => {
                replica.handle_timeout(NOW + Duration::from_secs(60));
                let _ = (replica.applied_state(), replica.account());
                return;
            }
        }
    }
    panic!("outputs without end");
}

/// Puts the right checksum into both slots of a block.
fn mend(block: &mut [u8]) {
    for slot in block.chunks_mut(SLOT_BYTES) {
        let Some(length) = slot.get(SLOT_SUM_AT + 4..SLOT_SUM_AT + 6) else { return };
        let end = SLOT_HEAD_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
        let Some(covered) = slot.get(SLOT_SUM_AT + 4..end) else { return };
        let sum = crc32c::crc32c(covered).to_be_bytes();
        slot[SLOT_SUM_AT..SLOT_SUM_AT + 4].copy_from_slice(&sum);
    }
}

/// The first byte says which of two. Files: each a name and a content. Or what the store would have loaded, in pieces.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.byte() == 0 {
        let mut files = MemoryFiles::new();
        while !input.is_empty() {
            let (name, content) = (input.piece(), input.piece());
            let Ok(name) = std::str::from_utf8(name) else { return };
            let mut content = content.to_vec();
            if name == "block" {
                mend(&mut content);
            }
            if files.write(name, 0, &content).and_then(|()| files.sync(name)).is_err() {
                return;
            }
        }
        if let Ok((_, Some(loaded))) = Store::open(files, digest) {
            start(loaded);
        }
        return;
    }
    let block = Block {
        server: input.byte(),
        servers: input.byte(),
        starts: input.u64() >> 2,
        generation: input.u64() >> 2,
        promised: input.u64() >> 2,
        view: (input.byte() & 1 == 1).then(|| (input.u64() >> 2, input.piece().to_vec())),
        created: match input.byte() % 3 {
            0 => Created::Blank,
            1 => Created::Half(u128::from(input.u64())),
            _ => Created::Done(u128::from(input.u64())),
        },
        ..block()
    };
    let snapshot_at = input.u64() >> 2;
    let mut pieces = |most: u8| {
        let count = input.byte() % most;
        (0..count).map(|_| Bytes::copy_from_slice(input.piece())).collect::<Vec<_>>()
    };
    let (parts, entries) = (pieces(8), pieces(32));
    let heard = Heard {
        disk: input.u64(),
        generation: input.u64() >> 2,
        starts: input.u64() >> 2,
        position: input.u64() >> 2,
    };
    let heard = BTreeMap::from([(input.byte(), heard)]);
    let last_generation = block.generation;
    start(Loaded { block, parts, snapshot_at, entries, heard, last_generation });
}

fn block() -> Block {
    Block {
        service: 7 << 100,
        server: 1,
        servers: 1,
        durability: DiskDurability::Majority,
        disk: 0xD15C,
        starts: 4,
        generation: 5,
        promised: 6,
        view: None,
        created: Created::Done(9 << 90),
        snapshot: None,
        log: 0,
        anew: vec![Escape { server: 1, at_ms: 1, from: 2, service: 3 }],
        name: "service".into(),
    }
}

/// Writes all files of a folder as an input.
fn files_of(files: &MemoryFiles) -> Vec<u8> {
    let mut out = vec![0];
    for name in files.list().unwrap_or_default() {
        put_piece(&mut out, name.as_bytes());
        put_piece(&mut out, &files.read(&name).unwrap_or_default());
    }
    out
}

/// The first part of a state: version, epoch, position, digest, bytes in the log; time, no members and no clients.
fn head() -> Bytes {
    let mut part = vec![0; 1 + 24 + 8 + 32 + 8 + 8 + 4 + 4];
    part[0] = 2;
    part.into()
}

/// Returns a blank folder, one with a log, one with two, one with a snapshot, and what a store loads.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0]];
    let Ok((mut store, _)) = Store::open(MemoryFiles::new(), digest) else { return seeds };
    let entries = [Bytes::from_static(b"first"), Bytes::from_static(b"second")];
    let _ =
        store.adopt(block(), Some((3, &[head(), Bytes::from_static(b"state")])), &entries, &BTreeMap::new());
    seeds.push(files_of(store.files()));
    let _ = store.append(store.end() + 1, &entries, &BTreeMap::new());
    seeds.push(files_of(store.files()));
    let parts = vec![head(), Bytes::from_static(b"other")];
    if let Ok(writer) = store.begin_snapshot(store.end(), parts, &[]) {
        // With two logs, and with the snapshot.
        seeds.push(files_of(store.files()));
        let _ = writer.write(store.files_mut()).and_then(|written| store.name_snapshot(written));
    }
    seeds.push(files_of(store.files()));
    let mut loaded = vec![1, 1, 1];
    loaded.extend([[0, 0, 0, 0, 0, 0, 0, 16]; 3].concat());
    loaded.extend([0, 2]);
    loaded.extend([0, 0, 0, 0, 0, 0, 0, 9]);
    loaded.extend([0, 0, 0, 0, 0, 0, 0, 12]);
    loaded.push(2);
    put_piece(&mut loaded, &head());
    put_piece(&mut loaded, b"state");
    loaded.push(1);
    put_piece(&mut loaded, b"entry");
    seeds.push(loaded);
    seeds
}
