//! The scale of the counter, fitted over the whole run.
//!
//! In: the counter and the system's clocks, read together at start and end. Out: lengths in [`Nanos`], and moments by the system's
//! names for them. Never: uses the wall clock for a length of time; it only names the moment the run began.
//!
//! Lengths are of the raw monotonic clock (`CLOCK_MONOTONIC_RAW` where there is one), which runs at one rate: NTP stretches the
//! ordinary one by up to 500 parts in a million, and not evenly. Moments have the names that other programs use: those of
//! `CLOCK_MONOTONIC` (Python's `perf_counter_ns`), and of the wall clock at the start of the run, from where it is counted on. So the
//! difference of two named moments holds what the system slewed its clock by, and a length does not.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Nanos, Rate, Tick};

/// Shorter runs do not fit a scale of their own.
const SHORTEST_NS: u64 = 1_000_000;

/// One moment on four clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The counter, in the middle of the bracket around `raw_ns`.
    pub tick: Tick,
    /// The raw monotonic clock in nanoseconds since an arbitrary start.
    pub raw_ns: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds since an arbitrary start that is the same for all processes of the machine.
    pub monotonic_ns: u64,
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Ticks between the two counter readings around `raw_ns`: twice the largest error of `tick`.
    pub width: u64,
}

impl Anchor {
    /// Reads the clocks in eight brackets and keeps the tightest.
    #[must_use]
    pub fn take(clock: &Clock) -> Anchor {
        let tightest = (0..8)
            .map(|_| Anchor::bracket(clock))
            .min_by_key(|(all, _)| *all);
        tightest.expect("eight brackets were taken").1
    }

    /// Ticks that all readings took, and the anchor. The clocks are read one after the other; what passed meanwhile is taken out.
    fn bracket(clock: &Clock) -> (u64, Anchor) {
        let before = clock.now();
        let raw_ns = raw_ns();
        let between = clock.now();
        let monotonic_ns = monotonic_ns();
        let later = clock.now();
        let wall_ns = wall_ns();
        let after = clock.now();
        let middle = |from: Tick, to: Tick| Tick(from.0 + to.since(from) / 2);
        let tick = middle(before, between);
        let since = |at: Tick| clock.rate().nanos(at.since(tick)).0;
        let anchor = Anchor {
            tick,
            raw_ns,
            monotonic_ns: monotonic_ns.saturating_sub(since(middle(between, later))),
            wall_ns: wall_ns.saturating_sub(since(middle(later, after))),
            width: between.since(before),
        };
        (after.since(before), anchor)
    }
}

/// Converts ticks of a finished run.
///
/// The scale is the raw monotonic time between two anchors divided by the ticks between them; over a run of a second its error is
/// at most the two half brackets, some 50 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Taken before the first request.
    pub start: Anchor,
    /// Of the raw clock: for lengths.
    rate: Rate,
    /// Of the monotonic clock, as it was slewed over the run: for names of moments.
    named: Rate,
    /// The scale of the raw clock as it was fitted at start, for comparison.
    at_start: Rate,
    error: Nanos,
}

impl Calibration {
    /// The start scale only, for runs too short (under 1 ms) to fit their own, and for simulated time.
    #[must_use]
    pub fn from_start(start: Anchor, nanos_per_tick: f64) -> Calibration {
        let rate = Rate::new(nanos_per_tick);
        Calibration {
            start,
            rate,
            named: rate,
            at_start: rate,
            error: rate.nanos(start.width / 2),
        }
    }

    /// Fits the scale between `start` and `end`.
    #[must_use]
    pub fn fit(clock: &Clock, start: Anchor, end: Anchor) -> Calibration {
        Calibration::between_anchors(clock.rate(), start, end)
    }

    /// The same, where the start scale is `at_start`.
    fn between_anchors(at_start: Rate, start: Anchor, end: Anchor) -> Calibration {
        let ticks = end.tick.since(start.tick);
        let raw = end.raw_ns.saturating_sub(start.raw_ns);
        if raw < SHORTEST_NS || ticks == 0 {
            return Calibration::from_start(start, at_start.nanos_per_tick);
        }
        let rate = Rate::new(raw as f64 / ticks as f64);
        let monotonic = end.monotonic_ns.saturating_sub(start.monotonic_ns);
        Calibration {
            start,
            rate,
            // A machine whose monotonic clock stood still has no better name than the raw one.
            named: match monotonic {
                0 => rate,
                _ => Rate::new(monotonic as f64 / ticks as f64),
            },
            at_start,
            error: rate.nanos(start.width.saturating_add(end.width).div_ceil(2)),
        }
    }

    /// The length from `from` to `to`; 0 when `to` is earlier.
    #[must_use]
    pub fn between(&self, from: Tick, to: Tick) -> Nanos {
        self.rate.nanos(to.since(from))
    }

    /// The wall-clock time of `tick`, in nanoseconds since the Unix epoch, counted from the start anchor, so that a step of the
    /// wall clock in mid-run has no effect.
    #[must_use]
    pub fn wall_ns(&self, tick: Tick) -> u64 {
        self.named_ns(self.start.wall_ns, tick)
    }

    /// The time of `tick` by `CLOCK_MONOTONIC`, in nanoseconds.
    #[must_use]
    pub fn monotonic_ns(&self, tick: Tick) -> u64 {
        self.named_ns(self.start.monotonic_ns, tick)
    }

    fn named_ns(&self, start_ns: u64, tick: Tick) -> u64 {
        let after = self.named.nanos(tick.since(self.start.tick)).0;
        let before = self.named.nanos(self.start.tick.since(tick)).0;
        start_ns.saturating_add(after).saturating_sub(before)
    }

    /// How far the scale of the whole run lies from the one fitted at start, in parts in a million.
    #[must_use]
    pub fn drift_ppm(&self) -> f64 {
        (self.at_start.nanos_per_tick / self.rate.nanos_per_tick - 1.0) * 1e6
    }

    /// How much faster `CLOCK_MONOTONIC` ran than the raw clock, as NTP slewed it, in parts in a million.
    #[must_use]
    pub fn slew_ppm(&self) -> f64 {
        (self.named.nanos_per_tick / self.rate.nanos_per_tick - 1.0) * 1e6
    }

    /// The largest error of a length that spans the whole run.
    #[must_use]
    pub fn error(&self) -> Nanos {
        self.error
    }
}

/// The monotonic clock that is not slewed.
#[cfg(target_os = "linux")]
pub(super) fn raw_ns() -> u64 {
    nanos_of(rustix::time::ClockId::MonotonicRaw)
}

/// Other systems do not slew theirs, or have no other.
#[cfg(not(target_os = "linux"))]
pub(super) fn raw_ns() -> u64 {
    monotonic_ns()
}

/// `CLOCK_MONOTONIC`.
pub(super) fn monotonic_ns() -> u64 {
    nanos_of(rustix::time::ClockId::Monotonic)
}

#[expect(clippy::cast_sign_loss, reason = "monotonic time is not negative")]
fn nanos_of(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
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
    use proptest::prelude::*;

    /// A counter of 2.5 GHz by the raw clock.
    const GHZ: f64 = 2.5;

    /// The clocks of a machine whose monotonic clock is slewed by `slew`, and whose wall clock is off by `step_ns` besides.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a test's numbers"
    )]
    fn anchor(seconds: f64, slew: f64, step_ns: i64) -> Anchor {
        let raw = seconds * 1e9;
        let slewed = (raw * (1.0 + slew)) as u64;
        Anchor {
            tick: Tick((raw * GHZ) as u64),
            raw_ns: 5_000 + raw as u64,
            monotonic_ns: 77_000 + slewed,
            wall_ns: (1_700_000_000_000_000_000 + slewed).saturating_add_signed(step_ns),
            width: 100,
        }
    }

    fn fitted(slew: f64, seconds: f64, step_ns: i64) -> Calibration {
        let at_start = Rate::new(1.0 / GHZ * (1.0 + 3e-6));
        let end = anchor(seconds, slew, step_ns);
        Calibration::between_anchors(at_start, anchor(0.0, slew, 0), end)
    }

    #[test]
    fn lengths_are_raw_and_names_are_the_systems() {
        let fit = fitted(200e-6, 10.0, 0);
        let tick = |seconds: f64| anchor(seconds, 0.0, 0).tick;
        assert_eq!(fit.between(tick(2.0), tick(3.0)), Nanos(1_000_000_000));
        assert_eq!(fit.monotonic_ns(tick(3.0)), 77_000 + 3_000_600_000);
        let wall = 1_700_000_000_000_000_000;
        assert_eq!(fit.wall_ns(tick(3.0)), wall + 3_000_600_000);
        assert!((fit.slew_ppm() - 200.0).abs() < 1e-3, "{}", fit.slew_ppm());
        assert!((fit.drift_ppm() - 3.0).abs() < 1e-3, "{}", fit.drift_ppm());
        assert_eq!(fit.error(), Nanos(40), "half of 100 ticks at either end");
    }

    #[test]
    fn a_run_too_short_for_a_fit_keeps_the_start_scale() {
        let fit = fitted(0.0, 0.000_5, 0);
        assert!(fit.drift_ppm().abs() < 1e-9);
        assert_eq!(fit.error(), Nanos(20));
    }

    proptest! {
        /// Whatever the wall clock does between the anchors, and however the system slews: lengths are the same, and moments keep
        /// their order and distances.
        #[test]
        fn a_step_of_the_wall_clock_changes_nothing(
            slew in -5e-4..5e-4f64,
            seconds in 0.01..4e4f64,
            step_ns in prop_oneof![-5_000_000_000_000_000..5_000_000_000_000_000i64, -1_000_000..1_000_000i64],
            from in 0.0..1.0f64,
            length in 0.0..1.0f64,
        ) {
            let (steady, stepped) = (fitted(slew, seconds, 0), fitted(slew, seconds, step_ns));
            prop_assert_eq!(steady, stepped);
            let from = anchor(from * seconds, 0.0, 0).tick;
            let to = from.plus(anchor(length * seconds, 0.0, 0).tick.0);
            let raw = to.since(from) as f64 / GHZ;
            // Half a nanosecond of rounding at each of two anchors, stretched over the run, and one of the result.
            prop_assert!((stepped.between(from, to).0 as f64 - raw).abs() <= 3.0);
            let named = stepped.wall_ns(to) - stepped.wall_ns(from);
            prop_assert!((named as f64 - raw * (1.0 + slew)).abs() <= 4.0, "{named} of {raw}");
        }
    }

    #[test]
    fn a_fit_agrees_with_the_clock() {
        let clock = Clock::new();
        let start = Anchor::take(&clock);
        let mut end = start;
        while end.raw_ns < start.raw_ns + 20_000_000 {
            end = Anchor::take(&clock);
        }
        let fit = Calibration::fit(&clock, start, end);
        let length = fit.between(start.tick, end.tick).0;
        assert!(length.abs_diff(end.raw_ns - start.raw_ns) <= 1, "{length}");
        assert!(fit.monotonic_ns(end.tick).abs_diff(end.monotonic_ns) <= 1);
        assert!(fit.drift_ppm().abs() < 2_000.0, "{}", fit.drift_ppm());
        assert!(fit.slew_ppm().abs() < 1_000.0, "{}", fit.slew_ppm());
    }
}
