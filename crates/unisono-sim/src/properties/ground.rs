//! The ground on which liveness is checked: from the moment the runner says that nothing disturbs a core of lives any
//! more, to the end of the run. Without such a moment nothing is checked.

use crate::record::{End, Life, Record, Standing, What};
use unisono_core::{Phase, Time};

/// When, and who.
#[derive(Clone, Debug, Default)]
pub(super) struct Ground {
    healed: Option<(Time, Vec<Life>)>,
}

impl Ground {
    /// Takes note of the healing; of other records, nothing.
    pub(super) fn follow(&mut self, record: &Record) {
        if let What::Healed { core } = &record.what {
            self.healed = Some((record.at, core.to_vec()));
        }
    }

    /// Whether the faults are over.
    pub(super) fn is_healed(&self) -> bool {
        self.healed.is_some()
    }

    /// Whether the faults are over for this life.
    pub(super) fn has(&self, life: Life) -> bool {
        self.healed.as_ref().is_some_and(|(_, core)| core.contains(&life))
    }

    /// The core's lives at the end.
    pub(super) fn core<'a>(&'a self, end: &'a End) -> impl Iterator<Item = &'a Standing> + Clone {
        end.standings.iter().filter(|standing| self.has(standing.life))
    }

    /// Those of them that are members.
    pub(super) fn members<'a>(&'a self, end: &'a End) -> impl Iterator<Item = &'a Standing> + Clone {
        self.core(end).filter(|standing| standing.phase == Phase::Member)
    }
}
