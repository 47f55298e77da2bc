//! Time in two types.
//!
//! In: the machine's counters. Out: [`Tick`]s on the path, [`Nanos`] after calibration.
//! Never: converts a tick on the hot path, and never lets a wall-clock step change an interval.

use std::ops::{Add, Sub};

mod calibrate;
mod counter;
mod kernel;
mod thread;

pub use calibrate::{Anchor, Calibration};
pub use counter::{Clock, Source};
pub use kernel::{KernelClock, WallBracket, WallMap};
pub use thread::{process_cpu, thread_cpu};

/// What the counter said: a raw TSC value (nanoseconds where the TSC cannot be used, and in the simulated driver).
///
/// Two ticks of one run can be compared and subtracted on every core; the unit is known only to a [`Rate`] or a
/// [`Calibration`].
///
/// ```
/// use tokenring::clock::{Nanos, Rate, Tick};
/// let rate = Rate::NANOS;
/// let due = Tick(1_000).plus(rate.ticks(Nanos::from_millis(2)));
/// assert_eq!(due.since(Tick(1_000)), 2_000_000);
/// assert_eq!(rate.nanos(due.since(Tick(1_000))), Nanos(2_000_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// A time that never comes.
    pub const NEVER: Tick = Tick(u64::MAX);

    /// This tick moved later by `ticks`; saturates at [`Tick::NEVER`].
    #[must_use]
    pub const fn plus(self, ticks: u64) -> Tick {
        Tick(self.0.saturating_add(ticks))
    }

    /// Ticks from `earlier` to this one; 0 when this one is not later.
    #[must_use]
    pub const fn since(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// Seconds as a real number; negative values and NaN become 0, too large ones the maximum.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is meant"
    )]
    pub fn from_seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9).round() as u64)
    }

    /// As seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// As milliseconds.
    #[must_use]
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The difference, 0 when `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.saturating_sub(other)
    }
}

/// The scale used while running, to turn planned lengths of time into ticks.
///
/// It is fixed at start from a short fit, so it may be off by some parts in a million; results are converted afterwards by a
/// [`Calibration`] fitted over the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Greater than 0.
    nanos_per_tick: f64,
}

impl Rate {
    /// One tick is one nanosecond: simulated time.
    pub const NANOS: Rate = Rate {
        nanos_per_tick: 1.0,
    };

    /// A rate from the length of one tick in nanoseconds, which must be above 0.
    #[must_use]
    pub fn new(nanos_per_tick: f64) -> Rate {
        assert!(
            nanos_per_tick > 0.0,
            "a tick must have a length, not {nanos_per_tick}"
        );
        Rate { nanos_per_tick }
    }

    /// `nanos` in ticks, rounded to the nearest.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is meant"
    )]
    pub fn ticks(self, nanos: Nanos) -> u64 {
        (nanos.0 as f64 / self.nanos_per_tick).round() as u64
    }

    /// `ticks` in nanoseconds, rounded to the nearest.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is meant"
    )]
    pub fn nanos(self, ticks: u64) -> Nanos {
        Nanos((ticks as f64 * self.nanos_per_tick).round() as u64)
    }
}
