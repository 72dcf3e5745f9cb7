//! Random numbers for load balancing and backoff. They need to be cheap, not unpredictable.

use std::cell::Cell;

/// A worker's random numbers: xorshift64* (Vigna, *An experimental exploration of Marsaglia's xorshift generators*).
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Random {
        // The state must not be 0, and similar seeds must not give similar numbers.
        Random(Cell::new((seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number from 0 to 1.
    pub fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
