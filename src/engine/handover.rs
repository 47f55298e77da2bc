//! A phase that follows another without a drain.
//!
//! In: the phase that has stopped sending, the conductor's word. Out: the next phase, with slots that come free as requests of the one
//! before end. Never: two hand-overs at once: a phase goes on until the one before it has drained.

use crate::clock::{Nanos, Tick};

use super::phase::{Cut, Phases};
use super::{Engine, GATE_WAIT};

/// Between looks whether all workers have reached a hand-over at a time that is known to all: they do so within moments.
const MOMENT: Nanos = Nanos(100_000);

impl Phases {
    /// A request of `phase` has ended; it was the `last` of its session.
    pub(super) fn turn_ended(&mut self, phase: u8, last: bool) {
        if phase == self.number() {
            self.running().last_turns -= u64::from(last);
        }
    }

    /// A session of `phase` is over; its slot is free from `now` on, be it for the next phase.
    pub(super) fn session_ended(&mut self, phase: u8, now: Tick) {
        if phase == self.number() {
            return self.running().schedule.session_ended(now);
        }
        if let Some(tail) = &mut self.tail {
            tail.schedule.session_ended(now);
        }
        if let Some(running) = &mut self.running {
            running.schedule.release_held(now);
        }
    }

    /// A request of `phase` gave its prefill slot back at `at`, be it for the next phase.
    pub(super) fn prefill_ended(&mut self, phase: u8, at: Tick) {
        if phase == self.number() {
            return self.running().schedule.prefill_ended(at);
        }
        if let Some(tail) = &mut self.tail {
            tail.schedule.prefill_ended(at);
        }
        if let Some(running) = &mut self.running {
            running.schedule.release_held_prefill(at);
        }
    }
}

impl Engine {
    /// The running phase sends nothing more, and the next one need not wait for what is in flight.
    pub(super) fn hands_over(&mut self) -> bool {
        let next = self.setup.phases.get(self.phases.index + 1);
        if self.phases.stopped || self.phases.tail.is_some() || !next.is_some_and(|p| p.seamless) {
            return false;
        }
        let running = self.phases.running();
        let open = running.schedule.counts().open_sessions;
        // Every session that is open awaits the reply to its last turn.
        running.sending_over |= running.schedule.starts_no_more() && open == running.last_turns;
        running.sending_over
    }

    /// Tells the conductor, and starts the next phase when all workers have; says when to ask again, or `None` when it has started.
    pub(super) fn hand_over(&mut self, now: Tick) -> Option<Tick> {
        let next = self.phases.index + 1;
        let running = self.phases.running();
        let ended = running.schedule.sending_ended(now);
        let numbers = running.schedule.session_numbers();
        if !std::mem::replace(&mut self.phases.announced, true) {
            self.control.used(next, self.phases.used + numbers);
            self.control.hand_over(next, ended);
        }
        let Some(start) = self.control.phase_start(next) else {
            let by_count = self.setup.phases[self.phases.index].stop.duration.is_none();
            let wait = if by_count { GATE_WAIT } else { MOMENT };
            return Some(now.plus(self.setup.rate.ticks(wait)));
        };
        if start > now {
            self.phases.next_send = start;
            return Some(start);
        }
        let tail = self.phases.running.take()?;
        self.count_unsent(&tail, now);
        let open = tail.schedule.counts().open_sessions;
        let prefills = tail.schedule.prefills();
        self.phases.tail = Some(tail).filter(|_| open > 0);
        self.phases.index = next;
        let mut schedule = self.schedule_of(next, start);
        schedule.hold(open, prefills);
        self.start_phase(schedule);
        None
    }

    /// Cuts what is left of the phase before when its grace is over; says when that will be.
    pub(super) fn tend_tail(&mut self, now: Tick) -> Tick {
        let Some(tail) = &mut self.phases.tail else {
            return Tick::NEVER;
        };
        if tail.schedule.counts().open_sessions == 0 {
            self.phases.tail = None;
            return Tick::NEVER;
        }
        match tail.cut_due(now) {
            Cut::Now(outcome) => {
                // The tail is of the phase just before.
                let phase = self.phases.number() - 1;
                self.cut(phase, outcome, now);
                // Slots came free.
                now
            }
            Cut::At(at) => at,
            Cut::Never => Tick::NEVER,
        }
    }
}
