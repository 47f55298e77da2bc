//! The three stamps of a read, handed to an engine by hand.
//!
//! In: reads with stamps by the kernel and by the worker, in batches. Out: arrivals by the source that was chosen, the other stamp
//! beside it, the end of parsing, and due times of what follows. Never: a stamp that the engine made itself.

use std::sync::Arc;

use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::ConnectionReuse;
use tokenring::driver::simulated::VirtualClock;
use tokenring::driver::{CloseReason, ConnId, Op, Sent, Stamp, StampSource};
use tokenring::engine::{ConnectRules, Control, Counts, Engine, Setup, Stop};
use tokenring::record::{Exchange, Outcome};
use tokenring::schedule::Shard;
use tokenring::wire::Limits;

use crate::bench::{Bench, Kept, closed_loop, plain};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT: &[u8] = b"9\r\ndata: x\n\n\r\n";
const END: &[u8] = b"0\r\n\r\n";

struct Go;

impl Control for Go {
    fn phase_start(&self, _: usize) -> Option<Tick> {
        Some(Tick(1))
    }
    fn ready_for(&self, _: usize) {}
    fn stop(&self) -> Stop {
        Stop::No
    }
    fn publish(&self, _: &Counts) {}
}

/// An engine of two slots, and what it leaves.
struct Hand {
    engine: Option<Engine>,
    kept: Arc<Kept>,
}

impl Hand {
    fn new(stamps: StampSource) -> Hand {
        let bench = Bench::new(closed_loop(2, 4));
        let words = bench.words;
        let setup = Setup {
            phases: bench.phases,
            url_order: vec![0],
            cancellation: None,
            targets: vec![plain("10.0.0.1:80")],
            reuse: ConnectionReuse::Pooled,
            connects: ConnectRules::default(),
            request_timeout: Nanos::from_millis(600_000),
            time_limits: tokenring::config::TimeLimits::default(),
            stop_grace: Nanos(0),
            limits: Limits::default(),
            seed: 1,
            rate: Rate::NANOS,
            stamps,
        };
        let kept = Arc::new(Kept::new(VirtualClock::default()));
        let sink = Box::new(kept.collector());
        let shard = Shard { index: 0, count: 1 };
        let engine = Engine::new(Arc::new(setup), Box::new(words), sink, Arc::new(Go), shard);
        Hand {
            engine: Some(engine),
            kept,
        }
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("it is there until the end")
    }

    /// Asks at `now` until it waits, connects and sends at once; returns the connections that sent.
    fn ask(&mut self, now: u64) -> Vec<ConnId> {
        let now = Tick(now);
        let mut asked = Vec::new();
        loop {
            match self.engine().next(now) {
                Op::Connect { conn, .. } => self.engine().on_connected(conn, 40_000, now, now),
                Op::Send { conn, bytes } => {
                    let sent = Sent {
                        first: now.plus(7),
                        last: now.plus(10),
                        writes: 1,
                        error: None,
                    };
                    self.engine().on_sent(conn, bytes, sent);
                    asked.push(conn);
                }
                Op::Close { .. } => {}
                Op::Wait { .. } | Op::Finished => return asked,
            }
        }
    }

    fn receive(&mut self, conn: ConnId, bytes: &[u8], kernel: u64, tick: u64) {
        let stamp = Stamp {
            tick: Tick(tick),
            kernel: if kernel == 0 {
                Tick::NEVER
            } else {
                Tick(kernel)
            },
        };
        let taken = self.engine().on_received(conn, bytes, stamp);
        assert_eq!(taken, bytes.len(), "nothing is to be decrypted");
    }

    fn exchanges(&self) -> Vec<Exchange> {
        self.kept.take()
    }
}

/// Two connections in one batch; the second reply ends in it. What the next look at the clock says is the end of parsing for all.
#[test]
fn every_read_keeps_its_stamps_and_the_end_of_its_parsing() {
    for (source, arrivals, due) in [
        (StampSource::Kernel, [1_000, 1_905, 2_000, 2_950], 2_950),
        (StampSource::User, [1_100, 1_905, 2_100, 3_000], 3_000),
    ] {
        let mut hand = Hand::new(source);
        let conns = hand.ask(100);
        let (one, two) = (conns[0], conns[1]);
        hand.receive(one, HEAD, 1_000, 1_100);
        // The kernel had no stamp for this one.
        hand.receive(two, HEAD, 0, 1_905);
        assert_eq!(hand.ask(1_950), []);
        hand.receive(one, EVENT, 2_000, 2_100);
        hand.receive(two, EVENT, 2_050, 2_110);
        hand.receive(one, END, 2_950, 3_000);
        assert_eq!(hand.exchanges().len(), 0, "handed over when it is parsed");
        assert_eq!(hand.ask(3_333), [one], "its successor");
        let ended = hand.exchanges();
        let [exchange] = &ended[..] else {
            panic!("one has ended, not {}", ended.len());
        };
        let came: Vec<u64> = exchange.reads.iter().map(|r| r.arrival().0).collect();
        assert_eq!(came, [arrivals[0], arrivals[2], arrivals[3]], "{source:?}");
        let kept: Vec<[u64; 3]> = exchange
            .reads
            .iter()
            .map(|read| [read.kernel.0, read.tick.0, read.parsed.0])
            .collect();
        let stamps = [
            [1_000, 1_100, 1_950],
            [2_000, 2_100, 3_333],
            [2_950, 3_000, 3_333],
        ];
        assert_eq!(kept, stamps, "{source:?}");
        let ticks = &exchange.ticks;
        assert_eq!(ticks.head_received, Tick(arrivals[0]));
        assert_eq!(ticks.end, Tick(arrivals[3]), "the arrival of its last byte");
        assert_eq!((ticks.due, ticks.submitted), (Tick(1), Tick(100)));
        assert_eq!(
            (ticks.first_byte_sent, ticks.last_byte_sent),
            (Tick(107), Tick(110))
        );
        // The other connection's reads, and the successor's due time: its slot was free when the last byte had come.
        hand.receive(one, &[HEAD, EVENT, END].concat(), 4_000, 4_100);
        hand.receive(two, END, 4_010, 4_100);
        hand.ask(4_200);
        let [successor, other] = &hand.exchanges()[..] else {
            panic!("two more have ended");
        };
        assert_eq!(successor.ticks.due, Tick(due), "{source:?}");
        assert_eq!(successor.ticks.submitted, Tick(3_333));
        // On a kept connection a request starts with its first byte, whatever was done before (E2).
        assert_eq!(successor.ticks.start, Tick(3_340));
        let came: Vec<u64> = other.reads[..1].iter().map(|r| r.arrival().0).collect();
        assert_eq!(came, [arrivals[1]], "without a kernel's stamp the worker's");
        let parsed: Vec<u64> = other.reads.iter().map(|read| read.parsed.0).collect();
        assert_eq!(parsed, [1_950, 3_333, 4_200]);
    }
}

/// The end of the connection ends the reply; its last byte had come before.
#[test]
fn a_reply_that_ends_with_its_connection_ends_with_its_last_byte() {
    let mut hand = Hand::new(StampSource::Kernel);
    let one = hand.ask(10)[0];
    let reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n";
    hand.receive(one, reply, 500, 600);
    hand.ask(650);
    hand.engine()
        .on_closed(one, CloseReason::Eof, Tick(9_000_000));
    hand.ask(9_000_100);
    let ended = hand.exchanges();
    assert_eq!(ended[0].outcome, Outcome::Success);
    assert_eq!(ended[0].ticks.end, Tick(500));
    // A reply that breaks off ends when that was noticed.
    let mut hand = Hand::new(StampSource::Kernel);
    let one = hand.ask(10)[0];
    hand.receive(one, HEAD, 500, 600);
    hand.engine().on_closed(one, CloseReason::Eof, Tick(700));
    hand.ask(800);
    let ended = hand.exchanges();
    assert!(matches!(ended[0].outcome, Outcome::Fault(_)));
    assert_eq!(ended[0].ticks.end, Tick(700));
}

#[test]
fn a_driver_that_fails_in_mid_batch_loses_no_exchange() {
    let mut hand = Hand::new(StampSource::Kernel);
    let one = hand.ask(10)[0];
    hand.receive(one, &[HEAD, EVENT, END].concat(), 500, 600);
    assert_eq!(hand.exchanges().len(), 0);
    hand.engine = None;
    let ended = hand.exchanges();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].reads[0].parsed, Tick::NEVER);
}
