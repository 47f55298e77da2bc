//! Which driver runs the workers.
//!
//! In: what the user wants, and what the kernel allows. Out: a [`Driver`] with its reason, and the run of an engine on it. Never: a
//! silent second choice.

use std::io;
use std::sync::Arc;

use crate::clock::{Clock, Nanos};
use crate::engine::Engine;

use super::portable::{self, Wishes};
use super::probe::{Backend, probe};
#[cfg(target_os = "linux")]
use super::ring::{self, Layout, Ring};
use super::socket::SocketOptions;
use super::waiting::{WaitMode, Waiting, Window};

/// What lets a kernel that knows io_uring give it.
const REMEDY: &str = "set the sysctl kernel.io_uring_disabled to 0, and allow io_uring in the container's seccomp profile";

/// A ring for which there is no memory is tried so often again, each time after [`OPENING_STEP`].
#[cfg(target_os = "linux")]
const OPENINGS: u32 = 50;

/// See [`OPENINGS`].
#[cfg(target_os = "linux")]
const OPENING_STEP: std::time::Duration = std::time::Duration::from_millis(5);

/// What the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The ring where the kernel allows it, else the portable driver.
    #[default]
    Auto,
    /// The ring or nothing.
    Ring,
    /// The portable driver.
    Portable,
}

/// Which stamp says when bytes arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampSource {
    /// Taken by the driver when it sees a read complete.
    User,
    /// Taken by the kernel when it receives the newest segment of a read.
    Kernel,
}

/// A driver that this machine allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Our own ring.
    #[cfg(target_os = "linux")]
    Ring {
        /// How each worker makes its ring.
        layout: Layout,
        /// What the kernel refused on the way to it; empty when nothing.
        refused: String,
    },
    /// monoio.
    Portable {
        /// What it waits with.
        backend: Backend,
        /// Why not the ring.
        reason: String,
    },
}

/// What drivers went through; sums over a run, but the longest window and the largest error. What belongs to rings is 0 on the portable driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingTally {
    /// Reads that brought bytes.
    pub reads: u64,
    /// Of those, without a stamp of the kernel although it was asked: taken before it had begun to stamp, or across a step of the
    /// wall clock.
    pub unstamped: u64,
    /// Receives that the kernel ended in mid-stream and that were armed again.
    pub rearms: u64,
    /// Of those, the ones that had found no free buffer.
    pub exhausted: u64,
    /// Times that the completion queue had overflowed; the kernel kept what did not fit.
    pub overflows: u64,
    /// Completions of operations that were over; always 0 unless the kernel errs.
    pub stale: u64,
    /// Steps of the wall clock.
    pub steps: u64,
    /// The largest error of the mapping of the kernel's stamps to ticks, over all workers.
    pub mapping_error_ns: u64,
    /// Waits that left reads for a window's length.
    pub windows: u64,
    /// The longest window.
    pub window_ns: u64,
    /// Sockets of spinning workers for which the system refused to poll the network card.
    pub unpolled: u64,
    /// Sockets that the kernel still held when the driver gave up waiting for them at its end; always 0 unless the kernel errs.
    pub held: u64,
}

impl RingTally {
    /// Adds another ring's.
    pub fn add(&mut self, other: &RingTally) {
        self.reads += other.reads;
        self.unstamped += other.unstamped;
        self.rearms += other.rearms;
        self.exhausted += other.exhausted;
        self.overflows += other.overflows;
        self.stale += other.stale;
        self.steps += other.steps;
        self.mapping_error_ns = self.mapping_error_ns.max(other.mapping_error_ns);
        self.windows += other.windows;
        self.window_ns = self.window_ns.max(other.window_ns);
        self.unpolled += other.unpolled;
        self.held += other.held;
    }
}

/// An engine that has run to its end.
pub struct Ended {
    /// The engine.
    pub engine: Engine,
    /// What the ring went through.
    pub tally: RingTally,
    /// Why this worker had to do without the ring that the probe had got.
    pub stepped_down: Option<String>,
}

impl Driver {
    /// The driver for `choice`.
    ///
    /// # Errors
    ///
    /// The ring was asked for and is refused; says by what.
    pub fn choose(choice: Choice) -> Result<Driver, String> {
        if choice == Choice::Portable {
            return Ok(Driver::portable("asked for"));
        }
        match Driver::ring() {
            Ok(driver) => Ok(driver),
            Err(refused) if choice == Choice::Ring => Err(format!("{refused}; {REMEDY}")),
            Err(refused) => Ok(Driver::portable(&format!("no ring: {refused}"))),
        }
    }

    #[cfg(target_os = "linux")]
    fn ring() -> Result<Driver, String> {
        ring::probe().map(|(layout, refused)| Driver::Ring { layout, refused })
    }

    #[cfg(not(target_os = "linux"))]
    fn ring() -> Result<Driver, String> {
        Err("io_uring is a part of Linux".to_owned())
    }

    fn portable(reason: &str) -> Driver {
        let backend = probe();
        let reason = match &backend {
            Backend::IoUring => reason.to_owned(),
            Backend::Readiness { reason: refused } => format!("{reason}; {refused}"),
        };
        Driver::Portable { backend, reason }
    }

    /// Its whole name, for the report.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring { layout, .. } => format!("ring (io_uring, {})", layout.mode),
            Driver::Portable { backend, .. } => backend.driver(),
        }
    }

    /// Why this one.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring { layout, refused } if refused.is_empty() => {
                format!("probed: {layout}")
            }
            #[cfg(target_os = "linux")]
            Driver::Ring { layout, refused } => format!("probed: {layout}; refused: {refused}"),
            Driver::Portable { reason, .. } => reason.clone(),
        }
    }

    /// The kernel's receive stamps can be had.
    #[must_use]
    pub fn has_kernel_stamps(&self) -> bool {
        cfg!(target_os = "linux")
    }

    /// Bytes of locked memory that each worker takes, where the kernel counts a ring's.
    #[must_use]
    pub fn locked_bytes() -> u64 {
        #[cfg(target_os = "linux")]
        return Layout::FULL.locked_bytes();
        #[cfg(not(target_os = "linux"))]
        return 0;
    }

    /// Workers can wait in this way.
    #[must_use]
    pub fn can_wait(&self, mode: WaitMode) -> bool {
        // monoio polls its sockets only when its tasks let it.
        mode != WaitMode::Spin || !matches!(self, Driver::Portable { .. })
    }

    /// What it waits with, and how late that is; in words and in nanoseconds.
    #[must_use]
    pub fn timer(&self) -> (&'static str, u64) {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring { .. } => ("time-out of io_uring_enter (about 10 us)", 10_000),
            Driver::Portable { .. } if cfg!(target_os = "linux") => (super::TIMER, 50_000),
            Driver::Portable { .. } => (super::TIMER, 1_000_000),
        }
    }

    /// Runs `engine` to its end on this thread. Reads carry the kernel's stamp wherever there is one; `stamps` says which one the metrics
    /// go by, and where that is the worker's no read is left in the kernel.
    ///
    /// # Errors
    ///
    /// The kernel refused in mid-run.
    pub fn run(
        &self,
        engine: Engine,
        clock: &Clock,
        stamps: StampSource,
        waiting: Waiting,
    ) -> io::Result<Ended> {
        self.run_with(engine, clock, stamps, waiting, &Arc::default())
    }

    /// The same, on sockets as `options` says. Those of the file system carry no stamp of the kernel's.
    ///
    /// # Errors
    ///
    /// The kernel refused in mid-run.
    pub fn run_with(
        &self,
        engine: Engine,
        clock: &Clock,
        stamps: StampSource,
        waiting: Waiting,
        options: &Arc<SocketOptions>,
    ) -> io::Result<Ended> {
        let waiting = match stamps {
            StampSource::Kernel => waiting,
            StampSource::User => Waiting {
                window: Window::Fixed(Nanos(0)),
                ..waiting
            },
        };
        let mut stepped_down = None;
        let portable = match self {
            #[cfg(target_os = "linux")]
            Driver::Ring { layout, .. } => {
                match open(*layout) {
                    Ok(ring) => return on_ring(ring, engine, clock, waiting, options),
                    // The probe's ring fitted the limit on locked memory; that of one worker more did not.
                    Err(error) => stepped_down = Some(error.to_string()),
                }
                probe()
            }
            Driver::Portable { backend, .. } => backend.clone(),
        };
        let wishes = Wishes {
            stamps: self.has_kernel_stamps() && options.unix_path.is_none(),
            waiting,
        };
        let (engine, tally) = portable::run_with(engine, clock, &portable, wishes, options)?;
        Ok(Ended {
            engine,
            tally,
            stepped_down,
        })
    }
}

/// Opens a worker's ring. The kernel gives back the locked memory of the probe's ring a little after that was closed.
#[cfg(target_os = "linux")]
#[expect(
    clippy::disallowed_methods,
    reason = "before the load, where nothing is timed"
)]
fn open(layout: Layout) -> io::Result<Ring> {
    for _ in 0..OPENINGS {
        match Ring::open(layout) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                std::thread::sleep(OPENING_STEP);
            }
            outcome => return outcome,
        }
    }
    Ring::open(layout)
}

#[cfg(target_os = "linux")]
fn on_ring(
    ring: Ring,
    engine: Engine,
    clock: &Clock,
    waiting: Waiting,
    options: &Arc<SocketOptions>,
) -> io::Result<Ended> {
    let (engine, tally) = ring::run(ring, engine, clock, waiting, options)?;
    Ok(Ended {
        engine,
        tally,
        stepped_down: None,
    })
}
