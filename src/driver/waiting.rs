//! How a worker waits.
//!
//! In: the plan's wishes. Out: plain values for the drivers. Never: a clock.

use crate::clock::{Nanos, Rate, Tick};

use super::Pause;

/// What a worker does until its next completion or due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Sleeps in the kernel. A sleeping core wakes some tens of microseconds late.
    Sleep,
    /// Sleeps until shortly before the next send is due, and then spins.
    #[default]
    Hybrid,
    /// Never sleeps: looks for completions all the time.
    Spin,
}

/// How long ready reads may be left, so that one wake-up takes many. Only with the kernel's stamps, which do not hang on when a read
/// is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// As long as costs no stamp and delays no request noticeably.
    #[default]
    Auto,
    /// So long; 0 reads at once.
    Fixed(Nanos),
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What it does meanwhile.
    pub mode: WaitMode,
    /// Hybrid: it spins this long before a send.
    pub spin: Nanos,
    /// How long reads may be left.
    pub window: Window,
}

impl Waiting {
    /// Most a hybrid worker spins before a send, unless told otherwise.
    pub const SPIN: Nanos = Nanos(100_000);
}

impl Waiting {
    /// When to be awake for `pause`: a hybrid worker spins from then until a send is due.
    pub(super) fn awake_at(&self, pause: Pause, rate: Rate) -> Tick {
        if pause.send_due && self.mode == WaitMode::Hybrid {
            Tick(pause.until.0.saturating_sub(rate.ticks(self.spin)))
        } else {
            pause.until
        }
    }
}

/// How late this core wakes up, as sleeps that ran their time have shown: exceeded by about one in [`Lateness::ODDS`]. A virtual core may
/// take longer than a hybrid worker means to spin.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    ticks: u64,
}

impl Lateness {
    const ODDS: u64 = 400;

    /// A sleep that was to end at `planned` ended at `now`; `step` ticks is how fast the estimate may grow.
    ///
    /// It grows by a step for each sleep that exceeds it and shrinks by a step's `ODDS`th for each that does not, so it rests where
    /// one in `ODDS` + 1 exceeds it (a stochastic approximation of the quantile).
    pub(super) fn note(&mut self, planned: Tick, now: Tick, step: u64) {
        self.ticks = if now.since(planned) > self.ticks {
            self.ticks + step
        } else {
            self.ticks.saturating_sub(step.div_ceil(Lateness::ODDS))
        };
    }

    /// `awake`, but earlier by the lateness, and by no more than `most` ticks.
    pub(super) fn ahead_of(&self, awake: Tick, most: u64) -> Tick {
        Tick(awake.0.saturating_sub(self.ticks.min(most)))
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting {
            mode: WaitMode::default(),
            spin: Waiting::SPIN,
            window: Window::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_rests_where_few_sleeps_exceed_it() {
        let mut lateness = Lateness::default();
        let mut exceeded = 0;
        for number in 0..100_000_u64 {
            // 0 to 999,000, each as often as the others.
            let late = number * 7_919 % 1_000 * 1_000;
            exceeded += u64::from(number >= 50_000 && late > lateness.ticks);
            lateness.note(Tick(5_000), Tick(5_000 + late), 8_000);
        }
        assert!((50..=300).contains(&exceeded), "{exceeded} of 50,000");
        let awake = Tick(10_000_000);
        assert_eq!(
            lateness.ahead_of(awake, 500),
            Tick(9_999_500),
            "never more than the most"
        );
        assert!(lateness.ahead_of(awake, 5_000_000) <= Tick(9_100_000));
    }

    #[test]
    fn on_a_core_that_wakes_in_time_nothing_is_added() {
        let mut lateness = Lateness::default();
        for _ in 0..1_000 {
            lateness.note(Tick(5_000), Tick(5_000), 10);
        }
        assert_eq!(lateness.ahead_of(Tick(10_000), 500), Tick(10_000));
    }
}
