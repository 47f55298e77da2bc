//! What the client says about a run, out of its files.
//!
//! In: the texts of the raw export, the records and the summary. Out: requests with their stamps, the client's health, or the line
//! that is wrong. Never: a time that the files do not hold.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// One request as the client saw it. Times are of the monotonic clock, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRequest {
    /// The server's number of the request, from the reply's `id`; `None` when no event came.
    pub number: Option<u64>,
    /// The stamp before the first byte was sent.
    pub sent: u64,
    /// The stamps of its content events, in order; those of one read are equal.
    pub arrivals: Vec<u64>,
}

/// What the client says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// `trusted`, `caution` or `untrusted`; `None` when the summary has no verdict.
    pub verdict: Option<String>,
    /// CPU time of all workers.
    pub cpu_ns: Option<u64>,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the client's {file}: {reason}")]
pub struct ClaimError {
    /// Which file.
    pub file: &'static str,
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

#[derive(Deserialize)]
struct RawLine {
    metadata: Metadata,
    start_perf_ns: u64,
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct RecordLine {
    metadata: Metadata,
    trace_data: Trace,
}

#[derive(Deserialize)]
struct Metadata {
    x_request_id: String,
    request_start_ns: u64,
}

#[derive(Deserialize)]
struct Trace {
    request_send_start_ns: Option<u64>,
}

#[derive(Deserialize)]
struct Response {
    perf_ns: Option<u64>,
    #[serde(default)]
    packets: Vec<Packet>,
}

#[derive(Deserialize)]
struct Packet {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Chunk {
    id: String,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

/// Reads `profile_export_raw.jsonl` and, for the send's stamp, `profile_export.jsonl` with `trace_data`.
pub fn read(raw: &str, records: &str) -> Result<Vec<ClaimedRequest>, ClaimError> {
    // From the request's start, which may lie before the connection's set-up, to its first byte.
    let mut delays = HashMap::new();
    for (line, record) in lines::<RecordLine>("profile_export.jsonl", records) {
        let record = record?;
        let sent = record.trace_data.request_send_start_ns;
        let sent = sent.ok_or_else(|| wrong("profile_export.jsonl", line, "nothing was sent"))?;
        delays.insert(
            record.metadata.x_request_id,
            sent.saturating_sub(record.metadata.request_start_ns),
        );
    }
    let file = "profile_export_raw.jsonl";
    let requests = lines::<RawLine>(file, raw).map(|(line, request)| {
        let request = request?;
        let delay = delays.get(&request.metadata.x_request_id).ok_or_else(|| {
            wrong(
                file,
                line,
                "profile_export.jsonl does not have this request",
            )
        })?;
        let (number, arrivals) = arrivals(&request.responses).ok_or_else(|| {
            wrong(
                file,
                line,
                "an event has no time, or an id without a number",
            )
        })?;
        Ok(ClaimedRequest {
            number,
            sent: request.start_perf_ns + delay,
            arrivals,
        })
    });
    requests.collect()
}

/// The server's number and the content events' stamps; `None` when one of them is missing.
fn arrivals(responses: &[Response]) -> Option<(Option<u64>, Vec<u64>)> {
    let (mut number, mut arrivals) = (None, Vec::new());
    for response in responses {
        for packet in response
            .packets
            .iter()
            .filter(|packet| packet.name == "data")
        {
            // `[DONE]` is no JSON.
            let Ok(chunk) = serde_json::from_str::<Chunk>(&packet.value) else {
                continue;
            };
            let (_, digits) = chunk.id.rsplit_once('-')?;
            number = Some(u64::from_str_radix(digits, 16).ok()?);
            let text = chunk.choices.first().and_then(|c| c.delta.content.as_ref());
            if text.is_some_and(|text| !text.is_empty()) {
                arrivals.push(response.perf_ns?);
            }
        }
    }
    Some((number, arrivals))
}

/// Reads the summary, `profile_export_aiperf.json`: `client_health.verdict`, and `cpu_time_ns` of its workers.
pub fn health(summary: &str) -> Result<Health, ClaimError> {
    let summary: Value = serde_json::from_str(summary).map_err(|error| {
        wrong(
            "profile_export_aiperf.json",
            error.line(),
            &error.to_string(),
        )
    })?;
    let health = &summary["client_health"];
    let workers = health["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let times: Option<Vec<u64>> = workers.iter().map(|w| w["cpu_time_ns"].as_u64()).collect();
    Ok(Health {
        verdict: health["verdict"].as_str().map(str::to_owned),
        cpu_ns: times
            .filter(|times| !times.is_empty())
            .map(|times| times.iter().sum()),
    })
}

fn wrong(file: &'static str, line: usize, reason: &str) -> ClaimError {
    ClaimError {
        file,
        line,
        reason: reason.to_owned(),
    }
}

/// Each line of JSON with its number.
fn lines<'a, T: Deserialize<'a>>(
    file: &'static str,
    text: &'a str,
) -> impl Iterator<Item = (usize, Result<T, ClaimError>)> {
    text.lines().enumerate().map(move |(index, line)| {
        let read = serde_json::from_str(line);
        (
            index + 1,
            read.map_err(|error| wrong(file, index + 1, &error.to_string())),
        )
    })
}
