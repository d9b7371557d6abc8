//! The ring: a token that goes round. It goes to the next member in rank order, and leaves out only members that have
//! shown that they hold the last message, since they had the token after it. Without messages to number it comes to rest.
//!
//! [`super::single_sequencer`] checks that a term has one sequencer, and [`super::total_order`] that no member numbers over
//! a hole.

use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{Seqno, SlowMember, Time};

/// A member that has kept the token for this time may give it on because its application stands still.
const STUCK_AFTER: Duration = Duration::from_millis(10);

/// What an epoch's log says of its token.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Everything through here was looked at.
    end: Seqno,
    /// The member that has the token, once an event has named one.
    site: Option<Life>,
    /// Members that have had the token since the last message was numbered, its numberer first.
    shown: Vec<Life>,
    /// Number of passes directly below.
    passes: usize,
    /// Number of those that came soon after the one before, or after the message.
    quick: usize,
    /// When the last pass was given.
    passed_at: Time,
    /// The last entry, if it is a pass: its seqno, and the member that gave the token on.
    given: Option<(Seqno, Life)>,
    /// Most members of a view of the epoch that any life knew.
    members: usize,
}

impl Round {
    /// Notes the entry that follows. Returns a fault if it is a pass that must not be.
    fn note(
        &mut self,
        at: Time,
        entry: &Entry,
        view: &[Life],
        is_strict: bool,
        asked: usize,
    ) -> Option<String> {
        match entry {
            Entry::Pass(to) => {
                let giver = self.site.replace(*to);
                self.passes += 1;
                self.shown.extend(giver);
                self.quick += usize::from(at.since(self.passed_at) < STUCK_AFTER);
                self.passed_at = at;
                if self.quick > self.members + asked || self.passes > 2 * self.members + asked {
                    return Some(format!("{} passes without a message among them", self.passes));
                }
                let left_out =
                    giver.filter(|_| is_strict).and_then(|giver| self.left_out(view, giver, *to))?;
                Some(format!("{left_out:?} is left out"))
            }
            Entry::Message { .. } => {
                (self.passes, self.quick) = (0, 0);
                self.shown.clear();
                self.shown.extend(self.site);
                None
            }
            Entry::Role(sequencer) | Entry::Order { sequencer, .. } => {
                (self.passes, self.quick, self.site) = (0, 0, Some(*sequencer));
                self.shown.clear();
                None
            }
            Entry::Join(_) | Entry::Leave(_) => {
                (self.passes, self.quick) = (0, 0);
                // A leave of the member that has the token names another one.
                if let Entry::Leave(leaver) = entry {
                    self.site = self.site.filter(|site| site != leaver);
                }
                None
            }
            Entry::Reset(_) | Entry::Base(_) => {
                (self.passes, self.quick, self.site) = (0, 0, None);
                self.shown.clear();
                None
            }
        }
    }

    /// Returns a member of the view between two others that has not shown that it holds the last message.
    fn left_out(&self, view: &[Life], from: Life, to: Life) -> Option<Life> {
        let place = view.iter().position(|life| *life == from)?;
        let between = view.iter().cycle().skip(place + 1).take(view.len()).take_while(|life| **life != to);
        between.copied().find(|life| !self.shown.contains(life))
    }
}

/// Returns a fault if a member gave the token on that had not accepted the last join, leave or switch. The caller knows
/// that another member holds the pass: what the giver had accepted by then is recorded.
fn unsettled((seqno, giver): (Seqno, Life), epoch: Epoch, facts: &Facts) -> Option<String> {
    let change = facts.entries.last_view_change(epoch, seqno)?;
    let accepted = facts.marks.of(giver).accepted;
    (accepted < change)
        .then(|| format!("{giver:?} gave the token on, and had not accepted the change at {change}"))
}

/// The checker of `ring`.
#[derive(Debug)]
pub(super) struct Ring {
    /// False where a member in the way may give the token away.
    is_strict: bool,
    /// Number of times that an application has asked for the token to move.
    asked: usize,
    rounds: Table<Round>,
    checked: u64,
}

impl Ring {
    pub(super) fn new(terms: &GroupTerms) -> Ring {
        let is_strict = terms.config.slow_member == SlowMember::Wait;
        Ring { is_strict, asked: 0, rounds: Table::default(), checked: 0 }
    }

    fn note(
        &mut self,
        at: Time,
        life: Life,
        epoch: Epoch,
        seqno: Seqno,
        entry: &Entry,
        facts: &Facts,
    ) -> Option<String> {
        let round = self.rounds.at(epoch);
        if seqno <= round.end {
            return round
                .given
                .filter(|given| given.0 == seqno)
                .and_then(|given| unsettled(given, epoch, facts));
        }
        let follows = seqno == round.end + 1;
        round.end = seqno;
        self.checked += 1;
        if !follows {
            // The epoch begins here.
            (round.site, round.passes, round.quick) = (None, 0, 0);
            round.shown.clear();
        }
        // The first to hold a pass is the member that gives the token on.
        round.given = matches!(entry, Entry::Pass(_)).then_some((seqno, life));
        let view = facts.entries.views.at(epoch, seqno).unwrap_or_default();
        round.members = round.members.max(view.len()).max(2);
        round.note(at, entry, view, self.is_strict && self.asked == 0, self.asked)
    }
}

impl Property for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit() | Kind::HandOverAsked.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let What::Stored { epoch, through, entry } = &record.what else {
            self.asked += 1;
            return Ok(());
        };
        match self.note(record.at, record.life, *epoch, *through, entry, facts) {
            Some(fault) => broken(self, record, || fault),
            None => Ok(()),
        }
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::MessageNumber;

    const VIEW: [Life; 4] = [Life(0), Life(1), Life(2), Life(3)];

    fn message() -> Entry {
        Entry::Message { sender: Life(0), number: 1 as MessageNumber }
    }

    /// Returns the fault of a log with these entries, of which the first names its site.
    fn fault(entries: &[Entry]) -> Option<String> {
        fault_at(entries, Duration::from_millis(1))
    }

    /// The same for a log of which an entry is made in each of these intervals.
    fn fault_at(entries: &[Entry], every: Duration) -> Option<String> {
        let mut round = Round { members: VIEW.len(), ..Round::default() };
        let mut at = Time::from_nanos(1_000_000_000);
        entries.iter().find_map(|entry| {
            at = at + every;
            round.note(at, entry, &VIEW, true, 0)
        })
    }

    fn pass(to: u32) -> Entry {
        Entry::Pass(Life(to))
    }

    #[test]
    fn the_token_goes_to_the_next_in_rank_order() {
        assert_eq!(
            fault(&[pass(0), message(), pass(1), message(), pass(2), pass(3), message(), pass(0)]),
            None
        );
        let left_out = fault(&[pass(0), message(), pass(2)]);
        assert_eq!(left_out.as_deref(), Some("Life(1) is left out"));
    }

    #[test]
    fn a_member_that_has_shown_the_last_message_may_be_left_out() {
        assert_eq!(
            fault(&[pass(2), message(), pass(3), pass(0), pass(1), pass(3)]),
            None,
            "Life(2) numbered it"
        );
        let early = fault(&[pass(1), pass(2), message(), pass(3), pass(0), pass(2)]);
        assert_eq!(early.as_deref(), Some("Life(1) is left out"), "it had the token before the message");
    }

    #[test]
    fn a_join_and_a_leave_leave_what_was_shown_and_a_switch_does_not() {
        let order = Entry::Order { is_ring: true, sequencer: Life(2) };
        let before = [pass(1), message(), pass(2)];
        for (change, left_out) in [
            (Entry::Join(Life(9)), None),
            (Entry::Leave(Life(9)), None),
            (order, Some("Life(1) is left out".to_owned())),
        ] {
            let log = [&before[..], &[change, pass(3), pass(0), pass(2)]].concat();
            assert_eq!(fault(&log), left_out);
        }
    }

    #[test]
    fn a_token_without_messages_comes_to_rest() {
        let mut log = vec![pass(0), message()];
        log.extend((1..=4).map(|to| pass(to % 4)));
        assert_eq!(fault(&log), None, "one round");
        log.extend((5..=8).map(|to| pass(to % 4)));
        assert_eq!(fault(&log).as_deref(), Some("5 passes without a message among them"));
        // Members may have given the token on because their applications stand still.
        assert_eq!(fault_at(&log, STUCK_AFTER), None);
        log.push(pass(1));
        assert_eq!(fault_at(&log, STUCK_AFTER).as_deref(), Some("9 passes without a message among them"));
    }
}
