//! HTTP/1.1 and server-sent events, sans I/O.
//!
//! In: bytes, cut anywhere. Out: a head, a body, events with offsets. Never: a clock, a socket, a string that was not in the
//! input, or memory beyond [`Limits`]. Imports nothing of this crate.

mod head;

pub use head::{ContentKind, Framing, Head};

/// Where a step of a parser stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Complete.
    Done(T),
    /// All input was used and more is needed. Not an error.
    More,
    /// The bytes cannot be right.
    Wrong(Fault),
}

/// Bounds on every size that the peer chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Response head, status line to blank line, each interim head by itself.
    pub head_bytes: usize,
    /// Header fields in a head.
    pub header_count: usize,
    /// Interim (1xx) responses before the final one.
    pub interim_count: usize,
    /// A chunk-size line with its extensions.
    pub chunk_line_bytes: usize,
    /// Trailer section.
    pub trailer_bytes: usize,
    /// One server-sent event.
    pub event_bytes: usize,
    /// Whole body after transfer decoding.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes: 64 << 10,
            header_count: 128,
            interim_count: 16,
            chunk_line_bytes: 4 << 10,
            trailer_bytes: 32 << 10,
            event_bytes: 16 << 20,
            body_bytes: 1 << 30,
        }
    }
}

/// What was wrong with the peer or the network. Small, copyable, without text; [`Fault::name`] is stable and stands in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The response head is not HTTP/1.x.
    BadHead,
    /// The head, or its number of fields, is over the limit.
    HeadTooLarge,
    /// Too many 1xx responses.
    TooManyInterim,
    /// 101: the peer wants another protocol.
    UnaskedUpgrade,
    /// `Content-Length` is not a number, overflows, or contradicts itself or `Transfer-Encoding`.
    BadLength,
    /// A transfer coding other than `chunked`.
    BadTransferEncoding,
    /// A content coding that was not asked for (gzip and the like).
    UnaskedEncoding,
    /// A chunk-size line that is not one, or overflows.
    BadChunkSize,
    /// A chunk not followed by a line end.
    BadChunkEnd,
    /// The trailer section is malformed or over the limit.
    BadTrailer,
    /// One event is over the limit.
    EventTooLarge,
    /// The body is over the limit.
    BodyTooLarge,
    /// Bytes came after the end of the response.
    TrailingBytes,
    /// The connection ended inside the response.
    Truncated,
    /// The connection ended before the first response byte.
    ClosedBeforeResponse,
    /// The peer reset the connection.
    Reset,
    /// The name has no address, or no address could be reached at all.
    ConnectFailed,
    /// The peer refused the connection.
    ConnectRefused,
    /// Connecting took too long.
    ConnectTimeout,
    /// No local address or port, or no descriptor, was left.
    LocalExhausted,
    /// TLS failed: the handshake, a certificate, or a record.
    Tls,
    /// Another error while reading or writing.
    Io,
}
