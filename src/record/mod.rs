//! What is kept of a request.
//!
//! In: finished exchanges. Out: one [`Record`] per request sent.
//! Never: touches a socket, and never drops a request.

mod class;
mod counting;
mod entry;
mod exchange;
mod failure;
mod interpret;
mod listening;
mod reading;
mod tally;

pub use class::{Cause, ErrorClass};
pub use entry::{Chunk, ErrorDetails, Record, ReplyEvent, TokenCounts, Trace};
pub use exchange::{EventMark, Exchange, Link, Outcome, Read, RequestId, Ticks};
pub use interpret::Interpreter;
pub use listening::{ReplyReader, reply_of};
