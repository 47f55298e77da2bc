//! How one phase follows another without a drain.
//!
//! In: sessions of the phase before that still hold slots. Out: slots as they come free; when and where the sending of a phase ended.
//! Never: more sessions open on a worker, those of the phase before included, than it has slots in this phase, when one begins; nor more over
//! all workers than the phase with more slots has.

use super::deal::share_of;
use super::slots::Slots;
use super::{Schedule, Shard};
use crate::clock::Tick;
use crate::config::{Arrivals, PhasePlan};

impl Shard {
    /// This worker among those that take part in phase `index` of `phases`; one whose index is not below their count does not.
    ///
    /// All take part, unless the phase is joined to another without a drain and some worker would have more slots in one of the two
    /// while another has more in the other one: then together they could hold more than either phase asked for. Such phases are
    /// played by as many workers as the one with fewer of them has, where each worker's share of the smaller limit is within its share
    /// of the larger one.
    #[must_use]
    pub fn within(self, phases: &[PhasePlan], index: usize) -> Shard {
        if !phases.iter().any(|phase| phase.seamless) {
            return self;
        }
        let strides = phases.iter().map(|phase| Schedule::stride(phase, self));
        let mut strides: Vec<u64> = strides.collect();
        let mut bound = vec![false; phases.len()];
        while let Some(second) = (1..phases.len()).find(|&second| {
            let pair = [second - 1, second];
            let apart = strides[pair[0]] != strides[pair[1]];
            let limits = pair.map(|place| limits(&phases[place]));
            let strides = pair.map(|place| strides[place]);
            phases[second].seamless && apart && !nest(limits, strides)
        }) {
            let pair = [second - 1, second];
            let least = strides[pair[0]].min(strides[pair[1]]);
            for place in pair {
                (strides[place], bound[place]) = (least, true);
            }
        }
        match bound.get(index) {
            Some(true) => Shard {
                count: usize::try_from(strides[index]).unwrap_or(self.count),
                ..self
            },
            _ => self,
        }
    }
}

/// What a phase limits: sessions, and requests without a first token.
fn limits(phase: &PhasePlan) -> [Option<u64>; 2] {
    let closed = phase.arrivals == Arrivals::ClosedLoop;
    let concurrency = phase.concurrency.or(closed.then_some(1));
    [concurrency, phase.slots.prefill].map(|most| most.map(|most| most as u64))
}

/// Of each kind that both phases limit, no worker has more slots in one of them while another has more in the other one.
fn nest([before, after]: [[Option<u64>; 2]; 2], [first, second]: [u64; 2]) -> bool {
    before.into_iter().zip(after).all(|limits| {
        let (Some(before), Some(after)) = limits else {
            return true;
        };
        let shares = (0..first.max(second))
            .map(|worker| share_of(before, first, worker).max(share_of(after, second, worker)));
        shares.sum::<u64>() <= before.max(after)
    })
}

impl Schedule {
    /// Sessions of the phase before still hold `sessions` slots, and its requests `prefills` prefill slots. To be called before
    /// anything is asked. As many slots of this phase are not free yet; where the phase before had more than this one, the first to
    /// be released leave nothing behind.
    pub fn hold(&mut self, sessions: u64, prefills: u64) {
        debug_assert_eq!(
            self.issued, 0,
            "slots are held from the start or not at all"
        );
        if let Some(slots) = &mut self.slots {
            slots.hold(sessions);
        }
        if let Some(slots) = &mut self.prefill {
            slots.hold(prefills);
        }
    }

    /// A session of the phase before ended at `now`.
    pub fn release_held(&mut self, now: Tick) {
        if let Some(slots) = &mut self.slots {
            slots.release(now);
        }
    }

    /// A request of the phase before gave its prefill slot back at `at`.
    pub fn release_held_prefill(&mut self, at: Tick) {
        if let Some(slots) = &mut self.prefill {
            slots.release(at);
        }
    }

    /// Requests that hold a prefill slot now; 0 without a limit.
    #[must_use]
    pub fn prefills(&self) -> u64 {
        self.prefill.as_ref().map_or(0, Slots::taken)
    }

    /// No new session will be started, although sending may go on: the session stop is reached.
    #[must_use]
    pub fn starts_no_more(&self) -> bool {
        self.sessions_used_up()
    }

    /// When sending ended, asked at `now`, when it had: at the deadline, unless a count was reached before.
    #[must_use]
    pub fn sending_ended(&self, now: Tick) -> Tick {
        let counted = self.sessions_used_up()
            || self.request_limit.is_some_and(|most| self.issued >= most)
            || self.deal.places() == 0;
        self.deadline.filter(|_| !counted).unwrap_or(now)
    }

    /// One more than the largest number of a session that this worker has started; 0 if it started none.
    #[must_use]
    pub fn session_numbers(&self) -> u64 {
        match self.started {
            0 => 0,
            started => self.deal.number(started - 1) + 1,
        }
    }
}
