//! A timer finer than monoio's.
//!
//! In: a length of time. Out: a descriptor that becomes readable when it is over. Never: monoio's timer wheel where the system
//! has something better; its grain is a millisecond, rounded up.

use std::io;
use std::time::Duration;

/// Grain of the timer that pumps wait with, for the report.
pub const TIMER: &str = if cfg!(target_os = "linux") {
    "timerfd (about 50 us)"
} else {
    "monoio's wheel (1 ms)"
};

/// A one-shot timer.
#[cfg(target_os = "linux")]
pub(super) struct Timer {
    stream: monoio::net::UnixStream,
    handle: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Timer {
    /// A timer that is not set. Must be made inside the runtime.
    pub(super) fn new() -> io::Result<Timer> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let handle = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // monoio waits for any descriptor; a stream is only its wrapper here.
        let stream = monoio::net::UnixStream::from_std(handle.try_clone()?.into())?;
        Ok(Timer { stream, handle })
    }

    /// Fires once, `after` from now; a time of 0 at once.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let after = after.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        };
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            &self.handle,
            TimerfdTimerFlags::empty(),
            &Itimerspec {
                it_interval: never,
                it_value: value,
            },
        )?;
        Ok(())
    }

    /// Returns when it has fired.
    pub(super) async fn fired(&self) -> io::Result<()> {
        self.stream.readable(false).await?;
        let mut count = [0; 8];
        match rustix::io::read(&self.handle, &mut count) {
            // Set anew between the poll and the read.
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            other => other.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// A one-shot timer.
#[cfg(not(target_os = "linux"))]
pub(super) struct Timer {
    after: std::cell::Cell<Duration>,
}

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(super) fn new() -> io::Result<Timer> {
        Ok(Timer {
            after: std::cell::Cell::new(Duration::from_millis(1)),
        })
    }

    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        self.after.set(after);
        Ok(())
    }

    /// Polls: at most a millisecond late, and never early by more than the pump can see.
    pub(super) async fn fired(&self) -> io::Result<()> {
        monoio::time::sleep(self.after.get().min(Duration::from_millis(1))).await;
        Ok(())
    }
}
