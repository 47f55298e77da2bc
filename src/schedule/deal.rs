//! Which slots, and which of the globally numbered requests and sessions, a worker owns.
//!
//! In: the shard, the concurrency. Out: shares that sum exactly over all workers, and numbers that no two workers share.
//! Never: time, or state that changes while running.

use super::Shard;

/// Number k of a run belongs to place `k mod cycle`; place p belongs to worker `p mod stride`.
///
/// In the closed loop a place is a slot, so that work is dealt in proportion to slots; with a rate each worker has one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deal {
    /// Places in all, at least 1.
    cycle: u64,
    /// Workers that own places, at least 1.
    stride: u64,
    /// This worker.
    index: u64,
    /// Places of this worker; 0 for one that has nothing to do.
    places: u64,
}

impl Deal {
    /// Numbers in proportion to slots. Workers without a prefill slot, where those are limited, are left out.
    pub(super) fn by_slots(shard: Shard, concurrency: u64, prefill: Option<u64>) -> Deal {
        let useful = useful_workers(shard, Some(concurrency), prefill);
        Deal::new(concurrency.max(1), useful, shard.index as u64)
    }

    /// Numbers in turn. Workers without a slot, or without a prefill slot, are left out, so that no arrival falls to one that can
    /// never send it.
    pub(super) fn by_arrivals(
        shard: Shard,
        concurrency: Option<u64>,
        prefill: Option<u64>,
    ) -> Deal {
        let useful = useful_workers(shard, concurrency, prefill);
        Deal::new(useful, useful, shard.index as u64)
    }

    /// Numbers by the lanes of users, which are dealt like slots; as above, workers without a slot are left out.
    pub(super) fn by_users(
        shard: Shard,
        users: u64,
        concurrency: Option<u64>,
        prefill: Option<u64>,
    ) -> Deal {
        let useful = useful_workers(shard, concurrency, prefill).min(users);
        Deal::new(users, useful, shard.index as u64)
    }

    /// Number `number` is this worker's.
    pub(super) fn owns(self, number: u64) -> bool {
        number % self.cycle % self.stride == self.index
    }

    fn new(cycle: u64, stride: u64, index: u64) -> Deal {
        let places = share_of(cycle, stride, index);
        Deal {
            cycle,
            stride,
            index,
            places,
        }
    }

    /// Places of this worker.
    pub(super) fn places(self) -> u64 {
        self.places
    }

    /// Workers that own places: slot n belongs to worker n mod this.
    pub(super) fn stride(self) -> u64 {
        self.stride
    }

    /// Places of all workers.
    pub(super) fn cycle(self) -> u64 {
        self.cycle
    }

    /// How many of the numbers `0..total` are this worker's.
    pub(super) fn share(self, total: u64) -> u64 {
        let rest = share_of(total % self.cycle, self.stride, self.index);
        total / self.cycle * self.places + rest
    }

    /// The `nth` number of this worker, from 0. The worker must have a place.
    pub(super) fn number(self, nth: u64) -> u64 {
        debug_assert!(self.places > 0, "a worker without a place has no number");
        nth / self.places * self.cycle + self.index + nth % self.places * self.stride
    }
}

/// Workers that get something to do: each has a slot of every kind that is limited.
fn useful_workers(shard: Shard, concurrency: Option<u64>, prefill: Option<u64>) -> u64 {
    let limits = concurrency.into_iter().chain(prefill);
    limits.fold(shard.count as u64, u64::min).max(1)
}

/// How many of `0..total` leave `index` when divided by `stride`; 0 for an index that is no remainder.
pub(super) fn share_of(total: u64, stride: u64, index: u64) -> u64 {
    if index >= stride {
        return 0;
    }
    total.saturating_sub(index).div_ceil(stride)
}
