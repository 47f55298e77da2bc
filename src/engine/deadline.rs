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

    /// Drops limits of requests that have ended once they are many more than the `live` ones. One request that takes long
    /// would otherwise keep all that ended behind it.
    pub(super) fn prune(&mut self, live: usize, is_live: impl FnMut(&Deadline) -> bool) {
        if self.queue.len() > 64 + 4 * live {
            self.queue.retain(is_live);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_ended_requests_do_not_pile_up_behind_a_long_one() {
        let mut deadlines = Deadlines::new(1_000);
        for serial in 0..10_000 {
            let conn = ConnId {
                index: 0,
                generation: 0,
            };
            deadlines.push(Tick(serial), conn, serial);
            // The first never ends; of the others one is under way at a time.
            deadlines.prune(2, |deadline| [0, serial].contains(&deadline.serial));
            assert!(deadlines.queue.len() <= 72, "{}", deadlines.queue.len());
        }
        assert_eq!(deadlines.first().map(|first| first.serial), Some(0));
        let last = deadlines.queue.back();
        assert_eq!(last.map(|last| last.serial), Some(9_999));
        assert!(deadlines.queue.iter().is_sorted_by_key(|d| d.at));
    }
}
