//! Holds docs/protocol/directory.md to the code: codes and bytes of operations, codes and words of errors.

use bytes::Bytes;
use unisono_dir::{
    Bound, Capability, Check, Command, Masks, Name, ObjectNumber, Place, Port, Query, Reason, Refusal,
    Replacement, Reply, Request, Rights,
};

const PAGE: &str = include_str!("directory-page.txt");

fn capability() -> Capability {
    Capability::of_owner(Port(0xaa), ObjectNumber(1), Check::from_bits(0xbb))
}

fn place(path: &str) -> Place {
    Place { capability: capability(), path: path.parse().unwrap() }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn masks() -> Masks {
    Masks::new(&[Rights(0xff), Rights(0x02)]).unwrap()
}

/// Each command and query, under its name on the page.
fn requests() -> Vec<(&'static str, Request)> {
    let secret = Check::from_bits(0xcc);
    let row = Replacement { place: place("a"), capability: capability(), expected: Some(capability()) };
    let commands = [
        ("found", Command::Found { port: Port(0xaa), secret, service: Bytes::from_static(b"s") }),
        (
            "create directory",
            Command::CreateDirectory {
                place: place("a"),
                columns: vec![name("o")],
                masks: Some(masks()),
                secret,
            },
        ),
        (
            "create file",
            Command::CreateFile {
                place: place("a"),
                masks: None,
                secret,
                content: Bytes::from_static(b"hi"),
            },
        ),
        ("delete directory", Command::DeleteDirectory { place: place("a/b") }),
        ("delete file", Command::DeleteFile { place: place("") }),
        ("append row", Command::Append { place: place("a"), capability: capability(), masks: None }),
        ("chmod row", Command::Chmod { place: place("a"), masks: masks() }),
        ("delete row", Command::DeleteRow { place: place("a") }),
        ("replace set", Command::ReplaceSet { rows: vec![row] }),
        ("revoke", Command::Revoke { place: place("a"), secret }),
        ("delete unreachable", Command::DeleteUnreachable { owner: capability(), created_through: 7 }),
    ];
    let queries = [
        ("list", Query::List { place: place(""), after: Some(name("a")) }),
        ("lookup set", Query::Lookup { places: vec![place("a")] }),
        ("restrict", Query::Restrict { place: place("a"), rights: Rights(0x04) }),
        ("read", Query::Read { place: place("a"), offset: 5, length: 6 }),
        ("size", Query::Size { place: place("a") }),
        ("files", Query::Files { owner: capability(), after: ObjectNumber(2) }),
        ("unreachable", Query::Unreachable { owner: capability(), after: ObjectNumber(2) }),
        ("changes", Query::Changes { place: place("a"), from: 9 }),
        ("info", Query::Info),
    ];
    let commands = commands.into_iter().map(|(name, command)| (name, Request::Command(command)));
    commands.chain(queries.into_iter().map(|(name, query)| (name, Request::Query(query)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the least number of bytes of fields that the page describes so.
fn fields(description: &str) -> usize {
    let capability = 16 + 8 + 1 + 16;
    description
        .split(", ")
        .map(|field| match field.trim() {
            "" | "–" => 0,
            "place" => capability,
            "capability" | "owner" => capability,
            "port 16" | "secret 16" => 16,
            "number 8" | "offset 8" => 8,
            "length 4" => 4,
            "rights 1" => 1,
            // Lengths of these depend on what is in them.
            "columns" | "masks" | "masks?" | "name?" | "bytes" | "rows" | "places" => 0,
            other => panic!("the page has the field {other:?}"),
        })
        .sum()
}

#[test]
fn the_page_has_each_request_with_its_code_and_an_example() {
    let mut missing = Vec::new();
    for (name, request) in requests() {
        let bytes = request.encode();
        let code = bytes[2];
        let begin = format!("| {code} | {name} | ");
        let row =
            PAGE.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("no row: {begin}"));
        let described = row[begin.len()..].split(" |").next().unwrap();
        assert!(bytes.len() >= 3 + fields(described), "{name}: {described}");
        let example = format!("| {name} | `{}` |", hex(&bytes));
        if !PAGE.contains(&example) {
            missing.push(example);
        }
        assert_eq!(Request::decode(&bytes), Some(request));
    }
    assert!(missing.is_empty(), "the page lacks these lines:\n{}", missing.join("\n"));
}

#[test]
fn the_page_has_each_error_with_its_code_and_its_words() {
    let reasons = [
        Reason::NotFound,
        Reason::Denied,
        Reason::Exists,
        Reason::NotEmpty,
        Reason::NotADirectory,
        Reason::NotAFile,
        Reason::NoName,
        Reason::Masks { columns: 3, masks: 2 },
        Reason::Differs,
        Reason::Twice,
        Reason::Full { bound: Bound::Rows, limit: 9 },
        Reason::Root,
        Reason::Founded,
        Reason::Future { number: 4 },
        Reason::NoLongerKept { kept_from: 5 },
        Reason::Unreadable,
    ];
    for (index, reason) in reasons.into_iter().enumerate() {
        let reply = Reply { number: 1, changes: 1, result: Err(Refusal { reason, entry: None }) }.encode();
        // Version, number, changes, 0 for a refusal, entry, code.
        let code = reply[1 + 8 + 8 + 1 + 2];
        assert_eq!(usize::from(code), index + 1);
        let row = format!("| {code} | {reason} |");
        assert!(PAGE.contains(&row), "the page lacks this line:\n{row}");
    }
}
