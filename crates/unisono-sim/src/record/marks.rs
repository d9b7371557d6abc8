//! From a member's marks, before and after an input, to the records that say how they moved.

use super::{Epoch, Preparation, What};
use unisono_core::Marks;

/// Takes records of one kind after the other.
pub(crate) trait Listener {
    /// Something happened.
    fn tell(&mut self, what: What);
}

/// Tells each change from `before` to `after`, the marks of one life before and after an input. `epoch` is of
/// `after`, `next` of what it has prepared.
///
/// Inlined, as is what it tells: each place then knows what kind of record it makes.
#[inline(always)]
pub(crate) fn mark_changes(
    before: &Marks,
    after: &Marks,
    epoch: Epoch,
    next: Option<Epoch>,
    listener: &mut impl Listener,
) {
    let same_epoch = before.epoch == after.epoch;
    if !same_epoch {
        listener.tell(What::EpochBegun { epoch });
    }
    if !same_epoch || before.received != after.received {
        listener.tell(What::Stored { epoch, through: after.received });
    }
    let told = if same_epoch { before.acknowledged } else { 0 };
    if after.acknowledged > told {
        listener.tell(What::Acknowledged { epoch, through: after.acknowledged });
    }
    if !same_epoch || before.accepted != after.accepted {
        listener.tell(What::Accepted { epoch, through: after.accepted });
    }
    let (known, now) = (before.numbered, after.numbered);
    let from = if same_epoch && known.term == now.term { known.through.max(now.after) } else { now.after };
    if now.through > from {
        listener.tell(What::Numbered { epoch, term: now.term, from: from + 1, to: now.through });
    }
    if same_epoch && before.purged != after.purged {
        listener.tell(What::Purged { epoch, through: after.purged });
    }
    if let Some(ballot) = after.promised
        && !(same_epoch && before.promised == after.promised)
    {
        listener.tell(What::Promised { epoch, ballot });
    }
    if let (Some(prepared), Some(next)) = (after.prepared, next)
        && !(same_epoch && before.prepared == after.prepared)
    {
        let preparation = Preparation { ballot: prepared.ballot, next, start: prepared.start };
        listener.tell(What::Prepared { epoch, preparation: Box::new(preparation) });
    }
    if after.history > before.history {
        listener.tell(What::HistoryUsed { entries: after.history as u32 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::{EpochTag, Seqno};

    impl Listener for Vec<What> {
        fn tell(&mut self, what: What) {
            self.push(what);
        }
    }

    fn changes(before: Marks, after: Marks) -> Vec<What> {
        let mut told = Vec::new();
        mark_changes(&before, &after, Epoch(0), None, &mut told);
        told
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
    fn a_successor_owns_what_it_gave_out() {
        let told = changes(marks(10, (3, 3, 3)), marks(14, (12, 12, 14)));
        assert!(told.contains(&What::Numbered { epoch: Epoch(0), term: 12, from: 13, to: 14 }), "{told:?}");
    }

    #[test]
    fn a_predecessor_owns_the_event_that_names_the_next() {
        let told = changes(marks(10, (3, 3, 10)), marks(12, (3, 3, 12)));
        assert!(told.contains(&What::Numbered { epoch: Epoch(0), term: 3, from: 11, to: 12 }), "{told:?}");
    }

    #[test]
    fn who_only_receives_numbers_nothing() {
        let told = changes(marks(10, (3, 3, 3)), marks(12, (3, 3, 3)));
        assert_eq!(told, [What::Stored { epoch: Epoch(0), through: 12 }]);
    }
}
