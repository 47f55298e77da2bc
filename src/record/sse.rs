//! Fields of a server-sent event, and events of a body that the worker did not take for a stream.
//!
//! In: body bytes. Out: data, event name and comment; places of events. Never: JSON, or a time.

use std::borrow::Cow;

/// What a client needs of one event (WHATWG HTML, server-sent events).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    /// `data` lines, joined by a line feed; `None` when there is no such line.
    pub(super) data: Option<Cow<'a, [u8]>>,
    /// The last `event` line.
    pub(super) event: Option<&'a [u8]>,
    /// The first comment.
    pub(super) comment: Option<&'a [u8]>,
}

impl Fields<'_> {
    /// The data without surrounding white space, empty when there is none.
    pub(super) fn payload(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default().trim_ascii()
    }

    /// The event says that the request failed.
    pub(super) fn is_error(&self) -> bool {
        self.event
            .is_some_and(|name| name.eq_ignore_ascii_case(b"error"))
    }
}

/// Splits an event into its fields. Lines end with CR LF, LF or CR; one space after the colon is not part of the value.
pub(super) fn fields(event: &[u8]) -> Fields<'_> {
    let mut fields = Fields::default();
    let mut rest = without_mark(event);
    while !rest.is_empty() {
        let (line, used) = line(rest);
        rest = &rest[used..];
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match name {
            b"data" => match &mut fields.data {
                Some(data) => {
                    let data = data.to_mut();
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => fields.data = Some(Cow::Borrowed(value)),
            },
            b"event" => fields.event = Some(value),
            b"" if !line.is_empty() && fields.comment.is_none() => fields.comment = Some(value),
            _ => {}
        }
    }
    fields
}

/// The body begins as an event stream does, after an optional byte order mark.
pub(super) fn looks_like_stream(body: &[u8]) -> bool {
    let body = without_mark(body).trim_ascii_start();
    [&b"data:"[..], b"event:", b":", b"id:", b"retry:"]
        .iter()
        .any(|start| body.starts_with(start))
}

/// Places of the events from `begin` on, each up to and with its blank line. What is left at the end of the body is an event too.
pub(super) fn events(body: &[u8], begin: usize) -> Vec<(usize, usize)> {
    let mut events = Vec::new();
    let mut first = begin.min(body.len());
    let mut at = first;
    while at < body.len() {
        let (line, used) = line(&body[at..]);
        at += used;
        if !line.is_empty() {
            continue;
        }
        // A blank line with nothing before it closes no event.
        if at - used > first {
            events.push((first, at));
        }
        first = at;
    }
    if first < body.len() {
        events.push((first, body.len()));
    }
    events
}

/// The first line without its end, and how many bytes it takes with it.
fn line(bytes: &[u8]) -> (&[u8], usize) {
    match memchr::memchr2(b'\n', b'\r', bytes) {
        Some(end) if bytes[end..].starts_with(b"\r\n") => (&bytes[..end], end + 2),
        Some(end) => (&bytes[..end], end + 1),
        None => (bytes, bytes.len()),
    }
}

fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_standard() {
        type Case = (&'static [u8], Option<&'static [u8]>, Option<&'static [u8]>);
        let cases: [Case; 7] = [
            (b"data: a\n\n", Some(b"a"), None),
            (b"\xef\xbb\xbfdata:a\r\n\r\n", Some(b"a"), None),
            (b"data:  a\rdata: b\r\r", Some(b" a\nb"), None),
            (b"event: error\ndata\n\n", Some(b""), Some(b"error")),
            (b": ping\n\n", None, None),
            (b"database: x\nid: 1\n\n", None, None),
            (b"data: cut", Some(b"cut"), None),
        ];
        for (event, data, name) in cases {
            let fields = fields(event);
            assert_eq!(fields.data.as_deref(), data, "{}", event.escape_ascii());
            assert_eq!(fields.event, name);
        }
        assert_eq!(fields(b": ping\n\n").comment, Some(&b"ping"[..]));
    }

    #[test]
    fn events_end_at_blank_lines() {
        let body = b"data: a\n\n\n\ndata: b\r\n\r\ndata: c";
        let found: Vec<&[u8]> = events(body, 0)
            .iter()
            .map(|&(begin, end)| &body[begin..end])
            .collect();
        assert_eq!(found, [&b"data: a\n\n"[..], b"data: b\r\n\r\n", b"data: c"]);
    }
}
