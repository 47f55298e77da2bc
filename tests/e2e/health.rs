//! The client's judgement of itself.
//!
//! In: runs with and without rivals on the worker's core. Out: verdicts on the verdict. Never: a run that must find a quiet machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use core_affinity::CoreId;

use super::tool::{Mock, Run, Tool};

/// Threads that keep a core busy, until dropped.
struct Rivals {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Rivals {
    fn on(core: CoreId, count: usize) -> Rivals {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                assert!(core_affinity::set_for_current(core), "cannot pin a rival");
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        Rivals {
            threads: threads.collect(),
            stop,
        }
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A rival that could not be pinned has failed the test by its panic's text; its run is not judged.
            assert!(thread.join().is_ok(), "a rival died");
        }
    }
}

fn run(flags: &str, core: CoreId) -> Run {
    // Tokens as fast as they go: the worker wants more of its core than any scheduler gives it beside two rivals.
    let mock = Mock::start("--ttft 0 --itl 0 --tokens 50");
    Tool::profile(&format!(
        "--model m --url {} --tokenizer builtin --isl 16 --osl 50 --streaming --ui-type none --concurrency 16 \
         --require-trusted --cpus {} {flags}",
        mock.url, core.id
    ))
    .run()
}

/// Levels and names of the reasons.
fn reasons(run: &Run) -> Vec<(String, String)> {
    let summary = run.summary();
    let reasons = summary["client_health"]["reasons"].as_array().unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    reasons
        .iter()
        .map(|reason| (word(&reason["level"]), word(&reason["name"])))
        .collect()
}

#[test]
fn rivals_on_its_core_make_a_worker_untrusted() {
    let core = core_affinity::get_core_ids().unwrap()[0];
    for flags in ["", "--timestamp-source user", "--driver portable"] {
        let rivals = Rivals::on(core, 2);
        let run = run(&format!("--benchmark-duration 1 {flags}"), core);
        drop(rivals);
        let found = reasons(&run);
        let health = &run.summary()["client_health"];
        assert_eq!(health["verdict"], "untrusted", "{found:?}\n{run}");
        assert_eq!(run.code, Some(3), "{found:?}\n{run}");
        let told = "Error: --require-trusted: the client's own health is judged untrusted";
        assert!(run.stderr.contains(told), "{run}");
        let starved = ["core_wait", "long_turns", "late_wake", "receive_delay"];
        assert!(
            found
                .iter()
                .any(|(level, name)| level == "untrusted" && starved.contains(&name.as_str())),
            "{flags}: {found:?}"
        );
        assert!(
            run.stdout
                .contains("Client health: untrusted; TTFT p99 may be off by up to "),
            "{run}"
        );
        assert!(
            health["ttft_p99_bound_ns"].as_u64().unwrap() > 0,
            "{health}"
        );
    }
}

/// A worker with little to do gets its core back from one rival whenever it wants it, so that no wait need show.
#[test]
fn a_rival_that_gives_way_is_told_as_well() {
    let core = core_affinity::get_core_ids().unwrap()[0];
    let mock = Mock::start("--ttft 0 --itl 0 --tokens 5");
    let rivals = Rivals::on(core, 1);
    let run = Tool::profile(&format!(
        "--model m --url {} --tokenizer builtin --isl 16 --osl 5 --streaming --ui-type none --request-rate 20 \
         --benchmark-duration 1 --require-trusted --cpus {}",
        mock.url, core.id
    ))
    .run();
    drop(rivals);
    let found = reasons(&run);
    let rival = ("untrusted".to_owned(), "rival".to_owned());
    assert!(found.contains(&rival), "{found:?}\n{run}");
    assert_eq!(run.code, Some(3), "{found:?}\n{run}");
    let told = format!("% of core {}, which is a worker's", core.id);
    assert!(run.stdout.contains(&told), "{run}");
    let rivals = &run.summary()["client_health"]["rivals"];
    assert_eq!(rivals[0]["cpu"], core.id, "{rivals}");
    assert!(rivals[0]["share"].as_f64().unwrap() >= 0.3, "{rivals}");
}

#[test]
fn the_exit_code_says_what_the_verdict_is() {
    let core = core_affinity::get_core_ids().unwrap()[0];
    let run = run("--request-count 20", core);
    let found = reasons(&run);
    let verdict = run.summary()["client_health"]["verdict"].clone();
    let code = if verdict == "trusted" { 0 } else { 3 };
    assert_eq!(run.code, Some(code), "{verdict} {found:?}\n{run}");
    assert_eq!(verdict == "trusted", found.is_empty(), "{found:?}");
    let first = found.first().map_or("trusted", |(level, _)| level);
    assert_eq!(verdict, first, "{found:?}");
    assert!(
        run.stdout.contains(&format!("Client health: {first}; ")),
        "{run}"
    );
}

#[test]
fn a_worse_end_keeps_its_own_code() {
    let core = core_affinity::get_core_ids().unwrap()[0];
    let run = Tool::profile(&format!(
        "--model m --url http://127.0.0.1:1 --tokenizer builtin --isl 16 --request-count 2 --ui-type none --require-trusted \
         --cpus {}",
        core.id
    ))
    .run();
    assert_eq!(run.code, Some(1), "{run}");
}
