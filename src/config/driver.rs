//! How workers reach the kernel, as planned.
//!
//! In: nothing; these are plain values. Out: what the conductor hands to the drivers. Never: what the kernel allows.

use crate::clock::Nanos;

/// `--driver`: how workers reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// The ring where the kernel allows it, else the portable driver.
    #[default]
    Auto,
    /// The ring or nothing.
    Ring,
    /// The portable driver.
    Portable,
}

/// `--timestamp-source`: which stamp says when bytes arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampKind {
    /// The driver's, when it sees a read complete.
    User,
    /// The kernel's, when it receives the newest segment of a read.
    Kernel,
}

/// `--wait-mode`: what a worker does until its next completion or due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitKind {
    /// Sleeps.
    Sleep,
    /// Sleeps, and spins shortly before a send is due.
    #[default]
    Hybrid,
    /// Spins.
    Spin,
}

/// How workers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPlan {
    /// `--wait-mode`.
    pub mode: WaitKind,
    /// `--spin-us`.
    pub spin: Nanos,
    /// `--reap-window-us`; `None`: as long as does no harm. 0 reads at once.
    pub window: Option<Nanos>,
    /// `--realtime`.
    pub realtime: bool,
}

impl Default for WaitPlan {
    fn default() -> Self {
        WaitPlan {
            mode: WaitKind::default(),
            spin: Nanos(100_000),
            window: None,
            realtime: false,
        }
    }
}
