//! The only randomness of a simulation.
//!
//! In: a seed. Out: numbers that follow from it. Never: entropy of the machine.

/// SplitMix64: small, fast, and the same on every platform.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A stream that follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number of `0..end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits().checked_rem(end).unwrap_or(0)
    }

    /// An index of a thing that has `count` places; 0 when it has none.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// True with this probability; no number is drawn for 0, so that a fault switched off changes nothing else.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.bits() >> 11) as f64 / (1_u64 << 53) as f64) < probability
    }
}
