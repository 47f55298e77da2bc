//! The driver on real sockets, where the simulation cannot go.
//!
//! In: a server of the standard library on 127.0.0.1. Out: whole exchanges. Never: another machine, or a time measured.

#[allow(dead_code, reason = "the simulation's half is not used here")]
#[path = "engine/bench.rs"]
mod bench;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bench::{Bench, Kept, Words, closed_loop};
use tokenring::clock::{Clock, Nanos, Tick};
use tokenring::config::ConnectionReuse;
use tokenring::driver::{Backend, portable, probe};
use tokenring::engine::{Control, Counts, Engine, Setup, Stop, Target};
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

/// Answers each of `connections` with a body of `bytes`, and closes.
fn serve(listener: &TcpListener, connections: usize, bytes: usize) {
    let crew: Vec<_> = (0..connections)
        .map(|_| {
            let (mut stream, _) = listener.accept().expect("a connection");
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut piece = [0; 4_096];
                while !request.ends_with(b"....") {
                    let count = stream.read(&mut piece).expect("the request");
                    request.extend_from_slice(&piece[..count]);
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                stream.write_all(head.as_bytes()).expect("the head");
                stream.write_all(&vec![b'x'; bytes]).expect("the body");
            })
        })
        .collect();
    for hand in crew {
        hand.join().expect("the server's hand");
    }
}

/// `connections` bodies at once on one worker; panics when they take half a minute.
fn play(backend: Backend, connections: usize, bytes: usize) -> Vec<Exchange> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let server = thread::spawn(move || serve(&listener, connections, bytes));
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let clock = Clock::new();
        let bench = Bench::new(closed_loop(connections, connections as u64));
        let words: Words = bench.words;
        let setup = Arc::new(Setup {
            phases: bench.phases,
            targets: vec![Target {
                addresses: vec![address],
                tls: None,
            }],
            reuse: ConnectionReuse::Pooled,
            request_timeout: Nanos::from_millis(60_000),
            stop_grace: Nanos::from_millis(0),
            limits: Limits::default(),
            seed: 1,
            rate: clock.rate(),
        });
        let kept = Arc::new(Kept::default());
        let control = Arc::new(Go(clock.now()));
        let only = Shard { index: 0, count: 1 };
        let sink = Box::new(kept.collector());
        let engine = Engine::new(setup, Box::new(words), sink, control, only);
        let engine = portable::run(engine, &clock, &backend).expect("the driver runs");
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
        let exchanges = play(backend, 24, 1 << 20);
        assert_eq!(exchanges.len(), 24);
        for exchange in &exchanges {
            assert_eq!(exchange.outcome, Outcome::Success);
            assert_eq!(exchange.body.len(), 1 << 20);
            assert!(exchange.reads.is_sorted_by_key(|read| read.tick));
        }
    }
}
