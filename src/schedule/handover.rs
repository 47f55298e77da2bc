//! How one phase follows another without a drain.
//!
//! In: sessions of the phase before that still hold slots. Out: slots as they come free; when and where the sending of a phase ended.
//! Never: more sessions open at once, those of the phase before included, than this phase has slots, when one begins.

use super::{Pace, Schedule};
use crate::clock::Tick;

impl Schedule {
    /// Sessions of the phase before still hold `held` slots. To be called before anything is asked. In the closed loop as many slots
    /// are not free yet; with a cap on a rate they count as taken. Where the phase before had more slots than this one, the first of
    /// its sessions to end leave nothing behind.
    pub fn hold(&mut self, held: u64) {
        debug_assert_eq!(
            self.issued, 0,
            "slots are held from the start or not at all"
        );
        self.held = held;
        if let Pace::Slots { free, .. } = &mut self.pace {
            let left = (free.len() as u64).saturating_sub(held);
            free.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }

    /// A session of the phase before ended at `now`.
    pub fn release_held(&mut self, now: Tick) {
        assert!(self.held > 0, "a session ended that held no slot");
        self.held -= 1;
        if let Pace::Slots { free, .. } = &mut self.pace
            && self.held < self.deal.places()
        {
            free.push_back(now);
        }
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
