//! The Python code of `benches/` that lays a client's records beside the server's log.
//!
//! In: `benches/test_join.py`. Out: a verdict. Never: takes a measurement.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::process::Command;

#[test]
fn records_and_log_are_joined_as_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let outcome = Command::new("python3")
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output();
    let Ok(outcome) = outcome else {
        println!("skipped: there is no python3 here");
        return;
    };
    let said = String::from_utf8_lossy(&outcome.stderr);
    // A discovery that finds nothing ends well too.
    assert!(
        outcome.status.success() && !said.contains("Ran 0 tests"),
        "{said}"
    );
}
