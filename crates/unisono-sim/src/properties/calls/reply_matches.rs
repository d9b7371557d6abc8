//! Reply matches: a reply is the one that an application gave to this very call. None is invented, damaged, or the
//! reply to another call.

use super::Calls;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Record, What};

/// The checker of `reply_matches`.
#[derive(Debug, Default)]
pub(super) struct ReplyMatches {
    /// Hash of each call's reply. Where repeats are recognised, all replies to a call are the same.
    given: Calls<Option<u64>>,
    checked: u64,
}

impl Property for ReplyMatches {
    fn name(&self) -> &'static str {
        "reply_matches"
    }

    fn interests(&self) -> u64 {
        Kind::Replied.bit() | Kind::CallEnded.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Replied { client, call, hash } => {
                *self.given.at(client, call) = Some(hash);
            }
            What::CallEnded { call, outcome: CallOutcome::Replied { hash } } => {
                self.checked += 1;
                match self.given.get(record.life, call).copied().flatten() {
                    Some(given) if given == hash => {}
                    Some(_) => return broken(self, record, || "the application gave another reply".into()),
                    None => return broken(self, record, || "no application replied to it".into()),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, SERVER, hash_of};
    use super::*;

    #[test]
    fn accepts_the_reply_that_was_given() {
        Fixture::of_calls().good(ReplyMatches::default());
    }

    #[test]
    fn rejects_a_reply_that_was_never_given() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.end(call, CallOutcome::Replied { hash: hash_of(call) });
        fixture.bad(ReplyMatches::default());
    }

    #[test]
    fn rejects_the_reply_to_another_call() {
        let mut fixture = Fixture::default();
        let (call, other) = (fixture.call(0), fixture.call(0));
        fixture.answer(SERVER, call, 0);
        fixture.answer(SERVER, other, 0);
        fixture.end(call, CallOutcome::Replied { hash: hash_of(other) });
        fixture.bad(ReplyMatches::default());
    }
}
