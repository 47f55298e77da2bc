//! Bursts on open connections, and the limit on requests without a first token, with real sockets.
//!
//! In: the built-in server. Out: how close together requests went out, and how many waited at once. Never: a bound that one bad moment of
//! a busy machine breaks: the best of several runs counts, and order is checked in virtual time (tests/engine/slots.rs).

use serde_json::Value;

use super::tool::{Mock, Run, Tool};

fn run(url: &str, flags: &str) -> Run {
    Tool::profile(&format!(
        "--model m --url {url} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none --isl 16 {flags}"
    ))
    .run()
}

/// From the first request's first byte to the last one's, ns, and how many were sent on a connection set up by then.
fn burst(run: &Run) -> (u64, usize) {
    let lines = run.lines("profile_export_raw.jsonl");
    let stamp = |line: &Value, name: &str| line["stamps"][name].as_u64();
    let sent: Vec<u64> = lines
        .iter()
        .map(|line| stamp(line, "first_byte_sent_perf_ns").unwrap_or_else(|| panic!("{line}")))
        .collect();
    let first = *sent.iter().min().unwrap();
    let ready = lines
        .iter()
        .filter(|line| stamp(line, "connect_end_perf_ns").is_some_and(|end| end < first));
    (sent.iter().max().unwrap() - first, ready.count())
}

/// F5: 50 of 50 on the wire within 1 ms on an idle machine; here the best of a few tries may take four times as long.
#[test]
fn fifty_requests_go_out_together_on_open_connections() {
    let mock = Mock::start("--ttft 100 --itl 2");
    for driver in ["auto", "portable"] {
        let mut best = u64::MAX;
        for _ in 0..8 {
            let run = run(
                &mock.url,
                &format!(
                    "--osl 2 --concurrency 50 --request-count 50 --pre-connect auto --workers-max 1 --export-level raw --driver {driver}"
                ),
            );
            assert_eq!(run.counts(), [50, 50, 0, 0], "{run}");
            let (span, ready) = burst(&run);
            assert_eq!(
                ready, 50,
                "{driver}: connections were open before the burst"
            );
            assert_eq!(run.metric("connection_setup", "count"), 50.0, "{run}");
            best = best.min(span);
            if best < 1_000_000 {
                break;
            }
        }
        assert!(best < 4_000_000, "{driver}: {best} ns");
    }
}

#[test]
fn prefill_slots_bound_what_waits_for_a_first_token() {
    let mock = Mock::start("--ttft 30 --itl 5");
    let run = run(
        &mock.url,
        "--osl 10 --concurrency 6 --prefill-concurrency 2 --request-count 18 --workers-max 2",
    );
    assert_eq!(run.counts(), [18, 18, 0, 0], "{run}");
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for record in run.records("profiling") {
        let start = record["metadata"]["request_start_ns"].as_i64().unwrap();
        let wait = record["metrics"]["time_to_first_token"]["value"]
            .as_f64()
            .unwrap();
        changes.push((start, 1));
        // A microsecond less: starts and lengths are rounded apart.
        changes.push((start + (wait * 1e6) as i64 - 1_000, -1));
    }
    changes.sort_unstable();
    let mut waiting = 0;
    let most = changes.iter().map(|(_, change)| {
        waiting += change;
        waiting
    });
    assert_eq!(most.max(), Some(2), "{run}");
    let shown = &run.summary()["input_config"]["phases"][0];
    assert_eq!(shown["prefill_concurrency"], 2, "{shown}");
}
