//! `profile_export_raw.jsonl`: what was sent and what came, byte for byte where JSON allows.
//!
//! In: exchanges with their records. Out: whole lines. Never: a secret header, or an interpretation.
//!
//! Beside AIPerf's fields stand the stamps, so that any definition of a latency can be computed anew. All times are nanoseconds
//! of the machine's monotonic clock, as `perf_ns` is: when the request was due, handed on, sent; every read with its stamps by the
//! kernel, by the worker and after parsing; and for every event the reads that brought it, how many events came whole in the same
//! read, and its tokens where the server told them. Nothing is interpolated: events that share a read share its stamps.

use std::path::Path;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::clock::{Calibration, Tick};
use crate::config::{CacheBust, Secrets};
use crate::dataset::WARMUP_MARKER;
use crate::record::{Exchange, Record, ReplyEvent};
use crate::report::records::{LineFile, PhaseTag, metadata, record_error};
use crate::report::{ReportError, redact};

/// Writes `profile_export_raw.jsonl`.
#[derive(Debug)]
pub struct RawWriter {
    lines: LineFile,
    cache_bust: Option<CacheBust>,
    secrets: Secrets,
}

#[derive(Serialize)]
struct Line<'a> {
    metadata: Value,
    start_perf_ns: u64,
    request_headers: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    responses: &'a [Value],
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bust_marker: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bust_target: Option<&'static str>,
    stamps: Map<String, Value>,
    reads: Vec<ReadLine>,
}

/// One read: when it came (by the source that the metrics take), its stamps, and what it brought.
#[derive(Serialize)]
struct ReadLine {
    perf_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_perf_ns: Option<u64>,
    user_perf_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parsed_perf_ns: Option<u64>,
    wire_bytes: u32,
    body_bytes: u64,
    events: usize,
}

impl RawWriter {
    /// Creates (or empties) the file.
    pub fn create(path: &Path) -> Result<RawWriter, ReportError> {
        Ok(RawWriter {
            lines: LineFile::create(path)?,
            cache_bust: None,
            secrets: Secrets::default(),
        })
    }

    /// Bodies have markers against prefix caches, which each line then names.
    #[must_use]
    pub fn marked(self, cache_bust: Option<CacheBust>) -> RawWriter {
        RawWriter { cache_bust, ..self }
    }

    /// Hides these wherever a request or a reply shows them.
    #[must_use]
    pub fn hiding(self, secrets: Secrets) -> RawWriter {
        RawWriter { secrets, ..self }
    }

    /// Adds one exchange; `body` is the request body that was sent.
    pub fn write(
        &mut self,
        exchange: &Exchange,
        record: &Record,
        body: &[u8],
        calibration: &Calibration,
        phase: &PhaseTag,
    ) -> Result<(), ReportError> {
        let marker = self.cache_bust.and_then(|target| marker(target, body));
        self.lines.push(&Line {
            metadata: metadata(record, phase),
            start_perf_ns: record.monotonic_start_ns,
            request_headers: redact::headers(&record.trace.request_headers),
            status: (record.status != 0).then_some(record.status),
            responses: &responses(exchange, record, calibration, &self.secrets),
            payload: payload(body, &self.secrets),
            error: record_error(record),
            error_class: record.error.as_ref().map(|error| error.class.name()),
            cache_bust_marker: marker,
            cache_bust_target: marker.and(self.cache_bust).map(CacheBust::name),
            stamps: stamps(exchange, calibration),
            reads: reads(exchange, &record.events, calibration),
        })
    }

    /// Hands all lines to the system; called every 100 ms.
    pub fn flush(&mut self) -> Result<(), ReportError> {
        self.lines.flush()
    }

    /// The last lines; an earlier run's file, which stood aside until now, goes.
    pub fn finish(&mut self) -> Result<(), ReportError> {
        self.lines.finish()
    }
}

/// The marker in a body.
fn marker(target: CacheBust, body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let begin = if target.is_per_session() {
        "[rid:"
    } else {
        WARMUP_MARKER
    };
    let from = text.find(begin)?;
    let length = text[from..].find(']')? + 1;
    Some(&text[from..from + length])
}

/// The body as it was, when it is JSON on one line; compacted when it has line ends; as a string when it is no JSON.
fn payload(body: &[u8], secrets: &Secrets) -> Box<RawValue> {
    let text = String::from_utf8_lossy(body);
    let text = secrets.hide(&text);
    if !text.contains(['\n', '\r'])
        && let Ok(raw) = RawValue::from_string(text.clone().into_owned())
    {
        return raw;
    }
    let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.into_owned()));
    to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn stamps(exchange: &Exchange, calibration: &Calibration) -> Map<String, Value> {
    let ticks = &exchange.ticks;
    let moments = [
        ("due_perf_ns", ticks.due),
        ("slot_perf_ns", ticks.slot),
        ("submitted_perf_ns", ticks.submitted),
        ("connect_start_perf_ns", ticks.connect_start),
        ("connect_end_perf_ns", ticks.connect_end),
        ("tls_end_perf_ns", ticks.tls_end),
        ("first_byte_sent_perf_ns", ticks.first_byte_sent),
        ("last_byte_sent_perf_ns", ticks.last_byte_sent),
        ("head_received_perf_ns", ticks.head_received),
        ("end_perf_ns", ticks.end),
    ];
    let came = moments.into_iter().filter(|moment| moment.1 != Tick::NEVER);
    came.map(|(name, tick)| (name.to_owned(), calibration.monotonic_ns(tick).into()))
        .collect()
}

fn reads(exchange: &Exchange, events: &[ReplyEvent], calibration: &Calibration) -> Vec<ReadLine> {
    let at = |tick: Tick| (tick != Tick::NEVER).then(|| calibration.monotonic_ns(tick));
    let mut before = 0;
    let mut events = events.iter().map(|event| event.mark.read).peekable();
    let mut lines = Vec::with_capacity(exchange.reads.len());
    for (index, read) in (0_u32..).zip(&exchange.reads) {
        let mut count = 0;
        while events.next_if(|&read| read <= index).is_some() {
            count += 1;
        }
        lines.push(ReadLine {
            perf_ns: calibration.monotonic_ns(read.arrival()),
            kernel_perf_ns: at(read.kernel),
            user_perf_ns: calibration.monotonic_ns(read.tick),
            parsed_perf_ns: at(read.parsed),
            wire_bytes: read.wire_bytes,
            body_bytes: read.body_end.saturating_sub(before),
            events: count,
        });
        before = read.body_end;
    }
    lines
}

fn responses(
    exchange: &Exchange,
    record: &Record,
    calibration: &Calibration,
    secrets: &Secrets,
) -> Vec<Value> {
    let arrival = |read: u32| {
        let read = exchange.reads.get(usize::try_from(read).ok()?)?;
        Some(calibration.monotonic_ns(read.arrival()))
    };
    if !record.events.is_empty() {
        let shared = record
            .events
            .chunk_by(|left, right| left.mark.read == right.mark.read);
        let events = shared.flat_map(|same| same.iter().map(|event| (event, same.len())));
        let one = |(event, events_in_read): (&ReplyEvent, usize)| {
            let mark = &event.mark;
            let range = usize::try_from(mark.begin)
                .ok()
                .zip(usize::try_from(mark.end).ok());
            let bytes = range.and_then(|(begin, end)| exchange.body.get(begin..end));
            let mut line = json!({
                "perf_ns": arrival(mark.read),
                "packets": packets(bytes.unwrap_or_default(), secrets),
                "read": mark.read,
                "first_read": mark.first_read,
                "events_in_read": events_in_read,
            });
            if let Some(tokens) = event.tokens {
                line["tokens"] = tokens.into();
            }
            line
        };
        return events.map(one).collect();
    }
    if exchange.body.is_empty() {
        return Vec::new();
    }
    let mut headers = record.trace.response_headers.iter();
    let content_type = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    vec![json!({
        "perf_ns": exchange.reads.last().map(|r| calibration.monotonic_ns(r.arrival())),
        "text": secrets.hide(&String::from_utf8_lossy(&exchange.body)),
        "content_type": content_type.map(|(_, value)| value),
    })]
}

/// Lines of one event as name and value; a comment has the name "comment". Formatting only: what counts is `wire`'s reading.
fn packets(event: &[u8], secrets: &Secrets) -> Vec<Value> {
    let text = String::from_utf8_lossy(event);
    let text = secrets.hide(&text);
    let lines = text.split(['\n', '\r']).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let name = if name.is_empty() { "comment" } else { name };
            json!({"name": name, "value": value.strip_prefix(' ').unwrap_or(value)})
        })
        .collect()
}
