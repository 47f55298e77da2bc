//! Who comes first on a core.
//!
//! In: threads that ask for it. Out: the same, first in line for their core, or last. Never: less than was asked for without an error.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "rustix has no scheduling policies")
)]

use std::io;

/// Above ordinary threads, below the kernel's own real-time ones (which start at 50 by custom).
#[cfg(target_os = "linux")]
const PRIORITY: libc::c_int = 10;

/// What `--realtime` was refused, in words.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The scheduling policy.
    #[error(
        "--realtime is not permitted: SCHED_FIFO was refused ({0}); run as root, or grant CAP_SYS_NICE or a limit on real-time priority (ulimit -r) of {PRIORITY_WISH}"
    )]
    Policy(io::Error),
    /// Locking memory.
    #[error(
        "--realtime is not permitted: locking memory was refused ({0}); run as root, or grant CAP_IPC_LOCK or an unlimited limit on locked memory (ulimit -l)"
    )]
    Memory(io::Error),
}

/// The limit that [`Refused::Policy`] names.
const PRIORITY_WISH: i32 = 10;

/// Gives this thread the policy `SCHED_FIFO`.
#[cfg(target_os = "linux")]
pub fn claim() -> io::Result<()> {
    set(libc::SCHED_FIFO, PRIORITY)
}

/// This thread gives way to all others from here on: `SCHED_IDLE`, which any other thread that wakes up takes the core from at once.
/// An ordinary user cannot take it back. Failing that it runs as the others do.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    if set(libc::SCHED_IDLE, 0).is_err() {
        // It is a thread's own on Linux; a refusal leaves it as it was.
        let _ = rustix::process::setpriority_process(None, 19);
    }
}

#[cfg(target_os = "linux")]
fn set(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the parameters outlive the call; thread 0 is the caller.
    let outcome = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    done(outcome)
}

/// See the other one; there is none here.
#[cfg(not(target_os = "linux"))]
pub fn claim() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Locks all memory of the process, and sees on a thread of its own that the policy is permitted.
///
/// # Errors
///
/// What was refused, and how to have it.
pub fn prepare() -> Result<(), Refused> {
    let tried = std::thread::spawn(claim).join();
    tried
        .unwrap_or_else(|_| Err(io::Error::other("the thread died")))
        .map_err(Refused::Policy)?;
    lock_memory().map_err(Refused::Memory)
}

#[cfg(target_os = "linux")]
fn lock_memory() -> io::Result<()> {
    // SAFETY: the call touches no memory of ours; it only keeps pages from being swapped out.
    done(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
}

#[cfg(not(target_os = "linux"))]
fn lock_memory() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn done(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
