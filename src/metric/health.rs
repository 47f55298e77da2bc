//! How far the client's own doing can be in the numbers.
//!
//! In: what was measured of each worker's loop and thread, of the ring and of the machine. Out: a [`Verdict`] with its reasons, and
//! two bounds. Never: reads the machine, or changes a metric.
//!
//! # The bounds
//!
//! "TTFT p99 may be off by up to X": X is the sum of what its two ends can be off by, each at 1 in 200 ([`RARE`]), so that both
//! together are within it for 99 of 100 requests; and of the error of the clock. The largest over the workers counts.
//!
//! The **send** is stamped just before the system call, so its error lies within the time that the call took.
//!
//! The **arrival**, when the kernel stamps it, is off by the mapping of the kernel's clock. When the worker does it, by the time from
//! the kernel's stamp to the worker's, where both were taken; else by the largest of three measures of the same thing, since each is
//! blind to something: how late the loop woke from waits that had an end (blind while it never sleeps that long), how long its turns
//! kept it from looking (blind between turns), and how long its thread waited for the core (blind to all but the scheduler). A worker
//! that was late therefore costs nothing in a time that the kernel stamped, except where 1 in 200 of the reads have no such stamp,
//! or 1 in 200 of the events (for TTFT: of the first ones) share a read, whose earlier ones have the stamp of the last; then the
//! worker's error is added. Events that the server sent together share a read too, and cost nothing; that cannot be told apart.
//!
//! **A single gap** has an arrival at both ends. A worker is late and never early, so the larger error counts once; a mapping
//! errs both ways and counts twice. An inter-token latency divides the same by the number of gaps.
//!
//! Not in the bounds: what a loaded host adds before the kernel stamps, and in virtual machines the time that their host takes away, which is only told.

use hdrhistogram::Histogram;

use crate::clock::{Nanos, Rate};

mod judge;

pub use judge::{REASONS, judge};

/// The part of stamps that may be worse than what is said of them: one in 200.
pub const RARE: f64 = 1.0 / 200.0;

/// Where a length of time lies, over many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// Exceeded by 1 in 200; see [`RARE`].
    pub rare: Nanos,
    /// Largest.
    pub max: Nanos,
}

impl Spread {
    /// Of a histogram of ticks; `None` of nothing. The histogram's buckets are below 1 % wide, and their upper ends count.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, rate: Rate) -> Option<Spread> {
        let at = |quantile| rate.nanos(histogram.value_at_quantile(quantile));
        (!histogram.is_empty()).then(|| Spread {
            count: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            rare: at(1.0 - RARE),
            max: rate.nanos(histogram.max()),
        })
    }
}

/// How long a moment has to wait that falls into one of `spells`, for that spell's end, over `length`: exceeded by 1 moment in 200.
/// All in one unit.
///
/// A moment falls into a long spell more often than into a short one, so a percentile of the spells would say too little: the
/// moments that wait longer than x are the sum of (spell - x) over all longer spells.
#[must_use]
pub fn wait_for_end(spells: &Histogram<u64>, length: u64) -> u64 {
    let allowed = length as f64 * RARE;
    let beyond = |limit: u64| -> f64 {
        let steps = spells.iter_recorded();
        steps
            .map(|step| {
                let longer = step.value_iterated_to().saturating_sub(limit);
                longer as f64 * step.count_at_value() as f64
            })
            .sum()
    };
    let (mut low, mut high) = (0, spells.max());
    while low < high {
        let middle = low + (high - low) / 2;
        if beyond(middle) <= allowed {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// What was measured of one worker. Lengths of time are of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerHealth {
    /// Its core; `None` where it is not pinned.
    pub core: Option<usize>,
    /// From the first thing its loop heard of to the last.
    pub length: Nanos,
    /// Inside loop turns.
    pub busy: Nanos,
    /// Length of the loop turns.
    pub turns: Spread,
    /// How long a turn kept it from looking; see [`wait_for_end`].
    pub turn_delay: Nanos,
    /// How late it woke from waits that had an end; `None` when none was waited out.
    pub wake_lateness: Option<Spread>,
    /// From the kernel's receive stamp to the worker's; `None` without stamps of the kernel.
    pub receive_delay: Option<Spread>,
    /// What the system call of a send took.
    pub send_bracket: Option<Spread>,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Loop turns that had a read.
    pub read_turns: u64,
    /// Events of streams in finished replies.
    pub events: u64,
    /// Times of its thread; `None` where the system does not tell.
    pub thread: Option<ThreadTime>,
    /// How long its thread had to wait for the core; see [`wait_for_end`]. `None` where the system does not tell.
    pub core_delay: Option<Nanos>,
}

impl WorkerHealth {
    /// Part of the run in which it was at work: the loop's turns, or with more in it the thread's time on its core, which has the
    /// kernel's work too. With `spins` the latter says nothing.
    #[must_use]
    pub fn busy_share(&self, spins: bool) -> f64 {
        let ran = self.thread.filter(|_| !spins).map_or(Nanos(0), |t| t.ran);
        share(self.busy.max(ran), self.length).min(1.0)
    }

    /// How late it looks, by the three measures that need no stamp of the kernel.
    #[must_use]
    pub fn looks_late(&self) -> Nanos {
        let woken = self.wake_lateness.filter(|s| s.count >= judge::ENOUGH);
        let woken = woken.map_or(Nanos(0), |s| s.rare);
        woken
            .max(self.turn_delay)
            .max(self.core_delay.unwrap_or(Nanos(0)))
    }
}

/// `/proc/thread-self/schedstat`, at the end less at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On the core.
    pub ran: Nanos,
    /// Ready, but waiting for the core.
    pub waited: Nanos,
    /// Times that it was put on the core.
    pub slices: u64,
}

impl ThreadTime {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: ThreadTime) -> ThreadTime {
        ThreadTime {
            ran: self.ran - earlier.ran,
            waited: self.waited - earlier.waited,
            slices: self.slices.saturating_sub(earlier.slices),
        }
    }

    /// The first three numbers of a `schedstat` file.
    #[must_use]
    pub fn parse(text: &str) -> Option<ThreadTime> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(ThreadTime {
            ran: Nanos(next()?),
            waited: Nanos(next()?),
            slices: next()?,
        })
    }

    /// Of the time that the thread wanted to run, the part it waited.
    #[must_use]
    pub fn waited_share(self) -> f64 {
        share(self.waited, self.ran + self.waited)
    }
}

/// Facts of the machine at the start, and what became of the CPU quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineFacts {
    /// (core, governor) of each worker's core that has a frequency governor other than `performance`.
    pub governors: Vec<(usize, String)>,
    /// (worker's core, its sibling): another thread of this run is bound to the other half of the same physical core.
    pub busy_siblings: Vec<(usize, usize)>,
    /// (worker's core, who else is bound to it).
    pub shared_cores: Vec<(usize, &'static str)>,
    /// CPUs that the control group may use; `None` without a quota.
    pub quota_cpus: Option<f64>,
    /// What the quota cost during the run; `None` where that is not told.
    pub throttled: Option<Throttled>,
    /// (worker's core, time that the host of this virtual machine took from it), where it took any.
    pub stolen: Vec<(usize, Nanos)>,
    /// What other programs used of each worker's core, where the system tells.
    pub rivals: Vec<Rival>,
}

/// What other programs used of a worker's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rival {
    /// The core.
    pub core: usize,
    /// Time that no thread of ours can have used; interrupts are not in it.
    pub used: Nanos,
    /// Length of the load.
    pub length: Nanos,
}

/// How often and for how long a control group was stopped by its CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Quota periods with a stop.
    pub periods: u64,
    /// Length of the stops, summed over CPUs.
    pub time: Nanos,
}

/// What the ring went through; zeros without a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFacts {
    /// Reads that brought bytes.
    pub reads: u64,
    /// Of those, without the kernel's stamp although it was asked for.
    pub unstamped: u64,
    /// Receives that found no free buffer.
    pub exhausted: u64,
    /// Overflows of the completion queue.
    pub overflows: u64,
    /// Steps of the wall clock.
    pub steps: u64,
}

/// Finished requests that waited for the recorder, each worker at its worst; sums over the workers, whose worst moments need not be one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Requests that waited at once.
    pub most_requests: u64,
    /// Memory that those held, in bytes.
    pub most_bytes: u64,
    /// Requests that found the queue full, and waited in a list of their worker's.
    pub overflowed: u64,
}

/// How late requests were sent, against when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScheduleLag {
    /// Median, in ms.
    pub p50_ms: f64,
    /// 99th percentile, in ms.
    pub p99_ms: f64,
    /// Largest, in ms.
    pub max_ms: f64,
    /// 99th percentile of what the client itself added to it, without waits for a slot and connection set-up, in ms; `None` in the closed loop, which has no due
    /// times of its own.
    pub client_p99_ms: Option<f64>,
}

/// Everything that is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// One entry a worker.
    pub workers: Vec<WorkerHealth>,
    /// The machine.
    pub machine: MachineFacts,
    /// The ring.
    pub ring: RingFacts,
    /// What waited for the recorder.
    pub backlog: Backlog,
    /// Arrivals are stamped by the kernel.
    pub kernel_stamps: bool,
    /// Longest time that completions were left in the kernel on purpose; 0 when never.
    pub window: Nanos,
    /// Workers spin while they wait, so that their time on the core says nothing.
    pub spins: bool,
    /// How late the timer is by itself.
    pub timer_grain: Nanos,
    /// Bound on the error of a converted length.
    pub clock_error: Nanos,
    /// Bound on the error of a kernel stamp's tick.
    pub mapping_error: Nanos,
    /// Content events of streams in profiling.
    pub content_events: u64,
    /// Of those, in one read with another.
    pub shared_events: u64,
    /// Streams with a content event.
    pub streams: u64,
    /// Of those, with the first two content events in one read.
    pub first_shared: u64,
    /// How late requests were sent; `None` when none was.
    pub schedule_lag: Option<ScheduleLag>,
}

impl Health {
    /// Part of the (first content events, all content events) that share a read with a later one or another.
    #[must_use]
    pub fn shared_shares(&self) -> (f64, f64) {
        (
            part(self.first_shared, self.streams),
            part(self.shared_events, self.content_events),
        )
    }

    /// How far (TTFT p99, a single gap's p99) may be off. See the head of this file.
    #[must_use]
    pub fn bounds(&self) -> (Nanos, Nanos) {
        let each = self.workers.iter().map(|worker| self.bounds_of(worker));
        each.fold((self.clock_error, self.clock_error), |most, one| {
            (most.0.max(one.0), most.1.max(one.1))
        })
    }

    fn bounds_of(&self, worker: &WorkerHealth) -> (Nanos, Nanos) {
        let measured = worker.receive_delay.filter(|s| s.count >= judge::ENOUGH);
        let late = match measured {
            Some(delay) => delay.rare,
            None => worker.looks_late() + self.window,
        };
        let late = late.max(self.timer_grain);
        let (one, two) = if self.kernel_stamps {
            // An event whose stamp is not the kernel's own stamp of it is as late as the worker.
            let unstamped = part(self.ring.unstamped, self.ring.reads);
            let (first, any) = self.shared_shares();
            let unless_rare = |shared: f64| {
                let rare = unstamped.max(shared) < RARE;
                if rare { Nanos(0) } else { late }
            };
            let mapping = self.mapping_error;
            let (first, any) = (unless_rare(first), unless_rare(any));
            (mapping + first, mapping + mapping + any)
        } else {
            (late, late)
        };
        let send = worker.send_bracket.map_or(Nanos(0), |s| s.rare);
        (one + send + self.clock_error, two + self.clock_error)
    }
}

/// How far the client can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing speaks against the numbers.
    #[default]
    Trusted,
    /// The numbers hold within the bound; read the reasons.
    Caution,
    /// The numbers may be the client's.
    Untrusted,
}

impl Level {
    /// As the report writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Trusted => "trusted",
            Level::Caution => "caution",
            Level::Untrusted => "untrusted",
        }
    }
}

/// What speaks against the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name in [`REASONS`], for programs.
    pub name: &'static str,
    /// How much.
    pub level: Level,
    /// For people.
    pub text: String,
}

/// The judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The worst of the reasons.
    pub level: Level,
    /// Worst first.
    pub reasons: Vec<Reason>,
    /// What could do harm, but is judged by what it did.
    pub warnings: Vec<String>,
    /// TTFT p99 may be off by up to this.
    pub ttft_bound: Nanos,
    /// The p99 of single gaps may be off by up to this.
    pub gap_bound: Nanos,
}

/// `part / whole`, 0 of nothing.
#[must_use]
pub fn share(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 {
        0.0
    } else {
        part.0 as f64 / whole.0 as f64
    }
}

/// `part / whole`, 0 of nothing.
fn part(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
