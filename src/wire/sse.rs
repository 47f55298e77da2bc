//! Server-sent events (WHATWG HTML, section 9.2).
//!
//! In: a body that grows. Out: where each event begins and ends, and what kind it is. Never: a copy of the body, or a second
//! look at a byte.
//!
//! Offsets do not depend on how the reads cut the body. An event begins at its first line that is not empty and ends just
//! after the CR or LF that closes it; the LF of a closing CR LF belongs to no event.

use std::borrow::Cow;

use super::{Fault, Limits, Step};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event in a body: `begin..end` are byte offsets into the decoded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// First byte of the event's first line.
    pub begin: u64,
    /// Just after the line end that closed the event.
    pub end: u64,
    /// What it is.
    pub kind: SseKind,
}

/// What an event is, as far as its fields show without reading the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseKind {
    /// Data that someone must read.
    Message,
    /// Data is exactly `[DONE]`, blanks around it aside.
    Done,
    /// No data, or empty data: comments and the like.
    KeepAlive,
    /// `event: error`, in any case, with or without data.
    Error,
}

/// What the lines of the open event said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// A line that is not empty was seen.
    any: bool,
    /// A data line held at least one byte.
    value: bool,
    /// Data lines that hold more than blanks: none, one, or more.
    dense: u8,
    /// The last of the dense lines is `[DONE]`.
    done: bool,
    /// The last event line said `error`.
    error: bool,
}

impl Lines {
    #[inline]
    fn take(&mut self, line: &[u8]) {
        self.any = true;
        if let Some(rest) = line.strip_prefix(b"data") {
            if let Some(value) = value_after_name(rest) {
                self.value |= !value.is_empty();
                let dense = value.trim_ascii();
                if !dense.is_empty() {
                    self.dense = self.dense.saturating_add(1);
                    self.done = dense == b"[DONE]";
                }
            }
        } else if let Some(value) = line.strip_prefix(b"event").and_then(value_after_name) {
            self.error = value.trim_ascii().eq_ignore_ascii_case(b"error");
        }
    }

    fn kind(self) -> SseKind {
        if self.error {
            SseKind::Error
        } else if self.done && self.dense == 1 {
            SseKind::Done
        } else if self.value {
            SseKind::Message
        } else {
            SseKind::KeepAlive
        }
    }
}

/// The value of a field line whose name has been taken off; none when the name was only the start of a longer one.
#[inline]
fn value_after_name(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Finds events in a growing body. Work is proportional to the new bytes.
///
/// ```
/// use tokenring::wire::{Limits, SseEvent, SseKind, SseScanner, Step};
/// let mut scanner = SseScanner::new(Limits::default());
/// assert_eq!(scanner.next(b"data: {}\n"), Step::More);
/// let event = SseEvent { begin: 0, end: 10, kind: SseKind::Message };
/// assert_eq!(scanner.next(b"data: {}\n\ndata: "), Step::Done(event));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SseScanner {
    event_bytes: usize,
    /// The start was checked for a byte order mark.
    opened: bool,
    /// The last line end was a CR: an LF right here belongs to it.
    after_return: bool,
    /// First byte of the open event.
    begin: usize,
    /// First byte of the open line.
    line: usize,
    /// First byte not looked at.
    at: usize,
    lines: Lines,
    fault: Option<Fault>,
}

impl SseScanner {
    /// A scanner before the first byte.
    #[must_use]
    pub fn new(limits: Limits) -> SseScanner {
        SseScanner {
            event_bytes: limits.event_bytes,
            opened: false,
            after_return: false,
            begin: 0,
            line: 0,
            at: 0,
            lines: Lines::default(),
            fault: None,
        }
    }

    /// Makes ready for another body.
    pub fn reset(&mut self) {
        *self = SseScanner::new(Limits {
            event_bytes: self.event_bytes,
            ..Limits::default()
        });
    }

    /// The next event. `body` is the whole body so far; call until More. An event is there as soon as the CR or LF that closes
    /// it is. A fault is final until [`SseScanner::reset`].
    #[inline]
    pub fn next(&mut self, body: &[u8]) -> Step<SseEvent> {
        if !self.opened && !self.open(body) {
            return Step::More;
        }
        if let Some(fault) = self.fault {
            return Step::Wrong(fault);
        }
        loop {
            if self.after_return && self.at < body.len() {
                self.after_return = false;
                if body[self.at] == b'\n' {
                    self.start_line(self.at + 1);
                }
            }
            let Some(found) = memchr::memchr2(b'\n', b'\r', &body[self.at..]) else {
                self.at = body.len();
                if body.len() - self.begin > self.event_bytes {
                    return self.fail();
                }
                return Step::More;
            };
            let mut end = self.at + found;
            let (begin, line) = (self.begin, &body[self.line..end]);
            self.after_return = body[end] == b'\r';
            if !line.is_empty() {
                self.lines.take(line);
                self.start_line(end + 1);
                if end + 1 - begin > self.event_bytes {
                    return self.fail();
                }
                if self.after_return || body.get(end + 1) != Some(&b'\n') {
                    continue;
                }
                // As nearly always, the empty line stands right behind.
                end += 1;
            }
            let lines = std::mem::take(&mut self.lines);
            self.start_line(end + 1);
            if !lines.any {
                continue;
            }
            if end + 1 - begin > self.event_bytes {
                return self.fail();
            }
            return Step::Done(SseEvent {
                begin: begin as u64,
                end: end as u64 + 1,
                kind: lines.kind(),
            });
        }
    }

    /// As [`SseScanner::next`], for a body that ended as it should: a remainder without an empty line behind it, if it holds
    /// data or an error, is the last event. WHATWG drops it; servers that forget the last line end are common, and AIPerf
    /// counts it. More: nothing is left.
    pub fn finish(&mut self, body: &[u8]) -> Step<SseEvent> {
        match self.next(body) {
            Step::More => {}
            step => return step,
        }
        if !self.opened {
            self.opened = true;
            self.at = body.len();
        }
        if self.line < body.len() {
            self.lines.take(&body[self.line..]);
        }
        let lines = std::mem::take(&mut self.lines);
        let begin = self.begin as u64;
        self.start_line(body.len());
        if lines.value || lines.error {
            return Step::Done(SseEvent {
                begin,
                end: body.len() as u64,
                kind: lines.kind(),
            });
        }
        Step::More
    }

    /// The next line starts at `at`, and so does the event if it has no line yet.
    #[inline]
    fn start_line(&mut self, at: usize) {
        self.at = at;
        self.line = at;
        if !self.lines.any {
            self.begin = at;
        }
    }

    /// Drops a byte order mark; false while the bytes could still become one.
    fn open(&mut self, body: &[u8]) -> bool {
        if body.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(body) {
            return false;
        }
        self.opened = true;
        if body.starts_with(BYTE_ORDER_MARK) {
            self.start_line(BYTE_ORDER_MARK.len());
        }
        true
    }

    #[cold]
    fn fail(&mut self) -> Step<SseEvent> {
        self.fault = Some(Fault::EventTooLarge);
        Step::Wrong(Fault::EventTooLarge)
    }
}

/// The fields of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseFields<'a> {
    /// The data lines joined by LF; none without a data line. Borrowed when there is one line.
    pub data: Option<Cow<'a, [u8]>>,
    /// Value of the last `event` line.
    pub event: Option<&'a [u8]>,
    /// Value of the last `id` line without a NUL.
    pub id: Option<&'a [u8]>,
    /// Value of the last `retry` line that is a number, milliseconds.
    pub retry: Option<u64>,
    /// Comment lines without their colon and one space after it, in order.
    pub comments: Vec<&'a [u8]>,
}

/// Reads the fields of one event's bytes, from [`SseEvent::begin`] to [`SseEvent::end`]. Off the hot path.
#[must_use]
pub fn fields(event: &[u8]) -> SseFields<'_> {
    let mut fields = SseFields::default();
    let mut rest = event;
    while !rest.is_empty() {
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        fields.take(&rest[..end]);
        // A CR LF leaves an empty line between the two, which holds no field.
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    fields
}

impl<'a> SseFields<'a> {
    fn take(&mut self, line: &'a [u8]) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, rest) = line.split_at(colon);
        let value = value_after_name(rest).unwrap_or_default();
        match name {
            b"" if !line.is_empty() => self.comments.push(value),
            b"data" => match &mut self.data {
                None => self.data = Some(Cow::Borrowed(value)),
                Some(data) => {
                    let data = data.to_mut();
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"event" => self.event = Some(value),
            b"id" if !value.contains(&0) => self.id = Some(value),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(value)
                    .ok()
                    .and_then(|digits| digits.parse().ok());
            }
            _ => {}
        }
    }
}
