//! Members that ask for a floor: the smallest view that they let a reset go on with.
//!
//! Only some seeds have them. They have a random stream of their own, so that the other seeds are as they are without.

use crate::draw::Draw;
use crate::plan::Profile;
use unisono_core::{Floor, Random, Uid};

/// Separates the random stream of these choices from others.
const FLOORS: u64 = 0x666c_6f6f_7273_2121;

/// The choices of one run, and the floors of its lives.
#[derive(Clone, Debug)]
pub(crate) struct Floors {
    random: Random,
    /// Fraction of lives that ask for a floor; 0 in most runs.
    part: f64,
    /// Largest number of members that a life asks for.
    most: u64,
    of_lives: Vec<(Uid, Floor)>,
}

impl Floors {
    /// Draws the choices for a seed, in a group of about `members`, at most `members_max`.
    pub(crate) fn draw(seed: u64, profile: Profile, members: usize, members_max: u16) -> Floors {
        let mut random = Random::from_u64(FLOORS ^ seed ^ (profile as u64 + 1) << 56);
        let takes_part = random.chance(0.25) && profile != Profile::Perf;
        let part = if takes_part { random.pick(&[0.15, 0.4, 1.0]) } else { 0.0 };
        let most = random.between(1, members as u64 + 1).min(members_max.into());
        Floors { random, part, most, of_lives: Vec::new() }
    }

    /// Returns the least fraction of actions that are leaves: where members ask for floors, some leave, and their floors
    /// with them.
    pub(crate) fn leaves_min(&self) -> f64 {
        if self.part > 0.0 { 0.02 } else { 0.0 }
    }

    /// Draws the floor of the next life.
    pub(crate) fn next(&mut self) -> Floor {
        if self.part == 0.0 || !self.random.chance(self.part) {
            return Floor::None;
        }
        match self.random.weigh(&[(60, 0), (25, 1), (15, 2)]) {
            0 => Floor::AtLeast(self.random.between(1, self.most) as u16),
            1 => Floor::Majority,
            _ => Floor::All,
        }
    }

    /// Notes the floor for which a life asks.
    pub(crate) fn note(&mut self, uid: Uid, floor: Floor) {
        if floor != Floor::None {
            self.of_lives.push((uid, floor));
        }
    }

    /// Returns how many members of a view have to go on after a reset, because its members ask for it.
    pub(crate) fn of_view(&self, view: &[Uid]) -> usize {
        let asked = self.of_lives.iter().filter(|(uid, _)| view.contains(uid));
        asked.map(|(_, floor)| floor.of(view.len())).max().unwrap_or(0)
    }
}
