//! A dataset's own times, as a fixed schedule follows them.
//!
//! In: a corpus with the file's timestamps, and the offsets asked for. Out: the same corpus with times after the schedule's zero, without
//! what lies outside the offsets. Never: a request at a time that the file does not say.

use super::{Conversation, Corpus, DatasetError, Turn};
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

/// Drops turns outside the offsets, moves all times so that the schedule's zero is 0, and divides them by the speedup.
pub(super) fn settle(
    schedule: FixedSchedule,
    plan: &DatasetPlan,
    corpus: &mut Corpus,
) -> Result<(), DatasetError> {
    let file = plan.source.path();
    let file = file.map_or_else(
        || "the synthetic dataset".to_owned(),
        |path| path.display().to_string(),
    );
    let refused = |line: u64, sentence: String| {
        let place = if line > 0 {
            format!(":{line}")
        } else {
            String::new()
        };
        Err(DatasetError::Schedule(format!("{file}{place}: {sentence}")))
    };
    let turns = || corpus.conversations.iter().flat_map(|c| &c.turns);
    // A trace is without what lies outside the offsets already: it may be empty, or have had timestamps there.
    let narrowed = schedule.start_ms.or(schedule.end_ms).is_some();
    if !narrowed && turns().next().is_some() && turns().all(|turn| turn.timestamp_ms.is_none()) {
        return refused(
            turns().next().map_or(0, |turn| turn.line),
            "neither this nor a later line has a timestamp; give a file whose first turns have a field timestamp in milliseconds, or use \
             --request-rate"
                .to_owned(),
        );
    }
    drop_outside(schedule, &mut corpus.conversations);
    let (start, end) = window(schedule);
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
        return refused(
            0,
            format!(
                "no timestamp from --fixed-schedule-start-offset {start} to --fixed-schedule-end-offset {end}; widen them"
            ),
        );
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
