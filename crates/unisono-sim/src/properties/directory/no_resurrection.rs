//! No resurrection: a row that was deleted appears in no linearizable answer to a question that was asked later, unless it
//! was created again. This is the row *foo* of Kaashoek, Tanenbaum and Verstoep: a server that comes back with an old disk
//! must not bring it back. The checker knows no numbers and no model: only who asked what, and when.

use super::Map;
use super::at_end::Promise;
use super::history::{History, Replied};
use crate::record::Mode;
use unisono_core::Time;
use unisono_table::{Answer, Command, Name, ObjectNumber, Place, Query, Request};

/// The promise `no_resurrection`.
#[derive(Debug, Default)]
pub(super) struct NoResurrection;

/// A row: its directory, whatever capability opens it, and its name.
type Row = (ObjectNumber, Name);

/// What is known of a row.
#[derive(Debug, Default)]
struct Fate {
    /// When each deletion that succeeded began and ended.
    deleted: Vec<(Time, Time)>,
    /// When each command began that may have created it, and when it ended if it did.
    created: Vec<(Time, Option<Time>)>,
    /// When each question began and ended whose answer shows it.
    shown: Vec<(Time, Time)>,
}

/// Returns the row at a place, if it is one of the capability's own directory.
fn row(place: &Place) -> Option<Row> {
    match place.path.names() {
        [name] => Some((place.capability.object, name.clone())),
        _ => None,
    }
}

fn shown(replied: &Replied<'_>) -> Vec<Row> {
    match (replied.query(), &replied.reply.result) {
        (Some(Query::Lookup { places }), Ok(Answer::Looked(looked))) => {
            let found = places.iter().zip(looked).filter(|(_, looked)| looked.is_ok());
            found.filter_map(|(place, _)| row(place)).collect()
        }
        (Some(Query::List { place, .. }), Ok(Answer::Rows { rows, .. })) if place.path.is_empty() => {
            rows.iter().map(|row| (place.capability.object, row.name.clone())).collect()
        }
        _ => Vec::new(),
    }
}

impl NoResurrection {
    fn fates(history: &History) -> Map<Row, Fate> {
        let mut fates = Map::<Row, Fate>::new();
        let mut longer_paths = Vec::new();
        for operation in history.operations().iter().filter(|operation| !operation.happened_not) {
            let Some(Request::Command(command)) = Request::decode(&operation.request) else { continue };
            let place = match &command {
                Command::CreateDirectory { place, .. }
                | Command::CreateFile { place, .. }
                | Command::Append { place, .. } => place,
                _ => continue,
            };
            let created = (operation.begin, operation.end.as_ref().map(|(end, _)| *end));
            match (row(place), place.path.names().last()) {
                (Some(row), _) => fates.entry(row).or_default().created.push(created),
                // Where a longer path leads is not known here: to a directory of any number.
                (None, Some(name)) => longer_paths.push((name.clone(), created)),
                (None, None) => {}
            }
        }
        for replied in history.replied() {
            let (begin, end) = (replied.operation.begin, replied.end);
            if let (Some(Request::Command(command)), Ok(Answer::Done)) =
                (&replied.request, &replied.reply.result)
                && let Command::DeleteRow { place }
                | Command::DeleteDirectory { place }
                | Command::DeleteFile { place } = command
                && let Some(row) = row(place)
            {
                fates.entry(row).or_default().deleted.push((begin, end));
            }
            if replied.operation.mode != Mode::LocalRead {
                let shown = shown(&replied);
                shown.into_iter().for_each(|row| fates.entry(row).or_default().shown.push((begin, end)));
            }
        }
        for ((_, name), fate) in &mut fates {
            fate.created
                .extend(longer_paths.iter().filter(|(last, _)| last == name).map(|(_, created)| *created));
        }
        fates
    }
}

impl Fate {
    /// Returns a question that shows the row although it had been deleted and not been created since.
    fn fault(&self, checked: &mut u64) -> Option<Time> {
        for (asked, answered) in &self.shown {
            for (from, _) in self.deleted.iter().filter(|(_, until)| until < asked) {
                *checked += 1;
                // A creation that overlaps the deletion or the question may lie between them.
                let is_between = |(begin, end): &(Time, Option<Time>)| {
                    begin <= answered && end.is_none_or(|end| end >= *from)
                };
                if !self.created.iter().any(is_between) {
                    return Some(*asked);
                }
            }
        }
        None
    }
}

impl Promise for NoResurrection {
    const NAME: &'static str = "no_resurrection";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        // What a service lost that began anew may come back, and a client may be the only one that knows.
        if history.began_anew() {
            return Ok(());
        }
        for (row, fate) in NoResurrection::fates(history) {
            *checked += fate.deleted.len() as u64;
            if let Some(asked) = fate.fault(checked) {
                return Err(format!("{row:?} was deleted, and a question of {asked:?} shows it: {fate:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::{Fixture, lookup, make};
    use super::*;
    use unisono_table::Looked;

    /// *foo* is made and deleted.
    fn deleted() -> Fixture {
        let mut fixture = Fixture::founded();
        let foo = fixture.place("foo");
        fixture.command(make(&foo));
        fixture.command(Command::DeleteDirectory { place: foo });
        fixture
    }

    fn found(fixture: &Fixture) -> Answer {
        Answer::Looked(vec![Ok(Looked { capability: fixture.root(), is_directory: true })])
    }

    #[test]
    fn accepts_a_row_that_is_gone_and_one_that_is_made_again() {
        let mut fixture = deleted();
        let foo = fixture.place("foo");
        _ = fixture.query(lookup(&foo));
        fixture.command(make(&foo));
        _ = fixture.query(lookup(&foo));
        fixture.good(AtEnd::<NoResurrection>::default());
    }

    #[test]
    fn accepts_a_row_whose_making_may_have_been_late() {
        let mut fixture = Fixture::founded();
        let foo = fixture.place("foo");
        fixture.command(make(&foo));
        // Its caller never learns what became of it.
        fixture.begin(make(&foo));
        fixture.command(Command::DeleteDirectory { place: foo.clone() });
        let found = found(&fixture);
        fixture.query_with(lookup(&foo), Ok(found));
        fixture.good(AtEnd::<NoResurrection>::default());
    }

    #[test]
    fn rejects_a_row_that_comes_back() {
        let mut fixture = deleted();
        let (foo, found) = (fixture.place("foo"), found(&fixture));
        fixture.query_with(lookup(&foo), Ok(found));
        fixture.bad(AtEnd::<NoResurrection>::default());
    }
}
