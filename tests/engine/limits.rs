//! Limits on what a request waits for, to the tick.
//!
//! In: servers that stall at each place. Out: each wait ends in its own fault, at its own time. Never: a fault that another limit could have
//! given.

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{ConnectionReuse, TimeLimits};
use tokenring::driver::simulated::{Answer, Chance, Ending, Host, Reach, SeenRequest, Simulation};
use tokenring::record::{Exchange, Outcome};
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, Played, SECOND, address, closed_loop};
use crate::check::{Judged, check};

fn millis(millis: u64) -> Option<Nanos> {
    Some(Nanos(millis * MILLI))
}

/// `requests` requests, `at_once` at a time, under `limits`.
fn play(
    at_once: usize,
    requests: u64,
    limits: TimeLimits,
    whole: Nanos,
    reach: Reach,
    server: impl FnMut(&SeenRequest, &mut Chance) -> Answer + 'static,
) -> Played {
    let mut bench = Bench::new(closed_loop(at_once, requests));
    bench.request_timeout = whole;
    bench.time_limits = limits;
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(server);
    let host = Host { reach, tls: None };
    simulation.hosts.insert(address("10.0.0.1:80"), host);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

fn stalls(bytes: usize) -> Answer {
    Answer {
        ending: Ending::Stall(bytes),
        ..Answer::stream(9, Nanos(MILLI))
    }
}

/// From when on each request waited, by what it waited for.
fn waited(exchange: &Exchange) -> u64 {
    let ticks = exchange.ticks;
    let from = match exchange.outcome {
        Outcome::Fault(Fault::FirstByteTimeout) => ticks.last_byte_sent,
        Outcome::Fault(Fault::IdleTimeout) => exchange.reads.last().expect("it had begun").tick,
        _ => ticks.submitted,
    };
    ticks.end.since(from)
}

#[test]
fn each_wait_ends_in_its_own_fault_to_the_tick() {
    let all = TimeLimits {
        connect: millis(70),
        first_byte: millis(110),
        idle: millis(130),
        keep_alive_counts: false,
    };
    let long = Nanos(600 * SECOND);
    for (reach, stall, fault, length) in [
        (Reach::Silent, 0, Fault::ConnectTimeout, 70),
        (Reach::Open, 0, Fault::FirstByteTimeout, 110),
        (Reach::Open, 1, Fault::IdleTimeout, 130),
        (Reach::Open, 200, Fault::IdleTimeout, 130),
    ] {
        let played = play(3, 9, all, long, reach, move |_, _| stalls(stall));
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, Outcome::Fault(fault), "stall at {stall}");
            assert_eq!(waited(exchange), length * MILLI, "stall at {stall}");
            let tokens = !exchange.events.is_empty();
            assert_eq!(tokens, stall == 200, "what had come is kept");
        }
    }
}

/// The limit that is over first is the one that counts; the whole request's is not hidden by one that would be over later.
#[test]
fn a_request_ends_by_the_limit_that_is_over_first() {
    for (whole, outcome) in [
        (100, Outcome::Timeout),
        (300, Outcome::Fault(Fault::IdleTimeout)),
    ] {
        let limits = TimeLimits {
            idle: millis(150),
            ..TimeLimits::default()
        };
        let played = play(2, 6, limits, Nanos(whole * MILLI), Reach::Open, |_, _| {
            stalls(200)
        });
        assert!(played.exchanges.iter().all(|e| e.outcome == outcome));
    }
}

/// A stream that goes on is not idle, however long it takes; one whose gap is too long is.
#[test]
fn only_a_gap_over_the_limit_is_idle() {
    let limits = TimeLimits {
        first_byte: millis(150),
        idle: millis(100),
        ..TimeLimits::default()
    };
    let long = Nanos(600 * SECOND);
    for (gap, outcome) in [
        (99, Outcome::Success),
        (101, Outcome::Fault(Fault::IdleTimeout)),
    ] {
        let played = play(40, 80, limits, long, Reach::Open, move |_, _| {
            Answer::stream(30, Nanos(gap * MILLI))
        });
        assert!(
            played.exchanges.iter().all(|e| e.outcome == outcome),
            "gaps of {gap} ms"
        );
    }
}

/// Comments keep a connection open and bring nothing: they are heard only where that was asked for.
#[test]
fn keep_alives_are_not_heard_unless_asked_for() {
    let mut answer = Answer::stream(1, Nanos(MILLI));
    let comments = (0..9).map(|_| (Nanos(60 * MILLI), b": ping\n\n".to_vec()));
    let done = answer.pieces.pop().expect("a stream ends with [DONE]");
    answer.pieces.extend(comments);
    answer.pieces.push(done);
    for (keep_alive_counts, outcome) in [
        (false, Outcome::Fault(Fault::IdleTimeout)),
        (true, Outcome::Success),
    ] {
        let limits = TimeLimits {
            idle: millis(150),
            keep_alive_counts,
            ..TimeLimits::default()
        };
        let answer = answer.clone();
        let long = Nanos(600 * SECOND);
        let played = play(1, 2, limits, long, Reach::Open, move |_, _| answer.clone());
        assert!(played.exchanges.iter().all(|e| e.outcome == outcome));
    }
}

/// After `[DONE]` a body that does not end is no failure, whatever the idle limit.
#[test]
fn done_is_not_idle() {
    let limits = TimeLimits {
        idle: millis(50),
        ..TimeLimits::default()
    };
    let long = Nanos(600 * SECOND);
    let played = play(1, 2, limits, long, Reach::Open, |_, _| Answer {
        ending: Ending::Open,
        ..Answer::stream(3, Nanos(MILLI))
    });
    assert!(
        played
            .exchanges
            .iter()
            .all(|e| e.outcome == Outcome::Success)
    );
}

/// Three thousand streams that stall all end by each limit of 2 s, within 100 ms, and what follows them succeeds.
#[test]
fn three_thousand_stalled_streams_end_and_others_follow() {
    let limit = Some(Nanos(2 * SECOND));
    for (limits, stall, fault) in [
        (
            TimeLimits {
                first_byte: limit,
                ..TimeLimits::default()
            },
            0,
            Fault::FirstByteTimeout,
        ),
        (
            TimeLimits {
                idle: limit,
                ..TimeLimits::default()
            },
            180,
            Fault::IdleTimeout,
        ),
    ] {
        let mut seen = 0;
        let long = Nanos(600 * SECOND);
        let played = play(3_000, 3_300, limits, long, Reach::Open, move |_, _| {
            seen += 1;
            if seen <= 3_000 {
                stalls(stall)
            } else {
                Answer::stream(2, Nanos(MILLI))
            }
        });
        let failed: Vec<&Exchange> = played
            .exchanges
            .iter()
            .filter(|e| e.outcome == Outcome::Fault(fault))
            .collect();
        assert_eq!((failed.len(), played.counts.whole), (3_000, 300));
        for exchange in failed {
            let late = waited(exchange) - 2 * SECOND;
            assert!(late <= 100 * MILLI, "{late} ns late");
        }
    }
}

/// A kept connection that proves closed costs the request a second connection, which has the connect limit anew.
#[test]
fn a_request_that_is_sent_again_has_its_limits_anew() {
    let limits = TimeLimits {
        connect: millis(500),
        first_byte: millis(100),
        ..TimeLimits::default()
    };
    let mut bench = Bench::new(closed_loop(1, 2));
    bench.reuse = ConnectionReuse::Pooled;
    bench.time_limits = limits;
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    let mut count = 0;
    simulation.server = Box::new(move |_, _| {
        count += 1;
        match count {
            1 => Answer::stream(2, Nanos(MILLI)),
            // The kept connection is closed 80 ms after the request came.
            2 => Answer {
                ending: Ending::Close(0),
                ..Answer::stream(2, Nanos(80 * MILLI))
            },
            _ => Answer::stream(2, Nanos(60 * MILLI)),
        }
    });
    let played = bench.play(simulation);
    check(&played, &judged);
    assert!(
        played
            .exchanges
            .iter()
            .all(|e| e.outcome == Outcome::Success)
    );
    assert!(played.exchanges.iter().all(|e| e.ticks.end != Tick::NEVER));
}
