//! The schedule's promises, for any plan and any number of workers.
//!
//! In: random plans, an imagined server in virtual time. Out: sums, numbers and due times that must hold.
//! Never: a clock; every failure replays from its plan.

#[path = "schedule/handover.rs"]
mod handover;
#[path = "schedule/play.rs"]
mod play;
#[path = "schedule/rates.rs"]
mod rates;
#[path = "schedule/replay.rs"]
mod replay;
#[path = "schedule/users.rs"]
mod users;

#[path = "schedule/slots.rs"]
mod slots;

use std::collections::BTreeSet;

use play::{Played, Sent, World, play, scatter};
use proptest::prelude::*;
use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{Arrivals, PhaseKind, PhasePlan, SlotPlan, StopRule};
use tokenring::schedule::{Intent, IntentKind, Schedule, Shard, Verdict};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

fn plan(arrivals: Arrivals, concurrency: Option<usize>, stop: StopRule) -> PhasePlan {
    PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        arrivals,
        concurrency,
        slots: SlotPlan::default(),
        late: tokenring::config::LatePolicy::default(),
        stop,
        grace: None,
    }
}

fn requests(total: u64) -> StopRule {
    StopRule {
        requests: Some(total),
        ..StopRule::default()
    }
}

fn sessions(total: u64) -> StopRule {
    StopRule {
        sessions: Some(total),
        ..StopRule::default()
    }
}

fn duration(nanos: u64) -> StopRule {
    StopRule {
        duration: Some(Nanos(nanos)),
        ..StopRule::default()
    }
}

/// Single turns, answered in 1 ms.
const PROMPT: World = World {
    turns: |_| 1,
    reply: |_, sent| sent.plus(MILLI),
    think: |_| 0,
};

/// One to four turns, replies of up to 20 ms, think times of up to 10 ms (often none).
const IRREGULAR: World = World {
    turns: |session| 1 + scatter(session) % 4,
    reply: |number, sent| sent.plus(scatter(number) % (20 * MILLI)),
    think: |number| (scatter(number ^ 77) % (20 * MILLI)).saturating_sub(10 * MILLI),
};

fn all(played: &[Played]) -> Vec<Sent> {
    played.iter().flat_map(|p| p.sent.clone()).collect()
}

/// The first `count` due times of a rate plan, each worker's own, sent at once.
fn dues(arrivals: Arrivals, seed: u64, workers: usize, count: u64) -> Vec<Tick> {
    let played = play(
        &plan(arrivals, None, requests(count)),
        seed,
        workers,
        &PROMPT,
    );
    let mut dues: Vec<Tick> = all(&played).iter().map(|s| s.due).collect();
    dues.sort_unstable();
    dues
}

fn any_arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        Just(Arrivals::ClosedLoop),
        (10.0..5_000.0).prop_map(Arrivals::constant),
        (10.0..5_000.0).prop_map(Arrivals::poisson),
    ]
}

fn any_slots() -> impl Strategy<Value = SlotPlan> {
    let ramp = || prop::option::of((0..100 * MILLI).prop_map(Nanos));
    let prefill = prop::option::of(1..12_usize);
    prop_oneof![
        Just(SlotPlan::default()),
        (ramp(), prefill, ramp()).prop_map(|(concurrency_ramp, prefill, prefill_ramp)| SlotPlan {
            concurrency_ramp,
            prefill,
            prefill_ramp,
            pre_connect: 0,
        }),
    ]
}

fn any_plan() -> impl Strategy<Value = PhasePlan> {
    let stop = (
        prop::option::of(1..200_u64),
        prop::option::of(1..80_u64),
        prop::option::of(0..200 * MILLI),
    )
        .prop_map(|(requests, sessions, duration)| StopRule {
            // A plan always ends; without any rule the real default is 10 requests.
            requests: requests.or((sessions.is_none() && duration.is_none()).then_some(10)),
            sessions,
            duration: duration.map(Nanos),
        });
    (
        any_arrivals(),
        prop::option::of(1..40_usize),
        stop,
        any_slots(),
    )
        .prop_map(|(arrivals, concurrency, stop, slots)| PhasePlan {
            slots,
            ..plan(arrivals, concurrency, stop)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_and_numbers_hold_over_all_workers(plan in any_plan(), workers in 1..9_usize, seed: u64) {
        let played = play(&plan, seed, workers, &IRREGULAR);
        let sent = all(&played);
        let numbers: BTreeSet<u64> = sent.iter().map(|s| s.number).collect();
        let started: BTreeSet<u64> = sent.iter().filter(|s| s.turn == 0).map(|s| s.session).collect();
        let first_turns = sent.iter().filter(|s| s.turn == 0).count();
        prop_assert_eq!(numbers.len(), sent.len(), "a request number was given twice");
        prop_assert_eq!(started.len(), first_turns, "a session number was given twice");
        let counted: u64 = played.iter().map(|p| p.counts.sent_requests).sum();
        prop_assert_eq!(counted, sent.len() as u64);
        let stop = plan.stop;
        if let Some(total) = stop.requests.or(stop.sessions) {
            let shares: u64 = played.iter().filter_map(|p| p.counts.planned).sum();
            prop_assert_eq!(shares, total, "shares must sum to the plan");
        }
        if let Some(total) = stop.requests {
            prop_assert!(numbers.iter().all(|&n| n < total));
        }
        if let Some(total) = stop.sessions {
            prop_assert!(started.iter().all(|&n| n < total));
        }
        match (stop.requests, stop.sessions, stop.duration) {
            (Some(total), None, None) => prop_assert_eq!(sent.len() as u64, total),
            (None, Some(total), None) => {
                prop_assert_eq!(started.len() as u64, total);
                let turns: u64 = started.iter().map(|&s| (IRREGULAR.turns)(s)).sum();
                prop_assert_eq!(sent.len() as u64, turns, "a started session plays to its end");
            }
            _ => {}
        }
    }

    #[test]
    fn open_sessions_never_exceed_the_concurrency(plan in any_plan(), workers in 1..9_usize, seed: u64) {
        let played = play(&plan, seed, workers, &IRREGULAR);
        // Peaks of workers need not coincide, so the sum of peaks is an upper bound of what the server sees.
        let peaks: u64 = played.iter().map(|p| p.peak_open).sum();
        let most = match (plan.arrivals, plan.concurrency) {
            (Arrivals::ClosedLoop, None) => 1,
            (_, concurrency) => concurrency.map_or(u64::MAX, |c| c as u64),
        };
        prop_assert!(peaks <= most, "{peaks} sessions open, {most} allowed");
    }

    #[test]
    fn nothing_is_sent_early_or_after_the_deadline(plan in any_plan(), workers in 1..9_usize, seed: u64) {
        let end = plan.stop.duration.map_or(Tick::NEVER, |d| Tick(d.0));
        let closed = plan.arrivals == Arrivals::ClosedLoop;
        for worker in play(&plan, seed, workers, &IRREGULAR) {
            prop_assert!(worker.sent.iter().all(|s| s.due <= s.at && s.at < end));
            if closed {
                prop_assert!(worker.sent.iter().all(|s| s.due == s.at), "a free slot is used at once");
            }
            prop_assert!(worker.sent.windows(2).all(|w| w[0].due <= w[1].due), "due times must not go back");
        }
    }

    #[test]
    fn turns_of_a_session_stay_in_order_on_one_worker(plan in any_plan(), workers in 1..9_usize, seed: u64) {
        let mut owner = std::collections::HashMap::new();
        for (index, worker) in play(&plan, seed, workers, &IRREGULAR).iter().enumerate() {
            let mut next = std::collections::HashMap::new();
            for s in &worker.sent {
                prop_assert_eq!(*owner.entry(s.session).or_insert(index), index);
                let turn: &mut u64 = next.entry(s.session).or_default();
                prop_assert_eq!(s.turn, *turn);
                *turn += 1;
            }
        }
    }

    #[test]
    fn workers_together_are_one_worker(rate in 1.0..1e6_f64, seed: u64, workers in 1..9_usize, poisson: bool) {
        let arrivals = if poisson { Arrivals::poisson(rate) } else { Arrivals::constant(rate) };
        prop_assert_eq!(dues(arrivals.clone(), seed, workers, 100), dues(arrivals, seed, 1, 100));
    }

    #[test]
    fn due_times_do_not_depend_on_the_server(rate in 10.0..1e4_f64, seed: u64, cap in 1..10_usize) {
        let plan = plan(Arrivals::poisson(rate), Some(cap), requests(60));
        let slow = World { reply: |number, sent| sent.plus(scatter(number) % SECOND), ..PROMPT };
        let due = |world| all(&play(&plan, seed, 1, world)).iter().map(|s| s.due).collect::<Vec<_>>();
        prop_assert_eq!(due(&slow), due(&PROMPT));
    }
}

#[test]
fn a_constant_rate_does_not_drift_over_a_million_arrivals() {
    for (rate, workers) in [(3.0, 1), (7_000.0, 3), (200.0, 2)] {
        let plan = plan(Arrivals::constant(rate), None, requests(1_000_000));
        for index in 0..workers {
            let shard = Shard {
                index,
                count: workers,
            };
            let mut schedule = Schedule::new(&plan, 0, shard, Rate::NANOS, Tick(SECOND));
            let mut number = index as u64;
            while let Verdict::Send(intent) = schedule.next(Tick(u64::MAX - 1)) {
                let exact = (number + 1) as f64 * 1e9 / rate;
                let due = intent.due.since(Tick(SECOND)) as f64;
                assert!(
                    (due - exact).abs() <= 1.0,
                    "arrival {number}: {due}, not {exact}"
                );
                number += workers as u64;
            }
            assert!(number >= 1_000_000, "ended at {number}");
        }
    }
}

/// Kolmogorov-Smirnov against the exponential law, with the critical value of the 1 % level; a constant rate has a distance of
/// 0.63, a tenth too high a rate one of 0.035, both far outside.
#[test]
fn poisson_gaps_follow_the_exponential_law() {
    let (rate, count) = (250.0, 20_000_u32);
    for seed in [0, 1, 42] {
        let dues = dues(Arrivals::poisson(rate), seed, 3, u64::from(count));
        let gaps = rates::gaps(&dues, |seconds| seconds);
        let distance = rates::distance(gaps, |gap| 1.0 - (-gap * rate).exp());
        assert!(
            distance < 1.63 / f64::from(count).sqrt(),
            "seed {seed}: distance {distance}"
        );
    }
}

/// The stream is a promise to users who compare runs: it may not change with a release or a platform.
#[test]
fn the_poisson_stream_of_a_seed_is_fixed() {
    let first = |seed| dues(Arrivals::poisson(100.0), seed, 1, 4);
    assert_eq!(first(42), PINNED_42.map(Tick));
    assert_ne!(first(43), first(42));
}

/// Nanoseconds after the start at 100 requests a second.
const PINNED_42: [u64; 4] = [3_532_828, 13_620_732, 15_354_713, 16_084_532];

#[test]
fn concurrency_is_exact_whatever_the_workers() {
    for (concurrency, workers) in [(7, 4), (1, 4), (50, 3), (4, 4), (9, 2)] {
        let plan = plan(Arrivals::ClosedLoop, Some(concurrency), requests(1_000));
        let played = play(&plan, 0, workers, &PROMPT);
        let at_start = all(&played).iter().filter(|s| s.at == Tick(0)).count();
        assert_eq!(at_start, concurrency, "all slots are used at once");
        let peaks: Vec<u64> = played.iter().map(|p| p.peak_open).collect();
        assert_eq!(peaks.iter().sum::<u64>(), concurrency as u64);
        let spread = peaks
            .iter()
            .max()
            .zip(peaks.iter().min())
            .map(|(a, b)| a - b);
        assert!(spread <= Some(1), "uneven: {peaks:?}");
        // With equal service every slot does the same work, to within one request.
        let seconds: BTreeSet<u64> = all(&played).iter().map(|s| s.at.0 / MILLI).collect();
        assert_eq!(seconds.len(), 1_000_usize.div_ceil(concurrency));
    }
}

#[test]
fn a_late_arrival_waits_for_a_slot_and_keeps_its_due_time() {
    // 10 requests a second, one slot, 0.5 s of service: the queue grows by 0.4 s with each request.
    let plan = plan(Arrivals::constant(10.0), Some(1), requests(5));
    let world = World {
        reply: |_, sent| sent.plus(SECOND / 2),
        ..PROMPT
    };
    let played = play(&plan, 0, 1, &world);
    let late: Vec<u64> = all(&played)
        .iter()
        .map(|s| s.at.since(s.due) / MILLI)
        .collect();
    assert_eq!(late, [0, 400, 800, 1_200, 1_600]);
}

#[test]
fn a_stall_of_the_server_shows_as_waits_from_its_length_down() {
    // 100 requests a second for 4 s; the server answers in 1 ms, but stops from 1 s to 2 s.
    let plan = plan(Arrivals::constant(100.0), Some(4), duration(4 * SECOND));
    let world = World {
        reply: |_, sent| {
            Tick(if sent.0 / SECOND == 1 {
                2 * SECOND
            } else {
                sent.0
            })
            .plus(MILLI)
        },
        ..PROMPT
    };
    for workers in [1, 2] {
        let played = play(&plan, 0, workers, &world);
        let sent = all(&played);
        // Arrivals at 10 ms, ..., 3,990 ms: the stall loses none of them. 100 fall into it, and a few into its backlog.
        assert_eq!(sent.len(), 399);
        let latency = |s: &Sent| (world.reply)(s.number, s.at).since(s.due) / MILLI;
        let slow: Vec<u64> = sent.iter().map(latency).filter(|&ms| ms > 5).collect();
        assert!(
            (100..=104).contains(&slow.len()),
            "{} slow requests",
            slow.len()
        );
        assert_eq!(slow.iter().max(), Some(&1_001));
        assert!(slow.iter().filter(|&&ms| ms > 500).count() >= 50);
    }
}

#[test]
fn what_slots_did_not_allow_is_counted_as_unsent() {
    // 800 a second for 1 s against one slot of 10 ms: 799 arrivals before the deadline, 100 slots in time.
    let plan = plan(Arrivals::constant(800.0), Some(1), duration(SECOND));
    let world = World {
        reply: |_, sent| sent.plus(10 * MILLI),
        ..PROMPT
    };
    let played = play(&plan, 0, 1, &world);
    let sent = played[0].sent.len() as u64;
    assert_eq!(sent, 100);
    assert_eq!(sent + played[0].unsent, 799);
}

#[test]
fn a_ready_turn_goes_before_a_new_session() {
    for arrivals in [Arrivals::ClosedLoop, Arrivals::constant(1_000.0)] {
        let plan = plan(arrivals, Some(2), requests(10));
        let only = Shard { index: 0, count: 1 };
        let mut schedule = Schedule::new(&plan, 0, only, Rate::NANOS, Tick(0));
        let first = schedule.next(Tick(MILLI));
        assert!(matches!(
            first,
            Verdict::Send(Intent {
                kind: IntentKind::Start { session: 0 },
                ..
            })
        ));
        assert_eq!(schedule.next_request_number(), 0);
        schedule.turn_ready(Tick(MILLI));
        let second = schedule.next(Tick(2 * MILLI));
        assert!(matches!(
            second,
            Verdict::Send(Intent {
                kind: IntentKind::Continue,
                ..
            })
        ));
        assert_eq!(schedule.next_request_number(), 1);
        assert_eq!(schedule.counts().open_sessions, 1);
    }
}

#[test]
fn a_turn_after_the_last_session_takes_the_next_arrival() {
    // One session of two turns at 1,000 a second; the second turn is ready at 10.5 ms. The arrivals at 2 to 10 ms had nothing
    // to send and are no backlog.
    let plan = plan(Arrivals::constant(1_000.0), None, sessions(1));
    let world = World {
        turns: |_| 2,
        reply: |_, sent| sent.plus(9 * MILLI),
        think: |_| MILLI / 2,
    };
    let dues: Vec<u64> = all(&play(&plan, 0, 1, &world))
        .iter()
        .map(|s| s.due.0)
        .collect();
    assert_eq!(dues, [MILLI, 11 * MILLI]);
}

#[test]
fn the_first_stop_rule_to_be_reached_ends_sending() {
    let two_turns = World {
        turns: |_| 2,
        ..PROMPT
    };
    let rule = |requests, sessions, millis: Option<u64>| StopRule {
        requests,
        sessions,
        duration: millis.map(|m| Nanos(m * MILLI)),
    };
    // One slot, 1 ms a request, two turns a session: (stop, requests sent, sessions started).
    let cases = [
        (rule(Some(5), None, None), 5, 3),
        (rule(None, Some(3), None), 6, 3),
        (rule(None, None, Some(7)), 7, 4),
        (rule(Some(5), Some(3), None), 5, 3),
        (rule(Some(5), Some(2), None), 4, 2),
        (rule(Some(5), Some(2), Some(3)), 3, 2),
        (rule(Some(5), None, Some(0)), 0, 0),
    ];
    for (stop, requests, sessions) in cases {
        let played = play(&plan(Arrivals::ClosedLoop, Some(1), stop), 0, 1, &two_turns);
        let counts = played[0].counts;
        assert_eq!(
            (counts.sent_requests, counts.started_sessions),
            (requests, sessions),
            "{stop:?}"
        );
    }
}

#[test]
fn halt_ends_sending_and_open_sessions_may_still_end() {
    let plan = plan(Arrivals::ClosedLoop, Some(2), requests(10));
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::new(&plan, 0, only, Rate::NANOS, Tick(5));
    assert_eq!(schedule.next(Tick(4)), Verdict::WaitUntil(Tick(5)));
    assert!(matches!(schedule.next(Tick(5)), Verdict::Send(_)));
    schedule.halt();
    assert_eq!(schedule.next(Tick(5)), Verdict::Done);
    schedule.session_ended(Tick(6));
    assert_eq!(schedule.next(Tick(6)), Verdict::Done);
    let counts = schedule.counts();
    assert_eq!(
        (counts.planned, counts.sent_requests, counts.open_sessions),
        (Some(10), 1, 0)
    );
}

#[test]
fn deadline_and_grace_are_counted_from_the_start_in_ticks() {
    let only = Shard { index: 0, count: 1 };
    let mut timed = plan(Arrivals::ClosedLoop, Some(1), duration(SECOND));
    timed.grace = Some(Nanos(SECOND / 2));
    // Two nanoseconds a tick.
    let schedule = Schedule::new(&timed, 0, only, Rate::new(2.0), Tick(1_000));
    assert_eq!(schedule.deadline(), Some(Tick(1_000 + SECOND / 2)));
    assert_eq!(schedule.grace_end(), Some(Tick(1_000 + 3 * SECOND / 4)));
    timed.grace = None;
    let patient = Schedule::new(&timed, 0, only, Rate::NANOS, Tick(0));
    assert_eq!(
        (patient.deadline(), patient.grace_end()),
        (Some(Tick(SECOND)), None)
    );
    let counted = Schedule::new(
        &plan(Arrivals::ClosedLoop, Some(1), requests(1)),
        0,
        only,
        Rate::NANOS,
        Tick(0),
    );
    assert_eq!((counted.deadline(), counted.grace_end()), (None, None));
}
