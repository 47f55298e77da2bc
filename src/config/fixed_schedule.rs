//! Sending at a dataset's own timestamps.
//!
//! In: the flags of the fixed schedule, and the dataset's format. Out: a [`FixedSchedule`], or none. Never: reads a timestamp; that is
//! `dataset`'s.

use super::error::Problems;
use super::lex::Settings;
use super::plan::DatasetSource;

/// Which of a dataset's timestamps are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedSchedule {
    /// The first timestamp is the schedule's zero; else the start offset is, or 0.
    pub auto_offset: bool,
    /// Turns with an earlier timestamp are left out. Milliseconds.
    pub start_ms: Option<u64>,
    /// Turns with a later timestamp are left out. Milliseconds.
    pub end_ms: Option<u64>,
}

const SWITCH: &str = "--fixed-schedule";
const AUTO: &str = "--fixed-schedule-auto-offset";
const START: &str = "--fixed-schedule-start-offset";
const END: &str = "--fixed-schedule-end-offset";

/// Flags that say in another way when requests are due.
const OTHERS: &[&str] = &[
    "--request-rate",
    "--request-rate-series",
    "--request-rate-ramp-duration",
    "--arrival-pattern",
    "--arrival-smoothness",
    "--user-centric-rate",
];

/// `promoted`: the file is a trace, named as one by `--custom-dataset-type`, whose first record has a timestamp.
pub(super) fn fixed_schedule(
    settings: &Settings,
    source: &DatasetSource,
    promoted: bool,
    problems: &mut Problems,
) -> Option<FixedSchedule> {
    let asked = settings.given(SWITCH);
    let refused = settings.given("--no-fixed-schedule");
    if asked && refused {
        problems
            .push("--fixed-schedule and --no-fixed-schedule exclude each other; give one of them");
    }
    let on = (asked || promoted) && !refused;
    for flag in [AUTO, START, END] {
        if settings.given(flag) && !on {
            problems.push(format!(
                "{flag} needs {SWITCH}: without it no timestamp is followed"
            ));
        }
    }
    if !on {
        return None;
    }
    if settings.given(AUTO) && settings.given(START) {
        problems.push(format!(
            "{AUTO} and {START} exclude each other: each says what the schedule's zero is; give one of them"
        ));
    }
    let (start_ms, end_ms) = (settings.integer(START), settings.integer(END));
    if let (Some(start), Some(end)) = (start_ms, end_ms)
        && start > end
    {
        problems.push(format!(
            "{START} {start} is after {END} {end}: nothing would be sent; give a start that is not after the end"
        ));
    }
    for flag in OTHERS.iter().filter(|flag| settings.given(flag)) {
        let spelling = settings.spelling(flag);
        problems.push(if asked {
            format!("{spelling} and {SWITCH} exclude each other: the dataset's timestamps say when to send; leave one of them out")
        } else {
            format!("{spelling} contradicts the trace's own timestamps, which are followed; add --no-fixed-schedule to leave them aside")
        });
    }
    if matches!(source, DatasetSource::Synthetic(_)) {
        problems.push(format!(
            "{SWITCH} needs --input-file: made-up prompts have no timestamps"
        ));
    }
    Some(FixedSchedule {
        auto_offset: start_ms.is_none(),
        start_ms,
        end_ms,
    })
}
