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
    going.wait_for_words("Stopping: nothing more is sent");
    going.signal(Signal::INT);
    let run = going.end();
    is_partial(&run, &server);
    assert_eq!(run.counts(), [8, 4, 0, 4], "{run}");
    are_cut_by_the_second(&run);
}

/// What was cut was cut by the second signal, and not by the end of the grace that the first one leaves.
fn are_cut_by_the_second(run: &Run) {
    assert!(run.stderr.contains("Quitting: requests in flight"), "{run}");
    for record in run.records("profiling") {
        let cut = record["metadata"]["was_cancelled"] == true;
        assert_eq!(cut, record["error"]["code"] == 499, "{record}");
        let message = record["error"]["message"].to_string();
        assert_eq!(cut, message.contains("the run was interrupted"), "{record}");
    }
}

#[test]
fn a_run_that_is_killed_leaves_its_inputs() {
    let server = Server::start(Script::always("stall"));
    let going = go(&server, "--concurrency 2 --request-count 4");
    server.wait_for(1);
    let inputs: serde_json::Value = serde_json::from_str(&going.kill("inputs.json")).unwrap();
    assert_eq!(inputs["data"].as_array().unwrap().len(), 4);
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

/// What is not in flight is not waited for.
#[test]
fn a_signal_ends_waiting() {
    for waiting in [
        "--request-rate 0.5 --arrival-pattern constant --request-count 50",
        "--conversation-num 3 --conversation-turn-mean 2 --conversation-turn-delay-mean 20000",
        "--conversation-num 2 --conversation-turn-mean 2 --conversation-turn-delay-mean 20000 --connection-reuse-strategy sticky_user_sessions",
    ] {
        let server = Server::start(Script::always("words alpha beta"));
        let going = go(&server, waiting);
        server.wait_for(1);
        going.wait_for_lines("profile_export.jsonl", 1);
        let signalled = Instant::now();
        going.signal(Signal::TERM);
        let run = going.end();
        // What it would have to wait for takes 20 s and more.
        assert!(
            signalled.elapsed() < Duration::from_secs(10),
            "{waiting}: {run}"
        );
        is_partial(&run, &server);
        assert_eq!(run.counts(), [1, 1, 0, 0], "{run}");
    }
}

#[test]
fn a_signal_while_connecting_or_stalled_is_obeyed_twice() {
    let server = Server::start(Script::always("stall"));
    let going = go(
        &server,
        "--request-rate 200 --request-count 100000 --num-prompts 20",
    );
    server.wait_for(10);
    going.signal(Signal::INT);
    going.wait_for_words("Stopping: nothing more is sent");
    going.signal(Signal::TERM);
    let run = going.end();
    are_cut_by_the_second(&run);
    assert_eq!(run.code, Some(1));
    let [sent, good, failed, cut] = run.counts();
    assert_eq!((good, failed), (0, 0), "{run}");
    assert!(sent >= 10 && sent == cut, "{run}");
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

/// Runs a shell script with `$T` as the program and `$RUN` as a run of three requests; its last lines say how commands ended.
pub fn shell(server: &Server, script: &str) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let run = format!(
        "profile --model m --url {} --tokenizer gpt2 --isl 16 --osl 3 --streaming",
        server.url()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .env("T", super::tool::PROGRAM)
        .env("RUN", run)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (text.concat(), folder)
}

#[test]
fn readers_that_close_their_end_do_no_harm() {
    let server = Server::start(Script::always("wait 30; words alpha beta"));
    for (command, code) in [
        ("$T --help", 0),
        ("$T --version", 0),
        ("$T completions bash", 0),
        ("$T man", 0),
        ("$T profile --no-such-flag", 1),
        ("$T $RUN --request-count 3 --artifact-dir out", 0),
        // The built-in server is named on standard error, which is closed.
        (
            "$T profile --model m --tokenizer gpt2 --isl 16 --osl 2 --request-count 2 --stats-interval 0.01 --artifact-dir out",
            0,
        ),
    ] {
        // The reader is gone before the program says anything.
        let script = format!(
            "{{ sleep 0.1; {command}; echo $? >code; }} 2>&1 | true; while [ ! -s code ]; do sleep 0.02; done; cat code"
        );
        let (text, folder) = shell(&server, &script);
        assert_eq!(text.trim(), code.to_string(), "{command}");
        if command.contains("out") {
            assert!(
                folder
                    .path()
                    .join("out/.aiperf_results_ready.json")
                    .is_file(),
                "{command}"
            );
        }
    }
}

#[test]
fn full_disks_are_told_and_the_rest_is_written() {
    let server = Server::start(Script::always("words alpha beta"));
    let (text, folder) = shell(
        &server,
        "mkdir out; ln -s /dev/full out/profile_export.jsonl; $T $RUN --request-count 3 --artifact-dir out >table; echo exit $?",
    );
    assert!(text.contains("exit 1"), "{text}");
    assert!(
        text.contains("Error: cannot write out/profile_export.jsonl: No space left"),
        "{text}"
    );
    let summary =
        std::fs::read_to_string(folder.path().join("out/profile_export_aiperf.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["request_count"]["avg"], 3.0);
}

#[test]
fn an_earlier_runs_mark_is_taken_away() {
    let server = Server::start(Script::always("words alpha beta"));
    let (text, folder) = shell(
        &server,
        "$T $RUN --request-count 3 --artifact-dir out >table; echo first $?; $T $RUN --request-count 3 --artifact-dir out --cpus 4095; echo second $?",
    );
    assert!(
        text.contains("first 0") && text.contains("second 1"),
        "{text}"
    );
    assert!(
        !folder
            .path()
            .join("out/.aiperf_results_ready.json")
            .exists(),
        "{text}"
    );
}

#[test]
fn a_refused_driver_leaves_an_earlier_runs_records() {
    let server = Server::start(Script::always("words alpha beta"));
    let (text, folder) = shell(
        &server,
        &format!(
            "$T $RUN --request-count 3 --artifact-dir out >table; echo first $?; \
             python3 {}/tests/e2e/deny_io_uring.py io_uring_setup \
             $T $RUN --request-count 3 --artifact-dir out --driver ring; echo second $?",
            env!("CARGO_MANIFEST_DIR")
        ),
    );
    assert!(
        text.contains("first 0") && text.contains("second 1") && text.contains("--driver ring:"),
        "{text}"
    );
    let records = std::fs::read_to_string(folder.path().join("out/profile_export.jsonl")).unwrap();
    assert_eq!(records.lines().count(), 3, "{text}");
}

#[test]
fn open_files_are_asked_for_before_the_load() {
    let server = Server::start(Script::always("wait 20; words alpha beta"));
    let (text, _) = shell(
        &server,
        "ulimit -Sn 32; $T $RUN --concurrency 80 --request-count 160 --artifact-dir out >table; echo exit $?; cat table",
    );
    assert!(text.contains("exit 0"), "{text}");
    assert_eq!(server.log().open_most, 80);
    let (text, _) = shell(
        &server,
        "ulimit -n 64; $T $RUN --workers-max 1 --request-count 160 --concurrency 80 --artifact-dir out; echo exit $?",
    );
    assert!(
        text.contains("exit 1") && text.contains("ulimit -n 144"),
        "{text}"
    );
    assert_eq!(server.log().load().len(), 160);
}
