//! Sets are whole: a replacement of several rows changes all of them or none, and only if each is what was expected; a
//! lookup of several rows shows them as they were at one instant, that of its number.

use super::at_end::Promise;
use super::history::{History, Timeline};
use unisono_table::{Answer, Command, Event, Query, Request};

/// The promise `sets_are_whole`.
#[derive(Debug, Default)]
pub(super) struct SetsAreWhole;

impl SetsAreWhole {
    /// Checks that the changes of a directory have all rows of a replacement or none.
    fn check_changes(
        timeline: &Timeline,
        directory: u64,
        answer: &Answer,
        checked: &mut u64,
    ) -> Option<String> {
        let Answer::Changes { changes, .. } = answer else { return None };
        let mut replaced = changes.iter().filter(|change| change.event == Event::Replace);
        replaced.find_map(|change| {
            *checked += 1;
            let number = change.number;
            let got = changes.iter().filter(|change| change.number == number).count();
            let right = timeline.changes_of(directory, number, number).len();
            (got != right).then(|| format!("number {number} replaced {right} rows, and {got} are shown"))
        })
    }
}

impl Promise for SetsAreWhole {
    const NAME: &'static str = "sets_are_whole";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        for (replied, timeline) in history.judged(timelines) {
            let fault = match (&replied.request, replied.query(), &replied.reply.result) {
                (Some(Request::Command(Command::ReplaceSet { .. })), _, got) => {
                    *checked += 1;
                    let number = timeline.number_of(replied.operation.name);
                    let right = number.and_then(|number| timeline.command(number));
                    right
                        .filter(|right| right.right.result != *got)
                        .map(|right| format!("{:?} is right", right.right))
                }
                (_, Some(query @ Query::Lookup { places }), got) if places.len() > 1 => {
                    *checked += 1;
                    let right = timeline.state(replied.reply.number).map(|state| state.ask(query));
                    right
                        .filter(|right| right != got)
                        .map(|right| format!("at its number {right:?} is right"))
                }
                (_, Some(Query::Changes { place, .. }), Ok(answer)) => {
                    let state = timeline.state(replied.reply.number);
                    let directory = state.and_then(|state| state.watched(place).ok());
                    directory
                        .and_then(|number| SetsAreWhole::check_changes(timeline, number, answer, checked))
                }
                _ => None,
            };
            if let Some(fault) = fault {
                return Err(format!("{:?} got {:?}: {fault}", replied.request, replied.reply));
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
    use unisono_table::{Reason, Refusal, Replacement};

    /// Two rows, and a replacement of both.
    fn two() -> (Fixture, Command, Query) {
        let mut fixture = Fixture::founded();
        let (a, b) = (fixture.place("a"), fixture.place("b"));
        [&a, &b].into_iter().for_each(|place| _ = fixture.command(make(place)));
        let capability = fixture.root();
        let row =
            |place: &unisono_table::Place| Replacement { place: place.clone(), capability, expected: None };
        let rows = vec![row(&a), row(&b)];
        (fixture, Command::ReplaceSet { rows }, Query::Lookup { places: vec![a, b] })
    }

    #[test]
    fn accepts_all_rows_or_none() {
        let (mut fixture, replace, look) = two();
        _ = fixture.query(look.clone());
        fixture.command(replace);
        _ = fixture.query(look);
        fixture.good(AtEnd::<SetsAreWhole>::default());
    }

    #[test]
    fn rejects_half_a_replacement_or_half_a_lookup() {
        let (mut fixture, replace, look) = two();
        let Ok(Answer::Looked(before)) = fixture.query(look.clone()) else { panic!() };
        fixture.command(replace);
        let Ok(Answer::Looked(after)) = fixture.query(look.clone()) else { panic!() };
        fixture.query_with(look, Ok(Answer::Looked(vec![before[0], after[1]])));
        fixture.bad(AtEnd::<SetsAreWhole>::default());
    }

    #[test]
    fn rejects_a_wrong_result_and_changes_of_some_rows() {
        let (mut fixture, replace, _) = two();
        let id = fixture.begin(replace.clone());
        let mut reply = fixture.apply(id);
        reply.result = Err(Refusal { reason: Reason::Differs, entry: Some(1) });
        fixture.end(id, &reply);
        fixture.bad(AtEnd::<SetsAreWhole>::default());

        let (mut fixture, replace, _) = two();
        let number = fixture.command(replace).number;
        let place = lookup_root(&fixture);
        let Ok(Answer::Changes { mut changes, next }) =
            fixture.query(Query::Changes { place: place.clone(), from: 1 })
        else {
            panic!()
        };
        changes.retain(|change| change.number != number || change.name.as_str() != "b");
        fixture.query_with(Query::Changes { place, from: 1 }, Ok(Answer::Changes { changes, next }));
        fixture.bad(AtEnd::<SetsAreWhole>::default());
    }

    fn lookup_root(fixture: &Fixture) -> unisono_table::Place {
        let Query::Lookup { places } = lookup(&unisono_table::Place::of(fixture.root())) else { panic!() };
        places[0].clone()
    }
}
