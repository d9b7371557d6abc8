//! Protection: an operation succeeds exactly if its capability allows it in the state at its number. So nothing succeeds by a
//! capability whose object was revoked or deleted, or by rights that a change of masks took away, and a lookup shows no more
//! rights than the columns let through by which the directory was opened.

use super::at_end::Promise;
use super::history::{History, Replied, Timeline, refusal_of};
use super::model::command_in;
use unisono_table::{Answer, Reason, Refusal, Rights};

/// The promise `protection`.
#[derive(Debug, Default)]
pub(super) struct Protection;

/// What an answer says of rights: why a capability does not do, or which rights are shown.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Refused(Reason),
    Shown(Rights),
    Allowed,
}

fn verdicts(result: &Result<Answer, Refusal>) -> Vec<Verdict> {
    if let Some(reason) = refusal_of(result) {
        return vec![Verdict::Refused(reason)];
    }
    let shown = |rights: Result<Rights, Reason>| match rights {
        Ok(rights) => Verdict::Shown(rights),
        Err(reason) => Verdict::Refused(reason),
    };
    match result {
        Ok(Answer::Looked(looked)) => {
            looked.iter().map(|looked| shown(looked.map(|looked| looked.capability.rights))).collect()
        }
        Ok(Answer::Rows { rows, .. }) => {
            rows.iter().map(|row| shown(row.capability.map(|capability| capability.rights))).collect()
        }
        Ok(Answer::Capability(capability)) => vec![Verdict::Shown(capability.rights)],
        _ => vec![Verdict::Allowed],
    }
}

/// Returns what is right at the number of an operation.
fn right(history: &History, timeline: &Timeline, replied: &Replied<'_>) -> Option<Vec<Verdict>> {
    let Some(query) = replied.query() else {
        let number = timeline.number_of(replied.operation.name);
        // What one server refused before it was ordered is judged as a refusal, whatever another one did.
        let Some(number) = number.filter(|_| !history.was_told_apart(timeline, replied)) else {
            let command = command_in(&replied.operation.request);
            return Some(verdicts(&timeline.state(replied.reply.number)?.after(command.as_ref()).1));
        };
        return Some(verdicts(&timeline.command(number)?.right.result));
    };
    let state = timeline.state(replied.reply.number)?;
    if let unisono_table::Query::Changes { place, .. } = query {
        return Some(match state.watched(place) {
            Err(reason) if matches!(reason, Reason::NotFound | Reason::Denied) => {
                vec![Verdict::Refused(reason)]
            }
            _ => vec![Verdict::Allowed],
        });
    }
    Some(verdicts(&state.ask(query)))
}

impl Promise for Protection {
    const NAME: &'static str = "protection";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        for (replied, timeline) in history.judged(timelines) {
            let Some(right) = right(history, timeline, &replied) else { continue };
            let got = verdicts(&replied.reply.result);
            *checked += got.len() as u64;
            if got != right {
                let (request, number) = (&replied.request, replied.reply.number);
                return Err(format!("{request:?} got {got:?} at {number} where {right:?} is right"));
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
    use unisono_table::{Command, Looked, Masks, Place, Reply};

    fn good(fixture: &Fixture) {
        fixture.good(AtEnd::<Protection>::default());
    }

    fn bad(fixture: &Fixture) {
        fixture.bad(AtEnd::<Protection>::default());
    }

    /// A directory `d`, which others see with the rights of their column alone.
    fn seen_by_others() -> (Fixture, Place) {
        let mut fixture = Fixture::founded();
        let place = fixture.place("d");
        fixture.command(make(&place));
        let others = fixture.root().restrict(Rights(0x04)).expect("the owner may");
        (fixture, Place { capability: others, ..place })
    }

    #[test]
    fn accepts_what_capabilities_allow_and_refusals_of_the_rest() {
        let (mut fixture, seen) = seen_by_others();
        fixture.query(lookup(&seen)).ok();
        let refused = fixture.command(Command::DeleteDirectory { place: seen });
        assert_eq!(refused.result, Err(Reason::Denied.into()));
        good(&fixture);
    }

    #[test]
    fn rejects_rights_of_another_column() {
        let (mut fixture, seen) = seen_by_others();
        let Ok(Answer::Looked(looked)) = fixture.query(lookup(&fixture.place("d"))) else { panic!() };
        let owners = looked[0].expect("it is there");
        fixture.query_with(lookup(&seen), Ok(Answer::Looked(vec![Ok(Looked { ..owners })])));
        bad(&fixture);
    }

    #[test]
    fn rejects_a_right_that_was_taken_away() {
        let (mut fixture, seen) = seen_by_others();
        let before = fixture.query(lookup(&seen));
        let masks = Masks::new(&[Rights::ALL, Rights(2), Rights::NONE]).expect("three");
        fixture.command(Command::Chmod { place: fixture.place("d"), masks });
        fixture.query_with(lookup(&seen), before);
        bad(&fixture);
    }

    /// One server refuses to delete a directory, before or after it was made, and another one deletes it.
    fn told_apart(hostile: bool, after: bool) -> Fixture {
        let mut fixture = Fixture::founded();
        if hostile {
            fixture.is_hostile();
        }
        let delete = Command::DeleteDirectory { place: fixture.place("d") };
        let refusal = fixture.refusal(&delete);
        let made = fixture.command(make(&fixture.place("d")));
        let id = fixture.begin(delete);
        fixture.apply(id);
        let refusal = if after { Reply { number: made.number, ..refusal } } else { refusal };
        fixture.end(id, &refusal);
        fixture
    }

    #[test]
    fn judges_what_a_hostile_client_is_refused_by_one_server_as_a_refusal() {
        told_apart(true, false).good(AtEnd::<Protection>::default());
        told_apart(true, true).bad(AtEnd::<Protection>::default());
        told_apart(false, false).bad(AtEnd::<Protection>::default());
    }

    #[test]
    fn rejects_a_capability_that_was_revoked() {
        let (mut fixture, seen) = seen_by_others();
        let secret = fixture.secret();
        fixture.command(Command::Revoke { place: Place::of(fixture.root()), secret });
        let id = fixture.begin(make(&Place { path: "e".parse().expect("a path"), ..fixture.place("d") }));
        let reply = fixture.apply_with(id, Ok(Answer::Done));
        fixture.end(id, &reply);
        bad(&fixture);
        drop(seen);
    }
}
