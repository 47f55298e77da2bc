//! When requests are due, and which.
//!
//! In: a phase's plan, the seed, the shard. Out: [`Verdict`]s, each a pure function of what was asked before.
//! Never: a clock, I/O, or a due time of an arrival that depends on when an earlier request was really sent.

mod arrivals;
mod deal;
mod replay;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::{Nanos, Rate, Tick};
use crate::config::PhasePlan;
use arrivals::Arrivals;
use deal::Deal;
use replay::Replay;
pub use replay::Timeline;

/// One phase on one worker.
///
/// In the closed loop a request is due when its slot came free, or when its think time was over. With a rate, requests are due
/// at absolute times laid down before the first is sent; an arrival that finds no free slot waits and keeps its due time, so
/// that a slow server shows as lateness and not as a lower rate.
///
/// Slots, sessions and requests are dealt out for good at the start: shares sum exactly to the plan's numbers, and no worker
/// ever asks another. A worker without a slot sends nothing.
///
/// ```
/// use tokenring::clock::{Nanos, Rate, Tick};
/// use tokenring::config::{Arrivals, PhaseKind, PhasePlan, StopRule};
/// use tokenring::schedule::{Intent, IntentKind, Schedule, Shard, Verdict};
///
/// let plan = PhasePlan {
///     kind: PhaseKind::Profiling,
///     arrivals: Arrivals::Constant { rate: 1_000.0 },
///     concurrency: None,
///     stop: StopRule { requests: Some(1), ..StopRule::default() },
///     grace: None,
/// };
/// let only = Shard { index: 0, count: 1 };
/// let mut schedule = Schedule::new(&plan, 0, only, Rate::NANOS, Tick(0));
/// let due = Tick(1_000_000);
/// assert_eq!(schedule.next(Tick(0)), Verdict::WaitUntil(due));
/// let kind = IntentKind::Start { session: 0 };
/// assert_eq!(schedule.next(due), Verdict::Send(Intent { due, kind }));
/// assert_eq!(schedule.next_request_number(), 0);
/// assert_eq!(schedule.next(due), Verdict::Done);
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    deal: Deal,
    pace: Pace,
    /// Most sessions open at once on this worker.
    slots: Option<u64>,
    /// This worker's share of the request stop.
    request_limit: Option<u64>,
    /// This worker's share of the session stop.
    session_limit: Option<u64>,
    deadline: Option<Tick>,
    grace_end: Option<Tick>,
    halted: bool,
    /// Verdicts that said `Send`.
    issued: u64,
    /// Numbers given out; never more than `issued`.
    numbered: u64,
    started: u64,
    open: u64,
}

/// What makes a request due.
#[derive(Clone, Debug)]
enum Pace {
    /// A free slot, or a turn whose think time is over; both oldest first. Never longer than the number of slots.
    Slots {
        free: VecDeque<Tick>,
        ready: VecDeque<Tick>,
    },
    /// An arrival. It takes a ready turn before it starts a session.
    Arrivals { arrivals: Arrivals, ready: u64 },
    /// A trace's own times.
    Replay(Replay),
}

/// Which part of the load a worker carries. `index` and `count` run over all workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This worker, from 0.
    pub index: usize,
    /// Workers in all, at least 1.
    pub count: usize,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this now (or late, if `due` is past).
    Send(Intent),
    /// Nothing is due before this tick. A turn that becomes ready may be due earlier in the closed loop: ask again then.
    WaitUntil(Tick),
    /// Nothing can be sent before an open session ends or has a turn ready; ask again then, and at the deadline.
    WaitForSlot,
    /// Nothing further will be sent in this phase.
    Done,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Intended send time.
    pub due: Tick,
    /// What it is.
    pub kind: IntentKind,
}

/// What a request does to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentKind {
    /// The first turn of a new session.
    Start {
        /// Number of the session within its phase over all workers, from 0.
        session: u64,
    },
    /// The ready turn that has waited longest.
    Continue,
}

/// Where a schedule stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// This worker's share of the request stop, or of the session stop where there is no request stop.
    pub planned: Option<u64>,
    /// Sessions started.
    pub started_sessions: u64,
    /// Requests sent, first turns included.
    pub sent_requests: u64,
    /// Sessions started and not ended: slots taken.
    pub open_sessions: u64,
}

impl Schedule {
    /// The part of `phase` that falls to `shard`, begun at `start`. `rate` turns the plan's lengths of time into ticks.
    ///
    /// A closed loop without a concurrency has one slot. Everything that grows is allocated here.
    ///
    /// A fixed schedule has times of its own: see [`Schedule::replay`].
    #[must_use]
    pub fn new(phase: &PhasePlan, seed: u64, shard: Shard, rate: Rate, start: Tick) -> Schedule {
        let concurrency = phase.concurrency.map(|most| most as u64);
        let by_arrivals = Deal::by_arrivals(shard, concurrency);
        let place = (shard.index as u64, by_arrivals.cycle());
        let (deal, pace, slots) = match Arrivals::new(phase.arrivals, seed, place, rate, start) {
            Some(arrivals) => {
                let slots = concurrency
                    .map(|most| deal::share_of(most, shard.count as u64, shard.index as u64));
                (by_arrivals, Pace::Arrivals { arrivals, ready: 0 }, slots)
            }
            None => {
                let deal = Deal::by_slots(shard, concurrency.unwrap_or(1));
                (deal, Pace::slots(deal.places(), start), Some(deal.places()))
            }
        };
        Schedule::build(phase, shard, (rate, start), (deal, pace, slots))
    }

    /// The part of `timeline` that falls to `shard`: worker i of n has the sessions i, i + n, ... of it, so that all together begin
    /// what one worker alone would, at the same times. Every session is played once, to its end; the phase's concurrency is a cap.
    #[must_use]
    pub fn replay(
        phase: &PhasePlan,
        timeline: &Arc<Timeline>,
        shard: Shard,
        rate: Rate,
        start: Tick,
    ) -> Schedule {
        let concurrency = phase.concurrency.map(|most| most as u64);
        let deal = Deal::by_arrivals(shard, concurrency);
        let slots =
            concurrency.map(|most| deal::share_of(most, shard.count as u64, shard.index as u64));
        let pace = Pace::Replay(Replay::new(timeline, rate, start));
        let mut schedule = Schedule::build(phase, shard, (rate, start), (deal, pace, slots));
        let sessions = deal.share(timeline.len() as u64);
        let asked = schedule.session_limit.unwrap_or(sessions);
        schedule.session_limit = Some(asked.min(sessions));
        schedule
    }

    fn build(
        phase: &PhasePlan,
        shard: Shard,
        (rate, start): (Rate, Tick),
        (deal, pace, slots): (Deal, Pace, Option<u64>),
    ) -> Schedule {
        assert!(
            shard.index < shard.count,
            "worker {} of {} does not exist",
            shard.index,
            shard.count
        );
        let deadline = phase.stop.duration.map(|d| start.plus(rate.ticks(d)));
        Schedule {
            deal,
            pace,
            slots,
            request_limit: phase.stop.requests.map(|total| deal.share(total)),
            session_limit: phase.stop.sessions.map(|total| deal.share(total)),
            deadline,
            grace_end: deadline
                .zip(phase.grace)
                .map(|(end, grace)| end.plus(rate.ticks(grace))),
            halted: false,
            issued: 0,
            numbered: 0,
            started: 0,
            open: 0,
        }
    }

    /// What to do at `now`. `Send` takes the intent out of the schedule: send it and ask for its number.
    pub fn next(&mut self, now: Tick) -> Verdict {
        if self.is_over(now) {
            return Verdict::Done;
        }
        let may_start = !self.sessions_used_up();
        let has_slot = self.slots.is_none_or(|slots| self.open < slots);
        let open = self.open;
        // A worker that was dealt no place has no number to ask for, and is over before this.
        let session = may_start.then(|| self.deal.number(self.started));
        let verdict = match &mut self.pace {
            Pace::Slots { free, ready } => {
                let (queue, starts) = if ready.is_empty() && may_start {
                    (free, true)
                } else {
                    (ready, false)
                };
                pull(queue, now).map(|due| (due, starts))
            }
            Pace::Arrivals { arrivals, ready } => {
                let starts = *ready == 0;
                let due = arrivals.due();
                if self.deadline.is_some_and(|deadline| due >= deadline) {
                    Err(Verdict::Done)
                } else if starts && !may_start {
                    Err(Verdict::WaitForSlot)
                } else if due > now {
                    Err(Verdict::WaitUntil(due))
                } else if starts && !has_slot {
                    Err(Verdict::WaitForSlot)
                } else {
                    *ready -= u64::from(!starts);
                    arrivals.advance();
                    Ok((due, starts))
                }
            }
            Pace::Replay(replay) => {
                // Past the deadline nothing begins any more, but an open session may still have a turn before it.
                let begins = session.and_then(|session| replay.begins(session));
                let late = begins
                    .zip(self.deadline)
                    .is_some_and(|(due, end)| due >= end);
                pull_replay(replay, session.filter(|_| !late), has_slot, now).map_err(|verdict| {
                    match verdict {
                        Verdict::WaitForSlot if late && open == 0 => Verdict::Done,
                        other => other,
                    }
                })
            }
        };
        match verdict {
            Ok((due, starts)) => Verdict::Send(self.issue(due, starts)),
            // With no session open there is nothing that could still become ready.
            Err(Verdict::WaitForSlot) if !may_start && open == 0 => Verdict::Done,
            Err(other) => other,
        }
    }

    /// A later turn of an open session could be sent since `at`, which is not after now: its predecessor has ended and its think
    /// time is over.
    pub fn turn_ready(&mut self, at: Tick) {
        let used_up = self.sessions_used_up();
        match &mut self.pace {
            Pace::Slots { ready, .. } => ready.push_back(at),
            Pace::Arrivals { arrivals, ready } => {
                // Once all sessions have started, arrivals that pass while every session thinks or waits for its reply have
                // nothing to send. They are no backlog: the turn takes the first arrival after it was ready.
                while used_up && *ready == 0 && arrivals.due() < at {
                    arrivals.advance();
                }
                *ready += 1;
            }
            Pace::Replay(replay) => replay.turn_ready(at),
        }
        debug_assert!(
            self.ready_count() <= self.open,
            "more turns are ready than sessions open"
        );
    }

    /// A session is over, whole or broken; its slot is free from `now` on.
    pub fn session_ended(&mut self, now: Tick) {
        assert!(self.open > 0, "a session ended that was not open");
        self.open -= 1;
        if let Pace::Slots { free, .. } = &mut self.pace {
            free.push_back(now);
        }
    }

    /// Number, over all workers of the phase and from 0, of the request that the last `Send` asked for. Call it once for each.
    pub fn next_request_number(&mut self) -> u64 {
        assert!(
            self.numbered < self.issued,
            "a number was asked for without a request to send"
        );
        let number = self.deal.number(self.numbered);
        self.numbered += 1;
        number
    }

    /// The conversation that `session` plays, where the schedule says it: in a replay.
    #[must_use]
    pub fn conversation(&self, session: u64) -> Option<u32> {
        match &self.pace {
            Pace::Replay(replay) => replay.conversation(session),
            Pace::Slots { .. } | Pace::Arrivals { .. } => None,
        }
    }

    /// The tick of a later turn's own time, `after` the phase's start, where such times are followed: in a replay. It may be past:
    /// the turn is then late from the beginning, and says so.
    #[must_use]
    pub fn own_time(&self, after: Nanos) -> Option<Tick> {
        match &self.pace {
            Pace::Replay(replay) => Some(replay.at(after)),
            Pace::Slots { .. } | Pace::Arrivals { .. } => None,
        }
    }

    /// Nothing further is to be sent: interrupt or abort.
    pub fn halt(&mut self) {
        self.halted = true;
    }

    /// When sending ends by the clock.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        self.deadline
    }

    /// When requests in flight are to be cut; `None` waits for all.
    #[must_use]
    pub fn grace_end(&self) -> Option<Tick> {
        self.grace_end
    }

    /// Where it stands.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            planned: self.request_limit.or(self.session_limit),
            started_sessions: self.started,
            sent_requests: self.issued,
            open_sessions: self.open,
        }
    }

    /// Arrivals that were due before `until` (and the deadline) and stayed unsent, within the request and session stops: what a
    /// rate promised and slots did not allow. 0 in the closed loop. Walks over them, so it is for the end of a phase.
    #[must_use]
    pub fn unsent_arrivals(&self, until: Tick) -> u64 {
        let Pace::Arrivals { arrivals, .. } = &self.pace else {
            return 0;
        };
        if self.deal.places() == 0 {
            return 0;
        }
        let requests_left = self.request_limit.map(|most| most - self.issued);
        let sessions_left = self.session_limit.map(|most| most - self.started);
        let most = requests_left
            .into_iter()
            .chain(sessions_left)
            .min()
            .unwrap_or(u64::MAX);
        let until = self.deadline.map_or(until, |end| end.min(until));
        let mut arrivals = arrivals.clone();
        let mut count = 0;
        while count < most && arrivals.due() < until {
            arrivals.advance();
            count += 1;
        }
        count
    }

    fn issue(&mut self, due: Tick, starts: bool) -> Intent {
        self.issued += 1;
        let kind = if starts {
            let session = self.deal.number(self.started);
            self.started += 1;
            self.open += 1;
            IntentKind::Start { session }
        } else {
            IntentKind::Continue
        };
        Intent { due, kind }
    }

    /// No stop rule lets another request go, whatever becomes ready.
    fn is_over(&self, now: Tick) -> bool {
        self.halted
            || self.deal.places() == 0
            || self.request_limit.is_some_and(|most| self.issued >= most)
            || self.deadline.is_some_and(|deadline| now >= deadline)
    }

    fn sessions_used_up(&self) -> bool {
        self.session_limit.is_some_and(|most| self.started >= most)
    }

    fn ready_count(&self) -> u64 {
        match &self.pace {
            Pace::Slots { ready, .. } => ready.len() as u64,
            Pace::Arrivals { ready, .. } => *ready,
            Pace::Replay(replay) => replay.ready_count(),
        }
    }
}

impl Pace {
    /// `count` slots, free since `start`.
    fn slots(count: u64, start: Tick) -> Pace {
        let free: VecDeque<Tick> = (0..count).map(|_| start).collect();
        let ready = VecDeque::with_capacity(free.len());
        Pace::Slots { free, ready }
    }
}

/// Takes what is due first: a ready turn, or the beginning of `session` if there is a slot for it.
fn pull_replay(
    replay: &mut Replay,
    session: Option<u64>,
    has_slot: bool,
    now: Tick,
) -> Result<(Tick, bool), Verdict> {
    match replay.first(session) {
        None => Err(Verdict::WaitForSlot),
        Some((due, _)) if due > now => Err(Verdict::WaitUntil(due)),
        Some((due, true)) if has_slot => Ok((due, true)),
        // A beginning that waits for a slot must not hold up the turns that will free one.
        Some((_, true)) if replay.turn().is_none() => Err(Verdict::WaitForSlot),
        Some((due, _)) => {
            let due = replay.turn().unwrap_or(due);
            replay.take_turn();
            Ok((due, false))
        }
    }
}

/// Takes the oldest of `queue` if it is not after `now`.
fn pull(queue: &mut VecDeque<Tick>, now: Tick) -> Result<Tick, Verdict> {
    match queue.front() {
        None => Err(Verdict::WaitForSlot),
        Some(&due) if due > now => Err(Verdict::WaitUntil(due)),
        Some(&due) => {
            queue.pop_front();
            Ok(due)
        }
    }
}
