//! A reply, read.
//!
//! In: an exchange's body and marks. Out: content pieces with the reads they came in. Never: a tick or a token count.

use std::borrow::Cow;

use super::tally::TokenTally;
use super::{EventMark, Exchange, Outcome};
use crate::config::Ending;
use crate::endpoint::{Api, Chunks, OtherChoice, Parsed, PeerError, Piece, PieceKind, Said, Usage};
use crate::wire::{ContentKind, Limits, SseFields, SseScanner, Step, fields};

/// What the body said.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Content in order: kind, counts as output, index of the read.
    pub(super) pieces: Vec<(PieceKind, bool, u32)>,
    pub(super) output: String,
    pub(super) reasoning: String,
    /// Choices besides the first that said something.
    pub(super) others: Vec<Choice>,
    /// Everything of the first choice in arrival order.
    pub(super) text: String,
    pub(super) usage: Option<Usage>,
    pub(super) first_chunk_tokens: Option<u64>,
    /// What each event told of the tokens so far.
    pub(super) tally: TokenTally,
    /// Places of all events; kept only when asked for.
    pub(super) marks: Vec<EventMark>,
    pub(super) finish_reason: Option<String>,
    /// The first error the peer reported.
    pub(super) error: Option<PeerError>,
    /// It came as `event: error`.
    pub(super) error_event: bool,
    /// `[DONE]`, or the event that ends a reply of the dialect.
    pub(super) done_seen: bool,
    pub(super) keep_alive_count: u32,
    pub(super) event_count: usize,
    pub(super) streamed: bool,
    /// A stream whose framing was whole ended without a word that it was meant to, and this is what it lacked.
    pub(super) truncated: Option<&'static str>,
    /// Read of the last response event, comments aside.
    pub(super) last_read: Option<u32>,
}

/// What a choice besides the first said.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) index: u64,
    pub(super) output: String,
    pub(super) reasoning: String,
    /// Both in arrival order.
    pub(super) text: String,
}

/// What is kept of a reply besides its numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keep {
    /// Its text.
    pub(super) text: bool,
    /// The places of its events.
    pub(super) marks: bool,
}

/// Reads a 2xx reply, whole or cut. Another status has nothing to read.
pub(super) fn read(api: &Api, exchange: &Exchange, keep: Keep) -> Reading {
    let mut reading = Reading::default();
    if !exchange.head.is_some_and(|head| head.is_success()) {
        return reading;
    }
    if let Some(marks) = marks(exchange) {
        reading.streamed = true;
        let mut chunks = api.chunks();
        for mark in marks.iter() {
            let bytes = event_bytes(exchange, mark);
            reading.event(&mut chunks, bytes, mark.read, keep.text);
        }
        if keep.marks {
            reading.marks = marks.into_owned();
        }
        let reason = reading.finish_reason.is_some();
        reading.truncated = missed(api.ending(), reading.done_seen, reason);
    } else if !exchange.body.is_empty() {
        let last = read_at(exchange, exchange.body.len() as u64);
        reading.last_read = Some(last);
        if let Parsed::Piece(piece) = api.parse(&exchange.body) {
            reading.piece(piece, last, keep.text);
        }
    }
    reading
}

/// What a stream whose framing was whole lacks of an end: it saw its last mark or event, or a reason for its end, or neither.
pub(super) fn missed(ending: Ending, done: bool, reason: bool) -> Option<&'static str> {
    match ending {
        Ending::DoneMark if !done && !reason => Some("with neither a finish_reason nor [DONE]"),
        Ending::Event if !done => Some("without the event that says that the reply is whole"),
        _ => None,
    }
}

/// Whether an event is the mark that stands behind all others.
pub(super) fn is_done_mark(payload: &[u8]) -> bool {
    payload == b"[DONE]"
}

/// Events of the body, `None` when it is no stream. The worker marked those of a reply that says it is one; a body that turns out
/// to be a stream in spite of its content type is scanned here.
pub(super) fn marks(exchange: &Exchange) -> Option<Cow<'_, [EventMark]>> {
    if !exchange.events.is_empty() {
        return Some(Cow::Borrowed(&exchange.events));
    }
    let body = &exchange.body;
    let declared = exchange
        .head
        .is_some_and(|head| head.content == ContentKind::EventStream);
    let json = body.trim_ascii_start().starts_with(b"{");
    if !looks_like_stream(body) && (!declared || json) {
        return None;
    }
    let mut scanner = SseScanner::new(Limits::default());
    let mut marks = Vec::new();
    loop {
        let mut step = scanner.next(body);
        // Only a body that ended as it should may leave its last event unclosed.
        let whole = exchange.outcome == Outcome::Success;
        if whole && step == Step::More {
            step = scanner.finish(body);
        }
        let Step::Done(event) = step else {
            return Some(Cow::Owned(marks));
        };
        marks.push(EventMark {
            begin: event.begin,
            end: event.end,
            read: read_at(exchange, event.end),
            first_read: read_at(exchange, event.begin + 1),
        });
    }
}

/// The body begins as an event stream does, after an optional byte order mark.
fn looks_like_stream(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let body = body.trim_ascii_start();
    [&b"data:"[..], b"event:", b":", b"id:", b"retry:"]
        .iter()
        .any(|start| body.starts_with(start))
}

/// The data without surrounding white space, empty when there is none.
pub(super) fn payload<'a>(fields: &'a SseFields<'_>) -> &'a [u8] {
    fields.data.as_deref().unwrap_or_default().trim_ascii()
}

/// The event says that the request failed.
pub(super) fn is_error(fields: &SseFields<'_>) -> bool {
    let name = fields.event.unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(b"error")
}

pub(super) fn event_bytes<'a>(exchange: &'a Exchange, mark: &EventMark) -> &'a [u8] {
    let place = usize::try_from(mark.begin)
        .ok()
        .zip(usize::try_from(mark.end).ok());
    place
        .and_then(|(begin, end)| exchange.body.get(begin..end))
        .unwrap_or_default()
}

/// Index of the read that brought the body to a length of `end` bytes.
fn read_at(exchange: &Exchange, end: u64) -> u32 {
    let reads = &exchange.reads;
    let index = reads.partition_point(|read| read.body_end < end);
    u32::try_from(index.min(reads.len().saturating_sub(1))).unwrap_or(u32::MAX)
}

/// What of a choice counts as output: AIPerf counts only the tool text of a chunk that has both.
fn output_of(said: &Said) -> Option<&str> {
    said.tool.as_deref().or(said.text.as_deref())
}

impl Reading {
    fn event(&mut self, chunks: &mut Chunks, bytes: &[u8], read: u32, keep_text: bool) {
        let before = self.pieces.len();
        let total = self.understand(chunks, bytes, read, keep_text);
        self.tally.push(total, self.pieces.len() > before);
    }

    /// Takes in one event; returns the completion tokens so far, where it tells them.
    fn understand(
        &mut self,
        chunks: &mut Chunks,
        bytes: &[u8],
        read: u32,
        keep_text: bool,
    ) -> Option<u64> {
        self.event_count += 1;
        let fields = fields(bytes);
        let payload = payload(&fields);
        if is_error(&fields) {
            self.last_read = Some(read);
            self.error_event(chunks, payload, fields.comments.first().copied());
            return None;
        }
        if payload.is_empty() {
            self.keep_alive_count += 1;
            return None;
        }
        self.last_read = Some(read);
        if is_done_mark(payload) {
            self.done_seen = true;
        } else if let Parsed::Piece(piece) = chunks.parse(payload) {
            let total = piece.usage.and_then(|usage| usage.completion_tokens);
            self.piece(piece, read, keep_text);
            return total;
        }
        None
    }

    /// `event: error`: the message is the comment, the data's own message, or the data.
    fn error_event(&mut self, chunks: &mut Chunks, payload: &[u8], comment: Option<&[u8]>) {
        if self.error.is_some() {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let parsed = match chunks.parse(payload) {
            Parsed::Piece(Piece {
                error: Some(error), ..
            }) => Some(error),
            _ => None,
        };
        let named = || {
            let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
            Some(value.get("message")?.as_str()?.to_owned())
        };
        let kind = parsed.as_ref().and_then(|error| error.kind.clone());
        let message = comment
            .map(text)
            .or_else(|| parsed.as_ref().map(|error| error.message.clone()))
            .or_else(named)
            .or_else(|| (!payload.is_empty()).then(|| text(payload)))
            .unwrap_or_else(|| "the stream carried an error event without a message".to_owned());
        self.error_event = true;
        self.error = Some(PeerError {
            code: None,
            // A dialect that names its events has errors of its own, whose kinds say more than that there was one.
            kind: kind.filter(|_| chunks.ending() == Ending::Event),
            message,
        });
    }

    /// Keeps apart what each choice besides the first says, since a text that mixes them has other tokens than theirs.
    fn other_choices(&mut self, others: &[OtherChoice], keep_text: bool) {
        for &OtherChoice { index, ref said } in others {
            let known = self.others.iter().position(|other| other.index == index);
            let place = known.unwrap_or_else(|| {
                self.others.push(Choice {
                    index,
                    ..Choice::default()
                });
                self.others.len() - 1
            });
            let choice = &mut self.others[place];
            let reasoning = said.reasoning.as_deref().unwrap_or("");
            let output = output_of(said).unwrap_or("");
            choice.reasoning.push_str(reasoning);
            choice.output.push_str(output);
            if keep_text {
                choice.text.push_str(reasoning);
                choice.text.push_str(output);
            }
        }
    }

    fn piece(&mut self, piece: Piece, read: u32, keep_text: bool) {
        if let Some(kind) = piece.kind() {
            // A whole answer's usage says nothing of its first token.
            if self.pieces.is_empty() && self.streamed {
                self.first_chunk_tokens = piece.usage.and_then(|usage| usage.completion_tokens);
            }
            // AIPerf counts only the tool text of a chunk that has both.
            let output = piece.tool.as_deref().or(piece.text.as_deref());
            let others = piece
                .others
                .iter()
                .any(|other| output_of(&other.said).is_some());
            self.pieces.push((kind, output.is_some() || others, read));
            self.other_choices(&piece.others, keep_text);
            let reasoning = piece.reasoning.as_deref().unwrap_or("");
            let output = output.unwrap_or("");
            self.reasoning.push_str(reasoning);
            self.output.push_str(output);
            if keep_text {
                self.text.push_str(reasoning);
                self.text.push_str(output);
            }
        }
        self.done_seen |= piece.complete;
        if let Some(usage) = &piece.usage {
            self.usage.get_or_insert_default().update(usage);
        }
        if piece.finish_reason.is_some() {
            self.finish_reason = piece.finish_reason;
        }
        if self.error.is_none() {
            self.error = piece.error;
        }
    }
}
