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

impl Default for Waiting {
    fn default() -> Self {
        Waiting {
            mode: WaitMode::default(),
            spin: Waiting::SPIN,
            window: Window::default(),
        }
    }
}
