//! Sessions: who goes where, on which connection, and when their turns are due.
//!
//! In: runs in virtual time. Out: due times to the tick, URLs, connections. Never: a run that a seed does not replay.

use std::collections::{BTreeMap, BTreeSet};

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, ConnectionReuse, PhasePlan, StopRule, UsersPlan};
use tokenring::driver::simulated::{SeenRequest, Simulation};
use tokenring::engine::Workload;
use tokenring::record::Exchange;

use super::bench::{Bench, MILLI, Played, closed_loop, plain};
use super::check::{Judged, check};
use super::stream;

fn play(bench: Bench) -> Played {
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(stream);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

/// Exchanges by session, in order of their turns.
fn by_session(played: &Played) -> BTreeMap<u64, Vec<&Exchange>> {
    let mut sessions: BTreeMap<u64, Vec<&Exchange>> = BTreeMap::new();
    for exchange in &played.exchanges {
        sessions
            .entry(exchange.id.session)
            .or_default()
            .push(exchange);
    }
    for turns in sessions.values_mut() {
        turns.sort_by_key(|exchange| exchange.id.turn);
    }
    sessions
}

fn sessions(concurrency: usize, count: u64) -> PhasePlan {
    PhasePlan {
        stop: StopRule {
            sessions: Some(count),
            ..StopRule::default()
        },
        ..closed_loop(concurrency, 0)
    }
}

/// A think time begins when the reply has ended, and the turn goes out when it is over, to the tick.
#[test]
fn a_think_time_runs_from_the_end_of_the_reply() {
    for workers in [1, 3] {
        let mut bench = Bench::new(sessions(4, 60));
        bench.workers = workers;
        bench.words.turns = 5;
        bench.words.think = Nanos(7 * MILLI);
        let words = bench.words;
        let played = play(bench);
        let mut thought = 0;
        for turns in by_session(&played).values() {
            for pair in turns.windows(2) {
                let think = words.delay(pair[1].id.conversation, pair[1].id.turn);
                let due = pair[0].ticks.end.plus(think.0);
                assert_eq!((pair[1].ticks.due, pair[1].ticks.start), (due, due));
                thought += usize::from(think.0 > 0);
            }
        }
        assert!(thought > 50, "{thought}");
    }
}

/// With a rate, a turn takes the first arrival after its think time.
#[test]
fn a_think_time_ends_before_the_turns_arrival() {
    let rate = 300.0;
    let mut bench = Bench::new(PhasePlan {
        arrivals: Arrivals::constant(rate),
        ..sessions(3, 60)
    });
    bench.words.turns = 4;
    bench.words.think = Nanos(20 * MILLI);
    let words = bench.words;
    let played = play(bench);
    for turns in by_session(&played).values() {
        for pair in turns.windows(2) {
            let think = words.delay(pair[1].id.conversation, pair[1].id.turn);
            let ready = pair[0].ticks.end.plus(think.0);
            assert!(pair[1].ticks.start >= ready, "{:?}", pair[1].id);
        }
    }
}

/// A sticky session has a connection of its own from its first turn to its last, and takes it along when it ends.
#[test]
fn a_sticky_session_keeps_its_connection_and_shares_it_with_nobody() {
    let mut bench = Bench::new(sessions(5, 80));
    bench.workers = 2;
    bench.reuse = ConnectionReuse::StickyUserSessions;
    bench.words.turns = 4;
    bench.words.think = Nanos(3 * MILLI);
    let played = play(bench);
    let mut owners: BTreeMap<usize, u64> = BTreeMap::new();
    let by_head: BTreeMap<&[u8], &Exchange> = played
        .exchanges
        .iter()
        .map(|exchange| (&exchange.request_head[..], exchange))
        .collect();
    let mut used: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for seen in &played.outcome.requests {
        let id = by_head[&seen.head[..]].id;
        let owner = owners.entry(seen.connection).or_insert(id.session);
        assert_eq!(*owner, id.session, "connection {}", seen.connection);
        used.entry(id.session).or_default().insert(seen.connection);
    }
    // An answer that closes its connection would be another matter; these keep it.
    assert!(used.values().all(|connections| connections.len() == 1));
    assert_eq!(played.outcome.connections, 80);
    for turns in by_session(&played).values() {
        let last = turns.last().expect("a session has turns");
        let closed = |at: Tick| {
            played
                .outcome
                .closed_at
                .values()
                .any(|&closed| closed == at)
        };
        assert!(closed(last.ticks.end), "{:?}", last.id);
    }
}

/// Users speak when they are due, on any number of workers; their names are their numbers.
#[test]
fn users_speak_in_turn() {
    for workers in [1, 2, 3] {
        let users = UsersPlan {
            rate: 50.0,
            users: 5,
            turns: 3,
        };
        let mut bench = Bench::new(PhasePlan {
            arrivals: Arrivals::Users(users),
            ..closed_loop(1, 200)
        });
        bench.phases[0].concurrency = None;
        bench.workers = workers;
        bench.words.turns = 5;
        // Think times of the dataset have no say.
        bench.words.think = Nanos(900 * MILLI);
        bench.targets = vec![plain("10.0.0.1:80"), plain("10.0.0.2:80")];
        let played = play(bench);
        for exchange in &played.exchanges {
            let (id, ticks) = (exchange.id, exchange.ticks);
            let due = played.starts[0].plus(20 * MILLI * id.number);
            assert_eq!((ticks.due, ticks.start), (due, due), "{id:?}");
            assert!(played.outcome.announced.contains(&due), "{id:?}");
            assert_eq!(id.session_uuid, u128::from(id.session) + 2);
            assert_eq!(u64::from(id.url), id.session % 2);
        }
    }
}

/// Sessions go to URLs by weight, all workers together, and stay there.
#[test]
fn weighted_urls_share_the_sessions() {
    let mut bench = Bench::new(sessions(7, 80));
    bench.workers = 3;
    bench.words.turns = 3;
    bench.targets = vec![plain("10.0.0.1:80"), plain("10.0.0.2:80")];
    bench.url_weights = Some(vec![3, 1]);
    let played = play(bench);
    let mut urls = vec![None; 80];
    for exchange in &played.exchanges {
        let url = &mut urls[usize::try_from(exchange.id.session).expect("80 sessions")];
        assert_eq!(*url.get_or_insert(exchange.id.url), exchange.id.url);
    }
    for round in urls.chunks(4) {
        assert_eq!(round, [Some(0), Some(0), Some(1), Some(0)]);
    }
    let path = |seen: &&SeenRequest| seen.head.starts_with(b"POST /v1/1 ");
    let second = played.outcome.requests.iter().filter(path).count();
    let asked = played.exchanges.iter().filter(|e| e.id.url == 1).count();
    assert_eq!(second, asked);
}
