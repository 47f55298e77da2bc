//! What a run keeps when something beside the load goes wrong, and what its log says.
//!
//! In: command lines for the built program. Out: verdicts on its output and files. Never: load to anywhere but its own server.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::process::{Command, Output};

fn profile(folder: &Path, more: &[&str]) -> Output {
    let words = "profile --model mock-model --tokenizer gpt2 --isl 8 --osl 2 --request-count 2 --ui-type none --artifact-dir out";
    Command::new(env!("CARGO_BIN_EXE_tokenring"))
        .args(words.split(' '))
        .args(more)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn the_table_is_printed_when_a_summary_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // A folder stands where the file should go.
    let blocked = "out/profile_export_aiperf.csv/in_the_way";
    std::fs::create_dir_all(folder.path().join(blocked)).unwrap();
    let output = profile(folder.path(), &[]);
    let (table, errors) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("profile_export_aiperf.csv"), "{errors}");
    assert!(table.contains("Request Latency"), "{table}");
}

#[test]
fn verbose_adds_details_to_the_log() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, wanted) in [(&[][..], false), (&["--verbose"][..], true)] {
        let output = profile(folder.path(), flags);
        assert!(output.status.success());
        let log = std::fs::read_to_string(folder.path().join("out/logs/aiperf.log")).unwrap();
        assert!(log.contains("INFO driver: "), "{log}");
        assert_eq!(log.contains("DEBUG dataset: "), wanted, "{log}");
        assert_eq!(log.contains(": addresses [127.0.0.1:"), wanted, "{log}");
    }
}
