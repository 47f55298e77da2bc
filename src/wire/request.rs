//! The request head.
//!
//! In: method, target, host and header fields. Out: bytes to send before the body. Never: a field twice that may stand once.

use std::io::Write as _;

/// Appends a request head to `out`: request line, `Host`, what `fields` appends (whole lines, each with its CR LF; neither
/// `Host` nor `Content-Length`), then `Content-Length`. A GET or HEAD without a body has no `Content-Length`
/// (RFC 9110 section 8.6). Names, values and target must be free of CR and LF; whoever reads them from a user checks that.
pub fn write_request_head(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    host: &str,
    fields: impl FnOnce(&mut Vec<u8>),
    body_length: usize,
) {
    for part in [method, " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    fields(out);
    if body_length > 0 || !matches!(method, "GET" | "HEAD") {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "Content-Length: {body_length}\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
