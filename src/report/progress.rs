//! What is shown while running, on standard error.
//!
//! In: the state, now and then. Out: a bar on a terminal, plain lines elsewhere. Never: an escape code on a pipe.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::clock::Nanos;
use crate::config::UiKind;
use crate::report::escape_controls;

/// How far the run is.
#[derive(Clone, Debug, Default)]
pub struct ProgressState {
    /// Phase name.
    pub phase: String,
    /// Requests ended.
    pub done: u64,
    /// Requests planned, if the plan has a number.
    pub total: Option<u64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Output tokens per second of late.
    pub tokens_per_s: f64,
    /// Requests failed.
    pub errors: u64,
    /// Since the phase's start.
    pub elapsed: Nanos,
    /// The phase's planned length, if it has one.
    pub expected_duration: Option<Nanos>,
}

/// Shows progress.
#[derive(Debug)]
pub struct Progress {
    view: View,
}

#[derive(Debug)]
enum View {
    Silent,
    Bar(ProgressBar),
    Lines(Lines),
}

/// When plain lines are due.
#[derive(Debug)]
struct Lines {
    interval: Nanos,
    due: Nanos,
    phase: String,
}

/// The first line of a phase comes after so long at most: whoever looks at a log wants to know soon that something moves.
const FIRST_LINE: Nanos = Nanos::from_millis(5_000);

impl Lines {
    fn new(interval: Nanos) -> Lines {
        Lines {
            interval,
            due: interval.min(FIRST_LINE),
            phase: String::new(),
        }
    }

    /// Whether it is time for a line in `phase`, `elapsed` after its start.
    fn are_due(&mut self, phase: &str, elapsed: Nanos) -> bool {
        if self.phase != phase {
            *self = Lines {
                phase: phase.to_owned(),
                ..Lines::new(self.interval)
            };
        }
        let due = elapsed >= self.due;
        if due {
            self.due = elapsed + self.interval;
        }
        due
    }
}

/// Writes lines to standard error, without what would steer a terminal: some name what a server or a file said. Its reader may be gone
/// (`2>&1 | head`), which is no reason for a run to die.
pub fn tell(text: &str) {
    for line in text.split('\n') {
        let _ = writeln!(std::io::stderr(), "{}", escape_controls(line));
    }
}

impl Progress {
    /// Chooses the view. `interval` is the time between plain lines; `None` prints none.
    #[must_use]
    pub fn new(ui: UiKind, interval: Option<Nanos>) -> Progress {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let drawable = std::io::stderr().is_terminal() && !set("NO_COLOR") && !set("CI") && !dumb;
        let view = match (ui, drawable, interval) {
            (UiKind::None, ..) | (_, false, None) => View::Silent,
            (_, true, _) => View::Bar(bar()),
            (_, false, Some(interval)) => View::Lines(Lines::new(interval)),
        };
        Progress { view }
    }

    /// Shows `state`, if it is time to.
    pub fn update(&mut self, state: &ProgressState) {
        match &mut self.view {
            View::Silent => {}
            View::Bar(bar) => {
                let (position, length) = match (state.total, state.expected_duration) {
                    (Some(total), _) => (state.done, total),
                    (None, Some(length)) => (state.elapsed.0.min(length.0), length.0),
                    (None, None) => (0, 0),
                };
                bar.set_length(length);
                bar.set_position(position);
                bar.set_message(line(state));
            }
            View::Lines(lines) => {
                if lines.are_due(&state.phase, state.elapsed) {
                    tell(&line(state));
                }
            }
        }
    }

    /// Clears the bar.
    pub fn finish(&mut self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
        self.view = View::Silent;
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:12} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// One line without escape codes.
fn line(state: &ProgressState) -> String {
    let total = state.total.map(|t| format!("/{t}")).unwrap_or_default();
    let eta = remaining(state)
        .map(|s| format!(", ETA {s:.0} s"))
        .unwrap_or_default();
    format!(
        "{}: {}{total} done, {} in flight, {:.0} tokens/s, {} errors, {:.0} s{eta}",
        state.phase,
        state.done,
        state.in_flight,
        if state.tokens_per_s.is_finite() {
            state.tokens_per_s
        } else {
            0.0
        },
        state.errors,
        state.elapsed.seconds(),
    )
}

/// Seconds left: by count or by time, whichever ends first.
fn remaining(state: &ProgressState) -> Option<f64> {
    let by_count = state.total.filter(|_| state.done > 0).map(|total| {
        state.elapsed.seconds() / state.done as f64 * total.saturating_sub(state.done) as f64
    });
    let by_time = state
        .expected_duration
        .map(|d| (d - state.elapsed).seconds());
    match (by_count, by_time) {
        (Some(count), Some(time)) => Some(count.min(time)),
        (count, time) => count.or(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_comes_soon_and_the_others_at_the_interval() {
        for (interval, dues) in [(30, [5, 35, 65]), (2, [2, 4, 6])] {
            let mut lines = Lines::new(Nanos::from_millis(interval * 1_000));
            for phase in ["warmup", "profiling"] {
                let due = |&second: &u64| lines.are_due(phase, Nanos::from_millis(second * 1_000));
                let shown: Vec<u64> = (0..=dues[2]).filter(due).collect();
                assert_eq!(shown, dues, "{phase}");
            }
        }
    }
}
