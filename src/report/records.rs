//! `profile_export.jsonl`: one line per request.
//!
//! In: records with their metrics, as the run goes. Out: whole lines. Never: part of a line, even when killed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use crate::clock::Nanos;
use crate::config::PhaseKind;
use crate::endpoint::SessionName;
use crate::metric::{Metric, Value, arrival};
use crate::record::{ErrorDetails, Record, Trace};
use crate::report::artifact::{let_go, make_parent, put_aside};
use crate::report::{ReportError, number, redact};

/// Bytes kept back before a write. Few, for a kernel that is not preemptible lets no worker onto the core while it copies them.
const BUFFER_BYTES: usize = 32 << 10;

/// Which phase a record belongs to.
#[derive(Clone, Debug)]
pub struct PhaseTag {
    /// Its name.
    pub name: String,
    /// Warmup or profiling.
    pub kind: PhaseKind,
    /// Place among all phases, from 0.
    pub index: usize,
    /// Place among profiling phases, from 0.
    pub profiling_index: Option<usize>,
}

/// Appends lines; hands only whole ones to the system.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes of whole lines that the system has taken.
    written: u64,
}

impl LineFile {
    pub(super) fn create(path: &Path) -> Result<LineFile, ReportError> {
        make_parent(path)?;
        put_aside(path)?;
        Ok(LineFile {
            written: 0,
            file: File::create(path).map_err(ReportError::at(path))?,
            path: path.to_owned(),
            buffer: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, line: &impl serde::Serialize) -> Result<(), ReportError> {
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|e| ReportError::at(&self.path)(e.into()))?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), ReportError> {
        let outcome = self.file.write_all(&self.buffer);
        if outcome.is_ok() {
            self.written += self.buffer.len() as u64;
        } else {
            // A full disk takes a part: what is no whole line goes. What is no file cannot be cut, and needs not.
            let _ = self.file.set_len(self.written);
        }
        self.buffer.clear();
        outcome.map_err(ReportError::at(&self.path))
    }

    /// All is written: an earlier run's file goes.
    pub(super) fn finish(&mut self) -> Result<(), ReportError> {
        self.flush()?;
        let_go(&self.path);
        Ok(())
    }
}

/// Writes `profile_export.jsonl`.
#[derive(Debug)]
pub struct RecordsWriter {
    lines: LineFile,
    http_trace: bool,
}

impl RecordsWriter {
    /// Creates (or empties) the file; `http_trace` adds `trace_data`.
    pub fn create(path: &Path, http_trace: bool) -> Result<RecordsWriter, ReportError> {
        Ok(RecordsWriter {
            lines: LineFile::create(path)?,
            http_trace,
        })
    }

    /// Adds a record. One with neither a visible metric nor an error has nothing to say and is left out, as in AIPerf.
    pub fn write(
        &mut self,
        record: &Record,
        values: &[(&'static Metric, Value)],
        phase: &PhaseTag,
    ) -> Result<(), ReportError> {
        let metrics: Map<String, Json> = values
            .iter()
            .filter(|(metric, _)| metric.in_records)
            .filter_map(|(metric, value)| {
                let value = metric_value(metric, value)?;
                Some((
                    metric.tag.to_owned(),
                    json!({"value": value, "unit": metric.unit}),
                ))
            })
            .collect();
        if metrics.is_empty() && record.error.is_none() {
            return Ok(());
        }
        let mut line = Map::new();
        line.insert("metadata".to_owned(), metadata(record, phase));
        line.insert("metrics".to_owned(), Json::Object(metrics));
        if self.http_trace {
            line.insert("trace_data".to_owned(), trace_data(record));
        }
        if let Some(error) = record_error(record) {
            line.insert("error".to_owned(), error);
            let class = record.error.as_ref().map(|error| error.class.name());
            line.insert("error_class".to_owned(), json!(class));
            if let Some(arrived) = arrived(record) {
                line.insert("arrived".to_owned(), arrived);
            }
        }
        self.lines.push(&line)
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

/// What had come of a reply that failed or was cut; `None` when no content had.
fn arrived(record: &Record) -> Option<Json> {
    let (first, last) = (record.chunks.first()?, record.chunks.last()?);
    let value = |value: f64, unit: &str| {
        let value = number::json(value)?;
        Some(json!({"value": value, "unit": unit}))
    };
    Some(json!({
        "content_events": record.chunks.len(),
        "output_tokens": plain(arrival::token_count(record)),
        "time_to_first_token": value(first.at.millis(), "ms"),
        "last_content": value(last.at.millis(), "ms"),
    }))
}

/// A value as JSON; counts and the ratio that is 0 or 1 (connection reuse) stand as integers, as AIPerf's do, and a time of 12 ms
/// as 12.0.
pub(super) fn metric_value(metric: &Metric, value: &Value) -> Option<Json> {
    match value {
        Value::One(one) if matches!(metric.unit, "tokens" | "requests" | "count" | "ratio") => {
            plain(*one)
        }
        Value::One(one) => number::json(*one),
        Value::Many(many) => Some(Json::Array(
            many.iter().filter_map(|v| number::json(*v)).collect(),
        )),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value is whole and below 2^53"
)]
fn plain(value: f64) -> Option<Json> {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        Some(Json::from(value as i64))
    } else {
        number::json(value)
    }
}

pub(super) fn error(details: &ErrorDetails) -> Json {
    let mut out = Map::new();
    if let Some(code) = details.code {
        out.insert("code".to_owned(), json!(code));
    }
    out.insert("type".to_owned(), json!(details.kind));
    out.insert("message".to_owned(), json!(details.message));
    Json::Object(out)
}

/// The error of one record. In `details`, which no group of errors looks at, a request that was cut on purpose says what had arrived,
/// and one that was refused for now when to come again.
pub(super) fn record_error(record: &Record) -> Option<Json> {
    let mut out = error(record.error.as_ref()?);
    if record.cancelled_on_purpose {
        out["details"] = json!({
            "content_events": record.chunks.len(),
            "body_bytes": record.trace.bytes_received,
        });
    } else if let Some(retry_after) = &record.retry_after {
        out["details"] = json!({ "retry_after": retry_after });
    }
    Some(out)
}

pub(super) fn request_end_ns(record: &Record) -> u64 {
    let end = match record.last_response {
        Some(last) if record.is_success() => last,
        // A failed request ends where it ended; AIPerf writes its start here, which loses how long the failure took.
        _ => record.end,
    };
    record.wall_start_ns.saturating_add(end.0)
}

/// The `metadata` object, shared with the raw export.
pub(super) fn metadata(record: &Record, phase: &PhaseTag) -> Json {
    let id = &record.id;
    let start = record.wall_start_ns;
    let session = SessionName(id.session_uuid).to_string();
    let mut out = json!({
        "session_num": id.number,
        "x_request_id": Uuid::from_u128(record.request_uuid).to_string(),
        "x_correlation_id": session,
        "conversation_id": record.conversation_id,
        "turn_index": id.turn,
        "credit_issued_ns": start.saturating_sub(record.lateness.0),
        "request_start_ns": start,
        "request_ack_ns": record.head_received.filter(|_| record.is_success()).map(|h| start.saturating_add(h.0)),
        "request_end_ns": request_end_ns(record),
        "worker_id": format!("worker_{}", id.worker),
        "record_processor_id": "record_processor_0",
        "benchmark_phase": phase.kind.name(),
        "phase_index": phase.index,
        "profiling_index": phase.profiling_index,
        "phase_name": phase.name,
        "phase_kind": phase.kind.name(),
        "was_cancelled": record.was_cancelled(),
        "finish_reason": record.finish_reason,
        "cancellation_time_ns": record.was_cancelled().then(|| start.saturating_add(record.end.0)),
        "context_overflow_skip": false,
        "agent_depth": 0,
        "root_correlation_id": session,
    });
    drop_nulls(&mut out);
    out
}

fn drop_nulls(value: &mut Json) {
    if let Json::Object(map) = value {
        map.retain(|_, v| !v.is_null());
    }
}

/// `trace_data`. Its `trace_type` is "aiohttp" although no aiohttp is in play: readers choose their parser by it, and the keys
/// are that type's.
fn trace_data(record: &Record) -> Json {
    let trace = &record.trace;
    let at = |moment: Option<Nanos>| moment.map(|m| record.wall_start_ns.saturating_add(m.0));
    let length = |from: Option<Nanos>, to: Option<Nanos>| Some((to? - from?).0);
    let (remote_ip, remote_port) = remote(trace);
    let chunks: Vec<Json> = trace
        .reads
        .iter()
        .map(|(m, bytes)| json!([at(Some(*m)), bytes]))
        .collect();
    let sent: Vec<Json> = trace
        .send_end
        .iter()
        .map(|m| json!([at(Some(*m)), trace.bytes_sent]))
        .collect();
    let mut out = json!({
        "trace_type": "aiohttp",
        "request_send_start_ns": at(trace.send_start),
        "request_headers": redact::headers(&trace.request_headers),
        "request_headers_sent_ns": at(trace.send_start),
        "request_chunks": sent,
        "request_send_end_ns": at(trace.send_end),
        "request_chunks_count": trace.writes,
        "request_bytes_total": trace.bytes_sent,
        "response_status_code": (record.status != 0).then_some(record.status),
        "response_reason": trace.reason,
        "response_receive_start_ns": at(trace.first_body),
        "response_headers": redact::headers(&trace.response_headers),
        "response_headers_received_ns": at(record.head_received),
        "response_chunks": chunks,
        "response_chunks_count": trace.reads.len(),
        "response_bytes_total": trace.bytes_received,
        "response_receive_end_ns": at(trace.last_body),
        "error_timestamp_ns": record.error.as_ref().and_then(|_| at(Some(record.end))),
        "tcp_connect_start_ns": at(trace.connect_start),
        "tcp_connect_end_ns": at(trace.connect_end),
        "connection_reused_ns": if trace.reused { at(trace.send_start) } else { None },
        "local_port": (trace.local_port != 0).then_some(trace.local_port),
        "remote_ip": remote_ip,
        "remote_port": remote_port,
        "sending_ns": length(trace.send_start, trace.send_end),
        "waiting_ns": length(trace.send_end, trace.first_body),
        "receiving_ns": length(trace.first_body, trace.last_body),
        "duration_ns": length(trace.send_start, trace.last_body),
        "connecting_ns": length(trace.connect_start, trace.connect_end).or(trace.set_up_ahead.map(|l| l.0)),
    });
    drop_nulls(&mut out);
    out
}

fn remote(trace: &Trace) -> (Option<String>, Option<u16>) {
    match trace.remote.parse::<std::net::SocketAddr>() {
        Ok(address) => (Some(address.ip().to_string()), Some(address.port())),
        Err(_) => (Some(trace.remote.clone()).filter(|r| !r.is_empty()), None),
    }
}
