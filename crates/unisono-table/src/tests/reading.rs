//! Rules that readers found without a test.

use super::*;
use ::bytes::Bytes;
use alloc::string::String;
use alloc::vec;

#[test]
fn objects_are_listed_after_the_last_one_of_the_answer_before() {
    let (mut table, root) = founded();
    let files: Vec<Capability> = (1..=3).map(|secret| table.put(root, "", secret, "x").unwrap()).collect();
    let after = files[1].object;
    for query in [Query::Files { owner: root, after }, Query::Unreachable { owner: root, after }] {
        let Ok(Answer::Objects { objects, more: false }) = table.ask(&query).result else { panic!() };
        let numbers: Vec<ObjectNumber> = objects.iter().map(|listed| listed.object).collect();
        assert_eq!(numbers, [files[2].object], "{query:?}");
    }
}

#[test]
fn objects_come_in_several_answers_and_a_part_of_a_file_is_bounded() {
    let (mut table, root) = founded();
    // Each takes 24 bytes of the 1 MiB.
    let most = LIST_BYTES_MAX / 24;
    for secret in 0..=most as u128 {
        table.put(root, "", secret + 1, "").unwrap();
    }
    let all = |after| [Query::Files { owner: root, after }, Query::Unreachable { owner: root, after }];
    for (first, second) in all(ObjectNumber(0)).into_iter().zip([0, 1]) {
        let Ok(Answer::Objects { objects, more: true }) = table.ask(&first).result else {
            panic!("{first:?}")
        };
        assert_eq!(objects.len(), most);
        let rest = table.ask(&all(objects[most - 1].object)[second]).result;
        assert!(matches!(rest, Ok(Answer::Objects { objects, more: false }) if objects.len() == 1));
    }
    let file = table.put(root, "", 1 << 100, &"x".repeat(READ_BYTES_MAX + 1)).unwrap();
    let query = Query::Read { place: Place::of(file), offset: 0, length: u32::MAX };
    let Ok(Answer::Content { bytes, .. }) = table.ask(&query).result else { panic!() };
    assert_eq!(bytes.len(), READ_BYTES_MAX);
}

#[test]
fn what_is_created_with_a_name_needs_room_for_its_row() {
    let (mut table, root) = founded_with(Limits { rows: 1, ..Limits::default() });
    table.mkdir(root, "a", 1).unwrap();
    let full = Reason::Full { bound: Bound::Rows, limit: 1 };
    assert_eq!(table.mkdir(root, "b", 2), Err(full));
    assert_eq!(table.put(root, "c", 3, ""), Err(full));
}

#[test]
fn rows_of_a_directory_that_no_path_reaches_make_room() {
    let (mut table, root) = founded();
    let lost = table.mkdir(root, "", 1).unwrap();
    table.mkdir(lost, "a", 2).unwrap();
    assert_eq!(table.info().rows, 1);
    table.run_for_test(Command::DeleteUnreachable { owner: root, created_through: u64::MAX }).unwrap();
    assert_eq!(table.info().rows, 0);
    assert_eq!(Table::restore(&table.snapshot()).unwrap().info(), table.info());
}

#[test]
fn a_row_named_by_two_paths_is_named_twice() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    table.mkdir(home, "x", 2).unwrap();
    let row = |place| Replacement { place, capability: root, expected: None };
    let rows = vec![row(at(root, "home/x")), row(at(home, "x"))];
    let reply = table.execute(Command::ReplaceSet { rows });
    assert_eq!(reply.result, Err(Refusal { reason: Reason::Twice, entry: Some(1) }));
}

#[test]
fn names_and_paths_in_requests_keep_their_rules() {
    let (_, root) = founded();
    let good = Request::Query(Query::List { place: at(root, "axb"), after: None }).encode().to_vec();
    let index = good.iter().position(|byte| *byte == b'x').unwrap();
    for bad in [b'/', 0, 0x7f, 0xff] {
        let mut bytes = good.clone();
        bytes[index] = bad;
        assert_eq!(Request::decode(&bytes.into()), None, "{bad:#x}");
    }
}

#[test]
fn a_lookup_passes_over_paths_whose_capability_proves_nothing() {
    let (mut table, root) = founded();
    let sub = table.mkdir(root, "sub", 7).unwrap();
    let forged = Capability { object: ObjectNumber(99), ..root };
    let long = vec!["x"; PATH_NAMES_MAX].join("/");
    let places: Vec<Place> = [(root, "sub"), (forged, &long), (forged, "x"), (sub, &long), (sub, "")]
        .map(|(capability, path)| at(capability, path))
        .into();
    let query = Query::Lookup { places: places.clone() };
    for request in [Request::Query(query.clone()), Request::LocalQuery(query.clone())] {
        assert_eq!(table.answer(&request.encode()), table.ask(&query).encode());
    }
    // Names that are passed over count: one more than the maximum is too many.
    let many = |count| Query::Lookup { places: vec![at(forged, &long); count] };
    let answer = |query| Reply::decode(&table.answer(&Request::Query(query).encode())).unwrap().result;
    let most = SET_NAMES_MAX / PATH_NAMES_MAX;
    assert!(matches!(answer(many(most)), Ok(Answer::Looked(looked)) if looked.len() == most));
    assert_eq!(answer(many(most + 1)), Err(Reason::Unreadable.into()));
}

#[test]
fn a_set_whose_first_capability_proves_nothing_is_refused_unread() {
    let (table, root) = founded();
    let forged = Capability { object: ObjectNumber(99), ..root };
    let long = vec!["x"; PATH_NAMES_MAX].join("/");
    let row =
        |capability, path: &str| Replacement { place: at(capability, path), capability, expected: None };
    for (first, path, reason) in [(forged, "x", Reason::NotFound), (root, "", Reason::NoName)] {
        let rows = vec![row(first, path), row(root, &long)];
        let bytes = Request::Command(Command::ReplaceSet { rows }).encode();
        let reply = Reply::decode(&table.admit(&bytes).unwrap()).unwrap();
        assert_eq!(reply.result, Err(Refusal { reason, entry: Some(0) }));
        let cut = bytes.slice(..bytes.len() - 1);
        assert_eq!(table.admit(&cut), table.admit(&bytes), "its end is not looked at");
        assert_eq!(table.admit_beginning(&bytes.slice(..100), 30_000), table.admit(&bytes));
    }
}

/// Returns a request of each kind, with this first capability.
fn of_each_kind(first: Capability) -> (Vec<Command>, Vec<Query>) {
    let (secret, owner, after) = (Check::from_bits(7), first, ObjectNumber(0));
    let place = || at(first, "a/b");
    let (columns, row_masks) = (columns(&["owner"]), masks(&[1]));
    let rows = vec![Replacement { place: place(), capability: first, expected: None }];
    let commands = vec![
        Command::CreateDirectory { place: place(), columns, masks: None, secret },
        Command::CreateFile { place: place(), masks: None, secret, content: Bytes::from_static(b"content") },
        Command::DeleteDirectory { place: place() },
        Command::DeleteFile { place: place() },
        Command::Append { place: place(), capability: first, masks: None },
        Command::Chmod { place: place(), masks: row_masks },
        Command::DeleteRow { place: place() },
        Command::ReplaceSet { rows },
        Command::Revoke { place: place(), secret },
        Command::DeleteUnreachable { owner, created_through: 7 },
    ];
    let queries = vec![
        Query::List { place: place(), after: None },
        Query::Lookup { places: vec![place(), place()] },
        Query::Restrict { place: place(), rights: Rights::ALL },
        Query::Read { place: place(), offset: 0, length: 7 },
        Query::Size { place: place() },
        Query::Files { owner, after },
        Query::Unreachable { owner, after },
        Query::Changes { place: place(), from: 7 },
        Query::Info,
    ];
    (commands, queries)
}

#[test]
fn the_beginning_of_any_command_whose_first_capability_proves_nothing_is_refused() {
    let (mut table, root) = founded();
    let a = table.mkdir(root, "a", 1).unwrap();
    let file = table.put(a, "b", 2, "content").unwrap();
    let forged = Capability { object: ObjectNumber(99), ..root };
    let wrong = Capability { check: Check::from_bits(1), ..root };
    for first in [forged, wrong, Capability { rights: Rights(1), ..file }] {
        for command in of_each_kind(first).0 {
            let refusal = table.execute(command.clone()).result.unwrap_err();
            let bytes = Request::Command(command).encode();
            for beginning in [bytes.clone(), bytes.slice(..50)] {
                let reply = table.admit_beginning(&beginning, bytes.len()).expect("a refusal");
                assert_eq!(Reply::decode(&reply).unwrap().result, Err(refusal), "{beginning:?}");
            }
        }
    }
    for command in of_each_kind(root).0 {
        let bytes = Request::Command(command).encode();
        assert_eq!(table.admit_beginning(&bytes.slice(..50), bytes.len()), None);
    }
}

#[test]
fn the_beginning_of_what_is_longer_than_any_such_request_is_refused() {
    let (table, root) = founded();
    let is_refused = |beginning: &Bytes, bytes: usize| {
        let reply = table.admit_beginning(beginning, bytes)?;
        assert_eq!(Reply::decode(&reply).unwrap().result, Err(Reason::Unreadable.into()));
        Some(())
    };
    // With the capability, the path and the columns as long as they may be.
    let name = |letter: &str| letter.repeat(NAME_BYTES_MAX);
    let path = [vec![name("x"); 15], vec!["x".repeat(254), "x".into()]].concat().join("/");
    assert_eq!(path.len(), PATH_BYTES_MAX);
    let letters: Vec<String> = ["a", "b", "c", "d"].map(name).into();
    let columns = columns(&letters.iter().map(String::as_str).collect::<Vec<_>>());
    let (masks, secret) = (Some(masks(&[1; 4])), Check::from_bits(7));
    let place = at(root, &path);
    let longest = Command::CreateDirectory { place: place.clone(), columns, masks, secret };
    let short_max = Request::Command(longest).encode().len();
    let (commands, queries) = of_each_kind(root);
    let commands = commands.into_iter().map(Request::Command);
    let found = Command::Found { port: root.port, secret, service: Bytes::new() };
    let of_query = |query: Query| [Request::Query(query.clone()), Request::LocalQuery(query)];
    for request in commands.chain([Request::Command(found)]).chain(queries.into_iter().flat_map(of_query)) {
        let bytes = request.encode();
        let longest = match request {
            Request::Command(Command::CreateFile { .. }) => continue,
            Request::Command(Command::ReplaceSet { .. }) => {
                let row = Replacement { place: place.clone(), capability: root, expected: Some(root) };
                Request::Command(Command::ReplaceSet { rows: vec![row] }).encode().len()
            }
            Request::Query(Query::Lookup { .. }) | Request::LocalQuery(Query::Lookup { .. }) => {
                Request::Query(Query::Lookup { places: vec![place.clone(); 2] }).encode().len()
            }
            _ => short_max,
        };
        assert_eq!(is_refused(&bytes, longest), None, "{request:?}");
        assert_eq!(is_refused(&bytes, longest + 1), Some(()), "{request:?}");
    }
    // Sets of as many as there may be, and of none.
    for (head, most) in [([1, 0, 9], 1024), ([1, 1, 2], 1024), ([1, 2, 2], 1024)] {
        let with = |count: u16| Bytes::from([&head[..], &count.to_be_bytes(), &[0; 9]].concat());
        assert_eq!(is_refused(&with(most), SET_BYTES_MAX + 5), None);
        assert_eq!(is_refused(&with(most), SET_BYTES_MAX + 6), Some(()));
        assert_eq!(is_refused(&with(most + 1), 30_000), Some(()));
        assert_eq!(is_refused(&with(0), 30_000), Some(()));
    }
    for none in [&b"\x01\x00\x0c"[..], b"\x01\x01\x0a", b"\x01\x03\x01", b"\x02\x00\x03", b""] {
        assert_eq!(is_refused(&Bytes::copy_from_slice(none), 5000), Some(()), "{none:?}");
    }
}

#[test]
fn a_file_that_does_not_end_where_its_request_does_is_refused_by_its_beginning() {
    let (table, root) = founded();
    let create = |content: usize| {
        let (place, secret, content) = (at(root, "x"), Check::from_bits(7), Bytes::from(vec![7; content]));
        Request::Command(Command::CreateFile { place, masks: None, secret, content }).encode()
    };
    let bytes = create(30_000);
    let beginning = bytes.slice(..1000);
    assert_eq!(table.admit_beginning(&beginning, bytes.len()), None);
    let refused = table.admit_beginning(&beginning, bytes.len() + 1);
    assert_eq!(Reply::decode(&refused.unwrap()).unwrap().result, Err(Reason::Unreadable.into()));
    for (content, is_refused) in [(FILE_BYTES_MAX, false), (FILE_BYTES_MAX + 1, true)] {
        let bytes = create(content);
        assert_eq!(table.admit_beginning(&bytes.slice(..1000), bytes.len()).is_some(), is_refused);
    }
}

#[test]
fn a_lookup_is_not_refused_for_its_capabilities() {
    let (mut table, root) = founded();
    table.mkdir(root, "a", 1).unwrap();
    let forged = Capability { object: ObjectNumber(99), ..root };
    let query = Query::Lookup { places: vec![at(forged, "a"), at(root, "a")] };
    let bytes = Request::Query(query.clone()).encode();
    assert_eq!(table.admit_beginning(&bytes, bytes.len()), None);
    assert!(matches!(table.ask(&query).result, Ok(Answer::Looked(looked)) if looked[1].is_ok()));
    assert!(!table.shows_right(&bytes), "it counts as its parts come");
}

#[test]
fn a_request_shows_a_right_by_its_first_capability_whatever_it_asks_for() {
    let (table, root) = founded();
    let none = Capability { object: ObjectNumber(99), ..root };
    let wrong = Capability { rights: Rights(root.rights.0 ^ 1), ..root };
    let requests = |first: Capability| {
        let place = || at(first, "nothing/here");
        let row = Replacement { place: place(), capability: root, expected: None };
        let (secret, owner, after) = (Check::from_bits(7), first, ObjectNumber(0));
        let content = Bytes::from_static(b"content");
        [
            Request::Command(Command::CreateFile { place: place(), masks: None, secret, content }),
            Request::Command(Command::DeleteRow { place: place() }),
            Request::Command(Command::ReplaceSet { rows: vec![row] }),
            Request::Command(Command::DeleteUnreachable { owner, created_through: 0 }),
            Request::Query(Query::Lookup { places: vec![place(), at(root, "x")] }),
            Request::LocalQuery(Query::List { place: place(), after: None }),
            Request::Query(Query::Files { owner, after }),
            Request::LocalQuery(Query::Changes { place: place(), from: 0 }),
        ]
    };
    for (first, expected) in [(root, true), (none, false), (wrong, false)] {
        for request in requests(first) {
            assert_eq!(table.shows_right(&request.encode()), expected, "{request:?}");
        }
    }
    let found = Command::Found { port: root.port, secret: Check::from_bits(1), service: Bytes::new() };
    let without = [
        Request::Command(found),
        Request::Command(Command::ReplaceSet { rows: Vec::new() }),
        Request::Query(Query::Lookup { places: Vec::new() }),
        Request::Query(Query::Info),
    ];
    without.iter().for_each(|request| assert!(!table.shows_right(&request.encode()), "{request:?}"));
    assert!(!table.shows_right(&Bytes::from_static(b"\x01\x02")));
}
