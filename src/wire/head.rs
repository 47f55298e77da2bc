//! The response head.
//!
//! In: bytes up to the blank line. Out: a [`Head`]. Never: keeps a string; the bytes stay with the caller.

/// What the engine must know of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code of the final response, 200..=999.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// The connection may serve another request after this response.
    pub keep_alive: bool,
    /// What the body is.
    pub content: ContentKind,
}

impl Head {
    /// 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// How the body ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// 204, 304: no body.
    Empty,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Until the connection ends.
    UntilClose,
}

/// The media type, as far as it decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// `text/event-stream`.
    EventStream,
    /// `application/json` and its relatives.
    Json,
    /// Anything else, or none.
    Other,
}
