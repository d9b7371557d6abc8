//! Randomness, as the core sees it: a generator with a seed from the caller.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A seeded generator. The same seed gives the same numbers, on any machine, for ever.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Returns a generator for 32 bytes of seed; take them from the operating system where secrecy counts (nonces,
    /// cookies).
    pub fn from_seed(seed: [u8; 32]) -> Random {
        Random(ChaCha8Rng::from_seed(seed))
    }

    /// Returns a generator for a short seed, for simulations.
    pub fn from_u64(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound` − 1; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with this probability (0 to 1).
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }
}
