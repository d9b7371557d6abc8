//! No oracle: a client without a good capability cannot find out which objects exist. A capability with a wrong check gets
//! the same answer, to the byte, as one for an object that does not exist.

use super::at_end::Promise;
use super::history::History;
use super::model::Model;
use unisono_table::{Answer, Capability, Command, Query, Reason, Refusal, Request};

/// The promise `no_oracle`.
#[derive(Debug, Default)]
pub(super) struct NoOracle;

/// Returns the capability that a request begins with.
fn first_capability(request: &Request) -> Option<&Capability> {
    Some(match request {
        Request::Command(command) => match command {
            Command::CreateDirectory { place, .. }
            | Command::CreateFile { place, .. }
            | Command::DeleteDirectory { place }
            | Command::DeleteFile { place }
            | Command::Append { place, .. }
            | Command::Chmod { place, .. }
            | Command::DeleteRow { place }
            | Command::Revoke { place, .. }
                if may_begin(command) =>
            {
                &place.capability
            }
            Command::ReplaceSet { rows } => {
                &rows.first().filter(|row| !row.place.path.is_empty())?.place.capability
            }
            Command::DeleteUnreachable { owner, .. } => owner,
            _ => return None,
        },
        Request::Query(query) | Request::LocalQuery(query) => match query {
            Query::List { place, .. }
            | Query::Restrict { place, .. }
            | Query::Read { place, .. }
            | Query::Size { place }
            | Query::Changes { place, .. } => &place.capability,
            Query::Files { owner, .. } | Query::Unreachable { owner, .. } => owner,
            _ => return None,
        },
    })
}

/// True unless the command lacks the name of a row, which is refused before anything is looked at.
fn may_begin(command: &Command) -> bool {
    match command {
        Command::Append { place, .. } | Command::Chmod { place, .. } | Command::DeleteRow { place } => {
            !place.path.is_empty()
        }
        _ => true,
    }
}

/// Says what is wrong with the answer to a request by a capability that is not good in a state.
fn fault(
    state: &Model,
    request: &Request,
    result: &Result<Answer, Refusal>,
    checked: &mut u64,
) -> Option<String> {
    let mut judge = |capability: &Capability, got: Option<Reason>| {
        if state.is_good(capability) {
            return None;
        }
        *checked += 1;
        let is_there = if state.has(capability) { "exists" } else { "does not exist" };
        (got != Some(Reason::NotFound)).then(|| format!("got {got:?} of an object that {is_there}"))
    };
    if let Request::Query(Query::Lookup { places }) | Request::LocalQuery(Query::Lookup { places }) = request
    {
        let Ok(Answer::Looked(looked)) = result else { return Some(format!("a lookup got {result:?}")) };
        return places.iter().zip(looked).find_map(|(place, looked)| judge(&place.capability, looked.err()));
    }
    judge(first_capability(request)?, result.as_ref().err().map(|refusal| refusal.reason))
}

impl Promise for NoOracle {
    const NAME: &'static str = "no_oracle";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        for (replied, timeline) in history.judged(timelines) {
            let Some(request) = &replied.request else { continue };
            // What a command meets is the state before it; or, of one that a server refused before it was ordered, that server's,
            // whatever another one did.
            let number = timeline.number_of(replied.operation.name);
            let number = match number.filter(|_| !history.was_told_apart(timeline, &replied)) {
                Some(number) => number - 1,
                None => replied.reply.number,
            };
            let Some(state) = timeline.state(number) else { continue };
            if let Some(fault) = fault(state, request, &replied.reply.result, checked) {
                return Err(format!("{request:?} {fault}"));
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
    use unisono_table::{Check, ObjectNumber, Place};

    fn history_with(reason: Reason, spoil: fn(Capability) -> Capability) -> Fixture {
        let mut fixture = Fixture::founded();
        let capability = spoil(fixture.root());
        fixture.query_with(lookup(&Place::of(capability)), Ok(Answer::Looked(vec![Err(reason)])));
        let read = Query::List { place: Place::of(capability), after: None };
        fixture.query_with(read, Err(reason.into()));
        fixture
    }

    const SPOILS: [fn(Capability) -> Capability; 2] = [
        |root| Capability { check: Check::from_bits(2), ..root },
        |root| Capability { object: ObjectNumber(77), ..root },
    ];

    #[test]
    fn accepts_one_answer_to_a_wrong_check_and_a_missing_object() {
        SPOILS
            .iter()
            .for_each(|spoil| history_with(Reason::NotFound, *spoil).good(AtEnd::<NoOracle>::default()));
    }

    #[test]
    fn rejects_an_answer_that_tells_them_apart() {
        SPOILS
            .iter()
            .for_each(|spoil| history_with(Reason::Denied, *spoil).bad(AtEnd::<NoOracle>::default()));
    }

    /// One server says what is wrong with a command for a directory, and another one executes it when the directory is gone.
    fn told_apart(hostile: bool) -> Fixture {
        let mut fixture = Fixture::founded();
        if hostile {
            fixture.is_hostile();
        }
        // Something to judge.
        let spoiled = SPOILS[0](fixture.root());
        fixture.query(lookup(&Place::of(spoiled))).ok();
        let place = fixture.place("d");
        fixture.command(make(&place));
        let Ok(Answer::Looked(looked)) = fixture.query(lookup(&place)) else { panic!() };
        let delete = Command::DeleteFile { place: Place::of(looked[0].expect("it is there").capability) };
        let refusal = fixture.refusal(&delete);
        assert_eq!(refusal.result, Err(Reason::NotAFile.into()));
        fixture.command(Command::DeleteDirectory { place });
        let id = fixture.begin(delete);
        fixture.apply(id);
        fixture.end(id, &refusal);
        fixture
    }

    #[test]
    fn judges_what_a_hostile_client_is_refused_by_one_server_by_that_servers_state() {
        told_apart(true).good(AtEnd::<NoOracle>::default());
        told_apart(false).bad(AtEnd::<NoOracle>::default());
    }
}
