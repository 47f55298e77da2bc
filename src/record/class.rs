//! Kinds of failures.
//!
//! In: what ended a request, or what its reply lacked. Out: one stable name. Never: a failure without a class, or in two.

use crate::wire::Fault;

/// What kind of failure it was. [`ErrorClass::name`] is stable and stands in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The server refused the connection.
    ConnectRefused,
    /// No address could be reached.
    ConnectFailed,
    /// The connection was not there in time.
    ConnectTimeout,
    /// This machine had no port, address or descriptor left.
    LocalExhausted,
    /// The proxy could not be reached, or did not open a tunnel.
    Proxy,
    /// TLS could not be set up, or broke.
    Tls,
    /// The request could not be written.
    Write,
    /// The reply did not begin in time.
    FirstByteTimeout,
    /// The reply did not go on in time.
    IdleTimeout,
    /// The whole request was not over in time.
    RequestTimeout,
    /// The server reset the connection.
    Reset,
    /// The reply ended too early.
    Truncated,
    /// The reply was not HTTP as it should be, or over a limit.
    Protocol,
    /// The status was no 2xx.
    HttpStatus,
    /// The status was 429.
    RateLimited,
    /// The server reported an error inside a reply that had begun well.
    StreamError,
    /// The reply was well and said nothing.
    Empty,
    /// Reading failed otherwise.
    #[default]
    Read,
    /// The run cut it.
    Cancelled,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The exchange broke.
    Fault(Fault),
    /// The whole-request limit ran out.
    RequestLimit,
    /// The run cut it: on purpose, by the end of its grace, or by a signal.
    Cut,
    /// A status that is no 2xx.
    Status(u16),
    /// An error inside a 2xx reply.
    ErrorInReply,
    /// A 2xx reply without content.
    NoContent,
    /// A stream that was whole by its framing and not by what it said.
    Unfinished,
}

impl Cause {
    /// Every cause; one status stands for all but 429.
    #[must_use]
    pub fn all() -> Vec<Cause> {
        let faults = Fault::ALL.into_iter().map(Cause::Fault);
        let others = [
            Cause::RequestLimit,
            Cause::Cut,
            Cause::Status(429),
            Cause::Status(500),
            Cause::ErrorInReply,
            Cause::NoContent,
            Cause::Unfinished,
        ];
        faults.chain(others).collect()
    }
}

impl ErrorClass {
    /// Every class, in the order in which a request comes to them.
    pub const ALL: [ErrorClass; 19] = [
        ErrorClass::ConnectRefused,
        ErrorClass::ConnectFailed,
        ErrorClass::ConnectTimeout,
        ErrorClass::LocalExhausted,
        ErrorClass::Proxy,
        ErrorClass::Tls,
        ErrorClass::Write,
        ErrorClass::FirstByteTimeout,
        ErrorClass::IdleTimeout,
        ErrorClass::RequestTimeout,
        ErrorClass::Reset,
        ErrorClass::Truncated,
        ErrorClass::Protocol,
        ErrorClass::HttpStatus,
        ErrorClass::RateLimited,
        ErrorClass::StreamError,
        ErrorClass::Empty,
        ErrorClass::Read,
        ErrorClass::Cancelled,
    ];

    /// The class of `cause`. This is the one table of them.
    #[must_use]
    pub const fn of(cause: Cause) -> ErrorClass {
        match cause {
            Cause::Fault(fault) => ErrorClass::of_fault(fault),
            Cause::RequestLimit => ErrorClass::RequestTimeout,
            Cause::Cut => ErrorClass::Cancelled,
            Cause::Status(429) => ErrorClass::RateLimited,
            Cause::Status(_) => ErrorClass::HttpStatus,
            Cause::ErrorInReply => ErrorClass::StreamError,
            Cause::NoContent => ErrorClass::Empty,
            Cause::Unfinished => ErrorClass::Truncated,
        }
    }

    const fn of_fault(fault: Fault) -> ErrorClass {
        match fault {
            Fault::ConnectRefused => ErrorClass::ConnectRefused,
            Fault::ConnectFailed => ErrorClass::ConnectFailed,
            Fault::ConnectTimeout => ErrorClass::ConnectTimeout,
            Fault::LocalExhausted => ErrorClass::LocalExhausted,
            Fault::ProxyUnreachable
            | Fault::ProxyAuthentication
            | Fault::ProxyRefused
            | Fault::ProxyBadReply => ErrorClass::Proxy,
            Fault::Tls
            | Fault::TlsNotSpoken
            | Fault::TlsUnknownAuthority
            | Fault::TlsExpired
            | Fault::TlsWrongName
            | Fault::TlsCertificate
            | Fault::TlsRefused => ErrorClass::Tls,
            Fault::WriteFailed => ErrorClass::Write,
            Fault::FirstByteTimeout => ErrorClass::FirstByteTimeout,
            Fault::IdleTimeout => ErrorClass::IdleTimeout,
            Fault::Reset => ErrorClass::Reset,
            Fault::Truncated | Fault::ClosedBeforeResponse => ErrorClass::Truncated,
            Fault::BadHead
            | Fault::HeadTooLarge
            | Fault::TooManyInterim
            | Fault::UnaskedUpgrade
            | Fault::BadLength
            | Fault::BadTransferEncoding
            | Fault::UnaskedEncoding
            | Fault::BadEncoding
            | Fault::EncodingTooDense
            | Fault::BadChunkSize
            | Fault::BadChunkEnd
            | Fault::BadTrailer
            | Fault::EventTooLarge
            | Fault::BodyTooLarge
            | Fault::TrailingBytes => ErrorClass::Protocol,
            Fault::Io => ErrorClass::Read,
        }
    }

    /// Stable name; stands in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ErrorClass::ConnectRefused => "connect_refused",
            ErrorClass::ConnectFailed => "connect_failed",
            ErrorClass::ConnectTimeout => "connect_timeout",
            ErrorClass::LocalExhausted => "local_exhausted",
            ErrorClass::Proxy => "proxy",
            ErrorClass::Tls => "tls",
            ErrorClass::Write => "write",
            ErrorClass::FirstByteTimeout => "first_byte_timeout",
            ErrorClass::IdleTimeout => "idle_timeout",
            ErrorClass::RequestTimeout => "request_timeout",
            ErrorClass::Reset => "reset",
            ErrorClass::Truncated => "truncated",
            ErrorClass::Protocol => "protocol",
            ErrorClass::HttpStatus => "http_status",
            ErrorClass::RateLimited => "rate_limited",
            ErrorClass::StreamError => "stream_error",
            ErrorClass::Empty => "empty",
            ErrorClass::Read => "read",
            ErrorClass::Cancelled => "cancelled",
        }
    }

    /// A few words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            ErrorClass::ConnectRefused => "the server refused the connection",
            ErrorClass::ConnectFailed => "no address could be reached",
            ErrorClass::ConnectTimeout => "no connection in time",
            ErrorClass::LocalExhausted => "no local port, address or descriptor left",
            ErrorClass::Proxy => "the proxy did not open a tunnel",
            ErrorClass::Tls => "TLS failed",
            ErrorClass::Write => "the request could not be written",
            ErrorClass::FirstByteTimeout => "the reply did not begin in time",
            ErrorClass::IdleTimeout => "the reply did not go on in time",
            ErrorClass::RequestTimeout => "the request was not over in time",
            ErrorClass::Reset => "the server reset the connection",
            ErrorClass::Truncated => "the reply ended too early",
            ErrorClass::Protocol => "the reply was not HTTP as it should be, or over a limit",
            ErrorClass::HttpStatus => "a status that is no 2xx",
            ErrorClass::RateLimited => "status 429",
            ErrorClass::StreamError => "an error inside a reply",
            ErrorClass::Empty => "a reply without content",
            ErrorClass::Read => "reading failed",
            ErrorClass::Cancelled => "cut on purpose",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_a_class_and_every_class_a_cause() {
        let used: BTreeSet<ErrorClass> = Cause::all().into_iter().map(ErrorClass::of).collect();
        assert_eq!(used, ErrorClass::ALL.into_iter().collect());
        let order: Vec<ErrorClass> = used.into_iter().collect();
        assert_eq!(order, ErrorClass::ALL, "the list is in the enum's order");
    }

    #[test]
    fn names_are_unique_and_plain() {
        let names: BTreeSet<&str> = ErrorClass::ALL.into_iter().map(ErrorClass::name).collect();
        assert_eq!(names.len(), ErrorClass::ALL.len());
        let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(names.iter().all(plain), "{names:?}");
        let faults: BTreeSet<&str> = Fault::ALL.into_iter().map(Fault::name).collect();
        assert_eq!(faults.len(), Fault::ALL.len(), "names of faults");
    }

    #[test]
    fn the_readme_lists_every_class() {
        let readme = include_str!("../../README.md");
        for class in ErrorClass::ALL {
            let row = format!("| `{}` |", class.name());
            assert!(readme.contains(&row), "README.md has no row for {row}");
        }
    }
}
