//! Made-up logs and files, whose errors are known.
//!
//! In: tables and generated numbers. Out: verdicts. Never: a process, or the machine's clock.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::claim::{self, ClaimedRequest, Health};
use super::layout::Layout;
use super::outcome::Results;
use super::sample::{Sample, Spread, compare, medians};
use super::truth::{self, SentEvent, ServedRequest};
use crate::config::{CalibratePlan, Command, parse};

const HEADER: &str = "# connection request event monotonic_ns due_ns sent_ns received_ns\n";

fn plan(words: &str) -> CalibratePlan {
    let words = format!("calibrate {words}");
    match parse(words.split_whitespace().map(Into::into)) {
        Ok(Command::Calibrate(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_is_read_by_its_columns_names() {
    let log = "# event x request received_ns due_ns monotonic_ns\n0 9 5 100 140 150\n1 9 5 100 240 260\n0 9 6 1 2 3\n";
    let requests = truth::read(log).unwrap();
    assert_eq!(requests[&5].received, 100);
    let sent: Vec<u64> = requests[&5].events.iter().map(|event| event.sent).collect();
    assert_eq!((sent, requests[&6].events[0].due), (vec![150, 260], 2));
}

#[test]
fn a_wrong_log_names_its_line() {
    let cases = [
        ("1 1 0 5 5 5 5\n".to_owned(), "line 1 ", "columns' names"),
        ("# request event\n".to_owned(), "line 1 ", "monotonic_ns"),
        (
            format!("{HEADER}1 1 0 5 5 5 5\n1 1 2 6 6 6 5\n"),
            "line 3 ",
            "event 2",
        ),
        (format!("{HEADER}1 1 x 5 5 5 5\n"), "line 2 ", "\"x\""),
        (format!("{HEADER}1 1 0 5\n"), "line 2 ", "due_ns"),
    ];
    for (log, line, reason) in cases {
        let error = truth::read(&log).unwrap_err().to_string();
        assert!(
            error.contains(line) && error.contains(reason),
            "{log:?}: {error}"
        );
    }
}

fn raw(id: &str) -> String {
    let event = |text: &str, at: u64| {
        format!(
            r#"{{"perf_ns":{at},"packets":[{{"name":"data","value":"{{\"id\":\"{id}\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}"}}]}}"#
        )
    };
    format!(
        r#"{{"metadata":{{"x_request_id":"a","request_start_ns":1000}},"start_perf_ns":50,"responses":[{},{},{},{{"perf_ns":9,"packets":[{{"name":"data","value":"[DONE]"}}]}}]}}"#,
        event("", 60),
        event("one", 70),
        event("two", 90)
    )
}

const RECORD: &str = r#"{"metadata":{"x_request_id":"a","request_start_ns":1000},"trace_data":{"request_send_start_ns":1007}}"#;

#[test]
fn the_client_s_files_give_stamps_of_content_alone() {
    let requests = claim::read(&raw("chatcmpl-001f"), RECORD).unwrap();
    let expected = ClaimedRequest {
        number: Some(31),
        sent: 57,
        arrivals: vec![70, 90],
    };
    assert_eq!(requests, [expected]);
    for (text, records) in [
        (raw("nonumber"), RECORD),
        (raw("chatcmpl-xyz"), RECORD),
        ("{}".to_owned(), RECORD),
        (raw("c-1"), ""),
        (raw("c-1"), "{"),
    ] {
        let error = claim::read(&text, records).unwrap_err().to_string();
        assert!(error.contains("line 1 "), "{error}");
    }
}

#[test]
fn the_verdict_is_read_where_there_is_one() {
    let summary = r#"{"client_health":{"verdict":"caution","workers":[{"cpu_time_ns":5},{"cpu_time_ns":6}]}}"#;
    let health = claim::health(summary).unwrap();
    assert_eq!(
        (health.verdict.as_deref(), health.cpu_ns),
        (Some("caution"), Some(11))
    );
    assert_eq!(claim::health("{}").unwrap(), Health::default());
    assert!(claim::health("{").is_err());
}

/// Streams of events 100 us apart, each stamped `errors` late in turn.
fn run(streams: u64, errors: &[u64]) -> (BTreeMap<u64, ServedRequest>, Vec<ClaimedRequest>) {
    let (mut served, mut claimed) = (BTreeMap::new(), Vec::new());
    for number in 1..=streams {
        let due = |event: u64| 1_000_000 + event * 100_000;
        let events: Vec<SentEvent> = (0..errors.len() as u64)
            .map(|event| SentEvent {
                due: due(event),
                sent: due(event) + 2,
            })
            .collect();
        let arrivals = events
            .iter()
            .zip(errors)
            .map(|(event, error)| event.sent + error);
        claimed.push(ClaimedRequest {
            number: Some(number),
            sent: 500_000,
            arrivals: arrivals.collect(),
        });
        let received = 500_010;
        served.insert(number, ServedRequest { received, events });
    }
    (served, claimed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn known_errors_come_out(streams in 1u64..5, errors in prop::collection::vec(0u64..90_000, 2..30)) {
        let (served, claimed) = run(streams, &errors);
        let sample = compare(&served, &claimed, Health::default()).unwrap();
        let mut sorted = errors.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100) - 1;
        prop_assert_eq!(sample.stamp_error.p99.unsigned_abs(), sorted[rank]);
        prop_assert_eq!(sample.stamp_error.max.unsigned_abs(), sorted[sorted.len() - 1]);
        prop_assert_eq!(sample.stamp_error.min.unsigned_abs(), sorted[0]);
        // The request took 10 ns to arrive.
        prop_assert_eq!(sample.ttft_error.p50.unsigned_abs(), errors[0] + 10);
        prop_assert_eq!((sample.lost, sample.shared, sample.events), (0, 0, streams * errors.len() as u64));
        prop_assert!(sample.server_itl_sd < 1e-6 && (sample.itl_sd - sample.gap_error_sd).abs() < 1e-6);
        prop_assert_eq!((sample.server_late.p50, sample.server_late.max), (2, 2));
        // A constant error disturbs no gap.
        let (served, claimed) = run(streams, &vec![errors[0]; errors.len()]);
        prop_assert!(compare(&served, &claimed, Health::default()).unwrap().gap_error_sd < 1e-6);
    }
}

#[test]
fn what_is_missing_or_shared_is_counted() {
    let (served, mut claimed) = run(4, &[5; 10]);
    claimed.remove(3);
    claimed[2].arrivals.pop();
    claimed[1].arrivals[4] = claimed[1].arrivals[5];
    let sample = compare(&served, &claimed, Health::default()).unwrap();
    assert_eq!((sample.lost, sample.shared, sample.events), (11, 2, 40));
    claimed[0].arrivals.push(1);
    assert!(
        compare(&served, &claimed, Health::default())
            .unwrap_err()
            .contains("11 events")
    );
    claimed[0].number = Some(77);
    assert!(
        compare(&served, &claimed, Health::default())
            .unwrap_err()
            .contains("77")
    );
}

#[test]
fn medians_add_losses_and_keep_the_worst_verdict() {
    let sample = |p50: i64, lost: u64, verdict: &str| Sample {
        stamp_error: Spread {
            p50,
            ..Spread::default()
        },
        lost,
        verdict: Some(verdict.to_owned()),
        ..Sample::default()
    };
    let all = [
        sample(9, 1, "trusted"),
        sample(1, 0, "untrusted"),
        sample(5, 2, "caution"),
    ];
    let median = medians(&all).unwrap();
    assert_eq!((median.stamp_error.p50, median.lost), (5, 3));
    assert_eq!(median.verdict.as_deref(), Some("untrusted"));
    assert_eq!(medians(&[]), None);
}

#[test]
fn the_highest_trusted_count_has_none_below_it_that_is_not() {
    for (verdicts, expected) in [
        (["trusted", "trusted", "caution"], Some(10)),
        (["trusted", "caution", "trusted"], Some(1)),
        (["caution", "trusted", "trusted"], None),
    ] {
        let words = "--streams 1,10,100 --driver ring --timestamp-source kernel";
        let mut results = Results::new(&plan(words), &[0], &[1]);
        results.rows.dedup_by_key(|row| row.streams);
        for (row, verdict) in results.rows.iter_mut().zip(verdicts) {
            row.samples.push(Sample {
                verdict: Some(verdict.to_owned()),
                ..Sample::default()
            });
        }
        let streams = &results.json()["highest_trusted"][0]["streams"];
        assert_eq!(streams.as_u64(), expected, "{verdicts:?}");
    }
}

#[test]
fn cores_are_the_last_two_unless_named() {
    for (words, mask, expected) in [
        ("", &[0usize, 1][..], Some(("[0]", "[0]", "[1]"))),
        ("", &[0, 1, 2, 3], Some(("[2]", "[0, 1, 2]", "[3]"))),
        ("--cpus 1", &[0, 1], Some(("[1]", "[1]", "[0]"))),
        ("--server-cpus 0", &[0, 1], Some(("[1]", "[1]", "[0]"))),
        ("", &[4], None),
        ("--cpus 9", &[0, 1], None),
        ("--cpus 0-1", &[0, 1], None),
    ] {
        let layout = Layout::choose(&plan(words), mask).ok();
        let shown =
            layout.map(|l| [l.workers, l.client, l.server].map(|cores| format!("{cores:?}")));
        let expected = expected.map(|(a, b, c)| [a, b, c].map(str::to_owned));
        assert_eq!(shown, expected, "{words} on {mask:?}");
    }
}
