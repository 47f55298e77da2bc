//! What is measured of workers from outside, while they work.
//!
//! In: the scheduler's sums for a worker's thread, looked at every few milliseconds, and the system's clocks. Out: how long the worker
//! had to wait for its core; how well wall-clock stamps map. Never: a word to a worker, or a guess where the system does not tell.
//!
//! The scheduler tells only the sum of a thread's waits, which hides a long one among many short ones. The difference between two
//! looks a few milliseconds apart does not: no wait in between was longer. Of a thread that woke many times in between, the few
//! microseconds are taken off that each wake-up costs on a free core too. A late look sees more waits as one, so that on a loaded
//! machine a wait may be overstated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hdrhistogram::Histogram;

use crate::clock::{Clock, Nanos, Rate, Tick};
use crate::metric::health::{ThreadTime, WorkerHealth, wait_for_end};

/// Longest wait that is told apart from longer ones: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A wake-up on a free core costs no more than this, in nanoseconds; a core of a virtual machine that slept takes the longest.
const WAKE_MOST_NS: u64 = 20_000;

/// Wake-ups between two looks, from which what one costs can be told.
const WAKES_ENOUGH: u64 = 8;

/// The system's number of a worker's thread; 0 before it has begun.
pub(super) type ThreadNumber = Arc<AtomicU32>;

/// All workers.
pub(super) struct Watched {
    clock: Clock,
    workers: Vec<Waits>,
}

impl Watched {
    /// Nothing seen yet.
    pub(super) fn new(clock: &Clock, numbers: Vec<ThreadNumber>) -> Watched {
        Watched {
            clock: clock.clone(),
            workers: numbers.into_iter().map(Waits::new).collect(),
        }
    }

    /// To be called every few milliseconds.
    pub(super) fn look(&mut self) {
        let now = self.clock.now();
        for worker in &mut self.workers {
            worker.look(now, self.clock.rate());
        }
    }

    /// Adds what was seen of worker `index`.
    pub(super) fn complete(&self, index: usize, health: &mut WorkerHealth) {
        health.core_delay = self.workers.get(index).and_then(Waits::delay);
    }
}

/// What was seen of one worker's thread.
struct Waits {
    number: ThreadNumber,
    file: Option<std::fs::File>,
    last: Option<(Tick, ThreadTime)>,
    /// Waited between two looks, in nanoseconds.
    spells: Histogram<u64>,
    /// From the first look to the last.
    seen: Nanos,
    /// What a wake-up costs, in nanoseconds: the smallest mean between two looks so far.
    wake_ns: u64,
}

impl Waits {
    fn new(number: ThreadNumber) -> Waits {
        Waits {
            number,
            file: None,
            last: None,
            // The bounds are constants with 1 < 2 * high and at most five digits, which is all that the constructor asks.
            spells: Histogram::new_with_bounds(1, LONGEST_NS, 2)
                .expect("constant bounds are valid"),
            seen: Nanos(0),
            wake_ns: WAKE_MOST_NS,
        }
    }

    fn look(&mut self, now: Tick, rate: Rate) {
        let number = self.number.load(Ordering::Relaxed);
        if self.file.is_none() && number > 0 {
            let path = format!("/proc/self/task/{number}/schedstat");
            self.file = std::fs::File::open(path).ok();
        }
        let Some(time) = self.file.as_ref().and_then(thread_time_of) else {
            return;
        };
        self.note(now, time, rate);
    }

    fn note(&mut self, now: Tick, time: ThreadTime, rate: Rate) {
        if let Some((at, before)) = self.last {
            let ThreadTime { waited, slices, .. } = time.since(before);
            if slices >= WAKES_ENOUGH {
                let mean = (waited.0 / slices).min(WAKE_MOST_NS);
                self.wake_ns = self.wake_ns.min(mean);
            }
            let usual = self.wake_ns.saturating_mul(slices.saturating_sub(1));
            self.spells
                .saturating_record(waited.0.saturating_sub(usual));
            self.seen = self.seen + rate.nanos(now.since(at));
        }
        self.last = Some((now, time));
    }

    fn delay(&self) -> Option<Nanos> {
        let any = self.seen > Nanos(0);
        any.then(|| Nanos(wait_for_end(&self.spells, self.seen.0)))
    }
}

/// Tells the watch who the calling thread is.
pub(super) fn introduce(number: &ThreadNumber) {
    #[cfg(target_os = "linux")]
    {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        number.store(u32::try_from(id).unwrap_or(0), Ordering::Relaxed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = number;
}

/// Times of the calling thread so far.
pub(super) fn thread_time() -> Option<ThreadTime> {
    ThreadTime::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Reads anew from the start; fails when the thread is gone.
fn thread_time_of(file: &std::fs::File) -> Option<ThreadTime> {
    let mut text = [0; 96];
    let length = std::os::unix::fs::FileExt::read_at(file, &mut text, 0).ok()?;
    ThreadTime::parse(std::str::from_utf8(&text[..length]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits() -> Waits {
        Waits::new(ThreadNumber::default())
    }

    fn at(waited_us: u64) -> ThreadTime {
        ThreadTime {
            waited: Nanos(waited_us * 1_000),
            ..ThreadTime::default()
        }
    }

    #[test]
    fn a_long_wait_shows_among_short_ones() {
        // The same second and the same 100 ms of waiting: spread evenly, or in 25 waits of 4 ms.
        let (mut even, mut rare) = (waits(), waits());
        let (mut sum_even, mut sum_rare) = (0, 0);
        for look in 0..=200u64 {
            let now = Tick(look * 5_000_000);
            even.note(now, at(sum_even), Rate::NANOS);
            rare.note(now, at(sum_rare), Rate::NANOS);
            sum_even += 500;
            sum_rare += if look % 8 == 0 { 4_000 } else { 0 };
        }
        let (even, rare) = (even.delay().unwrap(), rare.delay().unwrap());
        assert!((470_000..510_000).contains(&even.0), "{even:?}");
        // 25 waits hold (4 ms - x) * 25 moments of 1 s that wait longer than x: x = 3.8 ms at 1 in 200.
        assert!((3_760_000..3_850_000).contains(&rare.0), "{rare:?}");
    }

    #[test]
    fn what_each_wake_up_costs_is_no_wait() {
        // 100 wake-ups of 4 us between two looks; then the same with one wait of 3 ms in every second look.
        let (mut quick, mut rival) = (waits(), waits());
        let (mut quick_us, mut rival_us) = (0, 0);
        for look in 0..=200u64 {
            let slices = look * 100;
            let time = |waited_us| ThreadTime {
                slices,
                ..at(waited_us)
            };
            let now = Tick(look * 5_000_000);
            quick.note(now, time(quick_us), Rate::NANOS);
            rival.note(now, time(rival_us), Rate::NANOS);
            quick_us += 400;
            rival_us += 400 + 3_000 * (look % 2);
        }
        let (quick, rival) = (quick.delay().unwrap(), rival.delay().unwrap());
        assert!(quick.0 < 10_000, "{quick:?}");
        assert!((2_900_000..3_050_000).contains(&rival.0), "{rival:?}");
    }

    #[test]
    fn without_two_looks_nothing_is_said() {
        let mut one = waits();
        assert_eq!(one.delay(), None);
        one.note(Tick(5), at(1), Rate::NANOS);
        assert_eq!(one.delay(), None);
        one.note(Tick(9), at(1), Rate::NANOS);
        assert_eq!(one.delay(), Some(Nanos(0)));
    }

    #[test]
    fn this_thread_is_seen_while_it_lives() {
        // Absent where the kernel keeps no statistics; where it does, inside and outside agree.
        let clock = Clock::new();
        let number = ThreadNumber::default();
        introduce(&number);
        let mut watched = Watched::new(&clock, vec![number]);
        watched.look();
        watched.look();
        let mut health = WorkerHealth::default();
        watched.complete(0, &mut health);
        assert_eq!(health.core_delay.is_some(), thread_time().is_some());
        watched.complete(1, &mut health);
        assert_eq!(health.core_delay, None, "nobody");
    }
}
