//! Tests of the whole table: each rule by itself, random commands against a simple model, bytes, and snapshots.

mod bytes;
mod model;
mod random;
mod reading;
mod rules;
mod snapshots;

use crate::*;
use alloc::vec::Vec;

const PORT: Port = Port(0xd1);
const ROOT_SECRET: Check = Check::from_bits(0x5ec2e7);

/// Returns a table with a root directory, and the root's capability.
fn founded() -> (Table, Capability) {
    founded_with(Limits::default())
}

fn founded_with(limits: Limits) -> (Table, Capability) {
    let mut table = Table::new(limits);
    let reply =
        table.execute(Command::Found { port: PORT, secret: ROOT_SECRET, service: Default::default() });
    assert_eq!((reply.number, reply.changes), (1, 1));
    let root = table.root().expect("it has been founded");
    assert_eq!(reply.result, Ok(Answer::Capability(root)));
    (table, root)
}

fn at(capability: Capability, path: &str) -> Place {
    Place { capability, path: path.parse().expect("a path") }
}

fn columns(names: &[&str]) -> Vec<Name> {
    names.iter().map(|name| name.parse().expect("a name")).collect()
}

fn masks(masks: &[u8]) -> Masks {
    let masks: Vec<Rights> = masks.iter().copied().map(Rights).collect();
    Masks::new(&masks).expect("one to four")
}

impl Table {
    /// Executes a command and returns why it was refused, or its capability if it has one.
    fn run_for_test(&mut self, command: Command) -> Result<Option<Capability>, Reason> {
        match self.execute(command).result {
            Ok(Answer::Capability(capability)) => Ok(Some(capability)),
            Ok(_) => Ok(None),
            Err(refusal) => Err(refusal.reason),
        }
    }

    fn mkdir(&mut self, directory: Capability, path: &str, secret: u128) -> Result<Capability, Reason> {
        let secret = Check::from_bits(secret);
        let columns = columns(&["owner", "group", "other"]);
        let command = Command::CreateDirectory { place: at(directory, path), columns, masks: None, secret };
        self.run_for_test(command).map(|capability| capability.expect("a directory"))
    }

    fn put(
        &mut self,
        directory: Capability,
        path: &str,
        secret: u128,
        content: &str,
    ) -> Result<Capability, Reason> {
        let (secret, content) = (Check::from_bits(secret), content.as_bytes().to_vec().into());
        let command = Command::CreateFile { place: at(directory, path), masks: None, secret, content };
        self.run_for_test(command).map(|capability| capability.expect("a file"))
    }

    fn look(&self, directory: Capability, path: &str) -> Result<Capability, Reason> {
        match self.ask(&Query::Lookup { places: [at(directory, path)].into() }).result {
            Ok(Answer::Looked(looked)) => looked[0].map(|looked| looked.capability),
            other => panic!("{other:?}"),
        }
    }

    fn names(&self, directory: Capability, path: &str) -> Result<Vec<Name>, Reason> {
        match self.ask(&Query::List { place: at(directory, path), after: None }).result {
            Ok(Answer::Rows { rows, more: false, .. }) => Ok(rows.into_iter().map(|row| row.name).collect()),
            Err(refusal) => Err(refusal.reason),
            other => panic!("{other:?}"),
        }
    }

    fn content(&self, file: Capability) -> Result<Vec<u8>, Reason> {
        match self.ask(&Query::Read { place: Place::of(file), offset: 0, length: u32::MAX }).result {
            Ok(Answer::Content { bytes, .. }) => Ok(bytes.to_vec()),
            Err(refusal) => Err(refusal.reason),
            other => panic!("{other:?}"),
        }
    }

    fn unreachable_for_test(&self, owner: Capability) -> Vec<u64> {
        match self.ask(&Query::Unreachable { owner, after: ObjectNumber(0) }).result {
            Ok(Answer::Objects { objects, .. }) => objects.iter().map(|listed| listed.object.0).collect(),
            other => panic!("{other:?}"),
        }
    }
}
