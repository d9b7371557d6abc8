//! L3, every send is resolved: each message gets one outcome, in the order of message numbers. No outcome comes
//! before its message was sent or after the last event. *Unknown* is reported only to a sender whose part in the
//! group is over: from then on it sends, acknowledges and numbers nothing, and enters no epoch. Once the faults are
//! over, no message is left without an outcome, unless the group has fewer members than its minimum.

use super::healing::Healing;
use super::streams::Messages;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken, final_result};
use crate::record::{End, Kind, Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Phase};

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// Messages sent and not resolved.
    pending: u64,
    /// Last number resolved.
    resolved: MessageNumber,
    /// Number of a message that was reported unknown.
    unknown: Option<MessageNumber>,
}

/// The checker of `sends_resolved`.
#[derive(Debug, Default)]
pub(super) struct SendsResolved {
    healing: Healing,
    /// True for messages sent and not resolved.
    pending: Messages<bool>,
    senders: Table<Sender>,
    /// Minimum number of members with which messages are ordered.
    members_min: usize,
    checked: u64,
}

/// After one of these kinds a life receives nothing more.
const LAST: u64 = Kind::Excluded.bit() | Kind::Gone.bit();

/// Actions of members, which a life does not take after its part in the group is over.
const FOR_THE_GROUP: u64 =
    Kind::Sent.bit() | Kind::Acknowledged.bit() | Kind::Numbered.bit() | Kind::EpochBegun.bit();

impl SendsResolved {
    pub(super) fn new(terms: &GroupTerms) -> SendsResolved {
        SendsResolved { members_min: terms.config.members_min.into(), ..SendsResolved::default() }
    }

    fn fault(&mut self, end: &End) -> Option<String> {
        for standing in &end.standings {
            let life: Life = standing.life;
            let sender = *self.senders.at(life);
            let goes_on = matches!(standing.phase, Phase::Member | Phase::Resetting);
            if let Some(number) = sender.unknown.filter(|_| goes_on) {
                return Some(format!(
                    "number {number} of {life:?} was reported unknown, and it is still a member"
                ));
            }
            // A member of a group that has fewer members than its minimum waits until others join.
            let waits = goes_on && standing.members.len() < self.members_min;
            if sender.pending > 0 && !waits && self.healing.covers(life) {
                return Some(format!("{} messages of {life:?} have no outcome", sender.pending));
            }
        }
        None
    }
}

impl Property for SendsResolved {
    fn name(&self) -> &'static str {
        "sends_resolved"
    }

    fn interests(&self) -> u64 {
        LAST | FOR_THE_GROUP | Kind::Healed.bit() | Kind::SendResult.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        let kind = record.what.kind().bit();
        if kind & FOR_THE_GROUP != 0
            && let Some(number) = self.senders.get(record.life).and_then(|sender| sender.unknown)
        {
            return broken(self, record, || format!("number {number} had been reported unknown to it"));
        }
        match record.what {
            What::Sent { number, .. } => {
                if let Some(pending) = self.pending.at(record.life, number) {
                    *pending = true;
                    self.senders.at(record.life).pending += 1;
                }
            }
            What::SendResult { number, outcome } => {
                self.checked += 1;
                let sender = self.senders.at(record.life);
                let last = std::mem::replace(&mut sender.resolved, number);
                if outcome == Outcome::Unknown {
                    sender.unknown = Some(number);
                }
                if number <= last {
                    return broken(self, record, || {
                        format!("number {number} is resolved after number {last}")
                    });
                }
                match self.pending.at(record.life, number) {
                    Some(pending) if *pending => *pending = false,
                    _ => return broken(self, record, || format!("number {number} was never sent")),
                }
                self.senders.at(record.life).pending -= 1;
            }
            What::Acknowledged { .. } | What::Numbered { .. } => {}
            _ if kind & LAST != 0 => {
                let pending = self.senders.at(record.life).pending;
                if pending > 0 {
                    return broken(self, record, || format!("{pending} messages have no outcome"));
                }
            }
            _ => self.healing.follow(record),
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let fault = self.fault(end);
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
    use crate::record::Epoch;

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.send(Life(2));
        fixture.send(Life(1));
        fixture.heal();
        fixture.reset(&[Life(0), Life(1)]);
        fixture.message(Life(1));
        fixture
    }

    fn resolved(record: &Record) -> bool {
        matches!(record.what, What::SendResult { .. })
    }

    #[test]
    fn accepts_one_outcome_for_each() {
        good().good(SendsResolved::default());
    }

    #[test]
    fn rejects_sends_without_an_outcome() {
        let mut fixture = good();
        let last = fixture.position(resolved);
        fixture.records.remove(last);
        fixture.bad(SendsResolved::default());
    }

    #[test]
    fn rejects_two_outcomes() {
        let mut fixture = good();
        let again = fixture.last(resolved).clone();
        fixture.records.push(again);
        fixture.bad(SendsResolved::default());
    }

    #[test]
    fn rejects_outcomes_out_of_order() {
        let mut fixture = Fixture::of(3, 1);
        let (first, second) = (fixture.send(Life(1)), fixture.send(Life(1)));
        for (number, seqno) in [(second, 9), (first, 8)] {
            fixture.record(Life(1), What::SendResult { number, outcome: Outcome::Ok { seqno } });
        }
        fixture.bad(SendsResolved::default());
    }

    #[test]
    fn rejects_an_unknown_outcome_of_a_member() {
        let mut fixture = good();
        let failed = |r: &Record| matches!(r.what, What::SendResult { outcome: Outcome::Failed, .. });
        if let What::SendResult { outcome, .. } = &mut fixture.last(failed).what {
            *outcome = Outcome::Unknown;
        }
        fixture.bad(SendsResolved::default());
    }

    /// Life 1 receives *unknown* for its message.
    fn cut_off() -> (Fixture, MessageNumber) {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(1));
        fixture.record(Life(1), What::SendResult { number, outcome: Outcome::Unknown });
        (fixture, number)
    }

    #[test]
    fn a_sender_that_received_unknown_does_nothing_more_for_the_group() {
        let (mut fixture, number) = cut_off();
        let (epoch, end) = (Epoch(0), fixture.end() + 1);
        let goes_on = [
            What::Sent { number: number + 1, quality: unisono_core::Quality::ORDERED, hash: 1, bytes: 8 },
            What::Acknowledged { epoch, through: end },
            What::Numbered { epoch, term: 0, from: end, to: end },
            What::EpochBegun { epoch: Epoch(1) },
        ];
        for what in goes_on {
            let mut fixture = fixture.clone();
            fixture.record(Life(1), what);
            fixture.crash(Life(1));
            fixture.bad(SendsResolved::default());
        }
        // It may still deliver what it knows to be accepted, and the others go on.
        fixture.message(Life(2));
        fixture.crash(Life(1));
        fixture.reset(&[Life(0), Life(2)]);
        fixture.message(Life(2));
        fixture.good(SendsResolved::default());
    }

    #[test]
    fn rejects_a_stream_that_ends_before_all_outcomes() {
        for last in [What::Excluded { epoch: None }, What::Gone] {
            let mut fixture = Fixture::of(3, 1);
            fixture.message(Life(1));
            let number = fixture.send(Life(1));
            let unknown = What::SendResult { number, outcome: Outcome::Unknown };
            let mut late = fixture.clone();
            for (fixture, what) in [(&mut fixture, [&unknown, &last]), (&mut late, [&last, &unknown])] {
                what.into_iter().for_each(|what| fixture.record(Life(1), what.clone()));
                fixture.crash(Life(1));
            }
            fixture.good(SendsResolved::default());
            late.bad(SendsResolved::default());
        }
    }

    #[test]
    fn accepts_a_crash_before_the_outcome() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.send(Life(1));
        fixture.crash(Life(1));
        fixture.good(SendsResolved::default());
    }

    #[test]
    fn rejects_an_outcome_without_a_message() {
        let mut fixture = good();
        fixture.record(Life(1), What::SendResult { number: 77, outcome: Outcome::Failed });
        fixture.bad(SendsResolved::default());
    }
}
