//! Rules that readers found without a test.

use super::*;
use ::bytes::Bytes;
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
    let lookup = Request::Query(Query::Lookup { places: vec![at(root, &long)] }).encode();
    assert_eq!(table.admit_beginning(&lookup, SET_BYTES_MAX), None);
    assert!(table.admit_beginning(&lookup, SET_BYTES_MAX + 17).is_some(), "only a file is so long");
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
