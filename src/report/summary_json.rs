//! `profile_export_aiperf.json`, schema 1.4.
//!
//! In: a run's report. Out: JSON, 2-space indent, AIPerf's keys first and in its order. Never: null, NaN or an infinity.

use serde_json::{Map, Value, json};

use crate::metric::{ErrorGroup, Stats, Steady, Summary};
use crate::report::number::{self, percentiles};
use crate::report::{ClientReport, RunReport, records, tokens};

/// Metrics that AIPerf's schema declares, in its order.
const DECLARED: [&str; 23] = [
    "request_throughput",
    "request_latency",
    "request_count",
    "time_to_first_token",
    "time_to_second_token",
    "inter_token_latency",
    "output_token_throughput",
    "output_token_throughput_per_user",
    "output_sequence_length",
    "input_sequence_length",
    "goodput",
    "good_request_count",
    "output_token_count",
    "reasoning_token_count",
    "inter_chunk_latency",
    "total_output_tokens",
    "total_reasoning_tokens",
    "benchmark_duration",
    "total_isl",
    "total_osl",
    "error_request_count",
    "error_isl",
    "total_error_isl",
];

/// The whole file of the run.
pub(super) fn render(report: &RunReport) -> String {
    render_summary(
        report,
        &report.profiling,
        report.warmup.as_ref(),
        report.was_cancelled,
    )
}

/// The file of one summary.
pub(super) fn render_summary(
    report: &RunReport,
    summary: &Summary,
    warmup: Option<&Summary>,
    was_cancelled: bool,
) -> String {
    let mut root = Map::new();
    let mut put = |key: &str, value: Value| {
        root.insert(key.to_owned(), value);
    };
    put("schema_version", json!("1.4"));
    // Readers branch on AIPerf's version; ours stands beside it.
    put("aiperf_version", json!("0.13.0"));
    put("tokenring_version", json!(env!("CARGO_PKG_VERSION")));
    put("benchmark_id", json!(report.benchmark_id));
    for tag in DECLARED {
        if let Some(row) = summary.row(tag) {
            put(tag, metric(row.metric.unit, &row.stats));
        }
    }
    put("input_config", report.plan.input_config.clone());
    put(
        "run_info",
        json!({
            "benchmark_id": report.benchmark_id,
            "random_seed": report.random_seed,
            "trial": 0,
            "cli_command": report.plan.cli_command,
        }),
    );
    if let Some(count) = report.bad_lines {
        put("dataset", json!({ "bad_lines": count }));
    }
    put("was_cancelled", json!(was_cancelled));
    put(
        "is_complete",
        json!(!was_cancelled && report.incomplete_reason.is_none()),
    );
    put("incomplete_reason", json!(report.incomplete_reason));
    put("error_summary", errors(&summary.errors));
    put("error_classes", classes(&summary.errors));
    put("start_time", json!(local_time(summary.window.start_ns)));
    put("end_time", json!(local_time(summary.window.end_ns)));
    if let Some(warmup) = warmup {
        put("warmup_metrics", metrics(warmup));
    }
    for row in &summary.rows {
        if !DECLARED.contains(&row.metric.tag) {
            put(row.metric.tag, metric(row.metric.unit, &row.stats));
        }
    }
    if let Some(steady) = &summary.steady {
        put("steady_state", steady_state(steady));
    }
    put("token_counts", tokens::json(&summary.counts));
    put("finish_reasons", tokens::finish_reasons(&summary.counts));
    put("schedule_lag_histogram", lag_histogram(summary));
    put("client", client(&report.client, summary));
    put("client_health", json!(report.client.health.json()));
    pretty(Value::Object(root))
}

/// The steady state with its metrics, or the reason why there is none.
fn steady_state(steady: &Steady) -> Value {
    let state = match steady {
        Steady::State(state) => state,
        Steady::Absent(reason) => return json!({ "reason": reason }),
    };
    let mut out = json!({
        "start_ns": state.window.start_ns,
        "end_ns": state.window.end_ns,
        "duration_seconds": number::json(state.window.length().seconds()),
        "share": number::json(state.share),
        "target_in_flight": state.target,
        "least_in_flight": state.level,
    });
    if let Value::Object(out) = &mut out {
        let rows = state.rows.iter();
        out.extend(rows.map(|r| (r.metric.tag.to_owned(), metric(r.metric.unit, &r.stats))));
    }
    out
}

/// How many requests were sent how late; null when none was.
fn lag_histogram(summary: &Summary) -> Value {
    let buckets = &summary.schedule_lag.buckets;
    if buckets.is_empty() {
        return Value::Null;
    }
    let buckets = buckets.iter().map(|(most, count)| json!([most, count]));
    json!({ "unit": "ns", "columns": ["at_most", "count"], "buckets": buckets.collect::<Vec<_>>() })
}

/// 2-space indented text without nulls.
pub(super) fn pretty(mut value: Value) -> String {
    strip_nulls(&mut value);
    format!("{value:#}")
}

fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

fn metrics(summary: &Summary) -> Value {
    let pairs = summary.rows.iter();
    Value::Object(
        pairs
            .map(|r| (r.metric.tag.to_owned(), metric(r.metric.unit, &r.stats)))
            .collect(),
    )
}

/// A metric's object.
pub(super) fn metric(unit: &str, stats: &Stats) -> Value {
    let mut map = Map::new();
    map.insert("unit".to_owned(), json!(unit));
    let mut put = |key: &str, value: Option<f64>| {
        if let Some(value) = value.and_then(number::json) {
            map.insert(key.to_owned(), value);
        }
    };
    put("avg", stats.avg);
    for (name, value) in percentiles(stats) {
        put(name, value);
    }
    put("min", stats.min);
    put("max", stats.max);
    put("std", stats.std);
    if let Some(count) = stats.count {
        map.insert("count".to_owned(), json!(count));
    }
    if let Some(sum) = stats.sum.and_then(number::json) {
        map.insert("sum".to_owned(), sum);
    }
    Value::Object(map)
}

/// `error_summary`.
pub(super) fn errors(groups: &[ErrorGroup]) -> Value {
    let groups = groups.iter().map(|g| {
        json!({
            "error_details": records::error(&g.details),
            "count": g.count,
            "class": g.details.class.name(),
        })
    });
    Value::Array(groups.collect())
}

/// How many failed in which way, in the order in which a request comes to them; null when none did.
fn classes(groups: &[ErrorGroup]) -> Value {
    let counts = ErrorGroup::classes(groups);
    if counts.is_empty() {
        return Value::Null;
    }
    let counts = counts
        .iter()
        .map(|(class, count)| (class.name().to_owned(), json!(count)));
    Value::Object(counts.collect())
}

fn client(client: &ClientReport, summary: &Summary) -> Value {
    let facts: Map<String, Value> = client
        .facts
        .iter()
        .map(|(label, value)| (label.clone(), json!(value)))
        .collect();
    let notes: Vec<&String> = client.notes.iter().chain(&summary.notes).collect();
    json!({
        "driver": client.driver,
        "driver_reason": client.driver_reason,
        "workers": client.workers,
        "cpus": client.cpus,
        "timer_grain_ns": client.timer_grain_ns,
        "clock_drift_ppm": number::json(client.clock_drift_ppm),
        "clock_error_ns": client.clock_error_ns,
        "counts": {
            "sent": client.sent,
            "success": summary.success_count,
            "error": summary.error_count,
            "cancelled": summary.cancelled_count,
            "unsent": client.unsent,
            "skipped": client.skipped,
        },
        "overflow_count": client.overflow_count,
        "coalesced_count": client.coalesced_count,
        "notes": notes,
        "facts": facts,
    })
}

/// ISO time of the machine's zone, without the zone, in microseconds; `None` beyond the calendar.
fn local_time(wall_ns: u64) -> Option<String> {
    let stamp = jiff::Timestamp::from_nanosecond(i128::from(wall_ns)).ok()?;
    let local = stamp.to_zoned_datetime(jiff::tz::TimeZone::system());
    Some(local.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string())
}
