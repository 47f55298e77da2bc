//! What a thread, and the whole process, has cost so far.
//!
//! In: nothing. Out: the processor time of the thread that asks, or of all threads. Never: wall-clock time, or that of one
//! other thread.

use rustix::time::{ClockId, clock_gettime};

use super::Nanos;

/// Processor time that this thread has used, user space and kernel together (`CLOCK_THREAD_CPUTIME_ID`). Interrupts that are served
/// while it runs count as its own.
#[must_use]
pub fn thread_cpu() -> Nanos {
    nanos(ClockId::ThreadCPUTime)
}

/// The same of all threads of this process together, those that have ended included (`CLOCK_PROCESS_CPUTIME_ID`).
#[must_use]
pub fn process_cpu() -> Nanos {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> Nanos {
    let used = clock_gettime(clock);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    Nanos(seconds * 1_000_000_000 + u64::try_from(used.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time() {
        let before = thread_cpu();
        let mut sum = 0u64;
        while thread_cpu() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(thread_cpu() > before);
        assert!(process_cpu() >= thread_cpu(), "this thread's is in it");
    }
}
