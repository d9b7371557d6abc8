//! One answer: a request that names a handler is answered by the member that holds the handler, and by no other. All copies
//! know the same holders after the same event, and only members hold handlers.
//!
//! A copy decides on an answer between two events, and the record of the answer may come after that of a later event, at the
//! same time. So a copy may answer if it held the handler at any moment of that time. With the durability *ordered* copies
//! are compared within an epoch.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Epoch, Kind, Life, Record, ReplicaRecord, Service};
use unisono_core::Time;

/// Handlers that are held, and their holders.
type Holders = Vec<(u8, Life)>;

/// The checker of `one_answer`.
#[derive(Debug, Default)]
pub(super) struct OneAnswer {
    /// The holders that the first copy to report them knew after an event.
    known: Map<(Service, Epoch, u64), Holders>,
    /// What each copy has known since when: the last holders before the present time, and those of that time.
    seen: Map<Life, Vec<(Time, Holders)>>,
    checked: u64,
}

impl OneAnswer {
    fn note(&mut self, record: &Record, holders: &Holders) {
        let seen = self.seen.entry(record.life).or_default();
        let before = seen.iter().filter(|(at, _)| *at < record.at).count();
        seen.drain(..before.saturating_sub(1));
        seen.push((record.at, holders.clone()));
    }

    /// True if a copy may answer for a handler at this time.
    fn holds(&self, life: Life, handler: u8, now: Time) -> bool {
        let Some(seen) = self.seen.get(&life) else { return false };
        let is_last_before = |index: usize| seen.get(index + 1).is_none_or(|(next, _)| *next >= now);
        let counts = |(index, (at, holders)): (usize, &(Time, Holders))| {
            (*at >= now || is_last_before(index)) && holders.contains(&(handler, life))
        };
        seen.iter().enumerate().any(counts)
    }
}

impl Property for OneAnswer {
    fn name(&self) -> &'static str {
        "one_answer"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Handlers { service, epoch, seqno, holders, members }) => {
                self.checked += 1;
                if let Some((handler, holder)) = holders.iter().find(|(_, holder)| !members.contains(holder))
                {
                    return broken(self, record, || {
                        format!("{holder:?} holds handler {handler}, and is no member")
                    });
                }
                let known = self.known.entry((*service, *epoch, *seqno)).or_insert_with(|| holders.clone());
                if known != holders {
                    let known = known.clone();
                    return broken(self, record, || format!("another copy knows the holders {known:?}"));
                }
                self.note(record, holders);
            }
            Some(ReplicaRecord::AnsweredFor { handler, .. }) => {
                self.checked += 1;
                if !self.holds(record.life, *handler, record.at) {
                    let seen = self.seen.get(&record.life).cloned().unwrap_or_default();
                    return broken(self, record, || {
                        format!("it does not hold handler {handler}: {:?}", seen.last())
                    });
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
    use super::super::fixture::{A, B, C, CLIENT, Fixture, SERVICE};
    use super::*;
    use std::time::Duration;

    fn handlers(fixture: &mut Fixture, copy: Life, seqno: u64, holders: &[(u8, Life)]) {
        let (holders, members) = (holders.to_vec(), vec![A, B]);
        let record = ReplicaRecord::Handlers { service: SERVICE, epoch: Epoch(0), seqno, holders, members };
        fixture.record(copy, record);
    }

    fn answer(fixture: &mut Fixture, copy: Life) {
        fixture.record(copy, ReplicaRecord::AnsweredFor { handler: 1, name: (CLIENT, 7) });
    }

    #[test]
    fn the_holder_answers_and_the_next_one_after_it() {
        let mut fixture = Fixture::three_copies();
        for copy in [A, B] {
            handlers(&mut fixture, copy, 5, &[(1, A)]);
        }
        answer(&mut fixture, A);
        for copy in [A, B] {
            handlers(&mut fixture, copy, 9, &[(1, B)]);
        }
        answer(&mut fixture, B);
        fixture.good(OneAnswer::default());
    }

    #[test]
    fn an_answer_of_another_member_is_noticed() {
        let mut fixture = Fixture::three_copies();
        handlers(&mut fixture, B, 5, &[(1, A)]);
        answer(&mut fixture, B);
        fixture.bad(OneAnswer::default());
    }

    #[test]
    fn an_answer_of_a_former_holder_is_noticed() {
        let mut fixture = Fixture::three_copies();
        handlers(&mut fixture, A, 5, &[(1, A)]);
        handlers(&mut fixture, A, 6, &[(1, B)]);
        fixture.wait(Duration::from_millis(1));
        answer(&mut fixture, A);
        fixture.bad(OneAnswer::default());
    }

    #[test]
    fn a_holder_that_is_no_member_and_two_holders_are_noticed() {
        let mut fixture = Fixture::three_copies();
        handlers(&mut fixture, A, 5, &[(1, C)]);
        fixture.bad(OneAnswer::default());
        let mut fixture = Fixture::three_copies();
        handlers(&mut fixture, A, 5, &[(1, A)]);
        handlers(&mut fixture, B, 5, &[(1, B)]);
        fixture.bad(OneAnswer::default());
    }
}
