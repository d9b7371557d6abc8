//! Messages of weak qualities: unreliable ones that applications send beside their others, and ordered ones that become
//! unordered or source ordered.
//!
//! Only some seeds have them. They have a random stream of their own, so that the other seeds are as they are without.

use crate::director::Director;
use crate::draw::Draw;
use crate::plan::Profile;
use unisono_core::{Quality, Random};

/// Separates the random stream of these choices from others.
const WEAK: u64 = 0x7765_616b_2121_2121;
/// Least bytes of an unreliable message: enough to tell it from all others by its hash.
const BYTES_MIN: u64 = 16;

/// The choices of one run.
#[derive(Clone, Debug)]
pub(crate) struct WeakQualities {
    random: Random,
    /// Mean number of unreliable messages before an action of an application; 0 in most runs.
    mean: f64,
    /// Fraction of ordered messages that become unordered or source ordered; 0 in most runs.
    weaker: f64,
    /// Most bytes in an unreliable message. Some do not fit a datagram, and are refused.
    bytes_max: u64,
}

impl WeakQualities {
    /// Draws the choices for a seed.
    pub(crate) fn draw(seed: u64, profile: Profile) -> WeakQualities {
        let mut random = Random::from_u64(WEAK ^ seed ^ (profile as u64 + 1) << 56);
        let takes_part = random.chance(0.25) && profile != Profile::Perf;
        // Each goes to all members, so a few are many deliveries in a crowd.
        let share = if profile == Profile::Crowd { 0.1 } else { 1.0 };
        let mean = if takes_part { random.pick(&[0.1, 0.3, 1.0]) * share } else { 0.0 };
        let weaker = if takes_part { random.pick(&[0.0, 0.3, 0.9]) } else { 0.0 };
        let bytes_max = random.pick(&[40, 200, 600, 2_000]);
        WeakQualities { random, mean, weaker, bytes_max }
    }

    /// Returns the quality of a message for which `quality` was drawn.
    pub(crate) fn of(&mut self, quality: Quality) -> Quality {
        match quality {
            Quality::ORDERED if self.weaker > 0.0 && self.random.chance(self.weaker) => {
                self.random.pick(&[Quality::UNORDERED, Quality::SOURCE_ORDERED])
            }
            quality => quality,
        }
    }

    /// Draws the messages before one action: the length and the seed of the contents of each.
    fn unreliable(&mut self) -> Vec<(usize, u64)> {
        let mut messages = Vec::new();
        while self.mean > 0.0 && messages.len() < 16 && self.random.chance(self.mean / (self.mean + 1.0)) {
            messages.push((self.random.between(BYTES_MIN, self.bytes_max) as usize, self.random.next_u64()));
        }
        messages
    }
}

impl Director {
    /// Lets an application send unreliable messages before its next action, if any are drawn.
    pub(super) fn send_unreliable_at_times(&mut self, process: usize) {
        for (bytes, contents) in self.weak.unreliable() {
            self.world.send_unreliable(process, bytes, contents);
        }
    }
}
