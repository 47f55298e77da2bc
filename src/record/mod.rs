//! What is kept of a request.
//!
//! In: finished exchanges. Out: one [`Record`] per request sent.
//! Never: touches a socket, and never drops a request.

mod entry;
mod exchange;

pub use entry::{Chunk, ErrorDetails, Record, TokenCounts, Trace};
pub use exchange::{EventMark, Exchange, Link, Outcome, Read, RequestId, Ticks};
