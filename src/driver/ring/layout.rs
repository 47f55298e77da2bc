//! How a ring is made, and the steps down from the best way.
//!
//! In: the kernel's answers. Out: the best [`Layout`] that it takes, or why it takes none. Never: a choice without its reason.

use std::fmt;
use std::io;

use super::Ring;

/// Which of the kernel's ways of running completions is used, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `SINGLE_ISSUER` and `DEFER_TASKRUN`: completions are made when we ask for them, on our own time (Linux 6.1).
    Deferred,
    /// `COOP_TASKRUN`: completions wait for our next system call, whichever it is (Linux 5.19).
    Cooperative,
    /// No flags: the kernel interrupts us for each completion.
    Plain,
}

/// At most what stands before the completions in their mapping (`struct io_rings`).
const HEADER_BYTES: u64 = 320;

/// A page of memory.
const PAGE_BYTES: u64 = 4_096;

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Deferred => "SINGLE_ISSUER, DEFER_TASKRUN",
            Mode::Cooperative => "COOP_TASKRUN",
            Mode::Plain => "no flags",
        })
    }
}

/// Shape of one worker's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How completions are run.
    pub mode: Mode,
    /// Entries of the submission queue.
    pub submissions: u32,
    /// Entries of the completion queue.
    pub completions: u32,
    /// Receive buffers; a power of two up to 32,768.
    pub buffer_count: u16,
    /// Bytes of each, header and control data included; at least 256.
    pub buffer_bytes: u32,
}

impl Layout {
    /// What a worker wants: 5,000 connections ran on it without an overflow. The buffers are 32 MiB of address space, of which
    /// reads of single tokens touch half.
    pub const FULL: Layout = Layout {
        mode: Mode::Deferred,
        submissions: 1_024,
        completions: 16_384,
        buffer_count: 4_096,
        buffer_bytes: 8_192,
    };

    /// For a small limit on locked memory: this one's queues and entries take some 50 KiB.
    pub const SMALL: Layout = Layout {
        submissions: 128,
        completions: 512,
        buffer_count: 256,
        ..Layout::FULL
    };
}

impl Layout {
    /// Bytes that the kernel counts as locked: its two queues with their headers, the entries to be submitted, the ring of buffers;
    /// each in whole pages. The buffers are ours and are not locked.
    #[must_use]
    pub fn locked_bytes(&self) -> u64 {
        let [submissions, completions] = [self.submissions, self.completions].map(u64::from);
        let queues = HEADER_BYTES + 16 * completions + 4 * submissions;
        let parts = [queues, 64 * submissions, 16 * u64::from(self.buffer_count)];
        parts
            .map(|bytes| bytes.next_multiple_of(PAGE_BYTES))
            .iter()
            .sum()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout {
            mode,
            completions,
            buffer_count,
            buffer_bytes,
            ..
        } = self;
        write!(
            f,
            "{mode}; {completions} completions, {buffer_count} buffers of {buffer_bytes} bytes"
        )
    }
}

/// The best layout that this kernel takes, with what it refused on the way; or everything that it refused.
///
/// Each step makes a ring as a worker would, registers its buffers, sends a no-op through it and receives from a socket pair.
pub fn probe() -> Result<(Layout, String), String> {
    descend(&mut Ring::try_out)
}

/// Why a step failed: what was tried, and the error.
pub(super) type Refusal = (&'static str, io::Error);

fn descend(
    attempt: &mut dyn FnMut(Layout) -> Result<(), Refusal>,
) -> Result<(Layout, String), String> {
    let mut refusals = Vec::new();
    for mode in [Mode::Deferred, Mode::Cooperative, Mode::Plain] {
        for shape in [Layout::FULL, Layout::SMALL] {
            let layout = Layout { mode, ..shape };
            let (step, error) = match attempt(layout) {
                Ok(()) => return Ok((layout, refusals.join("; "))),
                Err(refusal) => refusal,
            };
            refusals.push(format!("{step} with {mode}: {error}"));
            match error.raw_os_error() {
                // Not allowed, or not built in: no flag will change that.
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
                    return Err(refusals.join("; "));
                }
                // A smaller one may fit the limit on locked memory.
                Some(libc::ENOMEM) => {}
                _ => break,
            }
        }
    }
    Err(refusals.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Taken = Result<(Layout, String), String>;

    /// What `descend` tries, and ends with, when errors come in this order.
    fn with(errors: &[i32]) -> (Vec<(Mode, u32)>, Taken) {
        let mut errors = errors.iter();
        let mut tried = Vec::new();
        let end = descend(&mut |layout| {
            tried.push((layout.mode, layout.completions));
            match errors.next() {
                Some(&error) => Err(("io_uring_setup", io::Error::from_raw_os_error(error))),
                None => Ok(()),
            }
        });
        (tried, end)
    }

    #[test]
    fn a_ring_locks_what_the_kernel_was_seen_to_count() {
        // Linux 6.18 took the full one with this limit (ulimit -l 392), and refused it with a page less.
        assert_eq!(Layout::FULL.locked_bytes(), 401_408);
        assert!(Layout::SMALL.locked_bytes() <= 64 << 10);
    }

    #[test]
    fn each_refusal_has_its_step_down() {
        use Mode::{Cooperative, Deferred, Plain};
        let (full, small) = (Layout::FULL.completions, Layout::SMALL.completions);
        let (no, memory, denied) = (libc::EINVAL, libc::ENOMEM, libc::EPERM);
        for (errors, steps, taken) in [
            (vec![], vec![(Deferred, full)], true),
            (vec![no], vec![(Deferred, full), (Cooperative, full)], true),
            (
                vec![no, no],
                vec![(Deferred, full), (Cooperative, full), (Plain, full)],
                true,
            ),
            (
                vec![no, no, no],
                vec![(Deferred, full), (Cooperative, full), (Plain, full)],
                false,
            ),
            (
                vec![memory],
                vec![(Deferred, full), (Deferred, small)],
                true,
            ),
            (vec![denied], vec![(Deferred, full)], false),
            (
                vec![no, denied],
                vec![(Deferred, full), (Cooperative, full)],
                false,
            ),
        ] {
            let (tried, end) = with(&errors);
            assert_eq!(tried, steps, "{errors:?}");
            match end {
                Ok((layout, refused)) => {
                    assert!(taken);
                    assert_eq!(Some(&(layout.mode, layout.completions)), steps.last());
                    assert_eq!(refused.is_empty(), errors.is_empty());
                }
                Err(refused) => assert!(!taken && refused.contains("io_uring_setup"), "{refused}"),
            }
        }
    }
}
