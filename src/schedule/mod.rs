//! When requests are due, and which.
//!
//! In: a phase's plan, the seed, the shard. Out: [`Verdict`]s, each a pure function of what was asked before.
//! Never: a clock, I/O, or a due time that depends on when an earlier request was really sent.

use crate::clock::Tick;

/// Which part of the load a worker carries. `index` and `count` run over all workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This worker, from 0.
    pub index: usize,
    /// Workers in all, at least 1.
    pub count: usize,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start this session now (or late, if `due` is past).
    Send(Intent),
    /// Nothing is due before this tick.
    WaitUntil(Tick),
    /// Something is due, but all slots are taken.
    WaitForSlot,
    /// No further session will start in this phase.
    Done,
}

/// A session to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Number of the session within its phase over all workers, from 0.
    pub session: u64,
    /// Intended send time of its first turn.
    pub due: Tick,
}
