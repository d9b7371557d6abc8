//! Once: a call has one result, whichever servers it reaches. No command of one client and number has two numbers, all
//! copies reply the same to it, and its caller gets that reply. A command that is refused before it is ordered has no number
//! at any copy.

use super::Map;
use super::at_end::Promise;
use super::history::{History, Name};
use crate::record::{Mode, Service};
use bytes::Bytes;
use unisono_table::Reply;

/// The promise `once`.
#[derive(Debug, Default)]
pub(super) struct Once;

impl Promise for Once {
    const NAME: &'static str = "once";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let mut results = Map::<(Service, Name), (u64, &Bytes)>::new();
        for (service, number, name, reply) in history.applied() {
            *checked += 1;
            let known = *results.entry((service, name)).or_insert((number, reply));
            if known != (number, reply) {
                return Err(format!(
                    "{name:?} has number {number} at a copy of {service:?}, {known:?} at another"
                ));
            }
        }
        let mut replies = Map::<Name, Vec<&Bytes>>::new();
        results.iter().for_each(|((_, name), (_, reply))| replies.entry(*name).or_default().push(reply));
        for operation in history.operations().iter().filter(|operation| operation.mode == Mode::Command) {
            let Some((_, got)) = &operation.end else { continue };
            *checked += 1;
            let is_right = match replies.get(&operation.name) {
                // A hostile client may ask two servers at once, and say to each that it has asked no other.
                Some(replies) => {
                    replies.contains(&got) || (history.is_hostile(operation) && is_refused_early(got))
                }
                None => is_refused_early(got),
            };
            if !is_right {
                return Err(format!("{operation:?} got what no copy replied"));
            }
        }
        Ok(())
    }
}

/// True if a command may get this reply without a number.
fn is_refused_early(reply: &Bytes) -> bool {
    let refusal = Reply::decode(reply).and_then(|reply| reply.result.err());
    refusal.is_some_and(|refusal| refusal.reason.is_of_rights())
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::{Fixture, make};
    use super::*;

    #[test]
    fn accepts_one_result_at_all_copies() {
        let mut fixture = Fixture::founded();
        (0..3).for_each(|index| _ = fixture.command(make(&fixture.place(&format!("d{index}")))));
        fixture.good(AtEnd::<Once>::default());
    }

    /// A command that may be refused without a number gets this refusal, executed or not.
    fn refused(executed: bool, hostile: bool) -> Fixture {
        let mut fixture = Fixture::founded();
        if hostile {
            fixture.is_hostile();
        }
        let command = make(&fixture.place("a/b"));
        let (id, refusal) = (fixture.begin(command.clone()), fixture.refusal(&command));
        let made = make(&fixture.place("a"));
        fixture.command(made);
        if executed {
            fixture.apply(id);
        }
        fixture.end(id, &refusal);
        fixture
    }

    #[test]
    fn rejects_a_refusal_of_what_was_executed() {
        refused(false, false).good(AtEnd::<Once>::default());
        refused(true, false).bad(AtEnd::<Once>::default());
    }

    #[test]
    fn accepts_it_for_a_hostile_client_that_asks_two_servers_at_once() {
        refused(true, true).good(AtEnd::<Once>::default());
    }

    #[test]
    fn rejects_another_result_at_another_copy_or_at_the_caller() {
        let mut fixture = Fixture::founded();
        let command = make(&fixture.place("d"));
        let id = fixture.begin(command);
        let reply = fixture.apply(id);
        let mut other = reply.clone();
        other.number += 1;
        fixture.end(id, &other);
        fixture.bad(AtEnd::<Once>::default());

        let mut fixture = Fixture::founded();
        let command = make(&fixture.place("d"));
        let id = fixture.begin(command);
        let reply = fixture.apply(id);
        fixture.applied_again(id, &reply, 1);
        fixture.end(id, &reply);
        fixture.bad(AtEnd::<Once>::default());
    }
}
