//! How the built-in server passes the time.
//!
//! In: nothing; these are plain values. Out: what `mock` is told. Never: a time.

/// `mock-server --pace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Sleeps until shortly before the next event is due, then polls.
    #[default]
    Sleep,
    /// Polls all the time: a core is spent, and nothing waits for a wake-up.
    Spin,
}
