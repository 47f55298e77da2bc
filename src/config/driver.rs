//! How workers reach the kernel, as planned.
//!
//! In: nothing; these are plain values. Out: what the conductor hands to the drivers. Never: what the kernel allows.

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
