//! The kernel's receive stamps, as the socket interface gives them.
//!
//! In: sockets. Out: bytes, with the wall-clock time at which the kernel received the newest of them. Never: a stamp of another read.
#![expect(unsafe_code, reason = "recvmsg and its control data")]

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{SockRef, Socket};

/// Room for control data: one receive stamp takes 32.
pub(super) const CONTROL_BYTES: usize = 64;

/// `struct cmsghdr` on 64-bit Linux: length (with this header), level, type.
const CONTROL_HEADER_BYTES: usize = 16;

/// A byte is sent this often to see whether the kernel stamps yet.
const TRIES: u32 = 100;

/// Between two of those bytes.
const STEP: Duration = Duration::from_millis(2);

/// Control data, aligned as the kernel writes it.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Asks the kernel to stamp what `socket` receives.
pub(super) fn ask(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the option's value is an int, which outlives the call, and its length is given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
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

/// Reads into `into`: how many bytes, and the kernel's stamp of the newest in nanoseconds of the wall clock, if it gave one.
pub(super) fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
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
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the header names one vector over `into` and the control buffer, all alive and not otherwise used during the call.
    let outcome = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    match usize::try_from(outcome) {
        Ok(count) => {
            let filled = header.msg_controllen.min(CONTROL_BYTES);
            Ok((count, stamp(&control.0[..filled])))
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Makes the kernel stamp, and returns when it does, or after [`TRIES`]. It begins some milliseconds after the first socket has
/// asked for it, and stops when the last such socket is gone; so the one that is returned must be kept.
pub(super) fn begin() -> io::Result<Socket> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut theirs = TcpStream::connect(listener.local_addr()?)?;
    let ours = Socket::from(listener.accept()?.0);
    ask(&ours)?;
    SockRef::from(&ours).set_read_timeout(Some(STEP))?;
    for _ in 0..TRIES {
        theirs.write_all(b"?")?;
        let descriptor = std::os::fd::AsFd::as_fd(&ours);
        let mut bytes = [0; 16];
        match receive(descriptor, &mut bytes) {
            Ok((_, Some(_))) => break,
            #[expect(clippy::disallowed_methods, reason = "before any load")]
            Ok((_, None)) => std::thread::sleep(STEP),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ours)
}

/// Looks for the receive stamp among control messages.
pub(super) fn stamp(mut control: &[u8]) -> Option<u64> {
    while control.len() >= CONTROL_HEADER_BYTES {
        let length = usize::try_from(long(control, 0)?).ok()?;
        let message = control.get(CONTROL_HEADER_BYTES..length)?;
        let level = word(control, 8)?.cast_signed();
        let kind = word(control, 12)?.cast_signed();
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            let seconds = u64::try_from(long(message, 0)?).ok()?;
            let nanos = u64::try_from(long(message, 8)?).ok()?;
            return seconds.checked_mul(1_000_000_000)?.checked_add(nanos);
        }
        control = control.get(length.next_multiple_of(size_of::<usize>())..)?;
    }
    None
}

/// The 32-bit number at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    let long = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(i64::from_ne_bytes(long))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::SystemTime;

    #[test]
    fn the_newest_segment_s_stamp_comes_with_the_bytes() {
        let _stamping = begin().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = Socket::from(listener.accept().unwrap().0);
        ask(&ours).unwrap();
        let since_epoch = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            u64::try_from(since.as_nanos()).unwrap()
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the kernel stamps in wall-clock time"
        )]
        let now = || since_epoch(SystemTime::now());
        let before = now();
        theirs.write_all(b"one").unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "two segments, told apart by time"
        )]
        std::thread::sleep(Duration::from_millis(3));
        let between = now();
        theirs.write_all(b"two").unwrap();
        let mut bytes = [0; 16];
        let (mut count, mut stamps) = (0, Vec::new());
        while count < 6 {
            let (more, stamp) = receive(ours.as_fd(), &mut bytes[count..]).unwrap();
            count += more;
            stamps.push(stamp.expect("the kernel stamps by now"));
        }
        assert_eq!(&bytes[..6], b"onetwo");
        let last = *stamps.last().unwrap();
        assert!(
            before < between && (between..=now()).contains(&last),
            "{stamps:?}"
        );
    }
}
