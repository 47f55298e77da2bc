//! Phases that follow each other without a drain, in simulated time.
//!
//! In: warmups that stop by time, count or sessions. Out: when profiling began, and what ran beside it. Never: a clock.

use std::sync::Arc;

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, PhaseKind, PhasePlan, StopRule, UsersPlan};
use tokenring::driver::simulated::{Answer, Faults, Simulation};
use tokenring::engine::Stop;
use tokenring::record::{Exchange, Outcome as Ended};

use crate::bench::{Bench, MILLI, Played, SECOND, Words, closed_loop, scatter};
use crate::check::{Judged, check, check_faultless};

/// A warmup of `concurrency` slots that stops by `stop`, and `requests` of profiling on `slots` right after it.
fn bench(concurrency: usize, stop: StopRule, slots: usize, requests: u64) -> Bench {
    let mut bench = Bench::new(PhasePlan {
        seamless: true,
        ..closed_loop(slots, requests)
    });
    let warmup = PhasePlan {
        kind: PhaseKind::Warmup,
        stop,
        ..closed_loop(concurrency, 1)
    };
    bench.phases.insert(0, warmup);
    bench
}

fn by_time(milli: u64) -> StopRule {
    StopRule {
        duration: Some(Nanos(milli * MILLI)),
        ..StopRule::default()
    }
}

fn by_count(requests: u64) -> StopRule {
    StopRule {
        requests: Some(requests),
        ..StopRule::default()
    }
}

fn by_sessions(sessions: u64) -> StopRule {
    StopRule {
        sessions: Some(sessions),
        ..StopRule::default()
    }
}

/// Plays it against a server that takes 20 to 60 ms for an answer.
fn play(bench: Bench, seed: u64) -> Played {
    let judged = Judged::of(&bench, seed);
    let mut simulation = Simulation::new(seed);
    simulation.server =
        Box::new(|_, chance| Answer::stream(3, Nanos(4 * MILLI + chance.below(8 * MILLI))));
    let played = bench.play(simulation);
    check(&played, &judged);
    let judged = judged.with(played);
    check_faultless(&judged);
    judged.played.expect("it was played")
}

fn of(played: &Played, phase: u8) -> impl Iterator<Item = &Exchange> {
    played.exchanges.iter().filter(move |e| e.id.phase == phase)
}

/// The slots that the first profiling requests took over were freed by the warmup, and none stood empty.
#[test]
fn profiling_begins_to_the_tick_when_the_warmup_stops_by_time() {
    for (slots, workers) in [(4, 1), (6, 2), (7, 3)] {
        let mut bench = bench(slots, by_time(100), slots, 60);
        bench.workers = workers;
        let played = play(bench, workers as u64);
        let [warmup, start] = [played.starts[0], played.starts[1]];
        let place = format!("{slots} slots on {workers} workers");
        assert_eq!(start, warmup.plus(100 * MILLI), "{place}");
        assert!(of(&played, 0).all(|e| e.ticks.submitted < start), "{place}");
        assert!(
            of(&played, 1).all(|e| e.ticks.submitted >= start),
            "{place}"
        );
        let over: Vec<Tick> = of(&played, 0)
            .map(|e| e.ticks.end)
            .filter(|&end| end >= start)
            .collect();
        assert_eq!(over.len(), slots, "{place}: all slots were in use");
        assert_eq!(played.outcome.most_at_once, slots as u64, "{place}");
        // A slot is taken over as it comes free, by a request that was due at that very tick.
        for end in over {
            let heirs = of(&played, 1).filter(|e| e.ticks.due == end).count();
            assert!(heirs >= 1, "{place}: nobody took the slot freed at {end:?}");
        }
    }
}

#[test]
fn profiling_begins_when_the_last_worker_has_sent_its_share() {
    for (stop, turns) in [(by_count(41), 1), (by_count(41), 4), (by_sessions(17), 4)] {
        for workers in 1..=3 {
            let mut bench = bench(6, stop, 6, 60);
            bench.workers = workers;
            bench.words = Words {
                turns,
                think: Nanos(5 * MILLI),
                ..bench.words
            };
            let played = play(bench, 7);
            let last = of(&played, 0).map(|e| e.ticks.submitted).max();
            let place = format!("{stop:?} on {workers} workers");
            assert_eq!(Some(played.starts[1]), last, "{place}");
            let ended = of(&played, 0).map(|e| e.ticks.end).max();
            let first = of(&played, 1).map(|e| e.ticks.start).min();
            assert!(first < ended, "{place}: it waited for a drain");
        }
    }
}

#[test]
fn the_dataset_goes_on_where_the_warmup_left_it() {
    for seamless in [true, false] {
        for stop in [by_time(150), by_count(30), by_sessions(12)] {
            let mut bench = bench(5, stop, 3, 20);
            bench.phases[1].seamless = seamless;
            bench.workers = 2;
            bench.words.turns = 3;
            let played = play(bench, 3);
            let most = of(&played, 0).map(|e| e.id.session).max();
            assert_eq!(Some(played.used[1]), most.map(|most| most + 1), "{stop:?}");
        }
    }
}

/// Requests of both phases under way on a worker when one of its profiling requests begins, itself included: the most, summed over
/// the workers.
fn beside(played: &Played) -> usize {
    let most_of = |worker: u16| {
        let of_worker = |e: &&Exchange| e.id.worker == worker;
        let counts = of(played, 1).filter(of_worker).map(|begun| {
            let now = begun.ticks.submitted;
            let all = played.exchanges.iter().filter(of_worker);
            all.filter(|e| e.ticks.submitted <= now && e.ticks.end > now)
                .count()
        });
        counts.max().unwrap_or(0)
    };
    (0..3).map(most_of).sum()
}

#[test]
fn slots_of_the_warmup_count_until_they_are_free() {
    for (before, after) in [(8, 3), (3, 8), (5, 5), (1, 4), (9, 1)] {
        for workers in [1, 2] {
            let mut bench = bench(before, by_time(90), after, 50);
            bench.workers = workers;
            let played = play(bench, 11);
            let place = format!("{before} then {after} on {workers}");
            assert_eq!(beside(&played), after, "{place}");
            let most = before.max(after) as u64;
            assert!(played.outcome.most_at_once <= most, "{place}");
        }
    }
}

#[test]
fn a_cap_on_a_rate_counts_the_warmups_sessions() {
    let mut bench = bench(6, by_time(60), 4, 60);
    bench.phases[1].arrivals = Arrivals::constant(2_000.0);
    let played = play(bench, 5);
    assert_eq!(beside(&played), 4);
    // The schedule begins at the hand-over, whatever is still in flight.
    let first = of(&played, 1).map(|e| e.ticks.due).min();
    assert_eq!(first, Some(played.starts[1].plus(MILLI / 2)));
}

/// Whatever limits the two phases, workers together hold no more than the larger one asked for: users, prefill slots and sessions make
/// phases of fewer workers than there are.
#[test]
fn phases_of_different_workers_hold_no_more_than_was_asked_for() {
    let prefill = |phase: &mut PhasePlan, most| phase.slots.prefill = Some(most);
    let (mut users, mut after, mut before) = (0, 0, 0);
    for seed in 0..300 {
        let size = |salt: u64| 1 + usize::try_from(scatter(seed * 7 + salt) % 6).unwrap_or(0);
        let mut bench = bench(size(1), by_time(30), size(2), 40);
        bench.workers = 2 + usize::from(seed % 2 == 0);
        bench.words.turns = 3;
        match seed % 4 {
            0 => {
                let plan = UsersPlan {
                    rate: 400.0,
                    users: u32::try_from(size(3)).expect("it is small"),
                    turns: 3,
                };
                bench.phases[1].arrivals = Arrivals::Users(plan);
                users += 1;
            }
            1 => prefill(&mut bench.phases[1], size(3).min(size(2))),
            2 => prefill(&mut bench.phases[0], size(3).min(size(1))),
            _ => bench.phases.iter_mut().for_each(|phase| prefill(phase, 1)),
        }
        let workers = |played: &Played, phase| {
            let workers = of(played, phase).map(|e| e.id.worker);
            workers.collect::<std::collections::BTreeSet<u16>>().len()
        };
        // The check of every run counts what was under way.
        let played = play(bench, seed);
        after += usize::from(workers(&played, 0) > workers(&played, 1));
        before += usize::from(workers(&played, 0) < workers(&played, 1));
    }
    assert!(users > 0 && after > 0 && before > 0, "{after} {before}");
}

/// The shortest way to the same: a warmup of two on two workers, and one user of two slots.
#[test]
fn one_user_after_a_warmup_on_two_workers_has_their_slots() {
    let mut bench = bench(2, by_time(50), 2, 8);
    let one = UsersPlan {
        rate: 500.0,
        users: 1,
        turns: 1,
    };
    bench.phases[1].arrivals = Arrivals::Users(one);
    bench.workers = 2;
    let played = play(bench, 1);
    assert_eq!(played.outcome.most_at_once, 2);
}

#[test]
fn the_warmups_grace_cuts_its_requests_alone() {
    let mut bench = bench(3, by_time(50), 3, 12);
    bench.phases[0].grace = Some(Nanos(30 * MILLI));
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    // The warmup's conversations are below 100,000; they never end.
    simulation.server = Box::new(|seen, _| {
        let profiling = seen.body.iter().take_while(|b| b.is_ascii_digit()).count() >= 6;
        Answer::stream(2, Nanos(if profiling { 10 * MILLI } else { SECOND }))
    });
    let played = bench.play(simulation);
    check(&played, &judged);
    let cut_at = played.starts[1].plus(30 * MILLI);
    for exchange in of(&played, 0) {
        assert_eq!(exchange.outcome, Ended::GraceEnded);
        assert_eq!(exchange.ticks.end, cut_at);
    }
    assert_eq!(of(&played, 0).count(), 3);
    let first = of(&played, 1).map(|e| e.ticks.due).min();
    assert_eq!(
        first,
        Some(cut_at),
        "slots that the cut freed are used at once"
    );
    assert!(of(&played, 1).all(|e| e.outcome == Ended::Success));
    assert_eq!(of(&played, 1).count(), 12);
}

#[test]
fn a_stop_in_the_overlap_ends_both_phases() {
    for stop in [Stop::Drain, Stop::Now] {
        let mut bench = bench(4, by_time(50), 6, 1_000);
        bench.workers = 2;
        let judged = Judged {
            interrupted: true,
            ..Judged::of(&bench, 1)
        };
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(|_, _| Answer::stream(3, Nanos(15 * MILLI)));
        let played = bench.play_with(simulation, |simulation, conductor| {
            let conductor = Arc::clone(conductor);
            let act = move || conductor.call(stop);
            simulation.acts.push((Tick(60 * MILLI), Box::new(act)));
        });
        check(&played, &judged);
        let phases = [of(&played, 0).count(), of(&played, 1).count()];
        assert!(phases.iter().all(|&count| count > 0), "{phases:?}");
        let cut = |e: &&Exchange| e.outcome == Ended::Interrupted;
        let cuts = [0, 1].map(|phase| of(&played, phase).filter(cut).count());
        assert_eq!(
            stop == Stop::Now,
            cuts.iter().all(|&count| count > 0),
            "{cuts:?}"
        );
    }
}

/// Whatever goes wrong, both phases add up.
#[test]
fn faults_in_the_overlap_leave_nothing_behind() {
    for seed in 0..60 {
        let stop = match seed % 3 {
            0 => by_time(5 + scatter(seed) % 60),
            1 => by_count(1 + scatter(seed) % 30),
            _ => by_sessions(1 + scatter(seed) % 20),
        };
        let size = |salt: u64| 1 + usize::try_from(scatter(seed + salt) % 7).unwrap_or(0);
        let mut bench = bench(size(100), stop, size(200), 30);
        bench.workers = size(300).min(3);
        bench.words.turns = 3;
        bench.request_timeout = Nanos(80 * MILLI);
        let judged = Judged::of(&bench, seed);
        let mut simulation = Simulation::new(seed);
        simulation.faults = Faults::all(0.05);
        check(&bench.play(simulation), &judged);
    }
}

/// The tail of a phase has drained before the one after next begins: never more than two at once.
#[test]
fn of_three_phases_two_overlap_at_most() {
    for workers in 1..=3 {
        let mut bench = bench(6, by_count(30), 6, 8);
        let third = bench.phases[1].clone();
        bench.phases.push(third);
        bench.workers = workers;
        let played = play(bench, 9);
        let ends = |phase| of(&played, phase).map(|e| e.ticks.end).max();
        let starts = |phase| of(&played, phase).map(|e| e.ticks.submitted).min();
        assert!(starts(1) < ends(0) && starts(2) < ends(1), "{workers}");
        assert!(starts(2) >= ends(0), "{workers}");
        assert_eq!(of(&played, 2).count(), 8);
    }
}
