//! The driver of the tests.
//!
//! In: an engine. Out: nothing yet. Never: I/O.
