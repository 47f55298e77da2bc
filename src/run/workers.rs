//! Worker threads.
//!
//! In: cores and engines. Out: their counts when all have ended. Never: shares anything between workers but the gate.

use std::sync::Arc;
use std::thread::JoinHandle;

use core_affinity::CoreId;

use crate::clock::Clock;
use crate::driver::{Backend, portable};
use crate::engine::{Counts, Engine};
use crate::schedule::Shard;

use super::RunError;
use super::cores::Cores;
use super::gate::{Gate, WorkerGate};
use super::prepare::Prepared;
use super::queue::WorkerEnd;
use super::workload::CorpusWorkload;

/// All workers of a run.
pub(super) struct Workers {
    threads: Vec<JoinHandle<std::io::Result<Counts>>>,
}

/// Starts one thread for each core of `cores.workers`.
pub(super) fn start(
    prepared: &Prepared,
    cores: &Cores,
    clock: &Clock,
    backend: &Backend,
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
        let backend = backend.clone();
        let work = move || {
            if let Some(id) = core {
                core_affinity::set_for_current(CoreId { id });
            }
            let workload = Box::new(CorpusWorkload::new(&material));
            let control = Arc::new(WorkerGate::new(&gate, index));
            let engine = Engine::new(
                setup,
                workload,
                Box::new(end),
                control,
                Shard { index, count },
            );
            let engine = portable::run(engine, &clock, &backend)?;
            Ok(*engine.counts())
        };
        let builder = std::thread::Builder::new().name(format!("worker-{index}"));
        let thread = builder.spawn(work);
        threads.push(thread.map_err(|error| {
            RunError::Thread(format!("cannot start a worker's thread: {error}"))
        })?);
    }
    Ok(Workers { threads })
}

impl Workers {
    /// All threads have ended.
    pub(super) fn are_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// A thread has ended although the others go on: it died, or its driver failed.
    pub(super) fn any_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished) && !self.are_over()
    }

    /// Sums of all workers.
    pub(super) fn join(self) -> Result<Counts, RunError> {
        let mut sum = Counts::default();
        for thread in self.threads {
            let counts = thread
                .join()
                .map_err(|_| RunError::Thread("a worker thread died".to_owned()))?;
            let counts = counts
                .map_err(|error| RunError::Thread(format!("a worker's driver failed: {error}")))?;
            sum.add(&counts);
        }
        Ok(sum)
    }
}
