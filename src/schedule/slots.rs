//! Slots of one worker: when each opens, and when it came free again.
//!
//! In: the plan's number, the time over which they open, the worker's place. Out: when the next free slot came free.
//! Never: an order of slots that differs between one worker and several.

use std::collections::VecDeque;

use crate::clock::Tick;

/// The slots that one worker owns, of those of a phase.
///
/// Slot n of N opens `length * n / (N - 1)` after the start, so that one is open at the start and all are at the end of the ramp;
/// without a ramp all open at the start. It belongs to worker n mod `stride`, which opens it whatever the others do: together the
/// workers open what a single one would, to the tick.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// When those given back came free, oldest first.
    free: VecDeque<Tick>,
    /// Own slots that have been taken at least once.
    opened: u64,
    /// Own slots.
    count: u64,
    /// Slots that the phase before still holds, be they more than own ones.
    held: u64,
    opening: Opening,
}

/// When slots open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// Slots of all workers, at least 1.
    pub(super) total: u64,
    /// Workers that own slots, at least 1.
    pub(super) stride: u64,
    /// This worker.
    pub(super) index: u64,
    /// The phase's start.
    pub(super) start: Tick,
    /// Ticks from the first slot's opening to the last one's; 0 without a ramp.
    pub(super) length: u64,
}

impl Slots {
    /// `count` slots, none of them taken. What grows is allocated here.
    pub(super) fn new(count: u64, opening: Opening) -> Slots {
        Slots {
            free: VecDeque::with_capacity(usize::try_from(count).unwrap_or(usize::MAX)),
            opened: 0,
            count,
            held: 0,
            opening,
        }
    }

    /// Since when, or from when on, the oldest slot that is not taken is free; [`Tick::NEVER`] when all are taken.
    pub(super) fn free_at(&self) -> Tick {
        let given_back = self.free.front().copied().unwrap_or(Tick::NEVER);
        given_back.min(self.next_opening())
    }

    /// Takes the slot that [`Slots::free_at`] speaks of.
    pub(super) fn take(&mut self) {
        let opening = self.next_opening();
        if self.free.front().is_some_and(|&free| free <= opening) {
            self.free.pop_front();
        } else {
            debug_assert!(
                self.opened < self.count,
                "a slot was taken that is not there"
            );
            self.opened += 1;
        }
    }

    /// A taken slot is free since `at`.
    pub(super) fn give_back(&mut self, at: Tick) {
        self.free.push_back(at);
        debug_assert!(
            self.free.len() as u64 <= self.opened,
            "a slot was given back that was not taken"
        );
    }

    /// The phase before holds `held` slots: as many are not free before they are released.
    pub(super) fn hold(&mut self, held: u64) {
        debug_assert_eq!(self.opened, 0, "slots are held from the start");
        self.held = held;
        self.opened = held.min(self.count);
    }

    /// A held slot is free since `at`, unless more are still held than there are slots.
    pub(super) fn release(&mut self, at: Tick) {
        assert!(self.held > 0, "a slot was released that was not held");
        self.held -= 1;
        if self.held < self.count {
            self.give_back(at);
        }
    }

    /// Own slots that are taken now, held ones included.
    pub(super) fn taken(&self) -> u64 {
        self.opened - self.free.len() as u64
    }

    fn next_opening(&self) -> Tick {
        if self.opened >= self.count {
            return Tick::NEVER;
        }
        self.opening.of(self.opened)
    }
}

impl Opening {
    /// When the `nth` slot of this worker opens, from 0.
    fn of(&self, nth: u64) -> Tick {
        let slot = self.index + nth * self.stride;
        let steps = self.total.saturating_sub(1).max(1);
        let after = u128::from(self.length) * u128::from(slot) / u128::from(steps);
        // A slot's number is below `total`, so the quotient is at most `length`.
        self.start.plus(u64::try_from(after).unwrap_or(self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(total: u64, stride: u64, index: u64, length: u64) -> Slots {
        let count = super::super::deal::share_of(total, stride, index);
        Slots::new(
            count,
            Opening {
                total,
                stride,
                index,
                start: Tick(1_000),
                length,
            },
        )
    }

    fn openings(mut slots: Slots) -> Vec<u64> {
        let mut times = Vec::new();
        while slots.free_at() != Tick::NEVER {
            times.push(slots.free_at().0);
            slots.take();
        }
        times
    }

    #[test]
    fn slots_open_in_equal_steps_from_the_start_to_the_end() {
        assert_eq!(
            openings(slots(5, 1, 0, 400)),
            [1_000, 1_100, 1_200, 1_300, 1_400]
        );
        assert_eq!(openings(slots(3, 1, 0, 0)), [1_000; 3]);
        assert_eq!(
            openings(slots(1, 1, 0, 500)),
            [1_000],
            "one slot has no step"
        );
        assert_eq!(openings(slots(4, 1, 0, 10)), [1_000, 1_003, 1_006, 1_010]);
    }

    #[test]
    fn workers_together_open_what_one_would() {
        for (total, length) in [(7, 600), (50, 1_000_000_007), (2, 3), (64, u64::MAX / 2)] {
            let alone = openings(slots(total, 1, 0, length));
            for workers in 2..=5_u64.min(total) {
                let mut together: Vec<u64> = (0..workers)
                    .flat_map(|index| openings(slots(total, workers, index, length)))
                    .collect();
                together.sort_unstable();
                assert_eq!(together, alone, "{total} over {workers}");
            }
        }
    }

    #[test]
    fn a_slot_given_back_goes_before_one_that_opens_later() {
        let mut slots = slots(3, 1, 0, 200);
        slots.take();
        slots.give_back(Tick(1_050));
        assert_eq!(slots.free_at(), Tick(1_050));
        slots.take();
        assert_eq!(slots.free_at(), Tick(1_100));
        slots.give_back(Tick(1_150));
        assert_eq!(
            slots.free_at(),
            Tick(1_100),
            "the one that opened before waits longer"
        );
        slots.take();
        slots.take();
        slots.take();
        assert_eq!(slots.free_at(), Tick::NEVER);
    }
}
