//! What follows from what members stored and prepared, whether or not any application has received it yet: which epoch
//! follows which, the views and changes of each epoch, and the proposals for the next one.
//!
//! An entry becomes a fact when the first member stores it, tentative or not. A sequencer stores what it numbers before
//! any other member can, so views and changes are known before anything depends on them.

use super::streams::{Lineage, Views};
use super::tables::Table;
use crate::record::{Entry, Epoch, Life, Preparation, Record, What};
use unisono_core::{Ballot, Seqno};

/// A proposal, and the members that prepared it under one ballot.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) ballot: Ballot,
    pub(super) next: Epoch,
    pub(super) keep: Seqno,
    pub(super) start: Seqno,
    pub(super) by: Vec<Life>,
    /// When the first member entered the epoch, this was the highest ballot under which it had been prepared.
    pub(super) is_entered: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Which epoch follows which.
    pub(super) lineage: Lineage,
    /// Views of each epoch.
    pub(super) views: Views,
    /// By epoch, its joins, leaves and role events, ascending.
    changes: Table<Vec<(Seqno, Entry)>>,
    /// By epoch, the seqnos of its joins, leaves and switches, ascending: a ring has many passes between two of them.
    view_changes: Table<Vec<Seqno>>,
    /// By life, the epochs and seqnos of its leave.
    leaves: Table<Vec<(Epoch, Seqno)>>,
    /// By epoch, the proposals for the next one.
    proposals: Table<Vec<Proposal>>,
    /// By epoch, the lives that began it, in this order.
    begun: Table<Vec<Life>>,
    /// By life, its epoch and the one before.
    epochs: Table<[Option<Epoch>; 2]>,
}

impl Entries {
    /// Iterates over the joins, leaves and role events that an epoch has after one seqno, through another.
    pub(super) fn changes(
        &self,
        epoch: Epoch,
        after: Seqno,
        through: Seqno,
    ) -> impl Iterator<Item = &(Seqno, Entry)> {
        let changes = self.changes.get(epoch).map_or(&[][..], Vec::as_slice);
        let first = changes.partition_point(|(seqno, _)| *seqno <= after);
        changes[first..].iter().take_while(move |(seqno, _)| *seqno <= through)
    }

    /// Returns the member that the last role event of an epoch after one seqno, through another, names.
    pub(super) fn named_within(&self, epoch: Epoch, after: Seqno, through: Seqno) -> Option<Life> {
        let named = self.changes(epoch, after, through).filter_map(|(_, entry)| match entry {
            Entry::Role(life) | Entry::Pass(life) | Entry::Order { sequencer: life, .. } => Some(*life),
            _ => None,
        });
        named.last()
    }

    /// Returns the seqno of the last join or leave of an epoch before a seqno.
    pub(super) fn last_view_change(&self, epoch: Epoch, before: Seqno) -> Option<Seqno> {
        let seqnos = self.view_changes.get(epoch)?;
        seqnos[..seqnos.partition_point(|seqno| *seqno < before)].last().copied()
    }

    /// Returns the seqno of the next join or leave of an epoch after a seqno.
    pub(super) fn next_view_change(&self, epoch: Epoch, after: Seqno) -> Option<Seqno> {
        let seqnos = self.view_changes.get(epoch)?;
        seqnos.get(seqnos.partition_point(|seqno| *seqno <= after)).copied()
    }

    /// Returns the epochs and seqnos of a life's leave, in the order in which they were numbered.
    pub(super) fn leaves(&self, life: Life) -> &[(Epoch, Seqno)] {
        self.leaves.get(life).map_or(&[], Vec::as_slice)
    }

    pub(super) fn proposals(&self, epoch: Epoch) -> &[Proposal] {
        self.proposals.get(epoch).map_or(&[], Vec::as_slice)
    }

    /// Returns the lives that began an epoch, in this order.
    pub(super) fn begun(&self, epoch: Epoch) -> &[Life] {
        self.begun.get(epoch).map_or(&[], Vec::as_slice)
    }

    /// Returns the epoch of a life.
    #[inline]
    pub(super) fn epoch(&self, life: Life) -> Option<Epoch> {
        self.epochs.get(life)?[0]
    }

    /// Returns the epoch in which a life was before its present one.
    pub(super) fn epoch_before(&self, life: Life) -> Option<Epoch> {
        self.epochs.get(life)?[1]
    }

    /// Takes note that a life began an epoch.
    pub(super) fn begin(&mut self, life: Life, epoch: Epoch) {
        let epochs = self.epochs.at(life);
        *epochs = [Some(epoch), epochs[0]];
        let begun = self.begun.at(epoch);
        begun.push(life);
        if let (1, Some(before)) = (begun.len(), self.epoch_before(life)) {
            let prepared = self.proposals.at(before).iter_mut().filter(|proposal| proposal.next == epoch);
            if let Some(highest) = prepared.max_by_key(|proposal| proposal.ballot) {
                highest.is_entered = true;
            }
        }
    }

    /// Takes note of what a life prepared.
    pub(super) fn prepare(&mut self, life: Life, epoch: Epoch, preparation: &Preparation) {
        let Preparation { ballot, next, keep, start } = *preparation;
        let proposals = self.proposals.at(epoch);
        let same = |known: &&mut Proposal| {
            (known.ballot, known.next, known.keep, known.start) == (ballot, next, keep, start)
        };
        match proposals.iter_mut().find(same) {
            Some(known) => known.by.push(life),
            None => {
                proposals.push(Proposal { ballot, next, keep, start, by: vec![life], is_entered: false });
            }
        }
    }

    /// Takes note of an entry other than a message.
    #[cold]
    pub(super) fn store(&mut self, record: &Record) {
        let What::Stored { epoch, through, ref entry } = record.what else { return };
        match entry {
            Entry::Message { .. } => {}
            // The first log of an epoch begins with the epoch, later ones may begin anywhere in it.
            Entry::Base(view) => {
                if self.lineage.start(epoch).is_none() {
                    self.lineage.link(None, epoch, through);
                    self.views.insert(epoch, through, &view.0);
                }
            }
            Entry::Reset(view) => {
                self.lineage.link(self.epoch_before(record.life), epoch, through);
                self.views.insert(epoch, through, &view.0);
            }
            Entry::Join(_) | Entry::Leave(_) | Entry::Role(_) | Entry::Pass(_) | Entry::Order { .. } => {
                self.change(epoch, through, entry);
            }
        }
    }

    fn change(&mut self, epoch: Epoch, seqno: Seqno, entry: &Entry) {
        let changes = self.changes.at(epoch);
        let Err(rank) = changes.binary_search_by_key(&seqno, |(known, _)| *known) else { return };
        let mut view = self.views.at(epoch, seqno.saturating_sub(1)).unwrap_or_default().to_vec();
        match *entry {
            Entry::Join(joiner) if !view.contains(&joiner) => view.push(joiner),
            Entry::Leave(leaver) if view.contains(&leaver) => {
                view.retain(|member| *member != leaver);
                self.leaves.at(leaver).push((epoch, seqno));
            }
            Entry::Role(_) | Entry::Pass(_) | Entry::Order { .. } => {}
            // It changes nothing: the member had joined or left before.
            _ => return,
        }
        changes.insert(rank, (seqno, entry.clone()));
        if !is_role(entry) {
            self.views.insert(epoch, seqno, &view);
            let seqnos = self.view_changes.at(epoch);
            seqnos.insert(seqnos.partition_point(|known| *known < seqno), seqno);
        }
    }
}

/// True for an event that only names a sequencer.
fn is_role(entry: &Entry) -> bool {
    matches!(entry, Entry::Role(_) | Entry::Pass(_))
}
