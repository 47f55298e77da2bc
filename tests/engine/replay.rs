//! A driver that answers each request with the same reads, over and over.
//!
//! In: one captured response, cut in reads. Out: how often the engine was asked what. Never: a socket, a clock, or an allocation
//! of its own once it is warm.

use std::cell::RefCell;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{Arrivals, ConnectionReuse, PhaseKind, PhasePlan, SlotPlan, StopRule};
use tokenring::driver::{ConnId, Op, Sent, Stamp, StampSource};
use tokenring::endpoint::{History, Reply};
use tokenring::engine::{
    ConnectRules, Control, Counts, Engine, Setup, Sink, Stop, Target, Workload,
};
use tokenring::record::{Exchange, ReplyReader, RequestId};
use tokenring::schedule::Shard;
use tokenring::wire::Limits;

/// Reads that are handed over together, as a driver does that reaps in windows.
const BATCH: usize = 32;

/// Wraps every call of the engine, to measure it.
pub(crate) trait Meter {
    /// A read is handed over.
    fn received(&mut self, call: impl FnOnce());
    /// Anything else is done.
    fn other<T>(&mut self, call: impl FnOnce() -> T) -> T;
    /// The engine has ended so many requests. False ends the replay.
    fn ended(&mut self, requests: u64) -> bool;
}

/// The sums over the exchanges that came back.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) exchanges: u64,
    pub(crate) events: u64,
    pub(crate) body_bytes: u64,
    #[expect(clippy::vec_box, reason = "the engine takes and gives them boxed")]
    spare: Vec<Box<Exchange>>,
}

struct Recycler(Rc<RefCell<Tally>>);

impl Sink for Recycler {
    fn blank(&mut self) -> Box<Exchange> {
        self.0.borrow_mut().spare.pop().unwrap_or_default()
    }

    fn push(&mut self, mut exchange: Box<Exchange>) {
        let mut tally = self.0.borrow_mut();
        tally.exchanges += 1;
        tally.events += exchange.events.len() as u64;
        tally.body_bytes += exchange.body.len() as u64;
        exchange.clear();
        tally.spare.push(exchange);
    }
}

struct Same(Arc<[u8]>);

impl Workload for Same {
    fn pick(&mut self, _: usize, _: u64) -> u32 {
        0
    }
    fn turn_count(&self, _: u32) -> u32 {
        1
    }
    fn delay(&self, _: u32, _: u32) -> Nanos {
        Nanos(0)
    }
    fn reply_tokens(&self, _: u32, _: u32) -> Option<u32> {
        Some(300)
    }
    fn body(&self, _: u32, _: u32) -> Option<Arc<[u8]>> {
        Some(Arc::clone(&self.0))
    }
    fn live_body(&self, _: u32, _: u32, _: &History) -> Arc<[u8]> {
        Arc::clone(&self.0)
    }
    fn needs_reply(&self, _: u32) -> bool {
        false
    }
    fn reply(&self, _: &Exchange, _: Option<ReplyReader>) -> Option<Reply> {
        None
    }
    fn write_head(&self, out: &mut Vec<u8>, _: &RequestId, request: u128, length: usize) {
        write!(
            out,
            "POST /v1/chat/completions HTTP/1.1\r\nHost: peer\r\nX-Request-ID: {request:032x}\r\nContent-Length: {length}\r\n\r\n"
        )
        .expect("memory takes all bytes");
    }
}

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

/// Cuts a response so that each read brings `events` events; the head comes with the first.
pub(crate) fn reads(response: &[u8], events: usize) -> Vec<&[u8]> {
    let ends = (4..=response.len()).filter(|&at| response[..at].ends_with(b"\n\n\r\n"));
    let mut cuts: Vec<usize> = ends.skip(events - 1).step_by(events).collect();
    cuts.push(response.len());
    let mut begin = 0;
    let pieces = cuts
        .into_iter()
        .map(|end| &response[std::mem::replace(&mut begin, end)..end]);
    pieces.filter(|piece| !piece.is_empty()).collect()
}

/// Plays requests one after another on `concurrency` connections until `meter` has seen enough.
pub(crate) fn replay(reads: &[&[u8]], concurrency: usize, meter: &mut impl Meter) -> Tally {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut engine = engine(concurrency, Box::new(Recycler(Rc::clone(&tally))));
    let mut now = Tick(2);
    let mut asked: Vec<ConnId> = Vec::new();
    loop {
        now = now.plus(1_000);
        match meter.other(|| engine.next(now)) {
            Op::Connect { conn, .. } => {
                meter.other(|| engine.on_connected(conn, 40_000, now, now));
            }
            Op::Send { conn, bytes } => {
                let sent = Sent {
                    first: now,
                    last: now,
                    writes: 1,
                    error: None,
                };
                meter.other(|| engine.on_sent(conn, bytes, sent));
                asked.push(conn);
            }
            Op::Wait { .. } => {
                for read in reads {
                    for batch in asked.chunks(BATCH) {
                        meter.other(|| engine.look_ahead(batch.iter().copied()));
                        for &conn in batch {
                            now = now.plus(1_000);
                            let stamp = Stamp {
                                tick: now,
                                kernel: now,
                            };
                            meter.received(|| {
                                let taken = engine.on_received(conn, read, stamp);
                                debug_assert_eq!(taken, read.len());
                            });
                        }
                    }
                }
                asked.clear();
                let counts = engine.counts();
                assert_eq!(counts.failed, 0, "the captured stream is whole");
                if !meter.ended(counts.whole) {
                    break;
                }
            }
            Op::Close { .. } => {}
            Op::Finished => break,
        }
    }
    drop(engine);
    tally.take()
}

fn engine(concurrency: usize, sink: Box<dyn Sink>) -> Engine {
    let phase = PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        arrivals: Arrivals::ClosedLoop,
        concurrency: Some(concurrency),
        slots: SlotPlan::default(),
        late: tokenring::config::LatePolicy::default(),
        stop: StopRule {
            requests: Some(u64::from(u32::MAX)),
            ..StopRule::default()
        },
        grace: None,
    };
    let setup = Setup {
        phases: vec![phase],
        url_order: vec![0],
        cancellation: None,
        targets: vec![Target {
            addresses: vec![([127, 0, 0, 1], 80).into()],
            tunnel: None,
            tls: None,
        }],
        reuse: ConnectionReuse::Pooled,
        connects: ConnectRules::default(),
        request_timeout: Nanos::from_millis(600_000),
        time_limits: tokenring::config::TimeLimits::default(),
        stop_grace: Nanos::from_millis(1_000),
        limits: Limits::default(),
        seed: 1,
        rate: Rate::NANOS,
        stamps: StampSource::Kernel,
    };
    let words = Same(Arc::from([b'.'; 1_000]));
    let shard = Shard { index: 0, count: 1 };
    Engine::new(Arc::new(setup), Box::new(words), sink, Arc::new(Go), shard)
}
