//! Phases: their start, their sends, their end.
//!
//! In: the plan's phases and the conductor's word. Out: requests begun, and the next time at which something is due.
//! Never: starts a phase before every worker is ready for it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::clock::Tick;
use crate::config::Arrivals;
use crate::record::Outcome;
use crate::schedule::{Schedule, Verdict};

use super::request::Session;
use super::{Engine, GATE_WAIT, LONGEST_WAIT, Stop};

/// Where an engine stands in its list of phases.
pub(super) struct Phases {
    index: usize,
    announced: bool,
    running: Option<Running>,
    /// When the next send is due, as far as it is known.
    next_send: Tick,
    /// No request may follow: the run was stopped.
    stopped: bool,
}

/// A phase under way.
pub(super) struct Running {
    pub(super) schedule: Schedule,
    /// Turns whose think time is over, oldest first.
    pub(super) ready: VecDeque<Session>,
    /// Turns in their think time.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Nothing further will be begun.
    sending_over: bool,
    /// When requests under way are cut, and as what.
    cut_at: Option<(Tick, Outcome)>,
    cut: bool,
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
            next_send: Tick::NEVER,
            stopped: false,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
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

    /// No turn may follow in this phase.
    pub(super) fn is_cut(&self) -> bool {
        self.stopped
            || self
                .running
                .as_ref()
                .is_none_or(|running| running.cut || running.sending_over)
    }
}

impl Running {
    pub(super) fn wait(&mut self, turn: Waiting) {
        self.waiting.push(Reverse(turn));
    }

    /// Turns whose think time is over become ready.
    fn ripen(&mut self, now: Tick) {
        while self.waiting.peek().is_some_and(|turn| turn.0.due <= now) {
            let Some(Reverse(turn)) = self.waiting.pop() else {
                return;
            };
            self.schedule.turn_ready(turn.due);
            self.ready.push_back(turn.session);
        }
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
        self.expire(now);
        self.obey(now);
        let until = if self.phases.running.is_some() {
            self.run_phase(now)
        } else {
            self.enter_phase(now)
        };
        self.control.publish(&self.counts);
        let longest = now.plus(self.setup.rate.ticks(LONGEST_WAIT));
        [self.request_deadlines.first(), self.drain_deadlines.first()]
            .into_iter()
            .flatten()
            .map(|deadline| deadline.at)
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
        if let Some(running) = &mut self.phases.running {
            if first {
                running.schedule.halt();
                let at = now.plus(grace);
                let sooner = running.cut_at.is_none_or(|(planned, _)| at < planned);
                if sooner {
                    running.cut_at = Some((at, Outcome::Interrupted));
                }
            }
            if stop == Stop::Now {
                running.cut_at = Some((now, Outcome::Interrupted));
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
            match running.schedule.next(now) {
                Verdict::Send(intent) => self.begin(intent, now),
                Verdict::WaitUntil(due) => {
                    until = until.min(due);
                    break;
                }
                Verdict::WaitForSlot => break,
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
        if let Some((at, outcome)) = running.cut_at {
            if at <= now && !running.cut {
                running.cut = true;
                running.schedule.halt();
                self.cut(outcome, now);
                self.phases.running().sending_over = true;
                self.drop_waiting(now);
            } else if at > now {
                until = until.min(at);
            }
        }
        if self.phases.running().sending_over && self.counts.in_flight == 0 {
            self.leave_phase(now);
            return now;
        }
        until
    }

    /// Sessions that wait for a turn that will not come end here, and connections of their own with them.
    fn drop_waiting(&mut self, now: Tick) {
        for session in self.phases.running().take_waiting() {
            self.phases.running().schedule.session_ended(now);
            if let Some(conn) = session.own_connection() {
                self.close(conn);
            }
        }
    }

    fn leave_phase(&mut self, now: Tick) {
        let running = self
            .phases
            .running
            .take()
            .expect("only a running phase is left");
        let counts = running.schedule.counts();
        let by_requests = self.setup.phases[self.phases.index].stop.requests.is_some();
        let done = if by_requests {
            counts.sent_requests
        } else {
            counts.started_sessions
        };
        self.counts.unsent += match counts.planned {
            Some(planned) => planned.saturating_sub(done),
            None => running.schedule.unsent_arrivals(now),
        };
        self.phases.next_send = Tick::NEVER;
        self.phases.index += 1;
        self.phases.announced = false;
    }

    /// Announces that this worker is ready, and starts the phase when all are.
    fn enter_phase(&mut self, now: Tick) -> Tick {
        let index = self.phases.index;
        if !self.phases.announced {
            self.phases.announced = true;
            self.control.ready_for(index);
        }
        let Some(plan) = self
            .setup
            .phases
            .get(index)
            .filter(|_| !self.phases.stopped)
        else {
            for conn in self.table.ids() {
                self.close(conn);
            }
            self.finished = true;
            return now;
        };
        let Some(start) = self.control.phase_start(index) else {
            return now.plus(self.setup.rate.ticks(GATE_WAIT));
        };
        if start > now {
            self.phases.next_send = start;
            return start;
        }
        let schedule = if plan.arrivals == Arrivals::FixedSchedule {
            let timeline = self.workload.timeline();
            Schedule::replay(plan, &timeline, self.shard, self.setup.rate, start)
        } else {
            Schedule::new(plan, self.setup.seed, self.shard, self.setup.rate, start)
        };
        let cut_at = schedule.grace_end().map(|at| (at, Outcome::GraceEnded));
        self.phases.running = Some(Running {
            schedule,
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            sending_over: false,
            cut_at,
            cut: false,
        });
        self.run_phase(now)
    }
}
