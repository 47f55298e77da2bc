//! Runs that are stopped from outside, and servers that go away.
//!
//! In: signals, dying servers, closed pipes. Out: verdicts on files and exit codes. Never: a run that is stopped before it has sent.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::server::{Script, Server};
use super::tool::{Going, Run, Tool};

fn go(server: &Server, flags: &str) -> Going {
    Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --ui-type none \
         --export-level raw --export-outputs-json {flags}",
        server.url()
    ))
    .start()
}

/// Files are whole, say that they are partial, and have a record for each request that the server saw.
fn is_partial(run: &Run, server: &Server) {
    assert_eq!(run.code, Some(1), "{run}");
    let summary = run.summary();
    assert_eq!(summary["was_cancelled"], true, "{run}");
    assert_eq!(summary["is_complete"], false, "{run}");
    assert_eq!(summary["incomplete_reason"], "stopped by a signal");
    assert_eq!(run.json(".aiperf_results_ready.json")["partial"], true);
    assert_eq!(run.counts()[0], server.log().load().len(), "{run}");
    assert_eq!(run.lines("profile_export_raw.jsonl").len(), run.counts()[0]);
    assert!(
        run.stdout.contains("Incomplete: stopped by a signal"),
        "{run}"
    );
    run.json("outputs.json");
    run.json("inputs.json");
}

#[test]
fn one_signal_lets_requests_end() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::start(Script::always("wait 200; words alpha beta"));
        let going = go(
            &server,
            "--concurrency 3 --workers-max 2 --request-count 1000",
        );
        server.wait_for(4);
        going.signal(signal);
        let run = going.end();
        is_partial(&run, &server);
        let [sent, good, failed, cut] = run.counts();
        assert_eq!((failed, cut), (0, 0), "{run}");
        assert_eq!(sent, good);
        assert!(sent < 30, "{run}");
        assert!(
            run.stderr.contains("Stopping: nothing more is sent"),
            "{run}"
        );
        let unsent = 1000 - sent;
        assert!(run.stdout.contains(&format!("{unsent} unsent")), "{run}");
    }
}

#[test]
fn two_signals_quit_at_once() {
    let server = Server::start(
        Script::default()
            .answer("1-4", "words alpha beta")
            .answer("*", "part alpha; stall"),
    );
    let going = go(
        &server,
        "--concurrency 4 --workers-max 2 --request-count 1000",
    );
    server.wait_for(8);
    going.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(150));
    let second = Instant::now();
    going.signal(Signal::INT);
    let run = going.end();
    let took = second.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?} {run}");
    is_partial(&run, &server);
    assert_eq!(run.counts(), [8, 4, 0, 4], "{run}");
    for record in run.records("profiling") {
        let cut = record["metadata"]["was_cancelled"] == true;
        assert_eq!(cut, record["error"]["code"] == 499, "{record}");
    }
}

#[test]
fn a_signal_in_warmup_leaves_a_partial_report() {
    let server = Server::start(Script::always("wait 100; words alpha beta"));
    let going = go(&server, "--warmup-request-count 1000 --request-count 5");
    server.wait_for(2);
    going.signal(Signal::INT);
    let run = going.end();
    assert_eq!(run.code, Some(1), "{run}");
    assert_eq!(run.summary()["was_cancelled"], true);
    assert_eq!(run.records("profiling").len(), 0, "{run}");
    assert_eq!(
        run.records("warmup").len(),
        server.log().load().len(),
        "{run}"
    );
    run.json("phase_manifest.json");
}

#[test]
fn a_server_that_dies_fails_the_rest() {
    let server = Server::start(Script::always("words alpha every 20"));
    let going = go(&server, "--concurrency 2 --request-count 400");
    server.wait_for(20);
    server.die();
    let run = going.end();
    let [sent, good, failed, cut] = run.counts();
    // Some requests succeeded, so that the run as a whole did.
    assert_eq!(run.code, Some(0), "{run}");
    assert_eq!((sent, cut), (400, 0), "{run}");
    assert!(good >= 18 && failed > 0, "{run}");
    assert!(run.stdout.contains("ConnectRefused"), "{run}");
}

#[test]
fn readers_that_close_their_end_do_no_harm() {
    let server = Server::start(Script::always("words alpha beta"));
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "'{}' profile --model m --url {} --tokenizer gpt2 --isl 16 --streaming --request-count 3 \
         --artifact-dir out 2>&1 >/dev/full; echo \"first $?\"; \
         '{}' profile --model m --url {} --tokenizer gpt2 --isl 16 --streaming --request-count 3 \
         --artifact-dir out2 | true; echo \"second\"",
        super::tool::PROGRAM,
        server.url(),
        super::tool::PROGRAM,
        server.url()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    assert!(text.contains("first"), "{text}");
    for out in ["out", "out2"] {
        assert!(
            folder
                .path()
                .join(out)
                .join(".aiperf_results_ready.json")
                .is_file(),
            "{out}: {text}"
        );
    }
}
