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

/// Slices, where they are asked for.
pub(super) fn slices(settings: &Settings, problems: &mut Problems) -> Option<SlicePlan> {
    let length = settings.number("--slice-duration");
    if !settings.given("--slice-duration") && settings.given("--slice-attribution") {
        problems.push("--slice-attribution needs --slice-duration, the length of a slice");
    }
    super::endpoint::check_seconds(settings, "--slice-duration", problems);
    Some(SlicePlan {
        length: Nanos::from_seconds(length?),
        attribution: match settings.choice("--slice-attribution") {
            Some("arrival") => Attribution::Arrival,
            _ => Attribution::Aiperf,
        },
    })
}
