//! What was asked for is what was done and what was left: user case F8, for every stop and every shape.
//!
//! In: random plans, played in virtual time. Out: a panic that names the seed. Never: a fault of the network: each request has an end here.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{
    Arrivals, Gaps, LatePolicy, PhaseKind, PhasePlan, RateCurve, SlotPlan, StopRule,
};
use tokenring::driver::simulated::{Answer, Chance, Simulation};
use tokenring::engine::{Leftover, Stop};
use tokenring::record::{Exchange, Outcome};
use tokenring::schedule::{Schedule, Shard, Verdict};

use crate::bench::{Bench, MILLI, Played, closed_loop};
use crate::check::{Judged, check};

/// Any law, at a rate that stands or changes.
fn random_arrivals(chance: &mut Chance) -> Arrivals {
    let rate = 50.0 + chance.below(3_000) as f64;
    let shape = 0.2 + chance.below(40) as f64 / 10.0;
    let gaps = [Gaps::Even, Gaps::Exponential, Gaps::Gamma { shape }][chance.index(3)];
    match chance.below(5) {
        0..=2 => Arrivals::steady(gaps, rate),
        3 => Arrivals::changing(gaps, RateCurve::ramp(rate, 0.02 + rate / 100_000.0)),
        _ => Arrivals::ClosedLoop,
    }
}

/// Any stop: each of the seven combinations of a count of requests, of sessions, and a length of time.
fn random_stop(chance: &mut Chance) -> StopRule {
    let kinds = 1 + chance.below(7);
    let given = |kind: u64| kinds & kind != 0;
    StopRule {
        requests: given(1).then(|| 1 + chance.below(60)),
        sessions: given(2).then(|| 1 + chance.below(40)),
        duration: given(4).then(|| Nanos(5 * MILLI + chance.below(60 * MILLI))),
    }
}

fn random_phase(chance: &mut Chance) -> PhasePlan {
    let arrivals = random_arrivals(chance);
    let open = arrivals != Arrivals::ClosedLoop && chance.below(3) == 0;
    let concurrency = (!open).then(|| 1 + chance.index(6));
    let most = concurrency.unwrap_or(8);
    let ramp = |chance: &mut Chance| {
        (chance.below(4) == 0).then(|| Nanos(MILLI + chance.below(30 * MILLI)))
    };
    let late = [LatePolicy::Send, LatePolicy::Skip][chance.index(2)];
    PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        concurrency,
        slots: SlotPlan {
            concurrency_ramp: ramp(chance).filter(|_| concurrency.is_some()),
            prefill: (chance.below(4) == 0).then(|| 1 + chance.index(most)),
            prefill_ramp: ramp(chance),
            pre_connect: chance.index(5) * chance.index(2),
        },
        late: if arrivals == Arrivals::ClosedLoop {
            LatePolicy::Send
        } else {
            late
        },
        arrivals,
        stop: random_stop(chance),
        grace: [None, Some(Nanos(0)), Some(Nanos(10 * MILLI))][chance.index(3)],
    }
}

fn random_bench(seed: u64) -> Bench {
    let chance = &mut Chance::new(seed);
    let mut bench = crate::plans::random_bench(seed);
    bench.reuse = tokenring::config::ConnectionReuse::Pooled;
    let users = matches!(
        bench.phases[bench.phases.len() - 1].arrivals,
        Arrivals::Users(_)
    );
    if !users {
        let seamless = bench.phases.len() > 1 && chance.below(2) == 0;
        for phase in &mut bench.phases {
            *phase = PhasePlan {
                kind: phase.kind,
                ..random_phase(chance)
            };
        }
        let last = bench.phases.len() - 1;
        bench.phases[last].seamless = seamless;
    }
    bench
}

/// Streams that take a while, so that slots run out.
fn play(bench: Bench, seed: u64) -> Played {
    let mut simulation = Simulation::new(seed);
    simulation.server =
        Box::new(|_, chance| Answer::stream(3, Nanos(MILLI + chance.below(9 * MILLI))));
    bench.play(simulation)
}

fn of_phase(played: &Played, phase: usize) -> impl Iterator<Item = &Exchange> {
    let exchanges = played.exchanges.iter();
    exchanges.filter(move |exchange| usize::from(exchange.id.phase) == phase)
}

/// Of all workers.
fn leftover(played: &Played, kind: PhaseKind) -> Leftover {
    match kind {
        PhaseKind::Warmup => played.counts.warmup,
        PhaseKind::Profiling => played.counts.profiling,
    }
}

/// Arrivals of `plan` that are due before its deadline, by a schedule that nothing limits.
fn due_in_time(plan: &PhasePlan, seed: u64) -> u64 {
    let plan = PhasePlan {
        concurrency: None,
        slots: SlotPlan::default(),
        late: LatePolicy::Send,
        ..plan.clone()
    };
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::new(&plan, seed, only, Rate::NANOS, Tick(0));
    let end = plan.stop.duration.expect("a length of time ends it");
    let mut now = Tick(0);
    loop {
        match schedule.next(now) {
            Verdict::Send(_) => {}
            Verdict::WaitUntil(due) if due < Tick(end.0) => now = due,
            _ => return schedule.counts().sent_requests,
        }
    }
}

/// What `plan` asked for against what became of it.
fn account(played: &Played, phase: usize, plan: &PhasePlan, seed: u64) {
    let sent = of_phase(played, phase).count() as u64;
    let left = leftover(played, plan.kind);
    let place = format!("seed {seed}, phase {phase}: {sent} sent, {left:?}, {plan:?}");
    let unsent = u64::try_from(left.unsent).expect("no more is done than was planned");
    assert_eq!(left.skipped > 0, left.last_skipped.is_some(), "{place}");
    assert!(
        plan.late == LatePolicy::Skip || left.skipped == 0,
        "{place}"
    );
    let sessions = of_phase(played, phase).map(|exchange| exchange.id.session);
    let sessions = sessions.collect::<BTreeSet<u64>>().len() as u64;
    match (plan.stop.requests, plan.stop.sessions, &plan.arrivals) {
        (Some(planned), ..) => assert_eq!(planned, sent + left.skipped + unsent, "{place}"),
        // Sessions are counted as they begin, so what is left out of the arrivals is beside the plan.
        (None, Some(planned), _) => assert_eq!(planned, sessions + unsent, "{place}"),
        (None, None, Arrivals::ClosedLoop) => assert_eq!(left, Leftover::default(), "{place}"),
        (None, None, Arrivals::Users(_)) => assert_eq!(left.skipped, 0, "{place}"),
        (None, None, _) => {
            let due = due_in_time(plan, seed);
            assert_eq!(due, sent + left.skipped + unsent, "{place}");
        }
    }
}

#[test]
fn what_was_planned_is_what_was_sent_left_out_and_left_over() {
    let (mut skipped, mut unsent, mut cancelled, mut both) = (0, 0, 0, 0);
    for seed in crate::seeds(40_000, 600) {
        let bench = random_bench(seed);
        let judged = Judged {
            // The check of numbers knows one stop at a time; the sums here know all.
            interrupted: true,
            ..Judged::of(&bench, seed)
        };
        let played = play(bench, seed);
        check(&played, &judged);
        for (phase, plan) in judged.phases.iter().enumerate() {
            account(&played, phase, plan, seed);
            let left = leftover(&played, plan.kind);
            skipped += left.skipped;
            unsent += u64::try_from(left.unsent).unwrap_or(0);
            both += u64::from(left.skipped > 0 && plan.kind == PhaseKind::Warmup);
        }
        cancelled += played.counts.cancelled;
    }
    // The plans are such that each of these comes about.
    assert!(skipped.min(unsent).min(cancelled).min(both) > 0);
}

/// At 1,000 a second into 2 slots of 100 ms each, most are left out: of what was asked for, none is lost, whatever ends it.
#[test]
fn what_is_left_out_is_of_its_own_phase_and_within_the_plan() {
    for (requests, sessions, duration) in [
        (Some(300), None, None),
        (None, Some(9), None),
        (None, None, Some(Nanos(300 * MILLI))),
        (Some(300), None, Some(Nanos(200 * MILLI))),
        (Some(300), Some(5), None),
        (None, Some(100), Some(Nanos(300 * MILLI))),
    ] {
        let phase = |kind, late| PhasePlan {
            kind,
            arrivals: Arrivals::constant(1_000.0),
            late,
            stop: StopRule {
                requests,
                sessions,
                duration,
            },
            ..closed_loop(2, 1)
        };
        let mut bench = Bench::new(phase(PhaseKind::Profiling, LatePolicy::Skip));
        let warmup = phase(PhaseKind::Warmup, LatePolicy::Send);
        bench.phases.insert(0, warmup);
        let phases = bench.phases.clone();
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(|_, _| Answer::stream(2, Nanos(50 * MILLI)));
        let played = bench.play(simulation);
        for (index, plan) in phases.iter().enumerate() {
            account(&played, index, plan, 1);
        }
        assert_eq!(played.counts.warmup.skipped, 0);
        let left = played.counts.profiling;
        assert!(left.skipped > 50, "{left:?}");
        let last_sent = of_phase(&played, 1).map(|e| e.ticks.due).max();
        assert!(left.last_skipped.is_some() && last_sent.is_some());
        assert!(of_phase(&played, 1).all(|e| e.outcome == Outcome::Success));
    }
}

#[test]
fn a_phase_that_never_began_was_planned_all_the_same() {
    for seamless in [false, true] {
        let mut bench = Bench::new(PhasePlan {
            seamless,
            ..closed_loop(3, 70)
        });
        let warmup = PhasePlan {
            kind: PhaseKind::Warmup,
            ..closed_loop(3, 50)
        };
        bench.phases.insert(0, warmup);
        bench.workers = 2;
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(|_, _| Answer::stream(3, Nanos(10 * MILLI)));
        let played = bench.play_with(simulation, |simulation, conductor| {
            let conductor = Arc::clone(conductor);
            let act = move || conductor.call(Stop::Drain);
            simulation.acts.push((Tick(90 * MILLI), Box::new(act)));
        });
        let sent = played.counts.sent;
        assert!(sent > 0 && sent < 50);
        let left = |kind| u64::try_from(leftover(&played, kind).unsent);
        assert_eq!(left(PhaseKind::Warmup), Ok(50 - sent));
        assert_eq!(left(PhaseKind::Profiling), Ok(70));
    }
}
