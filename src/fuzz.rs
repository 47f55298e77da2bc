//! Bodies of the fuzz targets, compiled in tests too.
//!
//! In: arbitrary bytes. Out: a panic when an invariant breaks. Never: a rule that a test does not replay from
//! `fuzz/regressions/`.

mod coded;
mod dataset;
mod reply;
mod served;
mod template;
mod tunnel;

pub use coded::coded;
pub use dataset::dataset;
pub use reply::reply;
pub use served::served;
pub use template::template;
pub use tunnel::tunnel;

use crate::wire::{
    ContentKind, Fault, Head, Limits, Response, SseEvent, SseKind, SseScanner, Step, fields,
    header_lines, reason_phrase,
};

/// Bounds small enough for a fuzzer to pass them.
pub const SMALL: Limits = Limits {
    head_bytes: 256,
    header_count: 8,
    interim_count: 2,
    chunk_line_bytes: 32,
    trailer_bytes: 64,
    event_bytes: 64,
    body_bytes: 512,
    density: 200,
};

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Whole, with this many bytes behind it.
    Done(usize),
    /// Wrong.
    Wrong(Fault),
    /// Not ended: the connection is still open.
    Open,
}

/// All that a caller of [`crate::wire`] sees of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The final head.
    pub head: Option<Head>,
    /// Its raw bytes.
    pub head_bytes: Vec<u8>,
    /// The decoded body; empty after [`Fault::EventTooLarge`] and [`Fault::EncodingTooDense`], which are found when a read has been decoded
    /// whole or in good part.
    pub body: Vec<u8>,
    /// Events of an event stream.
    pub events: Vec<SseEvent>,
    /// How it ended.
    pub end: End,
}

/// Reads one response that arrives in `pieces`; `closed` says whether the connection ends behind them.
///
/// # Panics
/// When an invariant of the parser breaks.
pub fn observe<'a>(
    limits: Limits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    closed: bool,
) -> Seen {
    let mut response = Response::new(limits);
    let mut scanner = SseScanner::new(limits);
    let mut seen = Seen {
        head: None,
        head_bytes: Vec::new(),
        body: Vec::new(),
        events: Vec::new(),
        end: End::Open,
    };
    let mut any = false;
    for piece in pieces {
        any |= !piece.is_empty();
        if let End::Done(surplus) = &mut seen.end {
            *surplus += piece.len();
            continue;
        }
        let step = response.feed(piece, &mut seen.head_bytes, &mut seen.body);
        assert_eq!(
            response.started(),
            any,
            "started() disagrees with the bytes fed"
        );
        seen.head = response.head();
        assert!(
            seen.head_bytes.len() <= limits.head_bytes,
            "head bytes over the limit"
        );
        assert!(
            seen.body.len() <= limits.body_bytes,
            "body bytes over the limit"
        );
        if scan(&mut seen, |body| scanner.next(body)) {
            return seen;
        }
        match step {
            Step::More => {}
            Step::Done(used) => {
                assert!(used <= piece.len(), "more bytes used than given");
                if scan(&mut seen, |body| scanner.finish(body)) {
                    return seen;
                }
                seen.end = End::Done(piece.len() - used);
            }
            Step::Wrong(fault) => {
                seen.end = End::Wrong(fault);
                if fault == Fault::EncodingTooDense {
                    seen.body.clear();
                    seen.events.clear();
                }
                assert_eq!(response.eof(), Err(fault), "a fault did not last");
                return seen;
            }
        }
    }
    if closed && seen.end == End::Open {
        match response.eof() {
            Ok(()) => {
                seen.end = End::Done(0);
                scan(&mut seen, |body| scanner.finish(body));
            }
            Err(fault) => seen.end = End::Wrong(fault),
        }
    }
    seen
}

/// Takes events until there is no more; true when one was wrong.
fn scan(seen: &mut Seen, mut next: impl FnMut(&[u8]) -> Step<SseEvent>) -> bool {
    if seen
        .head
        .is_none_or(|head| head.content != ContentKind::EventStream)
    {
        return false;
    }
    loop {
        match next(&seen.body) {
            Step::Done(event) => seen.events.push(event),
            Step::More => return false,
            Step::Wrong(fault) => {
                seen.end = End::Wrong(fault);
                seen.body.clear();
                return true;
            }
        }
    }
}

/// Arbitrary bytes as a response with small limits: cut at every byte or not at all, the result is the same, and the readers of
/// head bytes take whatever is there.
///
/// # Panics
/// When an invariant breaks.
pub fn head(data: &[u8]) {
    let whole = observe(SMALL, [data], true);
    assert_eq!(
        whole,
        observe(SMALL, data.chunks(1), true),
        "a byte at a time"
    );
    let _ = (reason_phrase(data), header_lines(data));
    if let Some(head) = whole.head {
        assert!(
            head.status >= 200,
            "an interim head was taken for the final one"
        );
        let digits = head.status.to_string();
        assert!(
            String::from_utf8_lossy(&whole.head_bytes).contains(&digits),
            "the head bytes are not of this head"
        );
    }
}

/// Arbitrary bytes as a chunked body: splits do not matter, and what the decoder accepts a plain reading decodes the same.
///
/// # Panics
/// When an invariant breaks.
pub fn body(data: &[u8]) {
    let mut input = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    input.extend_from_slice(data);
    let whole = observe(SMALL, [&input[..]], true);
    assert_eq!(
        whole,
        observe(SMALL, input.chunks(1), true),
        "a byte at a time"
    );
    if let End::Done(surplus) = whole.end {
        let (body, rest) =
            plain_chunks(data).expect("the decoder took what a plain reading refuses");
        assert_eq!(
            (&whole.body, surplus),
            (&body, rest),
            "the decoder and a plain reading differ"
        );
    }
}

/// Arbitrary bytes as an event stream: the scanner agrees with a plain reading, whole and at every two-way split.
///
/// # Panics
/// When an invariant breaks.
pub fn sse(data: &[u8]) {
    let limits = Limits {
        event_bytes: usize::MAX,
        ..Limits::default()
    };
    let expected = plain_events(data);
    for cut in 0..=data.len().min(200) {
        let mut scanner = SseScanner::new(limits);
        let mut events = Vec::new();
        for body in [&data[..cut], data] {
            while let Step::Done(event) = scanner.next(body) {
                events.push(event);
            }
        }
        while let Step::Done(event) = scanner.finish(data) {
            events.push(event);
        }
        let found: Vec<_> = events
            .iter()
            .map(|event| (span(event), event.kind))
            .collect();
        let wanted: Vec<_> = expected
            .iter()
            .map(|event| (event.span, event.kind))
            .collect();
        assert_eq!(found, wanted, "cut at {cut}");
    }
    for event in &expected {
        let fields = fields(&data[event.span.0..event.span.1]);
        assert_eq!(
            fields.data.as_deref(),
            event.data.as_deref(),
            "fields() reads other data"
        );
    }
}

/// Arbitrary bytes as piece lengths and a response cut so: the result is that of one read.
///
/// # Panics
/// When an invariant breaks.
pub fn response(data: &[u8]) {
    let Some((lengths, input)) = lengths_and_input(data) else {
        return;
    };
    let whole = observe(SMALL, [input], true);
    let pieces = cut(input, lengths);
    assert_eq!(whole, observe(SMALL, pieces, true), "cut into {lengths:?}");
    assert_eq!(
        whole,
        observe(SMALL, input.chunks(1), true),
        "a byte at a time"
    );
}

/// A count, as many lengths of pieces, and what is to be cut so; `None` of no bytes at all.
fn lengths_and_input(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = data.split_first()?;
    Some(rest.split_at(usize::from(count % 16).min(rest.len())))
}

/// `input` in pieces of these lengths, and one of what is left.
fn cut<'a>(input: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut rest = input;
    let mut pieces = Vec::new();
    for &length in lengths {
        let (piece, behind) = rest.split_at(usize::from(length).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    pieces
}

/// An event as [`plain_events`] reads it.
#[derive(Debug)]
struct PlainEvent {
    span: (usize, usize),
    kind: SseKind,
    data: Option<Vec<u8>>,
}

fn span(event: &SseEvent) -> (usize, usize) {
    (
        usize::try_from(event.begin).unwrap_or(usize::MAX),
        usize::try_from(event.end).unwrap_or(usize::MAX),
    )
}

/// The plain twin of the scanner: all lines first, then the events, with copies.
fn plain_events(data: &[u8]) -> Vec<PlainEvent> {
    let mut events = Vec::new();
    let mut open: Vec<Vec<u8>> = Vec::new();
    let mut begin = 0;
    let mut at = if data.starts_with(&[0xEF, 0xBB, 0xBF]) {
        3
    } else {
        0
    };
    while at < data.len() {
        let start = at;
        while at < data.len() && data[at] != b'\n' && data[at] != b'\r' {
            at += 1;
        }
        let line = data[start..at].to_vec();
        if open.is_empty() {
            begin = start;
        }
        let terminated = at < data.len();
        at += 1;
        let closed = at;
        if terminated && data[at - 1] == b'\r' && data.get(at) == Some(&b'\n') {
            at += 1;
        }
        if !line.is_empty() {
            open.push(line);
        } else if !open.is_empty() {
            events.push(plain_event(&open, (begin, closed)));
            open.clear();
        }
    }
    if !open.is_empty() {
        let event = plain_event(&open, (begin, data.len()));
        let has_data = event
            .data
            .as_ref()
            .is_some_and(|data| data.iter().any(|&byte| byte != b'\n'));
        if has_data || event.kind == SseKind::Error {
            events.push(event);
        }
    }
    events
}

fn plain_event(lines: &[Vec<u8>], span: (usize, usize)) -> PlainEvent {
    let mut data: Option<Vec<u8>> = None;
    let mut name = Vec::new();
    for line in lines {
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                data = Some(data.map_or_else(
                    || value.to_vec(),
                    |before| [&before, &b"\n"[..], value].concat(),
                ));
            }
            b"event" => name = value.to_ascii_lowercase(),
            _ => {}
        }
    }
    let kind = match &data {
        _ if name.trim_ascii() == b"error" => SseKind::Error,
        Some(data) if data.trim_ascii() == b"[DONE]" => SseKind::Done,
        Some(data) if data.iter().any(|&byte| byte != b'\n') => SseKind::Message,
        _ => SseKind::KeepAlive,
    };
    PlainEvent { span, kind, data }
}

/// The plain twin of the chunk decoder, for bodies that are whole: the body and the number of bytes behind it.
fn plain_chunks(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    let mut rest = data;
    loop {
        let line;
        (line, rest) = plain_line(rest)?;
        let digits = line.split(|byte| b"; \t".contains(byte)).next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        body.extend_from_slice(rest.get(..size)?);
        let end;
        (end, rest) = plain_line(&rest[size..])?;
        if !end.is_empty() {
            return None;
        }
    }
    loop {
        let line;
        (line, rest) = plain_line(rest)?;
        if line.is_empty() {
            return Some((body, rest.len()));
        }
    }
}

/// A line without its CR LF or LF, and what follows.
fn plain_line(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = data.iter().position(|&byte| byte == b'\n')?;
    let line = &data[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &data[end + 1..]))
}

#[cfg(test)]
mod tests;
