//! The state machine of one core.
//!
//! In: stamped completions and the time. Out: operations for the driver, finished exchanges for the recorder.
//! Never: does I/O, reads a clock, parses JSON, or takes a lock.
