//! The driver on monoio: io_uring or epoll on Linux, kqueue on macOS.
//!
//! In: an engine's operations. Out: completions. All sockets that are ready are read and stamped, one after the other, before the
//! first of their bytes is parsed. Never: parses, or gives the engine a stamp taken after parsing.
//!
//! A task for each connection waits until its socket is readable, reads once into the worker's arena, takes the stamp and
//! queues a completion. monoio polls its main future only when no task is ready: that future, the pump, hands the queue to the
//! engine and carries out what it wants. In between it lets the tasks of sockets that have become ready run, whenever the engine
//! has decrypted as much as no stamp should wait for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use monoio::net::TcpStream;

use crate::clock::{Clock, KernelClock, Tick};
use crate::engine::Engine;

use super::last_waits::LastWaits;
use super::pace::Timer;
use super::probe::{Backend, RING_ENTRIES};
use super::socket::{SocketOptions, Sockets};
#[cfg(target_os = "linux")]
use super::stamping;
use super::waiting::Waiting;
use super::window::{Gaps, Windows};
use super::{CloseReason, ConnId, Op, Pause, RingTally, Sent, wake_on_time};

mod batch;
mod sockets;

use batch::{Arena, Unfinished};

/// Most bytes that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Length of one wait for tasks to end when the engine has finished.
const LAST_WAIT: Duration = Duration::from_millis(1);

/// What is asked of this driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Reads carry the kernel's stamp. Linux only.
    pub stamps: bool,
    /// How it waits. It does not spin all the time, and windows need the kernel's stamps and a backend of readiness: each completion of
    /// monoio's ring wakes the thread anyway.
    pub waiting: Waiting,
}

/// Runs `engine` to its end on this thread, on plain sockets.
///
/// # Errors
///
/// The kernel refused in mid-run.
pub fn run(
    engine: Engine,
    clock: &Clock,
    backend: &Backend,
    wishes: Wishes,
) -> io::Result<(Engine, RingTally)> {
    run_with(engine, clock, backend, wishes, &Arc::default())
}

/// The same, on sockets as `options` says.
///
/// # Errors
///
/// The kernel refused in mid-run.
pub fn run_with(
    engine: Engine,
    clock: &Clock,
    backend: &Backend,
    wishes: Wishes,
    options: &Arc<SocketOptions>,
) -> io::Result<(Engine, RingTally)> {
    // The kernel begins to stamp only when a socket has asked, and stops when there is none.
    #[cfg(target_os = "linux")]
    let _stamping = wishes.stamps.then(|| stamping::begin().ok());
    wake_on_time();
    let windowed = wishes.stamps && matches!(backend, Backend::Readiness { .. });
    let opener = Sockets::new(options);
    let pump = || pump(engine, clock.clone(), wishes, windowed, opener);
    match backend {
        #[cfg(target_os = "linux")]
        Backend::IoUring => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
                .with_entries(RING_ENTRIES)
                .enable_timer()
                .build()?;
            runtime.block_on(pump())
        }
        #[cfg(not(target_os = "linux"))]
        Backend::IoUring => Err(io::Error::from(ErrorKind::Unsupported)),
        Backend::Readiness { .. } => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
                .enable_timer()
                .build()?;
            runtime.block_on(pump())
        }
    }
}

/// What the tasks of one worker share. All on one thread.
struct Shared {
    clock: Clock,
    wishes: Wishes,
    queue: RefCell<VecDeque<Completion>>,
    /// Where reads go; without a byte of room while the pump has it.
    arena: RefCell<Arena>,
    waker: RefCell<Option<Waker>>,
    /// Tasks that found the arena full, or have read their share of a batch.
    waiting: RefCell<Vec<Waker>>,
    /// Batches that the pump has begun to hand over.
    batches: Cell<u64>,
    /// The pump has paused so that tasks run.
    paused: Cell<bool>,
    resumer: RefCell<Option<Waker>>,
    /// Sockets by connection index; the generation tells whose.
    sockets: RefCell<Vec<Option<Held>>>,
    timer_fired: Cell<bool>,
    /// The engine has finished; every task ends.
    over: Cell<bool>,
    opener: RefCell<Sockets>,
}

/// A socket, and whose it is.
type Held = (ConnId, Rc<TcpStream>);

struct Completion {
    conn: ConnId,
    what: What,
}

enum What {
    Connected {
        local_port: u16,
        started: Tick,
        done: Tick,
    },
    Received {
        begin: usize,
        end: usize,
        tick: Tick,
        /// The kernel's stamp.
        wall_ns: Option<u64>,
    },
    Sent {
        bytes: Vec<u8>,
        sent: Sent,
    },
    Closed {
        reason: CloseReason,
        tick: Tick,
    },
}

impl Shared {
    fn push(&self, conn: ConnId, what: What) {
        let completion = Completion { conn, what };
        self.queue.borrow_mut().push_back(completion);
        self.wake();
    }

    /// Lets tasks look at their sockets again.
    fn wake_waiting(&self) {
        for waker in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn socket(&self, conn: ConnId) -> Option<Rc<TcpStream>> {
        let sockets = self.sockets.borrow();
        let (id, stream) = sockets.get(conn.index as usize)?.as_ref()?;
        (*id == conn).then(|| Rc::clone(stream))
    }

    fn is_current(&self, conn: ConnId) -> bool {
        let sockets = self.sockets.borrow();
        sockets
            .get(conn.index as usize)
            .and_then(Option::as_ref)
            .is_some_and(|(id, _)| *id == conn)
    }

    fn store(&self, conn: ConnId, stream: Rc<TcpStream>) {
        let mut sockets = self.sockets.borrow_mut();
        let index = conn.index as usize;
        if sockets.len() <= index {
            sockets.resize_with(index + 1, || None);
        }
        sockets[index] = Some((conn, stream));
    }
}

/// One worker's loop, beside its tasks.
struct Pump {
    shared: Rc<Shared>,
    engine: Engine,
    timer: Rc<Timer>,
    /// When the timer fires.
    armed: Tick,
    kernel: Option<KernelClock>,
    /// How long reads may be left; `None` where that does harm.
    windows: Option<Windows>,
    /// By connection index.
    gaps: Vec<Gaps>,
    /// What is being handed over, and where its reads stand.
    batch: VecDeque<Completion>,
    arena: Arena,
    /// For what is read meanwhile; not touched, and so no memory, unless the pump pauses in a batch.
    other_arena: Arena,
    /// All stamps in the batch were taken between two looks at a wall clock that runs steadily.
    steady: bool,
    /// A read of the batch of which a part has been handed over.
    unfinished: Option<Unfinished>,
    tally: RingTally,
}

async fn pump(
    engine: Engine,
    clock: Clock,
    wishes: Wishes,
    windowed: bool,
    opener: Sockets,
) -> io::Result<(Engine, RingTally)> {
    let kernel = wishes.stamps.then(|| KernelClock::new(&clock));
    let windows = windowed.then(|| Windows::new(clock.rate(), wishes.waiting.window, clock.now()));
    let shared = Rc::new(Shared {
        clock,
        wishes,
        queue: RefCell::new(VecDeque::with_capacity(1_024)),
        arena: RefCell::new(Arena::new()),
        waker: RefCell::new(None),
        waiting: RefCell::new(Vec::new()),
        batches: Cell::new(0),
        paused: Cell::new(false),
        resumer: RefCell::new(None),
        sockets: RefCell::new(Vec::new()),
        timer_fired: Cell::new(false),
        over: Cell::new(false),
        opener: RefCell::new(opener),
    });
    let timer = Rc::new(Timer::new()?);
    monoio::spawn(watch(Rc::clone(&shared), Rc::clone(&timer)));
    monoio::spawn(batch::resume(Rc::clone(&shared)));
    let mut pump = Pump {
        shared,
        engine,
        timer,
        armed: Tick::NEVER,
        kernel,
        windows,
        gaps: Vec::new(),
        batch: VecDeque::with_capacity(1_024),
        arena: Arena::default(),
        other_arena: Arena::new(),
        steady: false,
        unfinished: None,
        tally: RingTally::default(),
    };
    std::future::poll_fn(|context: &mut Context<'_>| pump.turn(context)).await?;
    pump.tally.held = let_go(&pump.shared, &pump.timer).await?;
    pump.tally.steps = pump.kernel.as_ref().map_or(0, KernelClock::steps);
    pump.tally.mapping_error_ns = pump.kernel.as_ref().map_or(0, |kernel| kernel.error().0);
    if let Some(windows) = &pump.windows {
        pump.tally.windows = windows.count();
        pump.tally.window_ns = windows.longest().0;
    }
    Ok((pump.engine, pump.tally))
}

async fn watch(shared: Rc<Shared>, timer: Rc<Timer>) {
    while timer.fired().await.is_ok() && !shared.over.get() {
        shared.timer_fired.set(true);
        shared.wake();
    }
}

/// Shuts every socket and lets the tasks run to their ends: what a task still has when its runtime ends stays open until the process
/// does. The number of those that did not end.
async fn let_go(shared: &Rc<Shared>, timer: &Timer) -> io::Result<u64> {
    shared.over.set(true);
    batch::wake_resumer(shared);
    timer.set(Duration::ZERO)?;
    sockets::close_all(shared);
    let mut waits = LastWaits::new(LAST_WAIT);
    // Each task has a hold on it, and this one.
    while let Some(wait) = waits.next()
        && Rc::strong_count(shared) > 1
    {
        let before = Rc::strong_count(shared);
        shared.wake_waiting();
        monoio::time::sleep(wait).await;
        waits.over(before, Rc::strong_count(shared));
    }
    Ok(Rc::strong_count(shared) as u64 - 1)
}

impl Pump {
    /// Goes on until the engine waits.
    fn turn(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.shared.waker.borrow().is_none() {
            *self.shared.waker.borrow_mut() = Some(context.waker().clone());
        }
        if self.shared.timer_fired.take() {
            self.armed = Tick::NEVER;
        }
        loop {
            if !self.deliver() {
                self.pause();
                return Poll::Pending;
            }
            let Some(pause) = self.carry_out() else {
                return Poll::Ready(Ok(()));
            };
            let now = self.shared.clock.now();
            if pause.until <= now || !self.shared.queue.borrow().is_empty() {
                continue;
            }
            let waiting = &self.shared.wishes.waiting;
            let alarm = waiting.awake_at(pause, self.shared.clock.rate());
            if alarm <= now {
                // Sockets have to wait meanwhile; the kernel stamps what comes.
                while self.shared.clock.now() < pause.until {
                    std::hint::spin_loop();
                }
                continue;
            }
            if let Err(error) = self.rest(now, alarm, pause.sending) {
                return Poll::Ready(Err(error));
            }
            return Poll::Pending;
        }
    }

    /// Sets the timer, and leaves what comes for a window's length.
    fn rest(&mut self, now: Tick, alarm: Tick, sending: bool) -> io::Result<()> {
        let rate = self.shared.clock.rate();
        let left = alarm.since(now);
        if alarm != self.armed {
            self.timer.set(Duration::from_nanos(rate.nanos(left).0))?;
            self.armed = alarm;
        }
        let window = match &mut self.windows {
            Some(windows) if !sending => windows.open(now, left, self.engine.arrived()),
            _ => 0,
        };
        if window > 0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "so that reads gather; nothing else is due before"
            )]
            std::thread::sleep(Duration::from_nanos(rate.nanos(window).0));
        }
        Ok(())
    }

    /// Does what the engine wants; `None` when it has finished, else what it waits for.
    fn carry_out(&mut self) -> Option<Pause> {
        loop {
            match self.engine.next(self.shared.clock.now()) {
                Op::Connect { conn, address } => sockets::connect(&self.shared, conn, address),
                Op::Send { conn, bytes } => {
                    gaps_of(&mut self.gaps, conn).request();
                    if let Some((bytes, sent)) = sockets::send(&self.shared, conn, bytes) {
                        self.engine.on_sent(conn, bytes, sent);
                    }
                }
                Op::Close { conn } => sockets::close(&self.shared, conn),
                Op::Wait {
                    until,
                    send_due,
                    sending,
                } => {
                    return Some(Pause {
                        until,
                        send_due,
                        sending,
                    });
                }
                Op::Finished => return None,
            }
        }
    }
}

/// The gaps of a connection. One that takes another's place takes over its smoothed gap, which the first few of its own replace.
fn gaps_of(gaps: &mut Vec<Gaps>, conn: ConnId) -> &mut Gaps {
    let index = conn.index as usize;
    if gaps.len() <= index {
        gaps.resize_with(index + 1, Gaps::default);
    }
    &mut gaps[index]
}
