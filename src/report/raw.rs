//! `profile_export_raw.jsonl`: what was sent and what came, byte for byte where JSON allows.
//!
//! In: exchanges with their records. Out: whole lines. Never: a secret header, or an interpretation.

use std::path::Path;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::clock::Calibration;
use crate::record::{Exchange, Record};
use crate::report::records::{LineFile, PhaseTag, error, metadata};
use crate::report::{ReportError, redact};

/// Writes `profile_export_raw.jsonl`.
#[derive(Debug)]
pub struct RawWriter {
    lines: LineFile,
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
}

impl RawWriter {
    /// Creates (or empties) the file.
    pub fn create(path: &Path) -> Result<RawWriter, ReportError> {
        Ok(RawWriter {
            lines: LineFile::create(path)?,
        })
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
        self.lines.push(&Line {
            metadata: metadata(record, phase),
            start_perf_ns: record.monotonic_start_ns,
            request_headers: redact::headers(&record.trace.request_headers),
            status: (record.status != 0).then_some(record.status),
            responses: &responses(exchange, record, calibration),
            payload: payload(body),
            error: record.error.as_ref().map(error),
        })
    }

    /// Hands all lines to the system; called at least once a second.
    pub fn flush(&mut self) -> Result<(), ReportError> {
        self.lines.flush()
    }
}

/// The body as it was, when it is JSON on one line; compacted when it has line ends; as a string when it is no JSON.
fn payload(body: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(body);
    if !text.contains(['\n', '\r'])
        && let Ok(raw) = RawValue::from_string(text.clone().into_owned())
    {
        return raw;
    }
    let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.into_owned()));
    to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn responses(exchange: &Exchange, record: &Record, calibration: &Calibration) -> Vec<Value> {
    let arrival = |read: u32| {
        let read = exchange.reads.get(usize::try_from(read).ok()?)?;
        Some(calibration.monotonic_ns(read.arrival()))
    };
    if !exchange.events.is_empty() {
        let events = exchange.events.iter().map(|event| {
            let range = usize::try_from(event.begin)
                .ok()
                .zip(usize::try_from(event.end).ok());
            let bytes = range.and_then(|(begin, end)| exchange.body.get(begin..end));
            json!({"perf_ns": arrival(event.read), "packets": packets(bytes.unwrap_or_default())})
        });
        return events.collect();
    }
    if exchange.body.is_empty() {
        return Vec::new();
    }
    let mut headers = record.trace.response_headers.iter();
    let content_type = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    vec![json!({
        "perf_ns": exchange.reads.last().map(|r| calibration.monotonic_ns(r.arrival())),
        "text": String::from_utf8_lossy(&exchange.body),
        "content_type": content_type.map(|(_, value)| value),
    })]
}

/// Lines of one event as name and value; a comment has the name "comment". Formatting only: what counts is `wire`'s reading.
fn packets(event: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(event);
    let lines = text.split(['\n', '\r']).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let name = if name.is_empty() { "comment" } else { name };
            json!({"name": name, "value": value.strip_prefix(' ').unwrap_or(value)})
        })
        .collect()
}
