//! Compares a member's marks before and after an input, and makes a record of each change.

use super::{Epoch, Preparation, What};
use std::ops::RangeInclusive;
use unisono_core::{Marks, Seqno};

/// Receives the records of one life.
pub(crate) trait Listener {
    /// Takes the next record.
    fn note(&mut self, what: What);

    /// Takes what the life stored at these seqnos, in an epoch that it has just entered if `enters`. There is at least
    /// one.
    fn note_stored(&mut self, epoch: Epoch, seqnos: RangeInclusive<Seqno>, enters: bool);
}

/// Passes each change from `known` to `now`, the marks of one life before and after an input, to `listener`, and sets
/// `known` to `now`. `epoch` is the epoch of `now`, and `next` the epoch that the life has prepared.
///
/// Inlined, like [`Listener::note`], so that each call is compiled for its kind of record.
#[inline(always)]
pub(crate) fn mark_changes(
    known: &mut Marks,
    now: &Marks,
    epoch: Epoch,
    next: Option<Epoch>,
    listener: &mut impl Listener,
) {
    let same_epoch = !moves(&mut known.epoch, now.epoch);
    if !same_epoch {
        listener.note(What::EpochBegun { epoch });
    }
    let held = known.received;
    if moves(&mut known.received, now.received) || !same_epoch {
        // A log that begins anew, or is cut, ends with what stands at the mark.
        let first = if same_epoch { (held + 1).max(now.purged).min(now.received) } else { now.purged };
        listener.note_stored(epoch, first..=now.received, !same_epoch);
    }
    let reported = if same_epoch { known.acknowledged } else { 0 };
    known.acknowledged = now.acknowledged;
    if now.acknowledged > reported {
        listener.note(What::Acknowledged { epoch, through: now.acknowledged });
    }
    if moves(&mut known.accepted, now.accepted) || !same_epoch {
        listener.note(What::Accepted { epoch, through: now.accepted });
    }
    let (before, after) = (std::mem::replace(&mut known.numbered, now.numbered), now.numbered);
    let same_term = same_epoch && before.term == after.term;
    let from = if same_term { before.through.max(after.after) } else { after.after };
    if after.through > from {
        listener.note(What::Numbered { epoch, term: after.term, from: from + 1, to: after.through });
    }
    if moves(&mut known.purged, now.purged) && same_epoch {
        listener.note(What::Purged { epoch, through: now.purged });
    }
    if (moves(&mut known.promised, now.promised) || !same_epoch)
        && let Some(ballot) = now.promised
    {
        listener.note(What::Promised { epoch, ballot });
    }
    if (moves(&mut known.prepared, now.prepared) || !same_epoch)
        && let (Some(prepared), Some(next)) = (now.prepared, next)
    {
        let unisono_core::Prepared { ballot, keep, start, .. } = prepared;
        let preparation = Preparation { ballot, next, keep, start };
        listener.note(What::Prepared { epoch, preparation: Box::new(preparation) });
    }
    if std::mem::replace(&mut known.history, now.history) < now.history {
        listener.note(What::HistoryUsed { entries: now.history as u32 });
    }
    (known.term, known.acting, known.delivered) = (now.term, now.acting, now.delivered);
}

/// Updates one mark; true if it changed.
#[inline(always)]
fn moves<T: PartialEq>(known: &mut T, now: T) -> bool {
    *known != now && {
        *known = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entry, Life};
    use unisono_core::EpochTag;

    impl Listener for Vec<What> {
        fn note(&mut self, what: What) {
            self.push(what);
        }

        fn note_stored(&mut self, epoch: Epoch, seqnos: RangeInclusive<Seqno>, _: bool) {
            let entry = |through| Entry::Message { sender: Life(0), number: through };
            self.extend(seqnos.map(|through| What::Stored { epoch, through, entry: entry(through) }));
        }
    }

    fn changes(mut known: Marks, now: Marks) -> Vec<What> {
        let mut found = Vec::new();
        mark_changes(&mut known, &now, Epoch(0), None, &mut found);
        assert_eq!(known, now);
        found
    }

    fn marks(received: Seqno, numbered: (Seqno, Seqno, Seqno)) -> Marks {
        let (term, after, through) = numbered;
        Marks {
            epoch: EpochTag(1),
            received,
            numbered: unisono_core::Numbered { term, after, through },
            ..Marks::default()
        }
    }

    #[test]
    fn a_successor_owns_the_seqnos_that_it_assigned() {
        let found = changes(marks(10, (3, 3, 3)), marks(14, (12, 12, 14)));
        assert!(found.contains(&What::Numbered { epoch: Epoch(0), term: 12, from: 13, to: 14 }), "{found:?}");
    }

    #[test]
    fn a_predecessor_owns_the_event_that_names_the_next() {
        let found = changes(marks(10, (3, 3, 10)), marks(12, (3, 3, 12)));
        assert!(found.contains(&What::Numbered { epoch: Epoch(0), term: 3, from: 11, to: 12 }), "{found:?}");
    }

    #[test]
    fn a_member_that_only_receives_numbers_nothing() {
        let found = changes(marks(10, (3, 3, 3)), marks(12, (3, 3, 3)));
        assert_eq!(stored(&found), [11, 12]);
        assert_eq!(found.len(), 2);
    }

    fn stored(found: &[What]) -> Vec<Seqno> {
        let through = |what: &What| match what {
            What::Stored { through, .. } => Some(*through),
            _ => None,
        };
        found.iter().filter_map(through).collect()
    }

    #[test]
    fn a_log_that_is_cut_or_begins_anew_ends_with_what_stands_at_the_mark() {
        let zero = (0, 0, 0);
        assert_eq!(stored(&changes(marks(12, zero), marks(10, zero))), [10]);
        let begun = Marks { purged: 20, ..marks(21, zero) };
        assert_eq!(stored(&changes(marks(12, zero), begun)), [20, 21]);
    }
}
