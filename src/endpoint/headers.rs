//! Request headers.
//!
//! In: the plan once, two ids and a turn's own headers for each request. Out: `Name: value` lines in AIPerf's order. Never: the request line, `Host`,
//! `Content-Length` or the blank line; those are the engine's.

use uuid::Uuid;

use super::{Api, SessionName};

/// Header lines of a run, rendered as far as they do not change from request to request.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    parts: Vec<Part>,
    host: Option<String>,
    content_length: Option<String>,
}

#[derive(Clone, Debug)]
enum Part {
    Fixed(Vec<u8>),
    RequestId,
    SessionId,
    /// Where a turn's own headers go.
    Turn,
}

/// A header before its rendering.
struct Header<'a> {
    name: &'a str,
    value: Value,
}

enum Value {
    Text(String),
    RequestId,
    SessionId,
}

impl HeaderTemplate {
    /// Lays the lines out. A user's header takes the place of the built-in one of the same name.
    #[must_use]
    pub fn new(api: &Api) -> Self {
        let plan = api.plan();
        let mut before = vec![
            text(
                "User-Agent",
                concat!("tokenring/", env!("CARGO_PKG_VERSION")),
            ),
            Header {
                name: "X-Request-ID",
                value: Value::RequestId,
            },
            Header {
                name: plan.session_header.as_deref().unwrap_or("X-Correlation-ID"),
                value: Value::SessionId,
            },
        ];
        let mut after = Vec::new();
        let own = api.headers();
        after.extend(own.iter().map(|(name, value)| text(name, value)));
        let accept = if plan.streaming {
            "text/event-stream"
        } else {
            "application/json"
        };
        let tail = after.len();
        after.push(text("Accept", accept));
        after.push(text("Content-Type", api.content_type()));
        for &name in &plan.affinity_headers {
            after.push(Header {
                name,
                value: Value::SessionId,
            });
        }
        let mut template = HeaderTemplate {
            parts: Vec::new(),
            host: None,
            content_length: None,
        };
        let own = template.place(&plan.headers, &mut before, &mut after);
        let rest = after.split_off(tail);
        for header in before.into_iter().chain(own).chain(after) {
            template.push(header);
        }
        template.parts.push(Part::Turn);
        for header in rest {
            template.push(header);
        }
        template
    }

    /// Appends the lines for one request. `of_turn` go behind the user's own, in the place of any other of the same name.
    #[inline]
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        request_id: u128,
        session_id: u128,
        of_turn: &[(String, String)],
    ) {
        let begin = out.len();
        let mut place = begin;
        for part in &self.parts {
            match part {
                Part::Fixed(bytes) => out.extend_from_slice(bytes),
                Part::RequestId => write_uuid(out, request_id),
                Part::SessionId => write_session(out, session_id),
                Part::Turn => place = out.len(),
            }
        }
        if !of_turn.is_empty() {
            put_in(out, begin, place, of_turn);
        }
    }

    /// The user's own `Host`, which is to be sent in place of the URL's.
    #[must_use]
    pub fn host_override(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The user's own `Content-Length`, which cannot be honoured without breaking the framing.
    #[must_use]
    pub fn content_length_override(&self) -> Option<&str> {
        self.content_length.as_deref()
    }

    /// Puts user headers over built-in ones; returns those that have a name of their own.
    fn place<'a>(
        &mut self,
        headers: &'a [(String, String)],
        before: &mut [Header<'a>],
        after: &mut [Header<'a>],
    ) -> Vec<Header<'a>> {
        let mut own = Vec::new();
        for (name, value) in headers {
            let same = |header: &&mut Header<'a>| header.name.eq_ignore_ascii_case(name);
            if name.eq_ignore_ascii_case("host") {
                self.host = Some(value.clone());
            } else if name.eq_ignore_ascii_case("content-length") {
                self.content_length = Some(value.clone());
            } else if let Some(built_in) = before.iter_mut().chain(&mut *after).find(same) {
                built_in.value = Value::Text(value.clone());
            } else {
                own.push(text(name, value));
            }
        }
        own
    }

    fn push(&mut self, header: Header<'_>) {
        self.fixed(header.name.as_bytes());
        self.fixed(b": ");
        match header.value {
            Value::Text(value) => self.fixed(value.as_bytes()),
            Value::RequestId => self.parts.push(Part::RequestId),
            Value::SessionId => self.parts.push(Part::SessionId),
        }
        self.fixed(b"\r\n");
    }

    fn fixed(&mut self, bytes: &[u8]) {
        if let Some(Part::Fixed(last)) = self.parts.last_mut() {
            last.extend_from_slice(bytes);
        } else {
            self.parts.push(Part::Fixed(bytes.to_vec()));
        }
    }
}

/// Puts `headers` into the lines from `begin` on, at `place`, and takes out those of the same name.
#[cold]
fn put_in(out: &mut Vec<u8>, begin: usize, place: usize, headers: &[(String, String)]) {
    let replaced = |line: &[u8]| {
        let mut names = headers.iter().map(|(name, _)| name.as_bytes());
        names.any(|name| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        })
    };
    let keep = |lines: &[u8]| -> Vec<u8> {
        let lines = lines.split_inclusive(|&byte| byte == b'\n');
        lines
            .filter(|line| !replaced(line))
            .flatten()
            .copied()
            .collect()
    };
    let (before, after) = (keep(&out[begin..place]), keep(&out[place..]));
    out.truncate(begin);
    out.extend(before);
    for (name, value) in headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend(after);
}

fn text<'a>(name: &'a str, value: &str) -> Header<'a> {
    Header {
        name,
        value: Value::Text(value.to_owned()),
    }
}

fn write_session(out: &mut Vec<u8>, id: u128) {
    use std::io::Write;
    // A vector takes all that is written to it.
    let _ = write!(out, "{}", SessionName(id));
}

fn write_uuid(out: &mut Vec<u8>, id: u128) {
    let mut buffer = Uuid::encode_buffer();
    let text = Uuid::from_u128(id).hyphenated().encode_lower(&mut buffer);
    out.extend_from_slice(text.as_bytes());
}
