//! What the main thread does while workers work.
//!
//! In: signals, live counts. Out: stops, progress. Never: touches a worker but through the gate.

use std::sync::atomic::Ordering;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::clock::{Clock, Nanos, Tick};
use crate::config::Plan;
use crate::engine::Stop;
use crate::report::{Progress, ProgressState, tell};

use super::RunError;
use super::client;
use super::gate::Gate;
use super::recorder::Live;
use super::watched::Watched;
use super::workers::Workers;

/// Between looks at the workers and the signals.
const NAP: Duration = Duration::from_millis(5);

/// Between drawings of the progress.
const DRAW_EVERY: Nanos = Nanos::from_millis(200);

/// A file that would grow beyond the process's limit is an error like a full disk, and not the process's end.
pub(super) fn outlive_file_limits() -> Result<(), RunError> {
    #[cfg(unix)]
    {
        let seen = std::sync::Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen)
            .map_err(|error| RunError::Thread(format!("cannot watch for signals: {error}")))?;
    }
    Ok(())
}

/// Ctrl-C and SIGTERM, counted from the start of the program's work.
pub(super) struct Signals {
    inner: std::sync::Mutex<signal_hook::iterator::Signals>,
}

impl Signals {
    /// From here on both signals are ours.
    pub(super) fn new() -> Result<Signals, RunError> {
        let inner = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]);
        let inner = inner
            .map_err(|error| RunError::Thread(format!("cannot watch for signals: {error}")))?;
        Ok(Signals {
            inner: std::sync::Mutex::new(inner),
        })
    }

    /// Signals since the last call. Several that came close together count as one.
    pub(super) fn taken(&self) -> usize {
        self.inner
            .lock()
            .map_or(0, |mut signals| signals.pending().count())
    }
}

/// Waits until every worker has ended; says whether a signal stopped the run.
#[expect(clippy::disallowed_methods, reason = "the conductor may sleep")]
pub(super) fn until_over(
    plan: &Plan,
    gate: &Gate,
    live: &Live,
    clock: &Clock,
    signals: &Signals,
    (workers, watched): (&Workers, &mut Watched),
) -> bool {
    let mut progress = Progress::new(plan.output.ui, plan.output.stats_interval);
    let mut meter = Meter::default();
    let mut signal_count = 0;
    let mut drawn = Tick(0);
    let mut told_ahead = false;
    while !workers.are_over() {
        for _ in 0..signals.taken() {
            signal_count += 1;
            obey(gate, signal_count);
        }
        watched.look();
        if !told_ahead && gate.started(0).is_some() {
            told_ahead = true;
            // With none at all the run ends, and says why.
            let failed = client::failed_ahead(&gate.counts());
            if let Some(note) = failed.filter(|_| gate.nothing_opened().is_none()) {
                tell(&format!("Note: {note}"));
            }
        }
        let now = clock.now();
        if clock.rate().nanos(now.since(drawn)) >= DRAW_EVERY {
            drawn = now;
            progress.update(&meter.state(plan, gate, live, clock, now));
        }
        std::thread::sleep(NAP);
    }
    progress.finish();
    signal_count > 0
}

fn obey(gate: &Gate, signal_count: u32) {
    match signal_count {
        1 => {
            tell(
                "Stopping: nothing more is sent; requests in flight may end. Press Ctrl-C again to quit now.",
            );
            gate.stop(Stop::Drain);
        }
        2 => {
            tell("Quitting: requests in flight are cut; what was measured is written.");
            gate.stop(Stop::Now);
        }
        _ => std::process::exit(130),
    }
}

/// Rates of the progress line.
#[derive(Default)]
struct Meter {
    tokens: u64,
    at: Option<Tick>,
    tokens_per_s: f64,
}

impl Meter {
    fn state(
        &mut self,
        plan: &Plan,
        gate: &Gate,
        live: &Live,
        clock: &Clock,
        now: Tick,
    ) -> ProgressState {
        let index = (0..plan.phases.len())
            .rev()
            .find(|&index| gate.started(index).is_some())
            .unwrap_or(0);
        let phase = &plan.phases[index];
        let elapsed = gate
            .started(index)
            .map_or(Nanos(0), |start| clock.rate().nanos(now.since(start)));
        let tokens = live.output_tokens.load(Ordering::Relaxed);
        let past = self
            .at
            .map_or(Nanos(0), |at| clock.rate().nanos(now.since(at)));
        if past.0 > 0 {
            self.tokens_per_s = (tokens - self.tokens) as f64 / past.seconds();
        }
        (self.tokens, self.at) = (tokens, Some(now));
        let counts = gate.counts();
        let before: u64 = plan.phases[..index]
            .iter()
            .filter_map(|p| p.stop.requests)
            .sum();
        ProgressState {
            phase: phase.kind.name().to_owned(),
            done: (counts.whole + counts.failed + counts.cancelled).saturating_sub(before),
            total: phase.stop.requests.or(phase.stop.sessions),
            in_flight: counts.in_flight,
            tokens_per_s: self.tokens_per_s,
            errors: live.errors.load(Ordering::Relaxed),
            elapsed,
            expected_duration: phase.stop.duration,
        }
    }
}
