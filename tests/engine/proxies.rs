//! Requests through a proxy.
//!
//! In: proxies that open a tunnel, or do not. Out: requests that reach the server whole, or faults that name the proxy. Never: a byte for the
//! server before the tunnel is there.

use std::collections::BTreeMap;

use tokenring::clock::Nanos;
use tokenring::config::ConnectionReuse;
use tokenring::driver::simulated::{Faults, Host, Reach, Simulation};
use tokenring::engine::Target;
use tokenring::record::Outcome;
use tokenring::wire::{Fault, connect_head};

use crate::bench::{Bench, MILLI, Played, SECOND, address, at, closed_loop};
use crate::check::{Judged, check};
use crate::{secure, seeds, stream};

/// The server behind a proxy at 10.0.0.1:80.
fn proxied(tls: bool) -> Target {
    Target {
        tunnel: Some(connect_head("server.test:443", Some("Basic YTpi"))),
        ..at(
            &["10.0.0.1:80"],
            tls.then(|| secure::client("peer.test", true)),
        )
    }
}

fn play(mut bench: Bench, status: u16, tls: bool, faults: Faults, seed: u64) -> Played {
    bench.targets = vec![proxied(tls)];
    bench.seed = seed;
    let judged = Judged::of(&bench, seed);
    let mut simulation = Simulation::new(seed);
    simulation.faults = faults;
    simulation.server = Box::new(stream);
    simulation.proxies = BTreeMap::from([(address("10.0.0.1:80"), status)]);
    let host = Host {
        tls: tls.then(secure::server),
        ..Host::default()
    };
    simulation.hosts.insert(address("10.0.0.1:80"), host);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

#[test]
fn a_tunnel_takes_a_round_trip_more_and_changes_nothing_else() {
    for tls in [false, true] {
        for reuse in [ConnectionReuse::Pooled, ConnectionReuse::Never] {
            let mut bench = Bench::new(closed_loop(3, 12));
            bench.reuse = reuse;
            let played = play(bench, 200, tls, Faults::none(), 1);
            assert_eq!(played.counts.whole, 12, "{reuse:?} {tls}");
            for exchange in &played.exchanges {
                let ticks = exchange.ticks;
                if !exchange.link.reused {
                    let took = ticks.connect_end.since(ticks.connect_start);
                    assert_eq!(took, 4 * 50_000, "two round trips");
                    assert!(!tls || ticks.tls_end > ticks.connect_end);
                }
                assert!(ticks.first_byte_sent >= ticks.start);
            }
        }
    }
}

#[test]
fn what_a_proxy_refuses_has_its_own_name() {
    for (status, fault) in [
        (407, Fault::ProxyAuthentication),
        (502, Fault::ProxyRefused),
        (101, Fault::ProxyRefused),
        (0, Fault::ProxyBadReply),
    ] {
        let played = play(
            Bench::new(closed_loop(2, 4)),
            status,
            false,
            Faults::none(),
            1,
        );
        assert_eq!(played.exchanges.len(), 4);
        assert!(
            played.outcome.requests.is_empty(),
            "nothing reached the server"
        );
        for exchange in &played.exchanges {
            assert_eq!(exchange.outcome, Outcome::Fault(fault), "{status}");
        }
    }
    let mut bench = Bench::new(closed_loop(1, 2));
    bench.targets = vec![proxied(false)];
    let mut simulation = Simulation::new(1);
    let refused = Host {
        reach: Reach::Refused,
        ..Host::default()
    };
    simulation.hosts.insert(address("10.0.0.1:80"), refused);
    for exchange in bench.play(simulation).exchanges {
        assert_eq!(exchange.outcome, Outcome::Fault(Fault::ProxyUnreachable));
    }
}

#[test]
fn tunnels_are_opened_ahead_of_a_phase() {
    for tls in [false, true] {
        for late_sent in [0.0, 1.0] {
            let mut phase = closed_loop(5, 20);
            phase.slots.pre_connect = 5;
            let faults = Faults {
                late_sent,
                ..Faults::none()
            };
            let counts = play(Bench::new(phase), 200, tls, faults, 1).counts;
            let opened = (counts.whole, counts.opened_ahead, counts.failed_ahead);
            assert_eq!(opened, (20, 5, 0), "tls {tls} late {late_sent}");
        }
    }
}

#[test]
fn tunnels_leave_nothing_behind_whatever_goes_wrong() {
    for seed in seeds(8_000, 300) {
        let mut phase = closed_loop(1 + usize::try_from(seed % 5).expect("it is small"), 20);
        phase.slots.pre_connect = usize::try_from(seed % 4).expect("it is small");
        let mut bench = Bench::new(phase);
        bench.request_timeout = Nanos(if seed % 2 == 0 { 30 * MILLI } else { SECOND });
        bench.workers = 1 + usize::try_from(seed % 3).expect("it is small");
        let status = [200, 200, 200, 407, 0][usize::try_from(seed % 5).expect("it is small")];
        play(bench, status, seed % 7 < 2, Faults::all(0.05), seed);
    }
}
