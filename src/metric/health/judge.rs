//! The rule: which measurements speak against a run, and from where on.
//!
//! In: a [`Health`]. Out: a [`Verdict`]. Never: a reason without a number in it, or one that the README does not list.

use super::{Health, Level, Reason, Rival, ThreadTime, Verdict, WorkerHealth, share};
use crate::clock::Nanos;

/// Name of each reason, as the summary and the README's table have it.
pub const REASONS: [&str; 15] = [
    "unmeasured",
    "core_wait",
    "late_wake",
    "long_turns",
    "receive_delay",
    "busy",
    "bound",
    "schedule_lag",
    "unstamped_reads",
    "no_buffer",
    "queue_overflow",
    "throttled",
    "rival",
    "shared_core",
    "busy_sibling",
];

/// A percentile of fewer values than this is not judged.
pub(super) const ENOUGH: u64 = 100;

/// Shorter runs than this say nothing about shares of time.
const SHORTEST: Nanos = Nanos::from_millis(50);

/// (caution, untrusted), from here on, for waits that only another program causes: a lone worker waits some tens of microseconds,
/// one beside a busy rival until the rival's slice of 2 to 4 ms is over.
const RIVAL: (Nanos, Nanos) = (Nanos(1_000_000), Nanos(2_000_000));

/// A thread that waited this part of the time it wanted to run shares its core with a rival as busy, however short the slices.
const HALVED: f64 = 1.0 / 3.0;

/// The same for what the worker's own load causes as well: half a millisecond of events is no fault, a gap between tokens is.
const OWN: (Nanos, Nanos) = (Nanos::from_millis(2), Nanos::from_millis(10));

/// The same for the bounds. 1 ms is a twentieth of a gap at 50 tokens/s; 10 ms is half of it.
const BOUND: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(10));

/// The same for busy shares. From 0.8 on, bursts a quarter above the mean no longer fit; from 0.95 on the client is what is measured.
const BUSY: (f64, f64) = (0.8, 0.95);

/// The same for the 99th percentile of the schedule lag, in ms.
const LAG_MS: (f64, f64) = (1.0, 10.0);

/// The same for reads that lack something, as a part of all.
const READS: (f64, f64) = (0.01, 0.5);

/// The same for the time that a CPU quota took, as a part of the run.
const THROTTLED: (f64, f64) = (0.0, super::RARE);

/// The same for what other programs used of a worker's core, as a part of the load.
const TAKEN: (f64, f64) = (0.1, 0.3);

/// Shorter loads than this say nothing about that: it is counted in hundredths of a second.
const SHORTEST_TAKEN: Nanos = Nanos::from_millis(300);

/// Judges a run.
#[must_use]
pub fn judge(health: &Health) -> Verdict {
    let mut found = Found::default();
    for (index, worker) in health.workers.iter().enumerate() {
        of_worker(health, index, worker, &mut found);
    }
    of_stamps(health, &mut found);
    of_machine(health, &mut found);
    let (ttft_bound, gap_bound) = health.bounds();
    let larger = ttft_bound.max(gap_bound);
    found.when(level(larger, BOUND), "bound", || {
        format!("a time may be off by {}{}", millis(larger), cause(health))
    });
    let mut reasons = found.reasons;
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
    Verdict {
        level: reasons.first().map_or(Level::Trusted, |r| r.level),
        reasons,
        warnings: warnings(health),
        ttft_bound,
        gap_bound,
    }
}

#[derive(Default)]
struct Found {
    reasons: Vec<Reason>,
}

impl Found {
    fn when(&mut self, level: Option<Level>, name: &'static str, text: impl FnOnce() -> String) {
        debug_assert!(REASONS.contains(&name));
        self.reasons.extend(level.map(|level| Reason {
            name,
            level,
            text: text(),
        }));
    }
}

fn of_worker(health: &Health, index: usize, worker: &WorkerHealth, found: &mut Found) {
    let unmeasured = worker.length < SHORTEST || !is_measured(worker);
    found.when(unmeasured.then_some(Level::Caution), "unmeasured", || {
        format!(
            "worker {index} ran for {}, with too little to measure how late it was",
            millis(worker.length)
        )
    });
    if worker.length < SHORTEST {
        return;
    }
    if let Some(delay) = worker.core_delay {
        let waited = worker.thread.map_or(0.0, ThreadTime::waited_share);
        let level = level(delay, RIVAL).map(|level| {
            let halved = waited >= HALVED;
            if halved { Level::Untrusted } else { level }
        });
        found.when(level, "core_wait", || {
            format!(
                "worker {index} had to wait over {} for its core at 1 moment in 200, and {:.0} % of the time it wanted to run: \
                 something else runs there",
                millis(delay),
                waited * 100.0
            )
        });
    }
    if let Some(late) = worker.wake_lateness.filter(|s| s.count >= ENOUGH) {
        found.when(level(late.p99, RIVAL), "late_wake", || {
            format!(
                "worker {index} woke {} late or later from 1 wait in 100",
                millis(late.p99)
            )
        });
    }
    found.when(level(worker.turn_delay, OWN), "long_turns", || {
        format!(
            "the turns of worker {index} kept it from looking for over {} at 1 moment in 200: spread the load over more cores, or \
             find what else runs there",
            millis(worker.turn_delay)
        )
    });
    if let Some(delay) = worker.receive_delay.filter(|s| s.count >= ENOUGH) {
        let beyond = delay.p99.saturating_sub(health.window);
        found.when(level(beyond, OWN), "receive_delay", || {
            format!(
                "1 read in 100 waited {} in the kernel until worker {index} took it, beyond what it leaves there on purpose",
                millis(beyond)
            )
        });
    }
    let busy = worker.busy_share(health.spins);
    found.when(level(busy, BUSY), "busy", || {
        format!(
            "worker {index} was busy {:.0} % of the time: spread the load over more cores",
            busy * 100.0
        )
    });
}

/// At least one of the measures of its delay that are not blind while it sleeps is there.
fn is_measured(worker: &WorkerHealth) -> bool {
    let spreads = [worker.wake_lateness, worker.receive_delay];
    let mut counts = spreads.iter().flatten().map(|spread| spread.count);
    worker.core_delay.is_some() || counts.any(|count| count >= ENOUGH)
}

fn of_stamps(health: &Health, found: &mut Found) {
    let lag = health.schedule_lag.and_then(|lag| lag.client_p99_ms);
    if let Some(lag_ms) = lag {
        found.when(level(lag_ms, LAG_MS), "schedule_lag", || {
            format!("1 request in 100 was sent {lag_ms:.1} ms late")
        });
    }
    let ring = &health.ring;
    let reads = ring.reads.max(1) as f64;
    if health.kernel_stamps {
        let part = ring.unstamped as f64 / reads;
        found.when(level(part, READS), "unstamped_reads", || {
            format!(
                "{} of {} reads have no stamp of the kernel ({} steps of the wall clock)",
                ring.unstamped, ring.reads, ring.steps
            )
        });
    }
    let part = ring.exhausted as f64 / reads;
    found.when(level(part, READS), "no_buffer", || {
        format!(
            "{} receives found no free buffer, with {} reads",
            ring.exhausted, ring.reads
        )
    });
    let overflowed = (ring.overflows > 0).then_some(Level::Caution);
    found.when(overflowed, "queue_overflow", || {
        format!("the completion queue overflowed {} times", ring.overflows)
    });
}

fn of_machine(health: &Health, found: &mut Found) {
    let machine = &health.machine;
    if let Some(throttled) = machine.throttled.filter(|t| t.periods > 0) {
        let part = share(throttled.time, longest(health));
        found.when(level(part, THROTTLED), "throttled", || {
            let quota = machine
                .quota_cpus
                .map_or_else(String::new, |cpus| format!(" of {cpus} CPUs"));
            format!(
                "the control group's CPU quota{quota} stopped this program in {} periods, {} in all",
                throttled.periods,
                millis(throttled.time)
            )
        });
    }
    let told = |rival: &&Rival| rival.length >= SHORTEST_TAKEN;
    for rival in machine.rivals.iter().filter(told) {
        let part = share(rival.used, rival.length);
        found.when(level(part, TAKEN), "rival", || {
            format!(
                "other programs used {:.0} % of core {}, which is a worker's: let them run elsewhere, the measured server too, or give \
                 the worker another core with --cpus",
                part * 100.0,
                rival.core
            )
        });
    }
    for (core, who) in &machine.shared_cores {
        found.when(Some(Level::Caution), "shared_core", || {
            format!("core {core} of a worker is shared with {who}")
        });
    }
    for (core, sibling) in &machine.busy_siblings {
        found.when(Some(Level::Caution), "busy_sibling", || {
            format!(
                "core {core} of a worker is one physical core with core {sibling}, which is in use as well"
            )
        });
    }
}

/// What makes a late worker's delay count although the kernel stamps.
fn cause(health: &Health) -> String {
    let (_, shared) = health.shared_shares();
    let counts = health.kernel_stamps && shared >= super::RARE;
    let text = || {
        format!(
            ", for {:.1} % of the events share a read, and only its last one has a stamp of its own",
            shared * 100.0
        )
    };
    counts.then(text).unwrap_or_default()
}

fn warnings(health: &Health) -> Vec<String> {
    let longest = longest(health);
    let governors = health.machine.governors.iter().map(|(core, governor)| {
        format!(
            "core {core} has the frequency governor {governor}, which speeds up late; performance does not"
        )
    });
    let stolen = health.machine.stolen.iter().filter_map(|(core, taken)| {
        let part = share(*taken, longest);
        (part >= super::RARE).then(|| {
            format!(
                "the host of this virtual machine took {:.1} % of core {core} away, which delays the kernel's stamps too",
                part * 100.0
            )
        })
    });
    governors.chain(stolen).collect()
}

/// Length of the run, by the worker that ran longest.
fn longest(health: &Health) -> Nanos {
    let lengths = health.workers.iter().map(|worker| worker.length);
    lengths.fold(Nanos(0), Nanos::max)
}

fn level<T: PartialOrd + Copy>(value: T, (caution, untrusted): (T, T)) -> Option<Level> {
    if value >= untrusted {
        Some(Level::Untrusted)
    } else {
        (value >= caution).then_some(Level::Caution)
    }
}

/// Milliseconds, for a sentence.
fn millis(length: Nanos) -> String {
    format!("{:.2} ms", length.millis())
}
