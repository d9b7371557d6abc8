//! What clients of a directory ask for: all operations, on few names, so that they meet.

use super::book::{Book, secret};
use crate::draw::Draw;
use bytes::Bytes;
use unisono_core::Random;
use unisono_table::{
    Capability, Command, Masks, Name, ObjectNumber, PATH_NAMES_MAX, Path, Place, Query, Replacement, Request,
    Rights,
};

/// Names of rows. Some runs delete and create the first one again and again.
const NAMES: [&str; 6] = ["foo", "a", "b", "c", "d", "e"];
/// Names of columns.
const COLUMNS: [&str; 4] = ["owner", "group", "other", "else"];
/// Maximum length of a file.
const FILE_BYTES_MAX: u64 = 300;
/// Lengths from here on stand for a file so large that the server looks at the beginning of its request first.
const LARGE_FROM: usize = 294;
const LARGE_BYTES: usize = 40_000;
/// Fraction of requests that cannot be read.
const UNREADABLE: f64 = 0.005;

/// Draws a request: a query with this probability, and of the queries those of the own state with that one.
pub(crate) fn draw(random: &mut Random, book: &Book, reads: f64, local: f64) -> Bytes {
    if random.chance(UNREADABLE) {
        return Bytes::from_static(&[unisono_table::VERSION, 0, 200]);
    }
    // A service is founded once, by the first that asks.
    let request = if book.number == 0 || random.chance(0.005) {
        Request::Command(found(book))
    } else if !random.chance(reads) {
        Request::Command(command(random, book))
    } else {
        let query = query(random, book);
        if random.chance(local) { Request::LocalQuery(query) } else { Request::Query(query) }
    };
    request.encode()
}

/// Draws a request that costs much to look at: its paths are as long as they may be.
pub(crate) fn draw_long(random: &mut Random, book: &Book, reads: f64) -> Bytes {
    let is_read = random.chance(reads);
    let mut place = || Place { capability: book.any(random), path: path(random, PATH_NAMES_MAX as u64) };
    let request = match is_read {
        true => Request::Query(Query::Lookup { places: vec![place(), place(), place()] }),
        false => Request::Command(Command::DeleteRow { place: place() }),
    };
    request.encode()
}

/// Draws a watch of any directory, from the beginning, from now, or from the future.
pub(crate) fn draw_watch(random: &mut Random, book: &Book) -> Bytes {
    let from = match random.below(4) {
        0 => 1,
        1 => book.number + 1,
        2 => book.number + random.between(2, 100),
        _ => u64::MAX,
    };
    Request::LocalQuery(Query::Changes { place: some_place(random, book), from }).encode()
}

pub(super) fn found(book: &Book) -> Command {
    Command::Found {
        port: book.root.port,
        secret: book.root.check,
        service: Bytes::from_static(b"simulated"),
    }
}

fn name(random: &mut Random) -> &'static str {
    if random.chance(0.3) { NAMES[0] } else { random.pick(&NAMES) }
}

fn path(random: &mut Random, names: u64) -> Path {
    let names: Vec<&str> = (0..names).map(|_| name(random)).collect();
    names.join("/").parse().unwrap_or_default()
}

/// Returns a place: mostly a row of a directory, sometimes further down, sometimes the object itself.
fn place(random: &mut Random, book: &Book) -> Place {
    let names = random.weigh(&[(2, 0), (9, 1), (3, 2), (1, 3)]);
    Place { capability: book.any(random), path: path(random, names) }
}

/// Returns a row of a directory of which a good capability is known.
fn row(random: &mut Random, book: &Book) -> Place {
    Place { capability: book.good(random), path: path(random, 1) }
}

fn some_place(random: &mut Random, book: &Book) -> Place {
    if random.chance(0.5) { row(random, book) } else { place(random, book) }
}

fn masks(random: &mut Random) -> Option<Masks> {
    let count = random.weigh(&[(1, 1), (2, 2), (8, 3), (1, 4)]);
    let masks: Vec<Rights> = (0..count)
        .map(|column| match random.below(4) {
            0 => Rights(random.below(256) as u8),
            1 => Rights::ALL,
            2 => Rights(0x42 | 1 << column),
            _ => Rights(1 << column | 0x02),
        })
        .collect();
    Masks::new(&masks)
}

fn columns(random: &mut Random) -> Vec<Name> {
    let count = random.weigh(&[(1, 1), (1, 2), (6, 3), (1, 4)]);
    COLUMNS[..count].iter().filter_map(|name| name.parse().ok()).collect()
}

fn content(random: &mut Random) -> Bytes {
    let length = match random.below(FILE_BYTES_MAX) as usize {
        LARGE_FROM.. => LARGE_BYTES,
        length => length,
    };
    // No two files are alike.
    let mut bytes = random.next_u64().to_be_bytes().to_vec();
    let filler = random.below(256) as u8;
    bytes.resize(8 + length, filler);
    bytes.into()
}

fn command(random: &mut Random, book: &Book) -> Command {
    let place = some_place(random, book);
    let masks = masks(random);
    let optional = masks.filter(|_| random.chance(0.3));
    match random.below(40) {
        0..8 => {
            let columns = columns(random);
            Command::CreateDirectory { place, columns, masks: optional, secret: secret(random) }
        }
        8..13 => {
            let content = content(random);
            Command::CreateFile { place, masks: optional, secret: secret(random), content }
        }
        13..16 => Command::DeleteDirectory { place },
        16..18 => Command::DeleteFile { place },
        18..23 => Command::Append { place, capability: book.any(random), masks: optional },
        23..26 => match masks {
            Some(masks) => Command::Chmod { place, masks },
            None => Command::DeleteRow { place },
        },
        26..31 => Command::DeleteRow { place },
        31..37 => Command::ReplaceSet { rows: replacements(random, book) },
        37..39 => Command::Revoke { place, secret: secret(random) },
        _ => {
            let owner = if random.chance(0.7) { book.root } else { book.any(random) };
            let created_through = book.number.saturating_sub(random.below(40));
            Command::DeleteUnreachable { owner, created_through }
        }
    }
}

fn replacements(random: &mut Random, book: &Book) -> Vec<Replacement> {
    let count = random.between(1, 3);
    (0..count).map(|_| replacement(random, book)).collect()
}

fn replacement(random: &mut Random, book: &Book) -> Replacement {
    if random.chance(0.5)
        && let Some((place, expected)) = book.shown(random)
    {
        return Replacement { place, capability: book.good(random), expected: Some(expected) };
    }
    let expected = random.chance(0.2).then(|| book.good(random));
    let place = if random.chance(0.8) { row(random, book) } else { some_place(random, book) };
    Replacement { place, capability: book.good(random), expected }
}

fn query(random: &mut Random, book: &Book) -> Query {
    let place = some_place(random, book);
    match random.below(20) {
        0..9 => {
            let count = random.between(1, 5);
            Query::Lookup { places: (0..count).map(|_| some_place(random, book)).collect() }
        }
        9..13 => {
            let object = Place { path: Path::default(), ..place };
            Query::List { place: object, after: None }
        }
        13 => Query::List { place, after: name(random).parse().ok() },
        14 => Query::Restrict { place, rights: Rights(random.below(256) as u8) },
        15 | 16 => {
            Query::Read { place, offset: random.pick(&[0, 0, 5]), length: random.pick(&[400, 400, 7]) }
        }
        17 => Query::Size { place },
        18 => match random.below(3) {
            0 => Query::Files { owner: owner(random, book), after: ObjectNumber(0) },
            1 => Query::Unreachable { owner: owner(random, book), after: ObjectNumber(0) },
            _ => Query::Info,
        },
        _ => Query::Changes {
            place: Place { path: Path::default(), ..place },
            from: (book.number + 3).saturating_sub(random.below(60)),
        },
    }
}

fn owner(random: &mut Random, book: &Book) -> Capability {
    if random.chance(0.6) { book.root } else { book.any(random) }
}
