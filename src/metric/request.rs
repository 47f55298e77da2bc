//! The metrics of one request.
//!
//! In: one record. Out: its values in display units, as `profile_export.jsonl` writes them. Never: looks at a second request.
//!
//! Formulas are AIPerf 0.13's. Where they differ, on purpose:
//!
//! - A reply that was not streamed has none of the metrics of a stream, also when streaming was asked for. AIPerf would report its
//!   whole latency as the time to first token.
//! - `http_req_sending` begins when the first byte is handed to the kernel, and `http_req_duration` with it. AIPerf begins both at
//!   the request's start, so that on a new connection they contain its set-up. `http_req_blocked` is what passes before the
//!   first byte apart from the set-up, so `http_req_total`, still the sum of the parts, counts every moment once.

use super::by_token::time_per_output_token;
use super::images::images;
use super::lag::lag;
use super::registry::METRICS;
use super::sounds::sounds;
use super::spacing::{gaps, spread, tokens_per_chunk};
use super::{Context, Metric, Value};
use crate::clock::Nanos;
use crate::record::Record;

/// The index of a metric, found when compiling: a misspelt tag does not build.
macro_rules! index {
    ($tag:literal) => {{
        const INDEX: usize = $crate::metric::registry::position($tag);
        INDEX
    }};
}
pub(super) use index;

/// A usage count above this share of difference from the client's is a discrepancy, in percent.
const DISCREPANCY_PERCENT: f64 = 10.0;

/// The values of `record`, in display units: none for a cancelled one, `error_isl` alone for a failed one.
#[must_use]
pub fn values(record: &Record, context: &Context) -> Vec<(&'static Metric, Value)> {
    let mut values = Vec::with_capacity(40);
    each(record, context, |index, value| {
        values.push((&METRICS[index], value));
    });
    values
}

/// Hands every value of `record` to `sink`, with the index of its metric.
pub(super) fn each(record: &Record, context: &Context, mut sink: impl FnMut(usize, Value)) {
    if record.cancelled {
        return;
    }
    let mut sink = |index: usize, value| {
        if context.has(&METRICS[index]) {
            sink(index, value);
        }
    };
    let mut one = |index: usize, value: f64| {
        if value.is_finite() {
            sink(index, Value::One(value));
        }
    };
    if !record.is_success() {
        if let Some(tokens) = record.tokens.input {
            one(index!("error_isl"), tokens as f64);
        }
        return;
    }
    let latency = record.chunks.last().map(|chunk| chunk.at);
    if let Some(latency) = latency {
        one(index!("request_latency"), latency.millis());
        let intended = record.lateness + latency;
        one(index!("intended_request_latency"), intended.millis());
    }
    if let Some(lag) = lag(record) {
        one(index!("schedule_lag"), lag.schedule.millis());
        one(index!("slot_wait"), lag.slot.millis());
        one(index!("client_lag"), lag.client.millis());
    }
    if let (true, true, Some(latency)) = (context.streaming, record.streamed, latency) {
        stream(record, context, latency, &mut one);
        if let Some(spread) = spread(&record.chunks) {
            one(index!("max_inter_chunk_gap"), spread.longest.millis());
            one(index!("inter_chunk_jitter"), spread.deviation_ns / 1e6);
        }
        if let Some(tokens) = tokens_per_chunk(record) {
            one(index!("tokens_per_chunk"), tokens);
        }
    }
    tokens(record, latency, &mut one);
    input_beside(record, context, &mut one);
    images(record, latency, &mut one);
    sounds(record, latency, &mut one);
    usage(record, context, &mut one);
    trace(record, &mut one);
    if context.streaming && record.streamed && record.chunks.len() > 1 {
        let gaps = gaps(&record.chunks).map(Nanos::millis).collect();
        sink(index!("inter_chunk_latency"), Value::Many(gaps));
    }
}

/// The tokens that inter-token latency divides by: those after the first, or those after the first content event where its own
/// usage tells how many it carried and leaves any. `None` below two tokens.
pub(super) fn decoded_tokens(record: &Record, context: &Context) -> Option<u64> {
    let length = record.tokens.output_sequence_length().filter(|n| *n >= 2)?;
    let first = record
        .first_chunk_tokens
        .filter(|_| context.per_chunk_usage);
    match first {
        Some(first) if first >= 1 && first < length => Some(length - first),
        _ => Some(length - 1),
    }
}

/// The reply's length differs from the asked one by more than 5 % or 50 tokens, whichever is less; `None` when none was asked for.
pub(super) fn length_mismatch(record: &Record) -> Option<bool> {
    let asked = record.tokens.requested_output.filter(|n| *n > 0)? as f64;
    let length = record.tokens.output_sequence_length()? as f64;
    Some((length - asked).abs() > (asked * 0.05).min(50.0))
}

/// One of the server's counts differs from the client's by more than 10 %; `None` when nothing can be compared.
pub(super) fn usage_discrepancy(record: &Record, context: &Context) -> Option<bool> {
    let mut compared = None;
    for (_, percent) in usage_differences(record, context).into_iter().flatten() {
        compared = Some(compared.unwrap_or(false) || percent > DISCREPANCY_PERCENT);
    }
    compared
}

fn stream(record: &Record, context: &Context, latency: Nanos, one: &mut impl FnMut(usize, f64)) {
    let chunks = &record.chunks;
    let first = chunks[0].at;
    one(index!("time_to_first_token"), first.millis());
    let intended = record.lateness + first;
    one(index!("intended_time_to_first_token"), intended.millis());
    if let Some(second) = chunks.get(1) {
        one(index!("time_to_second_token"), (second.at - first).millis());
    }
    if let Some(output) = chunks.iter().find(|chunk| chunk.output) {
        one(index!("time_to_first_output_token"), output.at.millis());
    }
    let decode = latency - first;
    one(index!("decode_duration"), decode.millis());
    if let Some((per_token, _)) = time_per_output_token(record, context) {
        one(index!("time_per_output_token"), per_token);
    }
    if let Some(tokens) = decoded_tokens(record, context) {
        let between = decode.millis() / tokens as f64;
        one(index!("inter_token_latency"), between);
        if between > 0.0 {
            one(index!("output_token_throughput_per_user"), 1e3 / between);
        }
    }
    if let (Some(tokens), true) = (record.tokens.input, first.0 > 0) {
        let rate = tokens as f64 / first.seconds();
        one(index!("prefill_throughput_per_user"), rate);
    }
}

fn tokens(record: &Record, latency: Option<Nanos>, one: &mut impl FnMut(usize, f64)) {
    let counts = &record.tokens;
    if let Some(input) = counts.input {
        one(index!("input_sequence_length"), input as f64);
    }
    if let Some(output) = counts.output.filter(|n| *n > 0) {
        one(index!("output_token_count"), output as f64);
    }
    if let Some(reasoning) = counts.reasoning {
        one(index!("reasoning_token_count"), reasoning as f64);
    }
    let Some(length) = counts.output_sequence_length() else {
        return;
    };
    one(index!("output_sequence_length"), length as f64);
    if let Some(latency) = latency.filter(|l| l.0 > 0) {
        let rate = length as f64 / latency.seconds();
        one(index!("e2e_output_token_throughput"), rate);
    }
    if let Some(latency) = latency.filter(|_| length > 0) {
        let per_token = latency.millis() / length as f64;
        one(index!("normalized_latency"), per_token);
    }
    if let Some(asked) = counts.requested_output.filter(|n| *n > 0) {
        let percent = (length as f64 - asked as f64) / asked as f64 * 100.0;
        one(index!("osl_mismatch_diff_pct"), percent);
    }
}

/// What stands beside the length of the input: the client's count where the server's is used, and the chat template's part.
fn input_beside(record: &Record, context: &Context, one: &mut impl FnMut(usize, f64)) {
    let counts = &record.tokens;
    let client = counts
        .client_input
        .filter(|_| context.use_server_token_count);
    if let Some(client) = client {
        one(index!("client_input_sequence_length"), client as f64);
    }
    if let Some(template) = counts.template {
        one(index!("chat_template_tokens"), template as f64);
    }
}

fn usage(record: &Record, context: &Context, one: &mut impl FnMut(usize, f64)) {
    let Some(usage) = &record.usage else { return };
    let counts = [
        (index!("usage_prompt_tokens"), usage.prompt_tokens),
        (
            index!("usage_prompt_cache_read_tokens"),
            usage.cache_read_tokens,
        ),
        (
            index!("usage_prompt_cache_write_tokens"),
            usage.cache_write_tokens,
        ),
        (
            index!("usage_prompt_cache_miss_tokens"),
            usage.cache_miss_tokens,
        ),
        (
            index!("usage_prompt_audio_tokens"),
            usage.prompt_audio_tokens,
        ),
        (index!("usage_completion_tokens"), usage.completion_tokens),
        (index!("usage_reasoning_tokens"), usage.reasoning_tokens),
        (
            index!("usage_completion_audio_tokens"),
            usage.completion_audio_tokens,
        ),
        (
            index!("usage_accepted_prediction_tokens"),
            usage.accepted_prediction_tokens,
        ),
        (
            index!("usage_rejected_prediction_tokens"),
            usage.rejected_prediction_tokens,
        ),
        (index!("usage_total_tokens"), usage.total_tokens),
    ];
    for (index, count) in counts {
        if let Some(count) = count {
            one(index, count as f64);
        }
    }
    for (index, percent) in usage_differences(record, context).into_iter().flatten() {
        one(index, percent);
    }
}

fn usage_differences(record: &Record, context: &Context) -> [Option<(usize, f64)>; 3] {
    let Some(usage) = record.usage.filter(|_| !context.use_server_token_count) else {
        return [None; 3];
    };
    let tokens = &record.tokens;
    let percent = |index: usize, server: Option<u64>, client: Option<u64>| {
        let client = client.filter(|n| *n > 0)? as f64;
        Some((index, (server? as f64 - client).abs() / client * 100.0))
    };
    [
        percent(
            index!("usage_prompt_tokens_diff_pct"),
            usage.prompt_tokens.filter(|_| !context.server_counts_words),
            tokens.client_input.or(tokens.input),
        ),
        percent(
            index!("usage_completion_tokens_diff_pct"),
            usage.completion_tokens,
            tokens.output_sequence_length(),
        ),
        percent(
            index!("usage_reasoning_tokens_diff_pct"),
            usage.reasoning_tokens,
            tokens.reasoning,
        ),
    ]
}

fn trace(record: &Record, one: &mut impl FnMut(usize, f64)) {
    let trace = &record.trace;
    let reused = if trace.reused { 1.0 } else { 0.0 };
    one(index!("http_req_connection_reused"), reused);
    one(
        index!("http_req_data_sent"),
        trace.bytes_sent as f64 / 1024.0,
    );
    one(
        index!("http_req_data_received"),
        trace.bytes_received as f64 / 1024.0,
    );
    one(index!("http_req_chunks_sent"), f64::from(trace.writes));
    one(index!("http_req_chunks_received"), trace.reads.len() as f64);

    let connecting = connection_setup(record).unwrap_or_default();
    one(index!("http_req_connecting"), connecting.millis());
    // Names are resolved before the run.
    one(index!("http_req_dns_lookup"), 0.0);
    let Some(send_start) = trace.send_start else {
        return;
    };
    // A set-up that was over before the request held nothing up.
    let held_up = if trace.set_up_ahead.is_some() {
        Nanos(0)
    } else {
        connecting
    };
    let blocked = send_start - held_up;
    one(index!("http_req_blocked"), blocked.millis());
    one(
        index!("http_req_connection_overhead"),
        (blocked + connecting).millis(),
    );
    let Some(send_end) = trace.send_end else {
        return;
    };
    let sending = send_end - send_start;
    one(index!("http_req_sending"), sending.millis());
    let (Some(first), Some(last)) = (trace.first_body, trace.last_body) else {
        return;
    };
    let (waiting, receiving) = (first - send_end, last - first);
    one(index!("http_req_waiting"), waiting.millis());
    one(index!("http_req_receiving"), receiving.millis());
    let duration = sending + waiting + receiving;
    one(index!("http_req_duration"), duration.millis());
    let total = blocked + connecting + duration;
    one(index!("http_req_total"), total.millis());
}

/// TCP and TLS set-up of the connection that this request was the first on, also if it was opened ahead; `None` on a reused one.
pub(super) fn connection_setup(record: &Record) -> Option<Nanos> {
    let trace = &record.trace;
    trace
        .set_up_ahead
        .or_else(|| Some(trace.connect_end? - trace.connect_start?))
}
