//! Users who share a rate: the promises of their schedule.
//!
//! In: random numbers of users, turns and workers, an imagined server. Out: due times, numbers and sessions that must hold.
//! Never: a clock.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, PhasePlan, StopRule, UsersPlan};

use super::play::{Sent, World, play, scatter};
use super::{IRREGULAR, MILLI, PROMPT, SECOND, all, duration, plan, requests, sessions};

fn users(users: u32, rate: f64, turns: u32, stop: StopRule) -> PhasePlan {
    let arrivals = Arrivals::Users(UsersPlan { rate, users, turns });
    plan(arrivals, None, stop)
}

/// Sessions of four turns, answered in a moment.
const FOUR_TURNS: World = World {
    turns: |_| 4,
    ..PROMPT
};

/// The same, but each answer takes 2.5 s.
const SLOW: World = World {
    reply: |_, sent| sent.plus(5 * SECOND / 2),
    ..FOUR_TURNS
};

fn sorted(plan: &PhasePlan, workers: usize, world: &World) -> Vec<Sent> {
    let mut sent = all(&play(plan, 0, workers, world));
    sent.sort_unstable_by_key(|s| s.number);
    sent
}

fn any_users() -> impl Strategy<Value = PhasePlan> {
    let stop = prop_oneof![
        (1..300_u64).prop_map(requests),
        (1..60_u64).prop_map(sessions),
        (0..2 * SECOND).prop_map(duration),
    ];
    // Gaps of 20 ms and more, and answers of less: nobody is late.
    (1..20_u32, 0.02..0.5_f64, 1..9_u32, stop).prop_map(|(count, gap, turns, stop)| {
        let stop = StopRule {
            // Every user is to start.
            requests: stop.requests.map(|n| n.max(u64::from(count))),
            sessions: stop.sessions.map(|n| n.max(u64::from(count))),
            ..stop
        };
        users(count, f64::from(count) / gap, turns, stop)
    })
}

fn of(plan: &PhasePlan) -> UsersPlan {
    match &plan.arrivals {
        Arrivals::Users(users) => *users,
        other => panic!("{other:?} are no users"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// While nobody is late, request m is sent at m / rate, whatever the lengths of the sessions and the number of workers.
    #[test]
    fn workers_together_are_one_worker(plan in any_users(), workers in 1..9_usize) {
        let one = sorted(&plan, 1, &IRREGULAR);
        prop_assert_eq!(&sorted(&plan, workers, &IRREGULAR), &one);
        for (place, sent) in (0..).zip(&one) {
            let number = sent.number;
            // When the last session has started, lanes fall silent one after the other.
            prop_assert!(number == place || plan.stop.sessions.is_some(), "{number} at {place}");
            let due = Nanos::from_seconds(number as f64 / of(&plan).rate).0;
            prop_assert_eq!((sent.due, sent.at), (Tick(due), Tick(due)));
        }
        if plan.stop.sessions.is_none() {
            let count = one.len() as u64;
            let end = plan.stop.duration.map_or(u64::MAX, |d| d.0);
            let due = |number: u64| Nanos::from_seconds(number as f64 / of(&plan).rate).0;
            prop_assert!(plan.stop.requests.unwrap_or(count) == count && (count == 0 || due(count - 1) < end));
            prop_assert!(plan.stop.requests.is_some() || due(count) >= end, "{count} were not all");
        }
    }

    /// Sessions start in the order of their numbers but for the first round, and play all turns but in the first round.
    #[test]
    fn sessions_follow_one_another(plan in any_users(), workers in 1..9_usize) {
        let played = sorted(&plan, workers, &IRREGULAR);
        let count = u64::from(of(&plan).users);
        let starts: Vec<u64> = played.iter().filter(|s| s.turn == 0).map(|s| s.session).collect();
        let (first, later) = starts.split_at(starts.len().min(usize::try_from(count).unwrap()));
        let all_seated = first.len() as u64 == count;
        prop_assert!(!all_seated || first.iter().copied().collect::<BTreeSet<_>>() == (0..count).collect());
        prop_assert!(later.iter().copied().eq(count..count + later.len() as u64));
        let mut turns: BTreeMap<u64, u64> = BTreeMap::new();
        for sent in &played {
            let turn = turns.entry(sent.session).or_default();
            prop_assert_eq!(sent.turn, *turn);
            *turn += 1;
        }
        if let Some(total) = plan.stop.sessions {
            prop_assert_eq!(starts.len() as u64, total);
            for (session, turns) in turns {
                let whole = (IRREGULAR.turns)(session);
                let cut = session + 1 < count && (1..=whole).contains(&turns);
                prop_assert!(cut || turns == whole, "session {session}: {turns} of {whole}");
            }
        }
    }

    /// Late or not, a turn waits for its predecessor's end and for the gap after that was due, and for nothing else; and no start
    /// hangs on an answer.
    #[test]
    fn a_turn_is_due_one_gap_after_the_last_or_when_that_has_ended(plan in any_users(), workers in 1..5_usize) {
        let slow = World { reply: |number, sent| sent.plus(scatter(number) % (100 * MILLI)), ..IRREGULAR };
        let played = sorted(&plan, workers, &slow);
        let gap = f64::from(of(&plan).users) / of(&plan).rate * 1e9;
        let mut last: BTreeMap<u64, Sent> = BTreeMap::new();
        for sent in &played {
            prop_assert_eq!(sent.due, sent.at, "nothing caps the sessions");
            match last.insert(sent.session, *sent) {
                None => {
                    let due = Nanos::from_seconds(sent.number as f64 / of(&plan).rate).0;
                    prop_assert_eq!(sent.due, Tick(due));
                }
                Some(before) => {
                    let ended = (slow.reply)(before.number, before.at).0 as f64;
                    let due = (before.due.0 as f64 + gap).max(ended);
                    prop_assert!((sent.due.0 as f64 - due).abs() <= 2.0, "{sent:?} after {before:?}");
                }
            }
        }
        if let (Some(total), None) = (plan.stop.requests, plan.stop.duration) {
            prop_assert!(played.iter().map(|s| s.number).eq(0..total), "all numbers and no other");
        }
    }

    #[test]
    fn a_cap_is_kept_and_delays_starts_only(plan in any_users(), cap in 1..6_usize, workers in 1..5_usize) {
        let capped = PhasePlan { concurrency: Some(cap), ..plan.clone() };
        let played = play(&capped, 0, workers, &IRREGULAR);
        let peaks: u64 = played.iter().map(|p| p.peak_open).sum();
        prop_assert!(peaks <= cap as u64);
        let sent = all(&played);
        prop_assert!(sent.iter().all(|s| s.turn == 0 || s.due == s.at));
        if let (Some(total), None) = (plan.stop.requests, plan.stop.duration) {
            prop_assert_eq!(sent.len() as u64, total);
        }
    }
}

/// Three users at one request a second, in sessions of four turns: whoever speaks at each second.
#[test]
fn three_users_of_four_turns() {
    // (session, turn). Users and gaps share the factor 3, so the seats are a step of 2 apart. Of the first three sessions, session 0
    // has one turn left, session 1 has two, and session 2 is new.
    let speaks = [
        (2, 0),
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 0),
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 0),
        (2, 3),
        (3, 2),
        (4, 1),
        (5, 0),
    ];
    let plan = users(3, 1.0, 4, requests(speaks.len() as u64));
    for workers in 1..5 {
        let sent = sorted(&plan, workers, &FOUR_TURNS);
        let found: Vec<(u64, u64)> = sent.iter().map(|s| (s.session, s.turn)).collect();
        assert_eq!(found, speaks);
        assert!(sent.iter().all(|s| s.at == Tick(s.number * SECOND)));
    }
}

/// A gap of 2 s and answers of 2.5 s: each later turn is due when its predecessor has ended, the starts keep their seconds.
#[test]
fn late_answers_delay_turns_and_no_start() {
    let plan = users(2, 1.0, 4, sessions(4));
    let sent = sorted(&plan, 1, &SLOW);
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for sent in sent {
        assert_eq!(sent.due, sent.at);
        seen.entry(sent.session)
            .or_default()
            .push(sent.at.0 / MILLI);
    }
    let expected: BTreeMap<u64, Vec<u64>> = [
        (0, vec![1_000, 3_500]),
        (1, vec![0, 2_500, 5_000, 7_500]),
        (2, vec![5_000, 7_500, 10_000, 12_500]),
        (3, vec![8_000, 10_500, 13_000, 15_500]),
    ]
    .into();
    assert_eq!(seen, expected);
}

/// What was due and not sent before the end is counted: 10 s at one a second, minus what slow answers left time for.
#[test]
fn turns_that_found_no_time_are_counted_as_unsent() {
    let plan = users(2, 1.0, 4, duration(10 * SECOND));
    for workers in [1, 2, 3] {
        let played = play(&plan, 0, workers, &SLOW);
        let sent: u64 = played.iter().map(|p| p.counts.sent_requests).sum();
        let unsent: u64 = played.iter().map(|p| p.unsent).sum();
        // By session: 1 and 3.5 s; 0, 2.5, 5 and 7.5 s; 5 and 7.5 s; 8 s.
        assert_eq!((sent, unsent), (9, 1), "{workers} workers");
    }
}

#[test]
fn a_session_stop_is_met_when_all_have_started() {
    for workers in 1..5 {
        let played = play(&users(3, 30.0, 4, sessions(20)), 0, workers, &IRREGULAR);
        let planned: u64 = played.iter().filter_map(|p| p.counts.planned).sum();
        let started: u64 = played.iter().map(|p| p.counts.started_sessions).sum();
        assert_eq!((planned, started), (20, 20), "{workers} workers");
    }
}

/// Neither many users nor long sessions make one question long: the schedule is asked again when the rest may matter.
#[test]
fn long_sessions_are_followed_bit_by_bit() {
    let long = World {
        turns: |session| if session == 0 { 1 } else { 5_000 },
        ..PROMPT
    };
    // Two workers; the first one's next start is thousands of requests away.
    let plan = users(2, 1_000.0, 5_000, requests(12_000));
    let sent = sorted(&plan, 2, &long);
    assert!(sent.iter().map(|s| s.number).eq(0..12_000));
    assert!(sent.iter().all(|s| s.at == Tick(s.number * MILLI)));
}
