//! The engine's promises, in simulated time, under every fault the network knows.
//!
//! In: seeds. Out: runs in which every request ends exactly once, nothing hangs, and nothing leaks. Never: a socket or a clock;
//! every failure names the seed that replays it.

#[path = "engine/accounts.rs"]
mod accounts;
#[path = "engine/bench.rs"]
mod bench;
#[path = "endpoint/byte_tokenizer.rs"]
mod byte_tokenizer;

#[path = "engine/cancel.rs"]
mod cancel;

#[path = "engine/check.rs"]
mod check;

#[path = "engine/ends.rs"]
mod ends;

#[path = "engine/eyeballs.rs"]
mod eyeballs;

#[path = "engine/handover.rs"]
mod handover;

#[path = "engine/faults.rs"]
mod faults;

#[path = "engine/limits.rs"]
mod limits;

#[path = "engine/listening.rs"]
mod listening;
#[path = "engine/plans.rs"]
mod plans;
#[path = "engine/proxies.rs"]
mod proxies;
#[path = "engine/replies.rs"]
mod replies;
#[path = "engine/secure.rs"]
mod secure;
#[path = "engine/seeded.rs"]
mod seeded;

#[path = "engine/sessions.rs"]
mod sessions;
#[path = "engine/slots.rs"]
mod slots;

#[path = "engine/stamps.rs"]
mod stamps;

#[path = "engine/stretches.rs"]
mod stretches;

#[path = "engine/traces.rs"]
mod traces;
#[path = "engine/written.rs"]
mod written;

use bench::{Bench, MILLI, Played, SECOND, address, at, closed_loop};
use check::{Judged, check, check_faultless};
use plans::random_bench;
use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, ConnectionReuse, Gaps, PhaseKind, PhasePlan, StopRule};
use tokenring::driver::simulated::{
    Answer, Chance, Delimiter, Ending, Faults, Host, Reach, SeenRequest, Simulation,
};
use tokenring::engine::Stop;
use tokenring::record::{Exchange, Outcome as Ended};
use tokenring::wire::Fault;

/// Seeds `from..from + count`; `TOKENRING_SEEDS=20` tries twenty times as many.
fn seeds(from: u64, count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("TOKENRING_SEEDS").ok();
    let times = more.and_then(|more| more.parse().ok()).unwrap_or(1);
    from..from + count * times
}

fn play_random(seed: u64, faults: Faults, timeout: Nanos) -> Judged {
    play_random_bench(random_bench(seed), seed, faults, timeout)
}

fn play_random_bench(mut bench: Bench, seed: u64, faults: Faults, timeout: Nanos) -> Judged {
    bench.request_timeout = timeout;
    let judged = Judged::of(&bench, seed);
    let mut simulation = Simulation::new(seed);
    simulation.faults = faults;
    let played = bench.play(simulation);
    check(&played, &judged);
    judged.with(played)
}

#[test]
fn without_faults_every_request_is_a_success() {
    for seed in seeds(0, 400) {
        let judged = play_random(seed, Faults::none(), Nanos(600 * SECOND));
        check_faultless(&judged);
    }
}

#[test]
fn torn_and_late_reads_change_no_result() {
    for seed in seeds(1_000, 600) {
        let judged = play_random(seed, Faults::rough(), Nanos(600 * SECOND));
        check_faultless(&judged);
    }
}

/// The response may be there before the driver has said that the request went out.
#[test]
fn late_completions_of_sends_change_no_result() {
    let faults = Faults {
        late_sent: 0.5,
        ..Faults::rough()
    };
    for seed in seeds(1_600, 300) {
        check_faultless(&play_random(seed, faults, Nanos(600 * SECOND)));
    }
}

#[test]
fn a_seed_replays_to_the_tick() {
    for seed in [2_001, 2_002, 2_003, 2_004, 2_005, 2_006] {
        let play = || {
            let judged = play_random(seed, Faults::all(0.05), Nanos(30 * MILLI));
            let played = judged.played.expect("it was played");
            format!("{:?}{:?}", played.outcome.requests, played.exchanges)
        };
        assert_eq!(play(), play(), "seed {seed}");
    }
}

/// Nobody is late in a world that takes no time: requests start when they are due, to the tick.
#[test]
fn requests_start_when_they_are_due() {
    for (arrivals, concurrency) in [
        (Arrivals::constant(700.0), None),
        (Arrivals::poisson(700.0), None),
        (Arrivals::ClosedLoop, Some(5)),
    ] {
        for reuse in [ConnectionReuse::Pooled, ConnectionReuse::Never] {
            let mut bench = Bench::new(PhasePlan {
                arrivals: arrivals.clone(),
                ..closed_loop(5, 200)
            });
            bench.phases[0].concurrency = concurrency;
            bench.workers = 3;
            bench.reuse = reuse;
            let judged = Judged::of(&bench, 1);
            let mut simulation = Simulation::new(1);
            simulation.server = Box::new(stream);
            let played = bench.play(simulation);
            check(&played, &judged);
            let mut dues = Vec::new();
            for exchange in &played.exchanges {
                assert_eq!(exchange.ticks.start, exchange.ticks.due, "{arrivals:?}");
                assert_eq!(exchange.ticks.slot, exchange.ticks.due, "{arrivals:?}");
                // A worker can spin shortly before a send only if it knows of it.
                let known = played.outcome.announced.contains(&exchange.ticks.due);
                let by_rate = arrivals != Arrivals::ClosedLoop;
                let first = exchange.ticks.due == played.starts[0];
                assert_eq!(known, by_rate || first, "{arrivals:?}");
                dues.push(exchange.ticks.due);
            }
            if let Arrivals::Rated {
                gaps: Gaps::Even,
                rate,
            } = &arrivals
            {
                dues.sort_unstable();
                for (number, due) in dues.iter().enumerate() {
                    let seconds = (number + 1) as f64 / rate.last();
                    let expected = played.starts[0].plus(Nanos::from_seconds(seconds).0);
                    assert_eq!(*due, expected);
                }
            }
        }
    }
}

/// With a cap the wait for a slot is told apart from the client's own lateness, which is none in a world that takes no time.
#[test]
fn a_wait_for_a_slot_is_no_lateness_of_the_client() {
    let mut bench = Bench::new(PhasePlan {
        arrivals: Arrivals::constant(5_000.0),
        ..closed_loop(2, 60)
    });
    bench.words.turns = 3;
    bench.words.think = Nanos(MILLI);
    let judged = Judged::of(&bench, 7);
    let mut simulation = Simulation::new(7);
    simulation.server = Box::new(stream);
    let played = bench.play(simulation);
    check(&played, &judged);
    let ends: Vec<Tick> = played.exchanges.iter().map(|e| e.ticks.end).collect();
    let mut waited = 0;
    for exchange in &played.exchanges {
        let ticks = exchange.ticks;
        assert_eq!(ticks.slot, ticks.submitted, "{ticks:?}");
        if ticks.slot > ticks.due {
            waited += 1;
            // It was there when a session ended, or at the end of a turn's think time.
            let freed = ends.contains(&ticks.slot) || exchange.id.turn > 0;
            assert!(freed, "{ticks:?}");
        }
    }
    assert!(waited > 30, "only {waited} waited");
}

#[test]
fn few_faults_of_every_kind_leave_nothing_behind() {
    for seed in seeds(2_000, 800) {
        play_random(seed, Faults::all(0.01), Nanos(SECOND));
    }
}

#[test]
fn many_faults_of_every_kind_leave_nothing_behind() {
    for seed in seeds(3_000, 800) {
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

/// 50 of 50 at once (F5): none waits for another, also where they do not divide by the workers.
#[test]
fn a_burst_starts_at_once_on_every_worker() {
    for (concurrency, workers) in [(50, 1), (50, 2), (50, 3), (7, 4), (3, 5)] {
        let mut bench = Bench::new(closed_loop(concurrency, 200));
        bench.workers = workers;
        let mut simulation = Simulation::new(concurrency as u64);
        simulation.server = Box::new(stream);
        let played = bench.play(simulation);
        let start = played.starts[0];
        let first = played.exchanges.iter().filter(|e| e.ticks.due == start);
        let first: Vec<&Exchange> = first.collect();
        let place = format!("{concurrency} over {workers}");
        assert_eq!(first.len(), concurrency, "{place}");
        let sent = first[0].ticks.first_byte_sent;
        for exchange in first {
            assert_eq!(exchange.ticks.submitted, start, "{place}");
            assert_eq!(exchange.ticks.first_byte_sent, sent, "{place}");
        }
    }
}

/// Counts by outcome over many runs, so that a fault that never comes about is noticed.
#[test]
fn the_faults_of_the_simulation_come_about() {
    let mut seen = std::collections::BTreeMap::new();
    let mut resent = 0;
    for seed in 0..300 {
        let judged = play_random(seed, Faults::all(0.05), Nanos(30 * MILLI));
        let played = judged.played.expect("it was played");
        for exchange in &played.exchanges {
            *seen.entry(format!("{:?}", exchange.outcome)).or_insert(0) += 1;
        }
        resent += played.counts.resent;
    }
    assert!(resent > 20, "{resent} sent again");
    for outcome in [
        "Success",
        "Timeout",
        "GraceEnded",
        "Fault(BadHead)",
        "Fault(BadChunkSize)",
        "Fault(Truncated)",
        "Fault(ClosedBeforeResponse)",
        "Fault(Reset)",
        "Fault(ConnectRefused)",
        "Fault(ConnectTimeout)",
    ] {
        let count = seen.get(outcome).copied().unwrap_or(0);
        assert!(count > 20, "{outcome} came {count} times of {seen:?}");
    }
}

/// One request after another on one worker, each answered by `answer`.
fn play_answers(
    concurrency: usize,
    requests: u64,
    timeout: Nanos,
    answer: impl FnMut(&SeenRequest, &mut Chance) -> Answer + 'static,
) -> Played {
    let mut bench = Bench::new(closed_loop(concurrency, requests));
    bench.request_timeout = timeout;
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(answer);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

fn stream(_: &SeenRequest, _: &mut Chance) -> Answer {
    Answer::stream(3, Nanos(MILLI))
}

/// Every other request finds its connection closed: just closed while idle, or as the request comes.
#[test]
fn a_pooled_connection_that_proves_closed_is_replaced_without_an_error() {
    let idle = Faults {
        idle_close: 1.0,
        ..Faults::none()
    };
    let race = Faults {
        close_on_request: 1.0,
        ..Faults::none()
    };
    for (faults, reuse) in [
        (idle, ConnectionReuse::Pooled),
        (race, ConnectionReuse::Pooled),
        (race, ConnectionReuse::StickyUserSessions),
    ] {
        let mut bench = Bench::new(closed_loop(3, 60));
        bench.reuse = reuse;
        bench.words.turns = 4;
        bench.words.think = Nanos(10 * MILLI);
        let judged = Judged::of(&bench, 5);
        let mut simulation = Simulation::new(5);
        simulation.faults = faults;
        simulation.server = Box::new(stream);
        let played = bench.play(simulation);
        check(&played, &judged);
        assert_eq!(played.counts.whole, 60, "{reuse:?}");
        assert!(played.counts.resent > 0, "{reuse:?}");
        for exchange in played.exchanges.iter().filter(|e| e.link.resent) {
            assert!(!exchange.link.reused && exchange.link.sent_whole);
            let ticks = exchange.ticks;
            assert!(ticks.start < ticks.connect_start, "the clock goes on");
        }
    }
}

#[test]
fn a_request_is_sent_again_once_only() {
    let mut bench = Bench::new(closed_loop(1, 2));
    bench.request_timeout = Nanos(SECOND);
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    // The second request's connections are closed before they answer: the pooled one, then the new one.
    simulation.server = Box::new(|seen, _| {
        let mut answer = Answer::stream(2, Nanos(MILLI));
        if !seen.body.starts_with(b"0 ") {
            answer.ending = Ending::Close(0);
        }
        answer
    });
    let played = bench.play(simulation);
    check(&played, &judged);
    assert_eq!(played.outcome.requests.len(), 3);
    let last = &played.exchanges[1];
    assert!(last.link.resent);
    assert_eq!(last.outcome, Ended::Fault(Fault::ClosedBeforeResponse));
}

/// A new connection that is closed without an answer is the server's fault, not a race.
#[test]
fn a_request_on_a_new_connection_is_not_sent_again() {
    let played = play_answers(1, 1, Nanos(SECOND), |_, _| Answer {
        ending: Ending::Close(0),
        ..Answer::stream(2, Nanos(MILLI))
    });
    assert_eq!(played.counts.resent, 0);
    assert_eq!(
        played.exchanges[0].outcome,
        Ended::Fault(Fault::ClosedBeforeResponse)
    );
}

#[test]
fn the_limit_ends_a_request_to_the_tick() {
    let played = play_answers(1, 3, Nanos(250 * MILLI), |_, _| Answer {
        ending: Ending::Stall(200),
        ..Answer::stream(9, Nanos(MILLI))
    });
    for exchange in &played.exchanges {
        assert_eq!(exchange.outcome, Ended::Timeout);
        let ticks = exchange.ticks;
        assert_eq!(ticks.end.since(ticks.start), 250 * MILLI);
        assert!(!exchange.events.is_empty(), "what had come is kept");
    }
}

#[test]
fn three_thousand_stalled_streams_end_at_the_limit() {
    let played = play_answers(3_000, 3_000, Nanos(2 * SECOND), |_, _| Answer {
        ending: Ending::Stall(180),
        ..Answer::stream(9, Nanos(MILLI))
    });
    assert_eq!(played.outcome.most_at_once, 3_000);
    assert_eq!(played.counts.failed, 3_000);
    for exchange in &played.exchanges {
        assert_eq!(exchange.ticks.end.since(exchange.ticks.start), 2 * SECOND);
    }
}

#[test]
fn connecting_that_leads_nowhere_ends_at_the_limit() {
    let mut bench = Bench::new(closed_loop(2, 4));
    bench.request_timeout = Nanos(100 * MILLI);
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    let silent = Host {
        reach: Reach::Silent,
        tls: None,
    };
    simulation.hosts.insert(address("10.0.0.1:80"), silent);
    let played = bench.play(simulation);
    check(&played, &judged);
    for exchange in &played.exchanges {
        assert_eq!(exchange.outcome, Ended::Fault(Fault::ConnectTimeout));
        let ticks = exchange.ticks;
        assert_eq!(ticks.end.since(ticks.start), 100 * MILLI);
        assert_eq!(ticks.first_byte_sent, Tick::NEVER);
    }
}

/// Addresses of one name are tried in order; only when all refuse is the request lost.
#[test]
fn a_dead_first_address_leads_to_the_second() {
    let refused = Host {
        reach: Reach::Refused,
        tls: None,
    };
    for all_dead in [false, true] {
        let mut bench = Bench::new(closed_loop(2, 10));
        bench.targets = vec![at(&["10.0.0.1:80", "10.0.0.2:80"], None)];
        bench.reuse = ConnectionReuse::Never;
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(stream);
        simulation
            .hosts
            .insert(address("10.0.0.1:80"), refused.clone());
        if all_dead {
            simulation
                .hosts
                .insert(address("10.0.0.2:80"), refused.clone());
        }
        let played = bench.play(simulation);
        check(&played, &judged);
        for exchange in &played.exchanges {
            let expected = if all_dead {
                Ended::Fault(Fault::ConnectRefused)
            } else {
                Ended::Success
            };
            assert_eq!(exchange.outcome, expected);
            assert_eq!(exchange.link.address, 1);
        }
    }
}

/// A phase that ends by the clock while streams are under way.
fn timed(grace: Option<Nanos>) -> PhasePlan {
    PhasePlan {
        stop: StopRule {
            duration: Some(Nanos(100 * MILLI)),
            ..StopRule::default()
        },
        grace,
        ..closed_loop(4, 1)
    }
}

#[test]
fn grace_cuts_what_is_under_way_at_its_end() {
    for (grace, gap, cut_at) in [
        (Some(Nanos(0)), 40, Some(100 * MILLI)),
        (Some(Nanos(30 * MILLI)), 60, Some(130 * MILLI)),
        (Some(Nanos(500 * MILLI)), 60, None),
        (None, 60, None),
    ] {
        let mut bench = Bench::new(timed(grace));
        bench.workers = 3;
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(move |_, _| Answer::stream(3, Nanos(gap * MILLI)));
        let played = bench.play(simulation);
        check(&played, &judged);
        let cancelled = if cut_at.is_some() { 4 } else { 0 };
        assert_eq!(played.counts.cancelled, cancelled, "{grace:?}");
        let start = played.starts[0];
        for exchange in &played.exchanges {
            assert!(exchange.ticks.start.since(start) < 100 * MILLI);
            if exchange.outcome == Ended::Success {
                continue;
            }
            assert_eq!(exchange.outcome, Ended::GraceEnded, "{grace:?}");
            assert_eq!(Some(exchange.ticks.end.since(start)), cut_at);
        }
    }
}

#[test]
fn a_stop_drains_and_a_second_one_cuts() {
    for (second_at, cut_from) in [(None, 80 + 1_000), (Some(200), 200)] {
        let mut bench = Bench::new(closed_loop(5, 1_000));
        bench.workers = 2;
        let judged = Judged {
            interrupted: true,
            ..Judged::of(&bench, 1)
        };
        let mut simulation = Simulation::new(1);
        // Odd sessions take long, even ones do not.
        simulation.server = Box::new(|seen, _| {
            let long = seen.body.first().is_some_and(|digit| digit % 2 == 1);
            Answer::stream(3, Nanos(if long { SECOND } else { 10 * MILLI }))
        });
        let played = bench.play_with(simulation, |simulation, conductor| {
            for (at, stop) in [(Some(80), Stop::Drain), (second_at, Stop::Now)] {
                let conductor = std::sync::Arc::clone(conductor);
                if let Some(at) = at {
                    let act = move || conductor.call(stop);
                    simulation.acts.push((Tick(at * MILLI), Box::new(act)));
                }
            }
        });
        check(&played, &judged);
        // A stop is seen within the engine's longest wait.
        let seen = 20 * MILLI;
        let cut = |e: &&Exchange| e.outcome == Ended::Interrupted;
        assert!(played.exchanges.iter().filter(cut).count() >= 3);
        assert_eq!(
            played.counts.whole + played.counts.cancelled,
            played.counts.sent
        );
        assert_eq!(
            played.counts.sent.cast_signed() + played.counts.profiling.unsent,
            1_000
        );
        for exchange in &played.exchanges {
            assert!(exchange.ticks.start <= Tick(80 * MILLI + seen));
        }
        for exchange in played.exchanges.iter().filter(cut) {
            let end = exchange.ticks.end;
            let range = Tick(cut_from * MILLI)..=Tick(cut_from * MILLI + seen);
            assert!(range.contains(&end), "{end:?} not in {range:?}");
        }
    }
}

/// A stop while the workers wait for each other between two phases ends them all.
#[test]
fn a_stop_in_the_warmup_leaves_the_profiling_out() {
    let mut bench = Bench::new(closed_loop(3, 30));
    let warmup = PhasePlan {
        kind: PhaseKind::Warmup,
        ..closed_loop(3, 30)
    };
    bench.phases.insert(0, warmup);
    bench.workers = 3;
    let judged = Judged {
        interrupted: true,
        ..Judged::of(&bench, 1)
    };
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(stream);
    let played = bench.play_with(simulation, |simulation, conductor| {
        let conductor = std::sync::Arc::clone(conductor);
        let act = move || conductor.call(Stop::Drain);
        simulation.acts.push((Tick(8 * MILLI), Box::new(act)));
    });
    check(&played, &judged);
    assert!(played.exchanges.iter().all(|e| e.id.phase == 0));
    assert!(!played.exchanges.is_empty());
}

#[test]
fn phases_do_not_overlap_on_any_worker() {
    for seed in 0..40 {
        let chance = &mut Chance::new(seed);
        let mut bench = Bench::new(closed_loop(1 + chance.index(7), 40));
        let warmup = PhasePlan {
            kind: PhaseKind::Warmup,
            ..closed_loop(1 + chance.index(7), 20)
        };
        bench.phases.insert(0, warmup);
        bench.workers = 3;
        let judged = Judged::of(&bench, seed);
        let mut simulation = Simulation::new(seed);
        simulation.faults = Faults::rough();
        let played = bench.play(simulation);
        check(&played, &judged);
        let of = |phase| played.exchanges.iter().filter(move |e| e.id.phase == phase);
        let last = of(0).map(|e| e.ticks.end).max();
        let first = of(1).map(|e| e.ticks.start).min();
        assert!(last < first, "seed {seed}: {last:?}, {first:?}");
        assert!(first >= Some(played.starts[1]), "seed {seed}");
    }
}

#[test]
fn a_body_kept_open_after_done_ends_after_the_drain() {
    for delimiter in [Delimiter::Chunked, Delimiter::Length, Delimiter::Close] {
        let played = play_answers(1, 3, Nanos(60 * SECOND), move |_, _| Answer {
            delimiter,
            ending: Ending::Open,
            ..Answer::stream(2, Nanos(MILLI))
        });
        for (exchange, left) in played.exchanges.iter().zip(&played.left) {
            assert_eq!(exchange.outcome, Ended::Success, "{delimiter:?}");
            assert!(exchange.head.is_some_and(|head| !head.keep_alive));
            assert!(exchange.link.left_open, "{delimiter:?}");
            assert_eq!(exchange.events.len(), 3);
            let done = exchange.reads.last().expect("it was read").tick;
            assert_eq!(
                exchange.ticks.end, done,
                "the reply ends with its last byte"
            );
            assert_eq!(
                left.since(done),
                SECOND,
                "and its slot is held for the rest"
            );
        }
        assert_eq!(played.counts.connects, 3);
    }
}

#[test]
fn a_body_cut_short_after_done_is_a_fault() {
    let played = play_answers(1, 2, Nanos(60 * SECOND), |_, _| {
        let answer = Answer::stream(2, Nanos(MILLI));
        // All but the last chunk.
        let most = answer.wire_length() - b"0\r\n\r\n".len();
        Answer {
            ending: Ending::Close(most),
            ..answer
        }
    });
    for exchange in &played.exchanges {
        assert_eq!(exchange.outcome, Ended::Fault(Fault::Truncated));
        assert_eq!(exchange.events.len(), 3, "[DONE] had come");
    }
}

#[test]
fn an_answer_before_the_whole_request_is_taken_and_its_connection_is_not() {
    let mut bench = Bench::new(closed_loop(2, 20));
    bench.words.body_bytes = 5_000;
    let judged = Judged::of(&bench, 3);
    let mut simulation = Simulation::new(3);
    simulation.server = Box::new(|_, _| Answer::json(413, "{}", Nanos(1)));
    simulation.faults = Faults {
        early_answer: 0.5,
        request_split: 1.0,
        late_sent: 1.0,
        ..Faults::none()
    };
    let played = bench.play(simulation);
    check(&played, &judged);
    let early = |seen: &&SeenRequest| seen.answer.as_ref().is_some_and(|a| a.early);
    assert!(played.outcome.requests.iter().filter(early).count() > 3);
    for exchange in &played.exchanges {
        assert_eq!(exchange.head.map(|head| head.status), Some(413));
    }
}

/// Sessions that end with the warmup take their own connections with them.
#[test]
fn sticky_connections_of_dropped_sessions_are_closed() {
    let mut bench = Bench::new(closed_loop(2, 8));
    let warmup = PhasePlan {
        kind: PhaseKind::Warmup,
        ..closed_loop(6, 9)
    };
    bench.phases.insert(0, warmup);
    bench.reuse = ConnectionReuse::StickyUserSessions;
    bench.words.turns = 9;
    bench.words.think = Nanos(20 * MILLI);
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(stream);
    let played = bench.play(simulation);
    check(&played, &judged);
    let warm = |seen: &&SeenRequest| seen.at < played.starts[1];
    let first: Vec<usize> = played
        .outcome
        .requests
        .iter()
        .filter(warm)
        .map(|s| s.connection)
        .collect();
    let closed = played.outcome.closed_at.iter();
    for (&connection, &at) in closed.filter(|(connection, _)| first.contains(connection)) {
        assert!(
            at <= played.starts[1],
            "connection {connection} lived on to {at:?}"
        );
    }
}

/// The run of `seed` with TLS towards every target.
fn play_secure(seed: u64, faults: Faults, timeout: Nanos) -> Judged {
    let mut bench = random_bench(seed);
    bench.request_timeout = timeout;
    let mut simulation = Simulation::new(seed);
    secure::everywhere(&mut bench, &mut simulation);
    let judged = Judged::of(&bench, seed);
    simulation.faults = faults;
    let played = bench.play(simulation);
    check(&played, &judged);
    judged.with(played)
}

#[test]
fn tls_changes_no_result() {
    for seed in seeds(0, 60) {
        check_faultless(&play_secure(seed, Faults::none(), Nanos(600 * SECOND)));
    }
    for seed in seeds(60, 60) {
        let judged = play_secure(seed, Faults::rough(), Nanos(600 * SECOND));
        check_faultless(&judged);
        let played = judged.played.as_ref().expect("it was played");
        for exchange in played
            .exchanges
            .iter()
            .filter(|e| e.outcome == Ended::Success)
        {
            let ticks = exchange.ticks;
            let new = ticks.connect_start != Tick::NEVER;
            assert_eq!(new, ticks.tls_end != Tick::NEVER, "seed {seed}: {ticks:?}");
            if new {
                assert!(ticks.connect_end < ticks.tls_end, "seed {seed}: {ticks:?}");
                assert!(
                    ticks.tls_end <= ticks.first_byte_sent,
                    "seed {seed}: {ticks:?}"
                );
            }
        }
    }
}

#[test]
fn faults_below_tls_leave_nothing_behind() {
    for seed in seeds(200, 120) {
        play_secure(seed, Faults::all(0.03), Nanos(100 * MILLI));
    }
}

/// One request over TLS, or what was meant for it.
fn play_one_secure(
    client: tokenring::engine::TlsTarget,
    host: Host,
    faults: Faults,
    answer: Answer,
) -> Played {
    let mut bench = Bench::new(closed_loop(1, 2));
    bench.request_timeout = Nanos(10 * SECOND);
    bench.targets = vec![at(&["10.0.0.1:443"], Some(client))];
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.hosts.insert(address("10.0.0.1:443"), host);
    simulation.faults = faults;
    simulation.server = Box::new(move |_, _| answer.clone());
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

fn secure_host() -> Host {
    Host {
        tls: Some(secure::server()),
        ..Host::default()
    }
}

/// Anybody can close a connection; only the peer can say so inside TLS.
#[test]
fn a_body_until_the_close_needs_close_notify() {
    for (no_close_notify, expected) in
        [(0.0, Ended::Success), (1.0, Ended::Fault(Fault::Truncated))]
    {
        let faults = Faults {
            no_close_notify,
            ..Faults::none()
        };
        let answer = Answer {
            delimiter: Delimiter::Close,
            ..Answer::stream(3, Nanos(MILLI))
        };
        let client = secure::client("peer.test", true);
        let played = play_one_secure(client, secure_host(), faults, answer);
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, expected);
            assert_eq!(exchange.events.len(), 4);
        }
    }
}

/// Bytes that follow close_notify once kept the engine reading them for ever.
#[test]
fn bytes_after_close_notify_are_ignored() {
    for delimiter in [Delimiter::Close, Delimiter::Chunked] {
        let answer = Answer {
            delimiter,
            keep_alive: false,
            // More than TLS takes off the wire at once.
            after_end: vec![b'.'; 20_000],
            ..Answer::stream(3, Nanos(MILLI))
        };
        let client = secure::client("peer.test", true);
        let played = play_one_secure(client, secure_host(), Faults::none(), answer);
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, Ended::Success, "{delimiter:?}");
        }
    }
}

#[test]
fn close_notify_ends_a_body_without_the_end_of_the_connection() {
    let answer = Answer {
        delimiter: Delimiter::Close,
        ending: Ending::Notify,
        ..Answer::json(200, "{}", Nanos(MILLI))
    };
    let client = secure::client("peer.test", true);
    let played = play_one_secure(client, secure_host(), Faults::none(), answer);
    for exchange in &played.exchanges {
        assert_eq!(exchange.outcome, Ended::Success);
    }
    // Chunked bodies end by themselves; a connection that cannot answer further is not used again.
    let answer = Answer {
        ending: Ending::Notify,
        ..Answer::stream(1, Nanos(MILLI))
    };
    let client = secure::client("peer.test", true);
    let played = play_one_secure(client, secure_host(), Faults::none(), answer);
    assert_eq!((played.counts.whole, played.counts.connects), (2, 2));
}

#[test]
fn a_certificate_that_does_not_hold_is_a_tls_fault() {
    for (client, fault) in [
        (
            secure::client("peer.test", false),
            Fault::TlsUnknownAuthority,
        ),
        (secure::client("other.test", true), Fault::TlsWrongName),
    ] {
        let answer = Answer::stream(3, Nanos(MILLI));
        let played = play_one_secure(client, secure_host(), Faults::none(), answer);
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, Ended::Fault(fault));
            assert_eq!(exchange.ticks.first_byte_sent, Tick::NEVER);
        }
    }
}

#[test]
fn a_server_without_tls_is_waited_for_until_the_limit() {
    let client = secure::client("peer.test", true);
    let answer = Answer::stream(3, Nanos(MILLI));
    let played = play_one_secure(client, Host::default(), Faults::none(), answer);
    for exchange in &played.exchanges {
        assert_eq!(exchange.outcome, Ended::Timeout);
        assert_eq!(exchange.ticks.tls_end, Tick::NEVER);
    }
}
