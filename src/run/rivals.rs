//! How much of a worker's core other programs used.
//!
//! In: the cores' rows of `/proc/stat` and the processor times of our own threads, at the load's start and end. Out: for each worker's
//! core the time that nobody of ours can have used. Never: more than that; whatever of ours may have run there is taken off in full.
//!
//! A worker that got its core back whenever it wanted it waited for nobody, yet ran beside another program, which shares its caches and
//! will be in its way in the next run. Only the core's own count tells.
//!
//! The kernel counts user, nice and system time by what it finds running at its ticks, so that work in step with the ticks is counted
//! as too much or too little; idle time it measures. A core's work is therefore the smaller of what was counted and of what the idle
//! time leaves. Both are shown in hundredths of a second, and three of them, by which a sum of three numbers may be off, are taken off.

use std::collections::BTreeMap;
use std::fs;

use crate::clock::{Clock, Nanos, Tick, process_cpu};
use crate::metric::health::{Rival, ThreadTime, WorkerHealth};

use super::cores::Cores;
use super::machine::{STAT_TICK, core_list, core_row};

/// By which the difference of two sums of three numbers may be off.
const GRAIN: Nanos = Nanos(3 * STAT_TICK.0);

/// What had been used when the load began.
pub(super) struct Rivals {
    clock: Clock,
    begun: Tick,
    cores: Vec<(usize, Row)>,
    process: Nanos,
    threads: Threads,
}

/// Threads of this process that live, by their numbers.
type Threads = BTreeMap<u32, Thread>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    /// Where it may run.
    cores: Vec<usize>,
    ran: Nanos,
}

/// A core's row of `/proc/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    /// User, nice and system: programs, and the kernel in their name.
    work: Nanos,
    /// Idle, waiting for a disk, interrupts of both kinds, and what the host took.
    rest: Nanos,
}

impl Rivals {
    /// To be called just before the workers start.
    pub(super) fn begin(cores: &Cores, clock: &Clock) -> Rivals {
        let mut workers: Vec<usize> = cores.workers.iter().flatten().copied().collect();
        workers.sort_unstable();
        workers.dedup();
        let stat = stat();
        let rows = workers
            .iter()
            .filter_map(|&core| Some((core, Row::parse(&stat, core)?)));
        Rivals {
            clock: clock.clone(),
            begun: clock.now(),
            cores: rows.collect(),
            process: process_cpu(),
            threads: threads(),
        }
    }

    /// To be called when the workers have ended and the other threads still live.
    pub(super) fn found(&self, workers: &[(usize, WorkerHealth)]) -> Vec<Rival> {
        let stat = stat();
        let length = self.clock.rate().nanos(self.clock.now().since(self.begun));
        let process = process_cpu() - self.process;
        let threads = threads();
        let rows = self.cores.iter().filter_map(|&(core, before)| {
            let work = Row::parse(&stat, core)?.since(before).work_within(length);
            let away = away(core, &self.threads, &threads) + workers_away(core, workers);
            Some(Rival {
                core,
                used: work - (process - away) - GRAIN,
                length,
            })
        });
        rows.collect()
    }
}

impl Row {
    /// The core's first eight numbers: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str, core: usize) -> Option<Row> {
        let numbers = core_row(stat, core)?;
        let sum = |part: &[Nanos]| part.iter().fold(Nanos(0), |sum, &one| sum + one);
        Some(Row {
            work: sum(numbers.get(..3)?),
            rest: sum(numbers.get(3..8)?),
        })
    }

    fn since(self, before: Row) -> Row {
        Row {
            work: self.work - before.work,
            rest: self.rest - before.rest,
        }
    }

    /// Work done in `length`, by the smaller of the two counts.
    fn work_within(self, length: Nanos) -> Nanos {
        self.work.min(length - self.rest)
    }
}

/// What living threads ran that cannot have run on `core`, neither when the load began nor when it ended.
fn away(core: usize, before: &Threads, after: &Threads) -> Nanos {
    let elsewhere = |thread: &Thread| !thread.cores.is_empty() && !thread.cores.contains(&core);
    let ran = after.iter().filter_map(|(number, now)| {
        let earlier = before.get(number);
        (elsewhere(now) && earlier.is_none_or(elsewhere))
            .then(|| now.ran - earlier.map_or(Nanos(0), |thread| thread.ran))
    });
    ran.fold(Nanos(0), |sum, ran| sum + ran)
}

/// What workers ran that are bound to another core.
fn workers_away(core: usize, workers: &[(usize, WorkerHealth)]) -> Nanos {
    let elsewhere = workers
        .iter()
        .filter(|(_, worker)| worker.core.is_some_and(|own| own != core));
    elsewhere
        .filter_map(|(_, worker)| worker.thread)
        .fold(Nanos(0), |sum, thread| sum + thread.ran)
}

fn stat() -> String {
    fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// Threads of which the system tells where they may run and how long they ran; of others nothing can be said.
fn threads() -> Threads {
    let folders = fs::read_dir("/proc/self/task").into_iter().flatten();
    let told = folders.flatten().filter_map(|folder| {
        let number = folder.file_name().to_str()?.parse().ok()?;
        let read = |file| fs::read_to_string(folder.path().join(file)).ok();
        let ran = ThreadTime::parse(&read("schedstat")?)?.ran;
        let status = read("status")?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let cores = core_list(list);
        Some((number, Thread { cores, ran }))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn rows_are_work_and_rest() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 50 0\ncpu10 1 2 3 4 5 6 7\n";
        let row = Row::parse(stat, 1).unwrap();
        let expected = Row {
            work: MS(60),
            rest: MS(300),
        };
        assert_eq!(row, expected);
        assert_eq!(Row::parse(stat, 10), None, "an old kernel's line");
        assert_eq!(Row::parse(stat, 2), None);
    }

    #[test]
    fn work_is_the_smaller_of_two_counts() {
        // (work, rest, expected) in ms of a second
        for (work, rest, expected) in [
            (200, 800, 200),
            // In step with the ticks: always found at work, and idle for most of the time.
            (1_000, 800, 200),
            // Found at work too rarely.
            (50, 800, 50),
            (300, 1_100, 0),
        ] {
            let row = Row {
                work: MS(work),
                rest: MS(rest),
            };
            assert_eq!(row.work_within(MS(1_000)), MS(expected), "{work} {rest}");
        }
    }

    #[test]
    fn only_what_was_surely_elsewhere_is_left_to_others() {
        let thread = |cores: &[usize], ran| Thread {
            cores: cores.to_vec(),
            ran: MS(ran),
        };
        let before = Threads::from([
            (1, thread(&[0, 1], 10)),
            (2, thread(&[1], 20)),
            (3, thread(&[0, 1], 30)),
        ]);
        let after = Threads::from([
            // May run on both.
            (1, thread(&[0, 1], 1_000)),
            // Bound elsewhere all the time.
            (2, thread(&[1], 70)),
            // Bound only later.
            (3, thread(&[1], 2_000)),
            // Began later.
            (4, thread(&[1], 7)),
            // Nobody knows where.
            (5, thread(&[], 3_000)),
        ]);
        assert_eq!(away(0, &before, &after), MS(57));
        assert_eq!(away(1, &before, &after), MS(0));
        let worker = |core, ran| WorkerHealth {
            core,
            thread: Some(ThreadTime {
                ran: MS(ran),
                ..ThreadTime::default()
            }),
            ..WorkerHealth::default()
        };
        let workers = [
            (0, worker(Some(0), 1)),
            (1, worker(Some(1), 2)),
            (2, worker(None, 4)),
        ];
        assert_eq!(workers_away(0, &workers), MS(2));
        assert_eq!(workers_away(2, &workers), MS(3));
    }

    /// Absent where the kernel does not tell; where it does, this thread is among them.
    #[test]
    fn our_own_threads_are_seen() {
        let Some(time) = super::super::watched::thread_time() else {
            return;
        };
        let threads = threads();
        assert!(threads.values().any(|thread| thread.ran >= time.ran));
        assert!(threads.values().all(|thread| !thread.cores.is_empty()));
    }
}
