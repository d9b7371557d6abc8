//! What is restored equals: a backup has the state at its number, with everything that was answered before it was asked for;
//! and the service that is restored from it goes on from that number, as another instance, and remembers the same commands.
//!
//! The table that the backup restores is asked for everything that the model has.

use super::at_end::Promise;
use super::history::{BackedUp, History, Restored, Timeline};
use crate::record::Service;
use unisono_table::{Query, Table};

/// The promise `restore_equals`.
#[derive(Debug, Default)]
pub(super) struct RestoreEquals;

/// Says in what a backup differs from the state at its number.
fn fault(timeline: &Timeline, backup: &BackedUp) -> Option<String> {
    let Some(state) = timeline.state(backup.number) else { return Some("there is no such number".into()) };
    let table = match Table::restore(&backup.parts) {
        Ok(table) => table,
        Err(reason) => return Some(reason.to_string()),
    };
    if table.number() != backup.number {
        return Some(format!("it has number {}", table.number()));
    }
    let queries = state.all_queries().into_iter().chain([Query::Info]);
    queries.into_iter().find_map(|query| {
        let fault = timeline.fault_of(&query, &table.ask(&query))?;
        Some(format!("{query:?}: {fault}"))
    })
}

/// Says in what a service differs from the backup that it is restored from.
fn fault_of_restored(
    history: &History,
    restored: &Restored,
    service: Service,
    timeline: &Timeline,
) -> Option<String> {
    let Restored { number, remembered, .. } = *restored;
    if timeline.base() != number {
        return Some(format!("it goes on from {}", timeline.base()));
    }
    // Before its next command a copy remembers the commands that are in the backup.
    let mut copies = history.serves.iter().filter(|(of, at, _)| (*of, *at) == (service, number));
    copies.find(|(.., has)| *has != remembered).map(|(.., has)| format!("a copy remembers {has} commands"))
}

impl Promise for RestoreEquals {
    const NAME: &'static str = "restore_equals";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let timelines = history.timelines()?;
        for backup in &history.backups {
            let Some(timeline) = timelines.get(&backup.service) else { continue };
            *checked += 1;
            if let Some(fault) = fault(timeline, backup) {
                return Err(format!(
                    "the backup of {:?} with number {}: {fault}",
                    backup.service, backup.number
                ));
            }
            let mut before = history.judged(timelines).filter(|(replied, of)| {
                std::ptr::eq(*of, timeline)
                    && replied.end < backup.asked
                    && replied.operation.mode.is_ordered()
            });
            if let Some((late, _)) = before.find(|(replied, _)| replied.reply.number > backup.number) {
                let (number, end) = (late.reply.number, late.end);
                return Err(format!("number {number}, answered at {end:?}, is not in {}", backup.number));
            }
        }
        for restored in &history.restored {
            // The instance that begins anew from the backup, if it got so far.
            let mut later = timelines.iter().filter(|(service, _)| !restored.before.contains(service));
            let Some((service, timeline)) = later.next() else { continue };
            *checked += 1;
            if let Some(fault) = fault_of_restored(history, restored, *service, timeline) {
                return Err(format!("{service:?}, restored from {restored:?}: {fault}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::{Fixture, make};
    use super::*;
    use unisono_table::{Command, Request};

    /// Returns the table of a fixture.
    fn table(fixture: &Fixture) -> Table {
        let mut table = Table::new(crate::directory::limits());
        for request in fixture.requests() {
            table.apply(request);
        }
        table
    }

    fn used() -> Fixture {
        let mut fixture = Fixture::founded();
        for name in ["a", "b", "a/c"] {
            let place = fixture.place(name);
            fixture.command(make(&place));
        }
        fixture
    }

    #[test]
    fn accepts_the_state_at_the_number() {
        let mut fixture = used();
        let parts = table(&fixture).snapshot();
        fixture.backed_up(4, parts);
        fixture.good(AtEnd::<RestoreEquals>::default());
    }

    #[test]
    fn rejects_a_service_that_does_not_go_on_from_the_backup() {
        for (number, remembered, is_good) in [(4, 4, true), (3, 4, false), (4, 0, false)] {
            let mut fixture = used();
            fixture.restored(number, remembered);
            match is_good {
                true => fixture.good(AtEnd::<RestoreEquals>::default()),
                false => fixture.bad(AtEnd::<RestoreEquals>::default()),
            }
        }
    }

    #[test]
    fn rejects_another_state_and_one_that_is_behind() {
        let mut fixture = used();
        let mut other = table(&fixture);
        let place = fixture.place("d");
        fixture.command(make(&place));
        fixture.backed_up(4, other.snapshot());
        fixture.bad(AtEnd::<RestoreEquals>::default());

        let mut fixture = used();
        fixture.command(make(&place));
        other.apply(&Request::Command(Command::DeleteRow { place: fixture.place("a") }).encode());
        fixture.backed_up(5, other.snapshot());
        fixture.bad(AtEnd::<RestoreEquals>::default());
    }
}
