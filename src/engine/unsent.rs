//! What a phase was to send and has not.
//!
//! In: a phase that is over. Out: its counts of what was left out. Never: counts a session or a turn that was due after the end.

use crate::clock::Tick;

use super::Engine;
use super::phase::{Running, signed};
use super::session::Session;
use crate::schedule::Schedule;

impl Engine {
    /// What `running`, which is over, was to send and has not.
    pub(super) fn count_unsent(&mut self, running: &Running, now: Tick) {
        let counts = running.schedule.counts();
        let by_requests = self.setup.phases[self.phases.index].stop.requests.is_some();
        let done = if by_requests {
            counts.sent_requests
        } else {
            counts.started_sessions
        };
        let replays = running.schedule.begun().is_some();
        let unsent = match counts.planned {
            _ if replays => {
                // All that was due before the deadline, or at all where there is none.
                let begins = running.schedule.unsent_arrivals(Tick::NEVER);
                signed(begins + unsent_turns(running))
            }
            Some(planned) if by_requests => signed(planned) - signed(done + counts.skipped),
            Some(planned) => signed(planned) - signed(done),
            None => signed(running.schedule.unsent_arrivals(now)),
        };
        let leftover = self.leftover(self.phases.index);
        leftover.unsent += unsent;
        leftover.skipped += counts.skipped;
        leftover.last_skipped = leftover.last_skipped.max(counts.last_skipped);
    }

    /// Notes the turns that a replay waits for and that are not due before its deadline.
    pub(super) fn note_not_due(&mut self) {
        let Some(running) = &self.phases.running else {
            return;
        };
        let deadline = running.schedule.deadline();
        let Some(deadline) = deadline.filter(|_| running.schedule.begun().is_some()) else {
            return;
        };
        let waiting = running.due_from(deadline);
        let turns = waiting.map(|session| self.due_turns(&running.schedule, session));
        let not_due: u64 = turns.sum();
        self.phases.running().not_due += not_due;
    }

    /// `session`, which a replay begins, has turns to send.
    pub(super) fn count_due(&mut self, session: &Session) {
        let running = self.phases.running.as_ref();
        let due = running.map_or(0, |running| self.due_turns(&running.schedule, session));
        self.phases.running().due_turns += due;
    }

    /// Turns of `session` from the one that it has come to on, up to the first whose own time is past the deadline: what follows it was not
    /// due either.
    fn due_turns(&self, schedule: &Schedule, session: &Session) -> u64 {
        let deadline = schedule.deadline().unwrap_or(Tick::NEVER);
        let own = |turn| {
            let own = session.own_time(&*self.workload, turn);
            own.and_then(|after| schedule.own_time(after))
        };
        let turns = session.turn..session.turn_count;
        let due = turns.take_while(|&turn| own(turn).is_none_or(|at| at < deadline));
        due.count() as u64
    }
}

/// Turns of the sessions that a replay has begun, without those that were not due before its deadline, and without those that were sent.
fn unsent_turns(running: &Running) -> u64 {
    let sent = running.schedule.counts().sent_requests;
    running.due_turns.saturating_sub(sent + running.not_due)
}
