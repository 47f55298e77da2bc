//! Requests that are cancelled on purpose.
//!
//! In: `--request-cancellation-rate` and `--request-cancellation-delay`. Out: a [`CancellationPlan`]. Never: which requests; that is
//! `schedule`'s.

use super::error::Problems;
use super::lex::Settings;
use crate::clock::Nanos;

/// What share of the profiling requests is cancelled, and when. Warmup is left alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CancellationPlan {
    /// Percent, above 0 and at most 100; each request is drawn by itself.
    pub percent: f64,
    /// From the last byte of the request sent to the cut.
    pub delay: Nanos,
}

/// Reads and checks the two flags.
pub(super) fn cancellation(
    settings: &Settings,
    problems: &mut Problems,
) -> Option<CancellationPlan> {
    let (rate, delay) = (
        "--request-cancellation-rate",
        "--request-cancellation-delay",
    );
    if settings.given(delay) && !settings.given(rate) {
        problems.push(format!(
            "{delay} needs {rate}: without it no request is cancelled"
        ));
    }
    let percent = settings.number(rate)?;
    if percent <= 0.0 {
        problems.push(format!(
            "{rate} {percent} cancels nothing; give a percentage above 0, or leave it out"
        ));
    }
    Some(CancellationPlan {
        percent,
        delay: Nanos::from_seconds(settings.number(delay).unwrap_or(0.0)),
    })
}
