//! Exact concurrency, ramps, prefill slots and connections opened ahead, in virtual time.
//!
//! In: phases with limits. Out: what the servers saw at once, and when. Never: a bound that needs a quiet machine.

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, ConnectionReuse, PhasePlan, SlotPlan, StopRule};
use tokenring::driver::simulated::{Answer, Host, Reach, Simulation};
use tokenring::record::{Exchange, Outcome};
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, Played, SECOND, address, at, closed_loop};
use crate::{secure, stream};

fn simulation() -> Simulation {
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(stream);
    simulation
}

fn for_duration(nanos: u64) -> StopRule {
    StopRule {
        duration: Some(Nanos(nanos)),
        ..StopRule::default()
    }
}

fn with_slots(mut phase: PhasePlan, slots: SlotPlan) -> PhasePlan {
    phase.slots = slots;
    phase
}

/// How many are under way at each change, with the time: the ends of one moment before its beginnings.
fn under_way(spans: impl Iterator<Item = (Tick, Tick)>) -> Vec<(Tick, i64)> {
    let mut changes: Vec<(Tick, i64)> = spans.flat_map(|(a, b)| [(a, 1), (b, -1)]).collect();
    changes.sort_unstable();
    let (mut steps, mut open): (Vec<(Tick, i64)>, i64) = (Vec::new(), 0);
    for (at, change) in changes {
        open += change;
        match steps.last_mut() {
            Some(last) if last.0 == at => last.1 = open,
            _ => steps.push((at, open)),
        }
    }
    steps
}

/// When a reply's first event had come: the end of its prefill, as the default workload sees it.
fn first_content(exchange: &Exchange) -> Tick {
    match exchange.events.first() {
        Some(mark) => exchange.reads[mark.read as usize].arrival(),
        None => exchange.ticks.end,
    }
}

/// E9: 7 streams on 4 workers are 7 at every moment until sending ends, never 6 or 8.
#[test]
fn seven_streams_on_four_workers_are_seven_all_the_time() {
    let mut bench = Bench::new(PhasePlan {
        stop: for_duration(100 * MILLI),
        ..closed_loop(7, 1)
    });
    bench.workers = 4;
    let played = bench.play(simulation());
    let end = played.starts[0].plus(100 * MILLI);
    let spans = played.exchanges.iter().map(|e| (e.ticks.due, e.ticks.end));
    let steps = under_way(spans);
    assert!(steps.len() > 10, "{steps:?}");
    for (at, open) in steps.into_iter().filter(|(at, _)| *at < end) {
        assert_eq!(open, 7, "at {at:?}");
    }
    assert_eq!(played.outcome.most_at_once, 7, "as the servers saw it");
}

#[test]
fn a_ramp_opens_streams_one_by_one_over_all_workers() {
    for workers in [1, 2, 4] {
        let mut bench = Bench::new(with_slots(
            PhasePlan {
                stop: for_duration(100 * MILLI),
                ..closed_loop(5, 1)
            },
            SlotPlan {
                concurrency_ramp: Some(Nanos(40 * MILLI)),
                ..SlotPlan::default()
            },
        ));
        bench.workers = workers;
        let played = bench.play(simulation());
        let start = played.starts[0];
        let spans = played.exchanges.iter().map(|e| (e.ticks.due, e.ticks.end));
        for (at, open) in under_way(spans)
            .into_iter()
            .filter(|(at, _)| *at < start.plus(100 * MILLI))
        {
            let due = i64::try_from(at.since(start) / (10 * MILLI))
                .unwrap_or(4)
                .min(4)
                + 1;
            assert_eq!(open, due, "{workers} workers, {at:?}");
        }
        for step in 0..5 {
            let opened = start.plus(step * 10 * MILLI);
            let first = played.exchanges.iter().find(|e| e.ticks.due == opened);
            let first = first.unwrap_or_else(|| panic!("no slot opened at step {step}"));
            assert_eq!(first.ticks.submitted, opened, "it is used at once");
        }
    }
}

fn play_prefill(concurrency: usize, prefill: usize, workers: usize, turns: u32) -> Played {
    let mut bench = Bench::new(with_slots(
        closed_loop(concurrency, 120),
        SlotPlan {
            prefill: Some(prefill),
            ..SlotPlan::default()
        },
    ));
    bench.workers = workers;
    bench.words.turns = turns;
    bench.play(simulation())
}

#[test]
fn no_more_requests_than_prefill_slots_wait_for_their_first_event() {
    for (concurrency, prefill, workers, turns) in
        [(8, 3, 1, 1), (8, 3, 2, 1), (8, 3, 3, 4), (8, 1, 3, 4)]
    {
        let played = play_prefill(concurrency, prefill, workers, turns);
        let place = format!("{prefill} of {concurrency} over {workers}");
        assert_eq!(played.counts.whole, 120, "{place}: nobody starves");
        let spans = |end: fn(&Exchange) -> Tick| {
            let spans = played.exchanges.iter().map(move |e| (e.ticks.due, end(e)));
            under_way(spans).into_iter().map(|(_, open)| open).max()
        };
        assert_eq!(spans(first_content), Some(prefill as i64), "{place}");
        let open = spans(|e| e.ticks.end);
        assert!(
            open > Some(prefill as i64),
            "{place}: the slot is free before the end"
        );
        assert!(
            played
                .exchanges
                .iter()
                .all(|e| e.ticks.submitted == e.ticks.due),
            "{place}"
        );
    }
}

/// What is no stream, or fails, holds its slot to its end and gives it back.
#[test]
fn replies_without_events_hold_their_prefill_slot_to_the_end() {
    for status in [200, 500] {
        let mut bench = Bench::new(with_slots(
            closed_loop(6, 40),
            SlotPlan {
                prefill: Some(2),
                ..SlotPlan::default()
            },
        ));
        bench.workers = 2;
        let mut simulation = Simulation::new(3);
        simulation.server = Box::new(move |_, _| Answer::json(status, "{}", Nanos(MILLI)));
        let played = bench.play(simulation);
        assert_eq!(played.counts.whole, 40);
        assert_eq!(played.outcome.most_at_once, 2);
    }
}

/// So many that the server's queue of new connections would overflow if they all came at once.
#[test]
fn connections_ahead_of_a_phase_are_opened_some_at_a_time() {
    for (workers, most) in [(1, 128), (3, 126)] {
        let mut bench = Bench::new(with_slots(
            closed_loop(400, 400),
            SlotPlan {
                pre_connect: 400,
                ..SlotPlan::default()
            },
        ));
        bench.workers = workers;
        let played = bench.play(simulation());
        assert_eq!(played.counts.opened_ahead, 400);
        let ticks = played.exchanges.iter().map(|e| e.ticks);
        let spans = ticks.map(|t| (t.connect_start, t.connect_end));
        let at_once = under_way(spans).into_iter().map(|(_, open)| open).max();
        assert_eq!(at_once, Some(most), "{workers} workers");
    }
}

/// A connection that is there costs the first request nothing, and its set-up is told all the same.
#[test]
fn a_burst_on_open_connections_goes_out_at_once() {
    for (workers, tls, reuse) in [
        (1, false, ConnectionReuse::Pooled),
        (3, false, ConnectionReuse::Pooled),
        (1, true, ConnectionReuse::Pooled),
        (1, true, ConnectionReuse::StickyUserSessions),
    ] {
        let mut bench = Bench::new(with_slots(
            closed_loop(50, 50),
            SlotPlan {
                pre_connect: 50,
                ..SlotPlan::default()
            },
        ));
        bench.workers = workers;
        bench.reuse = reuse;
        let mut simulation = simulation();
        if tls {
            bench.targets = vec![at(
                &["10.0.0.1:443"],
                Some(secure::client("peer.test", true)),
            )];
            let host = Host {
                reach: Reach::Open,
                tls: Some(secure::server()),
            };
            simulation.hosts.insert(address("10.0.0.1:443"), host);
        }
        let played = bench.play(simulation);
        let start = played.starts[0];
        let place = format!("{workers} workers, TLS {tls}");
        assert_eq!(played.counts.opened_ahead, 50, "{place}");
        assert_eq!(
            (played.counts.connects, played.counts.failed_ahead),
            (50, 0),
            "{place}"
        );
        assert_eq!(played.exchanges.len(), 50, "{place}");
        for exchange in &played.exchanges {
            let ticks = exchange.ticks;
            assert_eq!(
                (ticks.due, ticks.start, ticks.first_byte_sent),
                (start, start, start),
                "{place}"
            );
            assert!(exchange.link.ahead && !exchange.link.reused, "{place}");
            assert!(
                ticks.connect_start < ticks.connect_end && ticks.connect_end < start,
                "{place}"
            );
            assert_eq!(ticks.tls_end != Tick::NEVER, tls, "{place}");
        }
        let seen: Vec<Tick> = played.outcome.requests.iter().map(|seen| seen.at).collect();
        assert!(seen.iter().all(|at| *at == seen[0]), "{place}: one batch");
    }
}

/// With a rate too: the first arrival finds a connection, and later phases find those of earlier ones.
#[test]
fn a_first_arrival_finds_a_connection_and_a_later_phase_opens_no_second_one() {
    let slots = SlotPlan {
        pre_connect: 3,
        ..SlotPlan::default()
    };
    let phase = PhasePlan {
        arrivals: Arrivals::constant(100.0),
        ..with_slots(closed_loop(3, 10), slots)
    };
    let mut bench = Bench::new(phase.clone());
    bench.phases.push(phase);
    let played = bench.play(simulation());
    assert_eq!(played.counts.connects, 3);
    assert!(
        played
            .exchanges
            .iter()
            .all(|e| e.ticks.first_byte_sent == e.ticks.due)
    );
}

/// What cannot be opened is counted, with its reason, and holds nothing up for long.
#[test]
fn connections_that_cannot_be_opened_ahead_are_told() {
    for (reach, fault) in [
        (Reach::Refused, Fault::ConnectRefused),
        (Reach::Silent, Fault::ConnectTimeout),
    ] {
        let slots = SlotPlan {
            pre_connect: 4,
            ..SlotPlan::default()
        };
        let mut bench = Bench::new(with_slots(closed_loop(4, 4), slots));
        bench.request_timeout = Nanos(30 * SECOND);
        let mut simulation = simulation();
        simulation
            .hosts
            .insert(address("10.0.0.1:80"), Host { reach, tls: None });
        let played = bench.play(simulation);
        let counts = played.counts;
        assert_eq!((counts.opened_ahead, counts.failed_ahead), (0, 4));
        assert_eq!(counts.fault_ahead, Some(fault));
        assert!(
            played.starts[0] < Tick(11 * SECOND),
            "{:?}",
            played.starts[0]
        );
        assert!(
            played
                .exchanges
                .iter()
                .all(|e| e.outcome == Outcome::Fault(fault))
        );
        assert_eq!(played.outcome.sockets_left, 0);
    }
}
