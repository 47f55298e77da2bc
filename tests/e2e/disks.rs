//! Disks that fill, folders that take nothing, and what an earlier run left there.
//!
//! In: limits of files, a small file system, a file in a folder's place. Out: verdicts on exit codes, errors and files. Never: a byte beyond the
//! test's own folder.

use std::path::Path;

use super::server::{Script, Server};
use super::stops::shell;

/// Whole lines only.
fn lines(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{path:?}");
    for line in text.lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
    text.lines().count()
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_the_load() {
    let server = Server::start(Script::always("words alpha beta"));
    for (script, error) in [
        (
            "echo no folder >out; $T $RUN --artifact-dir out",
            "Not a directory",
        ),
        ("$T $RUN --artifact-dir /proc/none/out", "No such file"),
        ("ulimit -f 10; $T $RUN --artifact-dir out", "File too large"),
    ] {
        let script = format!("{script} --request-count 3; echo exit $?");
        let (text, _) = shell(&server, &script);
        assert!(text.contains("exit 1"), "{script}: {text}");
        let told = text.contains("Error: cannot write") || text.contains("cannot write");
        assert!(
            told && (text.contains(error) || text.contains("File exists")),
            "{script}: {text}"
        );
    }
    assert_eq!(server.log().load().len(), 0);
}

#[test]
fn a_file_that_may_grow_no_further_ends_in_a_whole_line_and_leaves_the_earlier_one() {
    let server = Server::start(Script::always("words alpha beta"));
    // The unit of the limit is half a KiB or a whole one, by the shell.
    let (text, folder) = shell(
        &server,
        "$T $RUN --request-count 3 --artifact-dir out >table; echo first $?; ulimit -f 250; \
         $T $RUN --request-count 600 --concurrency 8 --num-prompts 2 --export-level raw --artifact-dir out >table; echo second $?",
    );
    assert!(
        text.contains("first 0") && text.contains("second 1"),
        "{text}"
    );
    assert!(
        text.contains("File too large") && text.contains("the run goes on without it"),
        "{text}"
    );
    let out = folder.path().join("out");
    assert_eq!(
        lines(&out.join("profile_export.jsonl.earlier")),
        3,
        "{text}"
    );
    assert!(lines(&out.join("profile_export.jsonl")) > 3, "{text}");
    assert!(lines(&out.join("profile_export_raw.jsonl")) > 3, "{text}");
    assert_eq!(server.log().load().len(), 603, "{text}");
}

#[test]
fn a_run_that_ends_well_takes_the_place_of_the_earlier_one() {
    let server = Server::start(Script::always("words alpha beta"));
    let (text, folder) = shell(
        &server,
        "$T $RUN --request-count 3 --artifact-dir out >table; $T $RUN --request-count 4 --artifact-dir out >table; echo exit $?",
    );
    assert!(text.contains("exit 0"), "{text}");
    let out = folder.path().join("out");
    assert_eq!(lines(&out.join("profile_export.jsonl")), 4, "{text}");
    assert!(!out.join("profile_export.jsonl.earlier").exists(), "{text}");
    assert!(!out.join("logs/aiperf.log.earlier").exists(), "{text}");
}

/// A file system of 400 KiB, where this process may mount one.
#[test]
fn a_disk_that_fills_in_mid_run_costs_no_earlier_file() {
    let server = Server::start(Script::always("words alpha beta"));
    let (text, folder) = shell(
        &server,
        "mkdir out kept; unshare -m sh -c 'mount -t tmpfs -o size=400k none out || { echo no mount; exit; }; \
         $T $RUN --request-count 3 --artifact-dir out >table; echo first $?; \
         $T $RUN --request-count 900 --concurrency 8 --num-prompts 2 --export-level raw --artifact-dir out >table; echo second $?; \
         $T $RUN --request-count 3 --artifact-dir out >table; echo third $?; \
         cp out/profile* out/.aiperf* kept' || echo no mount",
    );
    if text.contains("no mount") || text.contains("unshare:") {
        return;
    }
    assert!(
        text.contains("first 0") && text.contains("second 1"),
        "{text}"
    );
    // Full from the start.
    assert!(text.contains("third 1"), "{text}");
    assert!(text.contains("No space left"), "{text}");
    let kept = folder.path().join("kept");
    assert_eq!(
        lines(&kept.join("profile_export.jsonl.earlier")),
        3,
        "{text}"
    );
    lines(&kept.join("profile_export.jsonl"));
    let summary = std::fs::read_to_string(kept.join("profile_export_aiperf.json")).unwrap();
    let _: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert!(!kept.join(".aiperf_results_ready.json").exists(), "{text}");
}
