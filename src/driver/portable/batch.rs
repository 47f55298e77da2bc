//! How a batch of completions is handed to the engine.
//!
//! In: the queue that tasks fill, and the arena with what they read. Out: calls of the engine, with pauses in which tasks run. Never: hands
//! over a read that came later before one that came earlier, or parses with ready sockets unstamped for longer than a record takes.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::clock::{KernelClock, Tick};
use crate::driver::{ConnId, Stamp};

use super::{Completion, Pump, Shared, What, gaps_of};

/// Bytes read and not yet parsed; a task that finds it full waits until the pump has emptied it. While the pump pauses in a batch, what
/// is read goes to a second one.
const ARENA_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Arena {
    pub(super) bytes: Vec<u8>,
    pub(super) used: usize,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena {
            bytes: vec![0; ARENA_BYTES],
            used: 0,
        }
    }
}

/// Bytes of a read, in the pump's arena, that the engine is still to get.
#[derive(Clone, Copy)]
pub(super) struct Unfinished {
    conn: ConnId,
    begin: usize,
    end: usize,
    stamp: Stamp,
}

/// Wakes the pump when it has paused: being a task that is ready, it makes monoio ask for ready sockets without waiting, and their tasks run
/// before the pump does.
pub(super) async fn resume(shared: Rc<Shared>) {
    while !shared.over.get() {
        std::future::poll_fn(|context: &mut Context<'_>| {
            if shared.paused.take() {
                return Poll::Ready(());
            }
            *shared.resumer.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        shared.wake();
    }
}

/// Wakes the task of [`resume`].
pub(super) fn wake_resumer(shared: &Shared) {
    shared.paused.set(true);
    if let Some(waker) = &*shared.resumer.borrow() {
        waker.wake_by_ref();
    }
}

impl Pump {
    /// Hands what completed to the engine. Everything in the batch was stamped before this. False when it has to pause.
    pub(super) fn deliver(&mut self) -> bool {
        match self.unfinished.take() {
            None => self.begin_batch(),
            Some(rest) => {
                if !self.receive(rest) {
                    return false;
                }
            }
        }
        while let Some(Completion { conn, what }) = self.batch.pop_front() {
            match what {
                What::Connected {
                    local_port,
                    started,
                    done,
                } => self.engine.on_connected(conn, local_port, started, done),
                What::Received {
                    begin,
                    end,
                    tick,
                    wall_ns,
                } => {
                    let stamp = self.stamp(conn, tick, wall_ns.filter(|_| self.steady));
                    let read = Unfinished {
                        conn,
                        begin,
                        end,
                        stamp,
                    };
                    if !self.receive(read) {
                        return false;
                    }
                }
                What::Sent { bytes, sent } => self.engine.on_sent(conn, bytes, sent),
                What::Closed { reason, tick } => self.engine.on_closed(conn, reason, tick),
            }
        }
        self.end_batch();
        true
    }

    fn begin_batch(&mut self) {
        std::mem::swap(&mut *self.shared.queue.borrow_mut(), &mut self.batch);
        self.shared.batches.set(self.shared.batches.get() + 1);
        self.arena = self.shared.arena.take();
        // All stamps in the batch were taken between the last look at the wall clock and this one.
        self.steady =
            !self.batch.is_empty() && self.kernel.as_mut().is_some_and(KernelClock::is_steady);
        self.engine.look_ahead(self.batch.iter().map(|c| c.conn));
    }

    fn end_batch(&mut self) {
        self.arena.used = 0;
        let emptied = std::mem::take(&mut self.arena);
        if self.shared.arena.borrow().bytes.is_empty() {
            self.shared.arena.replace(emptied);
        } else {
            self.other_arena = emptied;
        }
        self.shared.wake_waiting();
    }

    /// Hands a read to the engine; false when it took a part of it, and a look at the sockets is due before the rest.
    fn receive(&mut self, mut read: Unfinished) -> bool {
        let bytes = &self.arena.bytes[read.begin..read.end];
        read.begin += self.engine.on_received(read.conn, bytes, read.stamp);
        let whole = read.begin == read.end;
        self.unfinished = Some(read).filter(|_| !whole);
        whole
    }

    /// Lets tasks take what has come and stamp it, before the batch goes on.
    pub(super) fn pause(&mut self) {
        if self.shared.arena.borrow().bytes.is_empty() {
            self.shared
                .arena
                .replace(std::mem::take(&mut self.other_arena));
        }
        self.shared.wake_waiting();
        wake_resumer(&self.shared);
    }

    fn stamp(&mut self, conn: ConnId, tick: Tick, wall_ns: Option<u64>) -> Stamp {
        self.tally.reads += 1;
        let Some(kernel) = &self.kernel else {
            let kernel = Tick::NEVER;
            return Stamp { tick, kernel };
        };
        // The stamp cannot lie after the read; what the mapping is off by must not make it so.
        let kernel = wall_ns.map_or(Tick::NEVER, |wall_ns| kernel.stamp(wall_ns, tick));
        self.tally.unstamped += u64::from(kernel == Tick::NEVER);
        let stamp = Stamp { tick, kernel };
        if let Some(windows) = &mut self.windows {
            windows.read(gaps_of(&mut self.gaps, conn), stamp.arrival());
        }
        stamp
    }
}
