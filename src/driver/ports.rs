//! Local ports for very many connections.
//!
//! In: sockets that are about to connect. Out: the same, each told a small window of ports to choose from. Never: a port of its own
//! choice: which one of the window is free only the kernel knows.
//!
//! Linux gives out every other port of its range first, and looks at all of those in turn once they are taken: with half of the range in
//! use towards one address a connect takes a millisecond rather than 30 microseconds, on the worker's own time. Within a window it looks
//! at [`WINDOW`] ports at most (`IP_LOCAL_PORT_RANGE`, Linux 6.3). Windows go round, so that a port rests as long as it can.
#![expect(unsafe_code, reason = "a socket option that no crate has")]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::Socket;

use super::facts;

/// Ports of one window.
const WINDOW: u16 = 32;

/// `IP_LOCAL_PORT_RANGE` of `linux/in.h`.
const LOCAL_PORT_RANGE: libc::c_int = 51;

/// Which window is next, over all workers.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Tells `socket` the next window. False where the kernel cannot do that, or has hardly any ports: then it takes any.
pub(super) fn narrow(socket: &Socket) -> bool {
    static RANGE: OnceLock<Option<(u16, u16)>> = OnceLock::new();
    let range = RANGE.get_or_init(|| facts::port_range(facts::PROC.as_ref()));
    let Some((low, high)) = *range else {
        return false;
    };
    window(low, high, NEXT.fetch_add(1, Ordering::Relaxed))
        .is_some_and(|window| set(socket, window).is_ok())
}

/// Lets `socket` take any port of the kernel's range.
pub(super) fn widen(socket: &Socket) -> io::Result<()> {
    set(socket, (0, 0))
}

/// The `nth` window of a range, ends included.
fn window(low: u16, high: u16, nth: u32) -> Option<(u16, u16)> {
    let windows = u32::from(high.checked_sub(low)?).div_ceil(u32::from(WINDOW));
    let index = u16::try_from(nth % windows.max(1)).ok()?;
    let first = low + index * WINDOW;
    (windows > 1).then(|| (first, high.min(first.saturating_add(WINDOW - 1))))
}

fn set(socket: &Socket, (low, high): (u16, u16)) -> io::Result<()> {
    let value = u32::from(high) << 16 | u32::from(low);
    let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: the option's value is an unsigned int of 32 bits, which outlives the call, and its length is given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            LOCAL_PORT_RANGE,
            (&raw const value).cast(),
            length,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn windows_go_round_and_cover_the_range() {
        for (low, high) in [
            (32_768, 60_999),
            (1_024, 65_535),
            (40_000, 40_033),
            (1, 100),
        ] {
            let mut seen = std::collections::BTreeSet::new();
            let first = window(low, high, 0).unwrap();
            let mut nth = 0;
            loop {
                let (from, to) = window(low, high, nth).unwrap();
                assert!(
                    from >= low && to <= high && to - from < WINDOW,
                    "{from}..={to}"
                );
                seen.extend(from..=to);
                nth += 1;
                if window(low, high, nth) == Some(first) {
                    break;
                }
            }
            let all = usize::from(high - low) + 1;
            // One port may lie behind the last whole window.
            assert!(seen.len() + 1 >= all, "{low} to {high}: {}", seen.len());
        }
        for (low, high) in [(40_000, 40_000), (40_000, 40_031), (5, 4)] {
            assert_eq!(window(low, high, 3), None, "{low} to {high}");
        }
    }

    #[test]
    fn a_connection_takes_a_port_of_its_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let Some((low, high)) = facts::port_range(facts::PROC.as_ref()) else {
            return;
        };
        let window = window(low, high, 7).unwrap();
        if set(&socket, window).is_err() {
            // Linux before 6.3.
            return;
        }
        socket
            .connect(&listener.local_addr().unwrap().into())
            .unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port();
        assert!((window.0..=window.1).contains(&port), "{port} {window:?}");
    }
}
