//! Requests and replies as bytes: each is read as it was written, and hostile bytes do no harm.

use super::*;
use ::bytes::Bytes;
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

fn capability() -> impl Strategy<Value = Capability> {
    any::<(u128, u64, u8, u128)>().prop_map(|(port, object, rights, check)| Capability {
        port: Port(port),
        object: ObjectNumber(object),
        rights: Rights(rights),
        check: Check::from_bits(check),
    })
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zä]{1,8}".prop_map(|text: String| text.parse().unwrap())
}

fn place() -> impl Strategy<Value = Place> {
    (capability(), "([a-z]{1,3}(/[a-z]{1,3}){0,3})?")
        .prop_map(|(capability, path)| Place { capability, path: path.parse().unwrap() })
}

fn some_masks() -> impl Strategy<Value = Masks> {
    prop::collection::vec(any::<u8>().prop_map(Rights), 1..=4).prop_map(|masks| Masks::new(&masks).unwrap())
}

fn secret() -> impl Strategy<Value = Check> {
    any::<u128>().prop_map(Check::from_bits)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..50).prop_map(Bytes::from)
}

fn command() -> impl Strategy<Value = Command> {
    let row = (place(), capability(), prop::option::of(capability()))
        .prop_map(|(place, capability, expected)| Replacement { place, capability, expected });
    let masks = || prop::option::of(some_masks());
    prop_oneof![
        (any::<u128>(), secret(), bytes()).prop_map(|(port, secret, service)| Command::Found {
            port: Port(port),
            secret,
            service
        }),
        (place(), masks(), secret(), 1..=4usize).prop_map(|(place, masks, secret, count)| {
            let columns = columns(&["owner", "group", "other", "else"][..count]);
            Command::CreateDirectory { place, columns, masks, secret }
        }),
        (place(), masks(), secret(), bytes()).prop_map(|(place, masks, secret, content)| {
            Command::CreateFile { place, masks, secret, content }
        }),
        place().prop_map(|place| Command::DeleteDirectory { place }),
        place().prop_map(|place| Command::DeleteFile { place }),
        (place(), capability(), masks()).prop_map(|(place, capability, masks)| Command::Append {
            place,
            capability,
            masks
        }),
        (place(), some_masks()).prop_map(|(place, masks)| Command::Chmod { place, masks }),
        place().prop_map(|place| Command::DeleteRow { place }),
        prop::collection::vec(row, 0..4).prop_map(|rows| Command::ReplaceSet { rows }),
        (place(), secret()).prop_map(|(place, secret)| Command::Revoke { place, secret }),
        (capability(), any::<u64>())
            .prop_map(|(owner, created_through)| Command::DeleteUnreachable { owner, created_through }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let owner = || (capability(), any::<u64>().prop_map(ObjectNumber));
    prop_oneof![
        (place(), prop::option::of(name())).prop_map(|(place, after)| Query::List { place, after }),
        prop::collection::vec(place(), 0..4).prop_map(|places| Query::Lookup { places }),
        (place(), any::<u8>()).prop_map(|(place, rights)| Query::Restrict { place, rights: Rights(rights) }),
        (place(), any::<(u64, u32)>()).prop_map(|(place, (offset, length))| Query::Read {
            place,
            offset,
            length
        }),
        place().prop_map(|place| Query::Size { place }),
        owner().prop_map(|(owner, after)| Query::Files { owner, after }),
        owner().prop_map(|(owner, after)| Query::Unreachable { owner, after }),
        (place(), any::<u64>()).prop_map(|(place, from)| Query::Changes { place, from }),
        Just(Query::Info),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        command().prop_map(Request::Command),
        query().prop_map(Request::Query),
        query().prop_map(Request::LocalQuery),
    ]
}

fn reason() -> impl Strategy<Value = Reason> {
    prop_oneof![
        prop::sample::select(vec![
            Reason::NotFound,
            Reason::Denied,
            Reason::Exists,
            Reason::NotEmpty,
            Reason::NotADirectory,
            Reason::NotAFile,
            Reason::NoName,
            Reason::Differs,
            Reason::Twice,
            Reason::Root,
            Reason::Founded,
            Reason::Unreadable,
        ]),
        any::<(u8, u8)>().prop_map(|(columns, masks)| Reason::Masks { columns, masks }),
        any::<u64>().prop_map(|number| Reason::Future { number }),
        any::<u64>().prop_map(|kept_from| Reason::NoLongerKept { kept_from }),
        (
            prop::sample::select(vec![Bound::Directories, Bound::Rows, Bound::Files, Bound::FileBytes]),
            any::<u64>()
        )
            .prop_map(|(bound, limit)| Reason::Full { bound, limit }),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let row = (name(), prop::result::maybe_ok(capability(), reason()), some_masks())
        .prop_map(|(name, capability, masks)| Row { name, capability, masks });
    let looked = (capability(), any::<bool>())
        .prop_map(|(capability, is_directory)| Looked { capability, is_directory });
    let listed = (any::<(u64, u64)>(), prop::option::of(0..u64::MAX))
        .prop_map(|((object, created), size)| Listed { object: ObjectNumber(object), created, size });
    let events = vec![Event::Append, Event::Chmod, Event::Delete, Event::Replace];
    let change = (any::<u64>(), prop::sample::select(events), name())
        .prop_map(|(number, event, name)| Change { number, event, name });
    prop_oneof![
        Just(Answer::Done),
        capability().prop_map(Answer::Capability),
        any::<(u64, u64)>().prop_map(|(directories, files)| Answer::Deleted { directories, files }),
        (prop::collection::vec(row, 0..4), any::<bool>()).prop_map(|(rows, more)| Answer::Rows {
            columns: columns(&["a", "b"]),
            rows,
            more
        }),
        prop::collection::vec(prop::result::maybe_ok(looked, reason()), 0..4).prop_map(Answer::Looked),
        (any::<u64>(), bytes()).prop_map(|(size, bytes)| Answer::Content { size, bytes }),
        any::<u64>().prop_map(Answer::Size),
        (prop::collection::vec(listed, 0..4), any::<bool>())
            .prop_map(|(objects, more)| Answer::Objects { objects, more }),
        (prop::collection::vec(change, 0..4), any::<u64>())
            .prop_map(|(changes, next)| Answer::Changes { changes, next }),
        any::<(u64, u64, u64, u64, u64)>().prop_map(|(directories, rows, files, file_bytes, kept_from)| {
            Answer::Info(Info { directories, rows, files, file_bytes, kept_from })
        }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let refusal =
        (reason(), prop::option::of(0..u16::MAX)).prop_map(|(reason, entry)| Refusal { reason, entry });
    (any::<(u64, u64)>(), prop::result::maybe_ok(answer(), refusal))
        .prop_map(|((number, changes), result)| Reply { number, changes, result })
}

proptest! {
    #[test]
    fn requests_are_read_as_they_are_written(request in request()) {
        let bytes = request.encode();
        prop_assert_eq!(Request::decode(&bytes), Some(request.clone()));
        let kind = match request {
            Request::Command(_) => RequestKind::Command,
            Request::Query(_) => RequestKind::Query,
            Request::LocalQuery(_) => RequestKind::LocalQuery,
        };
        prop_assert_eq!(Request::kind(&bytes), kind);
        let cost = Request::cost(&bytes);
        match request {
            Request::Query(query) | Request::LocalQuery(query) => match query {
                Query::List { .. } | Query::Files { .. } | Query::Unreachable { .. } => prop_assert_eq!(cost, 100),
                Query::Changes { .. } => prop_assert_eq!(cost, 100),
                Query::Read { length, .. } => prop_assert_eq!(cost > 110, length >= 1_126_400),
                _ => prop_assert_eq!(cost, 1 + bytes.len() as u32 / 40),
            },
            Request::Command(Command::CreateFile { content, .. }) => {
                prop_assert!(cost <= 16 + bytes.len() as u32 / 4096 && cost > content.len() as u32 / 4096);
            }
            Request::Command(_) => prop_assert_eq!(cost, 1 + bytes.len() as u32 / 40),
        }
        for end in 0..bytes.len() {
            prop_assert_eq!(Request::decode(&bytes.slice(..end)), None, "cut after {} bytes", end);
        }
        let more = [&bytes[..], &[0]].concat().into();
        prop_assert_eq!(Request::decode(&more), None);
    }

    #[test]
    fn replies_are_read_as_they_are_written(reply in reply()) {
        let bytes = reply.encode();
        prop_assert_eq!(Reply::decode(&bytes), Some(reply));
        for end in 0..bytes.len() {
            prop_assert_eq!(Reply::decode(&bytes.slice(..end)), None, "cut after {} bytes", end);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_understood(request in request(), places in any::<[(u16, u8); 3]>()) {
        let mut bytes = request.encode().to_vec();
        for (place, byte) in places {
            let place = usize::from(place) % bytes.len();
            bytes[place] = byte;
        }
        let bytes = Bytes::from(bytes);
        let (mut table, _) = founded();
        // Neither panics, and what is understood has one encoding.
        if let Some(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(), bytes.clone());
        }
        prop_assert!(Reply::decode(&table.answer(&bytes)).is_some());
        prop_assert_eq!(Reply::decode(&table.apply(&bytes)).map(|reply| reply.number), Some(2));
        let _ = Reply::decode(&bytes);
    }
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    let mut set = vec![VERSION, 1, 2, 0xff, 0xff];
    assert_eq!(Request::decode(&set.clone().into()), None);
    set.truncate(3);
    set.extend([4, 0]);
    assert_eq!(Request::decode(&set.into()), None, "1,024 places announced, none there");
    let mut list = vec![VERSION];
    list.extend([0; 16]);
    list.extend([8, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(Reply::decode(&list.into()), None);
}

#[test]
fn what_cannot_be_read_is_no_command_or_refused_before_it_is_one() {
    for bytes in [&[][..], &[2, 1, 9], &[VERSION], &[VERSION, 3, 9]] {
        assert_eq!(Request::kind(bytes), RequestKind::LocalQuery);
        assert_eq!(Request::decode(&Bytes::copy_from_slice(bytes)), None);
    }
    let cut = Bytes::from_static(&[VERSION, 0, 4]);
    assert_eq!((Request::kind(&cut), Request::decode(&cut)), (RequestKind::Command, None));
    let refused = founded().0.admit(&cut).and_then(|reply| Reply::decode(&reply)).unwrap();
    assert_eq!((refused.number, refused.result), (1, Err(Reason::Unreadable.into())), "it got no number");
}

#[test]
fn paths_of_one_set_have_a_bounded_number_of_names() {
    let (_, root) = founded();
    let lookup = |rows: usize, last: &str| {
        let long = at(root, &["x"; 256].join("/"));
        let places = (0..rows).map(|_| long.clone()).chain([at(root, last)]).collect();
        Request::Query(Query::Lookup { places }).encode()
    };
    assert!(Request::decode(&lookup(32, "")).is_some());
    assert_eq!(Request::decode(&lookup(32, "x")), None);
    let row = Replacement { place: at(root, &["x"; 256].join("/")), capability: root, expected: None };
    for (rows, is_read) in [(32, true), (33, false)] {
        let set = Command::ReplaceSet { rows: (0..rows).map(|_| row.clone()).collect() };
        assert_eq!(Request::decode(&Request::Command(set).encode()).is_some(), is_read);
    }
}

#[test]
fn columns_and_files_keep_their_bounds() {
    let (_, root) = founded();
    let create = |columns| {
        let (place, masks, secret) = (Place::of(root), None, Check::from_bits(1));
        Request::Command(Command::CreateDirectory { place, columns, masks, secret }).encode()
    };
    for good in [&["a"][..], &["a", "b", "c", "d"]] {
        assert!(Request::decode(&create(columns(good))).is_some());
    }
    for bad in [&[][..], &["a", "b", "c", "d", "e"], &["a", "b", "a"]] {
        assert_eq!(Request::decode(&create(columns(bad))), None, "{bad:?}");
    }
    let file = |bytes| {
        let (place, masks, secret) = (Place::of(root), None, Check::from_bits(1));
        let content = vec![0; bytes].into();
        Request::Command(Command::CreateFile { place, masks, secret, content }).encode()
    };
    assert!(Request::decode(&file(FILE_BYTES_MAX)).is_some());
    assert_eq!(Request::decode(&file(FILE_BYTES_MAX + 1)), None);
}
