//! Slots that sessions of the phase before still hold, without an engine.
//!
//! In: schedules of which some slots are held, releases at given times. Out: what may be sent when. Never: a clock.

use proptest::prelude::*;
use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{Arrivals, StopRule};
use tokenring::schedule::{Schedule, Shard, Verdict};

use crate::{MILLI, any_arrivals, duration, plan, requests, sessions};

const ALONE: Shard = Shard { index: 0, count: 1 };

fn schedule(arrivals: Arrivals, concurrency: Option<usize>, held: u64) -> Schedule {
    let plan = plan(arrivals, concurrency, requests(1_000));
    let mut schedule = Schedule::new(&plan, 3, ALONE, Rate::NANOS, Tick(0));
    schedule.hold(held, 0);
    schedule
}

/// Sends all that may be sent at `now`; their due times.
fn send(schedule: &mut Schedule, now: Tick) -> Vec<Tick> {
    let mut dues = Vec::new();
    while let Verdict::Send(intent) = schedule.next(now) {
        schedule.next_request_number();
        dues.push(intent.due);
    }
    dues
}

#[test]
fn a_slot_is_due_when_it_is_released() {
    // Of three slots two are held; a session of the phase itself frees its own.
    let mut schedule = schedule(Arrivals::ClosedLoop, Some(3), 2);
    assert_eq!(send(&mut schedule, Tick(5)), [Tick(0)]);
    schedule.release_held(Tick(10));
    schedule.session_ended(Tick(12));
    assert_eq!(send(&mut schedule, Tick(20)), [Tick(10), Tick(12)]);
    schedule.release_held(Tick(30));
    assert_eq!(send(&mut schedule, Tick(30)), [Tick(30)]);
    assert_eq!(schedule.next(Tick(30)), Verdict::WaitForSlot);
}

/// Five sessions of a larger phase before: two slots come free only when one is left.
#[test]
fn more_held_than_slots_leave_none_until_they_are_fewer() {
    let mut schedule = schedule(Arrivals::ClosedLoop, Some(2), 5);
    let sent: Vec<usize> = (1..=5)
        .map(|at| {
            schedule.release_held(Tick(at));
            send(&mut schedule, Tick(at)).len()
        })
        .collect();
    assert_eq!(sent, [0, 0, 0, 1, 1]);
}

#[test]
fn a_rate_without_a_cap_does_not_care() {
    let rate = Arrivals::constant(1_000.0);
    let mut schedule = schedule(rate, None, 7);
    assert_eq!(send(&mut schedule, Tick(3 * MILLI)).len(), 3);
}

#[test]
fn sending_ends_with_the_deadline_or_the_count() {
    let both = StopRule {
        requests: Some(2),
        ..duration(50)
    };
    let now = Tick(20);
    for (stop, sent, ended) in [
        (duration(50), 3, Tick(50)),
        (requests(3), 3, now),
        (both, 2, now),
        (both, 1, Tick(50)),
        (sessions(3), 3, now),
    ] {
        let plan = plan(Arrivals::ClosedLoop, Some(3), stop);
        let mut schedule = Schedule::new(&plan, 3, ALONE, Rate::NANOS, Tick(0));
        for _ in 0..sent {
            assert!(matches!(schedule.next(now), Verdict::Send(_)), "{stop:?}");
        }
        assert_eq!(schedule.sending_ended(now), ended, "{stop:?} after {sent}");
        assert_eq!(schedule.session_numbers(), sent, "{stop:?}");
        assert_eq!(schedule.starts_no_more(), stop.sessions.is_some());
    }
}

proptest! {
    /// Whatever is held and released, those open and those held are never more than the slots when one begins.
    #[test]
    fn held_slots_are_not_given_out(arrivals in any_arrivals(), slots in 1_usize..8, mut held in 0_u64..12,
                                    steps in prop::collection::vec((0_u64..3, any::<bool>()), 1..60)) {
        let mut schedule = schedule(arrivals, Some(slots), held);
        let mut now = Tick(0);
        for (wait, own) in steps {
            now = now.plus(wait * 10 * MILLI);
            while let Verdict::Send(intent) = schedule.next(now) {
                let open = schedule.counts().open_sessions;
                prop_assert!(open + held <= slots as u64, "{open} open and {held} held of {slots}");
                prop_assert!(intent.due <= now);
                schedule.next_request_number();
            }
            if own && schedule.counts().open_sessions > 0 {
                schedule.session_ended(now);
            } else if held > 0 {
                held -= 1;
                schedule.release_held(now);
            }
        }
        // Nothing is lost: once all is free, all slots are used again.
        for _ in 0..held {
            schedule.release_held(now);
        }
        for _ in 0..schedule.counts().open_sessions {
            schedule.session_ended(now);
        }
        let later = now.plus(Nanos::from_millis(3_600_000).0);
        prop_assert_eq!(send(&mut schedule, later).len(), slots);
    }
}
