//! What is sent and when, over several runs or several turns.
//!
//! In: pairs of runs, conversations. Out: verdicts on prompts, due times, bodies. Never: a bound that a busy machine breaks.

use std::time::Duration;

use serde_json::Value;

use super::server::{Script, Server};
use super::tool::{Mock, Run, Tool};

fn run(url: &str, flags: &str) -> Run {
    Tool::profile(&format!(
        "--model m --url {url} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none {flags}"
    ))
    .run()
}

/// Time from the first request's due time to each request's, ns, in the order of their numbers.
fn dues(run: &Run) -> Vec<i64> {
    let of = |record: &Value, key: &str| record["metadata"][key].as_i64().unwrap();
    let mut dues: Vec<(i64, i64)> = run
        .records("profiling")
        .iter()
        .map(|record| (of(record, "session_num"), of(record, "credit_issued_ns")))
        .collect();
    dues.sort_unstable();
    let first = dues.iter().map(|(_, due)| *due).min().unwrap();
    dues.into_iter().map(|(_, due)| due - first).collect()
}

#[test]
fn a_seed_fixes_prompts_and_due_times_for_any_number_of_workers() {
    let server = Server::start(Script::always("words alpha beta"));
    let flags = |seed: u32, workers: u32| {
        format!(
            "--isl 30 --isl-stddev 8 --osl 20 --osl-stddev 5 --request-rate 150 --arrival-pattern poisson \
             --request-count 60 --random-seed {seed} --workers-max {workers}"
        )
    };
    let one = run(&server.url(), &flags(5, 1));
    let two = run(&server.url(), &flags(5, 2));
    let other = run(&server.url(), &flags(6, 2));
    assert_eq!(two.summary()["client"]["workers"], 2);
    assert_eq!(one.text("inputs.json"), two.text("inputs.json"));
    assert_ne!(one.text("inputs.json"), other.text("inputs.json"));
    let (a, b, c) = (dues(&one), dues(&two), dues(&other));
    assert_eq!((a.len(), b.len(), c.len()), (60, 60, 60));
    // Two calibrations of one counter differ by far less than a microsecond over half a second.
    let apart = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(x, y)| (x - y).abs()).max().unwrap();
    assert!(apart(&a, &b) < 20_000, "{}\n{a:?}\n{b:?}", apart(&a, &b));
    assert!(apart(&a, &c) > 1_000_000);
    // And the same prompts went out under the same numbers.
    let sent = |run: &Run| {
        let mut ids: Vec<(i64, String)> = run
            .records("profiling")
            .iter()
            .map(|r| {
                (
                    r["metadata"]["session_num"].as_i64().unwrap(),
                    r["metadata"]["conversation_id"].to_string(),
                )
            })
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(sent(&one), sent(&two));
}

#[test]
fn every_due_time_of_a_constant_rate_is_a_multiple_of_the_gap() {
    let server = Server::start(Script::always("words alpha beta"));
    let run = run(
        &server.url(),
        "--isl 16 --request-rate 100 --arrival-pattern constant --request-count 50 --workers-max 2",
    );
    for (index, due) in dues(&run).into_iter().enumerate() {
        let wanted = 10_000_000 * index as i64;
        assert!((due - wanted).abs() < 20_000, "{index}: {due}");
    }
}

#[test]
fn later_turns_hold_what_the_server_said() {
    let server = Server::start(
        Script::default()
            .answer("odd", "words first reply")
            .answer("*", "words second reply"),
    );
    let run = run(
        &server.url(),
        "--isl 16 --conversation-num 1 --conversation-turn-mean 3 --conversation-turn-delay-mean 120",
    );
    assert_eq!(run.counts(), [3, 3, 0, 0], "{run}");
    let log = server.log();
    let load = log.load();
    let roles = |index: usize| -> Vec<String> {
        let messages = load[index].body["messages"].as_array().unwrap();
        messages
            .iter()
            .map(|m| m["role"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(roles(0), ["user"]);
    assert_eq!(roles(1), ["user", "assistant", "user"]);
    assert_eq!(roles(2), ["user", "assistant", "user", "assistant", "user"]);
    let third = &load[2].body["messages"];
    assert_eq!(third[1]["content"], "first reply ");
    assert_eq!(third[3]["content"], "second reply ");
    assert_eq!(third[0], load[0].body["messages"][0]);
    for pair in load.windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(
            gap >= Duration::from_millis(119) && gap < Duration::from_millis(1_500),
            "{gap:?}"
        );
    }
    let correlation: Vec<Option<&str>> = load
        .iter()
        .map(|seen| seen.header("x-correlation-id"))
        .collect();
    assert!(correlation[0].is_some());
    assert!(
        correlation.iter().all(|id| *id == correlation[0]),
        "{correlation:?}"
    );
    for (turn, record) in run.records("profiling").iter().enumerate() {
        assert_eq!(record["metadata"]["turn_index"], turn);
    }
}

#[test]
fn a_turn_that_fails_does_not_end_its_conversation() {
    let server = Server::start(
        Script::default()
            .answer("1", "status 500")
            .answer("*", "words second reply"),
    );
    let run = run(
        &server.url(),
        "--isl 16 --conversation-num 1 --conversation-turn-mean 3",
    );
    assert_eq!(run.counts(), [3, 2, 1, 0], "{run}");
    assert_eq!(server.log().load().len(), 3);
}

#[test]
fn urls_are_taken_in_turn() {
    let servers = [(); 3].map(|()| Server::start(Script::always("words alpha beta")));
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let run = run(
        &urls[0],
        &format!(
            "--isl 16 --request-count 12 --workers-max 2 --concurrency 3 --url {} --url {}",
            urls[1], urls[2]
        ),
    );
    assert_eq!(run.counts(), [12, 12, 0, 0], "{run}");
    for server in &servers {
        assert_eq!(server.log().load().len(), 4);
    }
}

#[test]
fn urls_are_taken_by_weight() {
    let servers = [(); 2].map(|()| Server::start(Script::always("words alpha beta")));
    let run = run(
        &servers[0].url(),
        &format!(
            "--url {} --url-strategy weighted --url-weights 3,1 --isl 16 --workers-max 2 --concurrency 3 \
             --conversation-num 8 --conversation-turn-mean 2",
            servers[1].url()
        ),
    );
    assert_eq!(run.counts(), [16, 16, 0, 0], "{run}");
    let seen = servers.each_ref().map(|server| server.log().load().len());
    assert_eq!(seen, [12, 4]);
}

/// Users speak at their times, and are called by their numbers.
#[test]
fn users_share_a_rate() {
    let server = Server::start(Script::always("words alpha beta"));
    let run = run(
        &server.url(),
        "--isl 16 --user-centric-rate 50 --num-users 4 --conversation-turn-mean 3 --conversation-turn-delay-mean 5000 \
         --request-count 24 --workers-max 2",
    );
    assert_eq!(run.counts(), [24, 24, 0, 0], "{run}");
    for (number, due) in (0..).zip(dues(&run)) {
        assert!(
            (due - number * 20_000_000).abs() < 20_000,
            "{number}: {due}"
        );
    }
    // Four users of three turns, with two gaps: ages 0 to 3 have 3, 1, 1 and 2 turns left; users and gaps share the factor 2, so the
    // seats are a step of 3 apart.
    let mut turns: Vec<(i64, String, i64)> = run
        .records("profiling")
        .iter()
        .map(|record| {
            let metadata = &record["metadata"];
            let number = |key: &str| metadata[key].as_i64().unwrap();
            let user = metadata["x_correlation_id"].as_str().unwrap().to_owned();
            (number("session_num"), user, number("turn_index"))
        })
        .collect();
    turns.sort();
    let expected = [
        "5 0", "2 0", "3 0", "4 0", "5 1", "6 0", "7 0", "4 1", "5 2", "6 1", "7 1", "8 0",
    ];
    for (turn, expected) in turns.iter().zip(expected) {
        assert_eq!(format!("{} {}", turn.1, turn.2), expected, "{turns:?}");
    }
    let mut names: Vec<String> = turns.into_iter().map(|turn| turn.1).collect();
    let log = server.log();
    let seen = log.load().into_iter();
    let mut sent: Vec<String> = seen
        .map(|seen| seen.header("x-correlation-id").unwrap().to_owned())
        .collect();
    names.sort();
    sent.sort();
    assert_eq!(sent, names);
}

/// Cuts on purpose are AIPerf's error records, with what had arrived beside them.
#[test]
fn cuts_on_purpose_are_errors_of_their_own() {
    let server = Server::start(Script::always("part alpha beta gamma; stall"));
    let run = run(
        &server.url(),
        "--isl 16 --request-count 12 --concurrency 4 --workers-max 2 --warmup-request-count 2 --request-timeout-seconds 1 \
         --request-cancellation-rate 50 --request-cancellation-delay 0.3 --random-seed 3 --export-level raw --export-http-trace",
    );
    let [sent, good, failed, cut] = run.counts();
    assert_eq!((sent, good, failed + cut), (12, 0, 12), "{run}");
    assert!((1..12).contains(&cut), "{run}");
    let errors = run.summary()["error_summary"].clone();
    let error = errors
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["error_details"]["code"] == 499);
    let error = error.unwrap_or_else(|| panic!("{errors}"));
    assert_eq!(error["count"], cut, "one group");
    assert_eq!(error["error_details"]["type"], "RequestCancellationError");
    assert_eq!(run.metric("error_request_count", "avg"), 12.0);
    assert_eq!(run.summary()["was_cancelled"], false);
    assert!(
        run.stdout.contains("12 requests were cancelled on purpose"),
        "{run}"
    );
    let raw = run.lines("profile_export_raw.jsonl");
    let cuts = run.records("profiling").into_iter();
    for record in cuts.filter(|record| record["metadata"]["was_cancelled"] == true) {
        let (metadata, error) = (&record["metadata"], &record["error"]);
        assert_eq!(error["code"], 499, "{record}");
        assert_eq!(error["details"]["content_events"], 3, "{record}");
        assert!(
            error["details"]["body_bytes"].as_u64().unwrap() > 100,
            "{record}"
        );
        let at = metadata["cancellation_time_ns"].as_i64().unwrap();
        let sent = record["trace_data"]["request_send_end_ns"]
            .as_i64()
            .unwrap();
        assert!(at - sent >= 300_000_000, "{record}");
        assert!(
            record["metrics"]["error_isl"]["value"].is_number(),
            "{record}"
        );
        let id = &metadata["x_request_id"];
        let raw = raw
            .iter()
            .find(|line| &line["metadata"]["x_request_id"] == id)
            .unwrap();
        assert_eq!(raw["error"], *error);
        assert!(raw["responses"].as_array().unwrap().len() >= 3, "{raw}");
    }
    for record in run.records("warmup") {
        assert_eq!(record["metadata"]["was_cancelled"], false, "{record}");
    }
}

/// As in AIPerf, a cut on purpose is an error record, and the threshold counts it.
#[test]
fn cuts_on_purpose_count_towards_the_threshold() {
    let server = Server::start(Script::always("part alpha; stall"));
    let run = run(
        &server.url(),
        "--isl 16 --request-count 1000 --concurrency 3 --request-cancellation-rate 100 --request-cancellation-delay 0.005 \
         --failed-request-threshold 0.5 --num-prompts 10",
    );
    assert_eq!(run.code, Some(1), "{run}");
    let [sent, good, ..] = run.counts();
    assert!((10..1_000).contains(&sent) && good == 0, "{run}");
    assert_eq!(run.summary()["was_cancelled"], true);
    assert_eq!(run.summary()["is_complete"], false);
    assert!(
        run.stdout.contains("--failed-request-threshold 0.5"),
        "{run}"
    );
}

#[test]
fn warmup_ends_before_profiling_begins() {
    let server = Server::start(
        Script::default()
            .answer("1-7", "wait 60; words slow start")
            .answer("*", "wait 5; words alpha"),
    );
    let run = run(
        &server.url(),
        "--isl 16 --concurrency 4 --workers-max 2 --warmup-request-count 7 --request-count 9",
    );
    let time = |phase: &str, key: &str| -> Vec<i64> {
        run.records(phase)
            .iter()
            .map(|r| r["metadata"][key].as_i64().unwrap())
            .collect()
    };
    let ends = time("warmup", "request_end_ns");
    let starts = time("profiling", "request_start_ns");
    assert_eq!((ends.len(), starts.len()), (7, 9), "{run}");
    assert!(ends.iter().max() < starts.iter().min());
    // Warm connections are kept.
    assert_eq!(server.log().connections, 4);
    let manifest = run.json("phase_manifest.json");
    let names: Vec<&str> = manifest["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["phase_name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["warmup", "profiling"]);
}

#[test]
fn goodput_means_the_same_however_it_is_given() {
    // Four of eight requests take 150 ms.
    let script = Script::default()
        .answer("odd", "wait 150; words alpha beta")
        .answer("*", "wait 1; words alpha beta");
    let server = Server::start(script.clone());
    let once = run(
        &server.url(),
        "--isl 16 --request-count 8 --goodput 'time_to_first_token:100 request_latency:100'",
    );
    let server = Server::start(script);
    let twice = run(
        &server.url(),
        "--isl 16 --request-count 8 --goodput time_to_first_token:100 --goodput request_latency:100",
    );
    for run in [&once, &twice] {
        assert_eq!(run.metric("good_request_count", "avg"), 4.0, "{run}");
        assert!(run.metric("goodput", "avg") > 0.0);
        assert!(run.stdout.contains("Goodput"), "{run}");
    }
}

#[test]
fn times_agree_with_the_servers_own_log() {
    let mock = Mock::start("--ttft 40 --itl 4");
    let run = run(
        &mock.url,
        "--isl 16 --osl 11 --concurrency 2 --request-count 10",
    );
    let median = |tag: &str| run.metric(tag, "p50");
    // Nothing arrives before its time; a busy machine makes some late, the median not by much.
    assert!(run.metric("time_to_first_token", "min") >= 39.9, "{run}");
    assert!(run.metric("request_latency", "min") >= 79.9, "{run}");
    assert!(median("time_to_first_token") < 70.0, "{run}");
    assert!((3.5..8.0).contains(&median("inter_token_latency")), "{run}");
    assert_eq!(run.metric("output_sequence_length", "avg"), 11.0);
}

#[test]
fn a_short_run_is_short() {
    // Three requests of 0.2 s and little else: starting, tokenizing, writing the files.
    let mock = Mock::start("--ttft 100 --itl 10");
    let run = run(&mock.url, "--isl 16 --osl 10 --request-count 3");
    assert_eq!(run.counts(), [3, 3, 0, 0]);
    let took = run.wall;
    assert!(
        took > Duration::from_millis(550) && took < Duration::from_secs(2),
        "{took:?}"
    );
}

#[test]
fn a_run_that_ends_before_its_first_send_says_so() {
    let mock = Mock::start("--ttft 5 --itl 5");
    let run = run(
        &mock.url,
        "--isl 16 --osl 2 --request-rate 0.5 --arrival-pattern constant --benchmark-duration 0.2",
    );
    assert_eq!(run.code, Some(1), "{run}");
    assert!(
        run.stderr.contains("no request was sent") && run.stderr.contains("--benchmark-duration"),
        "{run}"
    );
}

/// Whatever ends the warmup, none of its prompts is sent again before all have been.
#[test]
fn the_dataset_goes_on_from_the_warmup_into_the_run() {
    let server = Server::start(Script::always("wait 5; words alpha beta"));
    for (stop, load) in [
        ("--warmup-duration 0.3", "--concurrency 3"),
        ("--warmup-duration 0.3 --warmup-seamless", "--concurrency 3"),
        ("--warmup-duration 0.2", "--request-rate 100"),
        ("--num-warmup-sessions 7", "--concurrency 2"),
        (
            "--warmup-request-count 9",
            "--concurrency 2 --conversation-turn-mean 2",
        ),
    ] {
        let played = run(
            &server.url(),
            &format!(
                "--isl 16 --num-dataset-entries 2000 --request-count 20 --workers-max 2 {load} {stop}"
            ),
        );
        let ids = |phase: &str| -> std::collections::BTreeSet<String> {
            let id = |record: &Value| record["metadata"]["conversation_id"].to_string();
            played.records(phase).iter().map(id).collect()
        };
        let (before, after) = (ids("warmup"), ids("profiling"));
        assert!(before.len() >= 4, "{stop}: {}", before.len());
        assert!(after.len() >= 10, "{stop}: {}", after.len());
        assert!(
            before.is_disjoint(&after),
            "{stop}: a prompt was sent again"
        );
    }
}

/// After a warmup by time at a rate the run goes on in the dataset where the warmup stopped, on any number of workers. How far that is follows
/// from the rate alone where the machine keeps up.
#[test]
fn a_warmup_at_a_rate_uses_the_same_entries_on_any_number_of_workers() {
    let server = Server::start(Script::always("words alpha beta"));
    for workers in [1u32, 2, 3] {
        let played = run(
            &server.url(),
            &format!(
                "--isl 16 --num-dataset-entries 500 --request-count 10 --warmup-duration 0.3 --request-rate 90 \
                 --random-seed 4 --workers-max {workers}"
            ),
        );
        assert_eq!(played.summary()["client"]["workers"], workers);
        let inputs = played.json("inputs.json");
        let inputs = inputs["data"].as_array().unwrap();
        let place = |id: &Value| inputs.iter().position(|input| &input["session_id"] == id);
        // (number of the session, its place in the dataset), in order.
        let places = |phase: &str| -> Vec<(u64, usize)> {
            let of = |record: &Value| {
                let data = &record["metadata"];
                let number = data["session_num"].as_u64().unwrap();
                (number, place(&data["conversation_id"]).unwrap())
            };
            let mut all: Vec<_> = played.records(phase).iter().map(of).collect();
            all.sort_unstable();
            all
        };
        let before = places("warmup");
        let used = 1 + before.iter().map(|&(_, place)| place).max().unwrap();
        assert!((10..=28).contains(&used), "{workers} workers: {before:?}");
        for (number, place) in before {
            assert_eq!(usize::try_from(number).unwrap(), place, "{workers} workers");
        }
        let expected: Vec<_> = (0..10)
            .map(|number| (number, used + number as usize))
            .collect();
        assert_eq!(places("profiling"), expected, "{workers} workers");
    }
}
