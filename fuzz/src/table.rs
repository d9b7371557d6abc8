//! Operations on a table whose objects exist, and snapshots of it.

use crate::input::{Input, put_piece};
use crate::pages;
use bytes::Bytes;
use unisono_table::{Check, Command, Limits, Port, Request, RequestKind, Table};

/// Returns a table with the port and the root's check of the examples in the page of the protocol.
fn founded() -> Table {
    let mut table = Table::new(Limits::default());
    let service = Bytes::from_static(&[5; 16]);
    table.execute(Command::Found { port: Port(0xaa), secret: Check::from_bits(0xbb), service });
    table
}

/// An input is a sequence of requests, each with its length before it. Afterwards the table restores to itself.
pub fn run(data: &[u8]) {
    let (mut input, mut table) = (Input(data), founded());
    while !input.is_empty() {
        let request = Bytes::copy_from_slice(input.piece());
        match Request::kind(&request) {
            RequestKind::Command => table.apply(&request),
            _ => table.answer(&request),
        };
    }
    let parts = table.snapshot();
    let again = Table::restore(&parts).expect("a table restores its own snapshot");
    assert!(again.snapshot() == parts);
    // The same bytes as parts of a snapshot.
    let mut input = Input(data);
    let mut hostile = Vec::new();
    while !input.is_empty() {
        hostile.push(Bytes::copy_from_slice(input.piece()));
    }
    if let Ok(table) = Table::restore(&hostile) {
        let _ = (table.info(), table.root(), table.snapshot());
    }
}

/// Returns the examples one by one, all one after the other, and the parts of a table on which they were executed.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = pages::of_directory();
    let requests =
        requests.into_iter().filter(|bytes| Request::decode(&Bytes::copy_from_slice(bytes)).is_some());
    let (mut seeds, mut all, mut table) = (Vec::new(), Vec::new(), founded());
    for request in requests {
        let mut one = Vec::new();
        put_piece(&mut one, &request);
        all.extend_from_slice(&one);
        seeds.push(one);
        table.apply(&Bytes::from(request));
    }
    let mut parts = Vec::new();
    table.snapshot().iter().for_each(|part| put_piece(&mut parts, part));
    seeds.extend([all, parts]);
    seeds
}
