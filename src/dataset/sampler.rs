//! Which conversation a session plays.
//!
//! In: the session's number. Out: a conversation's index. Never: depends on who asks, or in which order.

use rand::RngExt;

use super::seed::{child_seed, numbered};
use crate::config::Sampling;

/// Picks conversations for sessions. Any number of samplers made alike agree, so that each worker has its own.
///
/// ```
/// use tokenring::config::Sampling;
/// use tokenring::dataset::Sampler;
/// let mut sampler = Sampler::new(Sampling::Sequential, 3, 42, 0);
/// assert_eq!([0, 1, 2, 3].map(|session| sampler.pick(session)), [0, 1, 2, 0]);
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    kind: Sampling,
    /// At least 1.
    count: u32,
    /// Of this kind's stream.
    child: u64,
    offset: u64,
    /// Permutation of the epoch last asked for; empty unless shuffling.
    order: Vec<u32>,
    epoch: Option<u64>,
}

impl Sampler {
    /// A sampler over `count` conversations. `offset` is the number of sessions that earlier phases have started: warmup uses
    /// up the first entries.
    ///
    /// # Panics
    ///
    /// When `count` is 0 or above `u32::MAX`: a corpus has at least one conversation.
    #[must_use]
    pub fn new(kind: Sampling, count: usize, seed: u64, offset: u64) -> Sampler {
        let count = u32::try_from(count).unwrap_or(0);
        assert!(count > 0, "a sampler needs 1 to u32::MAX conversations");
        let (name, order) = match kind {
            Sampling::Shuffle => ("dataset.sampler.shuffle", (0..count).collect()),
            Sampling::Sequential => ("dataset.sampler.sequential", Vec::new()),
            Sampling::Random => ("dataset.sampler.random", Vec::new()),
        };
        Sampler {
            kind,
            count,
            child: child_seed(seed, name),
            offset,
            order,
            epoch: None,
        }
    }

    /// Sessions are counted from 0 again, and earlier phases have used the order up to `offset`.
    pub fn go_on(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The conversation of session number `session`, counted from 0 within the phase. A pure function of the arguments of
    /// [`Sampler::new`] and `session`; `&mut` only for the kept permutation. Does not allocate.
    pub fn pick(&mut self, session: u64) -> u32 {
        let number = self.offset.wrapping_add(session);
        let count = u64::from(self.count);
        // A remainder of a division by a u32 fits one.
        #[allow(clippy::cast_possible_truncation)]
        let place = (number % count) as u32;
        match self.kind {
            Sampling::Sequential => place,
            Sampling::Random => numbered(self.child, number).random_range(0..self.count),
            Sampling::Shuffle => {
                self.shuffle_for(number / count);
                self.order[place as usize]
            }
        }
    }

    fn shuffle_for(&mut self, epoch: u64) {
        if self.epoch == Some(epoch) {
            return;
        }
        for (place, value) in (0..self.count).zip(self.order.iter_mut()) {
            *value = place;
        }
        // Fisher-Yates, from the identity each time, so that no epoch depends on another.
        let mut generator = numbered(self.child, epoch);
        for last in (1..self.order.len()).rev() {
            self.order.swap(last, generator.random_range(0..=last));
        }
        self.epoch = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Sampling> {
        prop_oneof![
            Just(Sampling::Sequential),
            Just(Sampling::Random),
            Just(Sampling::Shuffle)
        ]
    }

    proptest! {
        #[test]
        fn a_pick_depends_on_the_session_only(kind in kinds(), count in 1_usize..200, seed: u64, offset in 0_u64..1000,
                                              sessions in prop::collection::vec(0_u64..2000, 1..40)) {
            let mut warm = Sampler::new(kind, count, seed, offset);
            for session in sessions {
                let fresh = Sampler::new(kind, count, seed, offset).pick(session);
                prop_assert_eq!(warm.pick(session), fresh);
                prop_assert!((fresh as usize) < count);
                prop_assert_eq!(Sampler::new(kind, count, seed, 0).pick(offset + session), fresh);
            }
        }

        #[test]
        fn each_shuffled_epoch_is_a_permutation(count in 1_usize..100, seed: u64, epoch in 0_u64..1000) {
            let mut sampler = Sampler::new(Sampling::Shuffle, count, seed, 0);
            let mut seen: Vec<u32> = (0..count as u64).map(|at| sampler.pick(epoch * count as u64 + at)).collect();
            seen.sort_unstable();
            prop_assert!(seen.iter().enumerate().all(|(at, value)| *value as usize == at));
        }
    }

    #[test]
    fn shuffled_epochs_differ() {
        let mut sampler = Sampler::new(Sampling::Shuffle, 50, 1, 0);
        let mut epoch = |number: u64| {
            (0..50)
                .map(|at| sampler.pick(number * 50 + at))
                .collect::<Vec<u32>>()
        };
        assert_ne!(epoch(0), epoch(1));
        assert_ne!(epoch(0), (0..50).collect::<Vec<u32>>());
    }

    #[test]
    fn random_picks_are_even() {
        let mut sampler = Sampler::new(Sampling::Random, 10, 3, 0);
        let mut seen = [0_u32; 10];
        for session in 0..10_000 {
            seen[sampler.pick(session) as usize] += 1;
        }
        // Five standard deviations of a binomial count with mean 1,000.
        assert!(seen.iter().all(|n| (850..1_150).contains(n)), "{seen:?}");
    }
}
