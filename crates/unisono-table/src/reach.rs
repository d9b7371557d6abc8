//! Which objects no path from the root leads to. Their creator may still hold a capability; if not, they are lost.

use crate::capability::ObjectNumber;
use crate::table::{ROOT, Table};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the objects to which no path leads, by number. A row with a void capability leads nowhere.
pub(crate) fn unreachable(table: &Table) -> Vec<ObjectNumber> {
    let (mut reached, mut to_visit) = (BTreeSet::from([ROOT]), vec![ROOT]);
    while let Some(number) = to_visit.pop() {
        let directory = table.objects.get(&number).and_then(|object| object.directory());
        let rows = directory.into_iter().flat_map(|directory| directory.rows.values());
        for row in rows {
            let object = row.capability.object;
            if !reached.contains(&object) && table.object(&row.capability).is_ok() {
                reached.insert(object);
                to_visit.push(object);
            }
        }
    }
    table.objects.keys().filter(|number| !reached.contains(number)).copied().collect()
}
