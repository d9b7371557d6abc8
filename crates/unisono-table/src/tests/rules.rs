//! Each rule by itself.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

fn forged(capability: Capability) -> Capability {
    Capability { check: Check::from_bits(capability.check.to_bits() ^ 1), ..capability }
}

#[test]
fn the_first_root_counts() {
    let (mut table, root) = founded();
    let again = Command::Found { port: Port(9), secret: Check::from_bits(9), service: Default::default() };
    assert_eq!(table.run_for_test(again), Err(Reason::Founded));
    assert_eq!(table.root(), Some(root));
    assert_eq!(table.number(), 2, "a refused command has a number");
}

#[test]
fn nothing_is_there_before_the_root() {
    let table = Table::default();
    assert_eq!(table.root(), None);
    let guess = Capability::of_owner(Port(0), ROOT, Check::from_bits(0));
    assert_eq!(table.look(guess, ""), Err(Reason::NotFound));
}

#[test]
fn numbers_count_commands_and_changes_count_effects() {
    let (mut table, root) = founded();
    table.mkdir(root, "a", 1).unwrap();
    assert_eq!(table.mkdir(root, "a", 2), Err(Reason::Exists));
    let unreadable = Reply::decode(&table.apply(&b"\x01\x00\xffx"[..].into())).unwrap();
    assert_eq!((unreadable.number, unreadable.changes), (4, 2));
    assert_eq!(unreadable.result, Err(Reason::Unreadable.into()));
    let nothing = table.execute(Command::DeleteUnreachable { owner: root, created_through: u64::MAX });
    assert_eq!((nothing.number, nothing.changes), (5, 2));
    let empty = table.execute(Command::ReplaceSet { rows: vec![] });
    assert_eq!((empty.number, empty.changes), (6, 2));
}

#[test]
fn a_bad_check_and_a_missing_object_are_one_error() {
    let (mut table, root) = founded();
    let directory = table.mkdir(root, "a", 1).unwrap();
    let file = table.put(root, "f", 2, "text").unwrap();
    let missing = Capability { object: ObjectNumber(99), ..directory };
    let foreign = Capability { port: Port(7), ..directory };
    let more = Capability { rights: Rights(0x44), ..directory.restrict(Rights(0x04)).unwrap() };
    for bad in [forged(directory), forged(file), missing, foreign, more] {
        assert_eq!(table.names(bad, ""), Err(Reason::NotFound));
        assert_eq!(table.content(bad), Err(Reason::NotFound));
        assert_eq!(table.look(bad, ""), Err(Reason::NotFound));
        assert_eq!(table.look(bad, "x"), Err(Reason::NotFound));
        assert_eq!(table.mkdir(bad, "x", 3), Err(Reason::NotFound));
        assert_eq!(table.require_owner(&bad), Err(Reason::NotFound));
        for command in [
            Command::DeleteDirectory { place: Place::of(bad) },
            Command::DeleteFile { place: Place::of(bad) },
            Command::Revoke { place: Place::of(bad), secret: Check::from_bits(4) },
            Command::DeleteRow { place: at(bad, "x") },
        ] {
            assert_eq!(table.run_for_test(command), Err(Reason::NotFound));
        }
    }
    assert_eq!(table.names(root, "").unwrap().len(), 2, "nothing changed");
}

#[test]
fn a_column_shows_what_its_mask_lets_through() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "text").unwrap();
    let chmod = Command::Chmod { place: at(root, "f"), masks: masks(&[0xff, 0x0a, 0x02]) };
    table.run_for_test(chmod).unwrap();
    for (column, shown) in [(0x01, 0xff), (0x02, 0x0a), (0x04, 0x02), (0x06, 0x0a), (0x05, 0xff)] {
        let opened = root.restrict(Rights(column)).unwrap();
        let want = file.restrict(Rights(shown)).unwrap();
        assert_eq!(table.look(opened, "f"), Ok(want), "columns {column:02x}");
    }
    // Without a column, or with one that does not exist, nothing is shown.
    for none in [0x00, 0x08, 0xc0, 0x48] {
        let opened = root.restrict(Rights(none)).unwrap();
        assert_eq!(table.look(opened, "f"), Err(Reason::Denied), "rights {none:02x}");
        assert_eq!(table.names(opened, ""), Err(Reason::Denied));
    }
    // A mask that lets nothing through denies the row, and names it all the same.
    let chmod = Command::Chmod { place: at(root, "f"), masks: masks(&[0xff, 0x00, 0x02]) };
    table.run_for_test(chmod).unwrap();
    let group = root.restrict(Rights(0x02)).unwrap();
    assert_eq!(table.look(group, "f"), Err(Reason::Denied));
    assert_eq!(table.names(group, "").unwrap().len(), 1);
}

#[test]
fn chmod_gives_no_column_what_the_caller_does_not_see() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "x").unwrap();
    let group = root.restrict(Rights(0x42)).unwrap();
    let mut chmod = |at_directory, given: &[u8]| {
        table.run_for_test(Command::Chmod { place: at(at_directory, "f"), masks: masks(given) })
    };
    // By default ff,02,02: the group sees 02, and may pass that on, but not open more for itself or for others.
    for more in [[0xff, 0xff, 0x02], [0xff, 0x03, 0x02], [0xff, 0x02, 0x0a]] {
        assert_eq!(chmod(group, &more), Err(Reason::Denied), "{more:x?}");
    }
    assert_eq!(chmod(group, &[0xff, 0x02, 0x00]), Ok(None));
    assert_eq!(chmod(group, &[0xff, 0x02, 0x02]), Ok(None));
    // Who sees everything gives everything, as long as a column lets it through.
    assert_eq!(chmod(root, &[0x0a, 0xff, 0x02]), Ok(None));
    assert_eq!(chmod(group, &[0xff, 0xff, 0xff]), Ok(None));
    assert_eq!(chmod(root, &[0x02, 0x02, 0x02]), Ok(None));
    assert_eq!(chmod(root, &[0xff, 0x02, 0x02]), Err(Reason::Denied));
    assert_eq!(table.look(root, "f"), Ok(file.restrict(Rights(0x02)).unwrap()));
}

#[test]
fn default_masks_depend_on_the_kind_of_object() {
    let (mut table, root) = founded();
    let four = columns(&["a", "b", "c", "d"]);
    let secret = Check::from_bits(1);
    let wide = Command::CreateDirectory { place: at(root, "wide"), columns: four, masks: None, secret };
    let wide = table.run_for_test(wide).unwrap().unwrap();
    let inner = table.mkdir(wide, "inner", 2).unwrap();
    let file = table.put(wide, "file", 3, "").unwrap();
    let elsewhere = Capability { port: Port(7), ..file };
    for (path, capability) in
        [("row", inner), ("weak", inner.restrict(Rights(0x04)).unwrap()), ("far", elsewhere)]
    {
        let append = Command::Append { place: at(wide, path), capability, masks: None };
        table.run_for_test(append).unwrap();
    }
    let Ok(Answer::Rows { rows, .. }) =
        table.ask(&Query::List { place: Place::of(wide), after: None }).result
    else {
        panic!()
    };
    let found: Vec<(&str, Vec<u8>)> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.masks.as_slice().iter().map(|mask| mask.0).collect()))
        .collect();
    let (directory, other) = (vec![0xff, 0x02, 0x04, 0x08], vec![0xff, 0x02, 0x02, 0x02]);
    let want = [
        ("far", other.clone()),
        ("file", other),
        ("inner", directory.clone()),
        ("row", directory.clone()),
        ("weak", directory),
    ];
    assert_eq!(found, want);
}

#[test]
fn a_path_narrows_from_directory_to_directory() {
    let (mut table, root) = founded();
    table.mkdir(root, "home", 1).unwrap();
    table.mkdir(root, "home/ann", 2).unwrap();
    let file = table.put(root, "home/ann/letter", 3, "dear").unwrap();
    assert_eq!(table.look(root, "home/ann/letter"), Ok(file));
    let other = root.restrict(Rights(0x04)).unwrap();
    assert_eq!(table.look(other, "home/ann").unwrap().rights, Rights(0x04));
    assert_eq!(table.look(other, "home/ann/letter"), Ok(file.restrict(Rights(0x02)).unwrap()));
    // The column `group` of home gives only that of ann, so neither rights to modify nor other columns appear.
    let group = root.restrict(Rights(0x42)).unwrap();
    assert_eq!(table.mkdir(group, "home/bob", 4), Err(Reason::Denied));
    assert_eq!(table.mkdir(group, "bob", 5).map(|_| ()), Ok(()));
    assert_eq!(table.look(root, "home/nobody/letter"), Err(Reason::NotFound));
    assert_eq!(table.look(root, "home/ann/letter/x"), Err(Reason::NotADirectory));
    let elsewhere = Capability { port: Port(7), ..file };
    table
        .run_for_test(Command::Append { place: at(root, "far"), capability: elsewhere, masks: None })
        .unwrap();
    assert_eq!(table.look(root, "far"), Ok(elsewhere));
    assert_eq!(table.look(root, "far/x"), Err(Reason::NotADirectory));
}

#[test]
fn a_cycle_of_directories_is_walked_as_far_as_the_path_says() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    table.run_for_test(Command::Append { place: at(home, "up"), capability: root, masks: None }).unwrap();
    assert_eq!(table.look(root, "home/up/home/up/home"), Ok(home));
    assert_eq!(table.unreachable_for_test(root), vec![0u64; 0]);
    assert_eq!(table.run_for_test(Command::DeleteRow { place: at(root, "home") }), Ok(None));
    assert_eq!(table.unreachable_for_test(root), vec![home.object.0], "the cycle is not reached from itself");
}

#[test]
fn changing_rows_takes_the_right_to_modify() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "text").unwrap();
    let reader = root.restrict(Rights(0x8f)).unwrap();
    let replacement = Replacement { place: at(reader, "f"), capability: file, expected: None };
    for command in [
        Command::Append { place: at(reader, "g"), capability: file, masks: None },
        Command::Chmod { place: at(reader, "f"), masks: masks(&[1, 2, 3]) },
        Command::DeleteRow { place: at(reader, "f") },
        Command::DeleteFile { place: at(reader, "f") },
        Command::ReplaceSet { rows: vec![replacement] },
        Command::Revoke { place: at(reader, "f"), secret: Check::from_bits(2) },
    ] {
        assert_eq!(table.run_for_test(command), Err(Reason::Denied));
    }
    assert_eq!(table.mkdir(reader, "d", 3), Err(Reason::Denied));
    assert_eq!(table.put(reader, "g", 3, ""), Err(Reason::Denied));
    assert_eq!(table.look(root, "f"), Ok(file), "nothing changed");
    // A nameless object takes any open column.
    assert!(table.put(reader, "", 4, "").is_ok());
    assert_eq!(table.put(root.restrict(Rights(0xc0)).unwrap(), "", 5, ""), Err(Reason::Denied));
}

#[test]
fn a_directory_is_deleted_only_if_it_is_empty_and_the_capability_says_so() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    table.put(root, "home/f", 2, "text").unwrap();
    let delete = |capability, path| Command::DeleteDirectory { place: at(capability, path) };
    assert_eq!(table.run_for_test(delete(root, "home")), Err(Reason::NotEmpty));
    table.run_for_test(Command::DeleteFile { place: at(root, "home/f") }).unwrap();
    assert_eq!(table.run_for_test(delete(home.restrict(Rights(0x4f)).unwrap(), "")), Err(Reason::Denied));
    assert_eq!(table.run_for_test(delete(root, "home/f")), Err(Reason::NotFound));
    assert_eq!(table.run_for_test(delete(root, "home")), Ok(None));
    assert_eq!(table.names(root, "").unwrap(), [], "its row went with it");
    assert_eq!(table.names(home, ""), Err(Reason::NotFound));
    assert_eq!(table.run_for_test(delete(root, "")), Err(Reason::Root));
    assert!(table.mkdir(root, "home", 3).unwrap().object > home.object, "no number is used twice");
}

#[test]
fn a_deleted_row_leaves_its_object() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "text").unwrap();
    table.run_for_test(Command::DeleteRow { place: at(root, "f") }).unwrap();
    assert_eq!(table.look(root, "f"), Err(Reason::NotFound));
    assert_eq!(table.content(file).unwrap(), b"text");
    assert_eq!(table.unreachable_for_test(root), vec![file.object.0]);
}

#[test]
fn files_are_read_and_deleted_with_their_rights() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "0123456789").unwrap();
    let read = |rights, offset, length| {
        let place = Place::of(file.restrict(Rights(rights)).unwrap());
        match table.ask(&Query::Read { place, offset, length }).result {
            Ok(Answer::Content { size: 10, bytes }) => Ok(bytes.to_vec()),
            Err(refusal) => Err(refusal.reason),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(0x02, 3, 4).unwrap(), b"3456");
    assert_eq!(read(0x02, 8, 4).unwrap(), b"89");
    assert_eq!(read(0x02, u64::MAX, u32::MAX).unwrap(), b"");
    assert_eq!(read(0xfd, 0, 1), Err(Reason::Denied));
    let size =
        |rights| table.ask(&Query::Size { place: Place::of(file.restrict(Rights(rights)).unwrap()) }).result;
    assert_eq!(size(0x02), Ok(Answer::Size(10)));
    assert_eq!(size(0x08), Err(Reason::Denied.into()));
    assert_eq!(table.names(file, ""), Err(Reason::NotADirectory));
    assert_eq!(table.ask(&Query::Size { place: Place::of(root) }).result, Err(Reason::NotAFile.into()));
    let delete = |rights| Command::DeleteFile { place: Place::of(file.restrict(Rights(rights)).unwrap()) };
    assert_eq!(table.run_for_test(delete(0xf7)), Err(Reason::Denied));
    assert_eq!(table.run_for_test(Command::DeleteFile { place: Place::of(root) }), Err(Reason::NotAFile));
    assert_eq!(table.run_for_test(delete(0x08)), Ok(None));
    assert_eq!(table.content(file), Err(Reason::NotFound));
}

#[test]
fn a_set_is_replaced_as_a_whole_or_not_at_all() {
    let (mut table, root) = founded();
    let (home, ann) = (table.mkdir(root, "home", 1).unwrap(), table.mkdir(root, "ann", 2).unwrap());
    for path in ["a", "home/b"] {
        table.run_for_test(Command::Append { place: at(root, path), capability: home, masks: None }).unwrap();
    }
    let row = |path, expected| Replacement { place: at(root, path), capability: ann, expected };
    let mut refuse = |rows: Vec<Replacement>, reason, entry| {
        let before = table.snapshot();
        let reply = table.execute(Command::ReplaceSet { rows });
        assert_eq!(reply.result, Err(Refusal { reason, entry: Some(entry) }));
        assert!(before[1..] == table.snapshot()[1..], "a refused command changed something");
    };
    refuse(vec![row("a", Some(home)), row("home/b", Some(ann))], Reason::Differs, 1);
    refuse(vec![row("a", None), row("missing", None)], Reason::NotFound, 1);
    refuse(vec![row("a", None), row("home/b", None), row("a", None)], Reason::Twice, 2);
    let denied = Replacement { place: at(root.restrict(Rights(0x0f)).unwrap(), "a"), ..row("a", None) };
    refuse(vec![row("home/b", None), denied], Reason::Denied, 1);
    let all = Command::ReplaceSet { rows: vec![row("a", Some(home)), row("home/b", None)] };
    assert_eq!(table.run_for_test(all), Ok(None));
    assert_eq!((table.look(root, "a"), table.look(root, "home/b")), (Ok(ann), Ok(ann)));
}

#[test]
fn what_is_expected_is_what_a_lookup_returns() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "one").unwrap();
    let fresh = table.put(root, "", 2, "two").unwrap();
    let group = root.restrict(Rights(0x42)).unwrap();
    let seen = table.look(group, "f").unwrap();
    let replace = |expected| {
        let row = Replacement { place: at(group, "f"), capability: fresh, expected: Some(expected) };
        Command::ReplaceSet { rows: vec![row] }
    };
    assert_eq!(table.run_for_test(replace(file)), Err(Reason::Differs));
    assert_eq!(table.run_for_test(replace(seen)), Ok(None));
}

#[test]
fn a_revoked_object_has_no_old_capability() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    let weak = home.restrict(Rights(0x04)).unwrap();
    table.run_for_test(Command::Append { place: at(root, "also"), capability: weak, masks: None }).unwrap();
    let revoke = |place| Command::Revoke { place, secret: Check::from_bits(2) };
    assert_eq!(
        table.run_for_test(revoke(Place::of(home.restrict(Rights(0xfe)).unwrap()))),
        Err(Reason::Denied)
    );
    let fresh = table.run_for_test(revoke(at(root, "home"))).unwrap().unwrap();
    assert_ne!(fresh, home);
    for void in [home, weak] {
        assert_eq!(table.names(void, ""), Err(Reason::NotFound));
        let restrict = Query::Restrict { place: Place::of(void), rights: Rights::NONE };
        assert_eq!(table.ask(&restrict).result, Err(Reason::NotFound.into()));
    }
    assert_eq!(table.look(root, "home"), Ok(fresh), "the row that led to it has the new one");
    assert_eq!(table.names(root, "also"), Err(Reason::NotFound), "other rows have the old one");
    // A row with a void capability must not make a good one of it, whatever its mask.
    let chmod = Command::Chmod { place: at(root, "also"), masks: masks(&[0x04, 0x00, 0x04]) };
    table.run_for_test(chmod).unwrap();
    assert_eq!(table.look(root, "also"), Ok(weak), "as it was entered");
    let mask = Command::Chmod { place: at(root, "also"), masks: masks(&[0xfb, 0x00, 0x04]) };
    assert_eq!(table.run_for_test(mask), Err(Reason::Denied), "nobody sees these rights through the row");
    let both = table.run_for_test(Command::Append {
        place: at(root, "both"),
        capability: home.restrict(Rights(0x06)).unwrap(),
        masks: Some(masks(&[0x04, 0x04, 0x04])),
    });
    assert_eq!(both, Ok(None));
    assert_eq!(table.look(root, "both"), Err(Reason::NotFound), "a void capability that would be restricted");
}

#[test]
fn the_service_restricts_for_those_who_cannot() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    let some = home.restrict(Rights(0x46)).unwrap();
    let restrict = |capability, rights| match table
        .ask(&Query::Restrict { place: Place::of(capability), rights: Rights(rights) })
        .result
    {
        Ok(Answer::Capability(capability)) => capability,
        other => panic!("{other:?}"),
    };
    assert_eq!(restrict(some, 0x02), home.restrict(Rights(0x02)).unwrap());
    assert_eq!(restrict(some, 0xff), some, "rights only become fewer");
    assert_eq!(restrict(home, 0xff), home);
}

#[test]
fn rows_and_masks_fit_the_columns() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "").unwrap();
    for count in [1, 2, 4] {
        let wrong = masks(&[0xff; 4][..count]);
        let reason = Reason::Masks { columns: 3, masks: count as u8 };
        let append = Command::Append { place: at(root, "g"), capability: file, masks: Some(wrong) };
        assert_eq!(table.run_for_test(append), Err(reason));
        assert_eq!(table.run_for_test(Command::Chmod { place: at(root, "f"), masks: wrong }), Err(reason));
    }
    let no_name = Command::Append { place: Place::of(root), capability: file, masks: None };
    assert_eq!(table.run_for_test(no_name), Err(Reason::NoName));
}

#[test]
fn a_full_service_refuses_and_says_what_it_is_full_of() {
    let limits = Limits { directories: 3, rows: 4, files: 2, file_bytes: 10, ..Limits::default() };
    let (mut table, root) = founded_with(limits);
    table.mkdir(root, "a", 1).unwrap();
    table.mkdir(root, "b", 2).unwrap();
    let full = |bound, limit| Err(Reason::Full { bound, limit });
    assert_eq!(table.mkdir(root, "c", 3), full(Bound::Directories, 3));
    assert_eq!(table.put(root, "f", 4, "0123456789x"), full(Bound::FileBytes, 10));
    table.put(root, "f", 5, "012345").unwrap();
    table.put(root, "g", 6, "6789").unwrap();
    assert_eq!(table.put(root, "", 7, ""), full(Bound::Files, 2));
    let append = Command::Append { place: at(root, "r"), capability: root, masks: None };
    assert_eq!(table.run_for_test(append.clone()), full(Bound::Rows, 4).map(Some));
    // A stranger learns nothing of that.
    assert_eq!(table.mkdir(forged(root), "c", 8), Err(Reason::NotFound));
    table.run_for_test(Command::DeleteFile { place: at(root, "g") }).unwrap();
    assert_eq!(table.run_for_test(append), Ok(None));
    assert_eq!(table.put(root, "", 9, "6789").map(drop), Ok(()));
}

#[test]
fn only_the_owner_asks_about_all_objects() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    let lost = table.put(root, "", 2, "lost").unwrap();
    let kept = table.put(root, "home/kept", 3, "kept").unwrap();
    for stranger in [home, root.restrict(Rights(0xfe)).unwrap()] {
        let (owner, after) = (stranger, ObjectNumber(0));
        for query in [Query::Files { owner, after }, Query::Unreachable { owner, after }] {
            assert_eq!(table.ask(&query).result, Err(Reason::Denied.into()));
        }
        let delete = Command::DeleteUnreachable { owner, created_through: u64::MAX };
        assert_eq!(table.run_for_test(delete), Err(Reason::Denied));
    }
    let Ok(Answer::Objects { objects, more: false }) =
        table.ask(&Query::Files { owner: root, after: ObjectNumber(0) }).result
    else {
        panic!()
    };
    let want = [(lost.object, 3, Some(4)), (kept.object, 4, Some(4))];
    let found: Vec<_> = objects.iter().map(|listed| (listed.object, listed.created, listed.size)).collect();
    assert_eq!(found, want);
    // What was created after the owner looked stays.
    let later = table.mkdir(root, "", 4).unwrap();
    let number = table.number() - 1;
    let reply = table.execute(Command::DeleteUnreachable { owner: root, created_through: number });
    assert_eq!(reply.result, Ok(Answer::Deleted { directories: 0, files: 1 }));
    assert_eq!(table.content(lost), Err(Reason::NotFound));
    assert!(table.content(kept).is_ok() && table.names(later, "").is_ok());
    let reply = table.execute(Command::DeleteUnreachable { owner: root, created_through: u64::MAX });
    assert_eq!(reply.result, Ok(Answer::Deleted { directories: 1, files: 0 }));
}

#[test]
fn a_watch_sees_every_change_of_its_directory() {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    let file = table.put(home, "a", 2, "x").unwrap();
    table.put(root, "elsewhere", 3, "x").unwrap();
    assert_eq!(table.put(home, "a", 4, "x"), Err(Reason::Exists));
    table.run_for_test(Command::Chmod { place: at(home, "a"), masks: masks(&[1, 2, 3]) }).unwrap();
    let row = Replacement { place: at(home, "a"), capability: file, expected: None };
    table.run_for_test(Command::ReplaceSet { rows: vec![row] }).unwrap();
    table.run_for_test(Command::DeleteRow { place: at(home, "a") }).unwrap();
    let watch = |from| table.ask(&Query::Changes { place: Place::of(home), from }).result;
    let seen = |from| -> Vec<(u64, Event, String)> {
        match watch(from) {
            Ok(Answer::Changes { changes, next: 9 }) => {
                changes.iter().map(|change| (change.number, change.event, change.name.to_string())).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let a = || "a".to_string();
    let all: Vec<_> = vec![
        (3, Event::Append, a()),
        (6, Event::Chmod, a()),
        (7, Event::Replace, a()),
        (8, Event::Delete, a()),
    ];
    assert_eq!(seen(0), all);
    assert_eq!(seen(3), all);
    assert_eq!(seen(4), all[1..]);
    assert_eq!(seen(9), []);
    assert_eq!(watch(10), Err(Reason::Future { number: 8 }.into()));
    let closed = Query::Changes { place: Place::of(home.restrict(Rights(0xc0)).unwrap()), from: 1 };
    assert_eq!(table.ask(&closed).result, Err(Reason::Denied.into()));
}

#[test]
fn a_watch_learns_where_the_history_begins() {
    let (mut table, root) = founded_with(Limits { history_bytes: 4096, ..Limits::default() });
    for turn in 0..200 {
        table.put(root, &format!("f{turn}"), turn + 1, "").unwrap();
    }
    let kept_from = table.info().kept_from;
    assert!(kept_from > 1);
    let watch = |from| table.ask(&Query::Changes { place: Place::of(root), from }).result;
    assert_eq!(watch(kept_from - 1), Err(Reason::NoLongerKept { kept_from }.into()));
    let Ok(Answer::Changes { changes, .. }) = watch(kept_from) else { panic!() };
    let numbers: Vec<u64> = changes.iter().map(|change| change.number).collect();
    assert_eq!(numbers, (kept_from..=table.number()).collect::<Vec<_>>());
}

#[test]
fn long_lists_come_in_pages_by_name() {
    let (mut table, root) = founded();
    for turn in 0..10_000u128 {
        let name = format!("{:0>200}", (turn * 7919) % 10_000);
        table.put(root, &name, turn + 1, "").unwrap();
    }
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let Ok(Answer::Rows { rows, more, .. }) =
            table.ask(&Query::List { place: Place::of(root), after: after.clone() }).result
        else {
            panic!()
        };
        names.extend(rows.into_iter().map(|row| row.name));
        (after, pages) = (names.last().cloned(), pages + 1);
        if !more {
            break;
        }
    }
    assert!(pages > 1 && names.len() == 10_000 && names.is_sorted());
}
