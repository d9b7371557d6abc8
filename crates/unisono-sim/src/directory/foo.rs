//! The row *foo* of Kaashoek, Tanenbaum and Verstoep, in the place of what clients of other histories ask for: it is made and
//! deleted in turn, and looked up when servers come back.

use super::book::Book;
use super::draw::found;
use crate::record::Mode;
use crate::replica::Op;
use bytes::Bytes;
use unisono_table::{Check, Command, Place, Query, Request};

/// Words from which on commands of other histories come from callers at the end.
const AT_END: u64 = 100;

/// Returns what a caller asks a directory instead.
pub(crate) fn foo(book: &Book, op: Op, mode: Mode) -> Bytes {
    let path = if op == Op::Append(AT_END) { "after" } else { "foo" };
    let place = Place { capability: book.root, path: path.parse().unwrap_or_default() };
    let request = match op {
        Op::Append(0) => Request::Command(found(book)),
        Op::Append(AT_END) => Request::Command(make(place, AT_END)),
        Op::Append(word) if word % 2 == 1 => Request::Command(make(place, word)),
        Op::Append(_) => Request::Command(Command::DeleteRow { place }),
        _ if mode == Mode::Command => Request::Command(found(book)),
        _ => Request::Query(Query::Lookup { places: vec![place] }),
    };
    request.encode()
}

fn make(place: Place, word: u64) -> Command {
    let columns = ["owner", "group", "other"].iter().filter_map(|name| name.parse().ok()).collect();
    Command::CreateDirectory { place, columns, masks: None, secret: Check::from_bits(u128::from(word)) }
}
