//! A row a metric.
//!
//! In: nothing. Out: every metric that a run can produce, by tag, with AIPerf 0.13's names, units, console
//! tables and orders; rows that AIPerf lacks are in the `Client` table. Never: a formula.

use super::{Group, Metric};

/// All metrics, in the order in which a summary lists them.
pub static METRICS: &[Metric] = TABLE;

/// The metric named `tag`.
///
/// ```
/// use tokenring::metric::registry::find;
/// assert_eq!(find("time_to_first_token").map(|m| m.unit), Some("ms"));
/// assert!(find("time_to_last_token").is_none());
/// ```
#[must_use]
pub fn find(tag: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|m| m.tag == tag)
}

/// The metric exists only when streamed replies were asked for (AIPerf's `STREAMING_ONLY`), and for a request only when its reply
/// was a stream.
#[must_use]
pub fn needs_stream(metric: &Metric) -> bool {
    matches!(
        metric.tag,
        "time_to_first_token"
            | "time_to_second_token"
            | "time_to_first_output_token"
            | "inter_chunk_latency"
            | "decode_duration"
            | "inter_token_latency"
            | "time_per_output_token"
            | "token_weighted_inter_token_latency"
            | "max_inter_chunk_gap"
            | "inter_chunk_jitter"
            | "tokens_per_chunk"
            | "output_token_throughput_per_user"
            | "prefill_throughput_per_user"
            | "intended_time_to_first_token"
    )
}

/// The metric compares the server's token count with the client's (AIPerf's `USAGE_DIFF_ONLY`).
#[must_use]
pub fn compares_usage(metric: &Metric) -> bool {
    matches!(
        metric.tag,
        "usage_prompt_tokens_diff_pct"
            | "usage_completion_tokens_diff_pct"
            | "usage_reasoning_tokens_diff_pct"
            | "usage_discrepancy_count"
    )
}

/// The metric counts tokens of replies (AIPerf's `PRODUCES_TOKENS_ONLY`), so there is none where replies are no tokens.
#[must_use]
pub fn of_output_tokens(metric: &Metric) -> bool {
    needs_stream(metric)
        || matches!(
            metric.tag,
            "e2e_output_token_throughput"
                | "normalized_latency"
                | "output_sequence_length"
                | "output_token_throughput"
                | "total_token_throughput"
                | "output_token_count"
                | "reasoning_token_count"
                | "total_output_tokens"
                | "total_reasoning_tokens"
                | "total_osl"
                | "osl_mismatch_diff_pct"
                | "osl_mismatch_count"
                | "usage_completion_tokens"
                | "total_usage_completion_tokens"
                | "usage_reasoning_tokens"
                | "total_usage_reasoning_tokens"
                | "usage_completion_audio_tokens"
                | "total_usage_completion_audio_tokens"
                | "usage_accepted_prediction_tokens"
                | "total_usage_accepted_prediction_tokens"
                | "usage_rejected_prediction_tokens"
                | "total_usage_rejected_prediction_tokens"
                | "usage_total_tokens"
                | "total_usage_total_tokens"
                | "usage_completion_tokens_diff_pct"
                | "usage_reasoning_tokens_diff_pct"
                | "inter_token_gap"
                | "windowed_output_token_throughput"
                | "windowed_output_tokens"
                | "windowed_duration"
        )
}

/// The metric counts tokens of what is sent (AIPerf's `TOKENIZES_INPUT_ONLY`), so there is none where that is not counted in tokens.
#[must_use]
pub fn of_input_tokens(metric: &Metric) -> bool {
    matches!(
        metric.tag,
        "input_sequence_length"
            | "input_token_throughput"
            | "total_isl"
            | "error_isl"
            | "total_error_isl"
            | "usage_prompt_tokens"
            | "total_usage_prompt_tokens"
            | "usage_prompt_tokens_diff_pct"
            | "chat_template_tokens"
            | "client_input_sequence_length"
            | "tokens_in_flight"
    )
}

/// Index of `tag` in [`METRICS`]. Meant for constants, where an unknown tag stops the build.
pub(super) const fn position(tag: &str) -> usize {
    let mut index = 0;
    while index < TABLE.len() {
        if same(TABLE[index].tag.as_bytes(), tag.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("no metric has this tag")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

const fn row(
    tag: &'static str,
    header: &'static str,
    unit: &'static str,
    group: Group,
    order: Option<u32>,
) -> Metric {
    Metric {
        tag,
        header,
        unit,
        group,
        order,
        larger_is_better: false,
        in_records: true,
        hidden: false,
    }
}

impl Metric {
    const fn larger(mut self) -> Metric {
        self.larger_is_better = true;
        self
    }

    /// Of the run, not of a request.
    const fn run(mut self) -> Metric {
        self.in_records = false;
        self
    }

    const fn hidden(mut self) -> Metric {
        self.hidden = true;
        self
    }
}

#[rustfmt::skip]
const TABLE: &[Metric] = &[
    row("request_throughput", "Request Throughput", "requests/sec", Group::Default, Some(900)).larger().run(),
    row("request_latency", "Request Latency", "ms", Group::Default, Some(300)),
    row("request_count", "Request Count", "requests", Group::Default, Some(1100)).larger().run(),
    row("time_to_first_token", "Time to First Token", "ms", Group::Default, Some(100)),
    row("time_to_second_token", "Time to Second Token", "ms", Group::Default, Some(200)),
    row("time_to_first_output_token", "Time to First Output Token", "ms", Group::Default, Some(210)),
    row("inter_token_latency", "Inter Token Latency", "ms", Group::Default, Some(400)),
    row("decode_duration", "Decode Duration", "ms", Group::Default, Some(350)),
    row("output_token_throughput", "Output Token Throughput", "tokens/sec", Group::Default, Some(800)).larger().run(),
    row("output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user", Group::Default, Some(500)).larger(),
    row("e2e_output_token_throughput", "E2E Output Token Throughput", "tokens/sec/user", Group::Default, Some(510)).larger(),
    row("rtfx", "Inverse Real-Time Factor (RTFx)", "ratio", Group::Default, Some(850)).larger(),
    row("audio_duration", "Audio Duration", "sec", Group::None, Some(870)),
    row("image_throughput", "Image Throughput", "images/sec", Group::Default, Some(860)),
    row("image_latency", "Image Latency", "ms/image", Group::Default, Some(861)),
    row("num_images", "Number of Images", "images", Group::None, None),
    row("prefill_throughput_per_user", "Prefill Throughput Per User", "tokens/sec/user", Group::None, None).larger(),
    row("output_sequence_length", "Output Sequence Length", "tokens", Group::Default, Some(600)).larger(),
    row("input_sequence_length", "Input Sequence Length", "tokens", Group::Default, Some(700)).larger(),
    row("input_token_throughput", "Input Token Throughput", "tokens/sec", Group::Default, Some(805)).larger().run(),
    row("total_token_throughput", "Total Token Throughput", "tokens/sec", Group::None, None).larger().run(),
    row("goodput", "Goodput", "requests/sec", Group::Default, Some(1000)).larger().run(),
    row("good_request_count", "Good Request Count", "requests", Group::None, None).run(),
    row("good_request_fraction", "GoodRequestFraction", "ratio", Group::None, None).larger().run(),
    row("output_token_count", "Output Token Count", "tokens", Group::None, None).larger(),
    row("reasoning_token_count", "Reasoning Token Count", "tokens", Group::None, None).larger(),
    row("inter_chunk_latency", "Inter Chunk Latency", "ms", Group::None, None),
    row("total_output_tokens", "Total Output Tokens", "tokens", Group::None, None).larger().run(),
    row("total_reasoning_tokens", "Total Reasoning Tokens", "tokens", Group::None, None).larger().run(),
    row("benchmark_duration", "Benchmark Duration", "sec", Group::None, None).run(),
    row("total_isl", "Total Input Sequence Length", "tokens", Group::None, None).larger().run(),
    row("total_osl", "Total Output Sequence Length", "tokens", Group::None, None).larger().run(),
    row("error_request_count", "Error Request Count", "requests", Group::Default, None).run().hidden(),
    row("error_isl", "Error Input Sequence Length", "tokens", Group::None, Some(700)).larger().hidden(),
    row("total_error_isl", "Total Error Input Sequence Length", "tokens", Group::None, None).larger().run().hidden(),
    row("completed_request_count", "Completed Requests (Success + Error)", "requests", Group::Default, Some(1075)).run(),
    row("request_error_rate", "Request Error Rate", "%", Group::Default, Some(1080)).run(),
    row("osl_mismatch_diff_pct", "OSL Mismatch Diff %", "%", Group::None, None),
    row("osl_mismatch_count", "OSL Mismatch Count", "requests", Group::None, None).run(),
    row("usage_prompt_tokens", "Usage Prompt Tokens", "tokens", Group::Usage, Some(1000)).larger(),
    row("total_usage_prompt_tokens", "Total Usage Prompt Tokens", "tokens", Group::Usage, Some(2000)).larger().run(),
    row("usage_prompt_cache_read_tokens", "Usage Prompt Cache Read Tokens", "tokens", Group::Usage, Some(1010)).larger(),
    row("total_usage_prompt_cache_read_tokens", "Total Usage Prompt Cache Read Tokens", "tokens", Group::Usage, Some(2010)).larger().run(),
    row("usage_prompt_cache_write_tokens", "Usage Prompt Cache Write Tokens", "tokens", Group::Usage, Some(1015)),
    row("total_usage_prompt_cache_write_tokens", "Total Usage Prompt Cache Write Tokens", "tokens", Group::Usage, Some(2015)).run(),
    row("usage_prompt_cache_miss_tokens", "Usage Prompt Cache Miss Tokens", "tokens", Group::Usage, Some(1017)),
    row("total_usage_prompt_cache_miss_tokens", "Total Usage Prompt Cache Miss Tokens", "tokens", Group::Usage, Some(2017)).run(),
    row("usage_prompt_audio_tokens", "Usage Prompt Audio Tokens", "tokens", Group::Usage, Some(1020)).larger(),
    row("total_usage_prompt_audio_tokens", "Total Usage Prompt Audio Tokens", "tokens", Group::Usage, Some(2020)).larger().run(),
    row("usage_completion_tokens", "Usage Completion Tokens", "tokens", Group::Usage, Some(1100)).larger(),
    row("total_usage_completion_tokens", "Total Usage Completion Tokens", "tokens", Group::Usage, Some(2100)).larger().run(),
    row("usage_reasoning_tokens", "Usage Reasoning Tokens", "tokens", Group::Usage, Some(1110)).larger(),
    row("total_usage_reasoning_tokens", "Total Usage Reasoning Tokens", "tokens", Group::Usage, Some(2110)).larger().run(),
    row("usage_completion_audio_tokens", "Usage Completion Audio Tokens", "tokens", Group::Usage, Some(1120)).larger(),
    row("total_usage_completion_audio_tokens", "Total Usage Completion Audio Tokens", "tokens", Group::Usage, Some(2120)).larger().run(),
    row("usage_accepted_prediction_tokens", "Usage Accepted Prediction Tokens", "tokens", Group::Usage, Some(1130)).larger(),
    row("total_usage_accepted_prediction_tokens", "Total Usage Accepted Prediction Tokens", "tokens", Group::Usage, Some(2130)).larger().run(),
    row("usage_rejected_prediction_tokens", "Usage Rejected Prediction Tokens", "tokens", Group::Usage, Some(1140)),
    row("total_usage_rejected_prediction_tokens", "Total Usage Rejected Prediction Tokens", "tokens", Group::Usage, Some(2140)).run(),
    row("usage_total_tokens", "Usage Total Tokens", "tokens", Group::Usage, Some(1200)).larger(),
    row("total_usage_total_tokens", "Total Usage Total Tokens", "tokens", Group::Usage, Some(2200)).larger().run(),
    row("overall_usage_prompt_cache_read_pct", "Overall Usage Prompt Cache Read %", "%", Group::Usage, Some(2012)).larger().run(),
    row("usage_prompt_tokens_diff_pct", "Usage Prompt Diff %", "%", Group::None, None),
    row("usage_completion_tokens_diff_pct", "Usage Completion Diff %", "%", Group::None, None),
    row("usage_reasoning_tokens_diff_pct", "Usage Reasoning Diff %", "%", Group::None, None),
    row("usage_discrepancy_count", "Usage Discrepancy Count", "requests", Group::None, None).run(),
    row("http_req_blocked", "HTTP Blocked", "ms", Group::Trace, Some(2000)),
    row("http_req_dns_lookup", "HTTP DNS Lookup", "ms", Group::Trace, Some(2010)),
    row("http_req_connecting", "HTTP Connecting", "ms", Group::Trace, Some(2020)),
    row("http_req_sending", "HTTP Sending", "ms", Group::Trace, Some(2030)),
    row("http_req_waiting", "HTTP Waiting (TTFB)", "ms", Group::Trace, Some(2040)),
    row("http_req_receiving", "HTTP Receiving", "ms", Group::Trace, Some(2050)),
    row("http_req_connection_reused", "HTTP Connection Reused", "ratio", Group::Trace, Some(2060)),
    row("http_req_data_sent", "HTTP Data Sent", "KB", Group::Trace, Some(2070)),
    row("http_req_chunks_sent", "HTTP Chunks Sent", "count", Group::Trace, Some(2080)),
    row("http_req_data_received", "HTTP Data Received", "KB", Group::Trace, Some(2090)),
    row("http_req_chunks_received", "HTTP Chunks Received", "count", Group::Trace, Some(2100)),
    row("http_req_connection_overhead", "HTTP Connection Overhead", "ms", Group::Trace, Some(2110)),
    row("http_req_duration", "HTTP Duration (excl. conn)", "ms", Group::Trace, Some(2120)),
    row("http_req_total", "HTTP Total Time", "ms", Group::Trace, Some(2130)),
    row("credit_to_start_latency", "Credit-to-Start Latency", "ms", Group::Client, Some(10)).run(),
    row("asked_request_rate", "Asked Request Rate", "requests/sec", Group::Client, Some(6)).larger().run(),
    row("achieved_request_rate", "Achieved Request Rate", "requests/sec", Group::Client, Some(8)).larger().run(),
    row("schedule_lag", "Schedule Lag", "ms", Group::Client, Some(12)),
    row("replay_sched_lag_p50", "Replay Schedule Lag p50", "ms", Group::None, None).run(),
    row("replay_sched_lag_p90", "Replay Schedule Lag p90", "ms", Group::None, None).run(),
    row("replay_sched_lag_p99", "Replay Schedule Lag p99", "ms", Group::None, None).run(),
    row("replay_sched_degraded", "Replay Schedule Degraded", "count", Group::None, None).run(),
    row("slot_wait", "Slot Wait", "ms", Group::Client, Some(14)),
    row("client_lag", "Client Lag", "ms", Group::Client, Some(16)),
    row("connection_setup", "Connection Setup", "ms", Group::Client, Some(20)).run(),
    row("coalesced_events", "Coalesced Events", "ratio", Group::Client, Some(30)).run(),
    row("max_inter_chunk_gap", "Max Inter Chunk Gap", "ms", Group::Client, Some(40)),
    row("inter_chunk_jitter", "Inter Chunk Jitter", "ms", Group::Client, Some(50)),
    row("time_per_output_token", "Time per Output Token", "ms", Group::Client, Some(54)),
    row("token_weighted_inter_token_latency", "Inter Token Latency by Token", "ms", Group::Client, Some(56)).run(),
    row("normalized_latency", "Normalized Latency", "ms/token", Group::None, None),
    row("inter_token_gap", "Inter Token Gap", "ms", Group::Client, Some(60)).run(),
    row("tokens_per_chunk", "Tokens per Chunk", "tokens", Group::Client, Some(70)).larger(),
    row("chat_template_tokens", "Chat Template Tokens", "tokens", Group::Client, Some(75)),
    row("client_input_sequence_length", "Client Input Sequence Length", "tokens", Group::None, None),
    row("windowed_output_token_throughput", "Windowed Output Token Throughput", "tokens/sec", Group::Client, Some(80)).larger().run(),
    row("windowed_output_tokens", "Windowed Output Tokens", "tokens", Group::None, None).larger().run(),
    row("windowed_duration", "Windowed Duration", "sec", Group::None, None).run(),
    row("effective_latency", "Effective Latency (CO-aware)", "ms", Group::Effective, Some(10)).run(),
    row("intended_request_latency", "Intended Request Latency", "ms", Group::Effective, Some(12)),
    row("intended_time_to_first_token", "Intended Time to First Token", "ms", Group::Effective, Some(14)),
    row("adj_request_latency", "Adjusted Request Latency", "ms", Group::None, None).run(),
    row("adj_time_to_first_token", "Adjusted Time to First Token", "ms", Group::None, None).run(),
    row("adj_inter_token_latency", "Adjusted Inter Token Latency", "ms", Group::None, None).run(),
    row("adj_decode_duration", "Adjusted Decode Duration", "ms", Group::None, None).run(),
    row("effective_concurrency", "Effective Concurrency", "requests", Group::Effective, Some(20)).run(),
    row("effective_prefill_concurrency", "Effective Prefill Concurrency", "requests", Group::Effective, Some(30)).run(),
    row("effective_decode_concurrency", "Effective Decode Concurrency", "requests", Group::Effective, Some(40)).run(),
    row("effective_prefill_throughput", "Effective Prefill Throughput", "tokens/sec", Group::Effective, Some(50)).larger().run(),
    row("effective_decode_throughput", "Effective Decode Throughput", "tokens/sec", Group::Effective, Some(60)).larger().run(),
    row("effective_total_throughput", "Effective Total Throughput", "tokens/sec", Group::Effective, Some(70)).larger().run(),
    row("effective_prefill_throughput_per_user", "Effective Prefill Throughput Per User", "tokens/sec/user", Group::Effective, Some(80)).larger().run(),
    row("effective_decode_throughput_per_user", "Effective Decode Throughput Per User", "tokens/sec/user", Group::Effective, Some(90)).larger().run(),
    row("tokens_in_flight", "Tokens In Flight", "tokens", Group::Effective, Some(100)).run(),
    row("active_prefill_throughput", "Active Prefill Throughput", "tokens/sec", Group::Active, Some(10)).larger().run(),
    row("active_decode_throughput", "Active Decode Throughput", "tokens/sec", Group::Active, Some(20)).larger().run(),
    row("active_total_throughput", "Active Total Throughput", "tokens/sec", Group::Active, Some(30)).larger().run(),
    row("active_prefill_throughput_per_user", "Active Prefill Throughput Per User", "tokens/sec/user", Group::Active, Some(40)).larger().run(),
    row("active_decode_throughput_per_user", "Active Decode Throughput Per User", "tokens/sec/user", Group::Active, Some(50)).larger().run(),
];
