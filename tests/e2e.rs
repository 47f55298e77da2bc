//! The built program against servers, as its users see it.
//!
//! In: command lines. Out: verdicts on exit codes, output, files and on what the server saw. Never: a look inside the program, or
//! load to anywhere but this machine.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a failed step fails the test, and the tests look at the clock"
)]

#[path = "e2e/addresses.rs"]
mod addresses;
#[path = "e2e/burst.rs"]
mod burst;
#[path = "e2e/cases.rs"]
mod cases;
#[path = "e2e/chance.rs"]
mod chance;
#[path = "e2e/conversations.rs"]
mod conversations;
#[path = "e2e/datasets.rs"]
mod datasets;
#[path = "e2e/disks.rs"]
mod disks;
#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/faulty.rs"]
mod faulty;
#[path = "e2e/health.rs"]
mod health;
#[path = "e2e/links.rs"]
mod links;
#[path = "e2e/locked.rs"]
mod locked;
#[path = "e2e/markers.rs"]
mod markers;
#[path = "e2e/namespaces.rs"]
mod namespaces;
#[path = "e2e/relays.rs"]
mod relays;
#[path = "e2e/replay.rs"]
mod replay;
#[path = "e2e/secrets.rs"]
mod secrets;
#[path = "e2e/server.rs"]
mod server;
#[path = "e2e/stops.rs"]
mod stops;
#[path = "e2e/story.rs"]
mod story;
#[path = "e2e/streamed.rs"]
mod streamed;
#[path = "e2e/tool.rs"]
mod tool;
#[path = "e2e/windows.rs"]
mod windows;
#[path = "e2e/workload.rs"]
mod workload;

/// One test for each file of cases, so that they run side by side.
macro_rules! case_files {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            cases::run_file(concat!(stringify!($name), ".txt"));
        })*

        /// A file of cases that no test names would pass for ever.
        #[test]
        fn every_file_of_cases_is_run() {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/cases");
            let mut found: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort();
            let mut named = vec![$(concat!(stringify!($name), ".txt")),*];
            named.sort_unstable();
            assert_eq!(found, named);
        }
    };
}

case_files! { commands files kinds load network prompts replies refusals }
