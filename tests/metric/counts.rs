//! Counts and weights of whole runs.
//!
//! In: `counts.txt`. Out: metrics, notes and finish reasons worked out on paper. Never: a time of this machine.

use tokenring::metric::{Compared, Context, Stats};
use tokenring::record::Record;

use super::{set, streaming, summary};
use proptest::prelude::*;

fn stat(stats: &Stats, name: &str) -> Option<f64> {
    match name {
        "avg" => stats.avg,
        "min" => stats.min,
        "max" => stats.max,
        "p50" => stats.p50,
        "p90" => stats.p90,
        "p99" => stats.p99,
        "count" => stats.count.map(|count| count as f64),
        other => panic!("no statistic {other:?}"),
    }
}

fn requests(line: &str, context: &mut Context) -> Vec<Record> {
    let (times, rest) = line.split_once("request").unwrap();
    let times = times.trim().trim_end_matches('x');
    let count: usize = if times.is_empty() {
        1
    } else {
        times.parse().unwrap()
    };
    let mut record = Record {
        streamed: true,
        status: 200,
        ..Record::default()
    };
    for part in rest
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        set(&mut record, context, part);
    }
    vec![record; count]
}

#[test]
fn runs_by_table() {
    let text = include_str!("counts.txt");
    let mut cases = 0;
    for block in text.split("== ").filter(|block| !block.trim().is_empty()) {
        let (name, lines) = block.split_once('\n').unwrap();
        let lines: Vec<&str> = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let mut context = streaming();
        let is_request = |line: &&&str| line.split(' ').take(2).any(|word| word == "request");
        let records: Vec<Record> = lines
            .iter()
            .filter(is_request)
            .flat_map(|line| requests(line, &mut context))
            .collect();
        let run = summary(&records, &context);
        for line in lines.iter().filter(|line| !is_request(line)) {
            let (key, rest) = line.split_once(' ').unwrap();
            let noted = run.notes.iter().any(|note| note.starts_with(rest));
            match key {
                "=" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let row = run
                        .row(words[0])
                        .unwrap_or_else(|| panic!("{name}: no {}", words[0]));
                    let got = stat(&row.stats, words[1]).unwrap();
                    let want: f64 = words[2].parse().unwrap();
                    let near = (got - want).abs() <= want.abs() * 1e-9;
                    assert!(near, "{name}: {rest}, but it is {got}");
                }
                "-" => assert!(run.row(rest).is_none(), "{name}: {rest} is there"),
                "reasons" => {
                    let reasons = run.counts.finish_reasons.iter();
                    let reasons: Vec<String> =
                        reasons.map(|(name, n)| format!("{name} {n}")).collect();
                    assert_eq!(reasons.join(", "), rest, "{name}");
                }
                "note" => assert!(noted, "{name}: {rest}: {:#?}", run.notes),
                "no-note" => assert!(!noted, "{name}: {rest}: {:#?}", run.notes),
                other => panic!("{name}: unknown line {other:?}"),
            }
        }
        cases += 1;
    }
    assert!(cases >= 10, "only {cases} cases were read");
}

#[test]
fn finish_reasons_are_bounded_and_lose_no_request() {
    let records: Vec<Record> = (0..100)
        .map(|index| Record {
            finish_reason: Some(format!("{index}-{}", "x".repeat(5_000))),
            ..Record::default()
        })
        .collect();
    let reasons = summary(&records, &streaming()).counts.finish_reasons;
    assert_eq!(reasons.len(), 33);
    assert_eq!(reasons["other"], 68);
    assert_eq!(reasons.values().sum::<u64>(), 100);
    assert!(reasons.keys().all(|name| name.chars().count() <= 64));
}

proptest! {
    /// One population: both means, and both extremes, come from the same requests; and the mean by token is the whole decode time over
    /// the whole number of tokens.
    #[test]
    fn latencies_by_request_and_by_token_are_of_the_same_requests(
        shapes in prop::collection::vec((1_u64..50, 0_u64..4_000, 0_u64..9), 1..40),
    ) {
        let mut records = Vec::new();
        let (mut decode_ms, mut tokens) = (0, 0);
        for (output, length_ms, kind) in shapes {
            let mut record = super::streamed(0, &[100, 100 + length_ms]);
            record.tokens.output = Some(output);
            match kind {
                0 => record.streamed = false,
                1 => record.cancelled = true,
                2 => record.error = Some(tokenring::record::ErrorDetails::default()),
                _ if output > 1 => {
                    decode_ms += length_ms;
                    tokens += output - 1;
                }
                _ => {}
            }
            records.push(record);
        }
        let run = summary(&records, &streaming());
        let by_request = run.row("time_per_output_token").map(|row| row.stats);
        let by_token = run.row("token_weighted_inter_token_latency").map(|row| row.stats);
        prop_assert_eq!(by_request.is_some(), tokens > 0);
        prop_assert_eq!(by_token.is_some(), tokens > 0);
        if let Some((by_request, by_token)) = by_request.zip(by_token) {
            prop_assert_eq!(by_token.count, Some(tokens));
            prop_assert_eq!((by_request.min, by_request.max), (by_token.min, by_token.max));
            let mean = decode_ms as f64 / tokens as f64;
            prop_assert!((by_token.avg.unwrap() - mean).abs() <= mean * 1e-9);
        }
    }

    /// Sums that a server makes absurd saturate, and no difference is lost by it.
    #[test]
    fn absurd_counts_stay_numbers(counts in prop::collection::vec((any::<u64>(), any::<u64>()), 1..20)) {
        let records: Vec<Record> = counts.iter().map(|&(client, server)| {
            let mut record = super::streamed(0, &[10, 20]);
            (record.tokens.input, record.tokens.client_input) = (Some(client), Some(client));
            record.tokens.requested_output = Some(server);
            record.usage = Some(tokenring::endpoint::Usage {
                prompt_tokens: Some(server),
                ..tokenring::endpoint::Usage::default()
            });
            record
        }).collect();
        let run = summary(&records, &streaming());
        let Compared { requests, over, .. } = run.counts.prompt;
        prop_assert_eq!(requests, counts.len() as u64);
        let right = counts.iter().filter(|(client, server)| {
            server.abs_diff(*client) as f64 / (*client).max(1) as f64 > 0.02
        });
        prop_assert_eq!(over, right.count() as u64);
        prop_assert!(run.counts.prompt.difference_percent().is_none_or(f64::is_finite));
    }
}
