//! Random runs of the engine under every fault that the simulation knows.
//!
//! In: a first seed and a number of runs, or one seed. Out: how the requests of all runs ended, and every seed that broke a promise; of one
//! seed, its story. Never: a socket or a clock, but to say how long it took.
//!
//! `cargo bench --bench faults -- --runs 1000000 --from 0` plays a million runs, `-- --seed 7` tells what happened in one.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/engine/bench.rs"]
mod bench;
#[path = "../../tests/endpoint/byte_tokenizer.rs"]
mod byte_tokenizer;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/engine/check.rs"]
mod check;
#[path = "../../tests/engine/plans.rs"]
mod plans;
#[path = "../../tests/engine/replies.rs"]
mod replies;
#[path = "../../tests/engine/secure.rs"]
mod secure;
#[path = "../../tests/engine/seeded.rs"]
mod seeded;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::process::ExitCode;

use tokenring::clock::thread_cpu;

use seeded::Run;

/// Between two lines that say how far it is.
const RUNS_A_LINE: u64 = 100_000;

/// What was asked for.
struct Asked {
    seed: Option<u64>,
    from: u64,
    runs: u64,
}

/// Sums over all runs.
#[derive(Default)]
struct Sums {
    /// How often a request ended in which way.
    endings: BTreeMap<String, u64>,
    requests: u64,
    connections: u64,
    events: u64,
    broken: Vec<u64>,
    /// All digests, added.
    checksum: u64,
}

impl Sums {
    fn add(&mut self, run: &Run) {
        for (exchange, record) in run.played.exchanges.iter().zip(&run.records) {
            let ending = match &record.error {
                None => "good".to_owned(),
                Some(error) => error.kind.clone(),
            };
            *self.endings.entry(ending).or_default() += 1;
            if exchange.link.resent {
                *self.endings.entry("(sent again)".to_owned()).or_default() += 1;
            }
        }
        self.requests += run.played.counts.sent;
        self.connections += run.played.outcome.connections as u64;
        self.events += run.played.outcome.events;
        self.checksum = self.checksum.wrapping_add(run.digest);
    }
}

fn main() -> ExitCode {
    let Some(asked) = asked() else {
        eprintln!("faults: give --runs N and --from SEED, or --seed SEED");
        return ExitCode::FAILURE;
    };
    if let Some(seed) = asked.seed {
        println!("{}", seeded::play(seed).story());
        return ExitCode::SUCCESS;
    }
    let before = thread_cpu();
    let mut sums = Sums::default();
    for seed in asked.from..asked.from + asked.runs {
        match catch_unwind(|| seeded::play(seed)) {
            Ok(run) => sums.add(&run),
            Err(_) => sums.broken.push(seed),
        }
        let done = seed + 1 - asked.from;
        if done.is_multiple_of(RUNS_A_LINE) {
            println!("{done} runs, {} broken", sums.broken.len());
        }
    }
    let seconds = (thread_cpu() - before).seconds();
    println!(
        "{} runs from seed {} in {seconds:.1} s of one core: {} requests on {} connections, {} events",
        asked.runs, asked.from, sums.requests, sums.connections, sums.events
    );
    for (ending, count) in &sums.endings {
        println!("{count:>12} {ending}");
    }
    println!("checksum {:016x}", sums.checksum);
    println!("broken promises: {} {:?}", sums.broken.len(), sums.broken);
    match sums.broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// `None` when the words make no sense.
fn asked() -> Option<Asked> {
    let mut words = std::env::args().skip(1);
    // `cargo bench` says so; `cargo test --benches` runs a small size.
    let mut asked = Asked {
        seed: None,
        from: 0,
        runs: match std::env::args().any(|word| word == "--bench") {
            true => 20_000,
            false => 100,
        },
    };
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--bench" => {}
            "--seed" => asked.seed = Some(number()?),
            "--from" => asked.from = number()?,
            "--runs" => asked.runs = number()?,
            _ => return None,
        }
    }
    Some(asked)
}
