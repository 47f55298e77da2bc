//! The metrics of records made by hand.
//!
//! In: tables of chunks and counts, random records. Out: values worked out on paper, or by a naive oracle. Never: a reply to parse.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "metric/counts.rs"]
mod counts;
#[path = "metric/shelved.rs"]
mod shelved;
#[path = "metric/windows.rs"]
mod windows;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tokenring::clock::Nanos;
use tokenring::config::Slo;
use tokenring::endpoint::{PieceKind, Usage};
use tokenring::metric::lag::LagHistogram;
use tokenring::metric::{
    Accumulator, Context, Group, Stats, Summary, Value, quantile, registry, request, slo,
};
use tokenring::record::{Chunk, ErrorDetails, Record, TokenCounts, Trace};

const WALL_NS: u64 = 1_796_106_758_000_000_000;

fn millis(text: &str) -> Nanos {
    Nanos::from_seconds(text.parse::<f64>().unwrap() / 1e3)
}

fn chunk(at: Nanos, reasoning: bool) -> Chunk {
    Chunk {
        at,
        read: 0,
        kind: if reasoning {
            PieceKind::Reasoning
        } else {
            PieceKind::Text
        },
        output: !reasoning,
        tokens: None,
    }
}

/// A streamed success with content at `times_ms` and one token an event.
fn streamed(start_ms: u64, times_ms: &[u64]) -> Record {
    let end = Nanos::from_millis(*times_ms.last().unwrap());
    Record {
        wall_start_ns: WALL_NS + Nanos::from_millis(start_ms).0,
        end,
        last_response: Some(end),
        streamed: true,
        status: 200,
        chunks: times_ms
            .iter()
            .map(|ms| chunk(Nanos::from_millis(*ms), false))
            .collect(),
        tokens: TokenCounts {
            input: Some(10),
            client_input: Some(10),
            output: Some(times_ms.len() as u64),
            ..TokenCounts::default()
        },
        ..Record::default()
    }
}

fn failed(start_ms: u64, end_ms: u64, status: u16) -> Record {
    Record {
        wall_start_ns: WALL_NS + Nanos::from_millis(start_ms).0,
        end: Nanos::from_millis(end_ms),
        status,
        tokens: TokenCounts {
            input: Some(7),
            ..TokenCounts::default()
        },
        error: Some(ErrorDetails {
            code: Some(status),
            kind: format!("Status {status}"),
            message: String::new(),
            class: tokenring::record::ErrorClass::HttpStatus,
        }),
        ..Record::default()
    }
}

fn streaming() -> Context {
    Context {
        streaming: true,
        ..Context::default()
    }
}

fn summary(records: &[Record], context: &Context) -> Summary {
    let mut accumulator = Accumulator::new(context);
    for record in records {
        accumulator.add(record);
    }
    accumulator.summary()
}

fn avg(summary: &Summary, tag: &str) -> Option<f64> {
    summary.row(tag).and_then(|row| row.stats.avg)
}

#[track_caller]
fn assert_avg(summary: &Summary, tag: &str, expected: f64) {
    let got = avg(summary, tag).unwrap_or_else(|| panic!("{tag} is absent"));
    assert!(
        (got - expected).abs() <= expected.abs() * 1e-9 + 1e-12,
        "{tag}: {got}, not {expected}"
    );
}

fn set(record: &mut Record, context: &mut Context, line: &str) {
    let mut words = line.split_whitespace();
    let key = words.next().unwrap();
    let rest: Vec<&str> = words.collect();
    let number = |index: usize| rest.get(index).and_then(|word| word.parse::<u64>().ok());
    match key {
        "plain" => record.streamed = false,
        "no-streaming" => context.streaming = false,
        "server-count" => context.use_server_token_count = true,
        "no-output-tokens" => context.no_output_tokens = true,
        "no-input-tokens" => context.no_input_tokens = true,
        "per-chunk-usage" => {
            context.per_chunk_usage = true;
            record.first_chunk_tokens = number(0);
        }
        "chunks" => {
            let one = |word: &&str| chunk(millis(word.trim_end_matches('r')), word.ends_with('r'));
            record.chunks = rest.iter().map(one).collect();
            record.end = record.chunks.last().unwrap().at;
        }
        "input" => (record.tokens.input, record.tokens.client_input) = (number(0), number(0)),
        "output" => record.tokens.output = number(0),
        "reasoning" => record.tokens.reasoning = number(0),
        "finish" => record.finish_reason = Some(rest.join(" ")),
        "sound" => record.sound = millis(rest[0]),
        "client-input" => record.tokens.client_input = number(0),
        "template" => record.tokens.template = number(0),
        "template-refused" => record.tokens.template_refused = true,
        "asked" => record.tokens.requested_output = number(0),
        "usage" => {
            record.usage = Some(Usage {
                prompt_tokens: number(0),
                completion_tokens: number(1),
                reasoning_tokens: number(2),
                ..Usage::default()
            });
        }
        "connect" => {
            (record.trace.connect_start, record.trace.connect_end) =
                (Some(millis(rest[0])), Some(millis(rest[1])));
        }
        "send" => {
            (record.trace.send_start, record.trace.send_end) =
                (Some(millis(rest[0])), Some(millis(rest[1])));
        }
        "body" => {
            (record.trace.first_body, record.trace.last_body) =
                (Some(millis(rest[0])), Some(millis(rest[1])));
        }
        "late" => (record.lateness, record.slot_wait) = (millis(rest[0]), millis(rest[1])),
        "bytes" => {
            (record.trace.bytes_sent, record.trace.bytes_received) =
                (number(0).unwrap(), number(1).unwrap());
        }
        "error" => {
            record.error = Some(ErrorDetails {
                code: number(0).and_then(|code| u16::try_from(code).ok()),
                ..ErrorDetails::default()
            });
        }
        other => panic!("unknown line {other:?}"),
    }
}

#[test]
fn cases_of_one_request() {
    let text = include_str!("metric/request.txt");
    let mut cases = 0;
    for block in text.split("== ").filter(|block| !block.trim().is_empty()) {
        let (name, lines) = block.split_once('\n').unwrap();
        let mut record = Record {
            streamed: true,
            status: 200,
            ..Record::default()
        };
        let mut context = streaming();
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        let (expected, given): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with("= ") || line.starts_with("- "));
        for line in given {
            set(&mut record, &mut context, line);
        }
        let values: BTreeMap<&str, Value> = request::values(&record, &context)
            .into_iter()
            .map(|(metric, value)| (metric.tag, value))
            .collect();
        for line in &expected {
            let (tag, rest) = line[2..].split_once(' ').unwrap_or((&line[2..], ""));
            assert!(registry::find(tag).is_some(), "{name}: no metric {tag}");
            let got = match values.get(tag) {
                None => vec![],
                Some(Value::One(value)) => vec![*value],
                Some(Value::Many(values)) => values.clone(),
            };
            let want: Vec<f64> = rest
                .split_whitespace()
                .map(|word| word.parse().unwrap())
                .collect();
            let equal = got.len() == want.len()
                && got
                    .iter()
                    .zip(&want)
                    .all(|(got, want)| (got - want).abs() <= want.abs() * 1e-9);
            assert!(equal, "{name}: {tag} is {got:?}, not {want:?}");
        }
        assert!(!expected.is_empty(), "{name} expects nothing");
        cases += 1;
    }
    assert!(cases >= 15, "only {cases} cases were read");
}

#[test]
fn request_mean_and_gap_mean_are_two_metrics() {
    // E5: two tokens 100 ms apart; 101 tokens 10 ms apart.
    let slow = streamed(0, &[50, 150]);
    let fast = streamed(0, &(0..101).map(|i| 50 + 10 * i).collect::<Vec<u64>>());
    let summary = summary(&[slow, fast], &streaming());
    assert_avg(&summary, "inter_token_latency", 55.0);
    assert_avg(&summary, "inter_chunk_latency", 1100.0 / 101.0);
    assert_avg(&summary, "inter_token_gap", 1100.0 / 101.0);
    assert_avg(&summary, "max_inter_chunk_gap", 55.0);
    let gaps = summary.row("inter_chunk_latency").unwrap().stats;
    assert_eq!(
        (gaps.count, gaps.min, gaps.max),
        (Some(101), Some(10.0), Some(100.0))
    );
    let p50 = gaps.p50.unwrap();
    assert!((p50 - 10.0).abs() < 0.01, "{p50}");
    // Var = (100 * 10² + 100²) / 101 - mean².
    let variance: f64 = 20_000.0 / 101.0 - (1100.0_f64 / 101.0).powi(2);
    assert!((gaps.std.unwrap() - variance.sqrt()).abs() < 1e-9);
}

#[test]
fn every_rate_is_divided_by_the_stated_window() {
    let mut cut = failed(400, 1600, 0);
    cut.cancelled = true;
    let records = [
        streamed(0, &[100, 200, 300, 400]),
        streamed(500, &[100, 500]),
        failed(200, 100, 500),
        cut,
    ];
    let summary = summary(&records, &streaming());
    assert_eq!(summary.window.start_ns, WALL_NS);
    assert_eq!(summary.window.length(), Nanos::from_millis(2000));
    assert_avg(&summary, "benchmark_duration", 2.0);
    assert_avg(&summary, "request_throughput", 1.0);
    assert_avg(&summary, "output_token_throughput", 3.0);
    assert_avg(&summary, "input_token_throughput", 10.0);
    assert_avg(&summary, "total_token_throughput", 13.0);
    assert_avg(&summary, "request_count", 2.0);
    assert_avg(&summary, "completed_request_count", 3.0);
    assert_avg(&summary, "error_request_count", 1.0);
    assert_avg(&summary, "request_error_rate", 100.0 / 3.0);
    assert_avg(&summary, "total_osl", 6.0);
    assert_avg(&summary, "total_error_isl", 7.0);
    assert_eq!(
        (
            summary.success_count,
            summary.error_count,
            summary.cancelled_count
        ),
        (2, 1, 1)
    );
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.starts_with("1 of 4 requests were cut")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn a_clean_run_has_no_error_metrics() {
    let summary = summary(&[streamed(0, &[10, 20])], &streaming());
    for tag in [
        "error_request_count",
        "error_isl",
        "total_error_isl",
        "adj_request_latency",
        "goodput",
    ] {
        assert!(summary.row(tag).is_none(), "{tag}");
    }
    assert_avg(&summary, "request_error_rate", 0.0);
}

#[test]
fn an_all_error_run_has_finite_counts_and_reasons() {
    let records = [failed(0, 10, 429), failed(5, 20, 429), failed(6, 30, 500)];
    let summary = summary(&records, &streaming());
    assert_avg(&summary, "request_count", 0.0);
    assert_avg(&summary, "request_error_rate", 100.0);
    assert!(summary.row("request_latency").is_none());
    assert!(summary.row("adj_request_latency").is_none());
    assert_avg(&summary, "effective_latency", 20.0);
    assert_eq!(
        summary
            .errors
            .iter()
            .map(|e| (e.details.code, e.count))
            .collect::<Vec<_>>(),
        [(Some(429), 2), (Some(500), 1)]
    );
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.starts_with("2 of 3 errors were HTTP 429")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn an_empty_run_is_empty() {
    let summary = summary(&[], &streaming());
    assert!(summary.rows.is_empty() && summary.notes.is_empty());
}

#[test]
fn lateness_counts_in_effective_latency() {
    let mut late = streamed(0, &[10, 20]);
    late.lateness = Nanos::from_millis(500);
    late.last_response = Some(Nanos::from_millis(25));
    late.end = Nanos::from_millis(30);
    let mut broken = failed(0, 40, 0);
    broken.last_response = Some(Nanos::from_millis(1));
    let summary = summary(&[late, broken], &streaming());
    assert_avg(&summary, "credit_to_start_latency", 250.0);
    // 500 + 25 and, for a failure, its end: 40.
    assert_avg(&summary, "effective_latency", 282.5);
}

/// Successes, failures and cut requests: whatever sent a byte was late by something.
#[test]
fn schedule_lag_is_of_all_requests_that_were_sent() {
    let sent = |mut record: Record, late_ms: u64, slot_ms: u64| {
        record.lateness = Nanos::from_millis(late_ms);
        record.slot_wait = Nanos::from_millis(slot_ms);
        record.trace.send_start = Some(Nanos::from_millis(1));
        record
    };
    let mut cut = streamed(0, &[10]);
    cut.cancelled = true;
    cut.error = Some(ErrorDetails::default());
    let records = [
        sent(streamed(0, &[10, 20]), 1, 0),
        sent(failed(0, 40, 500), 3, 2),
        sent(cut, 5, 6),
        failed(0, 40, 0),
    ];
    let summary = summary(&records, &streaming());
    for (tag, mean, most) in [
        ("schedule_lag", 4.0, 6.0),
        ("slot_wait", 8.0 / 3.0, 6.0),
        ("client_lag", 4.0 / 3.0, 2.0),
    ] {
        let stats = summary.row(tag).unwrap().stats;
        assert_eq!((stats.count, stats.max), (Some(3), Some(most)), "{tag}");
        assert_avg(&summary, tag, mean);
        assert!(stats.p1.is_some() && stats.std.is_some(), "{tag}");
    }
    // A bucket holds what is at most its value and at most a sixteenth below it.
    let buckets = &summary.schedule_lag.buckets;
    let lags_ns: [u64; 3] = [2_000_000, 4_000_000, 6_000_000];
    assert_eq!(buckets.len(), lags_ns.len());
    for ((most_ns, count), lag_ns) in buckets.iter().zip(lags_ns) {
        assert_eq!(*count, 1);
        assert!(
            (lag_ns..=lag_ns + lag_ns / 16).contains(most_ns),
            "{most_ns}"
        );
    }
}

#[test]
fn the_lag_histogram_is_bounded() {
    let lags_ms: Vec<f64> = (0..200_000).map(|i| 1e-6 * 1.0002_f64.powi(i)).collect();
    let LagHistogram { buckets } = LagHistogram::of(&lags_ms);
    assert!(buckets.len() <= 720, "{}", buckets.len());
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
    let counted: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    assert_eq!(counted, 200_000);
    assert!(LagHistogram::of(&[]).buckets.is_empty());
}

/// AIPerf's rules, one a line of `metric/goodput.txt`.
#[test]
fn objectives_of_one_request() {
    let lines = include_str!("metric/goodput.txt").lines().skip(1);
    let mut cases = 0;
    for line in lines {
        let [_, objectives, request, good] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let mut record = streamed(0, &[100, 200, 300]);
        match request {
            "plain" => record.streamed = false,
            "cut" => (record.cancelled, record.error) = (true, Some(ErrorDetails::default())),
            "failed" => record = failed(0, 1, 500),
            "late" => record.lateness = Nanos::from_millis(50),
            other => assert_eq!(other, "stream"),
        }
        let objectives = objectives.split(' ').map(|word| {
            let (tag, threshold) = word.split_once(':').unwrap();
            Slo {
                tag: tag.to_owned(),
                threshold: threshold.parse().unwrap(),
            }
        });
        let context = Context {
            goodput: objectives.collect(),
            ..streaming()
        };
        let summary = summary(&[record], &context);
        let expected = f64::from(good == "yes");
        assert_eq!(
            avg(&summary, "good_request_count"),
            Some(expected),
            "{line}"
        );
        // A cut request is neither a success nor an error, so there may be nothing to divide by.
        let fraction = (request != "cut").then_some(expected);
        assert_eq!(avg(&summary, "good_request_fraction"), fraction, "{line}");
        cases += 1;
    }
    assert_eq!(cases, 14);
    let without = summary(&[streamed(0, &[100])], &streaming());
    for tag in ["goodput", "good_request_count", "good_request_fraction"] {
        assert!(without.row(tag).is_none(), "{tag}");
    }
    let tags = slo::applicable_tags(&streaming());
    assert!(tags.contains(&"intended_time_to_first_token") && !tags.contains(&"goodput"));
}

#[test]
fn failures_are_infinite_waits_in_adjusted_percentiles() {
    let mut records: Vec<Record> = (1..=7).map(|i| streamed(0, &[i * 10, i * 100])).collect();
    records.push(failed(0, 5, 500));
    let summary = summary(&records, &streaming());
    let stats = summary.row("adj_request_latency").unwrap().stats;
    // Indices round(q * 7): p50 at 3.5 goes to the even 4, p75 at 5.25 to 5, p90 at 6.3 to 6, p95 at 6.65 to the failure.
    assert_eq!(
        (stats.p50, stats.p75, stats.p90),
        (Some(500.0), Some(600.0), Some(700.0))
    );
    assert_eq!(
        (stats.p95, stats.avg, stats.max, stats.sum, stats.std),
        (None, None, None, None, None)
    );
    assert_eq!((stats.min, stats.count), (Some(100.0), Some(8)));
}

/// A cut on purpose is an error record, as in AIPerf; a cut by the run's end is none.
#[test]
fn cuts_on_purpose_are_errors_and_cuts_of_the_end_are_not() {
    let mut records: Vec<Record> = (1..=7).map(|i| streamed(0, &[i * 10, i * 100])).collect();
    for (on_purpose, end_ms) in [(true, 40), (true, 60), (false, 80)] {
        let mut cut = failed(0, end_ms, 499);
        cut.cancelled_on_purpose = on_purpose;
        cut.cancelled = !on_purpose;
        // What had arrived of it gives no latency.
        cut.chunks = streamed(0, &[5, 6]).chunks;
        assert!(cut.was_cancelled());
        records.push(cut);
    }
    let summary = summary(&records, &streaming());
    let counts = (
        summary.success_count,
        summary.error_count,
        summary.cancelled_count,
    );
    assert_eq!(counts, (7, 2, 1));
    for (tag, expected) in [
        ("error_request_count", 2.0),
        ("completed_request_count", 9.0),
        ("request_error_rate", 200.0 / 9.0),
        ("total_error_isl", 14.0),
        ("request_count", 7.0),
    ] {
        assert_avg(&summary, tag, expected);
    }
    let latency = summary.row("request_latency").unwrap().stats;
    assert_eq!((latency.count, latency.min), (Some(7), Some(100.0)));
    let adjusted = summary.row("adj_request_latency").unwrap().stats;
    assert_eq!(adjusted.count, Some(9));
    let waited = summary.row("effective_latency").unwrap().stats;
    assert_eq!((waited.count, waited.min), (Some(10), Some(40.0)));
    assert_eq!(summary.errors.len(), 1, "one group");
    let told = |words: &str| summary.notes.iter().any(|note| note.contains(words));
    assert!(told("2 of 10 requests were cancelled on purpose"));
    assert!(told("1 of 10 requests were cut by the end of the run"));
}

#[test]
fn goodput_counts_the_bound_itself() {
    let objective = |tag: &str, threshold| Slo {
        tag: tag.to_owned(),
        threshold,
    };
    let at = |us: u64| {
        let mut record = streamed(0, &[1, 1000]);
        record.chunks[0].at = Nanos(us * 1000);
        record
    };
    let one_token = streamed(0, &[1000]);
    let cases = [
        // E17: 99.9, 100 and 100.1 ms against 100; a failure is in the denominator.
        (
            vec![objective("time_to_first_token", 100.0)],
            vec![at(99_900), at(100_000), at(100_100), failed(0, 1, 500)],
            2.0,
            0.5,
        ),
        // One token has no inter-token latency and so is not good.
        (
            vec![objective("inter_token_latency", 1e9)],
            vec![one_token],
            0.0,
            0.0,
        ),
        // Larger is better: 2 tokens, 1 in 900 ms = 1.11 tokens/s.
        (
            vec![objective("output_token_throughput_per_user", 1.1)],
            vec![at(100_000)],
            1.0,
            1.0,
        ),
        (
            vec![objective("output_token_throughput_per_user", 1.2)],
            vec![at(100_000)],
            0.0,
            0.0,
        ),
        // All must hold.
        (
            vec![
                objective("request_latency", 1000.0),
                objective("time_to_first_token", 1.0),
            ],
            vec![at(2000)],
            0.0,
            0.0,
        ),
    ];
    for (goodput, records, count, fraction) in cases {
        let context = Context {
            goodput: goodput.clone(),
            ..streaming()
        };
        let summary = summary(&records, &context);
        assert_eq!(
            avg(&summary, "good_request_count"),
            Some(count),
            "{goodput:?}"
        );
        assert_eq!(
            avg(&summary, "good_request_fraction"),
            Some(fraction),
            "{goodput:?}"
        );
        assert_eq!(
            avg(&summary, "goodput"),
            Some(count / summary.window.length().seconds())
        );
    }
}

#[test]
fn objectives_must_be_metrics_of_a_request_in_this_run() {
    let plain = Context::default();
    let server = Context {
        use_server_token_count: true,
        ..streaming()
    };
    let cases = [
        ("time_to_first_token", &streaming(), true),
        ("time_to_first_token", &plain, false),
        ("request_latency", &plain, true),
        ("request_throughput", &streaming(), false),
        ("inter_chunk_latency", &streaming(), false),
        ("no_such_metric", &streaming(), false),
        ("usage_prompt_tokens_diff_pct", &streaming(), true),
        ("usage_prompt_tokens_diff_pct", &server, false),
    ];
    for (tag, context, expected) in cases {
        assert_eq!(slo::applicable(tag, context), expected, "{tag}");
    }
}

#[test]
fn curves_are_weighted_by_time() {
    // Prefill 0..100 ms, decode 100..300 ms of 4 tokens after the first; then the same from 100 ms on: window 400 ms.
    let one = streamed(0, &[100, 150, 200, 250, 300]);
    let two = streamed(100, &[100, 150, 200, 250, 300]);
    let summary = summary(&[one, two], &streaming());
    assert_avg(&summary, "effective_concurrency", 600.0 / 400.0);
    assert_avg(&summary, "effective_prefill_concurrency", 0.5);
    assert_avg(&summary, "effective_decode_concurrency", 1.0);
    // 10 prompt tokens in 100 ms each: 100/s over half of the window.
    assert_avg(&summary, "effective_prefill_throughput", 50.0);
    assert_avg(&summary, "active_prefill_throughput", 100.0);
    // 8 tokens over 400 ms, of which 300 ms have a decoding request.
    assert_avg(&summary, "effective_decode_throughput", 20.0);
    assert_avg(&summary, "active_decode_throughput", 8.0 / 0.3);
    assert_avg(&summary, "active_decode_throughput_per_user", 20.0);
    assert_avg(&summary, "effective_total_throughput", 70.0);
    // Each holds 10 tokens for 100 ms, then 11, 12, 13 and 14 for 50 ms each: 10 * 0.1 + 50 * 0.05 = 3.5 token seconds.
    assert_avg(&summary, "tokens_in_flight", 7.0 / 0.4);
    let stats = summary.row("effective_concurrency").unwrap().stats;
    // 1 for 200 ms, 2 for 200 ms.
    assert_eq!(
        (stats.min, stats.max, stats.p50, stats.p90),
        (Some(1.0), Some(2.0), Some(1.0), Some(2.0))
    );
    assert_eq!(
        (stats.std, stats.sum, stats.count, stats.p25),
        (Some(0.5), None, None, None)
    );
}

#[test]
fn tokens_in_flight_have_the_percentiles_of_steps() {
    // 10 prompt tokens for 100 ms, then 11 to 14 for 50 ms each, the last event coming with the end.
    let stats = summary(&[streamed(0, &[100, 150, 200, 250, 300])], &streaming());
    let stats = stats.row("tokens_in_flight").unwrap().stats;
    assert_eq!((stats.min, stats.max), (Some(10.0), Some(14.0)));
    assert_eq!(
        (stats.p50, stats.p90, stats.p99),
        (Some(11.0), Some(14.0), Some(14.0))
    );
}

/// Decoding ends with the last content event, as AIPerf has it, however long the server takes to say that it has.
#[test]
fn a_late_end_of_the_stream_is_no_decoding() {
    let mut record = streamed(0, &[100, 150, 200, 250, 300]);
    record.last_response = Some(millis("500"));
    record.end = millis("500");
    let summary = summary(&[record], &streaming());
    // 4 tokens in 200 of 500 ms; decoding counts as such to the end.
    let decode = summary.row("effective_decode_throughput").unwrap().stats;
    assert_eq!((decode.max, decode.p50), (Some(20.0), Some(0.0)));
    assert_avg(&summary, "effective_decode_throughput", 8.0);
    assert_avg(&summary, "effective_decode_concurrency", 0.8);
    // The total spreads them to the end: 10 prompt tokens in 100 ms, 4 in 400 ms.
    let total = summary.row("effective_total_throughput").unwrap().stats;
    assert_eq!((total.max, total.min), (Some(100.0), Some(10.0)));
    let tokens = summary.row("tokens_in_flight").unwrap().stats;
    assert_eq!((tokens.max, tokens.p50), (Some(15.0), Some(13.0)));
}

#[test]
fn notes_say_what_to_distrust() {
    let mut whole = streamed(0, &[100, 100, 100]);
    (whole.whole_in_one_read, whole.coalesced_count) = (true, 3);
    whole.tokens.requested_output = Some(1024);
    whole.tokens.output = Some(300);
    whole.usage = Some(Usage {
        prompt_tokens: Some(20),
        completion_tokens: Some(301),
        ..Usage::default()
    });
    whole.trace.resent = true;
    let mut plain = streamed(0, &[100]);
    plain.streamed = false;
    let noted = summary(&[whole, plain], &streaming());
    let expected = [
        "1 of 2 replies were not streamed",
        "1 of 1 replies arrived whole in one read: their TTFT equals their latency",
        "Events arrive in bursts: 3 of 3 content events (100.0 %)",
        "1 of 1 streams do not tell how many tokens each event carries (100.3 on average)",
        "Prompt tokens differ by 100.0 % between client and server: 10 counted here, 20 by the server",
        "Usage discrepancies: in 1 of 1 requests",
        "Output length was not honoured: asked for 1,024 tokens, got a mean of 300 in 1 of 1 requests.",
        "1 of 2 requests were sent again",
        "p99 of 2 samples",
    ];
    assert_eq!(noted.notes.len(), expected.len(), "{:#?}", noted.notes);
    for (note, start) in noted.notes.iter().zip(expected) {
        assert!(
            note.starts_with(start),
            "{note:?} should start with {start:?}"
        );
    }
    assert_avg(&noted, "coalesced_events", 1.0);
    assert_avg(&noted, "osl_mismatch_count", 1.0);
    let clean: Vec<Record> = (0..100).map(|i| streamed(i, &[10, 20])).collect();
    assert_eq!(summary(&clean, &streaming()).notes, Vec::<String>::new());
}

/// A connection that was opened ahead is told by its first request, and held nothing up.
#[test]
fn a_set_up_ahead_counts_and_blocks_nothing() {
    let mut ahead = streamed(0, &[10, 20]);
    ahead.trace = Trace {
        set_up_ahead: Some(Nanos::from_millis(3)),
        send_start: Some(Nanos(500_000)),
        ..Trace::default()
    };
    let summary = summary(&[ahead], &streaming());
    let average = |tag: &str| summary.row(tag).unwrap().stats.avg;
    assert_eq!(average("connection_setup"), Some(3.0));
    assert_eq!(average("http_req_connecting"), Some(3.0));
    assert_eq!(average("http_req_blocked"), Some(0.5));
}

#[test]
fn connection_setup_is_of_new_connections_only() {
    let mut new = streamed(0, &[10, 20]);
    new.trace = Trace {
        connect_start: Some(Nanos(0)),
        connect_end: Some(Nanos::from_millis(3)),
        ..Trace::default()
    };
    let mut kept = streamed(0, &[10, 20]);
    kept.trace.reused = true;
    let stats = summary(&[new, kept], &streaming())
        .row("connection_setup")
        .unwrap()
        .stats;
    assert_eq!((stats.avg, stats.count), (Some(3.0), Some(1)));
}

#[test]
fn tags_are_unique_and_the_main_table_is_in_its_order() {
    let tags: std::collections::BTreeSet<&str> = registry::METRICS.iter().map(|m| m.tag).collect();
    assert_eq!(tags.len(), registry::METRICS.len());
    let mut main: Vec<_> = registry::METRICS
        .iter()
        .filter(|m| m.group == Group::Default && !m.hidden)
        .collect();
    main.sort_by_key(|m| m.order.unwrap_or(u32::MAX));
    let headers: Vec<&str> = main.iter().map(|m| m.header).collect();
    let expected = [
        "Time to First Token",
        "Time to Second Token",
        "Time to First Output Token",
        "Request Latency",
        "Decode Duration",
        "Inter Token Latency",
        "Output Token Throughput Per User",
        "E2E Output Token Throughput",
        "Output Sequence Length",
        "Input Sequence Length",
        "Output Token Throughput",
        "Input Token Throughput",
        "Inverse Real-Time Factor (RTFx)",
        "Image Throughput",
        "Image Latency",
        "Request Throughput",
        "Goodput",
        "Completed Requests (Success + Error)",
        "Request Error Rate",
        "Request Count",
    ];
    assert_eq!(headers, expected);
}

#[test]
fn percentiles_of_known_values() {
    let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
    for (values, percent, expected) in [
        (&[7.0][..], 99.0, 7.0),
        (&[1.0, 2.0], 99.0, 1.99),
        (&hundred, 50.0, 50.5),
        (&hundred, 99.0, 99.01),
        (&hundred, 0.0, 1.0),
        (&hundred, 100.0, 100.0),
    ] {
        let got = quantile::linear(values, percent).unwrap();
        assert!(
            (got - expected).abs() < 1e-9,
            "p{percent} of {} values: {got}",
            values.len()
        );
    }
    assert_eq!(quantile::linear(&[], 50.0), None);
    let stats = quantile::distribution(&mut vec![f64::NAN, 3.0, f64::INFINITY, 1.0]).unwrap();
    assert_eq!(
        (stats.avg, stats.max, stats.count),
        (Some(2.0), Some(3.0), Some(2))
    );
    assert_eq!(quantile::distribution(&mut vec![f64::NAN]), None);
}

fn numbers(stats: &Stats) -> Vec<f64> {
    let all = [
        stats.avg, stats.min, stats.max, stats.sum, stats.p1, stats.p5, stats.p10, stats.p25,
        stats.p50, stats.p75, stats.p90, stats.p95, stats.p99, stats.std,
    ];
    all.into_iter().flatten().collect()
}

/// Small, ordinary, and absurd.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..5_u64, 0..1_000_000_000_u64, Just(u64::MAX / 2)]
}

fn any_record() -> impl Strategy<Value = Record> {
    let counts = prop::array::uniform5(prop::option::of(amount()));
    let moments = prop::array::uniform8(prop::option::of(amount()));
    let flags = prop::array::uniform5(any::<bool>());
    (
        prop::collection::vec((amount(), any::<bool>()), 1..6),
        counts,
        moments,
        flags,
        0..4_u8,
    )
        .prop_map(|(mut chunks, counts, moments, flags, outcome)| {
            chunks.sort_unstable();
            let at = |index: usize| moments[index].map(Nanos);
            Record {
                wall_start_ns: WALL_NS + counts[0].unwrap_or(0) % 1_000_000_000,
                lateness: at(0).unwrap_or_default(),
                end: Nanos(chunks.last().unwrap().0),
                last_response: at(1),
                streamed: flags[0],
                chunks: chunks
                    .iter()
                    .map(|(at, reasoning)| chunk(Nanos(*at), *reasoning))
                    .collect(),
                tokens: TokenCounts {
                    input: counts[0],
                    output: counts[1],
                    reasoning: counts[2],
                    requested_output: counts[3],
                    client_input: counts[4],
                    template: counts[0].filter(|_| flags[2]),
                    template_refused: flags[1],
                    other_choices: 0,
                },
                finish_reason: flags[0].then(|| "stop".to_owned()),
                usage: flags[1].then(|| Usage {
                    prompt_tokens: counts[4],
                    completion_tokens: counts[3],
                    reasoning_tokens: counts[1],
                    cache_read_tokens: counts[0],
                    ..Usage::default()
                }),
                first_chunk_tokens: counts[2],
                coalesced_count: u32::from(flags[2]),
                whole_in_one_read: flags[2],
                error: (outcome == 1).then(ErrorDetails::default),
                cancelled: outcome == 2,
                trace: Trace {
                    connect_start: at(2),
                    connect_end: at(3),
                    send_start: at(4),
                    send_end: at(5),
                    first_body: at(6),
                    last_body: at(7),
                    bytes_sent: counts[3].unwrap_or(0),
                    ..Trace::default()
                },
                ..Record::default()
            }
        })
}

fn any_context() -> impl Strategy<Value = Context> {
    any::<[bool; 8]>().prop_map(
        |[
            streaming,
            use_server_token_count,
            per_chunk_usage,
            goodput,
            words,
            ends_with_done,
            no_output_tokens,
            no_input_tokens,
        ]| Context {
            streaming,
            use_server_token_count,
            per_chunk_usage,
            server_counts_words: words,
            asked_input: words.then_some(550.0),
            ends_with_done,
            no_output_tokens,
            no_input_tokens,
            goodput: if goodput {
                vec![Slo {
                    tag: "request_latency".to_owned(),
                    threshold: 1.0,
                }]
            } else {
                vec![]
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn statistics_agree_with_a_naive_oracle(values in prop::collection::vec(-1e9..1e9_f64, 1..60)) {
        let stats = quantile::distribution(&mut values.clone()).unwrap();
        let n = values.len();
        // The k-th smallest by counting, without sorting.
        let smallest = |k: usize| *values.iter().find(|v| {
            let below = values.iter().filter(|w| w < v).count();
            let equal = values.iter().filter(|w| w == v).count();
            (below..below + equal).contains(&k)
        }).unwrap();
        for (percent, got) in [(1, stats.p1), (25, stats.p25), (50, stats.p50), (90, stats.p90), (99, stats.p99)] {
            let hundredths = percent * (n - 1);
            let (low, part) = (hundredths / 100, (hundredths % 100) as f64 / 100.0);
            let want = smallest(low) * (1.0 - part) + smallest((low + 1).min(n - 1)) * part;
            prop_assert!((got.unwrap() - want).abs() < 1e-4, "p{}: {:?} {}", percent, got, want);
        }
        let mean = values.iter().map(|v| v / n as f64).sum::<f64>();
        let deviation = values.iter().map(|v| (v - mean).powi(2) / n as f64).sum::<f64>().sqrt();
        prop_assert!((stats.avg.unwrap() - mean).abs() < 1e-4);
        prop_assert!((stats.std.unwrap() - deviation).abs() < 1e-4);
        prop_assert_eq!(stats.count, Some(n as u64));
    }

    #[test]
    fn gap_statistics_stay_near_the_exact_ones(gaps_ns in prop::collection::vec(0..5_000_000_000_u64, 1..60)) {
        let mut record = streamed(0, &[1]);
        let mut at = Nanos(1_000);
        record.chunks = vec![chunk(at, false)];
        for gap_ns in &gaps_ns {
            at = at + Nanos(*gap_ns);
            record.chunks.push(chunk(at, false));
        }
        let stats = summary(&[record], &streaming()).row("inter_chunk_latency").unwrap().stats;
        let mut exact: Vec<f64> = gaps_ns.iter().map(|ns| Nanos(*ns).millis()).collect();
        let exact = quantile::distribution(&mut exact).unwrap();
        for (got, want) in [(stats.avg, exact.avg), (stats.min, exact.min), (stats.max, exact.max), (stats.sum, exact.sum), (stats.std, exact.std)] {
            prop_assert!((got.unwrap() - want.unwrap()).abs() <= want.unwrap().abs() * 1e-6 + 1e-6, "{:?} {:?}", got, want);
        }
        let percentiles = [stats.p1, stats.p5, stats.p10, stats.p25, stats.p50, stats.p75, stats.p90, stats.p95, stats.p99];
        for value in percentiles {
            let near = gaps_ns.iter().any(|ns| (Nanos(*ns).millis() - value.unwrap()).abs() <= value.unwrap() * 1e-3 + 1e-6);
            prop_assert!(near, "{:?} is near no gap", value);
        }
        prop_assert!(percentiles.is_sorted());
    }

    #[test]
    fn no_record_makes_a_number_that_is_not_finite(records in prop::collection::vec(any_record(), 0..8), context in any_context()) {
        for record in &records {
            for (metric, value) in request::values(record, &context) {
                let finite = match value {
                    Value::One(value) => value.is_finite(),
                    Value::Many(values) => values.iter().all(|v| v.is_finite()),
                };
                prop_assert!(finite && metric.in_records, "{}", metric.tag);
            }
        }
        for row in summary(&records, &context).rows {
            let numbers = numbers(&row.stats);
            prop_assert!(!numbers.is_empty() && numbers.iter().all(|v| v.is_finite()), "{} {:?}", row.metric.tag, row.stats);
        }
    }

    #[test]
    fn split_records_merge_to_the_same_summary(records in prop::collection::vec(any_record(), 0..8), at in 0..8_usize, context in any_context()) {
        let whole = summary(&records, &context);
        let (one, two) = records.split_at(at.min(records.len()));
        let mut parts = [Accumulator::new(&context), Accumulator::new(&context)];
        for (part, records) in parts.iter_mut().zip([one, two]) {
            records.iter().for_each(|record| part.add(record));
        }
        // The later part first: the order must not matter.
        let [first, mut merged] = parts;
        merged.merge(first);
        let merged = merged.summary();
        prop_assert_eq!(merged.rows, whole.rows);
        prop_assert_eq!(merged.errors, whole.errors);
        prop_assert_eq!(merged.notes, whole.notes);
        prop_assert_eq!(merged.window, whole.window);
    }
}

/// Gaps of 20, 30 and 40 ms; the last three events carry 2, 0 and 5 tokens: 10, 10, then (30 + 40) / 5 = 14 five times.
#[test]
fn token_gaps_weigh_by_the_tokens_of_an_event() {
    let mut record = streamed(0, &[100, 120, 150, 190]);
    for (chunk, tokens) in record.chunks.iter_mut().zip([1, 2, 0, 5]) {
        chunk.tokens = Some(tokens);
    }
    let counted = summary(&[record], &streaming());
    let stats = counted.row("inter_token_gap").unwrap().stats;
    assert_eq!(stats.count, Some(7));
    assert_eq!((stats.min, stats.max), (Some(10.0), Some(14.0)));
    assert_avg(&counted, "inter_token_gap", 90.0 / 7.0);
    assert!((stats.p50.unwrap() - 14.0).abs() < 0.014, "{stats:?}");
    assert_avg(&counted, "inter_chunk_latency", 30.0);
    assert_eq!(
        counted.row("inter_chunk_latency").unwrap().stats.count,
        Some(3)
    );
}

/// Where no event tells its tokens, each is one if the counts say so; else nothing is made up, and a note says what is missing.
#[test]
fn an_event_is_a_token_only_where_the_counts_agree() {
    let stream = |output: u64, told: Option<u64>| {
        let mut record = streamed(0, &[100, 110, 120, 130, 140, 150, 160, 170, 180, 190]);
        record.tokens.output = Some(output);
        record.usage = told.map(|completion_tokens| Usage {
            completion_tokens: Some(completion_tokens),
            ..Usage::default()
        });
        record
    };
    for (output, told, gaps) in [
        (10, None, Some(9)),
        (9, None, Some(9)),
        (11, None, Some(9)),
        (30, Some(10), Some(9)),
        // Hidden reasoning is in the server's count only.
        (10, Some(500), Some(9)),
        (12, None, None),
        (8, None, None),
        (30, Some(30), None),
    ] {
        let summary = summary(&[stream(output, told)], &streaming());
        let row = summary.row("inter_token_gap");
        let place = format!("{output} {told:?}");
        assert_eq!(row.and_then(|row| row.stats.count), gaps, "{place}");
        let said = |note: &String| note.contains("do not tell how many tokens");
        assert_eq!(summary.notes.iter().any(said), gaps.is_none(), "{place}");
    }
    let mut told = stream(30, None);
    for chunk in &mut told.chunks[1..] {
        chunk.tokens = Some(2);
    }
    let three = summary(&[stream(30, None), told, stream(10, None)], &streaming());
    let note = three
        .notes
        .iter()
        .find(|note| note.contains("tokens each event"));
    assert_eq!(
        note.map(|note| note.split(':').next().unwrap()),
        Some("1 of 3 streams do not tell how many tokens each event carries (3.0 on average)")
    );
    // 18 tokens 5 ms apart, 9 that are 10 ms apart.
    assert_avg(&three, "inter_token_gap", 180.0 / 27.0);
}

#[test]
fn an_absurd_token_count_is_bounded() {
    let mut record = streamed(0, &[0, 1_000]);
    record.chunks[1].tokens = Some(u32::MAX);
    let summary = summary(&[record], &streaming());
    assert_eq!(
        summary.row("inter_token_gap").unwrap().stats.count,
        Some(1 << 20)
    );
}

#[test]
fn bursts_are_said_to_make_gaps_meaningless() {
    for (coalesced, says) in [(0, None), (1, Some("gaps of 0")), (8, Some("say nothing"))] {
        let mut record = streamed(0, &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        record.coalesced_count = coalesced;
        let summary = summary(&[record], &streaming());
        let burst = summary.notes.iter().find(|note| note.contains("bursts"));
        assert_eq!(burst.is_some(), says.is_some(), "{coalesced}");
        assert!(
            says.is_none_or(|says| burst.unwrap().contains(says)),
            "{burst:?}"
        );
        assert_avg(&summary, "coalesced_events", f64::from(coalesced) / 10.0);
    }
}
