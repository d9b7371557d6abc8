//! The token moves on: in a settled ring the member with the token gives it to another soon after it has numbered a message,
//! whether or not the others' messages fill the history.
//!
//! A ring is settled when the faults are over and for a while no member has come, gone or asked for another order. What
//! the token does otherwise is judged by [`super::ring`].

use super::healing::Healing;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken, final_result};
use crate::record::{End, Entry, Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{Order, Seqno, Time};

/// Longest time from a member's first message in a term to the end of the term.
const TERM_MAX: Duration = Duration::from_millis(200);
/// A ring in which something has changed counts as settled after this time: a member that was asked to admit a joiner keeps
/// the token for 150 ms if it comes within a second, and the others may take as long to forget a member that has left.
const CALM: Duration = Duration::from_secs(2);

/// Kinds of records after which a ring is not settled for a while.
const UNSETTLING: [Kind; 19] = [
    Kind::Started,
    Kind::LeaveAsked,
    Kind::ResetAsked,
    Kind::OrderAsked,
    Kind::Ended,
    Kind::Entered,
    Kind::Joined,
    Kind::Left,
    Kind::OrderChanged,
    Kind::Reset,
    Kind::Excluded,
    Kind::Gone,
    Kind::JoinFailed,
    Kind::EpochBegun,
    Kind::Promised,
    Kind::LeaveKnown,
    Kind::Parted,
    Kind::Crashed,
    Kind::Healed,
];

/// What an epoch's log says of its token.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Everything through here was looked at.
    end: Seqno,
    /// True if the token goes round; `None` if the epoch has not shown it.
    is_ring: Option<bool>,
    /// The member that has the token, once an event has named one.
    site: Option<Life>,
    /// When it numbered its first message in this term.
    numbered_at: Option<Time>,
}

impl Round {
    /// Notes the entry that follows.
    fn note(&mut self, at: Time, seqno: Seqno, entry: &Entry) {
        self.end = seqno;
        match entry {
            Entry::Message { .. } => {
                self.numbered_at.get_or_insert(at);
            }
            Entry::Pass(to) => self.begin_term(Some(true), Some(*to)),
            Entry::Role(sequencer) => self.begin_term(Some(false), Some(*sequencer)),
            Entry::Order { is_ring, sequencer } => self.begin_term(Some(*is_ring), Some(*sequencer)),
            // A leave of the member that has the token names another one.
            _ => self.begin_term(self.is_ring, None),
        }
    }

    fn begin_term(&mut self, is_ring: Option<bool>, site: Option<Life>) {
        (self.is_ring, self.site, self.numbered_at) = (is_ring, site, None);
    }
}

/// The checker of `token_moves`.
#[derive(Debug)]
pub(super) struct TokenMoves {
    founded_as_ring: bool,
    /// True if any switch of the order was seen: an epoch without passes may have either order.
    has_switched: bool,
    healing: Healing,
    /// Lives that began and have not entered a group.
    seeking: Vec<Life>,
    unsettled_at: Time,
    rounds: Table<Round>,
    checked: u64,
}

impl TokenMoves {
    pub(super) fn new(terms: &GroupTerms) -> TokenMoves {
        TokenMoves {
            founded_as_ring: terms.config.order == Order::Token,
            has_switched: false,
            healing: Healing::default(),
            seeking: Vec::new(),
            unsettled_at: Time::ZERO,
            rounds: Table::default(),
            checked: 0,
        }
    }

    fn note_unsettling(&mut self, record: &Record) {
        self.healing.follow(record);
        self.unsettled_at = record.at;
        match record.what {
            What::Started { .. } => self.seeking.push(record.life),
            What::Entered { .. } | What::JoinFailed { .. } | What::Crashed | What::Ended | What::Gone => {
                self.seeking.retain(|life| *life != record.life);
            }
            _ => {}
        }
    }

    /// Returns the time from which the ring of this epoch is settled; `None` if it is no ring of members for which the
    /// faults are over.
    fn settled_from(&self, epoch: Epoch, facts: &Facts) -> Option<Time> {
        let round = self.rounds.get(epoch)?;
        let view = facts.entries.views.at(epoch, round.end)?;
        let is_ring = round.is_ring.unwrap_or(self.founded_as_ring && !self.has_switched);
        let is_judged = is_ring
            && view.len() > 1
            && self.seeking.is_empty()
            && view.iter().all(|life| self.healing.covers(*life));
        is_judged.then_some(self.unsettled_at + CALM)
    }

    /// Returns a fault if the member with the token has kept it for too long.
    fn stays(&mut self, at: Time, epoch: Epoch, facts: &Facts) -> Option<String> {
        let settled_from = self.settled_from(epoch, facts)?;
        let round = self.rounds.get(epoch)?;
        let numbered_at = round.numbered_at?;
        self.checked += 1;
        let kept = at.since(numbered_at.max(settled_from));
        // Clocks run up to one percent too fast.
        (kept > TERM_MAX * 102 / 100)
            .then(|| format!("{:?} numbered a message and has kept the token for {kept:?} since", round.site))
    }
}

impl Property for TokenMoves {
    fn name(&self) -> &'static str {
        "token_moves"
    }

    fn interests(&self) -> u64 {
        UNSETTLING.iter().fold(Kind::Stored.bit(), |kinds, kind| kinds | kind.bit())
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let fault = match &record.what {
            What::Stored { epoch, through, entry } => {
                if *through <= self.rounds.at(*epoch).end {
                    return Ok(());
                }
                self.has_switched |= matches!(entry, Entry::Order { .. });
                let fault = self.stays(record.at, *epoch, facts);
                self.rounds.at(*epoch).note(record.at, *through, entry);
                fault
            }
            _ => {
                self.note_unsettling(record);
                None
            }
        };
        match fault {
            Some(fault) => broken(self, record, || fault),
            None => Ok(()),
        }
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let epochs = end.standings.iter().filter_map(|standing| standing.epoch);
        // An epoch that some have left for a later one is over, though one that they excluded may not know it yet.
        let is_present = |epoch: &Epoch| {
            let view = self.rounds.get(*epoch).and_then(|round| facts.entries.views.at(*epoch, round.end));
            let has_left = |life: &Life| {
                end.standings.iter().any(|standing| standing.life == *life && standing.epoch > Some(*epoch))
            };
            !view.is_some_and(|view| view.iter().any(has_left))
        };
        let present: Vec<Epoch> = epochs.filter(is_present).collect();
        let fault = present.into_iter().find_map(|epoch| self.stays(end.at, epoch, facts));
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

    /// The token comes to life 1, which numbers a message and passes the token on after `kept`.
    fn fixture(kept: Duration) -> Fixture {
        let mut fixture = with_token();
        fixture.wait(kept);
        let (epoch, end) = (fixture.epoch, fixture.end());
        fixture.record(Life(1), What::Stored { epoch, through: end + 3, entry: Entry::Pass(Life(2)) });
        fixture
    }

    /// The token comes to life 1, which numbers a message.
    fn with_token() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Token;
        fixture.record(Life::WORLD, What::Healed { core: (0..3).map(Life).collect() });
        fixture.wait(CALM);
        let (epoch, end) = (fixture.epoch, fixture.end());
        let mut store = |seqno, entry| {
            fixture.record(Life(1), What::Stored { epoch, through: seqno, entry });
        };
        store(end + 1, Entry::Pass(Life(1)));
        store(end + 2, Entry::Message { sender: Life(1), number: 1 });
        fixture
    }

    #[test]
    fn accepts_a_token_that_moves_on() {
        let fixture = fixture(TERM_MAX);
        fixture.good(TokenMoves::new(&fixture.terms));
    }

    #[test]
    fn rejects_a_token_that_stays() {
        let fixture = fixture(TERM_MAX + Duration::from_millis(10));
        fixture.bad(TokenMoves::new(&fixture.terms));
    }

    #[test]
    fn at_the_end_a_token_stays_only_in_an_epoch_that_no_member_has_left_for_a_later_one() {
        let mut fixture = with_token();
        fixture.wait(TERM_MAX * 2);
        let check = |end: &End| fixture.check_with_end(TokenMoves::new(&fixture.terms), end);
        let mut end = fixture.ending();
        assert!(check(&end).is_err(), "all are in the epoch");
        end.standings[2].epoch = None;
        assert!(check(&end).is_err(), "one is in none");
        end.standings[2].epoch = Some(Epoch(fixture.epoch.0 + 1));
        assert!(check(&end).is_ok(), "one has gone on");
    }
}
