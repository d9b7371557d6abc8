//! What a reset must keep, for [`super::uniformity`] and [`super::acknowledged_durable`]. An event was *seen* if it
//! was delivered, or reported to its sender. Its seqno must be below the one at which the next epoch begins, if its
//! resilience covers the members that are missing: those of the view just below it that are not in the first view of
//! the next epoch. They are its possible holders; who else is missing holds nothing that could be lost. Under *at
//! least n* a member that resets alone may have another view at the end of its log than the members that go on in the
//! epoch.

use super::Facts;
use super::quorum::Rule;
use super::tables::Table;
use crate::record::{Epoch, Life};
use unisono_core::{Quality, Seqno};

/// Which resets an event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Resets from whose first view at most this number of members of the event's view is missing.
    Resilience(u8),
    /// All resets: a quorum holds a join or leave, with everything below it, and so does the majority or the whole view
    /// that holds a message of such a quality.
    Quorum,
}

/// A reset that ended an epoch.
#[derive(Clone, Debug)]
struct Ending {
    child: Epoch,
    start: Seqno,
    /// First view of the next epoch.
    view: Vec<Life>,
}

impl Ending {
    /// True if an event of this durability survives, that was numbered in `view`.
    fn keeps(&self, durability: Durability, view: &[Life]) -> bool {
        match durability {
            Durability::Resilience(resilience) => {
                missing(view, &self.view) <= usize::from(resilience).min(view.len().saturating_sub(1))
            }
            Durability::Quorum => true,
        }
    }
}

/// Returns the number of members of a view of `members` that must hold a message of this quality before it is delivered
/// in a group with this resilience: what the group promises, apart from the code that keeps it.
pub(super) fn holders_asked(quality: Quality, resilience: u8, members: usize) -> usize {
    let promised = usize::from(resilience) + 1;
    let asked = if quality == Quality::TOTAL {
        members
    } else if quality == Quality::MAJORITY {
        members / 2 + 1
    } else {
        (0..=Quality::RESILIENT_MAX).find(|k| Quality::resilient(*k) == quality).map_or(0, usize::from) + 1
    };
    asked.max(promised).min(members)
}

/// Returns which resets a message of this quality survives that was numbered in a view of `members`.
pub(super) fn durability(quality: Quality, resilience: u8, members: usize, intersects: bool) -> Durability {
    if intersects && (quality == Quality::MAJORITY || quality == Quality::TOTAL) {
        return Durability::Quorum;
    }
    let covered = holders_asked(quality, resilience, members).saturating_sub(1);
    Durability::Resilience(u8::try_from(covered).unwrap_or(u8::MAX))
}

/// True if a reset that keeps this seqno has been decided, as `life` may know: a quorum holds the reset, so the entry
/// needs no other holders.
pub(super) fn is_kept(rule: &Rule, life: Life, epoch: Epoch, seqno: Seqno, facts: &Facts) -> bool {
    let entries = &facts.entries;
    let keeps = |next: &Epoch| entries.lineage.keeps(*next, epoch, seqno);
    entries.lineage.children(epoch).iter().any(keeps)
        || entries.proposals(epoch).iter().filter(|proposal| seqno <= proposal.keep).any(|proposal| {
            // The member that decides may prepare within the same input.
            let by = [&proposal.by[..], &[life]].concat();
            let view = entries.views.at(epoch, proposal.keep);
            view.is_some_and(|view| rule.met(&by, view))
        })
}

/// Returns the number of members of a view that are not in the next one.
pub(super) fn missing(view: &[Life], next: &[Life]) -> usize {
    view.iter().filter(|member| !next.contains(member)).count()
}

/// Events with one durability that were numbered in one view.
#[derive(Clone, Debug)]
struct Kept {
    durability: Durability,
    view: Vec<Life>,
    /// Highest seqno seen.
    through: Seqno,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// The one that was looked up last comes last.
    kept: Vec<Kept>,
    endings: Vec<Ending>,
}

/// Which events were seen in each epoch, and how the epoch ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping(Table<Seen>);

impl Keeping {
    /// Takes note that an event was seen that was numbered in `view`. Returns the seqno of a reset that dropped it
    /// although it had to keep it.
    #[inline]
    pub(super) fn seen(
        &mut self,
        epoch: Epoch,
        seqno: Seqno,
        durability: Durability,
        view: &[Life],
    ) -> Option<Seqno> {
        let seen = self.0.at(epoch);
        match seen.kept.last_mut() {
            Some(last) if last.durability == durability && last.view == view => {
                last.through = last.through.max(seqno);
            }
            _ => seen.look_up(seqno, durability, view),
        }
        let cuts = seen.endings.iter().filter(|ending| seqno >= ending.start);
        cuts.filter(|ending| ending.keeps(durability, view)).map(|ending| ending.start).next()
    }

    /// Takes note that an epoch ended: `child` begins at `start` with this view. Returns the highest seqno that was
    /// seen and had to be kept, but was not.
    pub(super) fn ended(&mut self, epoch: Epoch, child: Epoch, start: Seqno, view: &[Life]) -> Option<Seqno> {
        let seen = self.0.at(epoch);
        if seen.endings.iter().any(|ending| ending.child == child) {
            return None;
        }
        let ending = Ending { child, start, view: view.to_vec() };
        let lost = seen.kept.iter().filter(|kept| kept.through >= start);
        let lost = lost.filter(|kept| ending.keeps(kept.durability, &kept.view)).map(|kept| kept.through);
        let lost = lost.max();
        seen.endings.push(ending);
        lost
    }
}

impl Seen {
    /// Takes note of an event with another durability, or of another view, than the last one.
    #[cold]
    fn look_up(&mut self, seqno: Seqno, durability: Durability, view: &[Life]) {
        let same = |kept: &Kept| kept.durability == durability && kept.view == view;
        let mut kept = match self.kept.iter().position(same) {
            Some(index) => self.kept.remove(index),
            None => Kept { durability, view: view.to_vec(), through: 0 },
        };
        kept.through = kept.through.max(seqno);
        self.kept.push(kept);
    }
}
