//! Wishes: servers claim handlers and give them up, and clients name them in calls, and ask for qualities. What a run does
//! with either comes from a random stream of its own.

use super::director::Director;
use crate::draw::Draw;
use unisono_core::{Quality, Random};

/// Number of handlers that servers claim. Calls name one more, which no server claims.
const CLAIMED: u8 = 2;
/// Random stream of what a run does with handlers.
const HANDLERS: u64 = 0x6861_6e64_6c65_7221;

/// Random stream of the qualities of calls.
const QUALITIES: u64 = 0x7175_616c_6974_7921;

/// What a run does with handlers.
#[derive(Clone, Debug)]
pub(super) struct HandlerPlan {
    random: Random,
    /// Fraction of calls that name a handler.
    share: f64,
    /// Fraction of the actions of a server's own process that claim a handler, or give it up.
    changes: f64,
    /// The handlers that each server claims from the beginning.
    claims: Vec<Vec<u8>>,
}

impl HandlerPlan {
    /// Lets half of the runs use handlers.
    pub(super) fn draw(seed: u64, servers: usize) -> Option<HandlerPlan> {
        let mut random = Random::from_u64(seed ^ HANDLERS);
        if !random.chance(0.5) {
            return None;
        }
        let share = random.pick(&[0.2, 0.5, 0.9]);
        let changes = random.pick(&[0.0, 0.02, 0.1]);
        let mut claims = Vec::new();
        for _ in 0..servers {
            claims.push((0..CLAIMED).filter(|_| random.chance(0.7)).collect());
        }
        Some(HandlerPlan { random, share, changes, claims })
    }

    /// Returns the handlers that a server claims from the beginning.
    pub(super) fn claims(&self, process: usize) -> Vec<u8> {
        self.claims.get(process).cloned().unwrap_or_default()
    }
}

/// Draws whether the calls of a run ask for qualities: half of the runs have a random stream for them.
pub(super) fn draw_qualities(seed: u64) -> Option<Random> {
    let mut random = Random::from_u64(seed ^ QUALITIES);
    random.chance(0.5).then_some(random)
}

impl Director {
    /// Draws the quality for which a call asks.
    pub(super) fn draw_quality(&mut self) -> Quality {
        let qualities = [
            Quality::ORDERED,
            Quality::resilient(1),
            Quality::resilient(2),
            Quality::MAJORITY,
            Quality::TOTAL,
        ];
        self.plan.qualities.as_mut().map_or(Quality::ORDERED, |random| random.pick(&qualities))
    }

    /// Draws the handler that a call names.
    pub(super) fn draw_handler(&mut self) -> Option<u8> {
        let is_calm = self.is_calm;
        let HandlerPlan { random, share, .. } = self.plan.handlers.as_mut()?;
        // In the end every call gets an answer; a handler may have no holder then.
        let handler = if random.chance(0.05) { CLAIMED } else { random.below(CLAIMED.into()) as u8 };
        (random.chance(*share) && !is_calm).then_some(handler)
    }

    /// Lets a server's own process claim a handler, or give it up, now and then.
    pub(super) fn change_handlers(&mut self, process: usize) {
        if process >= self.plan.servers {
            return;
        }
        let Some(HandlerPlan { random, changes, .. }) = &mut self.plan.handlers else { return };
        if random.chance(*changes) {
            let handler = random.below(CLAIMED.into()) as u8;
            self.world.change_handler(process, handler);
        }
    }
}
