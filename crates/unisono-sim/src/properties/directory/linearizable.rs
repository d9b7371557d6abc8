//! Linearizable: each operation seems to take effect at one moment between its begin and its end, and its reply is right
//! there. A command takes effect at its number. A query is answered from the state at the number in its reply, which is not
//! before anything that had ended when it began, and not after anything that began when it had ended. So is a command that
//! is refused before it is ordered, also one of a hostile client that another server executed. A local query is answered
//! from the state at its number, whichever that is.
//!
//! The run is checked as a whole that way, against the model. Besides, windows of operations are checked by a search that
//! knows no numbers ([`wing_gong`]). A window has the operations on all directories: so each directory by itself is
//! linearizable too.

use super::Map;
use super::at_end::Promise;
use super::history::{History, Replied, Timeline};
use super::model::{Model, command_in};
use super::wing_gong::{Placed, Sequential, check_windows};
use crate::record::{Mode, Service};
use std::collections::BTreeSet;
use unisono_core::Time;
use unisono_table::{Answer, Command, Query, Reason, Refusal, Request};

/// One in this number of the operations of a hostile client that have no number takes part in the search.
const HOSTILE_EVERY: usize = 16;

/// The promise `linearizable`.
#[derive(Debug, Default)]
pub(super) struct Linearizable;

impl Promise for Linearizable {
    const NAME: &'static str = "linearizable";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        for timeline in timelines.values() {
            check_copies(timeline, checked)?;
        }
        for (service, timeline) in timelines {
            let replied: Vec<Replied<'_>> = history
                .judged(timelines)
                .filter(|(_, of)| std::ptr::eq(*of, timeline))
                .map(|(replied, _)| replied)
                .collect();
            *checked += replied.len() as u64;
            sweep(history, timeline, &replied).map_err(|fault| format!("{service:?}: {fault}"))?;
            search(history, timelines, timeline).map_err(|fault| format!("{service:?}: {fault}"))?;
        }
        Ok(())
    }
}

/// Checks what copies replied to commands.
fn check_copies(timeline: &Timeline, checked: &mut u64) -> Result<(), String> {
    for (number, command) in timeline.commands() {
        *checked += 1;
        if command.given != command.right.encode() {
            let (given, request) =
                (unisono_table::Reply::decode(&command.given), Request::decode(&command.request));
            return Err(format!(
                "number {number}, {request:?}, got {given:?} where {:?} is right",
                command.right
            ));
        }
    }
    Ok(())
}

/// Checks operations in the order of time.
fn sweep(history: &History, timeline: &Timeline, replied: &[Replied<'_>]) -> Result<(), String> {
    let begun = begins(history, timeline);
    // Of equal times the begin comes first: such operations overlap.
    let mut moments: Vec<(Time, bool, usize)> = Vec::new();
    for (index, replied) in replied.iter().enumerate() {
        moments.extend([(replied.operation.begin, false, index), (replied.end, true, index)]);
    }
    moments.sort_unstable();
    let mut ended = 0;
    for (_, is_end, index) in moments {
        let replied = &replied[index];
        let number = replied.reply.number;
        let is_local = replied.operation.mode == Mode::LocalRead;
        if is_end {
            ended = if is_local { ended } else { ended.max(number) };
            continue;
        }
        let what = || format!("{:?} got {:?}", replied.request, replied.reply);
        match replied.query() {
            // What cannot be read is no command and has no number.
            None if is_local => {
                if replied.reply.result != Err(Reason::Unreadable.into()) || number > timeline.last() {
                    return Err(format!("{}: it cannot be read", what()));
                }
            }
            None => {
                let own = timeline.number_of(replied.operation.name);
                if let Some(own) = own.filter(|_| !history.was_told_apart(timeline, replied)) {
                    if own != number || number <= ended {
                        return Err(format!("{}: {ended} had ended when it began", what()));
                    }
                    continue;
                }
                if number < ended || begun.get(number as usize).is_none_or(|begun| *begun > replied.end) {
                    return Err(format!("{}: {ended} had ended when it began", what()));
                }
                let command = command_in(&replied.operation.request);
                if let Some(fault) = timeline.fault_of_refusal(command.as_ref(), &replied.reply) {
                    return Err(format!("{}: {fault}", what()));
                }
            }
            Some(query) => {
                if number < ended && !is_local {
                    return Err(format!("{}: {ended} had ended when it began", what()));
                }
                if begun.get(number as usize).is_some_and(|begun| *begun > replied.end) {
                    return Err(format!("{}: that number had not begun when it ended", what()));
                }
                if let Some(fault) = timeline.fault_of(query, &replied.reply) {
                    return Err(format!("{}: {fault}", what()));
                }
            }
        }
    }
    Ok(())
}

/// Returns when the last of the commands through each number began.
fn begins(history: &History, timeline: &Timeline) -> Vec<Time> {
    let mut begun = vec![Time::ZERO; timeline.last() as usize + 1];
    for operation in history.operations() {
        if let Some(number) = timeline.number_of(operation.name) {
            begun[number as usize] = operation.begin;
        }
    }
    for number in 1..begun.len() {
        begun[number] = begun[number].max(begun[number - 1]);
    }
    begun
}

// --- the search without numbers ---

/// A state of the search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State(Model);

/// A request of the search: a command or a query.
#[derive(Clone, Debug)]
enum Step {
    Change(Option<Box<Command>>),
    /// A command that is refused before it is ordered.
    Refuse(Option<Box<Command>>),
    Ask(Box<Query>),
}

impl Sequential for State {
    // A state of a directory is large.
    const STATES_MAX: usize = 10_000;

    type Op = Step;
    type Reply = Result<Answer, Refusal>;

    fn step(&self, op: &Step) -> (Result<Answer, Refusal>, State) {
        match op {
            Step::Change(command) => {
                let (state, result, _) = self.0.after(command.as_deref());
                (result, State(state))
            }
            Step::Refuse(command) => (self.0.after(command.as_deref()).1, self.clone()),
            Step::Ask(query) => (self.0.ask(query), self.clone()),
        }
    }
}

fn state_at(timeline: &Timeline, number: u64) -> State {
    State(timeline.state(number).cloned().unwrap_or_default())
}

/// Checks the operations of one of the timelines without numbers.
fn search(history: &History, timelines: &Map<Service, Timeline>, timeline: &Timeline) -> Result<(), String> {
    let placed = placed(history, timelines, timeline);
    check_windows(placed, timeline.base(), |number| state_at(timeline, number))
}

/// Returns the operations that concern a service. Queries for changes and amounts are not searched: the model's state has no
/// history.
fn placed(
    history: &History,
    timelines: &Map<Service, Timeline>,
    timeline: &Timeline,
) -> Vec<Placed<Step, Result<Answer, Refusal>>> {
    let is_of = |of: &Timeline| std::ptr::eq(of, timeline);
    let mut placed: Vec<Placed<_, _>> = Vec::new();
    let (mut answered, mut hostile) = (BTreeSet::new(), 0);
    for (replied, _) in history.judged(timelines).filter(|(_, of)| is_of(of)) {
        let is_apart = history.was_told_apart(timeline, &replied);
        let position = timeline.number_of(replied.operation.name).filter(|_| !is_apart);
        if replied.operation.mode == Mode::LocalRead {
            continue;
        }
        // A hostile client with up to 32 lives has many operations under way at a time. With all of them the search would not end.
        // So of what it asks without a number, which `sweep` has judged, a part takes part; all that it changes does.
        if position.is_none() && history.is_hostile(replied.operation) {
            hostile += 1;
            if hostile % HOSTILE_EVERY != 0 {
                continue;
            }
        }
        let op = match replied.query() {
            Some(Query::Changes { .. } | Query::Info) => continue,
            Some(query) => Step::Ask(Box::new(query.clone())),
            None => {
                let command = command_in(&replied.operation.request).map(Box::new);
                if position.is_some() { Step::Change(command) } else { Step::Refuse(command) }
            }
        };
        let end = Some((replied.end, replied.reply.result.clone()));
        placed.push(Placed { op, begin: replied.operation.begin, end, position });
        if !is_apart {
            answered.insert(replied.operation.name);
        }
    }
    // Commands whose callers learned nothing of this service took effect all the same. It may have begun anew from a disk
    // that was behind: an earlier service answered commands of that disk, and gave them other numbers.
    for operation in history.operations().iter().filter(|operation| !answered.contains(&operation.name)) {
        if let Some(number) = timeline.number_of(operation.name).filter(|number| *number > timeline.base()) {
            let op = Step::Change(command_in(&operation.request).map(Box::new));
            placed.push(Placed { op, begin: operation.begin, end: None, position: Some(number) });
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::{Fixture, lookup, make};
    use super::*;
    use unisono_table::{Place, Reply};

    fn used() -> Fixture {
        let mut fixture = Fixture::founded();
        for index in 0..40 {
            let place = fixture.place(&format!("d{}", index % 7));
            match index % 3 {
                0 => fixture.command(make(&place)),
                1 => fixture.command(Command::DeleteDirectory { place: place.clone() }),
                _ => fixture.command(make(&place)),
            };
            fixture.query(lookup(&place)).ok();
            fixture.query(Query::List { place: Place::of(fixture.root()), after: None }).ok();
        }
        fixture
    }

    #[test]
    fn a_command_without_a_right_is_refused_without_a_number() {
        let refused_at = |behind: bool| {
            let mut fixture = Fixture::founded();
            let command = make(&fixture.place("a/b"));
            let (early, early_reply) = (fixture.begin(command.clone()), fixture.refusal(&command));
            fixture.end(early, &early_reply);
            let made = make(&fixture.place("a"));
            fixture.command(made);
            let late = fixture.begin(command.clone());
            if !behind {
                let reply = fixture.apply(late);
                fixture.end(late, &reply);
            } else {
                fixture.end(late, &early_reply);
            }
            fixture
        };
        refused_at(false).good(AtEnd::<Linearizable>::default());
        // A server that is behind does not know the directory yet.
        refused_at(true).bad(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn a_hostile_client_may_be_refused_what_another_server_executed() {
        let told = |hostile: bool, behind: bool| {
            let mut fixture = Fixture::founded();
            if hostile {
                fixture.is_hostile();
            }
            let delete = Command::DeleteDirectory { place: fixture.place("d") };
            let made = make(&fixture.place("d"));
            let early = fixture.refusal(&delete);
            fixture.command(made);
            let id = fixture.begin(delete.clone());
            fixture.apply(id);
            let late = fixture.refusal(&delete);
            fixture.end(id, if behind { &early } else { &late });
            fixture
        };
        told(true, false).good(AtEnd::<Linearizable>::default());
        told(true, true).bad(AtEnd::<Linearizable>::default());
        told(false, false).bad(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn accepts_right_replies_in_the_order_of_time() {
        used().good(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn rejects_a_stale_answer_that_gives_an_old_number() {
        let mut fixture = used();
        let list = Query::List { place: Place::of(fixture.root()), after: None };
        let stale = fixture.ask(&list);
        let place = fixture.place("new");
        fixture.command(make(&place));
        fixture.query_with_reply(list, &stale);
        fixture.bad(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn rejects_a_stale_answer_that_gives_the_right_number() {
        let mut fixture = used();
        let list = Query::List { place: Place::of(fixture.root()), after: None };
        let stale = fixture.ask(&list).result;
        let place = fixture.place("new");
        fixture.command(make(&place));
        fixture.query_with(list, stale);
        fixture.bad(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn rejects_a_wrong_reply_of_the_copies() {
        let mut fixture = Fixture::founded();
        let id = fixture.begin(make(&fixture.place("d")));
        let wrong = Ok(Answer::Done);
        let reply = fixture.apply_with(id, wrong);
        fixture.end(id, &reply);
        fixture.bad(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_a_number() {
        for (result, is_good) in [(Err(Reason::Unreadable.into()), true), (Ok(Answer::Done), false)] {
            let mut fixture = used();
            fixture.unreadable(result);
            match is_good {
                true => fixture.good(AtEnd::<Linearizable>::default()),
                false => fixture.bad(AtEnd::<Linearizable>::default()),
            }
        }
    }

    /// A service answers two commands, and begins anew from a disk on which the second is the first. Returns also the listing
    /// of the root before the commands, after the second alone, and after both.
    fn begun_anew_from_a_disk_with_other_numbers() -> (Fixture, [Reply; 3]) {
        let mut fixture = Fixture::founded();
        let (kept, neither) = (fixture.state(), fixture.ask(&list(&fixture)));
        let (other, place) = (fixture.place("other"), fixture.place("d"));
        fixture.command(make(&other));
        let id = fixture.begin(make(&place));
        let reply = fixture.apply(id);
        fixture.end(id, &reply);
        let both = fixture.ask(&list(&fixture));
        fixture.begin_anew_from(kept);
        fixture.apply(id);
        let second = fixture.ask(&list(&fixture));
        (fixture, [neither, second, both])
    }

    fn list(fixture: &Fixture) -> Query {
        Query::List { place: Place::of(fixture.root()), after: None }
    }

    #[test]
    fn a_service_that_begins_anew_may_have_commands_that_were_answered_at_other_numbers() {
        let (mut fixture, [_, second, _]) = begun_anew_from_a_disk_with_other_numbers();
        fixture.query_with_reply(list(&fixture), &second);
        fixture.good(AtEnd::<Linearizable>::default());
    }

    #[test]
    fn the_search_alone_finds_what_a_service_that_began_anew_cannot_answer() {
        let is_right = |replies: &[&Reply]| {
            let (mut fixture, _) = begun_anew_from_a_disk_with_other_numbers();
            replies.iter().for_each(|reply| fixture.query_with_reply(list(&fixture), reply));
            let history = fixture.history();
            let timelines = history.timelines().expect("all numbers");
            let (_, last) = timelines.last_key_value().expect("a service");
            search(&history, timelines, last).is_ok()
        };
        let (_, [neither, second, both]) = begun_anew_from_a_disk_with_other_numbers();
        assert!(is_right(&[&second, &second]));
        // A command that it has is not undone, and one that only the former service had stays lost.
        assert!(!is_right(&[&second, &neither]));
        assert!(!is_right(&[&both]));
    }

    #[test]
    fn the_search_alone_finds_replies_in_a_wrong_order() {
        let call = |op: Step, begin: u64, end: u64, reply| {
            let (begin, end) = (Time::from_nanos(begin), Some((Time::from_nanos(end), reply)));
            Placed { op, begin, end, position: None }
        };
        let fixture = Fixture::founded();
        let before = State(fixture.model().clone());
        let made = Step::Change(Some(Box::new(make(&fixture.place("d")))));
        let look = Step::Ask(Box::new(lookup(&fixture.place("d"))));
        let (done, after) = before.step(&made);
        let (absent, present) = (before.step(&look).0, after.step(&look).0);
        let found = |reply| {
            let calls = vec![call(made.clone(), 0, 10, done.clone()), call(look.clone(), 20, 30, reply)];
            check_windows(calls, 0, |_| before.clone()).is_ok()
        };
        assert!(found(present));
        assert!(!found(absent));
    }
}
