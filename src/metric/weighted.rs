//! Statistics of values weighted by the time they held.
//!
//! In: (value, length) pairs that can be walked through again. Out: [`Stats`], exact. Never: keeps or sorts all of them, which for a
//! curve of a million requests would take longer than the curve.

use super::Stats;
use super::quantile::finite;

/// Parts into which the values' range is cut to find a percentile. Only the pairs of the part that it falls into are sorted.
const PARTS: usize = 1 << 14;

/// Mean, extremes, deviation and AIPerf's four percentiles: each the first value, ascending, whose cumulative share of time reaches
/// it. A value below zero counts as zero: a rate that has cancelled out may be a hair below it. `None` without time.
pub(super) fn weighted<I: Iterator<Item = (f64, u64)>>(pairs: impl Fn() -> I) -> Option<Stats> {
    let pairs = || {
        let held = pairs().filter(|&(_, time)| time > 0);
        held.map(|(value, time)| (value.max(0.0), time))
    };
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut time, mut sum) = (0_u128, 0.0);
    for (value, length) in pairs() {
        (min, max) = (min.min(value), max.max(value));
        time += u128::from(length);
        sum += value * length as f64;
    }
    if time == 0 {
        return None;
    }
    let whole = time as f64;
    let mean = (sum / whole).clamp(min, max);
    let parts = Parts { min, max };
    let mut times = vec![0_u128; PARTS];
    let mut squares = 0.0;
    for (value, length) in pairs() {
        times[parts.of(value)] += u128::from(length);
        squares += (value - mean).powi(2) * length as f64;
    }
    let ranks = [50, 90, 95, 99].map(|percent| Rank::of(percent, time, &times));
    let mut chosen: Vec<Vec<(f64, u64)>> = vec![Vec::new(); ranks.len()];
    for (value, length) in pairs() {
        let part = parts.of(value);
        // Percentiles in one part share the first one's list.
        if let Some(place) = ranks.iter().position(|rank| rank.part == part) {
            chosen[place].push((value, length));
        }
    }
    for list in &mut chosen {
        list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    }
    let at = |place: usize| {
        let rank = &ranks[place];
        let first = ranks.iter().position(|other| other.part == rank.part);
        let list = &chosen[first.unwrap_or(place)];
        Some(rank.value(list, time).unwrap_or(max))
    };
    Some(finite(Stats {
        avg: Some(mean),
        min: Some(min),
        max: Some(max),
        p50: at(0),
        p90: at(1),
        p95: at(2),
        p99: at(3),
        std: Some((squares / whole).sqrt()),
        ..Stats::default()
    }))
}

/// Equal parts of the range from `min` to `max`, in order.
struct Parts {
    min: f64,
    max: f64,
}

impl Parts {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast saturates, and what is not a number becomes 0"
    )]
    fn of(&self, value: f64) -> usize {
        // A monotone function of the value, which is all that is needed: rounding may move a border, but no value past another.
        let share = (value - self.min) / (self.max - self.min);
        ((share * PARTS as f64) as usize).min(PARTS - 1)
    }
}

/// Where a percentile lies.
struct Rank {
    percent: u128,
    /// The part in which the cumulative time reaches it.
    part: usize,
    /// Time of the parts before.
    before: u128,
}

impl Rank {
    fn of(percent: u128, time: u128, times: &[u128]) -> Rank {
        let mut before = 0;
        for (part, length) in times.iter().enumerate() {
            if (before + length) * 100 >= time * percent {
                return Rank {
                    percent,
                    part,
                    before,
                };
            }
            before += length;
        }
        unreachable!("all parts together have all the time")
    }

    /// The first value of the part's ascending `list` that reaches it.
    fn value(&self, list: &[(f64, u64)], time: u128) -> Option<f64> {
        let mut passed = self.before;
        let reached = list.iter().find(|(_, length)| {
            passed += u128::from(*length);
            passed * 100 >= time * self.percent
        });
        reached.map(|pair| pair.0)
    }
}
