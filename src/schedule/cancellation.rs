//! Which requests are cancelled on purpose.
//!
//! In: the percentage, the seed, a request's phase and number. Out: yes or no. Never: depends on who asks, or in which order.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

use super::arrivals::named_stream;

/// Draws for each request by itself. One draw belongs to each number of a phase, so that any number of workers cancel the same
/// requests, and a run of more requests begins like a shorter one.
///
/// ```
/// use tokenring::schedule::CancellationDraw;
/// let mut draw = CancellationDraw::new(10.0, 42);
/// let cancelled = (0..1_000).filter(|&number| draw.picks(0, number)).count();
/// assert!((70..130).contains(&cancelled));
/// ```
#[derive(Clone, Debug)]
pub struct CancellationDraw {
    share: f64,
    random: Box<ChaCha12Rng>,
}

impl CancellationDraw {
    /// Draws that pick `percent` of all requests, 0 to 100, in the mean.
    #[must_use]
    pub fn new(percent: f64, seed: u64) -> CancellationDraw {
        CancellationDraw {
            share: percent / 100.0,
            random: Box::new(named_stream(seed, "timing.request.cancellation")),
        }
    }

    /// Whether request `number` of phase `phase` is to be cancelled: a pure function of the two, `&mut` only for the generator's
    /// place. Does not allocate.
    pub fn picks(&mut self, phase: usize, number: u64) -> bool {
        self.random.set_stream(phase as u64);
        // Each draw takes two words of 32 bits.
        self.random.set_word_pos(2 * u128::from(number));
        // 53 bits in [0, 1), so that 100 % picks all.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_draw_depends_on_its_number_only(seed: u64, percent in 0.0..100.0_f64, phase in 0..3_usize, numbers in prop::collection::vec(0..u64::MAX, 1..20)) {
            let mut warm = CancellationDraw::new(percent, seed);
            for number in numbers {
                let fresh = CancellationDraw::new(percent, seed).picks(phase, number);
                prop_assert_eq!(warm.picks(phase, number), fresh);
            }
        }
    }

    #[test]
    fn the_share_is_the_one_asked_for_and_draws_are_independent() {
        let count = 100_000_u32;
        for (percent, seed) in [(0.5, 1), (10.0, 2), (50.0, 3), (99.0, 4)] {
            let mut draw = CancellationDraw::new(percent, seed);
            let picks: Vec<bool> = (0..u64::from(count)).map(|n| draw.picks(0, n)).collect();
            let (share, n) = (percent / 100.0, f64::from(count));
            let all = |wanted: f64, found: usize, what: &str| {
                // Five standard deviations of a binomial count.
                let spread = 5.0 * (n * wanted * (1.0 - wanted)).sqrt();
                let found = found as f64;
                assert!(
                    (found - n * wanted).abs() < spread,
                    "{what}: {found} at {percent} %"
                );
            };
            all(share, picks.iter().filter(|&&p| p).count(), "picked");
            let pairs = picks.windows(2).filter(|w| w[0] && w[1]).count();
            all(share * share, pairs, "picked twice running");
        }
        let mut all = CancellationDraw::new(100.0, 5);
        assert!((0..10_000).all(|number| all.picks(1, number)));
    }

    #[test]
    fn phases_have_draws_of_their_own() {
        let mut draw = CancellationDraw::new(50.0, 1);
        let mut of = |phase| (0..64).map(|n| draw.picks(phase, n)).collect::<Vec<_>>();
        assert_ne!(of(0), of(1));
    }
}
