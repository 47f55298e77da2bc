//! The feeder: a thread that makes the requests of a streamed dataset ahead of their time.
//!
//! In: the file, when each entry is due, and to which worker it falls. Out: each worker's requests in its own queue, in order.
//! Never: makes a worker wait, or one worker's requests wait for another's: each has a window of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::clock::{Clock, Nanos, Tick};
use crate::config::Plan;
use crate::dataset::{DatasetError, Maker, Streamed};
use crate::driver::priority;
use crate::endpoint::{Made, Renderer};
use crate::engine::Stop;
use crate::schedule::{Schedule, Shard, Timeline};
use crate::tokenizer::Tokenizer;

use super::RunError;
use super::cores::Cores;
use super::gate::Gate;
use super::prepare::Prepared;

/// Conversations that wait for their time, of all workers: no more than so many.
const WINDOW_ENTRIES: usize = 16_384;

/// Bytes of their bodies, of all workers; one conversation may be larger than its worker's share, and then waits alone.
const WINDOW_BYTES: usize = 64 << 20;

/// Between looks for room in the windows.
const NAP: Duration = Duration::from_millis(1);

/// A session and what was made for it.
type Fed = (u64, Arc<Made>);

/// A worker's end.
pub(super) struct WorkerFeed {
    queue: Consumer<Fed>,
    /// Sessions of this worker below this number are in the queue, or were.
    made_below: Arc<AtomicU64>,
}

impl WorkerFeed {
    /// See [`Workload::made_below`](crate::engine::Workload::made_below).
    pub(super) fn made_below(&self) -> u64 {
        self.made_below.load(Ordering::Acquire)
    }

    /// What was made for `session`; sessions before it are passed over.
    pub(super) fn take(&mut self, session: u64) -> Option<Arc<Made>> {
        while let Ok((number, made)) = self.queue.pop() {
            if number == session {
                return Some(made);
            }
            debug_assert!(number < session, "sessions are asked for in order");
        }
        None
    }
}

/// What the feeder leaves.
#[derive(Debug, Default)]
pub(super) struct FedTally {
    /// Requests made.
    pub(super) made: u64,
    /// Conversations made after their beginnings had been due.
    pub(super) late: u64,
    /// The longest after.
    pub(super) latest: Nanos,
    /// What the user should know of the prompts.
    pub(super) note: Option<String>,
    /// Why it ended before all was made; the run was stopped.
    pub(super) failure: Option<String>,
}

/// What a feeder works with.
struct FeederParts {
    plan: Arc<Plan>,
    renderer: Renderer,
    streamed: Arc<Streamed>,
    tokenizer: Arc<dyn Tokenizer>,
    timeline: Arc<Timeline>,
    gate: Arc<Gate>,
    clock: Clock,
    core: Option<usize>,
}

impl FeederParts {
    /// The phase that it makes requests for: the last.
    fn replay(&self) -> usize {
        self.plan.phases.len() - 1
    }
}

/// A feeder at work.
pub(super) struct Feeder {
    thread: JoinHandle<FedTally>,
}

/// Starts a feeder where the dataset is streamed, and waits until its windows are full or all is made: a run begins with what it needs
/// at hand. Each worker has an end of it then.
pub(super) fn start(
    prepared: &Prepared,
    cores: &Cores,
    gate: &Arc<Gate>,
    clock: &Clock,
) -> Result<(Option<Feeder>, Vec<Option<WorkerFeed>>), RunError> {
    let (material, workers) = (&prepared.material, cores.workers.len());
    let Some(streamed) = &material.streamed else {
        return Ok((None, (0..workers).map(|_| None).collect()));
    };
    let parts = FeederParts {
        plan: Arc::clone(&material.plan),
        renderer: Renderer::new(&material.api),
        streamed: Arc::clone(streamed),
        tokenizer: Arc::clone(&prepared.tokenizer),
        timeline: Arc::clone(&material.timeline),
        gate: Arc::clone(gate),
        clock: clock.clone(),
        core: cores.recorder(),
    };
    let shards = (0..workers).map(|index| Shard {
        index,
        count: workers,
    });
    let (lanes, feeds) = shards
        .map(|shard| lane(&parts, shard))
        .map(|(lane, feed)| (lane, Some(feed)))
        .unzip();
    let (filled, full) = std::sync::mpsc::channel();
    let work = move || {
        let feeding = Feeding {
            parts: &parts,
            lanes,
            tally: FedTally::default(),
        };
        feeding.run(&filled)
    };
    let builder = std::thread::Builder::new().name("feeder".to_owned());
    let thread = builder
        .spawn(work)
        .map_err(|error| RunError::Thread(format!("cannot start the feeder's thread: {error}")))?;
    match full.recv() {
        Ok(Ok(())) => Ok((Some(Feeder { thread }), feeds)),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(RunError::Thread("the feeder's thread died".to_owned())),
    }
}

/// What `feeder` did; what stopped it is the run's failure. The workers must be gone.
pub(super) fn join(feeder: Option<Feeder>, failure: &mut Option<String>) -> Option<FedTally> {
    let mut tally = feeder?.thread.join().unwrap_or_else(|_| FedTally {
        failure: Some("the feeder's thread died".to_owned()),
        ..FedTally::default()
    });
    if let Some(why) = tally.failure.take() {
        failure.get_or_insert(why);
    }
    Some(tally)
}

/// The way to one worker.
struct Lane {
    /// Its sessions that are not made yet.
    sessions: Box<dyn Iterator<Item = u64> + Send>,
    /// The first of them.
    next: Option<u64>,
    queue: Producer<Fed>,
    /// Bytes of the bodies of each conversation in the queue, and of all of them.
    waiting: VecDeque<usize>,
    bytes: usize,
    /// Its share of the window.
    most: usize,
    made_below: Arc<AtomicU64>,
}

fn lane(parts: &FeederParts, shard: Shard) -> (Lane, WorkerFeed) {
    let entries = (WINDOW_ENTRIES / shard.count).max(1);
    let (producer, consumer) = RingBuffer::new(entries);
    let made_below = Arc::new(AtomicU64::new(0));
    let count = parts.timeline.len() as u64;
    let (phases, replay) = (&parts.plan.phases, parts.replay());
    let taking = shard.within(phases, replay);
    let mut sessions = Schedule::replayed(&phases[replay], taking, count);
    let lane = Lane {
        next: sessions.next(),
        sessions: Box::new(sessions),
        queue: producer,
        waiting: VecDeque::with_capacity(entries),
        bytes: 0,
        most: WINDOW_BYTES / shard.count,
        made_below: Arc::clone(&made_below),
    };
    let feed = WorkerFeed {
        queue: consumer,
        made_below,
    };
    (lane, feed)
}

impl Lane {
    /// Forgets what its worker has taken.
    fn settle(&mut self) {
        let held = self.queue.buffer().capacity() - self.queue.slots();
        while self.waiting.len() > held {
            self.bytes -= self.waiting.pop_front().unwrap_or(0);
        }
    }

    /// The next session, if there is room for it.
    fn ready(&self) -> Option<u64> {
        let room = self.bytes < self.most && !self.queue.is_full() && !self.queue.is_abandoned();
        self.next.filter(|_| room)
    }

    fn push(&mut self, session: u64, made: Made) {
        self.waiting.push_back(made.body_bytes());
        self.bytes += made.body_bytes();
        // Only this end fills the queue, and it was seen to have room.
        let pushed = self.queue.push((session, Arc::new(made)));
        debug_assert!(pushed.is_ok());
        self.next = self.sessions.next();
        self.made_below.store(session + 1, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.next.is_none() || self.queue.is_abandoned()
    }
}

/// The feeder's own state.
struct Feeding<'a> {
    parts: &'a FeederParts,
    lanes: Vec<Lane>,
    tally: FedTally,
}

/// Told once, when the windows are full for the first time.
type Filled = std::sync::mpsc::Sender<Result<(), DatasetError>>;

impl Feeding<'_> {
    fn run(mut self, filled: &Filled) -> FedTally {
        let FeederParts {
            plan, tokenizer, ..
        } = self.parts;
        let lanes = self.lanes.len();
        let mut maker = match self.parts.streamed.maker(plan, &**tokenizer, lanes) {
            Ok(maker) => maker,
            Err(error) => return self.refused(error, filled),
        };
        if let Err(error) = self.fill(&mut maker) {
            return self.refused(error, filled);
        }
        let _ = filled.send(Ok(()));
        self.step_aside();
        if let Err(error) = self.accompany(&mut maker) {
            self.tally.failure = Some(error.to_string());
            self.parts.gate.stop(Stop::Drain);
        }
        self.tally.note = maker.note();
        self.tally
    }

    fn refused(self, error: DatasetError, filled: &Filled) -> FedTally {
        let _ = filled.send(Err(error));
        self.tally
    }

    /// From here on no worker may feel it: on the recorder's core, or at the lowest priority where that is a worker's too.
    fn step_aside(&self) {
        match self.parts.core {
            Some(id) => {
                core_affinity::set_for_current(core_affinity::CoreId { id });
            }
            None => priority::give_way(),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the feeder may sleep: it is a window ahead of everybody"
    )]
    fn accompany(&mut self, maker: &mut Maker<'_>) -> Result<(), DatasetError> {
        while !self.lanes.iter().all(Lane::is_over) {
            self.fill(maker)?;
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Makes what is due first, until no window has room.
    fn fill(&mut self, maker: &mut Maker<'_>) -> Result<(), DatasetError> {
        loop {
            self.lanes.iter_mut().for_each(Lane::settle);
            let lanes = self.lanes.iter().enumerate();
            let ready = lanes.filter_map(|(index, lane)| Some((lane.ready()?, index)));
            let Some((session, index)) = ready.min() else {
                return Ok(());
            };
            let Some(number) = self.parts.timeline.conversation(session) else {
                return Ok(());
            };
            let conversation = maker.make(index, number)?;
            let made = self.parts.renderer.make(conversation);
            let requests = u64::from(made.turn_count());
            self.lanes[index].push(session, made);
            self.count(session, requests);
        }
    }

    /// Notes whether `session`, of which so many requests were just made, is late.
    fn count(&mut self, session: u64, requests: u64) {
        self.tally.made += requests;
        let FeederParts {
            gate,
            clock,
            timeline,
            ..
        } = self.parts;
        let Some((start, after)) = gate.started(self.parts.replay()).zip(timeline.due(session))
        else {
            return;
        };
        let due: Tick = start.plus(clock.rate().ticks(after));
        let now = clock.now();
        if now > due {
            self.tally.late += 1;
            let late = clock.rate().nanos(now.since(due));
            self.tally.latest = self.tally.latest.max(late);
        }
    }
}

#[cfg(test)]
mod tests;
