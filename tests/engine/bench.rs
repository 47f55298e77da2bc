//! What an engine needs around it, in memory.
//!
//! In: phases, targets, a simulation. Out: the exchanges and counts of every worker. Never: a clock, or a file.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokenring::clock::{Nanos, Rate, Tick};
use tokenring::config::{
    Arrivals, CancellationPlan, ConnectionReuse, EndpointKind, EndpointPlan, PhaseKind, PhasePlan,
    SlotPlan, StopRule, TimeLimits, UrlStrategy,
};
use tokenring::driver::StampSource;
use tokenring::driver::simulated::{Outcome, Simulation, VirtualClock};
use tokenring::endpoint::{Api, History, Reply};
use tokenring::engine::{
    ConnectRules, Control, Counts, Engine, Setup, Sink, Stop, Target, TlsTarget, Workload,
};
use tokenring::record::{Exchange, ReplyReader, RequestId, reply_of};
use tokenring::schedule::{Shard, url_order};
use tokenring::wire::Limits;

pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLI;

/// Makes a workload.
pub(crate) type Wrap = dyn Fn(Words) -> Box<dyn Workload> + Send + Sync;

/// What a test runs.
pub(crate) struct Bench {
    pub(crate) phases: Vec<PhasePlan>,
    pub(crate) targets: Vec<Target>,
    pub(crate) reuse: ConnectionReuse,
    pub(crate) connects: ConnectRules,
    pub(crate) request_timeout: Nanos,
    pub(crate) time_limits: TimeLimits,
    pub(crate) stop_grace: Nanos,
    pub(crate) cancellation: Option<CancellationPlan>,
    pub(crate) url_weights: Option<Vec<u32>>,
    pub(crate) workers: usize,
    pub(crate) words: Words,
    /// Plays this instead of conversations made up from `words`, whose bodies it says.
    /// What makes the workload out of the words; `None` takes the words themselves.
    pub(crate) wrap: Option<Arc<Wrap>>,
    pub(crate) seed: u64,
}

/// What is said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// Most turns of a conversation; each has 1 up to this many.
    pub(crate) turns: u32,
    /// Longest think time.
    pub(crate) think: Nanos,
    /// Bodies of later turns hold what was replied.
    pub(crate) live: bool,
    /// Bytes of a body.
    pub(crate) body_bytes: usize,
}

/// What is left of a run.
pub(crate) struct Played {
    pub(crate) outcome: Outcome,
    pub(crate) exchanges: Vec<Exchange>,
    /// When each was handed over: its slot was free by then.
    pub(crate) left: Vec<Tick>,
    /// Exchanges that engines asked for.
    pub(crate) blanks: usize,
    pub(crate) counts: Counts,
    /// When each phase started.
    pub(crate) starts: Vec<Tick>,
    /// Up to where the phases before each had used the dataset's order.
    pub(crate) used: Vec<u64>,
}

/// The conductor's hand: tests stop a run with it.
pub(crate) struct Conductor {
    clock: VirtualClock,
    workers: usize,
    stop: AtomicU8,
    ready: Vec<AtomicUsize>,
    starts: Vec<AtomicU64>,
    latest: Vec<AtomicU64>,
    used: Vec<AtomicU64>,
    /// Addresses that a later look-up found.
    pub(crate) later: Mutex<Arc<Vec<Vec<SocketAddr>>>>,
}

impl Bench {
    /// One phase on one worker with one plain target.
    pub(crate) fn new(phase: PhasePlan) -> Bench {
        Bench {
            phases: vec![phase],
            targets: vec![plain("10.0.0.1:80")],
            reuse: ConnectionReuse::Pooled,
            connects: ConnectRules::default(),
            request_timeout: Nanos::from_millis(600_000),
            time_limits: TimeLimits::default(),
            stop_grace: Nanos::from_millis(1_000),
            cancellation: None,
            url_weights: None,
            workers: 1,
            words: Words {
                turns: 1,
                think: Nanos(0),
                live: false,
                body_bytes: 100,
            },
            wrap: None,
            seed: 1,
        }
    }

    pub(crate) fn play(self, simulation: Simulation) -> Played {
        self.play_with(simulation, |_, _| {})
    }

    /// `prepare` gets the conductor before the run, to call stops at a time.
    pub(crate) fn play_with(
        self,
        mut simulation: Simulation,
        prepare: impl FnOnce(&mut Simulation, &Arc<Conductor>),
    ) -> Played {
        let workers = self.workers;
        let conductor = Arc::new(conductor(&simulation, workers, self.phases.len()));
        prepare(&mut simulation, &conductor);
        let (words, wrap) = (self.words, self.wrap);
        let strategy = match self.url_weights {
            Some(weights) => UrlStrategy::Weighted(weights),
            None => UrlStrategy::RoundRobin,
        };
        let setup = Arc::new(Setup {
            phases: self.phases,
            url_order: url_order(&strategy, self.targets.len()),
            cancellation: self.cancellation,
            targets: self.targets,
            reuse: self.reuse,
            connects: self.connects,
            request_timeout: self.request_timeout,
            time_limits: self.time_limits,
            stop_grace: self.stop_grace,
            limits: Limits::default(),
            seed: self.seed,
            rate: Rate::NANOS,
            stamps: StampSource::Kernel,
        });
        let kept = Arc::new(Kept::new(conductor.clock.clone()));
        let engines = (0..workers).map(|index| {
            let shard = Shard {
                index,
                count: workers,
            };
            let sink = Box::new(kept.collector());
            let control: Arc<dyn Control> = conductor.clone();
            let workload: Box<dyn Workload> = match &wrap {
                Some(wrap) => wrap(words),
                None => Box::new(words),
            };
            Engine::new(Arc::clone(&setup), workload, sink, control, shard)
        });
        let outcome = simulation.run(engines.collect());
        let counts = outcome.engines.iter().map(|e| *e.counts());
        let counts = counts.fold(Counts::default(), add);
        let exchanges = kept.take();
        Played {
            outcome,
            exchanges,
            left: kept.left(),
            blanks: kept.blanks.load(Ordering::Relaxed),
            counts,
            starts: conductor
                .starts
                .iter()
                .map(|s| Tick(s.load(Ordering::Relaxed)))
                .collect(),
            used: conductor
                .used
                .iter()
                .map(|used| used.load(Ordering::Relaxed))
                .collect(),
        }
    }
}

/// What tells all workers of a run when a phase starts.
fn conductor(simulation: &Simulation, workers: usize, phases: usize) -> Conductor {
    Conductor {
        clock: simulation.clock.clone(),
        workers,
        stop: AtomicU8::new(0),
        ready: (0..=phases).map(|_| AtomicUsize::new(0)).collect(),
        starts: (0..=phases).map(|_| AtomicU64::new(u64::MAX)).collect(),
        latest: (0..=phases).map(|_| AtomicU64::new(0)).collect(),
        used: (0..=phases).map(|_| AtomicU64::new(0)).collect(),
        later: Mutex::default(),
    }
}

impl Conductor {
    pub(crate) fn call(&self, stop: Stop) {
        let code = match stop {
            Stop::No => 0,
            Stop::Drain => 1,
            Stop::Now => 2,
        };
        self.stop.store(code, Ordering::Relaxed);
    }

    /// A worker has come to `phase`; it is the last one.
    fn is_last(&self, phase: usize) -> bool {
        let before = self.ready[phase].fetch_add(1, Ordering::Relaxed);
        assert!(
            before < self.workers,
            "a worker was ready twice for phase {phase}"
        );
        before + 1 == self.workers
    }
}

impl Control for Conductor {
    fn addresses(&self, seen: u64) -> Option<(u64, Arc<Vec<Vec<SocketAddr>>>)> {
        let later = lock(&self.later);
        (seen == 0 && !later.is_empty()).then(|| (1, Arc::clone(&later)))
    }

    fn phase_start(&self, phase: usize) -> Option<Tick> {
        let start = Tick(self.starts[phase].load(Ordering::Relaxed));
        (start != Tick::NEVER).then_some(start)
    }

    fn ready_for(&self, phase: usize) {
        if self.is_last(phase) {
            let start = self.clock.now().plus(MILLI);
            self.starts[phase].store(start.0, Ordering::Relaxed);
        }
    }

    fn hand_over(&self, phase: usize, at: Tick) {
        let latest = self.latest[phase].fetch_max(at.0, Ordering::Relaxed);
        if self.is_last(phase) {
            self.starts[phase].store(latest.max(at.0), Ordering::Relaxed);
        }
    }

    fn used(&self, phase: usize, used: u64) {
        self.used[phase].fetch_max(used, Ordering::Relaxed);
    }

    fn used_before(&self, phase: usize) -> u64 {
        self.used[phase].load(Ordering::Relaxed)
    }

    fn stop(&self) -> Stop {
        [Stop::No, Stop::Drain, Stop::Now][usize::from(self.stop.load(Ordering::Relaxed))]
    }

    fn publish(&self, counts: &Counts) {
        let ended = counts.whole + counts.failed + counts.cancelled;
        assert_eq!(
            counts.sent,
            ended + counts.in_flight,
            "{counts:?} do not add up"
        );
    }
}

/// What the sinks of a run collect.
#[derive(Default)]
pub(crate) struct Kept {
    clock: VirtualClock,
    exchanges: Mutex<Vec<Exchange>>,
    left: Mutex<Vec<Tick>>,
    blanks: AtomicUsize,
}

impl Kept {
    /// Nothing yet; `clock` says when something comes.
    pub(crate) fn new(clock: VirtualClock) -> Kept {
        Kept {
            clock,
            ..Kept::default()
        }
    }

    /// A sink that hands over to this.
    pub(crate) fn collector(self: &Arc<Kept>) -> Collector {
        Collector(Arc::clone(self))
    }

    /// All exchanges so far.
    pub(crate) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *lock(&self.exchanges))
    }

    /// When each of them came.
    fn left(&self) -> Vec<Tick> {
        std::mem::take(&mut *lock(&self.left))
    }
}

pub(crate) struct Collector(Arc<Kept>);

impl Sink for Collector {
    fn blank(&mut self) -> Box<Exchange> {
        self.0.blanks.fetch_add(1, Ordering::Relaxed);
        Box::default()
    }

    fn push(&mut self, exchange: Box<Exchange>) {
        lock(&self.0.left).push(self.0.clock.now());
        lock(&self.0.exchanges).push(*exchange);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that looks random and follows from `number`.
pub(crate) fn scatter(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

impl Workload for Words {
    fn pick(&mut self, phase: usize, session: u64) -> u32 {
        u32::try_from(session + 100_000 * phase as u64).expect("tests are short")
    }

    fn turn_count(&self, conversation: u32) -> u32 {
        1 + u32::try_from(scatter(u64::from(conversation)) % u64::from(self.turns))
            .expect("a remainder of 32 bits")
    }

    fn delay(&self, conversation: u32, turn: u32) -> Nanos {
        let number = u64::from(conversation) << 8 | u64::from(turn);
        Nanos(
            scatter(number)
                .checked_rem(self.think.0 + 1)
                .unwrap_or_default(),
        )
    }

    fn body(&self, conversation: u32, turn: u32) -> Option<Arc<[u8]>> {
        let lives = self.live && turn > 0;
        (!lives).then(|| text(conversation, turn, 0, self.body_bytes))
    }

    fn live_body(&self, conversation: u32, turn: u32, history: &History) -> Arc<[u8]> {
        let history = history.replies();
        assert_eq!(
            history.len(),
            turn as usize,
            "one entry for each earlier turn"
        );
        let kept = history.iter().flatten().count();
        text(conversation, turn, kept, self.body_bytes)
    }

    fn needs_reply(&self, _conversation: u32) -> bool {
        true
    }

    fn reader(&self) -> Option<ReplyReader> {
        self.live.then(|| ReplyReader::new(&chat()))
    }

    fn reply(&self, exchange: &Exchange, reader: Option<ReplyReader>) -> Option<Reply> {
        assert!(!exchange.id.last_turn, "nobody needs the last reply");
        if self.live {
            // Read in steps, and whole from its start: the same.
            let steps = reader.and_then(|reader| reader.finish(exchange));
            assert_eq!(steps, reply_of(&chat(), exchange));
        }
        self.live.then(Reply::default)
    }

    fn write_head(&self, out: &mut Vec<u8>, id: &RequestId, request: u128, body_length: usize) {
        let (target, session) = (id.url, id.session_uuid);
        assert!(out.is_empty(), "an exchange was not cleared");
        let head = format!(
            "POST /v1/{target} HTTP/1.1\r\nHost: peer\r\nX-Request-ID: {request:032x}\r\nX-Correlation-ID: {session:032x}\r\nContent-Length: {body_length}\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
    }
}

fn text(conversation: u32, turn: u32, kept: usize, bytes: usize) -> Arc<[u8]> {
    let mut text = format!("{conversation} {turn} {kept} ").into_bytes();
    text.resize(bytes.max(text.len()), b'.');
    text.into()
}

fn add(mut sum: Counts, other: Counts) -> Counts {
    sum.add(&other);
    sum
}

/// A target of one plain address.
pub(crate) fn plain(address: &str) -> Target {
    at(&[address], None)
}

/// A target of several addresses.
pub(crate) fn at(addresses: &[&str], tls: Option<TlsTarget>) -> Target {
    Target {
        addresses: addresses.iter().map(|a| address(a)).collect(),
        tunnel: None,
        tls,
    }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A profiling phase of the closed loop.
pub(crate) fn closed_loop(concurrency: usize, requests: u64) -> PhasePlan {
    PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        arrivals: Arrivals::ClosedLoop,
        concurrency: Some(concurrency),
        slots: SlotPlan::default(),
        late: tokenring::config::LatePolicy::default(),
        stop: StopRule {
            requests: Some(requests),
            ..StopRule::default()
        },
        grace: None,
    }
}

/// The dialect that replies here are in.
fn chat() -> Api {
    Api::new(&EndpointPlan::plain(EndpointKind::Chat)).expect("chat has no settings of its own")
}
