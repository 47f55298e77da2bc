//! Plans that nobody would think of.
//!
//! In: a seed. Out: a run to be played. Never: a plan that the command line would refuse.

use tokenring::clock::Nanos;
use tokenring::config::{
    Arrivals, CancellationPlan, ConnectionReuse, PhaseKind, PhasePlan, SlotPlan, StopRule,
    TimeLimits, UsersPlan,
};
use tokenring::driver::simulated::{Chance, Simulation};
use tokenring::wire::connect_head;

use crate::bench::{Bench, MILLI, Words, address, plain};

/// Half the plans limit nothing more; the others ramp, limit prefills, or open connections ahead.
fn random_slots(chance: &mut Chance, concurrency: Option<usize>) -> SlotPlan {
    if chance.below(2) == 0 {
        return SlotPlan::default();
    }
    let ramp =
        |chance: &mut Chance| (chance.below(2) == 0).then_some(Nanos(chance.below(10 * MILLI)));
    let most = concurrency.unwrap_or(9);
    SlotPlan {
        concurrency_ramp: ramp(chance),
        prefill: (chance.below(2) == 0).then_some(1 + chance.index(most)),
        prefill_ramp: ramp(chance),
        pre_connect: chance.index(6) * chance.index(2),
    }
}

/// Any plan.
fn random_phase(chance: &mut Chance) -> PhasePlan {
    let arrivals = match chance.below(4) {
        0 => Arrivals::constant(20.0 + chance.below(2_000) as f64),
        1 => Arrivals::poisson(20.0 + chance.below(2_000) as f64),
        _ => Arrivals::ClosedLoop,
    };
    let capped = arrivals == Arrivals::ClosedLoop || chance.below(2) == 0;
    let concurrency = 1 + chance.index(9);
    let kind = chance.below(4);
    let duration = 5 * MILLI + chance.below(40 * MILLI);
    PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        arrivals,
        concurrency: capped.then_some(concurrency),
        slots: random_slots(chance, capped.then_some(concurrency)),
        late: tokenring::config::LatePolicy::default(),
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
pub(crate) fn random_bench(seed: u64) -> Bench {
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
    if bench.reuse == ConnectionReuse::Never {
        bench
            .phases
            .iter_mut()
            .for_each(|phase| phase.slots.pre_connect = 0);
    }
    bench.workers = 1 + chance.index(3);
    if seed.is_multiple_of(4) {
        bench.connects.idle = Some(Nanos(1 + seed * 7_919 % (30 * MILLI)));
    }
    bench.words = Words {
        turns: if chance.below(2) == 0 { 1 } else { 4 },
        think: Nanos(chance.below(10 * MILLI) * chance.below(2)),
        live: chance.below(2) == 0,
        body_bytes: chance.index(2_000),
    };
    bench.seed = seed;
    let last = bench.phases.len() - 1;
    bench.phases[last].seamless = last > 0 && chance.below(2) == 0;
    bench.cancellation = (chance.below(4) == 0).then(|| CancellationPlan {
        percent: chance.below(101) as f64,
        delay: Nanos(chance.below(10 * MILLI) * chance.below(2)),
    });
    if chance.below(5) == 0 {
        let profiling = bench.phases.last_mut().expect("there is one");
        let capped = chance.below(3) == 0;
        profiling.concurrency = profiling.concurrency.filter(|_| capped);
        profiling.arrivals = Arrivals::Users(UsersPlan {
            rate: 20.0 + chance.below(2_000) as f64,
            users: 1 + u32::try_from(chance.below(9)).expect("it is below 9"),
            turns: 1 + u32::try_from(chance.below(6)).expect("it is below 6"),
        });
    }
    bench
}

/// Any limits on what a request waits for, from shorter than most answers to longer than any.
pub(crate) fn random_limits(chance: &mut Chance) -> TimeLimits {
    let mut limit = || {
        let millis = [1, 4, 15, 60, 300, 1_500][chance.index(6)];
        (chance.below(2) == 0).then_some(Nanos(millis * MILLI))
    };
    TimeLimits {
        connect: limit(),
        first_byte: limit(),
        idle: limit(),
        keep_alive_counts: chance.below(2) == 0,
    }
}

/// Some servers have more addresses than one, with any head start for the first of them.
pub(crate) fn random_addresses(bench: &mut Bench, chance: &mut Chance) {
    for (number, target) in bench.targets.iter_mut().enumerate() {
        let more = chance.below(3) * chance.below(2);
        let more = (0..more).map(|n| address(&format!("10.1.{number}.{n}:80")));
        target.addresses.extend(more);
    }
    let millis = [1, 10, 250][chance.index(3)];
    bench.connects.head_start = Nanos(millis * MILLI);
}

/// All servers are behind a proxy, which mostly opens a tunnel.
pub(crate) fn random_proxy(bench: &mut Bench, simulation: &mut Simulation, chance: &mut Chance) {
    let status = [200, 200, 200, 204, 407, 502, 0][chance.index(7)];
    for target in &mut bench.targets {
        target.tunnel = Some(connect_head("server.test:443", None));
        for &address in &target.addresses {
            simulation.proxies.insert(address, status);
        }
    }
}
