//! Applications that confirm, and applications that end their lives at once instead of leaving.
//!
//! Only some seeds have them. They have a random stream of their own, so that the other seeds are as they are without.

use crate::director::Director;
use crate::draw::Draw;
use crate::plan::Profile;
use unisono_core::Random;

/// Separates the random stream of these choices from others.
const READERS: u64 = 0x7265_6164_6572_7321;

/// The choices of one run.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    random: Random,
    /// Fraction of actions with which an application confirms; 0 in most runs.
    confirms: f64,
    /// Fraction of actions with which an application ends its life; 0 in most runs.
    ends: f64,
}

impl Readers {
    /// Draws the choices for a seed.
    pub(crate) fn draw(seed: u64, profile: Profile) -> Readers {
        let mut random = Random::from_u64(READERS ^ seed ^ (profile as u64 + 1) << 56);
        let (confirms, ends) = (random.chance(0.25), random.chance(0.15));
        let takes_part = !matches!(profile, Profile::Perf | Profile::Calls);
        let (confirms, ends) = (confirms && takes_part, ends && takes_part);
        let confirms = if confirms { random.pick(&[0.2, 0.8]) } else { 0.0 };
        let ends = if ends { random.pick(&[0.003, 0.02]) } else { 0.0 };
        Readers { random, confirms, ends }
    }

    /// True if applications of this run confirm.
    pub(crate) fn confirm(&self) -> bool {
        self.confirms > 0.0
    }
}

impl Director {
    /// Lets an application confirm before its next action, if that is drawn.
    pub(super) fn confirm_at_times(&mut self, process: usize) {
        if self.readers.confirm() && self.readers.random.chance(self.readers.confirms) {
            self.world.confirm(process);
        }
    }

    /// Lets applications confirm after a member has entered another epoch: some members are still in the one before.
    pub(super) fn confirm_after_reset(&mut self) {
        for process in 0..self.plan.places {
            if self.is_busy && self.readers.random.chance(0.5) {
                self.world.confirm(process);
            }
        }
    }

    /// Lets an application end its life, if that is drawn and the group keeps a quorum without it. Returns true if so.
    pub(super) fn end_at_times(&mut self, process: usize) -> bool {
        let ends = self.readers.ends > 0.0 && self.readers.random.chance(self.readers.ends);
        if !ends || !self.injector.is_on || !self.can_lose(process) || self.world.is_paused(process) {
            return false;
        }
        self.world.end_life(process);
        self.start_later(process);
        true
    }
}
