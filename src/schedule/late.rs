//! Arrivals that are late, and those that were never sent.
//!
//! In: the time, the plan's policy. Out: a count of what was left out. Never: a due time that moves.

use super::{Pace, Schedule};
use crate::clock::{Rate, Tick};
use crate::config::{LatePolicy, PhasePlan};

/// How late, in ticks, arrivals of `phase` may be sent; `None` for whenever they can.
pub(super) fn latest(phase: &PhasePlan, rate: Rate) -> Option<u64> {
    (phase.late == LatePolicy::Skip).then(|| rate.ticks(LatePolicy::BOUND))
}

impl Schedule {
    /// Leaves out the arrivals that are too late at `now`, where the plan says so. One that could start nothing anyway is none.
    pub(super) fn skip_late(&mut self, now: Tick) {
        let Some(latest) = self.latest.filter(|_| !self.halted) else {
            return;
        };
        // A worker without a slot has no arrival of its own.
        if self.deal.places() == 0 {
            return;
        }
        let may_start = !self.sessions_used_up();
        let Pace::Arrivals { arrivals, ready } = &mut self.pace else {
            return;
        };
        let most = self.request_limit.unwrap_or(u64::MAX) - self.issued;
        while self.skipped < most
            && (may_start || *ready > 0)
            && now.since(arrivals.due()) > latest
            && self.deadline.is_none_or(|end| arrivals.due() < end)
        {
            self.last_skipped = Some(arrivals.due());
            arrivals.advance();
            self.skipped += 1;
        }
    }

    /// Arrivals that were due before `until` (and the deadline) and stayed unsent, within the request and session stops: what a
    /// rate promised and slots did not allow. 0 in the closed loop. Walks over them, so it is for the end of a phase.
    #[must_use]
    pub fn unsent_arrivals(&self, until: Tick) -> u64 {
        let until = self.deadline.map_or(until, |end| end.min(until));
        let arrivals = match &self.pace {
            Pace::Slots { .. } => return 0,
            Pace::Users(users) => return users.due_before(until).saturating_sub(self.issued),
            Pace::Replay(replay) => {
                let own = self.started..self.session_limit.unwrap_or(0);
                let due = own.map_while(|nth| replay.begins(self.deal.number(nth)));
                return due.take_while(|&due| due < until).count() as u64;
            }
            Pace::Arrivals { arrivals, .. } => arrivals,
        };
        if self.deal.places() == 0 {
            return 0;
        }
        let requests_left = self
            .request_limit
            .map(|most| most - self.issued - self.skipped);
        let sessions_left = self.session_limit.map(|most| most - self.started);
        let most = requests_left
            .into_iter()
            .chain(sessions_left)
            .min()
            .unwrap_or(u64::MAX);
        let mut arrivals = arrivals.clone();
        let mut count = 0;
        while count < most && arrivals.due() < until {
            arrivals.advance();
            count += 1;
        }
        count
    }
}
