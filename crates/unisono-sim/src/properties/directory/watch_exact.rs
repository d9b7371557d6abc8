//! Watches are exact: from the number on with which a watch begins it gets every change of its directory, in order, none
//! missing and none twice, whichever servers answer, and in however many processes it is resumed. Where the history ends, it
//! is told so. A position counts for one instance of the service alone: after a restore no watch of before goes on.

use super::Map;
use super::at_end::Promise;
use super::history::History;
use crate::record::Service;
use unisono_table::{Answer, Query};

/// The promise `watch_exact`.
#[derive(Debug, Default)]
pub(super) struct WatchExact;

impl Promise for WatchExact {
    const NAME: &'static str = "watch_exact";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        // The number from which each watch has to go on.
        let mut expected = Map::<u32, u64>::new();
        // The service of which its position is.
        let mut positions_of = Map::<u32, Service>::new();
        for watched in &history.watched {
            let Some((query, reply)) = watched.read() else {
                return Err(format!("cannot be read: {watched:?}"));
            };
            let Query::Changes { from, .. } = &query else { continue };
            let fault = |what: String| {
                Err(format!("watch {} asked {query:?} and got {reply:?}: {what}", watched.watch))
            };
            if let Some(expected) = expected.get(&watched.watch).filter(|expected| *expected != from) {
                return fault(format!("it had to go on at {expected}"));
            }
            expected.insert(watched.watch, *from);
            if let Ok(Answer::Changes { next, .. }) = &reply.result {
                expected.insert(watched.watch, (*next).max(*from));
            }
            let Some(service) = history.service_of(watched) else { continue };
            let own = *positions_of.entry(watched.watch).or_insert(service);
            if own != service {
                return fault(format!("its position is of {own:?}, and {service:?} has answered"));
            }
            let Some(timeline) = timelines.get(&service) else { continue };
            *checked += 1;
            if let Some(what) = timeline.fault_of(&query, &reply) {
                return fault(what);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::{Fixture, SERVICE, make};
    use super::*;
    use unisono_table::{Place, Reason, Refusal};

    fn watch(
        fixture: &mut Fixture,
        from: u64,
        result: Option<Result<Answer, Refusal>>,
    ) -> Result<Answer, Refusal> {
        let query = Query::Changes { place: Place::of(fixture.root()), from };
        let right = fixture.ask(&query).result;
        let result = result.unwrap_or(right);
        fixture.watched(7, query, result.clone());
        result
    }

    /// Two directories are made, and a watch gets the first.
    fn watched() -> Fixture {
        let mut fixture = Fixture::founded();
        let place = fixture.place("a");
        fixture.command(make(&place));
        _ = watch(&mut fixture, 1, None);
        let place = fixture.place("b");
        fixture.command(make(&place));
        fixture
    }

    #[test]
    fn accepts_all_changes_once() {
        let mut fixture = watched();
        _ = watch(&mut fixture, 3, None);
        fixture.good(AtEnd::<WatchExact>::default());
    }

    #[test]
    fn rejects_a_change_that_is_skipped_or_comes_twice() {
        let mut fixture = watched();
        _ = watch(&mut fixture, 3, Some(Ok(Answer::Changes { changes: Vec::new(), next: 4 })));
        fixture.bad(AtEnd::<WatchExact>::default());
        let mut fixture = watched();
        _ = watch(&mut fixture, 2, None);
        fixture.bad(AtEnd::<WatchExact>::default());
    }

    #[test]
    fn rejects_a_position_that_counts_for_another_service() {
        let mut fixture = watched();
        let query = Query::Changes { place: Place::of(fixture.root()), from: 3 };
        let right = fixture.ask(&query).result;
        fixture.watched_at(Service(SERVICE.0 + 1), 7, query, right);
        fixture.bad(AtEnd::<WatchExact>::default());
    }

    #[test]
    fn accepts_that_a_server_behind_does_not_judge_the_place() {
        for (from, number, is_right) in [(9, 3, true), (4, 3, false), (9, 4, false)] {
            let mut fixture = watched();
            let query = Query::Changes { place: fixture.place("nowhere"), from };
            fixture.watched(8, query, Err(Reason::Future { number }.into()));
            match is_right {
                true => fixture.good(AtEnd::<WatchExact>::default()),
                false => fixture.bad(AtEnd::<WatchExact>::default()),
            }
        }
    }

    #[test]
    fn rejects_a_history_that_ends_early() {
        let mut fixture = watched();
        _ = watch(&mut fixture, 3, Some(Err(Reason::NoLongerKept { kept_from: 4 }.into())));
        fixture.bad(AtEnd::<WatchExact>::default());
    }
}
