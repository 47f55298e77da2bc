//! Engines on both drivers, against small servers on this machine.
//!
//! In: scripted replies on loopback sockets. Out: verdicts on exchanges, counts and open descriptors, the same for every driver.
//! Never: looks inside a driver, or at a load that is not its own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, and servers take their time"
)]

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokenring::clock::{Anchor, Calibration, Clock, Nanos, Tick};
use tokenring::config::{
    Arrivals, ConnectionReuse, MockPlan, PhaseKind, PhasePlan, SlotPlan, StopRule,
};
use tokenring::driver::ring::{Layout, Mode};
use tokenring::driver::{
    Backend, Choice, Driver, RingTally, StampSource, WaitMode, Waiting, Window,
};
use tokenring::endpoint::{History, Reply};
use tokenring::engine::{
    ConnectRules, Control, Counts, Engine, Setup, Sink, Stop, Target, Workload,
};
use tokenring::record::{EventMark, Exchange, Outcome, Read, ReplyReader, RequestId};
use tokenring::schedule::Shard;
use tokenring::wire::{Fault, Limits, write_request_head};

#[path = "ring/closes.rs"]
mod closes;
#[path = "ring/ends.rs"]
mod ends;
#[path = "ring/server.rs"]
mod server;

use server::{Play, Server};

/// A load.
struct Load {
    addresses: Vec<SocketAddr>,
    path: &'static str,
    body: Arc<[u8]>,
    requests: u64,
    concurrency: usize,
    timeout: Duration,
    reuse: ConnectionReuse,
    stop: Stop,
    /// The stop comes when so many requests have been sent.
    stop_at: u64,
}

impl Load {
    fn new(address: SocketAddr, requests: u64, concurrency: usize) -> Load {
        Load {
            addresses: vec![address],
            path: "/",
            body: Arc::from(&b"{}"[..]),
            requests,
            concurrency,
            timeout: Duration::from_secs(20),
            reuse: ConnectionReuse::Pooled,
            stop: Stop::No,
            stop_at: u64::MAX,
        }
    }
}

/// What it left.
struct Left {
    exchanges: Vec<Exchange>,
    counts: Counts,
    tally: RingTally,
    took: Duration,
}

struct OneBody {
    path: &'static str,
    body: Arc<[u8]>,
}

impl Workload for OneBody {
    fn pick(&mut self, _: usize, _: u64) -> u32 {
        0
    }
    fn turn_count(&self, _: u32) -> u32 {
        1
    }
    fn delay(&self, _: u32, _: u32) -> Nanos {
        Nanos(0)
    }
    fn body(&self, _: u32, _: u32) -> Option<Arc<[u8]>> {
        Some(Arc::clone(&self.body))
    }
    fn live_body(&self, _: u32, _: u32, _: &History) -> Arc<[u8]> {
        Arc::clone(&self.body)
    }
    fn needs_reply(&self, _: u32) -> bool {
        false
    }
    fn reply(&self, _: &Exchange, _: Option<ReplyReader>) -> Option<Reply> {
        None
    }
    fn write_head(&self, out: &mut Vec<u8>, _: &RequestId, _: u128, length: usize) {
        let fields = |out: &mut Vec<u8>| out.extend(b"Content-Type: application/json\r\n");
        write_request_head(out, "POST", self.path, "test", fields, length);
    }
}

struct Kept(Rc<RefCell<Vec<Exchange>>>);

impl Sink for Kept {
    fn blank(&mut self) -> Box<Exchange> {
        Box::default()
    }
    fn push(&mut self, exchange: Box<Exchange>) {
        self.0.borrow_mut().push(*exchange);
    }
}

struct Reins {
    start: Tick,
    sent: Cell<u64>,
    stop: Stop,
    stop_at: u64,
}

impl Control for Reins {
    fn phase_start(&self, _: usize) -> Option<Tick> {
        Some(self.start)
    }
    fn ready_for(&self, _: usize) {}
    fn stop(&self) -> Stop {
        if self.sent.get() >= self.stop_at {
            self.stop
        } else {
            Stop::No
        }
    }
    fn publish(&self, counts: &Counts) {
        self.sent.set(counts.sent);
    }
}

/// Runs `load` on `driver` and checks what must hold after any run.
fn drive(way: &Way, load: &Load) -> Left {
    let clock = Clock::new();
    let phase = PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        arrivals: Arrivals::ClosedLoop,
        concurrency: Some(load.concurrency),
        slots: SlotPlan::default(),
        late: tokenring::config::LatePolicy::default(),
        stop: StopRule {
            requests: Some(load.requests),
            ..StopRule::default()
        },
        grace: None,
    };
    let setup = Setup {
        phases: vec![phase],
        url_order: vec![0],
        cancellation: None,
        targets: vec![Target {
            addresses: load.addresses.clone(),
            tunnel: None,
            tls: None,
        }],
        reuse: load.reuse,
        connects: ConnectRules::default(),
        request_timeout: Nanos(u64::try_from(load.timeout.as_nanos()).unwrap()),
        time_limits: tokenring::config::TimeLimits::default(),
        stop_grace: Nanos::from_millis(10_000),
        limits: Limits::default(),
        seed: 1,
        rate: clock.rate(),
        stamps: way.stamps,
    };
    let kept = Rc::new(RefCell::new(Vec::new()));
    let workload = OneBody {
        path: load.path,
        body: Arc::clone(&load.body),
    };
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "the border's type; one thread"
    )]
    let control = Arc::new(Reins {
        start: clock.now(),
        sent: Cell::new(0),
        stop: load.stop,
        stop_at: load.stop_at,
    });
    let engine = Engine::new(
        Arc::new(setup),
        Box::new(workload),
        Box::new(Kept(Rc::clone(&kept))),
        control,
        Shard { index: 0, count: 1 },
    );
    let began = Instant::now();
    let ended = way
        .driver
        .run(engine, &clock, way.stamps, way.waiting)
        .unwrap();
    let took = began.elapsed();
    assert_eq!(ended.stepped_down, None);
    let left = Left {
        exchanges: kept.take(),
        counts: *ended.engine.counts(),
        tally: ended.tally,
        took,
    };
    check_any(&left, clock.rate().ticks(Nanos(200_000)));
    left
}

/// What holds after every run. Stamps of two clocks may be `slack` ticks apart.
fn check_any(left: &Left, slack: u64) {
    let counts = &left.counts;
    let records = left.exchanges.len() as u64;
    assert_eq!(counts.sent, records, "one exchange for each request");
    assert_eq!(counts.sent, counts.whole + counts.failed + counts.cancelled);
    assert_eq!((counts.in_flight, counts.open_connections), (0, 0));
    assert_eq!(
        (left.tally.stale, left.tally.held),
        (0, 0),
        "{:?}",
        left.tally
    );
    for exchange in &left.exchanges {
        let ticks = exchange.ticks;
        assert!(ticks.due <= ticks.start || ticks.start == Tick::NEVER);
        if ticks.last_byte_sent != Tick::NEVER {
            assert!(ticks.start <= ticks.first_byte_sent);
            assert!(ticks.first_byte_sent <= ticks.last_byte_sent);
        }
        for read in &exchange.reads {
            assert!(read.arrival() <= read.tick);
            assert!(read.arrival().plus(slack) >= ticks.first_byte_sent);
        }
        let in_order = |reads: &[Read]| reads[0].tick <= reads[1].tick;
        assert!(exchange.reads.windows(2).all(in_order));
    }
}

/// A way to reach the kernel.
struct Way {
    driver: Driver,
    stamps: StampSource,
    waiting: Waiting,
}

impl Way {
    fn new(driver: Driver, stamps: StampSource) -> Way {
        let waiting = Waiting::default();
        Way {
            driver,
            stamps,
            waiting,
        }
    }

    fn windows(self, micros: u64) -> Way {
        let waiting = Waiting {
            window: Window::Fixed(Nanos(micros * 1_000)),
            ..self.waiting
        };
        Way { waiting, ..self }
    }

    fn mode(self, mode: WaitMode) -> Way {
        let waiting = Waiting {
            mode,
            ..self.waiting
        };
        Way { waiting, ..self }
    }

    fn name(&self) -> String {
        let Waiting { mode, window, .. } = self.waiting;
        let name = self.driver.name();
        format!("{name} {:?} {mode:?} {window:?}", self.stamps)
    }
}

/// The ways that this machine allows: both backends of the portable driver, the ring in all its modes, and all ways to wait.
fn ways() -> Vec<Way> {
    let (user, kernel) = (StampSource::User, StampSource::Kernel);
    let readiness = || Driver::Portable {
        backend: Backend::Readiness {
            reason: "asked for".to_owned(),
        },
        reason: "asked for".to_owned(),
    };
    let mut all = vec![
        Way::new(Driver::choose(Choice::Portable).unwrap(), user),
        Way::new(Driver::choose(Choice::Portable).unwrap(), kernel),
        Way::new(readiness(), user).mode(WaitMode::Sleep),
        Way::new(readiness(), kernel).windows(500),
    ];
    if let Ok(Driver::Ring { layout, .. }) = Driver::choose(Choice::Ring) {
        for mode in [Mode::Deferred, Mode::Cooperative, Mode::Plain] {
            // A kernel that takes the best mode takes the others.
            if layout.mode == Mode::Deferred || layout.mode == mode {
                let driver = ring(Layout { mode, ..layout });
                all.push(Way::new(driver.clone(), kernel));
                all.push(Way::new(driver, kernel).mode(WaitMode::Spin));
            }
        }
        all.push(Way::new(ring(layout), user).mode(WaitMode::Sleep));
        all.push(Way::new(ring(layout), kernel).windows(700));
    }
    all
}

fn ring(layout: Layout) -> Driver {
    Driver::Ring {
        layout,
        refused: String::new(),
    }
}

/// Tests take turns, since they count the descriptors of the whole process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs `load` against servers that play `play`, on every driver; each must leave as many descriptors as it found.
fn on_all(play: &Play, load: impl Fn(SocketAddr) -> Load, check: impl Fn(&Left, &Server, &str)) {
    let _turn = turn();
    for way in ways() {
        let before = open_descriptors();
        let server = Server::start(play.clone());
        let left = drive(&way, &load(server.address));
        let name = way.name();
        check(&left, &server, &name);
        drop(server);
        let_go_again(before, &name);
    }
}

/// No more descriptors are open than `before`. The kernel closes a ring's last files after the ring itself.
fn let_go_again(before: usize, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while open_descriptors() > before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(open_descriptors(), before, "{name}");
}

fn all_are(left: &Left, outcome: Outcome, name: &str) {
    for exchange in &left.exchanges {
        assert_eq!(exchange.outcome, outcome, "{name}: {:?}", exchange.ticks);
    }
}

#[test]
fn many_requests_share_few_connections() {
    on_all(
        &Play::Reply(300),
        |address| Load::new(address, 600, 100),
        |left, server, name| {
            all_are(left, Outcome::Success, name);
            assert!(left.counts.connects <= 100, "{name}: {:?}", left.counts);
            assert_eq!(server.requests(), 600, "{name}");
            for exchange in &left.exchanges {
                assert_eq!(exchange.body, server::body(300), "{name}");
            }
            if name.contains("Kernel") {
                // All but the first few, which may come before the kernel has begun to stamp.
                assert!(
                    left.tally.unstamped * 10 < left.tally.reads,
                    "{name}: {:?}",
                    left.tally
                );
            }
        },
    );
}

#[test]
fn a_connection_for_each_request() {
    let load = |address| Load {
        reuse: ConnectionReuse::Never,
        ..Load::new(address, 300, 30)
    };
    on_all(&Play::Reply(10), load, |left, _, name| {
        all_are(left, Outcome::Success, name);
        assert_eq!(left.counts.connects, 300, "{name}");
    });
}

#[test]
fn resets_and_early_closes_end_one_request_each() {
    for (play, fault) in [
        (Play::Reset, Fault::Reset),
        (Play::CloseEarly, Fault::Truncated),
    ] {
        on_all(
            &play,
            |address| Load::new(address, 60, 20),
            |left, _, name| all_are(left, Outcome::Fault(fault), name),
        );
    }
}

#[test]
fn a_refused_connect_goes_on_to_the_next_address() {
    // A port that was free a moment ago.
    let refusing = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    on_all(
        &Play::Reply(1),
        |address| Load {
            addresses: vec![refusing, address],
            ..Load::new(address, 40, 10)
        },
        |left, _, name| all_are(left, Outcome::Success, name),
    );
    on_all(
        &Play::Reply(1),
        |_| Load::new(refusing, 40, 10),
        |left, _, name| all_are(left, Outcome::Fault(Fault::ConnectRefused), name),
    );
}

#[test]
fn a_megabyte_comes_whole() {
    on_all(
        &Play::Reply(1 << 20),
        |address| Load::new(address, 12, 4),
        |left, _, name| {
            all_are(left, Outcome::Success, name);
            let whole = server::body(1 << 20);
            assert!(
                left.exchanges.iter().all(|exchange| exchange.body == whole),
                "{name}"
            );
        },
    );
}

#[test]
fn a_large_request_to_a_slow_reader_is_sent_in_parts() {
    // Twice what the kernel may buffer, so that no write can take it whole.
    let body: Arc<[u8]> = server::body(2 * server::most_buffered()).into();
    on_all(
        &Play::ReadSlowly,
        |address| Load {
            body: Arc::clone(&body),
            ..Load::new(address, 2, 2)
        },
        |left, server, name| {
            all_are(left, Outcome::Success, name);
            assert_eq!(server.wrong_bodies(), 0, "{name}");
            for exchange in &left.exchanges {
                assert!(
                    exchange.link.sent_whole && exchange.link.writes > 1,
                    "{name}: {:?}",
                    exchange.link
                );
                let sending = exchange
                    .ticks
                    .last_byte_sent
                    .since(exchange.ticks.first_byte_sent);
                assert!(sending > 0, "{name}");
            }
        },
    );
}

#[test]
fn hundreds_of_limits_run_out_at_once() {
    let load = |address| Load {
        timeout: Duration::from_millis(300),
        ..Load::new(address, 300, 300)
    };
    on_all(&Play::Stall, load, |left, _, name| {
        all_are(left, Outcome::Timeout, name);
        assert!(
            left.took < Duration::from_millis(1_500),
            "{name}: {:?}",
            left.took
        );
    });
}

#[test]
fn a_send_that_hangs_is_given_up() {
    let body: Arc<[u8]> = server::body(8 << 20).into();
    let load = |address| Load {
        timeout: Duration::from_millis(200),
        body: Arc::clone(&body),
        ..Load::new(address, 20, 20)
    };
    on_all(&Play::NeverRead, load, |left, _, name| {
        all_are(left, Outcome::Timeout, name);
    });
}

#[test]
fn a_stop_cuts_what_is_under_way() {
    let load = |address| Load {
        stop: Stop::Now,
        stop_at: 50,
        ..Load::new(address, 500, 50)
    };
    on_all(&Play::Stall, load, |left, _, name| {
        all_are(left, Outcome::Interrupted, name);
        assert_eq!(left.counts.sent, 50, "{name}");
        assert!(
            left.took < Duration::from_secs(3),
            "{name}: {:?}",
            left.took
        );
    });
}

#[test]
fn a_ring_that_is_too_small_loses_nothing() {
    let _turn = turn();
    let Ok(Driver::Ring { layout, .. }) = Driver::choose(Choice::Ring) else {
        return;
    };
    for mode in [layout.mode, Mode::Plain] {
        let tiny = Layout {
            mode,
            submissions: 4,
            completions: 8,
            buffer_count: 2,
            buffer_bytes: 512,
        };
        let server = Server::start(Play::Reply(100_000));
        let load = Load::new(server.address, 120, 60);
        let left = drive(&Way::new(ring(tiny), StampSource::Kernel), &load);
        all_are(&left, Outcome::Success, "tiny");
        let whole = server::body(100_000);
        assert!(left.exchanges.iter().all(|exchange| exchange.body == whole));
        assert!(
            left.tally.exhausted > 0 && left.tally.rearms > 0,
            "{:?}",
            left.tally
        );
        assert!(left.tally.overflows > 0, "{:?}", left.tally);
    }
}

/// Every arrival lies shortly after the send that the built-in server logged.
#[test]
fn arrivals_follow_the_server_s_sends() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for (number, way) in ways().into_iter().enumerate() {
        let log = folder.path().join(format!("{number}.log"));
        let server = tokenring::mock::start(&MockPlan {
            time_to_first_token: Nanos::from_millis(5),
            inter_token_latency: Nanos::from_millis(5),
            tokens: 20,
            threads: Some(1),
            log: Some(log.clone()),
            ..MockPlan::default()
        })
        .unwrap();
        let body = br#"{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]}"#;
        let load = Load {
            path: "/v1/chat/completions",
            body: Arc::from(&body[..]),
            ..Load::new(server.address, 3, 1)
        };
        let clock = Clock::new();
        let start = Anchor::take(&clock);
        let left = drive(&way, &load);
        let calibration = Calibration::fit(&clock, start, Anchor::take(&clock));
        server.stop();
        let name = way.name();
        all_are(&left, Outcome::Success, &name);
        let sends = std::fs::read_to_string(&log).unwrap();
        let sends = sends.lines().filter(|line| !line.starts_with('#'));
        let sends: Vec<u64> = sends
            .map(|line| line.split(' ').nth(3).unwrap().parse().unwrap())
            .collect();
        let events = left.exchanges.iter().flat_map(|exchange| {
            let read = |event: &EventMark| exchange.reads[event.read as usize].arrival();
            // The log knows the tokens: neither the role before them nor the end after them.
            exchange.events[1..=20].iter().map(read)
        });
        let arrivals: Vec<u64> = events.map(|tick| calibration.monotonic_ns(tick)).collect();
        assert_eq!(arrivals.len(), sends.len(), "{name}");
        let mut late: Vec<i64> = arrivals
            .iter()
            .zip(&sends)
            .map(|(&arrival, &send)| arrival.cast_signed() - send.cast_signed())
            .collect();
        late.sort_unstable();
        // A send is stamped before its write; what lies before it is the error of the clocks.
        assert!(late[0] > -20_000, "{name}: {late:?}");
        assert!(late[late.len() / 2] < 2_000_000, "{name}: {late:?}");
    }
}
