//! How well a fixed schedule was kept, by AIPerf's names.
//!
//! In: how late each request was begun. Out: `replay_sched_lag_*` and `replay_sched_degraded`. Never: without a fixed schedule.
//!
//! AIPerf takes the percentiles of the lateness less that of the least late request, so a lateness that all have in common does not show in them.
//! `schedule_lag` is the whole lateness.

use super::quantile;
use super::request::index;
use super::{PhaseFrame, Stats};

/// p99 from which on AIPerf calls a schedule degraded.
const DEGRADED_MS: f64 = 500.0;

/// `lateness_ms`: of all requests, ascending.
pub(super) fn fill(lateness_ms: &[f64], frame: Option<PhaseFrame>, rows: &mut [Option<Stats>]) {
    let followed = frame.is_some_and(|frame| frame.fixed_schedule);
    let Some(least) = lateness_ms.first().filter(|_| followed) else {
        return;
    };
    let mut set = |index: usize, percent: f64| {
        let lag = quantile::linear(lateness_ms, percent).map(|late| late - least);
        rows[index] = lag.map(Stats::scalar);
        lag
    };
    set(index!("replay_sched_lag_p50"), 50.0);
    set(index!("replay_sched_lag_p90"), 90.0);
    let last = set(index!("replay_sched_lag_p99"), 99.0);
    let degraded = last.is_some_and(|lag| lag > DEGRADED_MS);
    rows[index!("replay_sched_degraded")] = Some(Stats::scalar(f64::from(u8::from(degraded))));
}
