//! Ramps, and the limit on requests without a first content.
//!
//! In: plans with them, an imagined server. Out: how many were open and when, for any number of workers. Never: an engine.

use proptest::prelude::*;
use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, PhasePlan, SlotPlan};

use crate::play::{Played, Sent, World, play};
use crate::{IRREGULAR, MILLI, PROMPT, SECOND, all, any_plan, duration, plan, requests};

/// Never answers within a test.
const SILENT: World = World {
    reply: |_, sent| sent.plus(1_000 * SECOND),
    ..PROMPT
};

fn ramped(arrivals: Arrivals, concurrency: usize, nanos: u64) -> PhasePlan {
    PhasePlan {
        slots: SlotPlan {
            concurrency_ramp: Some(Nanos(nanos)),
            ..SlotPlan::default()
        },
        ..plan(arrivals, Some(concurrency), duration(10 * SECOND))
    }
}

fn limited(concurrency: usize, prefill: usize, ramp: Option<u64>) -> PhasePlan {
    PhasePlan {
        slots: SlotPlan {
            prefill: Some(prefill),
            prefill_ramp: ramp.map(Nanos),
            ..SlotPlan::default()
        },
        ..plan(Arrivals::ClosedLoop, Some(concurrency), requests(400))
    }
}

fn dues(played: &[Played]) -> Vec<u64> {
    let mut dues: Vec<u64> = all(played).iter().map(|s| s.due.0).collect();
    dues.sort_unstable();
    dues
}

/// Most at once of what begins and ends at these times; an end comes before a beginning at the same time.
fn peak(spans: impl Iterator<Item = (Tick, Tick)>) -> i64 {
    let mut changes: Vec<(u64, i64)> = spans.flat_map(|(a, b)| [(a.0, 1), (b.0, -1)]).collect();
    changes.sort_unstable();
    let counts = changes.into_iter().scan(0, |open, (_, change)| {
        *open += change;
        Some(*open)
    });
    counts.max().unwrap_or(0)
}

fn peak_prefill(sent: &[Sent]) -> i64 {
    peak(sent.iter().map(|s| (s.at, s.content)))
}

/// Step i of the ramp comes at `duration * i / range`, on whatever worker has the slot.
#[test]
fn a_closed_loop_opens_one_slot_a_step() {
    for (concurrency, workers) in [(5, 1), (5, 2), (5, 4), (5, 9), (50, 3), (1, 2)] {
        let played = play(
            &ramped(Arrivals::ClosedLoop, concurrency, SECOND),
            0,
            workers,
            &SILENT,
        );
        let steps = (concurrency as u64 - 1).max(1);
        let expected: Vec<u64> = (0..concurrency as u64)
            .map(|i| SECOND * i / steps)
            .collect();
        assert_eq!(dues(&played), expected, "{concurrency} over {workers}");
        assert!(
            all(&played).iter().all(|s| s.at == s.due),
            "sent when it opens"
        );
    }
}

/// With a rate the ramp is a cap that grows: arrivals wait for it, and keep their due times.
#[test]
fn a_ramp_with_a_rate_is_a_growing_cap() {
    for workers in [1, 2, 3] {
        let mut plan = ramped(Arrivals::constant(1_000.0), 6, SECOND);
        plan.stop = requests(6);
        let played = play(&plan, 0, workers, &SILENT);
        let mut sent: Vec<(u64, u64)> = all(&played)
            .iter()
            .map(|s| (s.at.0 / MILLI, s.due.0 / MILLI))
            .collect();
        sent.sort_unstable();
        // Six arrivals within 6 ms; the cap lets one go each 200 ms. Workers' own arrivals wait for their own slots.
        let expected = [(1, 1), (200, 2), (400, 3), (600, 4), (800, 5), (1_000, 6)];
        assert_eq!(sent, expected, "{workers} workers");
    }
}

#[test]
fn a_ramp_that_is_longer_than_the_phase_ends_with_it() {
    let mut plan = ramped(Arrivals::ClosedLoop, 11, 10 * SECOND);
    plan.stop = duration(SECOND / 2 * 3);
    assert_eq!(dues(&play(&plan, 0, 2, &SILENT)), [0, SECOND]);
}

#[test]
fn prefills_reach_their_limit_and_never_exceed_it() {
    for (concurrency, prefill, workers) in [
        (9, 3, 1),
        (9, 3, 2),
        (9, 3, 4),
        (9, 1, 4),
        (7, 7, 4),
        (40, 5, 3),
    ] {
        let played = play(&limited(concurrency, prefill, None), 0, workers, &PROMPT);
        let sent = all(&played);
        let place = format!("{prefill} of {concurrency} over {workers}");
        assert_eq!(sent.len(), 400, "{place}: no worker starves");
        assert_eq!(peak_prefill(&sent), prefill as i64, "{place}");
        let busy = played
            .iter()
            .filter(|worker| !worker.sent.is_empty())
            .count();
        assert_eq!(
            busy,
            workers.min(prefill),
            "{place}: workers that take part"
        );
        assert!(
            sent.iter().all(|s| s.at == s.due),
            "{place}: due when the last slot came free"
        );
    }
}

/// The limit binds, and frees at the first content rather than at the end: three requests begin while one is answered.
#[test]
fn a_prefill_slot_is_free_at_the_first_content() {
    let mut plan = limited(3, 1, None);
    plan.stop = requests(3);
    let world = World {
        reply: |_, sent| sent.plus(30 * MILLI),
        ..PROMPT
    };
    assert_eq!(
        dues(&play(&plan, 0, 1, &world)),
        [0, 10 * MILLI, 20 * MILLI]
    );
}

#[test]
fn a_prefill_ramp_opens_one_slot_a_step() {
    for workers in [1, 2, 4] {
        let mut plan = limited(8, 4, Some(300 * MILLI));
        plan.stop = requests(8);
        // Those that open no slot of their own come when a content frees one.
        let sent = &dues(&play(&plan, 0, workers, &SILENT))[..4];
        assert_eq!(
            sent,
            [0, 100, 200, 300].map(|at| at * MILLI),
            "{workers} workers"
        );
    }
}

/// A later turn takes a prefill slot as a first one does.
#[test]
fn every_turn_takes_a_prefill_slot() {
    let mut plan = limited(6, 2, None);
    plan.stop = requests(200);
    for workers in [1, 2] {
        let sent = all(&play(&plan, 0, workers, &IRREGULAR));
        assert!(sent.iter().any(|s| s.turn > 0));
        assert_eq!(sent.len(), 200);
        assert_eq!(peak_prefill(&sent), 2, "{workers} workers");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prefills_never_exceed_their_limit(plan in any_plan(), workers in 1..9_usize, seed: u64) {
        let sent = all(&play(&plan, seed, workers, &IRREGULAR));
        if let Some(most) = plan.slots.prefill {
            prop_assert!(peak_prefill(&sent) <= most as i64);
        }
    }
}
