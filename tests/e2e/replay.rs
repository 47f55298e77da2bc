//! Datasets sent at their own times, with real sockets.
//!
//! In: small traces, the built-in server. Out: when requests were due. Never: a bound on how late they went out.

use super::tool::{Mock, Run, Tool};

/// Milliseconds from the first due time to each request's, by session id and turn, in order of time.
fn dues(run: &Run) -> Vec<(String, u64, f64)> {
    let lines = run.lines("profile_export_raw.jsonl");
    let mut dues: Vec<(String, u64, f64)> = lines
        .iter()
        .map(|line| {
            let of = &line["metadata"];
            let due = line["stamps"]["due_perf_ns"]
                .as_u64()
                .unwrap_or_else(|| panic!("{line}"));
            let id = of["conversation_id"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            (
                id,
                of["turn_index"].as_u64().unwrap_or(99),
                due as f64 / 1e6,
            )
        })
        .collect();
    dues.sort_by(|a, b| a.2.total_cmp(&b.2));
    let first = dues[0].2;
    dues.iter_mut().for_each(|due| due.2 -= first);
    dues
}

fn replay(mock: &Mock, file: &str, kind: &str) -> Run {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/traces");
    Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none --input-file {traces}/{file} \
         --custom-dataset-type {kind} --fixed-schedule --osl 3 --export-level raw",
        mock.url
    ))
    .run()
}

#[test]
fn a_trace_is_sent_at_its_timestamps() {
    let mock = Mock::start("--ttft 20 --itl 2");
    let run = replay(
        &mock,
        "mooncake.jsonl",
        "mooncake_trace --isl-block-size 40",
    );
    assert_eq!(run.counts(), [4, 4, 0, 0], "{run}");
    let dues: Vec<f64> = dues(&run).into_iter().map(|due| due.2).collect();
    for (due, at) in dues.iter().zip([0.0, 100.0, 100.0, 350.0]) {
        assert!((due - at).abs() < 0.01, "{dues:?}");
    }
}

#[test]
fn later_turns_go_by_their_own_time_their_delay_or_at_once() {
    let mock = Mock::start("--ttft 20 --itl 2");
    let run = replay(&mock, "multi_turn.jsonl", "multi_turn");
    assert_eq!(run.counts(), [5, 5, 0, 0], "{run}");
    let dues = dues(&run);
    let of = |id: &str, turn| {
        let found = dues.iter().find(|due| due.0 == id && due.1 == turn);
        found.unwrap_or_else(|| panic!("{id} {turn} in {dues:?}")).2
    };
    assert!(of("a", 0).abs() < 0.01, "{dues:?}");
    assert!((of("b", 0) - 200.0).abs() < 0.01, "{dues:?}");
    assert!(
        (of("a", 2) - 500.0).abs() < 0.01,
        "by its own timestamp: {dues:?}"
    );
    // The reply takes at least 20 ms; on a busy machine longer.
    assert!(
        (120.0..400.0).contains(&of("a", 1)),
        "its delay after the reply: {dues:?}"
    );
    assert!(
        (220.0..450.0).contains(&of("b", 1)),
        "at once after the reply: {dues:?}"
    );
}

/// Each trace of `tests/datasets`, ten times as fast as it was recorded: every line is a request of the length that it says.
#[test]
fn the_example_traces_are_played_whole() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/datasets");
    let mock = Mock::start("--ttft 5 --itl 0.1");
    // File, format, requests, prompt tokens of all (none where the file has texts or grows with live replies), output tokens of all.
    let cases = [
        (
            "mooncake_trace-lengths.jsonl",
            "mooncake_trace",
            24,
            Some(41_218.0),
        ),
        ("mooncake_trace-texts.jsonl", "mooncake_trace", 4, None),
        ("mooncake_trace-messages.jsonl", "mooncake_trace", 3, None),
        ("mooncake_trace-payloads.jsonl", "mooncake_trace", 2, None),
        ("bailian_trace.jsonl", "bailian_trace", 6, None),
        ("burst_gpt_trace.csv", "burst_gpt_trace", 5, Some(2_225.0)),
    ];
    for (file, kind, requests, tokens) in cases {
        let run = Tool::profile(&format!(
            "--model m --url {} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none --input-file {folder}/{file} \
             --custom-dataset-type {kind} --fixed-schedule --synthesis-speedup-ratio 10 --export-level raw",
            mock.url
        ))
        .run();
        assert_eq!(run.counts(), [requests, requests, 0, 0], "{file} {run}");
        if let Some(tokens) = tokens {
            assert!(
                (run.metric("total_isl", "avg") - tokens).abs() < 0.5,
                "{file} {run}"
            );
        }
        assert!(
            run.metric("replay_sched_lag_p99", "avg") >= 0.0,
            "{file} {run}"
        );
    }
}
