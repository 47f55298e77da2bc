//! Gaps between content events, or between tokens, pooled over a run.
//!
//! In: lengths of time. Out: statistics. Never: grows with the number of gaps.
//!
//! A run has as many gaps as tokens, too many to keep. Count, mean, deviation, extremes and sum are exact; percentiles come from a
//! histogram of three significant digits and so are within 0.1 % of a value that occurred. `profile_export.jsonl` has them all.

use hdrhistogram::Histogram;

use super::Stats;
use super::sparse::Sparse;
use crate::clock::Nanos;

/// Longest gap that the histogram tells apart from longer ones: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Most tokens that one event is believed to carry: servers' counts are not to be trusted.
const TIMES_MOST: u64 = 1 << 20;

/// A histogram with exact moments beside it.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    counts: Counts,
    count: u64,
    sum_ns: u128,
    /// Saturates, after 10^38 ns².
    square_sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

/// Counts by value, to three digits: quick, or small.
#[derive(Clone, Debug)]
enum Counts {
    Dense(Histogram<u64>),
    Sparse(Sparse),
}

impl Gaps {
    /// For a run: takes a quarter of a mebibyte.
    pub(super) fn new() -> Gaps {
        // The bounds are constants with 1 < 2 * high and at most five digits, which is all that the constructor asks.
        let dense =
            Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Gaps::on(Counts::Dense(dense))
    }

    /// For a slice of a run: takes room for the values that come, and says the same of them.
    pub(super) fn sparse() -> Gaps {
        Gaps::on(Counts::Sparse(Sparse::default()))
    }

    fn on(counts: Counts) -> Gaps {
        Gaps {
            counts,
            count: 0,
            sum_ns: 0,
            square_sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    pub(super) fn add(&mut self, gap: Nanos) {
        self.add_times(gap, 1);
    }

    /// Adds `gap` as often as `times` says, at most 2^20 times.
    pub(super) fn add_times(&mut self, gap: Nanos, times: u64) {
        let times = times.min(TIMES_MOST);
        if times == 0 {
            return;
        }
        let gap_ns = gap.0;
        match &mut self.counts {
            Counts::Dense(dense) => dense.saturating_record_n(gap_ns, times),
            Counts::Sparse(sparse) => sparse.add(gap_ns, times),
        }
        self.count += times;
        self.sum_ns += u128::from(gap_ns) * u128::from(times);
        let square = u128::from(gap_ns) * u128::from(gap_ns);
        let square = square.saturating_mul(u128::from(times));
        self.square_sum_ns = self.square_sum_ns.saturating_add(square);
        self.min_ns = self.min_ns.min(gap_ns);
        self.max_ns = self.max_ns.max(gap_ns);
    }

    pub(super) fn merge(&mut self, other: &Gaps) {
        match (&mut self.counts, &other.counts) {
            // Both have the same bounds, so every value of one fits the other.
            (Counts::Dense(mine), Counts::Dense(theirs)) => {
                mine.add(theirs).expect("equal bounds fit");
            }
            (Counts::Sparse(mine), Counts::Sparse(theirs)) => mine.merge(theirs),
            _ => unreachable!("gaps of a slice are not merged with those of a run"),
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.square_sum_ns = self.square_sum_ns.saturating_add(other.square_sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// In milliseconds; `None` without a gap.
    pub(super) fn stats(&self) -> Option<Stats> {
        if self.count == 0 {
            return None;
        }
        let at = |percent: f64| {
            let value = match &self.counts {
                Counts::Dense(dense) => dense.value_at_quantile(percent / 100.0),
                Counts::Sparse(sparse) => sparse.value_at(percent / 100.0),
            };
            Some(Nanos(value.clamp(self.min_ns, self.max_ns)).millis())
        };
        let sum = self.sum_ns as f64 / 1e6;
        Some(Stats {
            avg: Some(sum / self.count as f64),
            min: Some(Nanos(self.min_ns).millis()),
            max: Some(Nanos(self.max_ns).millis()),
            sum: Some(sum),
            std: Some(self.deviation_ns() / 1e6),
            count: Some(self.count),
            ..Stats::percentiles(at)
        })
    }

    /// sqrt(n * Σx² - (Σx)²) / n, in whole numbers while they fit, since the two terms may be almost equal.
    fn deviation_ns(&self) -> f64 {
        let exact = u128::from(self.count)
            .checked_mul(self.square_sum_ns)
            .zip(self.sum_ns.checked_mul(self.sum_ns))
            .map(|(squares, square)| squares.saturating_sub(square) as f64);
        let count = self.count as f64;
        let scaled = exact.unwrap_or_else(|| {
            (count * self.square_sum_ns as f64 - (self.sum_ns as f64).powi(2)).max(0.0)
        });
        scaled.sqrt() / count
    }
}
