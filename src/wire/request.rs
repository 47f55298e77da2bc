//! The request head.
//!
//! In: method, target, host and header fields. Out: bytes to send before the body. Never: a field twice that may stand once.

use std::io::Write as _;

/// Appends a request head to `out`. `headers` stand in their order; `Host` comes first unless `headers` names one, and
/// `Content-Length` last, whatever `headers` says of it. A GET or HEAD without a body has no `Content-Length`
/// (RFC 9110 section 8.6). Names, values and target must be free of CR and LF; whoever reads them from a user checks that.
pub fn write_request_head(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&str, &str)],
    body_length: usize,
) {
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let named = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let own = [("Host", host)];
    let first = if named { &[][..] } else { &own[..] };
    for (name, value) in first.iter().chain(headers) {
        if !name.eq_ignore_ascii_case("content-length") {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
    if body_length > 0 || !matches!(method, "GET" | "HEAD") {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "Content-Length: {body_length}\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
