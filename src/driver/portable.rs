//! The driver on monoio: io_uring or epoll on Linux, kqueue on macOS.
//!
//! In: an engine's operations. Out: completions. All sockets that are ready are read and stamped, one after the other, before the
//! first of their bytes is parsed. Never: parses, or gives the engine a stamp taken after parsing.
//!
//! A task for each connection waits until its socket is readable, reads once into the worker's arena, takes the stamp and
//! queues a completion. monoio polls its main future only when no task is ready: that future, the pump, hands the queue to the
//! engine and carries out what it wants.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use monoio::net::TcpStream;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::clock::{Clock, Tick};
use crate::engine::Engine;

use super::pace::Timer;
use super::probe::{Backend, RING_ENTRIES};
use super::{CloseReason, ConnId, Op, Sent, Stamp, reason_of};

/// Most bytes that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Bytes read and not yet parsed; a task that finds it full waits until the pump has emptied it.
const ARENA_BYTES: usize = 4 << 20;

/// Runs `engine` to its end on this thread.
pub fn run(engine: Engine, clock: &Clock, backend: &Backend) -> io::Result<Engine> {
    match backend {
        #[cfg(target_os = "linux")]
        Backend::IoUring => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
                .with_entries(RING_ENTRIES)
                .enable_timer()
                .build()?;
            runtime.block_on(pump(engine, clock.clone()))
        }
        #[cfg(not(target_os = "linux"))]
        Backend::IoUring => Err(io::Error::from(ErrorKind::Unsupported)),
        Backend::Readiness { .. } => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
                .enable_timer()
                .build()?;
            runtime.block_on(pump(engine, clock.clone()))
        }
    }
}

/// What the tasks of one worker share. All on one thread.
struct Shared {
    clock: Clock,
    queue: RefCell<Vec<Completion>>,
    arena: RefCell<Arena>,
    waker: RefCell<Option<Waker>>,
    /// Tasks that found the arena full.
    waiting: RefCell<Vec<Waker>>,
    /// Sockets by connection index; the generation tells whose.
    sockets: RefCell<Vec<Option<Held>>>,
    timer_fired: Cell<bool>,
}

/// A socket, and whose it is.
type Held = (ConnId, Rc<TcpStream>);

struct Arena {
    bytes: Vec<u8>,
    used: usize,
}

struct Completion {
    conn: ConnId,
    what: What,
}

enum What {
    Connected {
        local_port: u16,
        started: Tick,
        done: Tick,
    },
    Received {
        begin: usize,
        end: usize,
        stamp: Stamp,
    },
    Sent {
        bytes: Vec<u8>,
        sent: Sent,
    },
    Closed {
        reason: CloseReason,
        tick: Tick,
    },
}

impl Shared {
    fn push(&self, conn: ConnId, what: What) {
        self.queue.borrow_mut().push(Completion { conn, what });
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn socket(&self, conn: ConnId) -> Option<Rc<TcpStream>> {
        let sockets = self.sockets.borrow();
        let (id, stream) = sockets.get(conn.index as usize)?.as_ref()?;
        (*id == conn).then(|| Rc::clone(stream))
    }

    fn is_current(&self, conn: ConnId) -> bool {
        let sockets = self.sockets.borrow();
        sockets
            .get(conn.index as usize)
            .and_then(Option::as_ref)
            .is_some_and(|(id, _)| *id == conn)
    }

    fn store(&self, conn: ConnId, stream: Rc<TcpStream>) {
        let mut sockets = self.sockets.borrow_mut();
        let index = conn.index as usize;
        if sockets.len() <= index {
            sockets.resize_with(index + 1, || None);
        }
        sockets[index] = Some((conn, stream));
    }
}

async fn pump(mut engine: Engine, clock: Clock) -> io::Result<Engine> {
    let shared = Rc::new(Shared {
        clock,
        queue: RefCell::new(Vec::with_capacity(1_024)),
        arena: RefCell::new(Arena {
            bytes: vec![0; ARENA_BYTES],
            used: 0,
        }),
        waker: RefCell::new(None),
        waiting: RefCell::new(Vec::new()),
        sockets: RefCell::new(Vec::new()),
        timer_fired: Cell::new(false),
    });
    let timer = Rc::new(Timer::new()?);
    monoio::spawn(watch(Rc::clone(&shared), Rc::clone(&timer)));
    let mut spare = Vec::with_capacity(1_024);
    let mut armed = Tick::NEVER;
    std::future::poll_fn(|context: &mut Context<'_>| {
        if shared.waker.borrow().is_none() {
            *shared.waker.borrow_mut() = Some(context.waker().clone());
        }
        if shared.timer_fired.take() {
            armed = Tick::NEVER;
        }
        loop {
            deliver(&shared, &mut engine, &mut spare);
            match carry_out(&shared, &mut engine) {
                None => return Poll::Ready(Ok(())),
                Some(until) => {
                    let now = shared.clock.now();
                    if until <= now || !shared.queue.borrow().is_empty() {
                        continue;
                    }
                    if until != armed {
                        let after = Duration::from_nanos(engine.rate().nanos(until.since(now)).0);
                        if let Err(error) = timer.set(after) {
                            return Poll::Ready(Err(error));
                        }
                        armed = until;
                    }
                    return Poll::Pending;
                }
            }
        }
    })
    .await?;
    Ok(engine)
}

async fn watch(shared: Rc<Shared>, timer: Rc<Timer>) {
    while timer.fired().await.is_ok() {
        shared.timer_fired.set(true);
        shared.wake();
    }
}

/// Hands what completed to the engine. Everything in the queue was stamped before this.
fn deliver(shared: &Shared, engine: &mut Engine, spare: &mut Vec<Completion>) {
    std::mem::swap(&mut *shared.queue.borrow_mut(), spare);
    let mut arena = shared.arena.borrow_mut();
    for Completion { conn, what } in spare.drain(..) {
        match what {
            What::Connected {
                local_port,
                started,
                done,
            } => engine.on_connected(conn, local_port, started, done),
            What::Received { begin, end, stamp } => {
                engine.on_received(conn, &arena.bytes[begin..end], stamp);
            }
            What::Sent { bytes, sent } => engine.on_sent(conn, bytes, sent),
            What::Closed { reason, tick } => engine.on_closed(conn, reason, tick),
        }
    }
    arena.used = 0;
    for waker in shared.waiting.borrow_mut().drain(..) {
        waker.wake();
    }
}

/// Does what the engine wants; `None` when it has finished, else when it wants to be asked again.
fn carry_out(shared: &Rc<Shared>, engine: &mut Engine) -> Option<Tick> {
    loop {
        match engine.next(shared.clock.now()) {
            Op::Connect { conn, address } => connect(shared, conn, address),
            Op::Send { conn, bytes } => {
                if let Some((bytes, sent)) = send(shared, conn, bytes) {
                    engine.on_sent(conn, bytes, sent);
                }
            }
            Op::Close { conn } => close(shared, conn),
            Op::Wait { until, .. } => return Some(until),
            Op::Finished => return None,
        }
    }
}

fn connect(shared: &Rc<Shared>, conn: ConnId, address: SocketAddr) {
    let started = shared.clock.now();
    match begin_connect(address) {
        Ok(stream) => {
            let stream = Rc::new(stream);
            shared.store(conn, Rc::clone(&stream));
            monoio::spawn(serve(Rc::clone(shared), conn, stream, started));
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

fn begin_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    TcpStream::from_std(socket.into())
}

fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
        || error.raw_os_error() == Some(rustix::io::Errno::INTR.raw_os_error())
}

/// One connection's life: connect, then read after read.
async fn serve(shared: Rc<Shared>, conn: ConnId, stream: Rc<TcpStream>, started: Tick) {
    let ready = stream.writable(false).await;
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
    while !ended {
        if stream.readable(false).await.is_err() || !shared.is_current(conn) {
            return;
        }
        match receive(&shared, &stream) {
            Received::Done(what) => {
                ended = matches!(what, What::Closed { .. });
                shared.push(conn, what);
            }
            Received::Nothing => {}
            Received::Full => arena_emptied(&shared).await,
        }
    }
}

/// Returns after the pump's next turn. Waiting for the socket instead would return at once, with data there to be read, and
/// the task would never let the pump have its turn.
async fn arena_emptied(shared: &Shared) {
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
    let end = (begin + READ_BYTES).min(arena.bytes.len());
    if begin == end {
        return Received::Full;
    }
    let descriptor = descriptor_of(stream);
    let socket = SockRef::from(&descriptor);
    let outcome = (&*socket).read(&mut arena.bytes[begin..end]);
    let tick = shared.clock.now();
    match outcome {
        Ok(0) => Received::Done(What::Closed {
            reason: CloseReason::Eof,
            tick,
        }),
        Ok(n) => {
            arena.used = begin + n;
            Received::Done(What::Received {
                begin,
                end: begin + n,
                stamp: Stamp {
                    tick,
                    kernel: Tick::NEVER,
                },
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

/// Sends at once as much as the kernel takes; the rest waits in a task of its own.
fn send(shared: &Rc<Shared>, conn: ConnId, bytes: Vec<u8>) -> Option<(Vec<u8>, Sent)> {
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
    true
}

/// Shuts the socket down, which wakes its task; the descriptor goes with the task.
fn close(shared: &Shared, conn: ConnId) {
    let mut sockets = shared.sockets.borrow_mut();
    let Some(slot) = sockets.get_mut(conn.index as usize) else {
        return;
    };
    if let Some((_, stream)) = slot.take_if(|(id, _)| *id == conn) {
        // An error means that the peer was first.
        let _ = SockRef::from(&descriptor_of(&stream)).shutdown(std::net::Shutdown::Both);
    }
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
