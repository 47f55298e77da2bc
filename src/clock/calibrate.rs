//! The scale of the counter, fitted over the whole run.
//!
//! In: pairs of (tick, monotonic, wall) taken at start and end. Out: lengths in [`Nanos`] and wall-clock times.
//! Never: uses the wall clock for a length of time; it only names the moment the run began.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Nanos, Tick};

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The counter, in the middle of the bracket.
    pub tick: Tick,
    /// Monotonic time in nanoseconds since an arbitrary start that is the same for the whole process.
    pub monotonic_ns: u64,
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Ticks between the two counter readings around the clock readings: twice the largest error of `tick`.
    pub width: u64,
}

impl Anchor {
    /// Reads the three clocks in eight brackets and keeps the tightest.
    #[must_use]
    pub fn take(clock: &Clock) -> Anchor {
        (0..8)
            .map(|_| Anchor::bracket(clock))
            .min_by_key(|a| a.width)
            .expect("eight brackets were taken")
    }

    fn bracket(clock: &Clock) -> Anchor {
        let before = clock.now();
        let monotonic_ns = monotonic_ns();
        let after = clock.now();
        let wall_ns = wall_ns();
        Anchor {
            tick: Tick(before.0 + after.since(before) / 2),
            monotonic_ns,
            wall_ns,
            width: after.since(before),
        }
    }
}

/// Converts ticks of a finished run.
///
/// The scale is the monotonic time between two anchors divided by the ticks between them; over a run of a second its error is
/// at most the two bracket widths, some 100 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Taken before the first request.
    pub start: Anchor,
    nanos_per_tick: f64,
    /// The same scale as quanta fitted it at start, for comparison.
    nanos_per_tick_at_start: f64,
    error: Nanos,
}

impl Calibration {
    /// The start scale only, for runs too short (under 1 ms) to fit their own, and for simulated time.
    #[must_use]
    pub fn from_start(start: Anchor, nanos_per_tick: f64) -> Calibration {
        Calibration {
            start,
            nanos_per_tick,
            nanos_per_tick_at_start: nanos_per_tick,
            error: Nanos(0),
        }
    }

    /// Fits the scale between `start` and `end`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "widths are small and positive"
    )]
    pub fn fit(clock: &Clock, start: Anchor, end: Anchor) -> Calibration {
        let at_start = clock.rate().nanos_per_tick;
        let ticks = end.tick.since(start.tick);
        let nanos = end.monotonic_ns.saturating_sub(start.monotonic_ns);
        if nanos < 1_000_000 || ticks == 0 {
            return Calibration::from_start(start, at_start);
        }
        let nanos_per_tick = nanos as f64 / ticks as f64;
        let error = Nanos(((start.width + end.width) as f64 / 2.0 * nanos_per_tick) as u64);
        Calibration {
            start,
            nanos_per_tick,
            nanos_per_tick_at_start: at_start,
            error,
        }
    }

    /// The length from `from` to `to`; 0 when `to` is earlier.
    #[must_use]
    pub fn between(&self, from: Tick, to: Tick) -> Nanos {
        super::Rate::new(self.nanos_per_tick).nanos(to.since(from))
    }

    /// The wall-clock time of `tick`, in nanoseconds since the Unix epoch, counted from the start anchor, so that a step of the
    /// wall clock in mid-run has no effect.
    #[must_use]
    pub fn wall_ns(&self, tick: Tick) -> u64 {
        if tick >= self.start.tick {
            self.start.wall_ns + self.between(self.start.tick, tick).0
        } else {
            self.start
                .wall_ns
                .saturating_sub(self.between(tick, self.start.tick).0)
        }
    }

    /// The monotonic time of `tick` in nanoseconds.
    #[must_use]
    pub fn monotonic_ns(&self, tick: Tick) -> u64 {
        if tick >= self.start.tick {
            self.start.monotonic_ns + self.between(self.start.tick, tick).0
        } else {
            self.start
                .monotonic_ns
                .saturating_sub(self.between(tick, self.start.tick).0)
        }
    }

    /// How far the scale of the whole run lies from the one fitted at start, in parts in a million.
    #[must_use]
    pub fn drift_ppm(&self) -> f64 {
        (self.nanos_per_tick_at_start / self.nanos_per_tick - 1.0) * 1e6
    }

    /// The largest error of a length that spans the whole run.
    #[must_use]
    pub fn error(&self) -> Nanos {
        self.error
    }
}

#[cfg(unix)]
#[expect(clippy::cast_sign_loss, reason = "monotonic time is not negative")]
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks for the date"
)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "nanoseconds since 1970 fit 64 bits until 2554"
)]
fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(tick: u64, monotonic_ns: u64, wall_ns: u64) -> Anchor {
        Anchor {
            tick: Tick(tick),
            monotonic_ns,
            wall_ns,
            width: 4,
        }
    }

    #[test]
    fn a_wall_clock_step_changes_no_length() {
        let clock = Clock::new();
        let steady = Calibration::fit(
            &clock,
            anchor(0, 0, 500),
            anchor(3_000_000, 1_000_000_000, 1_000_000_500),
        );
        let stepped = Calibration::fit(
            &clock,
            anchor(0, 0, 500),
            anchor(3_000_000, 1_000_000_000, 7),
        );
        assert_eq!(
            steady.between(Tick(300), Tick(900)),
            stepped.between(Tick(300), Tick(900))
        );
        assert_eq!(
            steady.wall_ns(Tick(3_000_000)),
            stepped.wall_ns(Tick(3_000_000))
        );
    }

    #[test]
    fn a_fit_agrees_with_the_clock() {
        let clock = Clock::new();
        let start = Anchor::take(&clock);
        let mut end = start;
        while end.monotonic_ns < start.monotonic_ns + 20_000_000 {
            end = Anchor::take(&clock);
        }
        let fit = Calibration::fit(&clock, start, end);
        let length = fit.between(start.tick, end.tick).0;
        assert!(
            length.abs_diff(end.monotonic_ns - start.monotonic_ns) <= 1,
            "{length}"
        );
        assert!(fit.drift_ppm().abs() < 2_000.0, "{}", fit.drift_ppm());
    }
}
