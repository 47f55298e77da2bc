//! Statistics of exact values.
//!
//! In: all values of a metric. Out: its [`Stats`]. Never: estimates, bins, or returns a number that is not finite.

use super::registry::METRICS;
use super::{Row, Stats};

/// The percentile `percent` (0..=100) of ascending `sorted` by linear interpolation at index `percent / 100 * (n - 1)`, which is
/// numpy's default; `None` when there is no value.
///
/// ```
/// use tokenring::metric::quantile::linear;
/// assert_eq!(linear(&[1.0, 2.0], 50.0), Some(1.5));
/// assert_eq!(linear(&[], 50.0), None);
/// ```
#[must_use]
pub fn linear(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = (percent.clamp(0.0, 100.0) / 100.0) * last as f64;
    let below = whole(position.floor()).min(last);
    let above = (below + 1).min(last);
    let fraction = position - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * fraction)
}

/// The percentile of ascending `sorted` followed by `failures` infinite values, by the nearest rank (ties to the even one); `None`
/// when it lands on a failure or there is no value.
#[must_use]
pub fn nearest_with_failures(sorted: &[f64], failures: usize, percent: f64) -> Option<f64> {
    let last = (sorted.len() + failures).checked_sub(1)?;
    let position = (percent.clamp(0.0, 100.0) / 100.0) * last as f64;
    sorted.get(whole(position.round_ties_even())).copied()
}

/// All statistics of `values`, which are sorted on the way so that the order of arrival cannot change a sum. Values that are not
/// finite are left out. The standard deviation is the population's.
#[must_use]
pub fn distribution(values: &mut Vec<f64>) -> Option<Stats> {
    values.retain(|v| v.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    // Rounding may carry the mean of equal values past them.
    let mean = (sum / count).clamp(min, max);
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    Some(Stats {
        avg: Some(mean),
        min: Some(min),
        max: Some(max),
        sum: Some(sum),
        std: Some(variance.sqrt()),
        count: Some(values.len() as u64),
        ..Stats::percentiles(|percent| linear(values, percent))
    })
}

/// Statistics of ascending `sorted` with each failure counted as an infinite wait (AIPerf's `adj_*`): the percentiles that stay
/// finite, the smallest value, and the count of both. Mean, maximum, sum and deviation are infinite and so are absent.
#[must_use]
pub fn with_failures(sorted: &[f64], failures: usize) -> Stats {
    Stats {
        min: sorted.first().copied(),
        count: Some((sorted.len() + failures) as u64),
        ..Stats::percentiles(|percent| nearest_with_failures(sorted, failures, percent))
    }
}

/// `stats` without the numbers that are not finite.
#[must_use]
pub fn finite(stats: Stats) -> Stats {
    let keep = |value: Option<f64>| value.filter(|v| v.is_finite());
    Stats {
        avg: keep(stats.avg),
        min: keep(stats.min),
        max: keep(stats.max),
        sum: keep(stats.sum),
        p1: keep(stats.p1),
        p5: keep(stats.p5),
        p10: keep(stats.p10),
        p25: keep(stats.p25),
        p50: keep(stats.p50),
        p75: keep(stats.p75),
        p90: keep(stats.p90),
        p95: keep(stats.p95),
        p99: keep(stats.p99),
        std: keep(stats.std),
        count: stats.count,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions are whole, at least 0 and below a length"
)]
fn whole(position: f64) -> usize {
    position as usize
}

/// Rows that have a finite number, in the registry's order.
pub(super) fn finished(rows: Vec<Option<Stats>>) -> Vec<Row> {
    let rows = METRICS.iter().zip(rows);
    rows.filter_map(|(metric, stats)| {
        let stats = finite(stats?);
        (stats.avg.is_some() || stats.min.is_some()).then_some(Row { metric, stats })
    })
    .collect()
}
