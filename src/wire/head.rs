//! The response head.
//!
//! In: bytes up to the blank line. Out: a [`Head`]. Never: keeps a string; the bytes stay with the caller.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use super::{Coding, Fault};

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
    /// What the body is packed with; the body that is handed on is not.
    pub coding: Option<Coding>,
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

/// Header fields that fit on the stack; a higher [`Limits::header_count`](super::Limits::header_count) is cut to it.
const HEADER_ROOM: usize = 256;

/// What the fields of a head say, before it is judged.
#[derive(Debug)]
pub(super) struct Parsed {
    status: u16,
    /// HTTP/1.1 rather than 1.0.
    modern: bool,
    close: bool,
    persist: bool,
    /// `chunked` was named this often.
    chunked: u32,
    /// A transfer coding that is not `chunked` was named.
    foreign_transfer: bool,
    length: Option<Result<u64, Fault>>,
    encoded: Encoded,
    content: ContentKind,
}

/// What `Content-Encoding` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoded {
    Plain,
    As(Coding),
    /// Not known, or several at once: what packs a body twice is a mistake of some proxy, not a way to save bytes.
    Unknown,
}

/// Reads a complete head, blank line included.
pub(super) fn parse(bytes: &[u8], header_count: usize) -> Result<Parsed, Fault> {
    let mut room = [const { MaybeUninit::uninit() }; HEADER_ROOM];
    let headers = &mut room[..header_count.min(HEADER_ROOM)];
    let mut response = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    // RFC 9112 section 5.2: a client reads a folded line as one value.
    config.allow_obsolete_multiline_headers_in_responses(true);
    match config.parse_response_with_uninit_headers(&mut response, bytes, headers) {
        Ok(httparse::Status::Complete(used)) if used == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::HeadTooLarge),
        Ok(_) | Err(_) => return Err(Fault::BadHead),
    }
    let (Some(status @ 100..), Some(version)) = (response.code, response.version) else {
        return Err(Fault::BadHead);
    };
    let mut parsed = Parsed {
        status,
        modern: version == 1,
        close: false,
        persist: false,
        chunked: 0,
        foreign_transfer: false,
        length: None,
        encoded: Encoded::Plain,
        content: ContentKind::Other,
    };
    for header in response.headers.iter() {
        parsed.take(header.name, header.value);
    }
    Ok(parsed)
}

impl Parsed {
    /// Status code, 100..=999.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// The body is in a content coding that cannot be taken off, and there is a body.
    pub(super) fn is_unreadable(&self) -> bool {
        self.encoded == Encoded::Unknown && !self.is_empty()
    }

    fn is_empty(&self) -> bool {
        matches!(self.status, 204 | 304)
    }

    fn take(&mut self, name: &str, value: &[u8]) {
        if name.eq_ignore_ascii_case("content-type") {
            self.content = content_kind(value);
        } else if name.eq_ignore_ascii_case("content-length") {
            for item in items(value) {
                let read = length(item);
                self.length = match self.length {
                    Some(before) if before != read => Some(Err(Fault::BadLength)),
                    Some(_) | None => Some(read),
                };
            }
            // A value without an item is not a number either.
            self.length = self.length.or(Some(Err(Fault::BadLength)));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            for item in items(value) {
                if item.eq_ignore_ascii_case(b"chunked") {
                    self.chunked += 1;
                } else if !item.eq_ignore_ascii_case(b"identity") {
                    self.foreign_transfer = true;
                }
            }
        } else if name.eq_ignore_ascii_case("connection") {
            for item in items(value) {
                self.close |= item.eq_ignore_ascii_case(b"close");
                self.persist |= item.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if name.eq_ignore_ascii_case("content-encoding") {
            for item in items(value).filter(|item| !item.eq_ignore_ascii_case(b"identity")) {
                self.encoded = match (self.encoded, Coding::named(item)) {
                    (Encoded::Plain, Some(coding)) => Encoded::As(coding),
                    _ => Encoded::Unknown,
                };
            }
        }
    }

    /// Judges the framing (RFC 9112 section 6.3) and persistence (section 9.3).
    pub(super) fn head(&self) -> Result<Head, Fault> {
        let framing = if self.is_empty() {
            Framing::Empty
        } else if self.foreign_transfer || self.chunked > 1 {
            return Err(Fault::BadTransferEncoding);
        } else if self.chunked == 1 {
            Framing::Chunked
        } else {
            match self.length {
                Some(length) => Framing::Length(length?),
                None => Framing::UntilClose,
            }
        };
        // Chunked in HTTP/1.0 or beside a length is framing that some hop may have read otherwise: use it once, then close.
        let doubtful = self.chunked > 0 && (self.length.is_some() || !self.modern);
        let keep_alive = framing != Framing::UntilClose
            && !doubtful
            && !self.close
            && (self.modern || self.persist);
        Ok(Head {
            status: self.status,
            framing,
            keep_alive,
            content: self.content,
            coding: match self.encoded {
                Encoded::As(coding) if !self.is_empty() => Some(coding),
                _ => None,
            },
        })
    }
}

/// The items of a comma-separated value, without blanks around them and without empty ones.
fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}

fn length(item: &[u8]) -> Result<u64, Fault> {
    let mut value = 0_u64;
    for &byte in item {
        if !byte.is_ascii_digit() {
            return Err(Fault::BadLength);
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(byte - b'0')))
            .ok_or(Fault::BadLength)?;
    }
    Ok(value)
}

fn content_kind(value: &[u8]) -> ContentKind {
    let kind = value
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let ends_in_json = kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json");
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        ContentKind::EventStream
    } else if ends_in_json
        || kind.eq_ignore_ascii_case(b"application/json")
        || kind.eq_ignore_ascii_case(b"text/json")
    {
        ContentKind::Json
    } else {
        ContentKind::Other
    }
}

/// The reason phrase in a head's first line; empty when there is none. For messages, off the hot path.
#[must_use]
pub fn reason_phrase(head_bytes: &[u8]) -> Cow<'_, str> {
    let line = head_bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii_end();
    String::from_utf8_lossy(
        line.splitn(3, |&byte| byte == b' ')
            .nth(2)
            .unwrap_or_default(),
    )
}

/// The header fields of a head in their order, names as sent, folded lines joined by one space. For traces, off the hot path.
#[must_use]
pub fn header_lines(head_bytes: &[u8]) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in head_bytes.split(|&byte| byte == b'\n').skip(1) {
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            if let Some((_, value)) = lines.last_mut() {
                value.push(' ');
                value.push_str(text.trim_start());
            }
        } else if let Some((name, value)) = text.split_once(':') {
            lines.push((name.trim_end().to_owned(), value.trim().to_owned()));
        }
    }
    lines
}
