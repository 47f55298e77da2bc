//! Requests as the built-in server reads them.
//!
//! In: arbitrary bytes. Out: a panic when two readings of them disagree. Never: a socket, or a reply.

use super::{cut, lengths_and_input};
use crate::mock::read_requests;

/// A count, as many lengths of pieces, and requests: the pieces, one read, and a byte at a time are the same requests, and end in the same
/// refusal.
///
/// # Panics
/// When an invariant breaks.
pub fn served(data: &[u8]) {
    let Some((lengths, input)) = lengths_and_input(data) else {
        return;
    };
    let whole = read_requests([input]);
    assert_eq!(
        whole,
        read_requests(cut(input, lengths)),
        "cut into {lengths:?}"
    );
    assert_eq!(whole, read_requests(input.chunks(1)), "a byte at a time");
}
