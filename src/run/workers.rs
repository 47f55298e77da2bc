//! Worker threads.
//!
//! In: cores and engines. Out: their counts when all have ended. Never: shares anything between workers but the gate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use core_affinity::CoreId;

use crate::clock::{Clock, Rate};
use crate::driver::{RingTally, priority};
use crate::engine::{Arrived, Counts, Engine, LoopHealth, Stop, UsedAddress};
use crate::metric::health::{Spread, ThreadTime, WorkerHealth, wait_for_end};
use crate::schedule::Shard;

use super::RunError;
use super::client::Reach;
use super::cores::Cores;
use super::feeder::WorkerFeed;
use super::gate::{Gate, WorkerGate};
use super::prepare::Prepared;
use super::queue::WorkerEnd;
use super::watched::{ThreadNumber, introduce, thread_time};
use super::workload::CorpusWorkload;

/// All workers of a run.
pub(super) struct Workers {
    threads: Vec<JoinHandle<std::io::Result<Ended>>>,
    numbers: Vec<ThreadNumber>,
}

/// What workers leave; sums over all.
#[derive(Default)]
pub(super) struct Ended {
    /// Where the engines stand.
    pub(super) counts: Counts,
    /// What the engines have received.
    pub(super) arrived: Arrived,
    /// What the rings went through.
    pub(super) tally: RingTally,
    /// Addresses of targets that answered.
    pub(super) used: BTreeSet<UsedAddress>,
    /// Why workers had to do without a ring.
    pub(super) stepped_down: Vec<String>,
    /// How their loops and threads fared, with the number of each worker.
    pub(super) health: Vec<(usize, WorkerHealth)>,
}

/// Starts one thread for each core of `cores.workers`.
pub(super) fn start(
    prepared: &Prepared,
    cores: &Cores,
    clock: &Clock,
    reach: &Reach,
    gate: &Arc<Gate>,
    (ends, feeds): (Vec<WorkerEnd>, Vec<Option<WorkerFeed>>),
) -> Result<Workers, RunError> {
    let mut threads = Vec::with_capacity(ends.len());
    let count = ends.len();
    let numbers: Vec<ThreadNumber> = (0..count).map(|_| ThreadNumber::default()).collect();
    let ends = ends.into_iter().zip(feeds);
    for (index, ((end, feed), &core)) in ends.zip(&cores.workers).enumerate() {
        let setup = Arc::new(prepared.setup(clock.rate(), reach.stamps)?);
        let material = Arc::clone(&prepared.material);
        let gate = Arc::clone(gate);
        let clock = clock.clone();
        let reach = reach.clone();
        let number = ThreadNumber::clone(&numbers[index]);
        let work = move || {
            if let Some(id) = core {
                core_affinity::set_for_current(CoreId { id });
            }
            introduce(&number);
            let workload = Box::new(CorpusWorkload::new(&material, feed));
            let control = Arc::new(WorkerGate::new(&gate, index));
            let mut alarm = Alarm::new(&gate);
            if reach.realtime {
                priority::claim()?;
            }
            let engine = Engine::new(
                setup,
                workload,
                Box::new(end),
                control,
                Shard { index, count },
            );
            let before = thread_time();
            let (stamps, waiting) = (reach.stamps, reach.waiting);
            let driver = &reach.driver;
            let ended = driver.run_with(engine, &clock, stamps, waiting, &reach.sockets);
            alarm.silence(ended.is_ok());
            let thread = thread_time()
                .zip(before)
                .map(|(now, before)| now.since(before));
            ended.map(|ended| Ended {
                health: vec![(
                    index,
                    health(ended.engine.health(), clock.rate(), core, thread),
                )],
                counts: *ended.engine.counts(),
                arrived: *ended.engine.arrived(),
                used: ended.engine.used_addresses().into_iter().collect(),
                tally: ended.tally,
                stepped_down: ended.stepped_down.into_iter().collect(),
            })
        };
        let builder = std::thread::Builder::new().name(format!("worker-{index}"));
        let thread = builder.spawn(work);
        threads.push(thread.map_err(|error| {
            RunError::Thread(format!("cannot start a worker's thread: {error}"))
        })?);
    }
    Ok(Workers { threads, numbers })
}

/// A worker's loop in nanoseconds.
fn health(
    health: &LoopHealth,
    rate: Rate,
    core: Option<usize>,
    thread: Option<ThreadTime>,
) -> WorkerHealth {
    let length = health.length();
    WorkerHealth {
        core,
        length: rate.nanos(length),
        busy: rate.nanos(health.busy),
        turns: Spread::of(&health.turns, rate).unwrap_or_default(),
        turn_delay: rate.nanos(wait_for_end(&health.turns, length)),
        wake_lateness: Spread::of(&health.wake_lateness, rate),
        receive_delay: Spread::of(&health.receive_delay, rate),
        send_bracket: Spread::of(&health.send_bracket, rate),
        reads: health.reads,
        read_turns: health.read_turns,
        events: health.events,
        thread,
        core_delay: None,
    }
}

/// Stops the other workers when this one's thread ends without having done its work: they would wait for it at the next
/// phase's border.
struct Alarm {
    gate: Arc<Gate>,
    silent: bool,
}

impl Alarm {
    fn new(gate: &Arc<Gate>) -> Alarm {
        Alarm {
            gate: Arc::clone(gate),
            silent: false,
        }
    }

    fn silence(&mut self, done: bool) {
        self.silent = done;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !self.silent {
            self.gate.stop(Stop::Drain);
        }
    }
}

impl Workers {
    /// All threads have ended.
    pub(super) fn are_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Whom to watch.
    pub(super) fn numbers(&self) -> Vec<ThreadNumber> {
        self.numbers.clone()
    }

    /// Sums of the workers that did their work, and what happened to one that did not.
    pub(super) fn join(self) -> (Ended, Option<String>) {
        let mut sum = Ended::default();
        let mut failure = None;
        for (index, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(Ok(ended)) => {
                    sum.counts.add(&ended.counts);
                    sum.arrived.add(&ended.arrived);
                    sum.tally.add(&ended.tally);
                    sum.used.extend(ended.used);
                    sum.stepped_down.extend(ended.stepped_down);
                    sum.health.extend(ended.health);
                }
                Ok(Err(error)) => {
                    failure = Some(format!("the driver of worker {index} failed: {error}"));
                }
                Err(_) => failure = Some(format!("the thread of worker {index} died")),
            }
        }
        (sum, failure)
    }
}
