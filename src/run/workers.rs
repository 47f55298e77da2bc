//! Worker threads.
//!
//! In: cores and engines. Out: their counts when all have ended. Never: shares anything between workers but the gate.

use std::sync::Arc;
use std::thread::JoinHandle;

use core_affinity::CoreId;

use crate::clock::Clock;
use crate::driver::{Driver, RingTally, StampSource};
use crate::engine::{Counts, Engine, Stop};
use crate::schedule::Shard;

use super::RunError;
use super::cores::Cores;
use super::gate::{Gate, WorkerGate};
use super::prepare::Prepared;
use super::queue::WorkerEnd;
use super::workload::CorpusWorkload;

/// All workers of a run.
pub(super) struct Workers {
    threads: Vec<JoinHandle<std::io::Result<Ended>>>,
}

/// What workers leave; sums over all.
#[derive(Default)]
pub(super) struct Ended {
    /// Where the engines stand.
    pub(super) counts: Counts,
    /// What the rings went through.
    pub(super) tally: RingTally,
    /// Why workers had to do without a ring.
    pub(super) stepped_down: Vec<String>,
}

/// Starts one thread for each core of `cores.workers`.
pub(super) fn start(
    prepared: &Prepared,
    cores: &Cores,
    clock: &Clock,
    driver: (&Driver, StampSource),
    gate: &Arc<Gate>,
    ends: Vec<WorkerEnd>,
) -> Result<Workers, RunError> {
    let mut threads = Vec::with_capacity(ends.len());
    let count = ends.len();
    for (index, (end, &core)) in ends.into_iter().zip(&cores.workers).enumerate() {
        let setup = Arc::new(prepared.setup(clock.rate())?);
        let material = Arc::clone(&prepared.material);
        let gate = Arc::clone(gate);
        let clock = clock.clone();
        let (driver, stamps) = (driver.0.clone(), driver.1);
        let work = move || {
            if let Some(id) = core {
                core_affinity::set_for_current(CoreId { id });
            }
            let workload = Box::new(CorpusWorkload::new(&material));
            let control = Arc::new(WorkerGate::new(&gate, index));
            let mut alarm = Alarm::new(&gate);
            let engine = Engine::new(
                setup,
                workload,
                Box::new(end),
                control,
                Shard { index, count },
            );
            let ended = driver.run(engine, &clock, stamps);
            alarm.silence(ended.is_ok());
            ended.map(|ended| Ended {
                counts: *ended.engine.counts(),
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
    Ok(Workers { threads })
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

    /// Sums of the workers that did their work, and what happened to one that did not.
    pub(super) fn join(self) -> (Ended, Option<String>) {
        let mut sum = Ended::default();
        let mut failure = None;
        for (index, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(Ok(ended)) => {
                    sum.counts.add(&ended.counts);
                    sum.tally.add(&ended.tally);
                    sum.stepped_down.extend(ended.stepped_down);
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
