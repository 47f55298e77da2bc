//! The driver on real sockets, where the simulation cannot go.
//!
//! In: a server of the standard library on 127.0.0.1. Out: whole exchanges. Never: another machine, or a time measured.

#[allow(dead_code, reason = "the simulation's half is not used here")]
#[path = "engine/bench.rs"]
mod bench;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bench::{Bench, Kept, Words, closed_loop};
use tokenring::clock::{Clock, Nanos, Tick};
use tokenring::config::ConnectionReuse;
use tokenring::driver::portable::Wishes;
use tokenring::driver::{Backend, StampSource, portable, probe};
use tokenring::engine::{ConnectRules, Control, Counts, Engine, Setup, Stop, Target};
use tokenring::record::{Exchange, Outcome};
use tokenring::schedule::Shard;
use tokenring::wire::Limits;

/// Starts everything at once.
struct Go(Tick);

impl Control for Go {
    fn phase_start(&self, _: usize) -> Option<Tick> {
        Some(self.0)
    }
    fn ready_for(&self, _: usize) {}
    fn stop(&self) -> Stop {
        Stop::No
    }
    fn publish(&self, _: &Counts) {}
}

/// What the server does with a connection.
type Hand = fn(TcpStream);

/// Gives each of `connections` to a thread of its own.
fn serve(listener: &TcpListener, connections: usize, hand: Hand) {
    let crew: Vec<_> = (0..connections)
        .map(|_| {
            let (stream, _) = listener.accept().expect("a connection");
            thread::spawn(move || hand(stream))
        })
        .collect();
    for hand in crew {
        hand.join().expect("the server's hand");
    }
}

/// Reads one request; false when the connection has ended.
fn take_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut piece = [0; 4_096];
    while !request.ends_with(b"....") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(count) => request.extend_from_slice(&piece[..count]),
        }
    }
    true
}

fn answer(stream: &mut TcpStream, bytes: usize) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the head");
    stream.write_all(&vec![b'x'; bytes]).expect("the body");
}

/// What a test asks of the driver.
struct Asked {
    backend: Backend,
    wishes: Wishes,
    concurrency: usize,
    requests: u64,
    timeout: Nanos,
    /// Connections that the server takes, and what it does with each.
    connections: usize,
    hand: Hand,
    /// An address that refuses stands before the server's.
    refused_first: bool,
}

/// One worker's run; panics when it takes half a minute.
fn play(asked: Asked) -> Vec<Exchange> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut addresses = vec![listener.local_addr().expect("its address")];
    if asked.refused_first {
        // A port that was free a moment ago.
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
        addresses.insert(0, closed.local_addr().expect("its address"));
    }
    let (connections, hand) = (asked.connections, asked.hand);
    let server = thread::spawn(move || serve(&listener, connections, hand));
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let clock = Clock::new();
        let bench = Bench::new(closed_loop(asked.concurrency, asked.requests));
        let words: Words = bench.words;
        let setup = Arc::new(Setup {
            phases: bench.phases,
            url_order: vec![0],
            cancellation: None,
            targets: vec![Target {
                addresses,
                tunnel: None,
                tls: None,
            }],
            reuse: ConnectionReuse::Pooled,
            connects: ConnectRules::default(),
            request_timeout: asked.timeout,
            time_limits: tokenring::config::TimeLimits::default(),
            stop_grace: Nanos::from_millis(0),
            limits: Limits::default(),
            seed: 1,
            rate: clock.rate(),
            stamps: StampSource::Kernel,
        });
        let kept = Arc::new(Kept::default());
        let control = Arc::new(Go(clock.now()));
        let only = Shard { index: 0, count: 1 };
        let sink = Box::new(kept.collector());
        let engine = Engine::new(setup, Box::new(words), sink, control, only);
        let (engine, _) =
            portable::run(engine, &clock, &asked.backend, asked.wishes).expect("the driver runs");
        assert_eq!(engine.counts().open_connections, 0);
        drop(engine);
        // The test may have given up.
        let _ = tell.send(kept.take());
    });
    let exchanges = hear
        .recv_timeout(Duration::from_secs(30))
        .expect("the driver ends");
    server.join().expect("the server ends");
    exchanges
}

fn readiness() -> Backend {
    Backend::Readiness {
        reason: "the test asks for it".to_owned(),
    }
}

/// Once, a task that found no room for its read went round for ever and kept the pump from making room.
#[test]
fn more_bytes_than_the_arena_holds_come_through() {
    for backend in [readiness(), probe()] {
        let exchanges = play(Asked {
            backend,
            wishes: Wishes::default(),
            concurrency: 24,
            requests: 24,
            timeout: Nanos::from_millis(60_000),
            connections: 24,
            hand: |mut stream| {
                take_request(&mut stream);
                answer(&mut stream, 1 << 20);
            },
            refused_first: false,
        });
        assert_eq!(exchanges.len(), 24);
        for exchange in &exchanges {
            assert_eq!(exchange.outcome, Outcome::Success);
            assert_eq!(exchange.body.len(), 1 << 20);
            assert!(exchange.reads.is_sorted_by_key(|read| read.tick));
        }
    }
}

/// Two connections serve all; the address that refuses is asked for each, and passed over.
#[test]
fn kept_connections_are_used_again() {
    for backend in [readiness(), probe()] {
        let exchanges = play(Asked {
            backend,
            wishes: Wishes::default(),
            concurrency: 2,
            requests: 40,
            timeout: Nanos::from_millis(60_000),
            connections: 2,
            hand: |mut stream| {
                while take_request(&mut stream) {
                    answer(&mut stream, 300);
                }
            },
            refused_first: true,
        });
        assert_eq!(exchanges.len(), 40);
        for exchange in &exchanges {
            assert_eq!(exchange.outcome, Outcome::Success);
            assert_eq!((exchange.link.address, exchange.link.resent), (1, false));
            assert!(exchange.link.sent_whole && exchange.link.local_port != 0);
        }
        let fresh = exchanges.iter().filter(|e| !e.link.reused).count();
        assert_eq!(fresh, 2);
    }
}

/// Each connection is closed after one answer, without a word before: the next request finds it so.
#[test]
fn a_connection_closed_while_idle_costs_no_error() {
    for backend in [readiness(), probe()] {
        let exchanges = play(Asked {
            backend,
            wishes: Wishes::default(),
            concurrency: 1,
            requests: 20,
            timeout: Nanos::from_millis(60_000),
            connections: 20,
            hand: |mut stream| {
                take_request(&mut stream);
                answer(&mut stream, 300);
            },
            refused_first: false,
        });
        assert_eq!(exchanges.len(), 20);
        assert!(exchanges.iter().all(|e| e.outcome == Outcome::Success));
    }
}

#[test]
fn a_silent_server_is_left_at_the_limit() {
    for backend in [readiness(), probe()] {
        let exchanges = play(Asked {
            backend,
            wishes: Wishes::default(),
            concurrency: 5,
            requests: 10,
            timeout: Nanos::from_millis(50),
            connections: 10,
            hand: |mut stream| {
                take_request(&mut stream);
                // Until the client closes.
                take_request(&mut stream);
            },
            refused_first: false,
        });
        assert_eq!(exchanges.len(), 10);
        for exchange in &exchanges {
            assert_eq!(exchange.outcome, Outcome::Timeout);
            assert!(exchange.link.sent_whole);
        }
    }
}
