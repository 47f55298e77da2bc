//! HTTP/1.1 and server-sent events, sans I/O.
//!
//! In: bytes, cut anywhere. Out: a head, a body, events with offsets. Never: a clock, a socket, a string that was not in the
//! input, or memory beyond [`Limits`]. Imports nothing of this crate.

mod chunked;
mod coding;
mod head;
mod inflate;
mod request;
mod response;
mod sse;
#[cfg(test)]
mod tests;
mod tunnel;
mod zstd;

pub use coding::Coding;
pub use head::{ContentKind, Framing, Head, header_lines, reason_phrase};
pub use request::write_request_head;
pub use response::Response;
pub use sse::{SseEvent, SseFields, SseKind, SseScanner, fields};
pub use tunnel::{ConnectReply, connect_head};

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
    /// Whole body after transfer decoding, and again after content decoding.
    pub body_bytes: usize,
    /// Plain bytes of a body for each coded one, beyond a first MiB of plain ones.
    pub density: usize,
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
            density: 200,
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
    /// A content coding, none of which was asked for, that is not known, or several at once.
    UnaskedEncoding,
    /// The body is not what its content coding says.
    BadEncoding,
    /// The body grows beyond all measure when its content coding is taken off.
    EncodingTooDense,
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
    /// No byte of the reply came in time.
    FirstByteTimeout,
    /// No further byte of the reply came in time.
    IdleTimeout,
    /// The request could not be written whole, and nothing was answered.
    WriteFailed,
    /// No local address or port, or no descriptor, was left.
    LocalExhausted,
    /// The proxy could not be reached.
    ProxyUnreachable,
    /// The proxy wants another name or password (407).
    ProxyAuthentication,
    /// The proxy did not open a tunnel: it answered with another status, or ended the connection.
    ProxyRefused,
    /// The proxy's answer is not HTTP/1.x, or not an answer to CONNECT.
    ProxyBadReply,
    /// TLS failed, for none of the reasons below.
    Tls,
    /// The server does not speak TLS.
    TlsNotSpoken,
    /// No authority that is trusted vouches for the server's certificate.
    TlsUnknownAuthority,
    /// The server's certificate is not valid any more, or not yet.
    TlsExpired,
    /// The server's certificate is for another name.
    TlsWrongName,
    /// The server's certificate does not hold for another reason.
    TlsCertificate,
    /// The server ended the handshake with an alert.
    TlsRefused,
    /// Another error while reading or writing.
    Io,
}

impl Fault {
    /// Every fault, in the order of the variants.
    pub const ALL: [Fault; 37] = [
        Fault::BadHead,
        Fault::HeadTooLarge,
        Fault::TooManyInterim,
        Fault::UnaskedUpgrade,
        Fault::BadLength,
        Fault::BadTransferEncoding,
        Fault::UnaskedEncoding,
        Fault::BadEncoding,
        Fault::EncodingTooDense,
        Fault::BadChunkSize,
        Fault::BadChunkEnd,
        Fault::BadTrailer,
        Fault::EventTooLarge,
        Fault::BodyTooLarge,
        Fault::TrailingBytes,
        Fault::Truncated,
        Fault::ClosedBeforeResponse,
        Fault::Reset,
        Fault::ConnectFailed,
        Fault::ConnectRefused,
        Fault::ConnectTimeout,
        Fault::FirstByteTimeout,
        Fault::IdleTimeout,
        Fault::WriteFailed,
        Fault::LocalExhausted,
        Fault::ProxyUnreachable,
        Fault::ProxyAuthentication,
        Fault::ProxyRefused,
        Fault::ProxyBadReply,
        Fault::Tls,
        Fault::TlsNotSpoken,
        Fault::TlsUnknownAuthority,
        Fault::TlsExpired,
        Fault::TlsWrongName,
        Fault::TlsCertificate,
        Fault::TlsRefused,
        Fault::Io,
    ];

    /// Stable name, the variant's own; stands in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fault::BadHead => "BadHead",
            Fault::HeadTooLarge => "HeadTooLarge",
            Fault::TooManyInterim => "TooManyInterim",
            Fault::UnaskedUpgrade => "UnaskedUpgrade",
            Fault::BadLength => "BadLength",
            Fault::BadTransferEncoding => "BadTransferEncoding",
            Fault::UnaskedEncoding => "UnaskedEncoding",
            Fault::BadEncoding => "BadEncoding",
            Fault::EncodingTooDense => "EncodingTooDense",
            Fault::BadChunkSize => "BadChunkSize",
            Fault::BadChunkEnd => "BadChunkEnd",
            Fault::BadTrailer => "BadTrailer",
            Fault::EventTooLarge => "EventTooLarge",
            Fault::BodyTooLarge => "BodyTooLarge",
            Fault::TrailingBytes => "TrailingBytes",
            Fault::Truncated => "Truncated",
            Fault::ClosedBeforeResponse => "ClosedBeforeResponse",
            Fault::Reset => "Reset",
            Fault::ConnectFailed => "ConnectFailed",
            Fault::ConnectRefused => "ConnectRefused",
            Fault::ConnectTimeout => "ConnectTimeout",
            Fault::FirstByteTimeout => "FirstByteTimeout",
            Fault::IdleTimeout => "IdleTimeout",
            Fault::WriteFailed => "WriteFailed",
            Fault::LocalExhausted => "LocalExhausted",
            Fault::ProxyUnreachable => "ProxyUnreachable",
            Fault::ProxyAuthentication => "ProxyAuthentication",
            Fault::ProxyRefused => "ProxyRefused",
            Fault::ProxyBadReply => "ProxyBadReply",
            Fault::Tls => "Tls",
            Fault::TlsNotSpoken => "TlsNotSpoken",
            Fault::TlsUnknownAuthority => "TlsUnknownAuthority",
            Fault::TlsExpired => "TlsExpired",
            Fault::TlsWrongName => "TlsWrongName",
            Fault::TlsCertificate => "TlsCertificate",
            Fault::TlsRefused => "TlsRefused",
            Fault::Io => "Io",
        }
    }

    /// One sentence for people.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Fault::BadHead => "The response head is not HTTP/1.x.",
            Fault::HeadTooLarge => "The response head, or its number of fields, is over the limit.",
            Fault::TooManyInterim => "Too many interim (1xx) responses came before the final one.",
            Fault::UnaskedUpgrade => {
                "The server switched to another protocol (101) without being asked."
            }
            Fault::BadLength => {
                "Content-Length is not a number, is too large, or contradicts itself."
            }
            Fault::BadTransferEncoding => "The response uses a transfer coding other than chunked.",
            Fault::UnaskedEncoding => {
                "The response is compressed in a way that is not known, or in several at once; none was asked for."
            }
            Fault::BadEncoding => "The response's compressed body is broken.",
            Fault::EncodingTooDense => {
                "The response's compressed body grows beyond all measure when it is unpacked."
            }
            Fault::BadChunkSize => {
                "A chunk-size line is malformed, too long, or its size is too large."
            }
            Fault::BadChunkEnd => "A chunk is not followed by a line end.",
            Fault::BadTrailer => "The trailer section is malformed or over the limit.",
            Fault::EventTooLarge => "One server-sent event is over the limit.",
            Fault::BodyTooLarge => "The response body is over the limit.",
            Fault::TrailingBytes => "The server sent bytes after the end of the response.",
            Fault::Truncated => "The connection ended inside the response.",
            Fault::ClosedBeforeResponse => {
                "The connection ended before the first byte of the response."
            }
            Fault::Reset => "The server reset the connection.",
            Fault::ConnectFailed => {
                "The server name has no address, or none of its addresses could be reached."
            }
            Fault::ConnectRefused => "The server refused the connection.",
            Fault::ConnectTimeout => "Connecting to the server took too long.",
            Fault::LocalExhausted => {
                "No local port, address or file descriptor was left; several of --local-address have more ports."
            }
            Fault::ProxyUnreachable => "The proxy could not be reached.",
            Fault::ProxyAuthentication => {
                "The proxy wants another name or password than stand in --proxy (407)."
            }
            Fault::ProxyRefused => "The proxy did not open a tunnel to the server.",
            Fault::ProxyBadReply => "What the proxy answered is no answer to CONNECT.",
            Fault::FirstByteTimeout => "The first byte of the response did not come in time.",
            Fault::IdleTimeout => "No further byte of the response came in time.",
            Fault::WriteFailed => {
                "The request could not be written whole, and the server answered nothing."
            }
            Fault::Tls => "TLS failed in the handshake or a record.",
            Fault::TlsNotSpoken => {
                "The server's first bytes are no TLS; a plain server needs http:// in --url."
            }
            Fault::TlsUnknownAuthority => {
                "No trusted authority vouches for the server's certificate; --cacert names one, --insecure takes any certificate."
            }
            Fault::TlsExpired => "The server's certificate is not valid any more, or not yet.",
            Fault::TlsWrongName => {
                "The server's certificate is for another name; --tls-server-name says which one to expect."
            }
            Fault::TlsCertificate => "The server's certificate does not hold.",
            Fault::TlsRefused => {
                "The server ended the TLS handshake; it may want a client certificate (--cert and --key), or know no common version."
            }
            Fault::Io => "Reading from or writing to the connection failed.",
        }
    }
}
