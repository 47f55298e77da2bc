//! Whether this kernel lets us use io_uring.
//!
//! In: the kernel's answers. Out: a [`Backend`], with the reason where it is the second choice. Never: trusts that a ring that
//! can be made can also be entered; containers refuse the two apart.

use std::fmt;

/// What monoio waits with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    IoUring,
    /// epoll or kqueue, and why not io_uring.
    Readiness {
        /// What refused.
        reason: String,
    },
}

impl Backend {
    /// `io_uring`, `epoll` or `kqueue`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Backend::IoUring => "io_uring",
            Backend::Readiness { .. } if cfg!(target_os = "linux") => "epoll",
            Backend::Readiness { .. } => "kqueue",
        }
    }
}

impl Backend {
    /// The whole name of the portable driver on this backend, for the report.
    #[must_use]
    pub fn driver(&self) -> String {
        format!("portable (monoio, {})", self.name())
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::IoUring => f.write_str(self.name()),
            Backend::Readiness { reason } => write!(f, "{} ({reason})", self.name()),
        }
    }
}

/// Entries of a worker's ring; the probe asks for as many, since a limit on locked memory refuses by size.
pub(super) const RING_ENTRIES: u32 = 1_024;

/// Makes a ring as a worker would, registers with it, and sends one no-op through it.
///
/// monoio decides by making a ring of two entries, and hangs where `io_uring_enter` alone is refused; so the decision is made here.
#[cfg(target_os = "linux")]
#[must_use]
pub fn probe() -> Backend {
    match through_the_ring() {
        Ok(()) => Backend::IoUring,
        Err((step, error)) => Backend::Readiness {
            reason: format!("io_uring refused: {step}: {error}"),
        },
    }
}

/// Elsewhere there is no io_uring.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn probe() -> Backend {
    Backend::Readiness {
        reason: "no io_uring on this system".to_owned(),
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "one no-op, which refers to no memory")]
fn through_the_ring() -> Result<(), (&'static str, std::io::Error)> {
    use std::io::Error;

    let mut ring = io_uring::IoUring::new(RING_ENTRIES).map_err(|e| ("io_uring_setup", e))?;
    let mut known = io_uring::Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|e| ("io_uring_register", e))?;
    if !known.is_supported(io_uring::opcode::PollAdd::CODE) {
        return Err(("io_uring_register", Error::other("no POLL_ADD")));
    }
    let entry = io_uring::opcode::Nop::new().build().user_data(7);
    // SAFETY: a no-op reads and writes no memory of ours.
    unsafe { ring.submission().push(&entry) }
        .map_err(|_| ("io_uring_enter", Error::other("queue full")))?;
    ring.submit_and_wait(1).map_err(|e| ("io_uring_enter", e))?;
    match ring.completion().next() {
        Some(done) if done.user_data() == 7 && done.result() == 0 => Ok(()),
        Some(done) => Err(("io_uring_enter", Error::from_raw_os_error(-done.result()))),
        None => Err(("io_uring_enter", Error::other("the no-op did not complete"))),
    }
}
