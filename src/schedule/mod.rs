//! When requests are due, and which.
//!
//! In: a phase's plan, the seed, the shard. Out: [`Verdict`]s, each a pure function of what was asked before.
//! Never: a clock, I/O, or a due time of an arrival that depends on when an earlier request was really sent.

mod arrivals;
mod cancellation;
mod deal;
mod handover;
mod late;
mod replay;
mod rotation;
mod slots;
mod users;

use std::collections::VecDeque;

use crate::clock::{Nanos, Rate, Tick};
use crate::config::{self, PhasePlan};
use arrivals::Arrivals;
pub use cancellation::CancellationDraw;
use deal::Deal;
use replay::Replay;
pub use replay::{Players, Timeline};
pub use rotation::url_order;
use slots::{Opening, Slots};
pub use users::Course;
use users::Users;

/// One phase on one worker.
///
/// In the closed loop a request is due when its slot came free, or when its think time was over. With a rate, requests are due
/// at absolute times laid down before the first is sent; an arrival that finds no free slot waits and keeps its due time, so
/// that a slow server shows as lateness and not as a lower rate.
///
/// Slots, sessions and requests are dealt out for good at the start: shares sum exactly to the plan's numbers, and no worker
/// ever asks another. A worker without a slot sends nothing. Where there are fewer prefill slots than workers, only as many workers
/// as there are prefill slots take part, so that each of them has one: a worker with sessions and no prefill slot would starve.
///
/// ```
/// use tokenring::clock::{Nanos, Rate, Tick};
/// use tokenring::config::{Arrivals, LatePolicy, PhaseKind, PhasePlan, SlotPlan, StopRule};
/// use tokenring::schedule::{Intent, IntentKind, Schedule, Shard, Verdict};
///
/// let plan = PhasePlan {
///     kind: PhaseKind::Profiling,
///     seamless: false,
///     arrivals: Arrivals::constant(1_000.0),
///     concurrency: None,
///     slots: SlotPlan::default(),
///     late: LatePolicy::default(),
///     stop: StopRule { requests: Some(1), ..StopRule::default() },
///     grace: None,
/// };
/// let only = Shard { index: 0, count: 1 };
/// let mut schedule = Schedule::new(&plan, 0, only, Rate::NANOS, Tick(0));
/// let due = Tick(1_000_000);
/// assert_eq!(schedule.next(Tick(0)), Verdict::WaitUntil(due));
/// let kind = IntentKind::Start { session: 0 };
/// assert_eq!(schedule.next(due), Verdict::Send(Intent { due, slot: due, kind }));
/// assert_eq!(schedule.next_request_number(), 0);
/// assert_eq!(schedule.next(due), Verdict::Done);
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    deal: Deal,
    pace: Pace,
    /// What limits the sessions open at once on this worker.
    slots: Option<Slots>,
    /// What limits its requests without a first content; every turn takes one.
    prefill: Option<Slots>,
    /// This worker's share of the request stop.
    request_limit: Option<u64>,
    /// This worker's share of the session stop.
    session_limit: Option<u64>,
    deadline: Option<Tick>,
    grace_end: Option<Tick>,
    halted: bool,
    /// How late, in ticks, an arrival may be sent; later ones are left out.
    latest: Option<u64>,
    /// Arrivals left out.
    skipped: u64,
    /// When the last of those was due.
    last_skipped: Option<Tick>,
    /// Verdicts that said `Send`.
    issued: u64,
    /// Numbers given out; never more than `issued`.
    numbered: u64,
    started: u64,
    open: u64,
    /// Of the session that started last, with users.
    course: Option<Course>,
}

/// What makes a request due.
#[derive(Clone, Debug)]
enum Pace {
    /// A free slot, or a turn whose think time is over: those, oldest first, never more than slots.
    Slots { ready: VecDeque<Tick> },
    /// An arrival. It takes a ready turn before it starts a session.
    Arrivals { arrivals: Arrivals, ready: u64 },
    /// A trace's own times.
    Replay(Replay),
    /// A user's time to speak.
    Users(Box<Users>),
}

/// Which part of the load a worker carries. `index` runs over all workers of a run, `count` over those that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This worker, from 0.
    pub index: usize,
    /// Workers that take part, at least 1; see [`Shard::within`].
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
    /// Say with [`Schedule::tell_turns`] how many turns this session has, and ask again. Only with users, whose sessions follow one
    /// another; the session may be another worker's.
    NeedTurns {
        /// Number of the session within its phase, from 0.
        session: u64,
    },
    /// Nothing further will be sent in this phase.
    Done,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Intended send time.
    pub due: Tick,
    /// Since when it could be sent: when it was due, or when the last of the slots that it takes came free.
    pub slot: Tick,
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
    /// Arrivals left out because they were late.
    pub skipped: u64,
    /// When the last of those was due.
    pub last_skipped: Option<Tick>,
}

impl Schedule {
    /// The part of `phase` that falls to `shard`, begun at `start`. `rate` turns the plan's lengths of time into ticks.
    ///
    /// A closed loop without a concurrency has one slot. Everything that grows is allocated here.
    ///
    /// A fixed schedule has times of its own: see [`Schedule::replay`].
    #[must_use]
    pub fn new(phase: &PhasePlan, seed: u64, shard: Shard, rate: Rate, start: Tick) -> Schedule {
        let mut concurrency = phase.concurrency.map(|most| most as u64);
        let prefill = phase.slots.prefill.map(|most| most as u64);
        let by_arrivals = Deal::by_arrivals(shard, concurrency, prefill);
        let place = (shard.index as u64, by_arrivals.cycle());
        let deadline = phase.stop.duration.map(|d| start.plus(rate.ticks(d)));
        let (deal, pace) = match &phase.arrivals {
            config::Arrivals::Users(plan) => {
                let deal = Deal::by_users(shard, u64::from(plan.users), concurrency, prefill);
                let users = Users::new(*plan, deal, phase.stop, (rate, start, deadline));
                (deal, Pace::Users(Box::new(users)))
            }
            _ => match Arrivals::new(phase, seed, place, rate, start) {
                Some(arrivals) => (by_arrivals, Pace::Arrivals { arrivals, ready: 0 }),
                None => {
                    let most = *concurrency.get_or_insert(1);
                    let deal = Deal::by_slots(shard, most, prefill);
                    let ready =
                        VecDeque::with_capacity(usize::try_from(deal.places()).unwrap_or(0));
                    (deal, Pace::Slots { ready })
                }
            },
        };
        Schedule::build(phase, shard, (rate, start), (deal, pace, concurrency))
    }

    fn build(
        phase: &PhasePlan,
        shard: Shard,
        (rate, start): (Rate, Tick),
        (deal, pace, concurrency): (Deal, Pace, Option<u64>),
    ) -> Schedule {
        let prefill = phase.slots.prefill.map(|most| most as u64);
        let deadline = phase.stop.duration.map(|d| start.plus(rate.ticks(d)));
        let slots = |total: u64, ramp: Option<Nanos>| {
            let opening = Opening {
                total,
                stride: deal.stride(),
                index: shard.index as u64,
                start,
                length: ramp.map_or(0, |length| rate.ticks(length)),
            };
            Slots::new(
                deal::share_of(total, opening.stride, opening.index),
                opening,
            )
        };
        Schedule {
            deal,
            pace,
            slots: concurrency.map(|most| slots(most, phase.slots.concurrency_ramp)),
            prefill: prefill.map(|most| slots(most, phase.slots.prefill_ramp)),
            request_limit: phase.stop.requests.map(|total| deal.share(total)),
            session_limit: phase.stop.sessions.map(|total| deal.share(total)),
            deadline,
            grace_end: deadline
                .zip(phase.grace)
                .map(|(end, grace)| end.plus(rate.ticks(grace))),
            halted: false,
            latest: late::latest(phase, rate),
            skipped: 0,
            last_skipped: None,
            issued: 0,
            numbered: 0,
            started: 0,
            open: 0,
            course: None,
        }
    }

    /// Workers, from the first on, that have a slot of every kind that `phase` limits; the others send nothing.
    #[must_use]
    pub fn stride(phase: &PhasePlan, shard: Shard) -> u64 {
        let closed = phase.arrivals == config::Arrivals::ClosedLoop;
        let concurrency = phase.concurrency.or(closed.then_some(1));
        let limits = [concurrency, phase.slots.prefill];
        let [concurrency, prefill] = limits.map(|most| most.map(|most| most as u64));
        match &phase.arrivals {
            config::Arrivals::Users(plan) => {
                Deal::by_users(shard, u64::from(plan.users), concurrency, prefill).stride()
            }
            _ => Deal::by_arrivals(shard, concurrency, prefill).stride(),
        }
    }

    /// What to do at `now`. `Send` takes the intent out of the schedule: send it and ask for its number.
    pub fn next(&mut self, now: Tick) -> Verdict {
        self.skip_late(now);
        if self.is_over(now) {
            return Verdict::Done;
        }
        let may_start = !self.sessions_used_up();
        let slot_free = free_at(self.slots.as_ref());
        let prefill_free = free_at(self.prefill.as_ref());
        let open = self.open;
        let verdict = match &mut self.pace {
            Pace::Users(users) => {
                let next = match wait_for(prefill_free, now) {
                    Ok(_) => users.next(now, slot_free <= now),
                    Err(wait) => Err(wait),
                };
                return self.speak(next, now, slot_free);
            }
            Pace::Slots { ready } => {
                let (slot, starts) = match ready.front() {
                    Some(&ready) => (ready, false),
                    None if may_start => (slot_free, true),
                    None => (Tick::NEVER, false),
                };
                // Due when the last of what it needs came free: nothing was meant to be sent before.
                wait_for(slot.max(prefill_free), now).map(|due| {
                    if !starts {
                        ready.pop_front();
                    }
                    (due, starts)
                })
            }
            Pace::Arrivals { arrivals, ready } => {
                let starts = *ready == 0;
                let due = arrivals.due();
                let slot = if starts { slot_free } else { Tick(0) };
                if self.deadline.is_some_and(|deadline| due >= deadline) {
                    Err(Verdict::Done)
                } else if starts && !may_start {
                    Err(Verdict::WaitForSlot)
                } else if due > now {
                    Err(Verdict::WaitUntil(due))
                } else {
                    wait_for(slot.max(prefill_free), now).map(|_| {
                        *ready -= u64::from(!starts);
                        arrivals.advance();
                        (due, starts)
                    })
                }
            }
            Pace::Replay(replay) => {
                let session = may_start.then(|| self.deal.number(self.started));
                match replay.pull(session, self.deadline, (slot_free, prefill_free), now) {
                    Err(Verdict::Done) if open > 0 => Err(Verdict::WaitForSlot),
                    pulled => pulled,
                }
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
            Pace::Users(users) => users.turn_ready(at),
            Pace::Slots { ready } => ready.push_back(at),
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
        if let Some(slots) = &mut self.slots {
            slots.give_back(now);
        }
    }

    /// A request had its first content, or ended without any, at `at`: its prefill slot is free since then. Once for each `Send`;
    /// without a limit on prefill it does nothing.
    pub fn prefill_ended(&mut self, at: Tick) {
        if let Some(slots) = &mut self.prefill {
            slots.give_back(at);
        }
    }

    /// Whether the requests of this phase hold prefill slots.
    #[must_use]
    pub fn limits_prefill(&self) -> bool {
        self.prefill.is_some()
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
            skipped: self.skipped,
            last_skipped: self.last_skipped,
        }
    }

    fn issue(&mut self, due: Tick, starts: bool) -> Intent {
        self.issued += 1;
        let mut slot = due;
        if let Some(slots) = &mut self.prefill {
            slot = slot.max(slots.free_at());
            slots.take();
        }
        let kind = if starts {
            if let Some(slots) = &mut self.slots {
                slot = slot.max(slots.free_at());
                slots.take();
            }
            let session = self.deal.number(self.started);
            self.started += 1;
            self.open += 1;
            IntentKind::Start { session }
        } else {
            IntentKind::Continue
        };
        Intent { due, slot, kind }
    }

    /// No stop rule lets another request go, whatever becomes ready.
    fn is_over(&self, now: Tick) -> bool {
        self.halted
            || self.deal.places() == 0
            || self
                .request_limit
                .is_some_and(|most| self.issued + self.skipped >= most)
            || self.deadline.is_some_and(|deadline| now >= deadline)
    }

    fn sessions_used_up(&self) -> bool {
        if let Pace::Users(users) = &self.pace {
            return users.is_over();
        }
        self.session_limit.is_some_and(|most| self.started >= most)
    }

    fn ready_count(&self) -> u64 {
        match &self.pace {
            Pace::Slots { ready } => ready.len() as u64,
            Pace::Arrivals { ready, .. } => *ready,
            Pace::Replay(replay) => replay.ready_count(),
            Pace::Users(users) => users.ready_count(),
        }
    }
}

/// Since or from when one of `slots` is free; always where nothing limits.
fn free_at(slots: Option<&Slots>) -> Tick {
    slots.map_or(Tick(0), Slots::free_at)
}

/// `at`, once it has come.
fn wait_for(at: Tick, now: Tick) -> Result<Tick, Verdict> {
    match at {
        Tick::NEVER => Err(Verdict::WaitForSlot),
        due if due > now => Err(Verdict::WaitUntil(due)),
        due => Ok(due),
    }
}
