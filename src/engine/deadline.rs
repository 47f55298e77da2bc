//! Limits of one length.
//!
//! In: requests in the order they began. Out: those whose time is over. Never: a timer or a sorted structure: all limits of one
//! queue are equally long, so that the oldest is always due first.

use std::collections::VecDeque;

use crate::clock::Tick;
use crate::driver::ConnId;

use super::conn::Table;

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

    /// The limit of flight `serial`, which began at `start`. Starts come in order, but for those of one batch, which may differ by
    /// what the batch took; each finds its place from the back, and of equal ones the lower serial stands first.
    pub(super) fn push(&mut self, start: Tick, conn: ConnId, serial: u64) {
        let at = start.plus(self.length);
        let later = self.queue.iter().rev();
        let later = later.take_while(|last| (last.at, last.serial) > (at, serial));
        let place = self.queue.len() - later.count();
        self.queue.insert(place, Deadline { at, conn, serial });
    }

    /// Takes out the oldest limit that is over at `now`, with the connection that carries its flight; limits of flights that have
    /// ended are dropped on the way.
    pub(super) fn expired(&mut self, table: &mut Table, now: Tick) -> Option<(ConnId, Tick)> {
        while let Some(&first) = self.queue.front() {
            let carrier = table.carrier(first);
            if carrier.is_some() && first.at > now {
                return None;
            }
            self.queue.pop_front();
            if let Some(conn) = carrier {
                return Some((conn, first.at));
            }
        }
        None
    }

    /// From a start to its limit, in ticks.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Flight `serial`, which began at `start`, goes on on `conn`; its limit stays. Flights that began at the same tick stand in the
    /// order of their serials, so that it is found without a look at each.
    pub(super) fn moved(&mut self, start: Tick, serial: u64, conn: ConnId) {
        let place = (start.plus(self.length), serial);
        let found = self
            .queue
            .binary_search_by_key(&place, |deadline| (deadline.at, deadline.serial));
        debug_assert!(found.is_ok(), "a flight under way has its limit");
        if let Ok(index) = found {
            self.queue[index].conn = conn;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_began_earlier_is_over_earlier_also_when_it_comes_later() {
        let mut deadlines = Deadlines::new(100);
        for (serial, start) in [(1, 10), (4, 30), (3, 20), (2, 30), (5, 5)] {
            let conn = ConnId {
                index: 0,
                generation: 0,
            };
            deadlines.push(Tick(start), conn, serial);
        }
        let order: Vec<(u64, u64)> = deadlines.queue.iter().map(|d| (d.serial, d.at.0)).collect();
        assert_eq!(order, [(5, 105), (1, 110), (3, 120), (2, 130), (4, 130)]);
    }

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
