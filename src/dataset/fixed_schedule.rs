//! A dataset's own times, as a fixed schedule follows them.
//!
//! In: a corpus with the file's timestamps, and the offsets asked for. Out: the same corpus with times after the schedule's zero, without
//! what lies outside the offsets. Never: a request at a time that the file does not say.

use super::{Conversation, Corpus, DatasetError, Turn};
use std::path::Path;

use crate::config::{DatasetPlan, FixedSchedule};

/// The longest schedule in milliseconds: some thirty years, far inside 64 bits of nanoseconds.
const LONGEST_MS: f64 = 1e12;

/// Drops turns outside the offsets, and conversations that have none left.
pub(super) fn drop_outside(schedule: FixedSchedule, conversations: &mut Vec<Conversation>) {
    let (start, end) = window(schedule);
    let within = |ms: f64| (start..=end).contains(&ms);
    for conversation in &mut *conversations {
        conversation
            .turns
            .retain(|turn| turn.timestamp_ms.is_none_or(within));
    }
    conversations.retain(|c| !c.turns.is_empty());
    // What was before the first turn that is left is not waited for.
    for conversation in conversations {
        conversation.turns[0].delay_ms = 0.0;
    }
}

/// The first and the last millisecond that are followed.
fn window(schedule: FixedSchedule) -> (f64, f64) {
    let start = schedule.start_ms.map_or(0.0, |start| start as f64);
    (
        start,
        schedule.end_ms.map_or(f64::INFINITY, |end| end as f64),
    )
}

/// An error where there is no timestamp at all.
pub(super) fn check_times(
    file: Option<&Path>,
    conversations: &[Conversation],
) -> Result<(), DatasetError> {
    let mut turns = conversations.iter().flat_map(|c| &c.turns);
    if turns.any(|turn| turn.timestamp_ms.is_some()) {
        return Ok(());
    }
    let first = conversations.first().and_then(|c| c.turns.first());
    Err(refusal(
        &name(file),
        first.map_or(0, |turn| turn.line),
        "neither this nor a later line has a timestamp; give a file whose first turns have a field timestamp in milliseconds, or use \
         --request-rate",
    ))
}

/// `line`: 0 where it is not of one line.
fn refusal(file: &str, line: u64, sentence: &str) -> DatasetError {
    let place = match line {
        0 => String::new(),
        _ => format!(":{line}"),
    };
    DatasetError::Schedule(format!("{file}{place}: {sentence}"))
}

/// The error of a dataset that has nothing between the offsets.
pub(super) fn nothing_within(schedule: FixedSchedule, file: Option<&Path>) -> DatasetError {
    let (start, end) = window(schedule);
    DatasetError::Schedule(format!(
        "{}: no timestamp from --fixed-schedule-start-offset {start} to --fixed-schedule-end-offset {end}; widen them",
        name(file)
    ))
}

fn name(file: Option<&Path>) -> String {
    file.map_or_else(
        || "the synthetic dataset".to_owned(),
        |path| path.display().to_string(),
    )
}

/// Drops turns outside the offsets, moves all times so that the schedule's zero is 0, and divides them by the speedup.
pub(super) fn settle(
    schedule: FixedSchedule,
    plan: &DatasetPlan,
    corpus: &mut Corpus,
) -> Result<(), DatasetError> {
    let path = plan.source.path();
    let file = name(path);
    let refused = |line, sentence: String| Err(refusal(&file, line, &sentence));
    // A trace is checked already, and without what lies outside the offsets.
    if !plan.source.is_trace() {
        check_times(path, &corpus.conversations)?;
    }
    drop_outside(schedule, &mut corpus.conversations);
    let (start, _) = window(schedule);
    let mut zero = f64::INFINITY;
    for conversation in &corpus.conversations {
        let first = &conversation.turns[0];
        let Some(ms) = first.timestamp_ms else {
            return refused(
                first.line,
                format!(
                    "the first turn of session {:?} has no field timestamp (within the offsets); each conversation needs one",
                    conversation.id
                ),
            );
        };
        zero = zero.min(ms);
    }
    if corpus.conversations.is_empty() {
        return Err(nothing_within(schedule, path));
    }
    if !schedule.auto_offset {
        zero = start;
    }
    for turn in corpus.conversations.iter_mut().flat_map(|c| &mut c.turns) {
        if let Some(ms) = after_zero(turn, zero) {
            if ms > LONGEST_MS {
                return refused(
                    turn.line,
                    format!(
                        "field timestamp: {ms} milliseconds after the schedule's zero is more than {LONGEST_MS}; are they milliseconds?"
                    ),
                );
            }
            turn.timestamp_ms = Some(ms / plan.trace.speedup);
        }
    }
    Ok(())
}

/// A later turn may bear an earlier time than the first one of all: it is due at once then.
fn after_zero(turn: &Turn, zero: f64) -> Option<f64> {
    turn.timestamp_ms.map(|ms| (ms - zero).max(0.0))
}
