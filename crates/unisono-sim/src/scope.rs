//! Members that ask how far multicasts go.
//!
//! Only some seeds have them. They have a random stream of their own, so that the other seeds are as they are without.

use crate::draw::Draw;
use crate::plan::Profile;
use unisono_core::{Member, Random};

/// Separates the random stream of these choices from others.
const SCOPE: u64 = 0x7363_6f70_6521_2121;

/// The choices of one run.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    random: Random,
    /// True if the members of this run ask.
    takes_part: bool,
}

impl Scope {
    /// Draws the choices for a seed.
    pub(crate) fn draw(seed: u64, profile: Profile) -> Scope {
        let mut random = Random::from_u64(SCOPE ^ seed ^ (profile as u64 + 1) << 56);
        let takes_part = profile != Profile::Perf && random.chance(0.125);
        Scope { random, takes_part }
    }

    /// True if the members of this run ask.
    pub(crate) fn takes_part(&self) -> bool {
        self.takes_part
    }

    /// Draws the hops of the next life.
    pub(crate) fn next(&mut self) -> u8 {
        if self.takes_part { self.random.pick(&[1, 1, 2, 4, 255]) } else { Member::HOPS_DEFAULT }
    }
}
