//! A dataset's own times, as a fixed schedule follows them.
//!
//! In: a corpus with the file's timestamps, and the offsets asked for. Out: the same corpus with times after the schedule's zero, without
//! what lies outside the offsets. Never: a request at a time that the file does not say.

use std::path::Path;

use super::{Corpus, DatasetError};
use crate::config::FixedSchedule;

/// The longest schedule in milliseconds: some thirty years, far inside 64 bits of nanoseconds.
const LONGEST_MS: f64 = 1e12;

/// Drops turns outside the offsets, and moves all times so that the schedule's zero is 0. `path` is for messages only.
pub(super) fn settle(
    schedule: FixedSchedule,
    path: Option<&Path>,
    corpus: &mut Corpus,
) -> Result<(), DatasetError> {
    let bounds = Bounds { schedule };
    let shown = path.map_or_else(
        || "the synthetic dataset".to_owned(),
        |path| path.display().to_string(),
    );
    let times = |corpus: &Corpus| -> usize {
        let turns = corpus.conversations.iter().flat_map(|c| &c.turns);
        turns.filter(|turn| turn.timestamp_ms.is_some()).count()
    };
    if times(corpus) == 0 {
        return Err(bounds.untimed(&shown));
    }
    for conversation in &mut corpus.conversations {
        let within = |ms: f64| bounds.hold(ms);
        conversation
            .turns
            .retain(|turn| turn.timestamp_ms.is_none_or(within));
    }
    corpus.conversations.retain(|c| !c.turns.is_empty());
    let firsts = corpus.conversations.iter().map(|c| (&c.id, &c.turns[0]));
    let mut first_ms = f64::INFINITY;
    for (id, first) in firsts {
        let Some(ms) = first.timestamp_ms else {
            return Err(bounds.first_untimed(&shown, id));
        };
        first_ms = first_ms.min(ms);
    }
    if corpus.conversations.is_empty() {
        return Err(bounds.none_within(&shown));
    }
    let zero = bounds.zero(first_ms);
    for turn in corpus.conversations.iter_mut().flat_map(|c| &mut c.turns) {
        if let Some(ms) = &mut turn.timestamp_ms {
            *ms = bounds.after(*ms, zero, &shown)?;
        }
    }
    Ok(())
}

/// A fixed schedule beside a file's times, in milliseconds. `shown` is the file's name.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    schedule: FixedSchedule,
}

impl Bounds {
    pub(super) fn new(schedule: FixedSchedule) -> Bounds {
        Bounds { schedule }
    }

    fn start(self) -> f64 {
        self.schedule.start_ms.map_or(0.0, |start| start as f64)
    }

    fn end(self) -> f64 {
        self.schedule.end_ms.map_or(f64::INFINITY, |end| end as f64)
    }

    /// The time lies within the offsets.
    pub(super) fn hold(self, ms: f64) -> bool {
        (self.start()..=self.end()).contains(&ms)
    }

    /// The schedule's zero, where the earliest time is `first`.
    pub(super) fn zero(self, first: f64) -> f64 {
        if self.schedule.auto_offset {
            first
        } else {
            self.start()
        }
    }

    /// How long after `zero` that is.
    pub(super) fn after(self, ms: f64, zero: f64, shown: &str) -> Result<f64, DatasetError> {
        // A later turn may bear an earlier time than the first one of all: it is due at once then.
        let after = (ms - zero).max(0.0);
        if after > LONGEST_MS {
            return Err(DatasetError::Schedule(format!(
                "{shown}: field timestamp: {after} milliseconds after the schedule's zero is more than {LONGEST_MS}; are they milliseconds?"
            )));
        }
        Ok(after)
    }

    /// No turn has a time.
    pub(super) fn untimed(self, shown: &str) -> DatasetError {
        DatasetError::Schedule(format!(
            "{shown} has no timestamps; give a file whose first turns have a field timestamp in milliseconds, or use --request-rate"
        ))
    }

    /// A conversation begins without one.
    pub(super) fn first_untimed(self, shown: &str, id: &str) -> DatasetError {
        DatasetError::Schedule(format!(
            "{shown}: the first turn of session {id:?} has no field timestamp (within the offsets); each conversation needs one"
        ))
    }

    /// The offsets leave nothing.
    pub(super) fn none_within(self, shown: &str) -> DatasetError {
        let (start, end) = (self.start(), self.end());
        DatasetError::Schedule(format!(
            "{shown} has no timestamp from --fixed-schedule-start-offset {start} to --fixed-schedule-end-offset {end}; widen them"
        ))
    }
}
