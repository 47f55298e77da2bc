//! The sockets of the portable driver.
//!
//! In: what the engine wants of a connection. Out: completions in the worker's queue. Never: a read without a stamp taken right after
//! it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::net::TcpStream;
use socket2::{SockAddr, SockRef};

use crate::clock::Tick;
use crate::driver::socket::{Tries, is_out_of_ports};
use crate::driver::{CloseReason, ConnId, Sent, reason_of};
#[cfg(target_os = "linux")]
use crate::driver::{ports, stamping};

use super::{READ_BYTES, Shared, What};

/// A read takes at most this part of the room that is left.
const ROOM_PARTS: usize = 32;

/// Between two tries to connect to a socket of the file system whose queue is full.
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

pub(super) fn connect(shared: &Rc<Shared>, conn: ConnId, address: SocketAddr) {
    let started = shared.clock.now();
    match begin_connect(shared, address) {
        Ok((stream, full)) => {
            let stream = Rc::new(stream);
            shared.store(conn, Rc::clone(&stream));
            monoio::spawn(serve(Rc::clone(shared), conn, stream, started, full));
        }
        Err(error) => shared.push(
            conn,
            What::Closed {
                reason: reason_of(&error),
                tick: shared.clock.now(),
            },
        ),
    }
}

/// A socket on its way, and where to connect it again if the queue of a listener in the file system was full: such a connect is not
/// in progress then, it has not begun.
fn begin_connect(
    shared: &Shared,
    address: SocketAddr,
) -> io::Result<(TcpStream, Option<SockAddr>)> {
    let mut tries = shared.opener.borrow_mut().tries(address);
    loop {
        match connect_from_next(shared, address, &mut tries) {
            Err(error) if tries.go_on(&error) => {}
            outcome => return outcome,
        }
    }
}

/// The same, from the next local address.
fn connect_from_next(
    shared: &Shared,
    address: SocketAddr,
    tries: &mut Tries,
) -> io::Result<(TcpStream, Option<SockAddr>)> {
    let opener = shared.opener.borrow();
    let (socket, address) = opener.open(address, tries)?;
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if shared.wishes.stamps {
        stamping::ask(&socket)?;
    }
    #[cfg(target_os = "linux")]
    let outcome = match (ports::narrow(&socket), socket.connect(&address)) {
        // All ports of its window are taken, perhaps none elsewhere.
        (true, Err(error)) if is_out_of_ports(&error) => {
            ports::widen(&socket).and_then(|()| socket.connect(&address))
        }
        (_, outcome) => outcome,
    };
    #[cfg(not(target_os = "linux"))]
    let outcome = socket.connect(&address);
    let mut full = None;
    match outcome {
        Ok(()) => {}
        Err(error) if opener.is_local() && error.kind() == ErrorKind::WouldBlock => {
            full = Some(address);
        }
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    Ok((TcpStream::from_std(socket.into())?, full))
}

/// Tries until the listener's queue has room, or the engine has given up.
async fn queue_up(
    shared: &Shared,
    conn: ConnId,
    stream: &TcpStream,
    address: &SockAddr,
) -> io::Result<()> {
    while shared.is_current(conn) {
        monoio::time::sleep(BETWEEN_TRIES).await;
        match SockRef::from(&descriptor_of(stream)).connect(address) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
    }
    Ok(())
}

fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
        || error.raw_os_error() == Some(rustix::io::Errno::INTR.raw_os_error())
}

/// One connection's life: connect, then read after read.
async fn serve(
    shared: Rc<Shared>,
    conn: ConnId,
    stream: Rc<TcpStream>,
    started: Tick,
    full: Option<SockAddr>,
) {
    let mut ready = Ok(());
    if let Some(address) = full {
        ready = queue_up(&shared, conn, &stream, &address).await;
    }
    if ready.is_ok() {
        ready = stream.writable(false).await;
    }
    let done = shared.clock.now();
    if !shared.is_current(conn) {
        return;
    }
    let failure = ready.err().or_else(|| {
        SockRef::from(&descriptor_of(&stream))
            .take_error()
            .unwrap_or_else(Some)
    });
    let what = match failure {
        Some(error) => What::Closed {
            reason: reason_of(&error),
            tick: done,
        },
        None => What::Connected {
            local_port: local_port(&stream),
            started,
            done,
        },
    };
    let mut ended = matches!(what, What::Closed { .. });
    shared.push(conn, what);
    let mut share = Share::default();
    while !ended {
        if stream.readable(false).await.is_err() || !shared.is_current(conn) {
            return;
        }
        match receive(&shared, &stream) {
            Received::Done(what) => {
                ended = matches!(what, What::Closed { .. });
                let bytes = what.read_bytes();
                shared.push(conn, what);
                share.note(&shared, bytes);
                while !ended && share.is_used_up(&shared) {
                    woken_by_pump(&shared).await;
                }
            }
            Received::Nothing => {}
            Received::Full => woken_by_pump(&shared).await,
        }
    }
}

/// What a connection has read for the batch that the pump will take next. A stream that brings more than it is read of must not read on
/// and on while others wait for their stamps.
#[derive(Default)]
struct Share {
    batch: u64,
    bytes: usize,
}

impl Share {
    fn note(&mut self, shared: &Shared, bytes: usize) {
        let batch = shared.batches.get();
        if batch != self.batch {
            *self = Share { batch, bytes: 0 };
        }
        self.bytes += bytes;
    }

    fn is_used_up(&self, shared: &Shared) -> bool {
        self.bytes >= READ_BYTES && self.batch == shared.batches.get()
    }
}

impl What {
    fn read_bytes(&self) -> usize {
        match self {
            What::Received { begin, end, .. } => end - begin,
            _ => 0,
        }
    }
}

/// Returns after the pump's next turn. Waiting for the socket instead would return at once, with data there to be read, and
/// the task would never let the pump have its turn.
async fn woken_by_pump(shared: &Shared) {
    let mut waited = false;
    std::future::poll_fn(|context: &mut Context<'_>| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        shared.waiting.borrow_mut().push(context.waker().clone());
        shared.wake();
        Poll::Pending
    })
    .await;
}

enum Received {
    Done(What),
    Nothing,
    /// The arena has no room.
    Full,
}

/// One read, stamped.
fn receive(shared: &Shared, stream: &TcpStream) -> Received {
    let mut arena = shared.arena.borrow_mut();
    let begin = arena.used;
    let free = arena.bytes.len() - begin;
    // No read takes more than a part of what is free, so that a few large ones leave room for the stamps of many small ones.
    let end = begin + READ_BYTES.min(free.div_ceil(ROOM_PARTS));
    if begin == end {
        return Received::Full;
    }
    let outcome = read(shared, stream, &mut arena.bytes[begin..end]);
    let tick = shared.clock.now();
    match outcome {
        Ok((0, _)) => Received::Done(What::Closed {
            reason: CloseReason::Eof,
            tick,
        }),
        Ok((n, wall_ns)) => {
            arena.used = begin + n;
            Received::Done(What::Received {
                begin,
                end: begin + n,
                tick,
                wall_ns,
            })
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Received::Nothing
        }
        Err(error) => Received::Done(What::Closed {
            reason: reason_of(&error),
            tick,
        }),
    }
}

/// How many bytes came, and the kernel's stamp of the newest, where it was asked for.
fn read(shared: &Shared, stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let descriptor = descriptor_of(stream);
    #[cfg(target_os = "linux")]
    if shared.wishes.stamps {
        return stamping::receive(descriptor, into);
    }
    let socket = SockRef::from(&descriptor);
    (&*socket).read(into).map(|count| (count, None))
}

/// Sends at once as much as the kernel takes; the rest waits in a task of its own.
pub(super) fn send(shared: &Rc<Shared>, conn: ConnId, bytes: Vec<u8>) -> Option<(Vec<u8>, Sent)> {
    let first = shared.clock.now();
    let mut sent = Sent {
        first,
        last: first,
        writes: 0,
        error: None,
    };
    let Some(stream) = shared.socket(conn) else {
        sent.error = Some(CloseReason::Io);
        return Some((bytes, sent));
    };
    let mut from = 0;
    if write_some(shared, &stream, &bytes, &mut from, &mut sent) {
        return Some((bytes, sent));
    }
    monoio::spawn(send_rest(
        Rc::clone(shared),
        conn,
        stream,
        bytes,
        from,
        sent,
    ));
    None
}

async fn send_rest(
    shared: Rc<Shared>,
    conn: ConnId,
    stream: Rc<TcpStream>,
    bytes: Vec<u8>,
    mut from: usize,
    mut sent: Sent,
) {
    loop {
        let ready = stream.writable(false).await;
        if let Err(error) = ready {
            sent.error = Some(reason_of(&error));
            break;
        }
        if !shared.is_current(conn) || write_some(&shared, &stream, &bytes, &mut from, &mut sent) {
            break;
        }
    }
    shared.push(conn, What::Sent { bytes, sent });
}

/// Writes until all is written, the kernel takes no more (false), or it fails.
fn write_some(
    shared: &Shared,
    stream: &TcpStream,
    bytes: &[u8],
    from: &mut usize,
    sent: &mut Sent,
) -> bool {
    let descriptor = descriptor_of(stream);
    let socket = SockRef::from(&descriptor);
    while *from < bytes.len() {
        match (&*socket).write(&bytes[*from..]) {
            Ok(n) => {
                *from += n;
                sent.writes += 1;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => {
                sent.error = Some(reason_of(&error));
                break;
            }
        }
    }
    sent.last = shared.clock.now();
    shared.opener.borrow().acknowledge_quickly(&socket);
    true
}

/// Shuts the socket down, which wakes its task; the descriptor goes with the task.
pub(super) fn close(shared: &Shared, conn: ConnId) {
    let mut sockets = shared.sockets.borrow_mut();
    let Some(slot) = sockets.get_mut(conn.index as usize) else {
        return;
    };
    if let Some((_, stream)) = slot.take_if(|(id, _)| *id == conn) {
        shut(&stream);
    }
}

/// The same for all sockets.
pub(super) fn close_all(shared: &Shared) {
    for (_, stream) in shared.sockets.take().into_iter().flatten() {
        shut(&stream);
    }
}

fn shut(stream: &TcpStream) {
    // An error means that the peer was first.
    let _ = SockRef::from(&descriptor_of(stream)).shutdown(std::net::Shutdown::Both);
}

/// The descriptor below monoio's stream, for calls that monoio has none of.
#[expect(unsafe_code, reason = "monoio's stream does not implement AsFd")]
fn descriptor_of(stream: &TcpStream) -> BorrowedFd<'_> {
    // SAFETY: the stream owns the descriptor and outlives the reference.
    unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) }
}

fn local_port(stream: &TcpStream) -> u16 {
    let address = SockRef::from(&descriptor_of(stream)).local_addr().ok();
    address.and_then(|a| a.as_socket()).map_or(0, |a| a.port())
}
