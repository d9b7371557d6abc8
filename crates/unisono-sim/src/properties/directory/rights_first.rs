//! Rights first: a command that every state before its number refuses for want of a right, or of what it names, is not
//! ordered. A server looks at a command before it is ordered, so a command in the order that was refused was allowed in a
//! state before. Not looked at are commands whose earlier attempt may have been executed.

use super::at_end::Promise;
use super::history::History;
use super::model::command_in;
use unisono_table::Refusal;

/// The promise `rights_first`.
#[derive(Debug, Default)]
pub(super) struct RightsFirst;

impl Promise for RightsFirst {
    const NAME: &'static str = "rights_first";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        if !history.is_confirmed {
            return Ok(());
        }
        for timeline in history.timelines()?.values() {
            for (number, _) in timeline.names().filter(|(_, name)| history.is_first_attempt(*name)) {
                *checked += 1;
                let Some(command) = timeline.command(number) else { continue };
                let is_refused = |refusal: &Refusal| refusal.reason.is_of_rights();
                if !command.right.result.as_ref().is_err_and(is_refused) {
                    continue;
                }
                let request = command_in(&command.request);
                let was_allowed = |at: u64| timeline.refuses(at, request.as_ref()).is_none();
                if !(0..number).rev().any(was_allowed) {
                    let right = &command.right.result;
                    return Err(format!(
                        "{request:?} has number {number}, and each state before says {right:?}"
                    ));
                }
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
    use unisono_table::{Capability, Check, Command, Place};

    #[test]
    fn what_was_allowed_before_may_be_ordered() {
        let mut fixture = Fixture::founded();
        let made = make(&fixture.place("a"));
        fixture.command(made);
        let below = fixture.begin(make(&fixture.place("a/b")));
        fixture.taken(below, false);
        let deleted = Command::DeleteRow { place: fixture.place("a") };
        fixture.command(deleted);
        let reply = fixture.apply(below);
        fixture.end(below, &reply);
        fixture.good(AtEnd::<RightsFirst>::default());
    }

    #[test]
    fn what_never_was_allowed_is_not_ordered_unless_it_is_a_repeat() {
        for again in [true, false] {
            let mut fixture = Fixture::founded();
            let made = fixture.begin(make(&fixture.place("a")));
            fixture.taken(made, false);
            let reply = fixture.apply(made);
            fixture.end(made, &reply);
            let forged = Capability { check: Check::from_bits(9), ..fixture.root() };
            let id = fixture.begin(Command::DeleteDirectory { place: Place::of(forged) });
            fixture.taken(id, again);
            let reply = fixture.apply(id);
            fixture.end(id, &reply);
            match again {
                true => fixture.good(AtEnd::<RightsFirst>::default()),
                false => fixture.bad(AtEnd::<RightsFirst>::default()),
            }
        }
    }
}
