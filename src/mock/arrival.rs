//! When the kernel received a request, as against when this program came round to reading it.
//!
//! In: sockets, the wall clock and the monotonic one. Out: bytes, with the moment of `CLOCK_MONOTONIC` at which the kernel had received
//! the newest of them. Never: a stamp of before a step of the wall clock, or one that lies after the read.
#![expect(unsafe_code, reason = "recvmsg and its control data")]

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::time::{ClockId, clock_gettime};

use super::serve::monotonic;
use crate::clock::{Rate, Tick, WallBracket, WallMap};

/// Room for control data; one receive stamp takes 32.
const CONTROL_BYTES: usize = 64;

/// Control data, aligned as the kernel writes it.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// How many; 0 when the peer sends no more.
    pub(super) count: usize,
    /// When the kernel had received the newest; `None` where it does not tell.
    pub(super) stamp: Option<u64>,
    /// When they had been read.
    pub(super) read: u64,
}

/// Reads, and maps the kernel's stamps (of the wall clock) to the monotonic clock, here with nanoseconds as ticks.
#[derive(Debug)]
pub(super) struct Arrivals {
    map: WallMap,
}

/// Asks the kernel to stamp what the connections that `listener` accepts from here on will receive: they inherit it. The kernel
/// begins some milliseconds later; until then, and where it refuses, there are no stamps.
pub(super) fn ask(listener: &TcpListener) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the option's value is an int, which outlives the call, and its length is given.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            length,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Arrivals {
    /// Measures the offset between the two clocks.
    pub(super) fn new() -> Arrivals {
        Arrivals {
            map: WallMap::new(Rate::NANOS, bracket()),
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<Arrival> {
        let (count, wall) = receive(socket, into)?;
        let read = monotonic();
        Ok(Arrival {
            count,
            stamp: wall.and_then(|wall| self.moment(wall, read)),
            read,
        })
    }

    fn moment(&mut self, wall_ns: u64, read: u64) -> Option<u64> {
        let steady = self.map.look(Tick(read), bracket);
        let stamp = steady.then(|| self.map.stamp(wall_ns, Tick(read)))?;
        (stamp != Tick::NEVER).then_some(stamp.0)
    }
}

/// The wall clock between two readings of the monotonic one.
fn bracket() -> WallBracket {
    let before = Tick(monotonic());
    let wall = clock_gettime(ClockId::Realtime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    WallBracket {
        before,
        wall_ns: part(wall.tv_sec) * 1_000_000_000 + part(wall.tv_nsec),
        after: Tick(monotonic()),
    }
}

/// Reads into `into`: how many bytes, and the kernel's stamp of the newest in nanoseconds of the wall clock.
fn receive(socket: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: all zeros is a message header without name, vectors and control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // The field's type differs between C libraries.
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the header names one vector over `into` and the control buffer, all alive and not otherwise used during the call.
    let outcome = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let count = usize::try_from(outcome).map_err(|_| io::Error::last_os_error())?;
    let filled = (header.msg_controllen as usize).min(CONTROL_BYTES);
    Ok((count, stamp(&control.0[..filled])))
}

/// The receive stamp among control messages: each a length (its own 16 bytes in it), level and kind, then its content, rounded up to 8.
fn stamp(control: &[u8]) -> Option<u64> {
    let long = |at: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(
            control.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    let word = |at: usize| -> Option<i32> {
        Some(i32::from_ne_bytes(
            control.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let mut at = 0;
    loop {
        let length = usize::try_from(long(at)?).ok()?;
        if (word(at + 8)?, word(at + 12)?) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            return long(at + 16)?
                .checked_mul(1_000_000_000)?
                .checked_add(long(at + 24)?);
        }
        // A length below that of its own head would go round for ever.
        at = at.checked_add(length.max(16).checked_next_multiple_of(8)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn message(level: i32, kind: i32, content: &[u64]) -> Vec<u8> {
        let length = 16 + 8 * content.len() as u64;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content.iter().flat_map(|one| one.to_ne_bytes()));
        bytes
    }

    #[test]
    fn the_stamp_is_found_among_other_messages() {
        let stamped = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[3, 7]);
        let other = message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &[1]);
        assert_eq!(stamp(&stamped), Some(3_000_000_007));
        assert_eq!(stamp(&[&other[..], &stamped].concat()), Some(3_000_000_007));
        assert_eq!(stamp(&other), None);
        assert_eq!(stamp(&stamped[..24]), None, "cut short");
        assert_eq!(stamp(&[]), None);
        assert_eq!(stamp(&[0; CONTROL_BYTES]), None, "a length of nothing");
        assert_eq!(stamp(&[0xff; CONTROL_BYTES]), None);
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "bytes wait unread, and the kernel begins to stamp after a while"
    )]
    fn bytes_that_waited_have_the_time_of_their_arrival() {
        const WAIT: Duration = Duration::from_millis(20);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        ask(&listener).unwrap();
        let mut arrivals = Arrivals::new();
        let mut bytes = [0; 16];
        for _ in 0..100 {
            let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let ours = listener.accept().unwrap().0;
            let before = monotonic();
            theirs.write_all(b"one").unwrap();
            let after = monotonic();
            std::thread::sleep(WAIT);
            let arrival = arrivals.read(&ours, &mut bytes).unwrap();
            assert_eq!(&bytes[..arrival.count], b"one");
            // Loopback delivers within the sender's call; the mapping is off by up to a bracket, some microseconds on a loaded machine.
            if let Some(stamp) = arrival.stamp {
                let allowed = arrivals.map.error().0 + 1_000;
                assert!(
                    stamp + allowed >= before && stamp <= after + allowed,
                    "{before} {stamp} {after}"
                );
                assert!(stamp + 15_000_000 < arrival.read, "{arrival:?}");
                return;
            }
        }
        panic!("the kernel gave no stamp in 2 s");
    }
}
