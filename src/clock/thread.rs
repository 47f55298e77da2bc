//! What a thread has cost so far.
//!
//! In: nothing. Out: the processor time of the thread that asks. Never: wall-clock time, or another thread's.

use rustix::time::{ClockId, clock_gettime};

use super::Nanos;

/// Processor time that this thread has used, user space and kernel together (`CLOCK_THREAD_CPUTIME_ID`). Interrupts that are served
/// while it runs count as its own.
#[must_use]
pub fn thread_cpu() -> Nanos {
    let used = clock_gettime(ClockId::ThreadCPUTime);
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
    }
}
