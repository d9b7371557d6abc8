//! What a reset must keep, for [`super::uniformity`] and [`super::acknowledged_durable`]: whatever was *seen* at a
//! place of an epoch (delivered, or reported to its sender) at a resilience that covers the members missing from
//! the next view lies below the place where the next epoch begins.

use super::tables::Table;
use crate::record::Epoch;
use unisono_core::Seqno;

/// How well what is at a place is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Through a reset from whose view at most so many members are missing.
    Resilience(u8),
    /// Through any reset: joins and leaves, which a quorum holds with everything below them.
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
struct Reach {
    /// The highest place seen, by resilience.
    by_resilience: Vec<Seqno>,
    by_quorum: Seqno,
    endings: Vec<Ending>,
}

/// What was seen in each epoch, and how the epoch ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping(Table<Reach>);

impl Keeping {
    /// Something was seen. Tells the place at which a reset cut it off, if one should not have.
    pub(super) fn seen(&mut self, epoch: Epoch, seqno: Seqno, hold: Hold) -> Option<Seqno> {
        let reach = self.0.at(epoch);
        match hold {
            Hold::Resilience(resilience) => {
                let resilience = usize::from(resilience);
                if resilience >= reach.by_resilience.len() {
                    reach.by_resilience.resize(resilience + 1, 0);
                }
                let most = &mut reach.by_resilience[resilience];
                *most = (*most).max(seqno);
            }
            Hold::Quorum => reach.by_quorum = reach.by_quorum.max(seqno),
        }
        let cut = |ending: &&Ending| match hold {
            Hold::Resilience(resilience) => ending.missing <= usize::from(resilience),
            Hold::Quorum => true,
        };
        let cuts = reach.endings.iter().filter(|ending| seqno >= ending.start);
        cuts.filter(cut).map(|ending| ending.start).next()
    }

    /// An epoch ended: `child` begins at `start`, without `missing` members of the last view. Tells a place that was
    /// seen and should have been kept, if there is one.
    pub(super) fn ended(
        &mut self,
        epoch: Epoch,
        child: Epoch,
        start: Seqno,
        missing: usize,
    ) -> Option<Seqno> {
        let reach = self.0.at(epoch);
        if reach.endings.iter().any(|ending| ending.child == child) {
            return None;
        }
        reach.endings.push(Ending { child, start, missing });
        let kept = reach.by_resilience.iter().skip(missing).copied();
        kept.chain([reach.by_quorum]).max().filter(|seen| *seen >= start)
    }
}
