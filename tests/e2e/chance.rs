//! Runs with flags and servers drawn at random, for what no list of cases thinks of.
//!
//! In: seeds. Out: verdicts on what holds of every run. Never: a failure without its seed and its command line.
//!
//! `E2E_SEEDS=100-300 cargo test --test e2e chance` tries further seeds.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::links::{https, refusal_of_io_uring, test_file};
use super::server::{Script, Server};
use super::tool::Tool;

/// Replies; most are good.
const REPLIES: &[&str] = &[
    "words alpha beta",
    "wait 5; words alpha beta gamma every 3",
    "wait 20; usage 3 4; words alpha",
    "words alpha beta; close",
    "status 500",
    "part alpha beta; close",
    "close",
    "part alpha; stall",
    "stall",
    "whole alpha beta",
];

struct Drawn {
    script: Script,
    flags: String,
    concurrency: usize,
    /// Nothing is cut by the run, so that the server's count of open requests is the client's.
    uncut: bool,
}

fn draw(seed: u64) -> Drawn {
    let mut random = StdRng::seed_from_u64(seed);
    let mut script = Script::default();
    let mut uncut = true;
    for number in 1..12 {
        let reply = REPLIES.choose(&mut random).unwrap();
        uncut &= !reply.contains("stall");
        if random.random_bool(0.5) {
            script = script.answer(&number.to_string(), reply);
        }
    }
    script = script.answer("*", REPLIES[..4].choose(&mut random).unwrap());
    let concurrency = random.random_range(1..9);
    let mut flags = format!(
        "--concurrency {concurrency} --workers-max {} --random-seed {seed} --request-timeout-seconds 0.4 \
         --connection-reuse-strategy {} --conversation-turn-mean {} --conversation-turn-delay-mean {}",
        random.random_range(1..4),
        ["pooled", "never", "sticky_user_sessions"]
            .choose(&mut random)
            .unwrap(),
        random.random_range(1..4),
        [0, 0, 10].choose(&mut random).unwrap(),
    );
    let mut add = |words: &[&'static str]| {
        let words = words.choose(&mut random).unwrap();
        flags = format!("{flags} {words}");
        *words
    };
    add(&["--streaming", "--streaming", ""]);
    add(&[
        "",
        "",
        "--request-rate 120",
        "--request-rate 60 --arrival-pattern constant",
    ]);
    add(&[
        "",
        "",
        "--warmup-request-count 4",
        "--num-warmup-sessions 2",
        "--warmup-duration 0.1",
    ]);
    let stop = add(&[
        "--request-count 25",
        "--conversation-num 7",
        "--benchmark-duration 0.3",
        "--benchmark-duration 0.3 --benchmark-grace-period 0",
        "--request-count 30 --benchmark-duration 0.2 --benchmark-grace-period 0.1",
    ]);
    uncut &= !stop.contains("duration") && !flags.contains("warmup-duration");
    Drawn {
        script,
        flags,
        concurrency,
        uncut,
    }
}

/// How the client reaches the server.
#[derive(Clone, Copy)]
enum Way<'a> {
    Plain,
    Tls,
    /// Started by a wrapper that takes io_uring away.
    Epoll(&'a str),
}

fn check(seed: u64, way: Way<'_>) {
    let drawn = draw(seed);
    let (server, scheme) = match way {
        Way::Tls => (https(drawn.script), "https"),
        _ => (Server::start(drawn.script), "http"),
    };
    let words = format!(
        "--model m --url {scheme}://{} --tokenizer gpt2 --isl 8 --num-prompts 5 --artifact-dir out \
         --export-level raw --export-outputs-json --ui-type none {}",
        server.address, drawn.flags
    );
    let tool = match way {
        Way::Epoll(wrapper) => Tool::wrapped(&["python3", wrapper, "io_uring_setup"], &words),
        _ => Tool::profile(&words),
    };
    let run = tool.env("SSL_CERT_FILE", &test_file("tls/ca.pem")).run();
    let told = format!("seed {seed}: {}\n{run}", drawn.flags);
    let [sent, good, failed, cut] = run.counts();
    assert_eq!(run.code, Some(i32::from(good == 0)), "{told}");
    assert_eq!(sent, good + failed + cut, "{told}");
    let counts = &run.summary()["client"]["counts"];
    assert_eq!(counts["sent"], sent, "{told}");
    let ids = |name: &str| -> BTreeSet<String> {
        let lines = run.lines(name).into_iter();
        lines
            .map(|line| {
                line["metadata"]["x_request_id"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let records = ids("profile_export.jsonl");
    assert_eq!(records, ids("profile_export_raw.jsonl"), "{told}");
    let log = server.log();
    for seen in log.load() {
        let id = seen.header("x-request-id").unwrap();
        assert!(records.contains(id), "{id} has no record; {told}");
    }
    if drawn.uncut {
        assert!(
            log.open_most <= drawn.concurrency,
            "{} open at once; {told}",
            log.open_most
        );
    }
    if drawn.flags.contains("--request-count 25") {
        assert_eq!(sent, 25, "{told}");
    }
    assert!(!run.stdout.contains("please report this defect"), "{told}");
}

/// Checks a few seeds, or those of `E2E_SEEDS`.
fn check_all(way: Way<'_>) {
    let seeds = std::env::var("E2E_SEEDS").unwrap_or_else(|_| "0-5".to_owned());
    let (first, last) = seeds.split_once('-').unwrap();
    for seed in first.parse().unwrap()..=last.parse().unwrap() {
        check(seed, way);
    }
}

#[test]
fn any_run_accounts_for_every_request() {
    check_all(Way::Plain);
}

#[test]
fn any_run_over_tls_accounts_for_every_request() {
    check_all(Way::Tls);
}

#[test]
fn any_run_without_io_uring_accounts_for_every_request() {
    if let Some(wrapper) = refusal_of_io_uring() {
        check_all(Way::Epoll(&wrapper));
    }
}
