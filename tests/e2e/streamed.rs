//! A trace that is streamed, beside the same trace loaded.
//!
//! In: traces with real sockets. Out: whether the two ways differ in anything but time. Never: a bound on how late requests went out.

use std::fmt::Write;

use serde_json::Value;

use super::tool::{Mock, Run, Tool};

/// Entries of the traces: several blocks of lines, and more than one block apart.
const ENTRIES: u32 = 300;

/// Times from 500 ms to 1,100 ms, not in order, some of them equal.
fn time_of(entry: u32) -> u32 {
    500 + entry * 7 % 120 * 5
}

/// Times in order.
fn time_in_order(entry: u32) -> u32 {
    500 + entry * 2
}

fn mooncake(time: fn(u32) -> u32) -> String {
    let mut text = String::new();
    for entry in 0..ENTRIES {
        let at = time(entry);
        let line = match entry % 5 {
            0 => format!(
                r#"{{"timestamp": {at}, "text_input": "Say {entry} ü\n", "output_length": 2}}"#
            ),
            1 => format!(r#"{{"timestamp": {at}, "input_length": 45, "hash_ids": [1, {entry}]}}"#),
            2 => {
                format!(
                    r#"{{"timestamp": {at}, "input_length": 33, "hash_ids": [1], "session_id": "s{entry}"}}"#
                )
            }
            _ => format!(
                r#"{{"timestamp": {at}, "input_length": {}, "extra": {{"n": {entry}}}}}"#,
                10 + entry % 9
            ),
        };
        writeln!(text, "{line}").unwrap();
        if entry % 50 == 7 {
            text.push_str("  \n\n");
        }
    }
    text
}

fn single_turn() -> String {
    let mut text = String::new();
    for entry in 0..ENTRIES {
        let at = time_of(entry);
        writeln!(
            text,
            r#"{{"timestamp": {at}, "text": "Number {entry}", "role": "user"}}"#
        )
        .unwrap();
    }
    text.truncate(text.trim_end().len());
    text
}

fn run(mock: &Mock, trace: &str, how: &str, flags: &str) -> Run {
    Tool::profile(&format!(
        "--model m,n --model-selection-strategy random --url {} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none \
         --input-file in.jsonl --osl 4 --output-tokens-stddev 2 --export-level raw --random-seed 5 \
         --stream-input {how} {flags}",
        mock.url
    ))
    .file("in.jsonl", trace)
    .run()
}

/// What a request was, without when exactly it went out and what that led to.
fn requests(run: &Run) -> Vec<String> {
    let raw = run.lines("profile_export_raw.jsonl");
    let due = |line: &Value| line["stamps"]["due_perf_ns"].as_u64().unwrap();
    let first = raw.iter().map(due).min().unwrap();
    let mut requests: Vec<(u64, String)> = raw
        .iter()
        .map(|line| {
            let of = &line["metadata"];
            let number = of["session_num"].as_u64().unwrap();
            let ids = [
                "conversation_id",
                "x_request_id",
                "x_correlation_id",
                "worker_id",
            ];
            let ids = ids.map(|name| of[name].to_string());
            // To a tenth of a millisecond: the clock is fitted anew while it runs, and times are whole milliseconds.
            let due = (due(line) - first + 50_000) / 100_000;
            (number, format!("{ids:?} {due} {}", line["payload"]))
        })
        .collect();
    for line in run.records("profiling") {
        let number = line["metadata"]["session_num"].as_u64().unwrap();
        let tokens = [
            "input_sequence_length",
            "output_sequence_length",
            "requested_output_sequence_length",
        ];
        let tokens = tokens.map(|name| line["metrics"][name]["value"].to_string());
        requests.push((number, format!("{tokens:?}")));
    }
    requests.sort();
    requests.into_iter().map(|request| request.1).collect()
}

#[track_caller]
fn same(mock: &Mock, trace: &str, flags: &str, count: usize) {
    let loaded = run(mock, trace, "never", flags);
    let streamed = run(mock, trace, "always", flags);
    let bodies = "Bodies made during the run";
    assert!(streamed.stdout.contains(bodies), "{streamed}");
    assert!(!loaded.stdout.contains(bodies), "{loaded}");
    assert_eq!(loaded.counts(), [count, count, 0, 0], "{loaded}");
    assert_eq!(streamed.counts(), loaded.counts(), "{streamed}");
    assert_eq!(streamed.text("inputs.json"), loaded.text("inputs.json"));
    let (one, other) = (requests(&loaded), requests(&streamed));
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    let id = |run: &Run| run.summary()["request_count"].to_string();
    assert_eq!(id(&loaded), id(&streamed));
}

#[test]
fn a_streamed_trace_is_the_loaded_one() {
    let mock = Mock::start("--ttft 1 --itl 0");
    let block = "--custom-dataset-type mooncake_trace --isl-block-size 16 --fixed-schedule";
    let unordered = mooncake(time_of);
    same(&mock, &unordered, &format!("{block} --workers-max 1"), 300);
    let cut = "--fixed-schedule-start-offset 620 --fixed-schedule-end-offset 900";
    let within = |time: fn(u32) -> u32| {
        let times = (0..ENTRIES).map(time);
        times.filter(|at| (620..=900).contains(at)).count()
    };
    let two = format!("{block} --workers-max 2 {cut}");
    same(&mock, &unordered, &two, within(time_of));
    same(&mock, &mooncake(time_in_order), &two, within(time_in_order));
}

#[test]
fn streamed_single_turns_are_the_loaded_ones() {
    let mock = Mock::start("--ttft 1 --itl 0");
    let flags =
        "--custom-dataset-type single_turn --fixed-schedule --workers-max 2 --concurrency 3";
    same(&mock, &single_turn(), flags, 300);
}

/// Sessions of three lines each, whose histories hold live replies, messages or nothing. Some second turns wait for the reply before.
fn sessions(waits: bool) -> String {
    let mut text = String::new();
    for entry in 0..ENTRIES {
        let (session, turn) = (entry / 90 * 30 + entry % 30, entry / 30 % 3);
        let when = if waits && turn == 1 && session % 2 == 0 {
            r#""delay": 20"#.to_owned()
        } else {
            format!(r#""timestamp": {}"#, 500 + session * 3 + turn * 150)
        };
        let content = match session % 3 {
            0 => format!(r#""text_input": "Say {entry}", "output_length": 2"#),
            1 => format!(
                r#""input_length": {}, "hash_ids": [1000, {entry}]"#,
                17 + entry % 9
            ),
            _ => format!(r#""messages": [{{"role": "user", "content": "m{entry}"}}]"#),
        };
        writeln!(text, r#"{{"session_id": "s{session}", {when}, {content}}}"#).unwrap();
    }
    text
}

/// What each turn was, by session; and when it was due, unless it was to wait for a reply.
fn turns(run: &Run, waits: bool) -> Vec<String> {
    let raw = run.lines("profile_export_raw.jsonl");
    let due = |line: &Value| line["stamps"]["due_perf_ns"].as_u64().unwrap();
    let replayed = |line: &&Value| line["metadata"]["benchmark_phase"] == "profiling";
    let first = raw.iter().filter(replayed).map(due).min().unwrap();
    let turns = raw.iter().map(|line| {
        let of = &line["metadata"];
        let names = [
            "benchmark_phase",
            "conversation_id",
            "turn_index",
            "worker_id",
        ];
        let names = names.map(|name| of[name].to_string());
        let waits = waits && of["turn_index"] == 1;
        let due = (!waits && replayed(&line)).then(|| (due(line) - first + 50_000) / 100_000);
        format!("{names:?} {due:?} {}", line["payload"])
    });
    let mut turns: Vec<String> = turns.collect();
    turns.sort();
    turns
}

#[test]
fn streamed_sessions_of_several_lines_are_the_loaded_ones() {
    let mock = Mock::start("--ttft 1 --itl 0");
    let block =
        "--custom-dataset-type mooncake_trace --isl-block-size 16 --fixed-schedule --workers-max 2";
    let cut = "--fixed-schedule-start-offset 600 --fixed-schedule-end-offset 800 --concurrency 40";
    let warmup = "--warmup-request-count 40 --warmup-concurrency 2";
    for (waits, flags) in [(true, ""), (false, cut), (false, warmup)] {
        let [loaded, streamed] = ["never", "always"].map(|how| {
            let run = run(&mock, &sessions(waits), how, &format!("{block} {flags}"));
            assert_eq!(run.code, Some(0), "{run}");
            run
        });
        assert!(streamed.stdout.contains("Bodies made during"), "{streamed}");
        assert_eq!(streamed.counts(), loaded.counts(), "{streamed}");
        assert_eq!(loaded.counts()[0] < 300, flags == cut, "{loaded}");
        assert_eq!(streamed.text("inputs.json"), loaded.text("inputs.json"));
        let (one, other) = (turns(&loaded, waits), turns(&streamed, waits));
        assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one, other);
        }
    }
}

#[test]
fn what_cannot_be_streamed_is_loaded_and_said() {
    let mock = Mock::start("--ttft 1 --itl 0");
    let trace = "{\"timestamp\": 0, \"text_input\": \"a\", \"session_id\": \"s\"}\n\
                 {\"timestamp\": 9, \"text_input\": \"b\", \"session_id\": \"s\"}\n";
    let kind = "--custom-dataset-type mooncake_trace";
    for (flags, why) in [
        ("--fixed-schedule --skip-bad-lines", "--skip-bad-lines"),
        (
            "--no-fixed-schedule --request-count 2",
            "only a fixed schedule",
        ),
    ] {
        let run = run(&mock, trace, "always", &format!("{kind} {flags}"));
        assert_eq!(run.code, Some(0), "{run}");
        assert!(run.stderr.contains("in.jsonl is loaded whole"), "{run}");
        assert!(run.stderr.contains(why), "{run}");
    }
}

#[test]
fn a_bad_line_of_a_streamed_trace_is_told_before_any_load() {
    let mut trace = mooncake(time_in_order);
    trace.push_str("{\"timestamp\": 1, \"input_length\": 0}\n{\"timestamp\": 2}\n");
    let mock = Mock::start("");
    let errors = ["never", "always"].map(|how| {
        let run = run(
            &mock,
            &trace,
            how,
            "--custom-dataset-type mooncake_trace --isl-block-size 16 --fixed-schedule",
        );
        assert_eq!(run.code, Some(1), "{run}");
        run.stderr
    });
    assert!(
        errors[0].contains("in.jsonl:313: field input_length"),
        "{}",
        errors[0]
    );
    assert_eq!(errors[0], errors[1]);
}
