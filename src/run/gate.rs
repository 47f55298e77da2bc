//! What the conductor says to the workers, and hears from them.
//!
//! In: arrivals at phase borders, stops. Out: a start tick for each phase, live counts. Never: a lock that a worker waits for; each worker writes counts of
//! its own, on a cache line of its own.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clock::{Clock, Nanos, Tick};
use crate::engine::{Control, Counts, Stop};
use crate::wire::Fault;

use super::refresh::{Lists, Published};

/// Between the last worker's arrival at a phase and the phase's start: longer than the gate's polling interval, so that all start
/// together.
const LEAD: Nanos = Nanos::from_millis(3);

/// Shared by all workers of a run.
pub(super) struct Gate {
    clock: Clock,
    worker_count: usize,
    phases: Vec<Border>,
    stop: AtomicU8,
    gauges: Vec<Gauge>,
    /// Why the first connection that was to be open ahead of a phase is not.
    fault_ahead: OnceLock<Fault>,
    /// Addresses that names had later.
    pub(super) names: Arc<Published>,
}

struct Border {
    arrived: AtomicUsize,
    /// When the last worker stopped sending before a phase that needs no drain.
    latest: AtomicU64,
    /// Up to where earlier phases have used the dataset's order.
    used: AtomicU64,
    start: OnceLock<Tick>,
}

/// Live counts of one worker, for the progress line.
#[derive(Default)]
#[repr(align(128))]
struct Gauge {
    sent: AtomicU64,
    whole: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    in_flight: AtomicU64,
    opened_ahead: AtomicU64,
    failed_ahead: AtomicU64,
}

impl Gate {
    /// A gate for `worker_count` workers and `phase_count` phases.
    pub(super) fn new(clock: &Clock, worker_count: usize, phase_count: usize) -> Gate {
        // One border more than phases: the end of the last.
        let border = || Border {
            arrived: AtomicUsize::new(0),
            latest: AtomicU64::new(0),
            used: AtomicU64::new(0),
            start: OnceLock::new(),
        };
        Gate {
            clock: clock.clone(),
            worker_count,
            phases: (0..=phase_count).map(|_| border()).collect(),
            stop: AtomicU8::new(0),
            gauges: (0..worker_count).map(|_| Gauge::default()).collect(),
            fault_ahead: OnceLock::new(),
            names: Arc::default(),
        }
    }

    /// Sends nothing more, or cuts what is in flight. A stop is never taken back or weakened.
    pub(super) fn stop(&self, stop: Stop) {
        let level = match stop {
            Stop::No => 0,
            Stop::Drain => 1,
            Stop::Now => 2,
        };
        self.stop.fetch_max(level, Ordering::Relaxed);
    }

    /// A stop was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) > 0
    }

    /// When `phase` started, once it has.
    pub(super) fn started(&self, phase: usize) -> Option<Tick> {
        self.phases.get(phase)?.start.get().copied()
    }

    /// Sums over the workers: only the fields that a gauge has.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for gauge in &self.gauges {
            sum.sent += gauge.sent.load(Ordering::Relaxed);
            sum.whole += gauge.whole.load(Ordering::Relaxed);
            sum.failed += gauge.failed.load(Ordering::Relaxed);
            sum.cancelled += gauge.cancelled.load(Ordering::Relaxed);
            sum.in_flight += gauge.in_flight.load(Ordering::Relaxed);
            sum.opened_ahead += gauge.opened_ahead.load(Ordering::Relaxed);
            sum.failed_ahead += gauge.failed_ahead.load(Ordering::Relaxed);
        }
        sum.fault_ahead = self.fault_ahead.get().copied();
        sum
    }

    /// Connections were to be open before the first phase, and not one is: how many, and why.
    pub(super) fn nothing_opened(&self) -> Option<(u64, Fault)> {
        let counts = self.counts();
        let none = counts.opened_ahead == 0 && counts.sent == 0;
        let fault = counts.fault_ahead.filter(|_| none)?;
        Some((counts.failed_ahead, fault))
    }

    /// A worker has come to `phase`; the last one sets its start to what `start` says.
    fn arrive(&self, phase: usize, start: impl FnOnce(&Border) -> Tick) {
        let border = &self.phases[phase];
        if border.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.worker_count {
            border.start.get_or_init(|| start(border));
        }
    }
}

/// One worker's view of the gate.
pub(super) struct WorkerGate {
    gate: Arc<Gate>,
    index: usize,
}

impl WorkerGate {
    /// The view of worker `index`.
    pub(super) fn new(gate: &Arc<Gate>, index: usize) -> WorkerGate {
        WorkerGate {
            gate: Arc::clone(gate),
            index,
        }
    }
}

impl Control for WorkerGate {
    fn phase_start(&self, phase: usize) -> Option<Tick> {
        self.gate.started(phase)
    }

    fn ready_for(&self, phase: usize) {
        let gate = &self.gate;
        gate.arrive(phase, |_| {
            if gate.nothing_opened().is_some() {
                gate.stop(Stop::Now);
            }
            gate.clock.now().plus(gate.clock.rate().ticks(LEAD))
        });
    }

    fn hand_over(&self, phase: usize, at: Tick) {
        // Released and acquired by the count of arrivals.
        let latest = &self.gate.phases[phase].latest;
        latest.fetch_max(at.0, Ordering::Relaxed);
        self.gate
            .arrive(phase, |border| Tick(border.latest.load(Ordering::Relaxed)));
    }

    fn used(&self, phase: usize, used: u64) {
        let so_far = &self.gate.phases[phase].used;
        so_far.fetch_max(used, Ordering::Relaxed);
    }

    fn used_before(&self, phase: usize) -> u64 {
        self.gate.phases[phase].used.load(Ordering::Relaxed)
    }

    fn addresses(&self, seen: u64) -> Option<(u64, Arc<Lists>)> {
        self.gate.names.since(seen)
    }

    fn stop(&self) -> Stop {
        match self.gate.stop.load(Ordering::Relaxed) {
            0 => Stop::No,
            1 => Stop::Drain,
            _ => Stop::Now,
        }
    }

    fn publish(&self, counts: &Counts) {
        let gauge = &self.gate.gauges[self.index];
        gauge.sent.store(counts.sent, Ordering::Relaxed);
        gauge.whole.store(counts.whole, Ordering::Relaxed);
        gauge.failed.store(counts.failed, Ordering::Relaxed);
        gauge.cancelled.store(counts.cancelled, Ordering::Relaxed);
        gauge.in_flight.store(counts.in_flight, Ordering::Relaxed);
        if let Some(fault) = counts.fault_ahead {
            self.gate.fault_ahead.get_or_init(|| fault);
            gauge
                .failed_ahead
                .store(counts.failed_ahead, Ordering::Relaxed);
        }
        gauge
            .opened_ahead
            .store(counts.opened_ahead, Ordering::Relaxed);
    }
}
