//! The server's event loop: one thread, one epoll, one absolute timer.
//!
//! In: accepted sockets and a stop flag. Out: replies written at their due times. Never: sleeps by relative times, so that no
//! lateness adds up; writes an event before it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::arrival::{Arrival, Arrivals};
use super::connection::{Connection, Moment, Shared};
use super::log::{Entry, Log};
use crate::config::Pace;

/// A timer is armed this much early and the rest is polled, which hides the wake-up's cost.
const SPIN_NS: u64 = 45_000;
/// Unwritten bytes above which a stream waits for its reader, as a real server does.
const BACKLOG_BYTES: usize = 256 * 1024;
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// Events written before the sockets are looked at again: a request must not wait long for its stamp.
const EVENTS_AT_ONCE: usize = 16;
/// Readiness reports taken at once.
const REPORTS: usize = 64;

const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const LISTENER: u64 = u64::MAX - 2;

/// How others reach a thread.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    pub(super) sockets: Sender<(TcpStream, u64)>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// Makes the thread look at its sockets and the stop flag.
    pub(super) fn wake(&self) {
        // A full counter wakes too, so a refused write is no loss.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// What one thread needs to begin.
pub(super) struct Start {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) sockets: Receiver<(TcpStream, u64)>,
    pub(super) wake: Arc<OwnedFd>,
    /// With the thread that accepts: the listener and everybody's mailbox.
    pub(super) accept: Option<(TcpListener, Vec<Mailbox>)>,
    pub(super) log: Option<File>,
}

/// A wake-up descriptor.
pub(super) fn wake_descriptor() -> std::io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(
        0,
        EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
    )?))
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(super) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// One thread's state.
pub(super) struct Loop {
    start: Start,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer is set to go off; `u64::MAX` when it is not set.
    armed: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Due time, slot, the slot's generation.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    generation: u64,
    scratch: Vec<u8>,
    arrivals: Arrivals,
    log: Option<Log>,
    next_mailbox: usize,
}

struct Slot {
    socket: TcpStream,
    connection: Connection,
    generation: u64,
    interest: EventFlags,
    /// An entry stands in the heap.
    scheduled: bool,
}

impl Loop {
    /// Sets up the descriptors.
    pub(super) fn new(mut start: Start) -> std::io::Result<Loop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        epoll::add(
            &epoll,
            &timer,
            EventData::new_u64(TIMER),
            EventFlags::IN | EventFlags::ET,
        )?;
        epoll::add(
            &epoll,
            &*start.wake,
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        if let Some((listener, _)) = &start.accept {
            epoll::add(
                &epoll,
                listener,
                EventData::new_u64(LISTENER),
                EventFlags::IN,
            )?;
        }
        let log = start.log.take().map(Log::new);
        Ok(Loop {
            start,
            epoll,
            timer,
            armed: u64::MAX,
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            generation: 0,
            scratch: vec![0; READ_BYTES],
            arrivals: Arrivals::new(),
            log,
            next_mailbox: 0,
        })
    }

    /// Serves until the stop flag is up.
    pub(super) fn run(mut self) -> std::io::Result<()> {
        let mut reports = Vec::with_capacity(REPORTS);
        while !self.start.stop.load(Ordering::Acquire) {
            self.speak();
            let polls = self.use_time() || self.arm()?;
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            reports.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut reports),
                polls.then_some(&zero),
            );
            match waited {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for report in &reports {
                let (data, flags) = (report.data, report.flags);
                match data.u64() {
                    WAKE => self.take_sockets(),
                    TIMER => self.armed = u64::MAX,
                    LISTENER => self.accept(),
                    slot => self.serve(usize::try_from(slot).unwrap_or(usize::MAX), flags),
                }
                // A burst of requests must not make the events that are due wait for its end.
                self.speak();
            }
        }
        if let Some(log) = &mut self.log {
            log.flush()?;
        }
        Ok(())
    }

    /// Works off the log while nothing is due; true when there was something to do.
    fn use_time(&mut self) -> bool {
        let Some(log) = &mut self.log else {
            return false;
        };
        let due = self.due.peek().map_or(u64::MAX, |Reverse((due, ..))| *due);
        let wrote = log.use_time(due.saturating_sub(monotonic()));
        self.keep_log(wrote)
    }

    /// A log that cannot be written any more is given up rather than ending the server.
    fn keep_log(&mut self, outcome: std::io::Result<bool>) -> bool {
        outcome.unwrap_or_else(|_| {
            self.log = None;
            false
        })
    }

    /// Sets the timer for the next event; true when that is so near that it is polled for.
    fn arm(&mut self) -> std::io::Result<bool> {
        if self.start.shared.plan.pace == Pace::Spin {
            return Ok(true);
        }
        let Some(&Reverse((due, ..))) = self.due.peek() else {
            return Ok(false);
        };
        let early = due.saturating_sub(SPIN_NS);
        if early <= monotonic() {
            return Ok(true);
        }
        if early != self.armed {
            let value = Timespec {
                tv_sec: i64::try_from(early / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (early % 1_000_000_000).try_into().unwrap_or(0),
            };
            let interval = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            timerfd_settime(
                &self.timer,
                TimerfdTimerFlags::ABSTIME,
                &Itimerspec {
                    it_interval: interval,
                    it_value: value,
                },
            )?;
            self.armed = early;
        }
        Ok(false)
    }

    /// Writes the events that are due, a bounded number so that sockets and the stop flag are seen to as well.
    fn speak(&mut self) {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(&Reverse((due, index, generation))) = self.due.peek() else {
                return;
            };
            let now = monotonic();
            if due > now {
                return;
            }
            self.due.pop();
            let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            if slot.generation != generation {
                continue;
            }
            slot.scheduled = false;
            if let Some(mark) = slot.connection.speak(now) {
                let before = monotonic();
                let mut alive = slot.write();
                let entry = Entry {
                    mark,
                    before,
                    after: monotonic(),
                };
                if alive && slot.connection.settle(now, &self.start.shared) {
                    alive = slot.write();
                }
                if let Some(log) = &mut self.log {
                    let outcome = log.push(entry).map(|()| true);
                    self.keep_log(outcome);
                }
                if !alive {
                    self.close(index);
                    continue;
                }
            }
            self.settle(index);
        }
    }

    /// After any change: schedules the next event, sets interest, closes what is finished.
    fn settle(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if slot.connection.is_finished() {
            // An orderly end, so that a peer that still sends is not reset before it has read the reply.
            let _ = slot.socket.shutdown(std::net::Shutdown::Write);
            self.close(index);
            return;
        }
        let backlog = slot.connection.out.len();
        if !slot.scheduled
            && backlog < BACKLOG_BYTES
            && let Some(due) = slot.connection.due()
        {
            slot.scheduled = true;
            self.due.push(Reverse((due, index, slot.generation)));
        }
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, slot.connection.wants_input());
        interest.set(EventFlags::OUT, backlog > 0);
        if interest != slot.interest {
            slot.interest = interest;
            let data = EventData::new_u64(index as u64);
            if epoll::modify(&self.epoll, &slot.socket, data, interest).is_err() {
                self.close(index);
            }
        }
    }

    fn serve(&mut self, index: usize, flags: EventFlags) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let mut alive = !flags.contains(EventFlags::ERR);
        if alive
            && flags.intersects(EventFlags::IN | EventFlags::HUP)
            && slot.connection.wants_input()
        {
            match self.arrivals.read(&slot.socket, &mut self.scratch) {
                Ok(Arrival { count: 0, .. }) => slot.connection.end_input(),
                Ok(Arrival { count, stamp, read }) => {
                    let received = stamp.unwrap_or(read);
                    let bytes = &self.scratch[..count];
                    let now = Moment { received, read };
                    slot.connection.receive(bytes, now, &self.start.shared);
                }
                Err(error) => alive = is_passing(&error),
            }
        } else if flags.contains(EventFlags::HUP) {
            alive = false;
        }
        if alive && slot.write() {
            self.settle(index);
        } else {
            self.close(index);
        }
    }

    fn accept(&mut self) {
        let Some((listener, mailboxes)) = &self.start.accept else {
            return;
        };
        while let Ok((socket, _)) = listener.accept() {
            let number = self
                .start
                .shared
                .tally
                .connections
                .fetch_add(1, Ordering::Relaxed)
                + 1;
            let mailbox = &mailboxes[self.next_mailbox % mailboxes.len()];
            self.next_mailbox = self.next_mailbox.wrapping_add(1);
            // A thread that has ended takes its sockets with it.
            let _ = mailbox.sockets.send((socket, number));
            mailbox.wake();
        }
    }

    fn take_sockets(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.start.wake, &mut count);
        while let Ok((socket, number)) = self.start.sockets.try_recv() {
            if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
                continue;
            }
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let interest = EventFlags::IN;
            if epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(index as u64),
                interest,
            )
            .is_err()
            {
                self.free.push(index);
                continue;
            }
            self.generation += 1;
            self.slots[index] = Some(Slot {
                socket,
                connection: Connection::new(number),
                generation: self.generation,
                interest,
                scheduled: false,
            });
        }
    }

    fn close(&mut self, index: usize) {
        // Dropping the socket takes it out of the epoll set.
        if self.slots[index].take().is_some() {
            self.free.push(index);
        }
    }
}

impl Slot {
    /// Writes what the socket takes; false when the client is gone.
    fn write(&mut self) -> bool {
        while !self.connection.out.is_empty() {
            match self.socket.write(&self.connection.out) {
                Ok(0) => return false,
                Ok(count) => drop(self.connection.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return is_passing(&error),
            }
        }
        true
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
