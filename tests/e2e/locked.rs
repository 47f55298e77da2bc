//! What is said of locked memory before a run, held against this machine's own limit.
//!
//! In: runs under `prlimit --memlock`, without the capability that lifts it. Out: verdicts on the number that the warning names. Never: a change of this
//! process's own limits.

use std::process::{Command, Stdio};

use super::server::{Script, Server};
use super::tool::{Run, Tool};

/// A limit, in KiB, that no ring of full size fits.
const SCANTY: u64 = 64;

/// A run of `workers` workers that may lock so much; `None` sets no limit.
fn limited(server: &Server, workers: u64, kib: Option<u64>) -> Run {
    let bytes = kib.map_or("unlimited".to_owned(), |kib| (kib * 1_024).to_string());
    let limit = format!("--memlock={bytes}:{bytes}");
    // To root the limit is none: the capability goes, and cannot come back with the new program.
    let root: &[&str] = &[
        "setpriv",
        "--bounding-set",
        "-ipc_lock",
        "--inh-caps",
        "-ipc_lock",
    ];
    let first = if rustix::process::geteuid().is_root() {
        root
    } else {
        &[]
    };
    let own = ["prlimit", limit.as_str()];
    let own: &[&str] = if kib.is_some() { &own } else { &[] };
    let run = Tool::wrapped(
        &[first, own].concat(),
        &format!(
            "--model m --url {} --tokenizer gpt2 --isl 16 --artifact-dir out --ui-type none --concurrency {workers} --workers-max {workers} \
             --request-count 6",
            server.url()
        ),
    );
    run.run()
}

/// KiB that the warning names as needed, in its sentence and in its command.
fn named(run: &Run) -> Option<u64> {
    let (_, rest) = run.stderr.split_once("the workers' rings need ")?;
    let (needed, rest) = rest.split_once(" KiB of locked memory").unwrap();
    let (_, rest) = rest.split_once(": ulimit -l ").unwrap();
    assert!(rest.starts_with(&format!("{needed};")), "{run}");
    Some(needed.parse().unwrap())
}

/// The driver of the run, and why it is that one.
fn driver(run: &Run) -> (String, String) {
    let client = &run.summary()["client"];
    (
        client["driver"].to_string(),
        client["driver_reason"].to_string(),
    )
}

fn is_there(tool: &str) -> bool {
    let tried = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn the_warning_of_locked_memory_names_exactly_what_is_needed() {
    if !(is_there("prlimit") && is_there("setpriv")) {
        eprintln!("not tested: util-linux's prlimit and setpriv are not here");
        return;
    }
    // Enough for both loads; only some may raise a limit that is lower.
    let own = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if own.is_some_and(|bytes| bytes < 1 << 20) {
        eprintln!("not tested: this process may lock less than 1 MiB (ulimit -l)");
        return;
    }
    let server = Server::start(Script::always("words alpha beta"));
    for workers in [1, 2] {
        let scanty = limited(&server, workers, Some(SCANTY));
        let needed = named(&scanty).unwrap_or_else(|| panic!("nothing is said: {scanty}"));
        let allowed = format!("and {SCANTY} KiB are allowed");
        assert!(scanty.stderr.contains(&allowed), "{scanty}");
        // A smaller ring or the other driver, but every request.
        assert_eq!(scanty.counts(), [6, 6, 0, 0], "{scanty}");
        let fits = limited(&server, workers, Some(needed));
        assert_eq!(
            named(&fits),
            None,
            "{workers} workers, {needed} KiB: {fits}"
        );
        let short = limited(&server, workers, Some(needed - 1));
        assert_eq!(named(&short), Some(needed), "{short}");
        // Where the kernel counts rings, the number is what they take: with it every worker has the ring that it has without a limit.
        let free = limited(&server, workers, None);
        assert_eq!(driver(&fits), driver(&free), "{fits}");
        assert!(!fits.stdout.contains("could not open its ring"), "{fits}");
        if driver(&scanty) == driver(&free) {
            eprintln!(
                "not tested that rings take so much: this kernel does not count them as locked memory"
            );
        }
    }
}
