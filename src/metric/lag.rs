//! How late requests were sent, and whose doing that was.
//!
//! In: one record, or all lags. Out: the lag in parts; a histogram of bounded size. Never: counts a request that sent nothing.
//!
//! `schedule_lag` is from the intended time to the first byte handed to the kernel. It has three parts, which add up to it:
//!
//! - `slot_wait`: a slot, or a turn whose reply was out, was waited for. That is the load's shape, or the server's slowness.
//! - the set-up of the request's own connection (`connection_setup`).
//! - `client_lag`: all else, from the moment at which it could have been sent. That is the client's own lateness.

use hdrhistogram::Histogram;

use crate::clock::Nanos;
use crate::record::Record;

use super::request::connection_setup;

/// Longest lag that is told apart from longer ones: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Lengths from the intended time of one request to its first byte, and their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The whole.
    pub schedule: Nanos,
    /// Waiting for a slot.
    pub slot: Nanos,
    /// The client's own lateness.
    pub client: Nanos,
}

/// The lag of `record`; `None` when it sent no byte.
#[must_use]
pub fn lag(record: &Record) -> Option<Lag> {
    let schedule = record.lateness + record.trace.send_start?;
    let slot = record.slot_wait.min(schedule);
    let setup = connection_setup(record).unwrap_or_default();
    Some(Lag {
        schedule,
        slot,
        // Both are lengths between moments in this order, so the differences are not cut unless a clock was.
        client: schedule.saturating_sub(slot).saturating_sub(setup),
    })
}

/// How many requests were late by how much: at most some 700 buckets, each at most 1/16 wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LagHistogram {
    /// (largest lag of the bucket in ns, number of requests), ascending, without empty ones.
    pub buckets: Vec<(u64, u64)>,
}

impl LagHistogram {
    /// Of lags in ms.
    #[must_use]
    pub fn of(lags_ms: &[f64]) -> LagHistogram {
        // The bounds are constants with 1 < 2 * high and at most five digits, which is all that the constructor asks.
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 1).expect("constant bounds are valid");
        for lag_ms in lags_ms {
            histogram.saturating_record(Nanos::from_seconds(lag_ms / 1e3).0);
        }
        LagHistogram {
            buckets: histogram
                .iter_recorded()
                .map(|step| {
                    let value = step.value_iterated_to();
                    (histogram.highest_equivalent(value), step.count_at_value())
                })
                .collect(),
        }
    }
}
