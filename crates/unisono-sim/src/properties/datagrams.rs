//! Datagrams: in a group without faults a message costs no more of them than in the papers, whatever the number of
//! members: 2 with r = 0, 3 with r = 1, and 3 + r otherwise (the message, its seqno, r acknowledgements, the accept). A
//! message of the sequencer's own costs one less.
//!
//! Beside messages, a group may send some datagrams for each member that joins, and some for each member and second:
//! heartbeats, the answers of members that have reported nothing for a while, and the reports that free the history.

use super::{Facts, GroupTerms, Property, Violation, final_result};
use crate::record::{End, Kind, Record, What};

/// Datagrams for one member that joins.
const OF_A_JOIN: u64 = 50;
/// Datagrams for one member and second, beside messages: 20 reports after a silence of 50 ms, answers to the heartbeats
/// in pauses of 10 ms, and its part of the heartbeats.
const OF_A_SECOND: u64 = 40;

/// The checker of `datagrams`.
#[derive(Debug)]
pub(super) struct Datagrams {
    resilience: u64,
    joins: u64,
    messages: u64,
    checked: u64,
}

impl Datagrams {
    /// Checks a run of a group without faults.
    pub(super) fn new(terms: &GroupTerms) -> Datagrams {
        let resilience = terms.config.resilience.into();
        Datagrams { resilience, joins: 0, messages: 0, checked: 0 }
    }

    /// Returns the number of datagrams of one message.
    fn of_a_message(&self) -> u64 {
        match self.resilience {
            0 => 2,
            1 => 3,
            resilience => 3 + resilience,
        }
    }
}

impl Property for Datagrams {
    fn name(&self) -> &'static str {
        "datagrams"
    }

    fn interests(&self) -> u64 {
        Kind::Started.bit() | Kind::Sent.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Started { .. } => self.joins += 1,
            _ => self.messages += 1,
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        if self.messages == 0 {
            return Ok(());
        }
        self.checked += 1;
        let seconds = end.at.as_nanos() / 1_000_000_000 + 1;
        let most = self.messages * self.of_a_message() + self.joins * (OF_A_JOIN + seconds * OF_A_SECOND);
        let fault = (end.datagrams > most).then(|| {
            format!("{} datagrams for {} messages, where {most} are allowed", end.datagrams, self.messages)
        });
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use crate::record::Life;

    /// Returns whether the checker accepts 1,000 messages in a group of five, at this number of datagrams for each.
    fn accepts(resilience: u8, of_a_message: u64) -> bool {
        let mut fixture = Fixture::of(5, resilience);
        (0..1_000).for_each(|_| _ = fixture.message(Life(1)));
        let end = End { datagrams: 1_000 * of_a_message, ..fixture.ending() };
        fixture.check_with_end(Datagrams::new(&fixture.terms), &end).is_ok()
    }

    #[test]
    fn accepts_what_the_papers_need() {
        for (resilience, of_a_message) in [(0, 2), (1, 3), (2, 5), (3, 6)] {
            assert!(accepts(resilience, of_a_message), "r = {resilience}");
        }
    }

    #[test]
    fn rejects_answers_of_members_that_need_not_acknowledge() {
        for (resilience, of_a_message) in [(0, 3), (1, 4), (2, 6), (3, 7)] {
            assert!(!accepts(resilience, of_a_message), "r = {resilience}");
        }
    }
}
