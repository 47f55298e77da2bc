//! How one phase follows another without a drain.
//!
//! In: sessions of the phase before that still hold slots. Out: slots as they come free; when and where the sending of a phase ended.
//! Never: more sessions open at once, those of the phase before included, than this phase has slots, when one begins.

use super::Schedule;
use super::slots::Slots;
use crate::clock::Tick;

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
