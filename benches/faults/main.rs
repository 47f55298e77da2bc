//! Random runs of the engine under every fault that the simulation knows.
//!
//! In: a first seed and a number of runs, or one seed. Out: how the requests of all runs ended, what went wrong how often, and every seed that
//! broke a promise; of one seed, its story. Never: a socket or a clock, but to say how long it took.
//!
//! `cargo bench --bench faults -- --runs 1000000 --from 0` plays a million runs on two threads (`--threads`), `-- --seed 7` tells what happened in
//! one. The sums and the checksum are the same on any number of threads.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/engine/bench.rs"]
mod bench;
#[path = "../../tests/endpoint/byte_tokenizer.rs"]
mod byte_tokenizer;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/engine/check.rs"]
mod check;
#[path = "../../tests/engine/ends.rs"]
mod ends;
#[path = "../../tests/engine/plans.rs"]
mod plans;
#[path = "../../tests/engine/replies.rs"]
mod replies;
#[path = "../../tests/engine/secure.rs"]
mod secure;
#[path = "../../tests/engine/seeded.rs"]
mod seeded;
#[path = "../../tests/engine/written.rs"]
mod written;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use tokenring::clock::thread_cpu;
use tokenring::driver::simulated::Struck;

use seeded::Run;

/// Between two lines that say how far it is.
const RUNS_A_LINE: u64 = 100_000;

/// Seeds that a thread takes at once.
const STRIDE: u64 = 100;

/// What was asked for.
struct Asked {
    seed: Option<u64>,
    from: u64,
    runs: u64,
    threads: u64,
}

/// Sums over all runs.
#[derive(Default)]
struct Sums {
    /// How often a request ended in which way.
    endings: BTreeMap<String, u64>,
    requests: u64,
    connections: u64,
    events: u64,
    struck: Struck,
    broken: Vec<u64>,
    seconds: f64,
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
        self.struck.add(&run.played.outcome.struck);
        self.checksum = self.checksum.wrapping_add(run.digest);
    }

    fn join(mut self, other: Sums) -> Sums {
        for (ending, count) in other.endings {
            *self.endings.entry(ending).or_default() += count;
        }
        self.requests += other.requests;
        self.connections += other.connections;
        self.events += other.events;
        self.struck.add(&other.struck);
        self.broken.extend(other.broken);
        self.broken.sort_unstable();
        self.seconds += other.seconds;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self
    }

    fn print(&self, asked: &Asked) {
        println!(
            "{} runs from seed {} in {:.1} s of one core: {} requests on {} connections, {} events",
            asked.runs, asked.from, self.seconds, self.requests, self.connections, self.events
        );
        for (ending, count) in &self.endings {
            println!("{count:>12} {ending}");
        }
        println!("what went wrong:");
        for (fault, count) in self.struck.each() {
            println!("{count:>12} {fault}");
        }
        println!("checksum {:016x}", self.checksum);
        println!("broken promises: {} {:?}", self.broken.len(), self.broken);
    }
}

fn main() -> ExitCode {
    let Some(asked) = asked() else {
        eprintln!("faults: give --runs N, --from SEED and --threads N, or --seed SEED");
        return ExitCode::FAILURE;
    };
    if let Some(seed) = asked.seed {
        println!("{}", seeded::play(seed).story());
        return ExitCode::SUCCESS;
    }
    let next = AtomicU64::new(0);
    let sums = std::thread::scope(|scope| {
        let threads = (0..asked.threads).map(|_| scope.spawn(|| play_all(&asked, &next)));
        let threads: Vec<_> = threads.collect();
        let sums = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        let sums = sums.map(|sums| sums.expect("a run that panics is caught"));
        sums.fold(Sums::default(), Sums::join)
    });
    sums.print(&asked);
    match sums.broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Takes seeds from `next` on until there are none.
fn play_all(asked: &Asked, next: &AtomicU64) -> Sums {
    let before = thread_cpu();
    let mut sums = Sums::default();
    loop {
        let first = next.fetch_add(STRIDE, Ordering::Relaxed);
        if first >= asked.runs {
            break;
        }
        for number in first..asked.runs.min(first + STRIDE) {
            let seed = asked.from + number;
            match catch_unwind(|| seeded::play(seed)) {
                Ok(run) => sums.add(&run),
                Err(_) => {
                    println!("broken; again with: cargo bench --bench faults -- --seed {seed}");
                    sums.broken.push(seed);
                }
            }
        }
        let done = first + STRIDE;
        if done.is_multiple_of(RUNS_A_LINE) {
            println!("{done} runs begun");
        }
    }
    sums.seconds = (thread_cpu() - before).seconds();
    sums
}

/// `None` when the words make no sense.
fn asked() -> Option<Asked> {
    let mut words = std::env::args().skip(1);
    // `cargo bench` says so; `cargo test --benches` runs a small size.
    let mut asked = Asked {
        seed: None,
        threads: 2,
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
            "--threads" => asked.threads = number()?.max(1),
            _ => return None,
        }
    }
    Some(asked)
}
