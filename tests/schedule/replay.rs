//! Traces that are replayed at their own times.
//!
//! In: timelines, some with bursts and out of order. Out: who begins when, which must not hang on the workers. Never: a server.

use std::sync::Arc;

use proptest::prelude::*;
use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{Arrivals, SlotPlan, StopRule};
use tokenring::schedule::{IntentKind, Players, Schedule, Shard, Timeline, Verdict};

use super::{duration, plan};

/// A trace of bursts out of order, dealt to 1, 2, 3 and 7 workers: every session begins at its tick, once, and all together are the
/// one-worker replay.
#[test]
fn a_replay_begins_each_session_at_its_tick_whatever_the_workers() {
    let times: Vec<u64> = (0..4_000_u64)
        .map(|n| n * 7_919 % 4_001 / 20 * 1_000_000)
        .collect();
    let firsts = times.iter().zip(0_u32..).map(|(&due, n)| (Nanos(due), n));
    let timeline = Arc::new(Timeline::new(firsts));
    let mut right: Vec<(u64, u32)> = times.iter().copied().zip(0..).collect();
    right.sort_by_key(|&(due, _)| due);
    let plan = plan(Arrivals::FixedSchedule, None, StopRule::default());
    for count in [1, 2, 3, 7] {
        let mut begun = Vec::new();
        for index in 0..count {
            let shard = Shard { index, count };
            let start = Tick(5);
            let mut schedule = Schedule::replay(&plan, &timeline, shard, Rate::NANOS, start);
            let mut now = start;
            loop {
                match schedule.next(now) {
                    Verdict::Send(intent) => {
                        assert_eq!(intent.due, now, "sent at its tick");
                        let IntentKind::Start { session } = intent.kind else {
                            panic!("no turn is ready");
                        };
                        let who = schedule
                            .conversation(session)
                            .expect("a session of the trace");
                        begun.push((session, (now.0 - start.0, who)));
                        schedule.session_ended(now);
                    }
                    Verdict::WaitUntil(due) => now = due,
                    Verdict::WaitForSlot | Verdict::NeedTurns { .. } => panic!("there is no cap"),
                    Verdict::Done => break,
                }
            }
        }
        begun.sort_unstable();
        let begun: Vec<(u64, u32)> = begun.into_iter().map(|(_, entry)| entry).collect();
        assert_eq!(begun, right, "{count} workers");
    }
}

proptest! {
    /// Any trace, in any order, on any number of workers, some of it past a deadline: all that is due before it begins once, at its tick, in
    /// order; the rest is neither begun nor counted as unsent.
    #[test]
    fn whatever_is_due_begins_once(times in prop::collection::vec(0_u64..2_000, 0..120), workers in 1_usize..5,
                                   deadline in prop::option::of(1_u64..2_500), halt in prop::option::of(0_u64..2_500)) {
        let firsts = times.iter().zip(0_u32..).map(|(&due, n)| (Nanos(due), n));
        let timeline = Arc::new(Timeline::new(firsts));
        let stop = deadline.map_or(StopRule::default(), duration);
        let plan = plan(Arrivals::FixedSchedule, None, stop);
        let start = Tick(7);
        let mut begun = vec![None; times.len()];
        let (mut unsent, mut began) = (0, 0);
        for index in 0..workers {
            let shard = Shard { index, count: workers };
            let mut schedule = Schedule::replay(&plan, &timeline, shard, Rate::NANOS, start);
            let mut now = start;
            let mut before = start;
            loop {
                if halt.is_some_and(|halt| now.0 - start.0 >= halt) {
                    schedule.halt();
                }
                match schedule.next(now) {
                    Verdict::Send(intent) => {
                        prop_assert_eq!(intent.due, now, "at its tick");
                        prop_assert!(intent.due >= before, "in order");
                        before = intent.due;
                        let IntentKind::Start { session } = intent.kind else {
                            return Err(TestCaseError::fail("no turn is ready"));
                        };
                        let who = schedule.conversation(session).expect("a session of the trace") as usize;
                        prop_assert_eq!(begun[who].replace(now.0 - start.0), None, "once");
                        began += 1;
                        schedule.session_ended(now);
                    }
                    Verdict::WaitUntil(due) => {
                        prop_assert!(due > now);
                        now = due;
                    }
                    Verdict::WaitForSlot | Verdict::NeedTurns { .. } => {
                        return Err(TestCaseError::fail("there is no cap"));
                    }
                    Verdict::Done => break,
                }
            }
            unsent += schedule.unsent_arrivals(Tick::NEVER);
        }
        let due = |at: u64| deadline.is_none_or(|end| at < end);
        for (&at, begun) in times.iter().zip(&begun) {
            prop_assert!(begun.is_none_or(|tick| tick == at && due(at)));
            prop_assert!(begun.is_some() || !due(at) || halt.is_some(), "lost: due at {}", at);
        }
        let all = times.iter().filter(|&&at| due(at)).count() as u64;
        prop_assert_eq!(began + unsent, all, "begun or told why not");
    }
}

#[test]
fn an_entry_that_waits_takes_twelve_bytes() {
    let firsts = (0..1_000_000_u32).map(|n| (Nanos(u64::from(n)), n));
    let timeline = Timeline::new(firsts);
    assert!(
        timeline.heap_bytes() <= 12 * timeline.len(),
        "{}",
        timeline.heap_bytes()
    );
}

/// One session at a time: the second waits for the first one's slot, its later turn is sent before it, and all keep their due times.
#[test]
fn a_beginning_without_a_slot_waits_and_lets_turns_pass() {
    let timeline = Arc::new(Timeline::new([(Nanos(10), 0), (Nanos(20), 1)]));
    let plan = plan(Arrivals::FixedSchedule, Some(1), StopRule::default());
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::replay(&plan, &timeline, only, Rate::NANOS, Tick(0));
    let due = |verdict| match verdict {
        Verdict::Send(intent) => (intent.due, intent.slot, intent.kind),
        other => panic!("{other:?}"),
    };
    assert_eq!(schedule.next(Tick(0)), Verdict::WaitUntil(Tick(10)));
    let start = |session| IntentKind::Start { session };
    assert_eq!(due(schedule.next(Tick(10))), (Tick(10), Tick(10), start(0)));
    assert_eq!(schedule.next(Tick(25)), Verdict::WaitForSlot);
    let own = schedule.own_time(Nanos(30)).expect("a replay has times");
    assert_eq!(own, Tick(30));
    schedule.turn_ready(own);
    assert_eq!(
        due(schedule.next(Tick(31))),
        (Tick(30), Tick(30), IntentKind::Continue)
    );
    assert_eq!(schedule.next(Tick(31)), Verdict::WaitForSlot);
    schedule.session_ended(Tick(40));
    assert_eq!(due(schedule.next(Tick(41))), (Tick(20), Tick(40), start(1)));
    schedule.session_ended(Tick(50));
    assert_eq!(schedule.next(Tick(50)), Verdict::Done);
}

/// Every turn takes a prefill slot, a later one of a trace too.
#[test]
fn a_replay_waits_for_prefill_slots() {
    let timeline = Arc::new(Timeline::new([(Nanos(10), 0), (Nanos(10), 1)]));
    let mut plan = plan(Arrivals::FixedSchedule, None, StopRule::default());
    plan.slots = SlotPlan {
        prefill: Some(1),
        ..SlotPlan::default()
    };
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::replay(&plan, &timeline, only, Rate::NANOS, Tick(0));
    assert!(matches!(schedule.next(Tick(10)), Verdict::Send(_)));
    assert_eq!(schedule.next(Tick(10)), Verdict::WaitForSlot);
    schedule.prefill_ended(Tick(15));
    let Verdict::Send(second) = schedule.next(Tick(16)) else {
        panic!("the prefill slot is free");
    };
    assert_eq!((second.due, second.slot), (Tick(10), Tick(15)));
    schedule.turn_ready(Tick(17));
    assert_eq!(schedule.next(Tick(17)), Verdict::WaitForSlot);
    schedule.prefill_ended(Tick(18));
    assert!(matches!(schedule.next(Tick(18)), Verdict::Send(_)));
}

#[test]
fn nothing_begins_from_the_deadline_on() {
    let timeline = Arc::new(Timeline::new([(Nanos(10), 0), (Nanos(20), 1)]));
    let plan = plan(Arrivals::FixedSchedule, None, duration(20));
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::replay(&plan, &timeline, only, Rate::NANOS, Tick(0));
    assert!(matches!(schedule.next(Tick(10)), Verdict::Send(_)));
    assert_eq!(
        schedule.next(Tick(11)),
        Verdict::WaitForSlot,
        "a turn may come"
    );
    schedule.session_ended(Tick(12));
    assert_eq!(schedule.next(Tick(12)), Verdict::Done);
}

/// Requests that are made while the replay runs: what is not made when it is due begins late, keeps its due time, and lets turns pass.
#[test]
fn a_beginning_that_is_not_made_yet_waits_and_lets_turns_pass() {
    let timeline = Arc::new(Timeline::new([(Nanos(10), 0), (Nanos(20), 1)]));
    let plan = plan(Arrivals::FixedSchedule, None, StopRule::default());
    let only = Shard { index: 0, count: 1 };
    let mut schedule = Schedule::replay(&plan, &timeline, only, Rate::NANOS, Tick(0));
    let begun = |verdict| match verdict {
        Verdict::Send(intent) => (intent.due, intent.kind),
        other => panic!("{other:?}"),
    };
    schedule.made_below(1);
    let start = |session| IntentKind::Start { session };
    assert_eq!(begun(schedule.next(Tick(10))), (Tick(10), start(0)));
    let Verdict::WaitUntil(again) = schedule.next(Tick(30)) else {
        panic!("it is not made yet");
    };
    assert!(
        (31..1_000_000).contains(&again.0),
        "asked again soon: {again:?}"
    );
    schedule.turn_ready(Tick(31));
    assert_eq!(
        begun(schedule.next(Tick(31))),
        (Tick(31), IntentKind::Continue)
    );
    schedule.made_below(2);
    assert_eq!(begun(schedule.next(again)), (Tick(20), start(1)));
}

/// The two ways to lay down a timeline agree, and what is in order takes no numbers.
#[test]
fn a_compact_timeline_is_the_same_timeline() {
    let scattered: Vec<u64> = (0..999_u64).map(|n| n * 7_919 % 401).collect();
    let ordered: Vec<u64> = (0..999).map(|n| n / 3).collect();
    for (times, bytes) in [(scattered, 12), (ordered, 8)] {
        let firsts = times.iter().zip(40_u32..);
        let right = Timeline::new(firsts.map(|(&due, n)| (Nanos(due), n)));
        let due: Vec<Nanos> = times.iter().map(|&due| Nanos(due)).collect();
        let listed = Players::Listed((40..40 + 999).collect());
        let compact = [Players::From(40), listed].map(|who| Timeline::of(due.clone(), who));
        assert_eq!(compact[0].heap_bytes(), bytes * times.len());
        for timeline in compact {
            for session in 0..=999 {
                assert_eq!(timeline.conversation(session), right.conversation(session));
                assert_eq!(timeline.due(session), right.due(session));
            }
        }
    }
}

/// What is made for a worker is what its schedule begins.
#[test]
fn each_worker_replays_the_sessions_that_are_told() {
    let timeline = Arc::new(Timeline::new((0..50_u32).map(|n| (Nanos(u64::from(n)), n))));
    for (count, cap) in [(1, None), (3, None), (4, Some(2))] {
        let plan = plan(Arrivals::FixedSchedule, cap, StopRule::default());
        for index in 0..count {
            let shard = Shard { index, count };
            let mut schedule = Schedule::replay(&plan, &timeline, shard, Rate::NANOS, Tick(0));
            let mut begun = Vec::new();
            while let Verdict::Send(intent) = schedule.next(Tick(1_000)) {
                let IntentKind::Start { session } = intent.kind else {
                    panic!("no turn is ready");
                };
                begun.push(session);
                schedule.session_ended(Tick(1_000));
            }
            let told: Vec<u64> = Schedule::replayed(&plan, shard, 50).collect();
            assert_eq!(told, begun, "worker {index} of {count}");
        }
    }
}
