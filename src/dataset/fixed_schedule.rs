//! A dataset's own times, as a fixed schedule follows them.
//!
//! In: a corpus with the file's timestamps, and the offsets asked for. Out: the same corpus with times after the schedule's zero, without
//! what lies outside the offsets. Never: a request at a time that the file does not say.

use super::{Conversation, Corpus, DatasetError};
use std::path::Path;

use crate::config::{DatasetPlan, FixedSchedule};

/// The longest schedule in milliseconds: some thirty years, far inside 64 bits of nanoseconds.
const LONGEST_MS: f64 = 1e12;

/// Drops turns outside the offsets, and conversations that have none left.
pub(super) fn drop_outside(schedule: FixedSchedule, conversations: &mut Vec<Conversation>) {
    conversations.retain_mut(|conversation| {
        drop_turns_outside(schedule, conversation);
        !conversation.turns.is_empty()
    });
}

fn drop_turns_outside(schedule: FixedSchedule, conversation: &mut Conversation) {
    let within = |ms| is_within(schedule, ms);
    let turns = &mut conversation.turns;
    turns.retain(|turn| turn.timestamp_ms.is_none_or(within));
    // What was before the first turn that is left is not waited for.
    if let Some(first) = turns.first_mut() {
        first.delay_ms = 0.0;
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
    Err(untimed(file, first.map_or(0, |turn| turn.line)))
}

/// The error of a dataset without times, whose first turn stands in `line`.
pub(super) fn untimed(file: Option<&Path>, line: u64) -> DatasetError {
    refusal(
        &name(file),
        line,
        "neither this nor a later line has a timestamp; give a file whose first turns have a field timestamp in milliseconds, or use \
         --request-rate",
    )
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

/// The error of a conversation whose first turn within the offsets has no time.
pub(super) fn first_untimed(file: Option<&Path>, line: u64, id: &str) -> DatasetError {
    let sentence = format!(
        "the first turn of session {id:?} has no field timestamp (within the offsets); each conversation needs one"
    );
    refusal(&name(file), line, &sentence)
}

/// The time lies within the offsets.
pub(super) fn is_within(schedule: FixedSchedule, ms: f64) -> bool {
    let (start, end) = window(schedule);
    (start..=end).contains(&ms)
}

/// The schedule's zero, where the earliest time of a first turn is `first`.
pub(super) fn zero(schedule: FixedSchedule, first: f64) -> f64 {
    if schedule.auto_offset {
        first
    } else {
        window(schedule).0
    }
}

/// How long after `zero` that is, in milliseconds as the file has them; `None` when it is too long. A later turn may bear an earlier time
/// than the first one of all: it is due at once then.
pub(super) fn after(ms: f64, zero: f64) -> Option<f64> {
    let after = (ms - zero).max(0.0);
    (after <= LONGEST_MS).then_some(after)
}

/// The error of a time that is too long after `zero`.
pub(super) fn too_late(file: Option<&Path>, line: u64, ms: f64, zero: f64) -> DatasetError {
    let sentence = format!(
        "field timestamp: {} milliseconds after the schedule's zero is more than {LONGEST_MS}; are they milliseconds?",
        ms - zero
    );
    refusal(&name(file), line, &sentence)
}

/// Drops turns outside the offsets, moves all times so that the schedule's zero is 0, and divides them by the speedup.
pub(super) fn settle(
    schedule: FixedSchedule,
    plan: &DatasetPlan,
    corpus: &mut Corpus,
) -> Result<(), DatasetError> {
    let path = plan.source.path();
    // A trace is checked already, and without what lies outside the offsets.
    if !plan.source.is_trace() {
        check_times(path, &corpus.conversations)?;
    }
    drop_outside(schedule, &mut corpus.conversations);
    let mut earliest = f64::INFINITY;
    for conversation in &corpus.conversations {
        let first = &conversation.turns[0];
        let ms = first.timestamp_ms;
        let ms = ms.ok_or_else(|| first_untimed(path, first.line, &conversation.id))?;
        earliest = earliest.min(ms);
    }
    if corpus.conversations.is_empty() {
        return Err(nothing_within(schedule, path));
    }
    let zero = zero(schedule, earliest);
    for turn in corpus.conversations.iter_mut().flat_map(|c| &mut c.turns) {
        if let Some(ms) = turn.timestamp_ms {
            let after = after(ms, zero).ok_or_else(|| too_late(path, turn.line, ms, zero))?;
            turn.timestamp_ms = Some(after / plan.trace.speedup);
        }
    }
    Ok(())
}

/// As [`settle`], of one conversation of a dataset whose `zero` is known. False where it has no turn left, or a time that it cannot have.
pub(super) fn settle_one(
    schedule: FixedSchedule,
    (zero, speedup): (f64, f64),
    conversation: &mut Conversation,
) -> bool {
    drop_turns_outside(schedule, conversation);
    let first = conversation.turns.first();
    let begins = first.is_some_and(|turn| turn.timestamp_ms.is_some());
    let mut times = conversation
        .turns
        .iter_mut()
        .filter_map(|turn| turn.timestamp_ms.as_mut());
    begins
        && times.all(|ms| {
            let after = after(*ms, zero);
            *ms = after.unwrap_or(0.0) / speedup;
            after.is_some()
        })
}
