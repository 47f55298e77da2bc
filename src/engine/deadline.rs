//! Limits of one length.
//!
//! In: requests in the order they began. Out: those whose time is over. Never: a timer or a sorted structure: all limits of one
//! queue are equally long, so that the oldest is always due first.

use std::collections::VecDeque;

use crate::clock::Tick;
use crate::driver::ConnId;

/// A queue of equally long limits.
pub(super) struct Deadlines {
    length: u64,
    queue: VecDeque<Deadline>,
}

#[derive(Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Tick,
    pub(super) conn: ConnId,
    /// Which flight is meant; the connection may carry another by then.
    pub(super) serial: u64,
}

impl Deadlines {
    /// Limits of `length` ticks.
    pub(super) fn new(length: u64) -> Deadlines {
        Deadlines {
            length,
            queue: VecDeque::new(),
        }
    }

    /// The limit of flight `serial`, which began at `start`.
    pub(super) fn push(&mut self, start: Tick, conn: ConnId, serial: u64) {
        self.queue.push_back(Deadline {
            at: start.plus(self.length),
            conn,
            serial,
        });
    }

    /// Flight `serial` goes on on `conn`; its limit stays.
    pub(super) fn moved(&mut self, serial: u64, conn: ConnId) {
        if let Some(deadline) = self
            .queue
            .iter_mut()
            .find(|deadline| deadline.serial == serial)
        {
            deadline.conn = conn;
        }
    }

    /// The oldest limit.
    pub(super) fn first(&self) -> Option<Deadline> {
        self.queue.front().copied()
    }

    /// Drops the oldest.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }
}
