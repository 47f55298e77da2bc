//! Limits on what a request waits for, to the tick.
//!
//! In: servers that stall at each place. Out: each wait ends in its own fault, at its own time. Never: a fault that another limit could have
//! given.

use std::sync::Arc;

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{ConnectionReuse, TimeLimits};
use tokenring::driver::simulated::{Answer, Chance, Ending, Host, Reach, SeenRequest, Simulation};
use tokenring::record::{Exchange, Outcome};
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, Played, SECOND, address, at, closed_loop};
use crate::check::{Judged, check};
use crate::secure;

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

/// A head that comes with nothing but a keep-alive is heard: the wait for more begins with it, to the tick, whatever the request before had heard.
#[test]
fn a_head_with_a_keep_alive_begins_the_wait_for_more() {
    for early in [0, 1] {
        let mut answer = Answer::stream(0, Nanos(MILLI));
        answer.interim = early;
        answer.pieces = vec![(Nanos(0), b": ping\n\n".to_vec())];
        answer.ending = Ending::Open;
        let limits = TimeLimits {
            idle: millis(150),
            ..TimeLimits::default()
        };
        let long = Nanos(600 * SECOND);
        let played = play(7, 40, limits, long, Reach::Open, move |_, chance| Answer {
            delay: Nanos(chance.below(90 * MILLI)),
            ..answer.clone()
        });
        for exchange in &played.exchanges {
            let outcome = Outcome::Fault(Fault::IdleTimeout);
            assert_eq!(exchange.outcome, outcome, "{early} interim heads");
            assert_eq!(waited(exchange), 150 * MILLI, "{early} interim heads");
        }
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

/// The time for a connection is one for all attempts, from the first one on, whichever of them has the request when it is over: the first,
/// one beside it, one that took the request over from a refused one, or one that won and then sets up TLS in vain.
#[test]
fn a_request_that_is_taken_over_keeps_its_time_for_a_connection() {
    use Reach::{Open, Refused, Silent};
    for (reaches, tls, attempts) in [
        (&[Silent, Silent][..], false, 2),
        (&[Silent, Refused], false, 2),
        (&[Refused, Silent], false, 2),
        (&[Refused, Silent, Silent], false, 3),
        (&[Silent, Open], true, 2),
        (&[Refused, Open], true, 2),
        (&[Open], true, 1),
    ] {
        for (latency, workers) in [(1, 1), (120, 1), (120, 2)] {
            let mut bench = Bench::new(closed_loop(3, 6));
            bench.workers = workers;
            bench.time_limits.connect = millis(700);
            let addresses: Vec<String> = (1..=reaches.len())
                .map(|n| format!("10.0.0.{n}:80"))
                .collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            // Its servers know no TLS: they wait for the end of a request's head.
            let client = tls.then(|| secure::client("peer.test", true));
            bench.targets = vec![at(&addresses, client)];
            let judged = Judged::of(&bench, 1);
            let mut simulation = Simulation::new(1);
            simulation.latency = Nanos(latency * MILLI);
            for (text, &reach) in addresses.iter().zip(reaches) {
                let host = Host { reach, tls: None };
                simulation.hosts.insert(address(text), host);
            }
            let played = bench.play(simulation);
            check(&played, &judged);
            let place = format!("{reaches:?}, TLS {tls}, {latency} ms, {workers} workers");
            for exchange in &played.exchanges {
                let timeout = Outcome::Fault(Fault::ConnectTimeout);
                assert_eq!(exchange.outcome, timeout, "{place}");
                assert_eq!(waited(exchange), 700 * MILLI, "{place}");
            }
            assert!(played.counts.attempts >= 3 * attempts, "{place}");
        }
    }
}

/// The second connection of a request that is sent again has its own time, to the tick, also where it is shorter than the longest sleep.
#[test]
fn a_request_that_is_sent_again_waits_for_its_connection_no_longer_than_asked() {
    for limit in [3, 9, 70] {
        let mut bench = Bench::new(closed_loop(1, 12));
        bench.time_limits.connect = millis(limit);
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        let host = Host {
            reach: Reach::Silent,
            tls: None,
        };
        simulation.hosts.insert(address("10.0.0.2:80"), host);
        let mut closed_at = None;
        simulation.server = Box::new(move |seen, _| {
            let answer = Answer::stream(2, Nanos(MILLI));
            // Kept connections close 5 ms after the request came once the look-up below has found a server that is not there.
            let closes = seen.at >= Tick(40 * MILLI) && closed_at.is_none();
            match closes {
                true => {
                    closed_at = Some(seen.at);
                    Answer {
                        ending: Ending::Close(0),
                        delay: Nanos(5 * MILLI),
                        ..answer
                    }
                }
                false => answer,
            }
        });
        let played = bench.play_with(simulation, |simulation, conductor| {
            let conductor = Arc::clone(conductor);
            let found = Arc::new(vec![vec![address("10.0.0.2:80")]]);
            let publish = move || *conductor.later.lock().unwrap() = found;
            let at = Tick(20 * MILLI);
            simulation.acts.push((at, Box::new(publish)));
        });
        check(&played, &judged);
        let again = played.exchanges.iter().find(|e| e.link.resent);
        let again = again.expect("one connection closed as its request was there");
        assert_eq!(again.outcome, Outcome::Fault(Fault::ConnectTimeout));
        // There, 5 ms, and back; then the limit.
        let expected = (5 + limit) * MILLI + 2 * 50_000;
        assert_eq!(waited(again), expected, "{limit} ms");
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
