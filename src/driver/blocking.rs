//! One connection outside the load, for the readiness probe.
//!
//! In: addresses, and how sockets are made. Out: a stream of bytes that waits for its peer up to a moment. Never: runs on a worker, or
//! beside the load.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::socket::{SocketOptions, Sockets};

/// A connection whose calls wait, all of them together no longer than was said.
#[derive(Debug)]
pub struct Blocking {
    socket: Socket,
    until: Instant,
}

impl Blocking {
    /// Connects to the first of `addresses` that answers; each gets an even share of the time that is left.
    ///
    /// # Errors
    ///
    /// None did; the last one's reason.
    #[expect(
        clippy::disallowed_methods,
        reason = "before the load; nothing is measured here"
    )]
    pub fn connect(
        options: &Arc<SocketOptions>,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> io::Result<Blocking> {
        let until = Instant::now() + limit;
        let mut sockets = Sockets::new(options);
        let mut last = io::Error::from(ErrorKind::NotFound);
        for (at, &address) in addresses.iter().enumerate() {
            let untried = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
            let share = left(until)? / untried;
            let mut tries = sockets.tries(address);
            loop {
                let opened = sockets.open(address, &mut tries);
                let outcome = opened.and_then(|(socket, target)| {
                    socket.connect_timeout(&target, share.max(Duration::from_millis(1)))?;
                    Ok(socket)
                });
                match outcome {
                    Ok(socket) => return Ok(Blocking { socket, until }),
                    Err(error) => last = error,
                }
                if !tries.go_on(&last) {
                    break;
                }
            }
        }
        Err(last)
    }
}

/// Time until `until`; an error when there is none.
#[expect(
    clippy::disallowed_methods,
    reason = "before the load; nothing is measured here"
)]
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// The kernel says "would block" when a time limit of its own is over.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        (&self.socket).read(into).map_err(named)
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        (&self.socket).write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
