//! The holders of locks: the servers' own processes claim them and release them. They do so as the library does: for the
//! present life of their member, by a clock that is read in that life.

use super::director::Director;
use super::locks::LOCKS;
use super::states::Op;
use crate::draw::{Draw, SECOND};
use unisono_core::{Random, Uid};

/// What processes do with locks.
#[derive(Clone, Debug)]
pub(super) struct LockPlan {
    /// Fraction of the commands of servers' own processes that are on locks.
    pub(super) share: f64,
    /// Fraction of claims that wait in line.
    pub(super) waits: f64,
    /// Most by which the clock of a process is behind, in nanoseconds; 0 if all clocks show the same.
    pub(super) behind_max: u64,
}

/// Random stream of what processes do with locks.
const HOLDERS: u64 = 0x6c6f_636b_7321_2121;
/// Time of the clocks when a run begins, in microseconds.
const EPOCH_US: u64 = 1_000_000_000;

impl LockPlan {
    /// Lets the processes of half of the runs use locks.
    pub(super) fn draw(seed: u64) -> Option<LockPlan> {
        let random = &mut Random::from_u64(seed ^ HOLDERS);
        random.chance(0.5).then(|| LockPlan {
            share: random.pick(&[0.3, 0.6, 0.9]),
            waits: random.pick(&[0.5, 0.8, 1.0]),
            behind_max: random.pick(&[0, 0, 20 * SECOND]),
        })
    }
}

impl Director {
    /// Draws what a server's own process does with a lock. `None` if it does something else.
    pub(super) fn draw_lock(&mut self, process: usize) -> Option<Op> {
        let LockPlan { share, waits, behind_max } = self.plan.locks.clone()?;
        if process >= self.plan.servers || !self.app_random.chance(share) {
            return None;
        }
        let random = &mut self.app_random;
        // Now and then a name that is none.
        let name = if random.chance(0.02) { LOCKS } else { random.below(u64::from(LOCKS)) as u8 };
        let (waits, releases) = (random.chance(waits), random.chance(0.7));
        // Now and then the claim is of another life, or is none.
        let is_wrong = random.chance(0.04);
        let server =
            self.world.resident(process)?.side.server.as_deref().filter(|server| server.is_copy())?;
        let me = server.group.info().me;
        let claim = server.replica.machine()?.locks()?.claim(name, me);
        let behind = if behind_max == 0 { 0 } else { (process as u64 + 1) * behind_max / 16 };
        let clock_us = EPOCH_US + self.world.now / 1_000 - behind / 1_000;
        Some(match claim {
            Some(claim) if releases => Op::Release(name, me, claim.number + u64::from(is_wrong)),
            _ => Op::Acquire(name, Uid(me.0 ^ u64::from(is_wrong)), clock_us, waits),
        })
    }
}
