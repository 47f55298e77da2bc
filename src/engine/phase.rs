//! Phases: their start, their sends, their end.
//!
//! In: the plan's phases and the conductor's word. Out: requests begun, and the next time at which something is due.
//! Never: starts a phase before every worker is ready for it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::clock::Tick;
use crate::config::{Arrivals, PhaseKind};
use crate::record::Outcome;
use crate::schedule::{Intent, IntentKind, Schedule, Verdict};

use super::border::Leftover;
use super::session::Session;
use super::{Engine, GATE_WAIT, LONGEST_WAIT, Stop};

/// Where an engine stands in its list of phases.
pub(super) struct Phases {
    pub(super) index: usize,
    /// The phase after `running`, or the one at `index` if none runs, was announced.
    pub(super) announced: bool,
    pub(super) running: Option<Running>,
    /// What is still under way of the phase before, which handed over without a drain.
    pub(super) tail: Option<Running>,
    /// Up to where phases before this one have used the dataset's order.
    pub(super) used: u64,
    /// When the next send is due, as far as it is known.
    pub(super) next_send: Tick,
    /// No request may follow: the run was stopped.
    pub(super) stopped: bool,
}

/// A phase under way.
pub(super) struct Running {
    pub(super) schedule: Schedule,
    /// Turns whose think time is over, oldest first.
    pub(super) ready: VecDeque<Session>,
    /// Turns in their think time.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Requests in flight that are the last of their sessions.
    pub(super) last_turns: u64,
    /// Nothing further will be begun.
    pub(super) sending_over: bool,
    /// When requests under way are cut, and as what.
    pub(super) cut_at: Option<(Tick, Outcome)>,
    cut: bool,
    /// An arrival may wait for a turn that can be sent.
    blocked: bool,
    /// When the last turn became ready.
    ripened: Tick,
    /// Turns of the sessions that a replay has begun, without those that are not due before its deadline.
    pub(super) due_turns: u64,
    /// Turns that were waited for at the end and not due before it, with those behind them.
    pub(super) not_due: u64,
}

/// A turn in its think time.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) due: Tick,
    /// Breaks ties in the order of the replies.
    pub(super) serial: u64,
    pub(super) session: Session,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.serial).cmp(&(other.due, other.serial))
    }
}

impl Phases {
    pub(super) fn new() -> Phases {
        Phases {
            index: 0,
            announced: false,
            running: None,
            tail: None,
            used: 0,
            next_send: Tick::NEVER,
            stopped: false,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// The phase's index as exchanges carry it.
    pub(super) fn number(&self) -> u8 {
        u8::try_from(self.index).unwrap_or(u8::MAX)
    }

    /// When the next send is due, as of the last turn; [`Tick::NEVER`] when that hangs on replies.
    pub(super) fn next_send(&self) -> Tick {
        self.next_send
    }

    /// The phase under way. Requests exist only inside one.
    pub(super) fn running(&mut self) -> &mut Running {
        self.running
            .as_mut()
            .expect("a request belongs to a running phase")
    }

    /// No turn may follow in `phase`.
    pub(super) fn is_cut(&self, phase: u8) -> bool {
        self.stopped
            || phase != self.number()
            || self
                .running
                .as_ref()
                .is_none_or(|running| running.cut || running.sending_over)
    }
}

/// Whether and when requests are cut.
pub(super) enum Cut {
    /// Now, as this.
    Now(Outcome),
    /// Then.
    At(Tick),
    /// They are not, or have been.
    Never,
}

impl Running {
    fn new(schedule: Schedule) -> Running {
        Running {
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            last_turns: 0,
            sending_over: false,
            cut_at: schedule.grace_end().map(|at| (at, Outcome::GraceEnded)),
            cut: false,
            blocked: false,
            ripened: Tick(0),
            due_turns: 0,
            not_due: 0,
            schedule,
        }
    }

    /// Requests are cut at `at`, unless they are to be before.
    fn cut_by(&mut self, at: Tick, outcome: Outcome) {
        if self.cut_at.is_none_or(|(planned, _)| at < planned) {
            self.cut_at = Some((at, outcome));
        }
    }

    /// Says once that it is time to cut.
    pub(super) fn cut_due(&mut self, now: Tick) -> Cut {
        match self.cut_at {
            Some((at, outcome)) if at <= now && !self.cut => {
                self.cut = true;
                Cut::Now(outcome)
            }
            Some((at, _)) if at > now => Cut::At(at),
            _ => Cut::Never,
        }
    }

    pub(super) fn wait(&mut self, turn: Waiting) {
        self.waiting.push(Reverse(turn));
    }

    /// From when on `intent` could be sent.
    pub(super) fn sendable(&self, intent: Intent) -> Tick {
        match intent.kind {
            IntentKind::Continue if self.blocked => intent.slot.max(self.ripened),
            _ => intent.slot,
        }
    }

    /// Turns whose think time is over become ready.
    fn ripen(&mut self, now: Tick) {
        while self.waiting.peek().is_some_and(|turn| turn.0.due <= now) {
            let Some(Reverse(turn)) = self.waiting.pop() else {
                return;
            };
            self.schedule.turn_ready(turn.due);
            self.ripened = turn.due;
            self.ready.push_back(turn.session);
        }
    }

    /// Sessions whose next turn is due at `at` or later.
    pub(super) fn due_from(&self, at: Tick) -> impl Iterator<Item = &Session> {
        let late = self.waiting.iter().filter(move |turn| turn.0.due >= at);
        late.map(|turn| &turn.0.session)
    }

    /// Takes out the sessions that wait for a turn.
    fn take_waiting(&mut self) -> Vec<Session> {
        let waiting = self.waiting.drain().map(|turn| turn.0.session);
        self.ready.drain(..).chain(waiting).collect()
    }
}

impl Engine {
    /// Does everything that is due at `now`; says when to ask again.
    pub(super) fn turn(&mut self, now: Tick) -> Tick {
        if self.finished {
            return Tick::NEVER;
        }
        self.take_addresses();
        self.expire(now);
        self.obey(now);
        let until = if self.phases.running.is_some() {
            self.run_phase(now)
        } else {
            self.enter_phase(now)
        };
        self.control.publish(&self.counts);
        let longest = now.plus(self.setup.rate.ticks(LONGEST_WAIT));
        let limits = [
            self.request_deadlines.first(),
            self.drain_deadlines.first(),
            self.cancel_deadlines.first(),
        ];
        let rival = self.next_race();
        limits
            .into_iter()
            .flatten()
            .map(|deadline| deadline.at)
            .chain(rival)
            .chain(self.waits.first())
            .fold(until.min(longest), Tick::min)
    }

    /// Acts on a stop that the conductor has called.
    fn obey(&mut self, now: Tick) {
        let stop = self.control.stop();
        if stop == Stop::No {
            return;
        }
        let grace = self
            .setup
            .phases
            .get(self.phases.index)
            .and_then(|p| p.grace)
            .unwrap_or(self.setup.stop_grace);
        let grace = self.setup.rate.ticks(grace);
        let first = !std::mem::replace(&mut self.phases.stopped, true);
        let phases = &mut self.phases;
        for running in phases.running.iter_mut().chain(&mut phases.tail) {
            if first {
                running.schedule.halt();
                running.cut_by(now.plus(grace), Outcome::Interrupted);
            }
            if stop == Stop::Now {
                running.cut_by(now, Outcome::Interrupted);
            }
        }
    }

    fn run_phase(&mut self, now: Tick) -> Tick {
        let mut until = Tick::NEVER;
        loop {
            let running = self.phases.running();
            running.ripen(now);
            if let Some(turn) = running.waiting.peek() {
                until = until.min(turn.0.due);
            }
            if let Some(session) = self.workload.made_below() {
                running.schedule.made_below(session);
            }
            match running.schedule.next(now) {
                Verdict::Send(intent) => self.begin(intent, now),
                Verdict::WaitUntil(due) => {
                    running.blocked = false;
                    until = until.min(due);
                    break;
                }
                Verdict::WaitForSlot => {
                    running.blocked = true;
                    break;
                }
                Verdict::NeedTurns { session } => {
                    let conversation = self.workload.pick(self.phases.index(), session);
                    let turns = self.workload.turn_count(conversation);
                    self.phases.running().schedule.tell_turns(turns);
                }
                Verdict::Done => {
                    running.sending_over = true;
                    self.drop_waiting(now);
                    break;
                }
            }
        }
        self.phases.next_send = until;
        let running = self.phases.running();
        if let Some(deadline) = running.schedule.deadline() {
            until = until.min(if deadline > now {
                deadline
            } else {
                Tick::NEVER
            });
        }
        match running.cut_due(now) {
            Cut::Now(outcome) => {
                running.schedule.halt();
                self.cut(self.phases.number(), outcome, now);
                self.phases.running().sending_over = true;
                self.drop_waiting(now);
            }
            Cut::At(at) => until = until.min(at),
            Cut::Never => {}
        }
        until = until.min(self.tend_tail(now));
        if self.hands_over() {
            return match self.hand_over(now) {
                Some(wait) => until.min(wait),
                None => self.run_phase(now),
            };
        }
        if self.phases.running().sending_over && self.counts.in_flight == 0 {
            self.leave_phase(now);
            return now;
        }
        until
    }

    /// Sessions that wait for a turn that will not come end here, and connections of their own with them.
    fn drop_waiting(&mut self, now: Tick) {
        self.note_not_due();
        self.drop_unheard(now);
        let phase = self.phases.number();
        for session in self.phases.running().take_waiting() {
            self.drop_session(&session, phase, now);
        }
    }

    fn leave_phase(&mut self, now: Tick) {
        let running = self
            .phases
            .running
            .take()
            .expect("only a running phase is left");
        self.count_unsent(&running, now);
        self.phases.used += running.schedule.session_numbers();
        self.phases.next_send = Tick::NEVER;
        self.phases.index += 1;
    }

    /// What the phases that will not begin were to send.
    fn count_never_begun(&mut self, now: Tick) {
        for index in self.phases.index..self.setup.phases.len() {
            let schedule = self.schedule_of(index, now);
            let planned = schedule.counts().planned.unwrap_or(0);
            self.leftover(index).unsent += signed(planned);
        }
    }

    pub(super) fn leftover(&mut self, phase: usize) -> &mut Leftover {
        match self.setup.phases[phase].kind {
            PhaseKind::Warmup => &mut self.counts.warmup,
            PhaseKind::Profiling => &mut self.counts.profiling,
        }
    }

    /// Announces that this worker is ready, and starts the phase when all are.
    fn enter_phase(&mut self, now: Tick) -> Tick {
        let index = self.phases.index;
        if !self.phases.announced {
            if !self.phases.stopped
                && let Some(until) = self.connect_ahead(now)
            {
                return until;
            }
            self.phases.announced = true;
            self.control.used(index, self.phases.used);
            // Whoever waits for the last worker knows how each fared.
            self.control.publish(&self.counts);
            self.control.ready_for(index);
        }
        if self.phases.stopped || index >= self.setup.phases.len() {
            for conn in self.table.ids() {
                self.close(conn);
            }
            self.count_never_begun(now);
            self.finished = true;
            return now;
        }
        let Some(start) = self.control.phase_start(index) else {
            return now.plus(self.setup.rate.ticks(GATE_WAIT));
        };
        if start > now {
            self.phases.next_send = start;
            return start;
        }
        let schedule = self.schedule_of(index, start);
        self.start_phase(schedule);
        self.run_phase(now)
    }

    /// This worker's part of phase `index`, begun at `start`.
    pub(super) fn schedule_of(&self, index: usize, start: Tick) -> Schedule {
        let (seed, rate) = (self.setup.seed, self.setup.rate);
        let plan = &self.setup.phases[index];
        let shard = self.shard.within(&self.setup.phases, index);
        if plan.arrivals == Arrivals::FixedSchedule {
            Schedule::replay(plan, &self.workload.timeline(), shard, rate, start)
        } else {
            Schedule::new(plan, seed, shard, rate, start)
        }
    }

    /// The phase at the index is under way.
    pub(super) fn start_phase(&mut self, schedule: Schedule) {
        let index = self.phases.index;
        self.phases.announced = false;
        self.phases.used = self.control.used_before(index);
        self.workload.go_on(index, self.phases.used);
        self.phases.running = Some(Running::new(schedule));
    }
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
