//! The engine's promises, in simulated time, under every fault the network knows.
//!
//! In: seeds. Out: runs in which every request ends exactly once, nothing hangs, and nothing leaks. Never: a socket or a clock;
//! every failure names the seed that replays it.

#[path = "engine/bench.rs"]
mod bench;

#[path = "engine/check.rs"]
mod check;

use bench::{Bench, MILLI, SECOND, Words, closed_loop, plain};
use check::{check, check_faultless};
use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, ConnectionReuse, PhaseKind, PhasePlan, StopRule};
use tokenring::driver::simulated::{Chance, Faults, Simulation};

/// Any plan.
fn random_phase(chance: &mut Chance) -> PhasePlan {
    let arrivals = match chance.below(4) {
        0 => Arrivals::Constant {
            rate: 20.0 + chance.below(2_000) as f64,
        },
        1 => Arrivals::Poisson {
            rate: 20.0 + chance.below(2_000) as f64,
        },
        _ => Arrivals::ClosedLoop,
    };
    let capped = arrivals == Arrivals::ClosedLoop || chance.below(2) == 0;
    let concurrency = 1 + chance.index(9);
    let kind = chance.below(4);
    let duration = 5 * MILLI + chance.below(40 * MILLI);
    PhasePlan {
        kind: PhaseKind::Profiling,
        arrivals,
        concurrency: capped.then_some(concurrency),
        stop: StopRule {
            requests: (kind < 2).then(|| 1 + chance.below(30)),
            sessions: (kind == 2).then(|| 1 + chance.below(20)),
            duration: (kind == 3 || chance.below(8) == 0).then_some(Nanos(duration)),
        },
        grace: [
            None,
            Some(Nanos(0)),
            Some(Nanos(MILLI)),
            Some(Nanos(20 * MILLI)),
        ][chance.index(4)],
    }
}

/// Any run.
fn random_bench(seed: u64) -> Bench {
    let chance = &mut Chance::new(seed);
    let mut bench = Bench::new(random_phase(chance));
    if chance.below(4) == 0 {
        let warmup = PhasePlan {
            kind: PhaseKind::Warmup,
            ..random_phase(chance)
        };
        bench.phases.insert(0, warmup);
    }
    bench.targets = (0..1 + chance.below(3))
        .map(|n| plain(&format!("10.0.0.{n}:80")))
        .collect();
    bench.reuse = [
        ConnectionReuse::Pooled,
        ConnectionReuse::Never,
        ConnectionReuse::StickyUserSessions,
    ][chance.index(3)];
    bench.workers = 1 + chance.index(3);
    bench.words = Words {
        turns: if chance.below(2) == 0 { 1 } else { 4 },
        think: Nanos(chance.below(10 * MILLI) * chance.below(2)),
        live: chance.below(2) == 0,
        body_bytes: chance.index(2_000),
    };
    bench.seed = seed;
    bench
}

fn play_random(seed: u64, faults: Faults, timeout: Nanos) -> check::Judged {
    let mut bench = random_bench(seed);
    bench.request_timeout = timeout;
    let judged = check::Judged::of(&bench, seed);
    let mut simulation = Simulation::new(seed);
    simulation.faults = faults;
    let played = bench.play(simulation);
    check(&played, &judged);
    judged.with(played)
}

#[test]
fn without_faults_every_request_is_a_success() {
    for seed in 0..400 {
        let judged = play_random(seed, Faults::none(), Nanos(600 * SECOND));
        check_faultless(&judged);
    }
}

#[test]
fn torn_and_late_reads_change_no_result() {
    for seed in 1_000..1_600 {
        let judged = play_random(seed, Faults::rough(), Nanos(600 * SECOND));
        check_faultless(&judged);
    }
}

#[test]
fn few_faults_of_every_kind_leave_nothing_behind() {
    for seed in 2_000..2_800 {
        play_random(seed, Faults::all(0.01), Nanos(SECOND));
    }
}

#[test]
fn many_faults_of_every_kind_leave_nothing_behind() {
    for seed in 3_000..3_800 {
        play_random(seed, Faults::all(0.1), Nanos(30 * MILLI));
    }
}

#[test]
fn the_closed_loop_reaches_its_concurrency_and_never_exceeds_it() {
    for concurrency in 1..=9 {
        for workers in 1..=3 {
            let mut bench = Bench::new(closed_loop(concurrency, 60));
            bench.workers = workers;
            let played = bench.play(Simulation::new(concurrency as u64));
            assert_eq!(
                played.outcome.most_at_once, concurrency as u64,
                "{concurrency} over {workers}"
            );
            assert_eq!(played.counts.whole, 60);
            assert!(played.outcome.now > Tick(0));
        }
    }
}
