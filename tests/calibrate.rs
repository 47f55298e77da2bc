//! `tokenring calibrate` as a whole, with few and short streams.
//!
//! In: command lines for the built program. Out: verdicts on its file and exit code. Never: a judgement of the machine's figures.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, and one test waits"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

fn calibrate(output: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenring"));
    command
        .args([
            "calibrate",
            "--driver",
            "portable",
            "--timestamp-source",
            "user",
            "--output",
        ])
        .arg(output)
        .args(words.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Client and server need a core each.
fn one_core() -> bool {
    std::thread::available_parallelism().map_or(1, usize::from) < 2
}

fn read(output: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(output).unwrap()).unwrap()
}

#[test]
fn every_event_is_found_in_the_log() {
    if one_core() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("new/calibration.json");
    let words = "--streams 3,1 --tokens 8 --ttft 5 --itl 2 --max-seconds 60";
    let done = calibrate(&output, words)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let results = read(&output);
    assert_eq!(results["is_complete"], true);
    let rows = results["rows"].as_array().unwrap();
    // What this machine refuses has no median.
    let measured = rows.iter().filter(|row| !row["median"].is_null());
    let mut seen = Vec::new();
    for row in measured {
        let median = &row["median"];
        let streams = row["streams"].as_u64().unwrap();
        seen.push(streams);
        assert_eq!(median["events"], 8 * streams, "{row}");
        assert_eq!(median["lost_events"], 0, "{row}");
        // A stamp is not before the send, but for the scale that a busy machine's clock starts with; a gap is 2 ms.
        assert!(
            median["stamp_error_ns"]["min"].as_i64().unwrap() > -1_000_000,
            "{row}"
        );
        assert!(
            median["server_late_ns"]["min"].as_i64().unwrap() >= 0,
            "{row}"
        );
    }
    seen.dedup();
    assert_eq!(seen, [1, 3]);
}

#[test]
fn a_signal_leaves_a_partial_file() {
    if one_core() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("calibration.json");
    let mut child = calibrate(&output, "--streams 1 --tokens 100 --itl 600")
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let results = read(&output);
    assert_eq!(results["is_complete"], false);
    assert_eq!(results["incomplete_reason"], "stopped by a signal");
}
