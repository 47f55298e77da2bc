//! Which thread runs where.
//!
//! In: the process's CPU mask and the plan. Out: a core for each worker, and cores for the others that are not workers', where
//! there are enough. Never: a core outside the mask.

use std::thread::JoinHandle;

use core_affinity::CoreId;

use crate::config::{Arrivals, Plan};
use crate::driver::priority;

use super::RunError;
use super::recorder::Recorder;

/// Streams that one worker carries before a second one is worth its core.
const STREAMS_PER_WORKER: usize = 64;

/// Requests per second that one worker carries before a second one is worth its core.
const RATE_PER_WORKER: f64 = 1_000.0;

/// The cores of a run.
pub(super) struct Cores {
    /// One entry for each worker: its core, `None` where the system does not pin.
    pub(super) workers: Vec<Option<usize>>,
    /// For the built-in server.
    pub(super) server: Vec<usize>,
    /// For the recorder, if there is one that no worker has.
    recorder: Option<usize>,
    /// What the reader should know.
    pub(super) notes: Vec<String>,
}

impl Cores {
    /// Deals out the cores of the mask.
    pub(super) fn choose(plan: &Plan) -> Result<Cores, RunError> {
        let mask: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .iter()
            .map(|core| core.id)
            .collect();
        Cores::deal(plan, &mask)
    }

    fn deal(plan: &Plan, mask: &[usize]) -> Result<Cores, RunError> {
        if let Some(&asked) = plan.workers.cpus.iter().find(|cpu| !mask.contains(cpu)) {
            return Err(RunError::Cores {
                asked,
                allowed: format!("{mask:?}"),
            });
        }
        let pool = if plan.workers.cpus.is_empty() {
            mask
        } else {
            &plan.workers.cpus
        };
        let count = worker_count(plan, pool.len());
        let workers: Vec<Option<usize>> = (0..count)
            .map(|index| pool.get(index % pool.len().max(1)).copied())
            .collect();
        let free: Vec<usize> = mask
            .iter()
            .copied()
            .filter(|cpu| !workers.contains(&Some(*cpu)))
            .collect();
        let mut notes = Vec::new();
        let server = match (plan.endpoint.built_in_server, free.as_slice()) {
            (false, _) => Vec::new(),
            (true, []) => {
                notes.push("the built-in server shares a core with the load".to_owned());
                mask.last().copied().into_iter().collect()
            }
            (true, [.., last]) => vec![*last],
        };
        let recorder = free.iter().copied().find(|cpu| !server.contains(cpu));
        if count > pool.len().max(1) {
            notes.push(format!("{count} workers share {} cores", pool.len()));
        }
        if free.is_empty() && mask.len() <= 1 {
            notes.push(
                "the recorder shares the worker's only core, at the lowest priority".to_owned(),
            );
        }
        Ok(Cores {
            workers,
            server,
            recorder,
            notes,
        })
    }

    /// The recorder's core; `None` where it has none of its own.
    pub(super) fn recorder(&self) -> Option<usize> {
        self.recorder
    }

    /// Starts the recorder on a core of its own, or at the lowest priority where it must share one. It comes back when the load is
    /// over, with what is left to record.
    pub(super) fn spawn_recorder(
        &self,
        recorder: Recorder,
    ) -> Result<JoinHandle<Recorder>, RunError> {
        let core = self.recorder;
        let work = move || {
            match core {
                Some(id) => {
                    core_affinity::set_for_current(CoreId { id });
                }
                None => priority::give_way(),
            }
            recorder.accompany()
        };
        let builder = std::thread::Builder::new().name("recorder".to_owned());
        builder.spawn(work).map_err(|error| {
            RunError::Thread(format!("cannot start the recorder's thread: {error}"))
        })
    }
}

/// Does `work` on a thread of its own that gives way to all others: this one could not take its priority back.
pub(super) fn on_idle_thread<T: Send>(
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, RunError> {
    let failed =
        |what: &dyn std::fmt::Display| RunError::Thread(format!("the {name}'s thread {what}"));
    std::thread::scope(|scope| {
        let idle = || {
            priority::give_way();
            work()
        };
        let builder = std::thread::Builder::new().name(name.to_owned());
        let thread = builder
            .spawn_scoped(scope, idle)
            .map_err(|error| failed(&format_args!("cannot start: {error}")))?;
        thread.join().map_err(|_| failed(&"died"))
    })
}

/// `--workers-max`, or as many as the load is worth; never more than there are slots, and one core is left free where possible.
fn worker_count(plan: &Plan, pool: usize) -> usize {
    let slots = plan
        .phases
        .iter()
        .map(|phase| match (&phase.arrivals, phase.concurrency) {
            (_, Some(concurrency)) => concurrency,
            (Arrivals::ClosedLoop, None) => 1,
            (Arrivals::Users(plan), None) => usize::try_from(plan.users).unwrap_or(usize::MAX),
            _ => usize::MAX,
        })
        // A worker without a prefill slot has nothing to do.
        .zip(plan.phases.iter().map(|phase| phase.slots.prefill))
        .map(|(slots, prefill)| slots.min(prefill.unwrap_or(usize::MAX)));
    let slots = slots.max().unwrap_or(1).max(1);
    if let Some(max) = plan.workers.max {
        return max.min(slots);
    }
    if !plan.workers.cpus.is_empty() {
        return pool.min(slots);
    }
    let worth = plan.phases.iter().map(|phase| match &phase.arrivals {
        Arrivals::ClosedLoop => phase.concurrency.unwrap_or(1).div_ceil(STREAMS_PER_WORKER),
        Arrivals::Rated { rate, .. } => workers_for(rate.most()),
        Arrivals::Users(plan) => workers_for(plan.rate),
        // Its rate is not known before the file is read, and may be in bursts.
        Arrivals::FixedSchedule => usize::MAX,
    });
    worth
        .max()
        .unwrap_or(1)
        .min(pool.saturating_sub(1))
        .min(slots)
        .max(1)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn workers_for(rate: f64) -> usize {
    (rate / RATE_PER_WORKER).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(arguments: &str, mask: &[usize]) -> Result<Cores, RunError> {
        let words = format!("profile --model m --url h {arguments}");
        let words = words.split_whitespace().map(std::ffi::OsString::from);
        match crate::config::parse(words) {
            Ok(crate::config::Command::Profile(plan)) => Cores::deal(&plan, mask),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn workers_fit_the_load_and_the_mask() {
        for (arguments, mask, expected) in [
            ("", &[3usize, 5][..], &[Some(3)][..]),
            ("--concurrency 1000", &[3, 5], &[Some(3)]),
            (
                "--concurrency 1000",
                &[3, 5, 7, 9],
                &[Some(3), Some(5), Some(7)],
            ),
            ("--concurrency 100", &[0, 1, 2, 3], &[Some(0), Some(1)]),
            (
                "--concurrency 2 --workers-max 9",
                &[0, 1, 2, 3],
                &[Some(0), Some(1)],
            ),
            (
                "--concurrency 9 --cpus 2,1",
                &[0, 1, 2, 3],
                &[Some(2), Some(1)],
            ),
            (
                "--streaming --concurrency 9 --prefill-concurrency 2 --workers-max 4",
                &[0, 1, 2, 3],
                &[Some(0), Some(1)],
            ),
            ("--request-rate 10000", &[0, 1, 2], &[Some(0), Some(1)]),
            (
                "--concurrency 3 --workers-max 3",
                &[4],
                &[Some(4), Some(4), Some(4)],
            ),
        ] {
            assert_eq!(
                cores(arguments, mask).unwrap().workers,
                expected,
                "{arguments}"
            );
        }
        let refusal = cores("--cpus 0,7", &[0, 1])
            .err()
            .map(|error| error.to_string());
        assert_eq!(
            refusal.as_deref(),
            Some("--cpus 7: this process may use only [0, 1]")
        );
    }
}
