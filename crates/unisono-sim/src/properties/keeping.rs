//! What a reset must keep, for [`super::uniformity`] and [`super::acknowledged_durable`]. An event was *seen* if it
//! was delivered, or reported to its sender. If its resilience covers the members missing from the next view, its
//! seqno must be below the one at which the next epoch begins.

use super::tables::Table;
use crate::record::Epoch;
use unisono_core::Seqno;

/// Which resets an event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Resets from whose view at most this number of members is missing.
    Resilience(u8),
    /// All resets: a quorum holds a join or leave, with everything below it.
    Quorum,
}

/// A reset that ended an epoch.
#[derive(Clone, Copy, Debug)]
struct Ending {
    child: Epoch,
    start: Seqno,
    missing: usize,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Highest seqno seen, by resilience.
    by_resilience: Vec<Seqno>,
    by_quorum: Seqno,
    endings: Vec<Ending>,
}

/// Which events were seen in each epoch, and how the epoch ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping(Table<Seen>);

impl Keeping {
    /// Takes note that an event was seen. Returns the seqno of a reset that dropped it although it had to keep it.
    pub(super) fn seen(&mut self, epoch: Epoch, seqno: Seqno, durability: Durability) -> Option<Seqno> {
        let seen = self.0.at(epoch);
        match durability {
            Durability::Resilience(resilience) => {
                let resilience = usize::from(resilience);
                if resilience >= seen.by_resilience.len() {
                    seen.by_resilience.resize(resilience + 1, 0);
                }
                let most = &mut seen.by_resilience[resilience];
                *most = (*most).max(seqno);
            }
            Durability::Quorum => seen.by_quorum = seen.by_quorum.max(seqno),
        }
        let cut = |ending: &&Ending| match durability {
            Durability::Resilience(resilience) => ending.missing <= usize::from(resilience),
            Durability::Quorum => true,
        };
        let cuts = seen.endings.iter().filter(|ending| seqno >= ending.start);
        cuts.filter(cut).map(|ending| ending.start).next()
    }

    /// Takes note that an epoch ended: `child` begins at `start`, and `missing` members of the last view are not in
    /// the next. Returns the highest seqno that was seen and had to be kept, but was not.
    pub(super) fn ended(
        &mut self,
        epoch: Epoch,
        child: Epoch,
        start: Seqno,
        missing: usize,
    ) -> Option<Seqno> {
        let seen = self.0.at(epoch);
        if seen.endings.iter().any(|ending| ending.child == child) {
            return None;
        }
        seen.endings.push(Ending { child, start, missing });
        let kept = seen.by_resilience.iter().skip(missing).copied();
        kept.chain([seen.by_quorum]).max().filter(|seen| *seen >= start)
    }
}
