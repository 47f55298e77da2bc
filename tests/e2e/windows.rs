//! Parts of a run: what had arrived when it was cut, its steady state, its slices.
//!
//! In: runs against scripted servers. Out: verdicts on files, most of them worked out again from the records. Never: a bound that a
//! busy machine breaks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::server::{Script, Server};
use super::tool::{Run, Tool};

fn run(server: &Server, flags: &str) -> Run {
    Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --ui-type none {flags}",
        server.url()
    ))
    .run()
}

/// A short run, long answers: what came of them is in the records, and in the throughput of the run's window.
#[test]
fn requests_in_flight_at_the_end_leave_what_had_arrived() {
    let server = Server::start(Script::always(
        "wait 20; part alpha beta gamma every 50; stall",
    ));
    let run = run(
        &server,
        "--concurrency 3 --benchmark-duration 0.5 --benchmark-grace-period 0",
    );
    assert_eq!(run.counts(), [3, 0, 0, 3], "{run}");
    let mut tokens = 0.0;
    for record in run.records("profiling") {
        assert_eq!(record["error"]["code"], 499, "{record}");
        assert_eq!(record["metadata"]["was_cancelled"], true, "{record}");
        let arrived = &record["arrived"];
        assert_eq!(arrived["content_events"], 3, "{record}");
        assert!(
            arrived["output_tokens"].as_f64().unwrap() >= 3.0,
            "{record}"
        );
        let time = |key: &str| arrived[key]["value"].as_f64().unwrap();
        assert!(time("time_to_first_token") >= 20.0, "{record}");
        assert!(
            time("last_content") >= time("time_to_first_token") + 90.0,
            "{record}"
        );
        tokens += arrived["output_tokens"].as_f64().unwrap();
    }
    assert!((run.metric("windowed_output_tokens", "avg") - tokens).abs() < 1e-6);
    let rate = run.metric("windowed_output_token_throughput", "avg");
    let seconds = run.metric("windowed_duration", "avg");
    assert!((seconds - 0.5).abs() < 1e-6, "{seconds}");
    assert!((rate - tokens / 0.5).abs() < 1e-3, "{rate} of {tokens}");
    // AIPerf's counts valid requests, of which there is none.
    assert!(run.summary().get("output_token_throughput").is_none());
}

fn ns(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no time"))
}

#[test]
fn slices_are_those_of_the_records() {
    let server = Server::start(Script::always(
        "wait 30; words alpha beta gamma delta every 15",
    ));
    for attribution in ["", "--slice-attribution arrival"] {
        let run = run(
            &server,
            &format!(
                "--concurrency 3 --request-count 40 --workers-max 2 --slice-duration 0.25 {attribution} \
                 --warmup-request-count 4 --profile-export-prefix foo"
            ),
        );
        assert_eq!(run.code, Some(0), "{run}");
        let slices = run.json("foo_timeslices.json");
        let slices = slices["timeslices"].as_array().unwrap();
        let mut records = run.lines("foo.jsonl");
        records.retain(|record| record["metadata"]["benchmark_phase"] == "profiling");
        let time = |record: &Value, key: &str| ns(&record["metadata"][key]);
        let first = records
            .iter()
            .map(|r| time(r, "request_start_ns"))
            .min()
            .unwrap();
        let due = records
            .iter()
            .map(|r| time(r, "credit_issued_ns"))
            .min()
            .unwrap();
        let origin = ns(&slices[0]["start_ns"]);
        assert!(
            origin.abs_diff(due) < 1_000 && origin <= first + 1_000,
            "{origin} {due} {first}"
        );
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        for record in &records {
            let after = time(record, "request_start_ns").saturating_sub(origin);
            *starts.entry(after / 250_000_000).or_default() += 1;
        }
        let (mut requests, mut tokens) = (0, 0.0);
        for (number, slice) in slices.iter().enumerate() {
            let after = ns(&slice["start_ns"]) - origin;
            assert_eq!(after % 250_000_000, 0);
            let length = ns(&slice["end_ns"]) - ns(&slice["start_ns"]);
            let last = number + 1 == slices.len();
            assert!(length == 250_000_000 || last, "{length}");
            assert_eq!(slice.get("is_complete").is_none(), length == 250_000_000);
            let count = slice["request_count"]["avg"].as_f64().unwrap() as u64;
            let wanted = starts.get(&(after / 250_000_000)).copied().unwrap_or(0);
            assert_eq!(count, wanted, "slice {number}");
            requests += count;
            tokens += slice["windowed_output_tokens"]["avg"]
                .as_f64()
                .unwrap_or(0.0);
        }
        assert_eq!(requests, 40);
        let summary = run.json("foo.json");
        let total = summary["total_osl"]["avg"].as_f64().unwrap();
        let all = !attribution.is_empty() || slices.len() > 1;
        assert!(all && tokens <= total + 1e-6, "{tokens} of {total}");
        if !attribution.is_empty() {
            assert!((tokens - total).abs() < 1e-6, "{tokens} of {total}");
        }
        let csv = run.text("foo_timeslices.csv");
        assert!(
            csv.starts_with("Timeslice,Start_NS,End_NS,Metric,Unit,Stat,Value\r\n"),
            "{csv}"
        );
        assert!(csv.contains(&format!("\r\n0,{origin},")), "{csv}");
    }
}

#[test]
fn the_closed_loop_has_a_steady_state_and_a_rate_without_a_cap_has_none() {
    let server = Server::start(Script::always("wait 40; words alpha beta every 20"));
    let steady = run(&server, "--concurrency 4 --request-count 40");
    let state = &steady.summary()["steady_state"];
    let share = state["share"].as_f64().unwrap_or_else(|| panic!("{state}"));
    assert!(share > 0.1 && share <= 1.0, "{state}");
    assert_eq!(state["target_in_flight"], 4);
    assert!(ns(&state["end_ns"]) > ns(&state["start_ns"]));
    assert!(
        state["request_latency"]["p99"].as_f64().unwrap() >= 60.0,
        "{state}"
    );
    assert!(state["output_token_throughput"]["avg"].as_f64().unwrap() > 0.0);
    assert!(steady.stdout.contains("Steady State: "), "{steady}");
    let free = run(&server, "--request-rate 100 --request-count 20");
    let state = &free.summary()["steady_state"];
    assert!(
        state["reason"].as_str().unwrap().contains("--concurrency"),
        "{state}"
    );
    assert!(
        free.stdout
            .contains("Steady State: none, there is no --concurrency"),
        "{free}"
    );
}
