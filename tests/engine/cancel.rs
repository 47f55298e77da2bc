//! Cuts on purpose: which requests, and when.
//!
//! In: runs in virtual time. Out: moments to the tick, outcomes, closed connections. Never: a run that a seed does not replay.

use std::collections::BTreeSet;

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{
    Arrivals, CancellationPlan, ConnectionReuse, PhaseKind, PhasePlan, StopRule,
};
use tokenring::driver::simulated::{Answer, Faults, Simulation};
use tokenring::record::{Exchange, Outcome as Ended};
use tokenring::schedule::CancellationDraw;

use super::bench::{Bench, MILLI, Played, closed_loop};
use super::check::{Judged, check};

/// Cancels `percent`, `delay` nanoseconds after the last byte.
fn cancelling(percent: f64, delay: u64) -> Option<CancellationPlan> {
    let delay = Nanos(delay);
    Some(CancellationPlan { percent, delay })
}

/// Plays with answers of nine events, a millisecond apart.
fn play(bench: Bench, faults: Faults) -> Played {
    let judged = Judged::of(&bench, 3);
    let mut simulation = Simulation::new(3);
    simulation.faults = faults;
    simulation.server = Box::new(|_, _| Answer::stream(9, Nanos(MILLI)));
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

fn cut(played: &Played) -> impl Iterator<Item = &Exchange> {
    let all = played.exchanges.iter();
    all.filter(|exchange| exchange.outcome == Ended::Cancelled)
}

#[test]
fn requests_are_cut_to_the_tick_after_their_last_byte() {
    for reuse in [
        ConnectionReuse::Pooled,
        ConnectionReuse::Never,
        ConnectionReuse::StickyUserSessions,
    ] {
        for delay in [0, 1, 7_777, 3_456_789, 5 * MILLI + 1] {
            let mut bench = Bench::new(closed_loop(4, 200));
            bench.reuse = reuse;
            bench.workers = 3;
            bench.words.turns = 4;
            bench.cancellation = cancelling(40.0, delay);
            let played = play(bench, Faults::none());
            let mut draw = CancellationDraw::new(40.0, 1);
            for exchange in &played.exchanges {
                let (id, ticks) = (exchange.id, exchange.ticks);
                let picked = draw.picks(0, id.number);
                assert_eq!(exchange.outcome == Ended::Cancelled, picked, "{id:?}");
                if picked {
                    assert_eq!(ticks.end.since(ticks.last_byte_sent), delay, "{id:?}");
                    assert!(played.outcome.announced.contains(&ticks.end) || delay == 0);
                    assert!(
                        played.outcome.closed_at.values().any(|&at| at == ticks.end),
                        "{id:?}: its connection goes with it"
                    );
                    // The first event comes a latency and a gap after the request, and so on.
                    let came = exchange.events.len() as u64;
                    let before = delay.saturating_sub(100_000) / MILLI;
                    assert_eq!(came, before.saturating_sub(1), "what had come is kept");
                } else {
                    assert_eq!(exchange.outcome, Ended::Success, "{id:?}");
                }
            }
            assert!((40..120).contains(&cut(&played).count()), "{reuse:?}");
        }
    }
}

#[test]
fn a_reply_that_is_whole_before_its_cut_is_a_success() {
    let mut bench = Bench::new(closed_loop(4, 50));
    bench.cancellation = cancelling(100.0, 20 * MILLI);
    let played = play(bench, Faults::none());
    assert_eq!(played.counts.whole, 50);
    assert!(played.outcome.connections <= 4, "connections are kept");
}

#[test]
fn the_same_requests_are_cut_on_any_number_of_workers() {
    let numbers = |workers| {
        let mut bench = Bench::new(PhasePlan {
            arrivals: Arrivals::poisson(500.0),
            ..closed_loop(1, 200)
        });
        bench.phases[0].concurrency = None;
        bench.workers = workers;
        bench.cancellation = cancelling(25.0, MILLI);
        let played = play(bench, Faults::none());
        cut(&played).map(|e| e.id.number).collect::<BTreeSet<u64>>()
    };
    let one = numbers(1);
    assert!((25..75).contains(&one.len()), "{}", one.len());
    assert_eq!(numbers(2), one);
    assert_eq!(numbers(3), one);
}

#[test]
fn nothing_is_cut_in_the_warmup() {
    let mut bench = Bench::new(closed_loop(2, 20));
    let warmup = PhasePlan {
        kind: PhaseKind::Warmup,
        ..closed_loop(2, 20)
    };
    bench.phases.insert(0, warmup);
    bench.cancellation = cancelling(100.0, 0);
    let played = play(bench, Faults::none());
    for exchange in &played.exchanges {
        let warm = exchange.id.phase == 0;
        let expected = if warm {
            Ended::Success
        } else {
            Ended::Cancelled
        };
        assert_eq!(exchange.outcome, expected, "{:?}", exchange.id);
    }
}

/// The time of a request that is sent again runs from the last byte of the second sending; no stale limit cuts it before.
#[test]
fn a_request_that_was_sent_again_has_its_whole_delay() {
    let mut bench = Bench::new(closed_loop(3, 60));
    bench.cancellation = cancelling(50.0, 2 * MILLI);
    let faults = Faults {
        close_on_request: 1.0,
        ..Faults::none()
    };
    let played = play(bench, faults);
    assert!(cut(&played).any(|exchange| exchange.link.resent));
    for exchange in cut(&played) {
        let ticks = exchange.ticks;
        assert_eq!(ticks.end.since(ticks.last_byte_sent), 2 * MILLI);
    }
}

/// However late completions and wake-ups are, no cut comes early, and each comes when the engine wakes at last.
#[test]
fn no_cut_is_early() {
    for delay in [0, 1, 2 * MILLI] {
        let mut bench = Bench::new(closed_loop(9, 400));
        bench.workers = 2;
        bench.cancellation = cancelling(50.0, delay);
        let faults = Faults {
            late_sent: 0.5,
            ..Faults::rough()
        };
        let played = play(bench, faults);
        assert!(cut(&played).count() > 50);
        for exchange in cut(&played) {
            let ticks = exchange.ticks;
            let after = ticks.end.since(ticks.last_byte_sent);
            // The engine wakes up to 200 us late.
            assert!((delay..=delay + 200_000).contains(&after), "{after} after");
        }
    }
}

/// A cut ends the turn and not the session: the next turn goes out on a new connection.
#[test]
fn a_session_goes_on_after_a_cut() {
    let mut bench = Bench::new(PhasePlan {
        stop: StopRule {
            sessions: Some(40),
            ..StopRule::default()
        },
        ..closed_loop(3, 0)
    });
    bench.reuse = ConnectionReuse::StickyUserSessions;
    bench.words.turns = 4;
    bench.words.live = true;
    bench.cancellation = cancelling(30.0, MILLI);
    let played = play(bench, Faults::none());
    let cuts: Vec<_> = cut(&played).filter(|e| !e.id.last_turn).collect();
    assert!(!cuts.is_empty());
    for early in cuts {
        let next = played.exchanges.iter().find(|other| {
            (other.id.session, other.id.turn) == (early.id.session, early.id.turn + 1)
        });
        assert!(next.is_some_and(|next| !next.link.reused), "{:?}", early.id);
    }
}

#[test]
fn a_cut_before_the_last_byte_never_happens() {
    let mut bench = Bench::new(closed_loop(2, 30));
    bench.words.body_bytes = 100_000;
    bench.cancellation = cancelling(100.0, 0);
    let faults = Faults {
        late_sent: 1.0,
        ..Faults::none()
    };
    let played = play(bench, faults);
    for exchange in cut(&played) {
        assert!(exchange.link.sent_whole);
        assert_ne!(exchange.ticks.last_byte_sent, Tick::NEVER);
    }
    let bodies = played
        .outcome
        .requests
        .iter()
        .filter(|seen| seen.body.len() == 100_000);
    assert_eq!(bodies.count(), 30, "every request reached its server whole");
}
