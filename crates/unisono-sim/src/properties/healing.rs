//! When liveness is checked: from the record *healed* to the end of the run. That record says that no fault affects a
//! core of lives any more. A run without it is not checked.

use crate::record::{End, Life, Record, Standing, What};
use unisono_core::{Phase, Time};

/// Time of the record *healed*, and the lives of the core.
#[derive(Clone, Debug, Default)]
pub(super) struct Healing {
    healed: Option<(Time, Vec<Life>)>,
}

impl Healing {
    /// Takes note of the record *healed*; ignores other records.
    pub(super) fn follow(&mut self, record: &Record) {
        if let What::Healed { core } = &record.what {
            self.healed = Some((record.at, core.to_vec()));
        }
    }

    /// True if the faults are over.
    pub(super) fn is_healed(&self) -> bool {
        self.healed.is_some()
    }

    /// True if the faults are over for this life.
    pub(super) fn covers(&self, life: Life) -> bool {
        self.healed.as_ref().is_some_and(|(_, core)| core.contains(&life))
    }

    /// Returns the core's lives at the end.
    pub(super) fn core<'a>(&'a self, end: &'a End) -> impl Iterator<Item = &'a Standing> + Clone {
        end.standings.iter().filter(|standing| self.covers(standing.life))
    }

    /// Returns the core's members at the end.
    pub(super) fn members<'a>(&'a self, end: &'a End) -> impl Iterator<Item = &'a Standing> + Clone {
        self.core(end).filter(|standing| standing.phase == Phase::Member)
    }
}
