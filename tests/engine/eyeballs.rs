//! Several addresses of one name, idle connections, and closes that cross a request.
//!
//! In: hosts that refuse, or say nothing. Out: requests that succeed all the same, and what it took. Never: a clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokenring::clock::Nanos;
use tokenring::config::ConnectionReuse;
use tokenring::driver::simulated::{Answer, Ending, Faults, Host, Reach, Simulation};
use tokenring::engine::ConnectRules;
use tokenring::record::Outcome;
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, Played, SECOND, address, at, closed_loop};
use crate::check::{Judged, check};
use crate::{play_random_bench, random_bench, seeds, stream};

const ADDRESSES: [&str; 4] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"];

fn hosts(reaches: &[Reach]) -> BTreeMap<std::net::SocketAddr, Host> {
    let hosts = ADDRESSES.iter().zip(reaches);
    hosts
        .map(|(text, &reach)| {
            let host = Host {
                reach,
                ..Host::default()
            };
            (address(text), host)
        })
        .collect()
}

fn play(mut bench: Bench, reaches: &[Reach], latency: Nanos) -> Played {
    bench.targets = vec![at(&ADDRESSES[..reaches.len()], None)];
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.hosts = hosts(reaches);
    simulation.latency = latency;
    simulation.server = Box::new(stream);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

/// From the first attempt to the connection, in milliseconds, in the order of the requests' numbers.
fn connecting(played: &Played) -> Vec<u64> {
    let mut exchanges: Vec<_> = played.exchanges.iter().collect();
    exchanges.sort_by_key(|exchange| exchange.id.number);
    let took = |ticks: tokenring::record::Ticks| ticks.connect_end.since(ticks.connect_start);
    exchanges.iter().map(|e| took(e.ticks) / MILLI).collect()
}

#[test]
fn a_request_goes_to_the_first_address_that_answers() {
    use Reach::{Open, Refused, Silent};
    // What is behind the addresses; how long the first connection takes; which address; attempts for five connections.
    for (reaches, first, index, attempts) in [
        (&[Open, Open][..], 0, 0, 5),
        (&[Refused, Open], 0, 1, 6),
        (&[Silent, Open], 250, 1, 6),
        (&[Silent, Refused, Open], 250, 2, 7),
        (&[Silent, Silent, Open], 500, 2, 7),
        (&[Refused, Silent, Silent, Open], 500, 3, 8),
    ] {
        for reuse in [ConnectionReuse::Never, ConnectionReuse::Pooled] {
            let mut bench = Bench::new(closed_loop(1, 5));
            bench.reuse = reuse;
            let played = play(bench, reaches, Nanos(50_000));
            assert_eq!(played.counts.whole, 5, "{reaches:?}");
            let took = connecting(&played);
            assert_eq!(took[0], first, "{reaches:?}");
            if reuse == ConnectionReuse::Never {
                assert_eq!(took[1..], [0; 4], "{reaches:?}: paid twice");
                assert_eq!(played.counts.attempts, attempts, "{reaches:?}");
            }
            for exchange in &played.exchanges {
                assert_eq!(exchange.link.address, index, "{reaches:?}");
                assert!(exchange.ticks.start >= exchange.ticks.due);
            }
        }
    }
}

/// The first address answers after its rival was opened: it still wins, and the rival goes.
#[test]
fn a_slow_address_may_win_against_its_rival() {
    let bench = Bench::new(closed_loop(1, 3));
    let played = play(bench, &[Reach::Open, Reach::Silent], Nanos(150 * MILLI));
    assert_eq!(played.counts.whole, 3);
    assert_eq!(connecting(&played)[0], 300);
    assert_eq!(played.counts.attempts, 2, "the rival was closed unused");
    assert!(played.exchanges.iter().all(|e| e.link.address == 0));
}

#[test]
fn a_request_fails_when_every_address_has() {
    use Reach::{Refused, Silent};
    for (reaches, fault) in [
        (&[Refused, Refused][..], Fault::ConnectRefused),
        (&[Silent, Silent], Fault::ConnectTimeout),
        (&[Silent, Refused], Fault::ConnectTimeout),
    ] {
        let mut bench = Bench::new(closed_loop(2, 4));
        bench.request_timeout = Nanos(SECOND);
        let played = play(bench, reaches, Nanos(50_000));
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, Outcome::Fault(fault), "{reaches:?}");
        }
    }
}

#[test]
fn connections_that_are_opened_ahead_race_as_well() {
    for workers in 1..=3 {
        let mut phase = closed_loop(5, 20);
        phase.slots.pre_connect = 5;
        let mut bench = Bench::new(phase);
        bench.workers = workers;
        let played = play(bench, &[Reach::Silent, Reach::Open], Nanos(50_000));
        let counts = played.counts;
        assert_eq!(
            (counts.whole, counts.opened_ahead, counts.failed_ahead),
            (20, 5, 0)
        );
    }
    let mut phase = closed_loop(5, 5);
    phase.slots.pre_connect = 5;
    let mut bench = Bench::new(phase);
    bench.request_timeout = Nanos(2 * SECOND);
    let played = play(bench, &[Reach::Silent, Reach::Silent], Nanos(50_000));
    assert_eq!(played.counts.failed_ahead, 5);
}

#[test]
fn races_leave_nothing_behind_whatever_goes_wrong() {
    for seed in seeds(7_000, 400) {
        let mut bench = random_bench(seed);
        let count = 2 + usize::try_from(seed % 3).expect("it is small");
        bench.targets = vec![at(&ADDRESSES[..count], None), at(&ADDRESSES[1..], None)];
        bench.connects.head_start = Nanos(1 + seed % 7 * 100_000);
        let faults = Faults {
            silent_connect: 0.3,
            refuse: 0.3,
            ..Faults::all(0.02)
        };
        play_random_bench(bench, seed, faults, Nanos(30 * MILLI));
    }
}

#[test]
fn a_connection_that_waits_too_long_is_closed_before_the_server_does() {
    for reuse in [ConnectionReuse::Pooled, ConnectionReuse::StickyUserSessions] {
        let mut bench = Bench::new(closed_loop(4, 40));
        bench.reuse = reuse;
        bench.words.turns = 4;
        bench.words.think = Nanos(60 * MILLI);
        bench.connects = ConnectRules {
            idle: Some(Nanos(20 * MILLI)),
            ..ConnectRules::default()
        };
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(stream);
        let played = bench.play(simulation);
        check(&played, &judged);
        assert_eq!(played.counts.whole, 40);
        assert!(played.counts.idle_closed > 3, "{reuse:?}");
        // None of those that were kept had waited longer.
        let mut ends: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for exchange in &played.exchanges {
            let port = ends.entry(exchange.link.local_port).or_default();
            port.push(exchange.ticks.end.0);
        }
        for exchange in played.exchanges.iter().filter(|e| e.link.reused) {
            let start = exchange.ticks.start.0;
            let before = ends[&exchange.link.local_port]
                .iter()
                .filter(|end| **end <= start);
            let last = before.max().expect("it served before");
            assert!(
                start - last <= 20 * MILLI,
                "{reuse:?}: waited {}",
                start - last
            );
        }
    }
}

/// A server that had the request for longer than any round trip may have begun it.
#[test]
fn a_close_that_comes_late_is_no_race() {
    for (wait, resent) in [(10 * MILLI, 1), (900 * MILLI, 1), (1_500 * MILLI, 0)] {
        let bench = Bench::new(closed_loop(1, 2));
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(move |seen, _| {
            let mut answer = Answer::stream(2, Nanos(MILLI));
            if seen.earlier > 0 {
                answer.delay = Nanos(wait);
                answer.ending = Ending::Close(0);
            }
            answer
        });
        let played = bench.play(simulation);
        check(&played, &judged);
        assert_eq!(played.counts.resent, resent, "after {wait} ns");
        let outcome = match resent {
            0 => Outcome::Fault(Fault::ClosedBeforeResponse),
            _ => Outcome::Success,
        };
        assert_eq!(played.exchanges[1].outcome, outcome);
    }
}

/// New connections go to what a look-up has found meanwhile; those that are there stay.
#[test]
fn a_later_look_up_moves_new_connections() {
    for (reuse, moves) in [
        (ConnectionReuse::Never, true),
        (ConnectionReuse::Pooled, false),
    ] {
        let mut bench = Bench::new(closed_loop(1, 40));
        bench.reuse = reuse;
        bench.targets = vec![at(&ADDRESSES[..1], None)];
        let judged = Judged::of(&bench, 1);
        let mut simulation = Simulation::new(1);
        simulation.hosts = hosts(&[Reach::Open, Reach::Refused, Reach::Refused, Reach::Open]);
        simulation.server = Box::new(stream);
        let played = bench.play_with(simulation, |simulation, conductor| {
            let conductor = Arc::clone(conductor);
            let found = ADDRESSES[1..].iter().map(|text| address(text)).collect();
            let publish = move || *conductor.later.lock().unwrap() = Arc::new(vec![found]);
            simulation
                .acts
                .push((tokenring::clock::Tick(40 * MILLI), Box::new(publish)));
        });
        check(&played, &judged);
        assert_eq!(played.counts.whole, 40);
        let last = played.exchanges.iter().max_by_key(|e| e.ticks.end);
        // The third of the addresses that were found later.
        assert_eq!(
            last.map(|e| e.link.address),
            Some(if moves { 2 } else { 0 })
        );
        // A refusal of each of the two before it, once.
        let opened = if moves { 40 + 2 } else { 1 };
        assert_eq!(played.counts.attempts, opened, "{reuse:?}");
    }
}
