//! Snapshots: what is restored is the same state, few parts change, and damaged parts are refused.

use super::*;
use ::bytes::Bytes;
use alloc::collections::BTreeSet;
use alloc::format;

/// Returns a table with this number of rows in two directories, some of them files.
fn filled(rows: u128) -> (Table, Capability) {
    let (mut table, root) = founded();
    let home = table.mkdir(root, "home", 1).unwrap();
    for turn in 0..rows {
        let directory = if turn % 2 == 0 { root } else { home };
        match turn % 10 {
            0 => drop(table.put(directory, &format!("f{turn}"), turn + 2, &format!("{turn}")).unwrap()),
            _ => {
                let place = at(directory, &format!("n{turn}"));
                let append = Command::Append { place, capability: home, masks: None };
                table.run_for_test(append).unwrap();
            }
        }
    }
    (table, root)
}

fn identities(parts: &[Bytes]) -> BTreeSet<Bytes> {
    parts.iter().cloned().collect()
}

#[test]
fn a_restored_table_is_the_same_and_goes_on_the_same() {
    let (mut first, root) = filled(300);
    first.execute(Command::DeleteRow { place: at(root, "missing") });
    let parts = first.snapshot();
    let mut second = Table::restore(&parts).unwrap();
    assert_eq!(second.snapshot(), parts);
    assert_eq!((second.number(), second.root(), second.info()), (first.number(), Some(root), first.info()));
    for table in [&mut first, &mut second] {
        table.put(root, "later", 7, "later").unwrap();
        table.run_for_test(Command::DeleteRow { place: at(root, "n2") }).unwrap();
        assert_eq!(table.names(root, "").unwrap().len(), 151);
    }
    assert_eq!(second.snapshot(), first.snapshot());
    let watch = Query::Changes { place: Place::of(root), from: 1 };
    assert_eq!(second.ask(&watch), first.ask(&watch));
}

#[test]
fn a_table_without_a_root_is_restored_too() {
    let parts = Table::default().snapshot();
    assert_eq!(Table::restore(&parts).unwrap().snapshot(), parts);
}

#[test]
fn a_prepared_snapshot_is_the_same_and_one_change_costs_one_part() {
    let (mut table, root) = filled(40_000);
    let parts = table.snapshot();
    let mut calls = 1;
    while !table.prepare_snapshot(1) {
        assert_eq!(table.snapshot(), parts, "after {calls} parts");
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
    assert_eq!(table.snapshot(), parts);
    for turn in [4, 20_002, 39_998] {
        table.run_for_test(Command::DeleteRow { place: at(root, &format!("n{turn}")) }).unwrap();
        assert!(!table.prepare_snapshot(0), "a part is to be encoded");
        assert!(table.prepare_snapshot(1), "and no other");
    }
    table.parts = Default::default();
    let anew = table.snapshot();
    assert!(table.prepare_snapshot(usize::MAX));
    assert_eq!(table.snapshot(), anew);
}

#[test]
fn one_change_changes_few_parts() {
    let (mut table, root) = filled(40_000);
    let before = table.snapshot();
    assert!(before.len() > 4_000 + 10, "a file is a part, and the rows are several");
    let sizes = before[1..].iter().map(Bytes::len).max();
    assert!(sizes.is_some_and(|largest| largest <= (1 << 20) + 512), "{sizes:?}");
    for path in ["a first row", "n1000 between others", "zzz"] {
        let before = identities(&table.snapshot());
        table.put(root, path, 1, "").unwrap();
        let after = identities(&table.snapshot());
        // The first part, the records of the row and of the file, the end of the history; the file itself is empty.
        let changed = after.difference(&before).count();
        assert!(changed <= 6, "{changed} parts changed with {path}");
        table.run_for_test(Command::DeleteFile { place: at(root, path) }).unwrap();
        let again = identities(&table.snapshot());
        assert!(again.difference(&before).count() <= 4, "what was deleted left traces");
    }
}

#[test]
fn a_deleted_file_is_in_no_snapshot() {
    let (mut table, root) = founded();
    table.put(root, "f", 1, "a temporary file").unwrap();
    let has_it = |table: &Table| table.snapshot().iter().any(|part| &part[..] == b"a temporary file");
    assert!(has_it(&table));
    table.run_for_test(Command::DeleteFile { place: at(root, "f") }).unwrap();
    assert!(!has_it(&table));
}

#[test]
fn files_are_not_copied_into_a_snapshot() {
    let (mut table, root) = founded();
    let file = table.put(root, "f", 1, "shared").unwrap();
    let kept = table.objects[&file.object].file().unwrap().as_ptr();
    assert!(table.snapshot().iter().any(|part| part.as_ptr() == kept));
}

#[test]
fn damaged_snapshots_are_refused() {
    let (table, _) = filled(50);
    let parts = table.snapshot();
    let refused = |parts: &[Bytes]| Table::restore(parts).is_err();
    assert!(refused(&[]));
    for missing in 0..parts.len() {
        let mut fewer = parts.clone();
        fewer.remove(missing);
        assert!(refused(&fewer), "without part {missing}");
    }
    let mut more = parts.clone();
    more.push(Bytes::from_static(b"more"));
    assert!(refused(&more));
    for cut in 0..3 {
        let mut shorter = parts.clone();
        shorter[cut] = shorter[cut].slice(..shorter[cut].len() - 1);
        assert!(refused(&shorter), "part {cut} cut short");
    }
    let mut later = parts[0].to_vec();
    later[5] += 1;
    let with_later: Vec<Bytes> = [later.into()].into_iter().chain(parts[1..].iter().cloned()).collect();
    assert!(Table::restore(&with_later).is_err_and(|error| error.0.contains("version")));
}

#[test]
fn no_byte_of_a_snapshot_makes_it_panic() {
    let (table, root) = filled(12);
    let parts = table.snapshot();
    for part in 0..parts.len() {
        for place in 0..parts[part].len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = parts.clone();
                let mut bytes = parts[part].to_vec();
                bytes[place] ^= flip;
                damaged[part] = bytes.into();
                // Restored or refused; what is restored can be used.
                if let Ok(mut table) = Table::restore(&damaged) {
                    let _ = table.put(root, "x", 1, "x");
                    let _ = table.names(root, "home");
                    table.snapshot();
                }
            }
        }
    }
}
