//! The only room that touches the kernel.
//!
//! In: [`Op`]s from an engine. Out: completions, each stamped before anything is parsed.
//! Never: knows HTTP, TLS, a schedule or a metric.

use std::net::SocketAddr;

use crate::clock::Tick;

mod blocking;
#[cfg(target_os = "linux")]
mod buffers;
mod choice;
mod descriptors;
mod facts;
mod fetch;
mod last_waits;
mod limits;
mod pace;
#[cfg(target_os = "linux")]
mod ports;
pub mod priority;
mod probe;
mod socket;
#[cfg(target_os = "linux")]
mod stamping;
mod waiting;
mod window;

pub mod portable;
#[cfg(target_os = "linux")]
pub mod ring;
pub mod simulated;

pub use blocking::Blocking;
pub use choice::{Choice, Driver, Ended, RingTally, StampSource};
pub use descriptors::{TooFew, make_room};
pub use facts::{Facts, Reuse, Taken, Way};
pub use fetch::{fetch, fetch_front};
pub use limits::{Closing, Destination, Finding, Needs, judge};
pub use pace::TIMER;
pub use probe::{Backend, probe};
pub use socket::{GivenBuffers, RefusedOption, SocketOptions};
pub use waiting::{WaitMode, Waiting, Window};

/// A connection of one engine. The generation tells completions of a closed connection from those of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// Slot in the engine's table.
    pub index: u32,
    /// Grows each time the slot is used again.
    pub generation: u32,
}

/// What an engine wants done.
#[derive(Debug)]
pub enum Op {
    /// Open a TCP connection; answered by `on_connected` or `on_closed`.
    Connect {
        /// Its id.
        conn: ConnId,
        /// Where to.
        address: SocketAddr,
    },
    /// Send all of `bytes`, in as many writes as it takes; answered by `on_sent`, with the buffer given back.
    Send {
        /// On which connection.
        conn: ConnId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Close now; nothing more is reported of this connection except buffers given back.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Nothing to do before this tick; `Tick::NEVER` waits for completions only.
    Wait {
        /// Until when.
        until: Tick,
        /// A send is due then, or a cut on purpose: being late makes it late.
        send_due: bool,
        /// A request is on its way out: how soon a completion is seen is part of that request's time.
        sending: bool,
    },
    /// All phases are over; the driver may stop.
    Finished,
}

/// When a read completed, before it was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The counter when the completion was seen.
    pub tick: Tick,
    /// When the kernel received the newest segment; [`Tick::NEVER`] where not asked for.
    pub kernel: Tick,
}

impl Stamp {
    /// When the bytes came: the kernel's stamp where there is one, else the driver's.
    #[must_use]
    pub fn arrival(self) -> Tick {
        if self.kernel == Tick::NEVER {
            self.tick
        } else {
            self.kernel
        }
    }
}

/// How a [`Op::Send`] went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Just before the first byte was handed to the kernel.
    pub first: Tick,
    /// Just after the last byte was, or when it failed.
    pub last: Tick,
    /// Writes that took bytes.
    pub writes: u32,
    /// Why not all bytes were taken.
    pub error: Option<CloseReason>,
}

/// So many completions are looked ahead at together: what they need fits into the smallest cache.
#[cfg(target_os = "linux")]
const AHEAD_MOST: usize = 16;

/// By default the kernel may be 50 us late with a time-out of this thread, to save wake-ups.
fn wake_on_time() {
    #[cfg(target_os = "linux")]
    if let Some(least) = std::num::NonZeroU64::new(1) {
        // Failing that, it stays so; no run is worse for it than without.
        let _ = rustix::thread::set_current_timer_slack(Some(least));
    }
}

/// What an engine waits for: [`Op::Wait`] as drivers carry it about.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Tick,
    send_due: bool,
    sending: bool,
}

/// Why a connection ended or could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its side in order.
    Eof,
    /// The peer reset it, or the pipe broke.
    Reset,
    /// Connecting was refused.
    Refused,
    /// Connecting failed otherwise (unreachable, timed out in the kernel).
    Unreachable,
    /// No local port or descriptor was left.
    LocalExhausted,
    /// Another error.
    Io,
}

/// What an error of the system means for a connection.
fn reason_of(error: &std::io::Error) -> CloseReason {
    use std::io::ErrorKind;

    use rustix::io::Errno;
    let exhausted = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::ADDRNOTAVAIL,
        Errno::NOBUFS,
        Errno::NOMEM,
    ];
    match error.kind() {
        ErrorKind::ConnectionRefused => CloseReason::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            CloseReason::Reset
        }
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            CloseReason::Unreachable
        }
        _ if Errno::from_io_error(error).is_some_and(|e| exhausted.contains(&e)) => {
            CloseReason::LocalExhausted
        }
        _ => CloseReason::Io,
    }
}
