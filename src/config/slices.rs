//! Slices of a run.
//!
//! In: settings. Out: [`SlicePlan`]. Never: a slice.

use super::error::Problems;
use super::lex::Settings;
use crate::clock::Nanos;

/// Slices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicePlan {
    /// Length of each.
    pub length: Nanos,
    /// Where tokens belong.
    pub attribution: Attribution,
}

/// `--slice-attribution`: to which slice a token belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// To the one in which its request started, as in AIPerf.
    Aiperf,
    /// To the one in which it arrived.
    Arrival,
}

impl SlicePlan {
    /// Most slices of a run: each takes some 10 KiB in memory, so that all take 1 GiB.
    pub const MOST: u64 = 100_000;
}

/// Slices, where they are asked for. Where a length of time ends the run, there must not be too many.
pub(super) fn slices(settings: &Settings, problems: &mut Problems) -> Option<SlicePlan> {
    let length = settings.number("--slice-duration");
    if !settings.given("--slice-duration") && settings.given("--slice-attribution") {
        problems.push("--slice-attribution needs --slice-duration, the length of a slice");
    }
    super::endpoint::check_seconds(settings, "--slice-duration", problems);
    let whole = settings.number("--benchmark-duration");
    if let (Some(length), Some(whole)) = (length, whole)
        && whole / length > SlicePlan::MOST as f64
    {
        let (most, least) = (SlicePlan::MOST, whole / SlicePlan::MOST as f64);
        problems.push(format!("--slice-duration {length} cuts --benchmark-duration {whole} into more than {most} slices, each of which takes 10 KiB of memory; give at least {least}"));
    }
    Some(SlicePlan {
        length: Nanos::from_seconds(length?),
        attribution: match settings.choice("--slice-attribution") {
            Some("arrival") => Attribution::Arrival,
            _ => Attribution::Aiperf,
        },
    })
}
