//! The program against a real inference server, checked by two other readings of the same replies.
//!
//! In: the built program and `tests/real_server/run.py`. Out: a verdict. Never: runs unless `TOKENRING_REAL_SERVER=1`, since it
//! installs packages.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::env;
use std::path::Path;
use std::process::Command;

/// The script's exit code when the server cannot be installed.
const SKIPPED: i32 = 77;

#[test]
fn lengths_and_texts_agree_with_the_server_and_the_official_client() {
    if env::var("TOKENRING_REAL_SERVER").as_deref() != Ok("1") {
        println!("skipped: installs a server; set TOKENRING_REAL_SERVER=1 to run it");
        return;
    }
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-server");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_server/run.py");
    let tool = format!("'{}' profile", env!("CARGO_BIN_EXE_tokenring"));
    let status = Command::new("python3")
        .arg(script)
        .args(["--tool", &tool, "--work"])
        .arg(work)
        .status()
        .unwrap();
    match status.code() {
        Some(0) => {}
        Some(SKIPPED) => println!("skipped: the server cannot be installed here"),
        other => panic!("run.py ended with {other:?}; its output stands above"),
    }
}
