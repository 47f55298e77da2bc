//! A histogram that takes room for what it holds.
//!
//! In: lengths of time. Out: quantiles with the resolution of the dense histogram of a run. Never: room for a value that never came: there
//! is one for each slice of a run.

use std::collections::BTreeMap;

/// Values below 2^11 are exact, others to 11 binary digits: three decimal ones.
const DIGITS: u32 = 11;

/// Counts by the lowest value that is not told from its neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    counts: BTreeMap<u64, u64>,
}

impl Sparse {
    /// Adds `value` as often as `times` says.
    pub(super) fn add(&mut self, value: u64, times: u64) {
        let count = self.counts.entry(lowest(value)).or_default();
        *count = count.saturating_add(times);
    }

    pub(super) fn merge(&mut self, other: &Sparse) {
        for (&value, &times) in &other.counts {
            self.add(value, times);
        }
    }

    /// The value, the highest of its bucket, that a share of `quantile` of all do not exceed; 0 without values.
    pub(super) fn value_at(&self, quantile: f64) -> u64 {
        let all: u64 = self.counts.values().sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank is whole, at least 1 and at most the count"
        )]
        let rank = ((quantile.clamp(0.0, 1.0) * all as f64).ceil() as u64).max(1);
        let mut passed = 0;
        for (&value, &times) in &self.counts {
            passed += times;
            if passed >= rank {
                // As the dense one has it, the first value of all is at 0.
                let more = if quantile > 0.0 {
                    (1 << shift(value)) - 1
                } else {
                    0
                };
                return value | more;
            }
        }
        0
    }
}

/// Binary digits of `value` that are not kept.
fn shift(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS)
}

fn lowest(value: u64) -> u64 {
    value >> shift(value) << shift(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    proptest! {
        /// The dense histogram of a run and the sparse one of a slice say the same of the same values.
        #[test]
        fn it_agrees_with_the_dense_one(values in prop::collection::vec((0_u64..40_000_000_000, 1_u64..5), 1..200),
                                        percents in prop::collection::vec(0.0_f64..=100.0, 8)) {
            let mut dense = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3)
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            let (mut one, mut other) = (Sparse::default(), Sparse::default());
            for (number, &(value, times)) in values.iter().enumerate() {
                dense.saturating_record_n(value, times);
                let half = if number % 2 == 0 { &mut one } else { &mut other };
                half.add(value, times);
            }
            one.merge(&other);
            for percent in percents.into_iter().chain([0.0, 1.0, 50.0, 99.0, 100.0]) {
                prop_assert_eq!(one.value_at(percent / 100.0), dense.value_at_quantile(percent / 100.0));
            }
        }
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(Sparse::default().value_at(0.5), 0);
    }
}
