//! The program against servers that break, on both drivers.
//!
//! In: `faults.txt`, cut points, dying servers, signals. Out: verdicts on accounts, files, exit codes and descriptors. Never: a fault that the
//! simulation does not know as well, but for those of the machine itself.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::faulty::{Faulty, Script, TEXT, good_answer};
use super::tool::{Going, Run, Tool};

const DRIVERS: [&str; 2] = ["ring", "portable"];

/// Descriptors beside connections: standard streams, files, rings, timers, signals.
const BESIDE: usize = 40;

fn go(server: &Faulty, driver: &str, flags: &str) -> Going {
    let url = server.url();
    Tool::profile(&format!(
        "--model m --url {url} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --ui-type none \
         --export-level raw --export-outputs-json --driver {driver} {flags}"
    ))
    .start()
}

/// Accounts hold and files are whole: one record, one raw line and one text for each request, and a success says what the server said.
fn is_whole(run: &Run, requests: usize, place: &str) -> BTreeSet<String> {
    let records = run.records("profiling");
    assert_eq!(records.len(), requests, "{place}: {run}");
    assert_eq!(
        run.lines("profile_export_raw.jsonl").len(),
        requests,
        "{place}"
    );
    let summary = run.summary();
    let number = |tag: &str| summary[tag]["avg"].as_f64().unwrap_or(0.0);
    let counted = number("request_count") + number("error_request_count");
    assert!(
        (counted - requests as f64).abs() < 0.5,
        "{place}: {counted} {run}"
    );
    let bad = |record: &&Value| record.get("error").is_some();
    let failed: BTreeSet<String> = records
        .iter()
        .filter(bad)
        .map(|record| record["metadata"]["x_request_id"].to_string())
        .collect();
    let outputs = run.json("outputs.json");
    let outputs = outputs["data"].as_array().unwrap();
    assert_eq!(outputs.len(), requests, "{place}");
    for output in outputs {
        if !failed.contains(&output["x_request_id"].to_string()) {
            assert_eq!(output["response_text"], TEXT, "{place}");
        }
    }
    let kinds = records.iter().filter(bad);
    kinds
        .map(|record| record["error"]["type"].as_str().unwrap().to_owned())
        .collect()
}

/// Runs to the end and says how many descriptors the program had open at most.
fn watched(going: Going) -> (Run, usize) {
    let mut most = 0;
    while going.is_under_way() {
        most = most.max(going.descriptors());
        std::thread::sleep(Duration::from_millis(2));
    }
    (going.end(), most)
}

fn play(name: &str, steps: &str, endings: &str) {
    for driver in DRIVERS {
        let place = format!("{name}, {driver}");
        let server = Faulty::start(Script::every_other(steps));
        let (run, most) = watched(go(
            &server,
            driver,
            "--concurrency 4 --workers-max 2 --request-count 24 --request-timeout-seconds 1",
        ));
        assert_eq!(run.code, Some(0), "{place}: {run}");
        let kinds = is_whole(&run, 24, &place);
        let allowed: BTreeSet<&str> = endings.split(' ').collect();
        for kind in &kinds {
            assert!(allowed.contains(kind.as_str()), "{place}: {kind} {run}");
        }
        assert_eq!(
            kinds.is_empty(),
            allowed.contains("good") && kinds.is_empty(),
            "{place}: {run}"
        );
        assert!(most <= BESIDE + 2 * 4, "{place}: {most} descriptors open");
    }
}

/// Every line of the table; several at once, since most of their time they wait.
#[test]
fn faults_of_the_table_leave_whole_accounts_and_files() {
    let table = include_str!("faults.txt");
    let lines = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let cases: Vec<Vec<&str>> = lines
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(cases.len() > 20);
    std::thread::scope(|scope| {
        for share in cases.chunks(cases.len().div_ceil(4)) {
            scope.spawn(move || {
                for case in share {
                    play(case[0], case[1], case[2]);
                }
            });
        }
    });
}

/// An answer that ends at any of its bytes, in order or by a reset, is no success.
#[test]
fn an_answer_cut_at_any_byte_is_an_error_on_real_sockets() {
    let length = good_answer().len();
    for driver in DRIVERS {
        for ending in ["close", "wait 1; reset"] {
            let steps = move |number: usize| Some(format!("send {number}; {ending}"));
            let server = Faulty::start(Script::of(move |number| {
                (number < length).then(|| steps(number)).flatten()
            }));
            let flags = format!("--concurrency 8 --request-count {}", length + 1);
            let run = go(&server, driver, &flags).end();
            let place = format!("{driver}, {ending}");
            let kinds = is_whole(&run, length + 1, &place);
            let [_, good, ..] = run.counts();
            assert_eq!(good, 1, "{place}: {kinds:?} {run}");
        }
    }
}

/// A backlog that is full leaves connections in the kernel's hands: they are neither refused nor accepted.
#[test]
fn connecting_that_hangs_ends_at_the_limit() {
    for driver in DRIVERS {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let short = Duration::from_millis(100);
        let full: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect_timeout(&address, short))
            .collect();
        let began = Instant::now();
        let run = Tool::profile(&format!(
            "--model m --url http://{address} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --ui-type none \
             --driver {driver} --concurrency 3 --request-count 3 --request-timeout-seconds 0.5"
        ))
        .run();
        assert!(began.elapsed() < Duration::from_secs(10), "{driver}: {run}");
        assert_eq!(run.code, Some(1), "{driver}: {run}");
        for record in run.records("profiling") {
            assert_eq!(record["error"]["type"], "ConnectTimeout", "{driver}: {run}");
        }
        assert_eq!(run.counts(), [3, 0, 3, 0], "{driver}: {run}");
        drop(full);
    }
}

/// kill -9 of the built-in server in mid-run.
#[test]
fn a_server_that_is_killed_fails_the_rest() {
    for driver in DRIVERS {
        let mut mock = super::tool::Mock::start("--ttft 5 --itl 5 --tokens 20");
        let going = Tool::profile(&format!(
            "--model m --url {} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --ui-type none \
             --driver {driver} --concurrency 8 --request-count 400 --export-level raw",
            mock.url
        ))
        .start();
        going.wait_for_lines("profile_export.jsonl", 20);
        mock.kill();
        let run = going.end();
        assert_eq!(run.code, Some(0), "{driver}: {run}");
        let [sent, good, failed, cut] = run.counts();
        assert_eq!((sent, cut), (400, 0), "{driver}: {run}");
        assert!(good >= 20 && failed > 0, "{driver}: {run}");
        assert_eq!(run.lines("profile_export_raw.jsonl").len(), 400, "{driver}");
    }
}

/// Signals in the middle of faults: the files are valid and say that they are partial.
#[test]
fn signals_among_faults_leave_partial_files() {
    for driver in DRIVERS {
        for (signals, steps) in [
            (1, "send 150; wait 5; reset"),
            (2, "stall"),
            (2, "accept stall"),
            (1, "accept close"),
        ] {
            let place = format!("{driver}, {signals} signals, {steps}");
            let server = Faulty::start(Script::every_other(steps));
            let going = go(
                &server,
                driver,
                "--concurrency 4 --request-count 100000 --num-prompts 10 --request-timeout-seconds 1",
            );
            going.wait_for_lines("profile_export.jsonl", 1);
            for _ in 0..signals {
                going.signal(Signal::TERM);
                std::thread::sleep(Duration::from_millis(60));
            }
            let run = going.end();
            assert_eq!(run.code, Some(1), "{place}: {run}");
            let summary = run.summary();
            assert_eq!(summary["was_cancelled"], true, "{place}");
            assert_eq!(
                run.json(".aiperf_results_ready.json")["partial"],
                true,
                "{place}"
            );
            let sent = run.records("profiling").len();
            assert_eq!(run.lines("profile_export_raw.jsonl").len(), sent, "{place}");
            assert!(
                run.stdout.contains(&format!("Requests: {sent} sent")),
                "{place}: {run}"
            );
        }
    }
}

/// After SIGKILL the records of all requests that had ended a while before are whole lines.
#[test]
fn a_killed_client_leaves_every_finished_record() {
    for driver in DRIVERS {
        // 40 good answers, then silence.
        let server = Faulty::start(Script::of(|number| {
            (number >= 40).then(|| "stall".to_owned())
        }));
        let going = go(&server, driver, "--concurrency 4 --request-count 1000");
        let end = Instant::now() + Duration::from_secs(20);
        while server.answered() < 40 || server.requests() < 44 {
            assert!(Instant::now() < end, "the load never came");
            std::thread::sleep(Duration::from_millis(2));
        }
        // Lines are handed to the system every 100 ms; the rest is for a machine that has other things to do.
        std::thread::sleep(Duration::from_millis(400));
        going.signal(Signal::KILL);
        let run = going.end();
        assert_eq!(run.code, None, "{driver}: {run}");
        for name in ["out/profile_export.jsonl", "out/profile_export_raw.jsonl"] {
            let text = std::fs::read_to_string(&run.files()[name]).unwrap();
            assert!(text.ends_with('\n'), "{driver}: {name}");
            assert_eq!(text.lines().count(), 40, "{driver}: {name}");
        }
        assert!(
            !run.files().contains_key("out/.aiperf_results_ready.json"),
            "{driver}"
        );
    }
}
