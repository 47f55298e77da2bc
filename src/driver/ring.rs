//! The driver on a ring of its own, through the io-uring crate.
//!
//! In: an engine's operations. Out: completions, each stamped while it is copied out of the ring, before the first of their bytes is
//! parsed; receives carry the kernel's own stamp as well. Never: a kernel thread that polls (SQPOLL), a second thread, or memory
//! that the kernel may still use given back.
//!
//! This file is the ring itself: making it, handing operations over, taking completions out. The loop is in `pump.rs`.
#![expect(
    unsafe_code,
    reason = "the kernel is handed pointers, one operation a block"
)]

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use socket2::{SockAddr, Socket};

use crate::clock::{Clock, Tick};

use super::Pause;
use super::buffers::{Buffers, GROUP};
use super::last_waits::LastWaits;
use super::stamping::CONTROL_BYTES;
use super::window::READS_MOST;

mod layout;
mod links;
mod message;
mod operations;
mod pump;
mod waiting;

pub use layout::{Layout, Mode, probe};
pub use pump::run;

use layout::Refusal;
use message::Message;
use operations::{Kind, Memory, Operation, Operations};

/// A ring that refuses to be entered this often in a row is given up.
const REFUSALS_MOST: u32 = 10_000;

/// Length of one wait for operations that are still under way when a ring is closed.
const LAST_WAIT: Duration = Duration::from_millis(10);

/// A worker's ring with its receive buffers. It belongs to the thread that opened it.
pub struct Ring {
    // In this order: the kernel lets go of the rest when the ring is closed.
    ring: IoUring,
    buffers: Buffers,
    operations: Operations,
    /// What a receive asks for: no name, and as much control data as its length says.
    header: Box<libc::msghdr>,
    layout: Layout,
    /// Refused entries in a row.
    refusals: u32,
    overflows: u64,
}

/// How long an entry may wait for a completion.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    For(Duration),
    /// At most `length`: for [`READS_MOST`] completions, or after `window` for one.
    Window { length: Duration, window: Duration },
    /// Until there is one.
    Forever,
}

/// A completion, copied out of the ring.
#[derive(Clone, Copy, Debug)]
struct Completion {
    /// When it was copied.
    tick: Tick,
    /// The key of its operation.
    key: u64,
    /// Bytes, or an error number below 0.
    result: i32,
    /// The operation goes on.
    more: bool,
    /// The buffer that holds what was received.
    buffer: Option<u16>,
}

impl Ring {
    /// Opens a ring on this thread. Its receives have room for the kernel's receive stamp.
    ///
    /// # Errors
    ///
    /// What the kernel refused. Nothing is held then.
    pub fn open(layout: Layout) -> io::Result<Ring> {
        Ring::make(layout).map_err(|(_, error)| error)
    }

    fn make(layout: Layout) -> Result<Ring, Refusal> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(layout.completions).setup_submit_all();
        match layout.mode {
            // The flag lets a spinning loop see without a system call that there is something to be had.
            Mode::Deferred => {
                builder
                    .setup_single_issuer()
                    .setup_defer_taskrun()
                    .setup_taskrun_flag();
            }
            Mode::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            Mode::Plain => {}
        }
        let ring = builder
            .build(layout.submissions)
            .map_err(|error| ("io_uring_setup", error))?;
        let buffers = Buffers::new(layout.buffer_count, layout.buffer_bytes as usize)
            .map_err(|error| ("mmap", error))?;
        // SAFETY: all zeros is a message header without name, vectors and control data.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        header.msg_controllen = CONTROL_BYTES;
        let mut made = Ring {
            ring,
            buffers,
            operations: Operations::default(),
            header,
            layout,
            refusals: 0,
            overflows: 0,
        };
        made.buffers
            .register(&made.ring.submitter())
            .map_err(|error| ("io_uring_register", error))?;
        Ok(made)
    }

    /// Makes a ring, sends a no-op through it, and receives through it. A kernel that makes rings may still refuse to have them
    /// entered, and one that knows the operation may not know its multishot form.
    fn try_out(layout: Layout) -> Result<(), Refusal> {
        let mut ring = Ring::make(layout)?;
        let clock = Clock::new();
        let enter = |error| ("io_uring_enter", error);
        let none = |what| ("io_uring_enter", io::Error::other(what));
        let mut done = Vec::new();
        let nothing = ring.start(opcode::Nop::new().build(), Kind::Nothing, 0, Memory::None);
        nothing.map_err(enter)?;
        ring.enter(Wait::For(Duration::from_secs(1)))
            .map_err(enter)?;
        ring.reap(&clock, &mut done);
        match done.pop() {
            Some(Completion { result: 0, key, .. }) => drop(ring.operations.end(key)),
            Some(failed) => return Err(enter(io::Error::from_raw_os_error(-failed.result))),
            None => return Err(none("the no-op did not complete")),
        }
        let (ours, mut theirs) = UnixStream::pair().map_err(|error| ("socketpair", error))?;
        let ours = Socket::from(OwnedFd::from(ours));
        ring.receive(0, &ours).map_err(enter)?;
        theirs
            .write_all(b"ring")
            .map_err(|error| ("write", error))?;
        ring.enter(Wait::For(Duration::from_secs(1)))
            .map_err(enter)?;
        ring.reap(&clock, &mut done);
        let Some(got) = done.pop() else {
            return Err(none("the multishot receive did not complete"));
        };
        if got.result < 0 {
            let error = io::Error::from_raw_os_error(-got.result);
            return Err(("a multishot receive", error));
        }
        let bytes = got.buffer.filter(|&id| ring.claim(id));
        let message = bytes.and_then(|id| ring.message(id, got.result));
        match message {
            Some(Message { bytes: b"ring", .. }) => Ok(()),
            _ => Err(none("the multishot receive brought other bytes")),
        }
    }

    /// How it was made.
    fn layout(&self) -> Layout {
        self.layout
    }

    /// Connects `socket`, of link `link`, to `address`; the key of the operation.
    fn connect(&mut self, link: u32, socket: &Socket, address: SockAddr) -> io::Result<u64> {
        let address = Box::new(address);
        let fd = Fd(socket.as_raw_fd());
        let entry = opcode::Connect::new(fd, address.as_ptr().cast(), address.len()).build();
        self.start(entry, Kind::Connect, link, Memory::Address(address))
    }

    /// Receives from `socket` into provided buffers, over and over; the key of the operation.
    fn receive(&mut self, link: u32, socket: &Socket) -> io::Result<u64> {
        let fd = Fd(socket.as_raw_fd());
        let entry = opcode::RecvMsgMulti::new(fd, &raw const *self.header, GROUP).build();
        self.start(entry, Kind::Receive, link, Memory::None)
    }

    /// Sends `bytes` from place `from` on, once: the kernel may take fewer; the key of the operation.
    fn send(&mut self, link: u32, socket: &Socket, bytes: Vec<u8>, from: usize) -> io::Result<u64> {
        let rest = &bytes[from..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), rest.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.start(entry, Kind::Send, link, Memory::Bytes(bytes))
    }

    /// Ends the operation under `key`, of link `link`. By its key the kernel finds it at once; by its socket it would look at all there are.
    fn cancel(&mut self, link: u32, key: u64) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(key).build();
        self.start(entry, Kind::Cancel, link, Memory::None)?;
        Ok(())
    }

    /// Queues an operation. It reaches the kernel with the next [`Ring::enter`], or at once when the queue is full. Its key.
    fn start(
        &mut self,
        entry: squeue::Entry,
        kind: Kind,
        link: u32,
        memory: Memory,
    ) -> io::Result<u64> {
        let operation = Operation { kind, link, memory };
        // The heap blocks behind `memory` stay where they are when it moves into the table.
        let key = self.operations.begin(operation);
        let entry = entry.user_data(key);
        loop {
            // SAFETY: what the entry points to is the header, which lives as long as the ring, or memory that the table of
            // operations holds until the last completion has come; dropping the ring waits for that, too. The caller keeps the
            // socket as long.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(key);
            }
            self.enter(Wait::No)?;
        }
    }

    /// Hands over what is queued, lets the kernel make completions, and waits for one as long as `wait` says. A signal, a time-out
    /// and a momentary refusal all just return early.
    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let outcome = match wait {
            Wait::No => {
                let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument is passed, and all queued entries are sound (see `start`).
                unsafe {
                    self.ring
                        .submitter()
                        .enter::<libc::sigset_t>(queued, 0, flags, None)
                }
            }
            Wait::For(length) => {
                let length = Timespec::from(length);
                let arguments = SubmitArgs::new().timespec(&length);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            Wait::Window { length, window } if self.ring.params().is_feature_min_timeout() => {
                let length = Timespec::from(length);
                let window = u32::try_from(window.as_micros()).unwrap_or(u32::MAX);
                let arguments = SubmitArgs::new().timespec(&length).min_wait_usec(window);
                let wanted = READS_MOST as usize;
                self.ring.submitter().submit_with_args(wanted, &arguments)
            }
            // Before Linux 6.12 a window that brings nothing cannot go on as a wait for the first read.
            Wait::Window { window, .. } => {
                let window = Timespec::from(window);
                let arguments = SubmitArgs::new().timespec(&window);
                let wanted = READS_MOST as usize;
                self.ring.submitter().submit_with_args(wanted, &arguments)
            }
            Wait::Forever => self.ring.submit_and_wait(1),
        };
        if self.ring.submission().cq_overflow() {
            self.overflows += 1;
        }
        match outcome.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR), _)) => {
                self.refusals = 0;
                Ok(())
            }
            // The kernel is short of memory, or wants the completions taken out first.
            Err((Some(libc::EAGAIN | libc::EBUSY), _)) if self.refusals < REFUSALS_MOST => {
                self.refusals += 1;
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// There are completions, or work of the kernel's that will make some when the ring is entered. Looks at shared memory only.
    fn has_something(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty() || {
            drop(queue);
            !self.ring.completion().is_empty()
        }
    }

    /// Copies every completion that is ready to `out`, each with the time of its copying. No byte is looked at here.
    fn reap(&mut self, clock: &Clock, out: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            out.push(Completion {
                tick: clock.now(),
                key: entry.user_data(),
                result: entry.result(),
                more: cqueue::more(entry.flags()),
                buffer: cqueue::buffer_select(entry.flags()),
            });
        }
    }

    /// Asks for the operation that a completion is of, and for the first bytes that it brought.
    fn fetch(&self, completion: &Completion) {
        self.operations.fetch(completion.key);
        if let Some(id) = completion.buffer {
            self.buffers.fetch(id, completion.result);
        }
    }

    /// Which link a completion is of.
    fn link_of(&self, completion: &Completion) -> Option<u32> {
        let (_, link) = self.operations.find(completion.key)?;
        Some(link)
    }

    /// The operation that a completion is of, and its memory when it was the last; `None` for one that is over already.
    fn operation(&mut self, completion: &Completion) -> Option<Operation> {
        if !completion.more {
            return self.operations.end(completion.key);
        }
        let (kind, link) = self.operations.find(completion.key)?;
        Some(Operation {
            kind,
            link,
            memory: Memory::None,
        })
    }

    /// Buffer `id` is ours now; false when the kernel did not have it.
    fn claim(&mut self, id: u16) -> bool {
        self.buffers.claim(id)
    }

    /// What a receive of `result` bytes left in buffer `id`, which must have been claimed.
    fn message(&self, id: u16, result: i32) -> Option<Message<'_>> {
        let filled = self.buffers.bytes(id, usize::try_from(result).ok()?);
        Message::parse(filled, self.header.msg_controllen)
    }

    /// Buffer `id` goes back; the kernel may use it after [`Ring::publish`].
    fn give_back(&mut self, id: u16) {
        self.buffers.give_back(id);
    }

    /// Shows the kernel all buffers that were given back.
    fn publish(&mut self) {
        self.buffers.publish();
    }

    /// Entries after which the completion queue had overflowed; the kernel keeps what did not fit.
    fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Completions that the kernel had no memory to keep. Not one may be lost: its operation would never end.
    fn lost(&mut self) -> u32 {
        self.ring.completion().overflow()
    }

    /// Operations that the kernel holds.
    fn busy(&self) -> usize {
        self.operations.count()
    }
}

impl Drop for Ring {
    /// Ends what is under way, so that the kernel uses nothing of ours any more.
    fn drop(&mut self) {
        let clock = Clock::new();
        let mut done = Vec::new();
        // Not all at once: for each that it ends the kernel would look at all others again.
        let keys = self.operations.keys();
        let cancelled = keys.into_iter().try_for_each(|key| self.cancel(0, key));
        let mut waits = LastWaits::new(LAST_WAIT);
        while let Some(wait) = waits.next()
            && cancelled.is_ok()
            && self.busy() > 0
        {
            let before = self.busy();
            if self.enter(Wait::For(wait)).is_err() {
                break;
            }
            self.reap(&clock, &mut done);
            for completion in done.drain(..) {
                drop(self.operation(&completion));
            }
            waits.over(before, self.busy());
        }
        if self.busy() > 0 {
            // The kernel did not let go: a leak is better than memory that it may still write.
            std::mem::forget(std::mem::take(&mut self.operations));
            if let Ok(spare) = Buffers::new(1, 1) {
                std::mem::forget(std::mem::replace(&mut self.buffers, spare));
            }
        }
    }
}
