//! Flags become a plan.
//!
//! In: the command line and the environment. Out: a [`Plan`], or all problems at once. Never: does load, opens a connection, or
//! leaves a value unchecked for a later room.

mod plan;

pub use plan::*;
