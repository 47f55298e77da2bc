//! Users who each talk at a pace of their own, and together at a rate.
//!
//! In: the rate, the number of users, how many turns a session has. Out: when which session starts, and when its turns are due.
//! Never: a random number, a clock, or a session's start that depends on how fast the server answers.
//!
//! With U users and R requests a second, a user's turns are U/R apart. Each user has a lane: lane o sends at o/R, (o + U)/R,
//! (o + 2U)/R and so on, first one user's turns, then the next user's. So request m of the phase is due at m/R and belongs to
//! lane m mod U, whatever the lengths of the sessions, and lanes can be dealt to workers like slots. Only which session a lane
//! plays hangs on all lanes, since sessions are numbered in the order of their starts: each worker follows them all.
//!
//! At the start users are in mid-conversation, each at another age. Of a session of L + 1 turns the i-th of U users has
//! ceil(i L / U) turns left, and the oldest (i = 0) has none: a new user takes his lane, and is the first to speak.

use std::collections::VecDeque;

use super::deal::Deal;
use super::rotation::divisor;
use super::{Intent, IntentKind, Pace, Schedule, Verdict};
use crate::clock::{Nanos, Rate, Tick};
use crate::config::{StopRule, UsersPlan};

/// Numbers that are followed in one go before a look at whether the rest can wait: bounds how long one question takes.
const STRIDE: u32 = 1_024;

/// The pace of all users, as one worker sees it.
#[derive(Clone, Debug)]
pub(super) struct Users {
    beat: Beat,
    deal: Deal,
    stop: StopRule,
    deadline: Option<Tick>,
    /// Turns that are left to the user in each lane, over all workers.
    left: Vec<u32>,
    /// The user who is in each lane at the start: his place in the order of ages, 0 for the one who replaces the oldest.
    ages: Vec<u32>,
    /// Gaps between the first and the last turn of a whole session, at least 1.
    lifetime: u64,
    /// The request that is looked at next.
    number: u64,
    /// The next session to start after those of the first round.
    session: u64,
    /// Turns of the session that was asked for.
    told: Option<u32>,
    upcoming: Option<Course>,
    /// No further session starts on this worker.
    over: bool,
    /// Later turns that are due, oldest first.
    ready: VecDeque<Tick>,
}

/// When the requests of a phase are due.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Beat {
    rate: f64,
    clock: Rate,
    start: Tick,
}

impl Beat {
    /// `count` requests after `from`: a quotient, so that nothing adds up.
    fn after(&self, from: Tick, count: u64) -> Tick {
        let seconds = count as f64 / self.rate;
        from.plus(self.clock.ticks(Nanos::from_seconds(seconds)))
    }
}

/// What is planned for one user's session. The engine keeps it with the session, and asks it what comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Number of the session within its phase, from 0.
    pub session: u64,
    /// Number of the user, which is the session's name. AIPerf counts from 1, and the first is the one whose session was over
    /// before the start.
    pub user: u64,
    /// Turns to be played, at least 1.
    pub turns: u32,
    /// Number of its first request.
    first: u64,
    /// Requests of the phase from one of its turns to the next.
    step: u64,
    beat: Beat,
    /// Turns are due as long after this as their numbers are after `anchor_number`: the phase's start, or the last turn that was
    /// late.
    anchor: Tick,
    anchor_number: u64,
}

impl Course {
    /// Number of the request for `turn`, within the phase and over all workers.
    #[must_use]
    pub fn number(&self, turn: u32) -> u64 {
        self.first + u64::from(turn) * self.step
    }

    /// When `turn` is due if its predecessor has ended at `now`: one gap after that was due, or now if that is past. What comes
    /// after a late turn counts from it.
    pub fn next_due(&mut self, turn: u32, now: Tick) -> Tick {
        let number = self.number(turn);
        let due = self.beat.after(self.anchor, number - self.anchor_number);
        if due < now {
            (self.anchor, self.anchor_number) = (now, number);
        }
        due.max(now)
    }

    fn due(&self) -> Tick {
        self.beat.after(self.beat.start, self.first)
    }
}

impl Users {
    pub(super) fn new(
        plan: UsersPlan,
        deal: Deal,
        stop: StopRule,
        (clock, start, deadline): (Rate, Tick, Option<Tick>),
    ) -> Users {
        let lifetime = u64::from(plan.turns.saturating_sub(1).max(1));
        let ages = ages(plan.users, lifetime);
        Users {
            beat: Beat {
                rate: plan.rate,
                clock,
                start,
            },
            deal,
            stop,
            deadline,
            left: vec![0; ages.len()],
            ready: VecDeque::with_capacity(ages.len()),
            session: ages.len() as u64,
            ages,
            lifetime,
            number: 0,
            told: None,
            upcoming: None,
            over: false,
        }
    }

    /// The next start or ready turn, the earlier one first: when it was due, and the course of one that starts.
    pub(super) fn next(
        &mut self,
        now: Tick,
        has_slot: bool,
    ) -> Result<(Tick, Option<Course>), Verdict> {
        let seen = self.seek(now)?;
        let start = self.upcoming.filter(|_| has_slot);
        let turn = self.ready.front().copied();
        match (start.filter(|start| start.due() <= now), turn) {
            (Some(start), turn) if turn.is_none_or(|turn| start.due() < turn) => {
                self.upcoming = None;
                Ok((start.due(), Some(start)))
            }
            (_, Some(turn)) => {
                self.ready.pop_front();
                Ok((turn, None))
            }
            _ => Err(match (start, seen) {
                (Some(start), _) => Verdict::WaitUntil(start.due()),
                (None, Some(until)) => Verdict::WaitUntil(until),
                (None, None) => Verdict::WaitForSlot,
            }),
        }
    }

    /// Turns of the session that [`Verdict::NeedTurns`] asked for.
    pub(super) fn tell_turns(&mut self, turns: u32) {
        self.told = Some(turns);
    }

    /// A later turn was due at `at`.
    pub(super) fn turn_ready(&mut self, at: Tick) {
        self.ready.push_back(at);
    }

    pub(super) fn ready_count(&self) -> u64 {
        self.ready.len() as u64
    }

    /// No further session starts on this worker.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Requests of this worker that were due before `until`, if sessions start for ever.
    pub(super) fn due_before(&self, until: Tick) -> u64 {
        let seconds = self
            .beat
            .clock
            .nanos(until.since(self.beat.start))
            .seconds();
        let mut count = whole(seconds * self.beat.rate);
        // The product may be off by a rounding; the due times themselves decide.
        while count > 0 && self.beat.after(self.beat.start, count - 1) >= until {
            count -= 1;
        }
        while self.beat.after(self.beat.start, count) < until {
            count += 1;
        }
        self.deal.share(count)
    }

    /// Follows all lanes to this worker's next start. `Some` says until when none can be due, where it is not known yet.
    fn seek(&mut self, now: Tick) -> Result<Option<Tick>, Verdict> {
        let mut budget = STRIDE;
        while self.upcoming.is_none() && !self.over {
            if budget == 0 {
                let until = self.beat.after(self.beat.start, self.number);
                if until > now {
                    return Ok(Some(until));
                }
                budget = STRIDE;
            }
            budget -= 1;
            self.step()?;
        }
        Ok(None)
    }

    /// Looks at one request: does a session start with it?
    fn step(&mut self) -> Result<(), Verdict> {
        let (number, users) = (self.number, self.left.len() as u64);
        let first_round = number < users;
        let sessions_over = |next| self.stop.sessions.is_some_and(|most| next >= most);
        if self.stop.requests.is_some_and(|most| number >= most)
            || (!first_round && sessions_over(self.session))
        {
            self.over = true;
            return Ok(());
        }
        let lane = index(number % users);
        if self.left[lane] > 0 {
            self.left[lane] -= 1;
            self.number += 1;
            return Ok(());
        }
        let (session, most) = match self.ages[lane] {
            _ if !first_round => (self.session, u32::MAX),
            0 => (users - 1, u32::MAX),
            age => {
                let left = (u64::from(age) * self.lifetime).div_ceil(users);
                (u64::from(age) - 1, u32::try_from(left).unwrap_or(u32::MAX))
            }
        };
        if sessions_over(session) {
            self.number += 1;
            return Ok(());
        }
        let Some(turns) = self.told.take() else {
            return Err(Verdict::NeedTurns { session });
        };
        let turns = turns.min(most).max(1);
        self.left[lane] = turns - 1;
        self.session += u64::from(!first_round);
        self.number += 1;
        if self.deal.owns(number) {
            self.plan(session, number, turns);
        }
        Ok(())
    }

    fn plan(&mut self, session: u64, first: u64, turns: u32) {
        let step = self.left.len() as u64;
        // Turns past the request stop are never sent, so that exactly the numbers below it are.
        let allowed = self
            .stop
            .requests
            .map_or(u64::MAX, |most| (most - first).div_ceil(step));
        let course = Course {
            session,
            user: session + 2,
            turns: turns.min(u32::try_from(allowed).unwrap_or(u32::MAX)),
            first,
            step,
            beat: self.beat,
            anchor: self.beat.start,
            anchor_number: 0,
        };
        if self.deadline.is_some_and(|end| course.due() >= end) {
            self.over = true;
        } else {
            self.upcoming = Some(course);
        }
    }
}

/// Who is in each lane at the start, as AIPerf seats them: in the order of ages where that fills every lane once, and a step apart
/// where it would not, because users and gaps share a factor. The step is the smallest above 1 that shares none with the users.
fn ages(users: u32, lifetime: u64) -> Vec<u32> {
    let count = u64::from(users);
    let shares = divisor(count, lifetime) > 1;
    let step = (2..count)
        .find(|&step| divisor(count, step) == 1)
        .unwrap_or(1);
    let mut ages = vec![0; index(count)];
    for age in 1..users {
        let place = u64::from(age);
        let seat = if shares {
            place * step % count
        } else {
            (count - place) * (lifetime % count) % count
        };
        ages[index(count - seat)] = age;
    }
    ages
}

/// A lane: users fit 32 bits, and so memory.
fn index(lane: u64) -> usize {
    usize::try_from(lane).expect("lanes are counted in 32 bits")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

impl Schedule {
    /// How many turns the session has that [`Verdict::NeedTurns`] asked for.
    pub fn tell_turns(&mut self, turns: u32) {
        if let Pace::Users(users) = &mut self.pace {
            users.tell_turns(turns);
        }
    }

    /// What is planned for the session that the last [`IntentKind::Start`] began; `None` unless there are users. Its turns are due,
    /// and its requests numbered, as the course says.
    #[must_use]
    pub fn course(&self) -> Option<Course> {
        self.course
    }

    /// What users say; `slot_free` is when a slot for a new session is, or will be, free.
    pub(super) fn speak(
        &mut self,
        next: Result<(Tick, Option<Course>), Verdict>,
        now: Tick,
        slot_free: Tick,
    ) -> Verdict {
        match next {
            Ok((due, Some(course))) => {
                let intent = self.issue(due, true);
                self.course = Some(course);
                let kind = IntentKind::Start {
                    session: course.session,
                };
                Verdict::Send(Intent { kind, ..intent })
            }
            Ok((due, None)) => Verdict::Send(self.issue(due, false)),
            Err(Verdict::WaitForSlot) if self.open == 0 && self.sessions_used_up() => Verdict::Done,
            // A user may wait for a slot that the ramp has yet to open.
            Err(Verdict::WaitForSlot) if slot_free > now && slot_free < Tick::NEVER => {
                Verdict::WaitUntil(slot_free)
            }
            Err(Verdict::WaitUntil(until)) if slot_free > now => {
                Verdict::WaitUntil(until.min(slot_free))
            }
            Err(verdict) => verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (turns left, number of the user) by lane, the whole session as 0.
    fn seats(users: u32, turns: u32) -> Vec<(u64, u64)> {
        let lifetime = u64::from(turns - 1);
        let seat = |&age: &u32| match u64::from(age) {
            0 => (0, u64::from(users) + 1),
            age => ((age * lifetime).div_ceil(u64::from(users)), age + 1),
        };
        ages(users, lifetime).iter().map(seat).collect()
    }

    /// The example of AIPerf's own description of the mode.
    #[test]
    fn fifteen_users_of_twenty_turns_sit_as_in_aiperf() {
        let left = [0, 6, 11, 16, 2, 7, 12, 17, 3, 8, 13, 18, 4, 9, 14];
        let user = [16, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 4, 8, 12];
        let expected: Vec<(u64, u64)> = left.into_iter().zip(user).collect();
        assert_eq!(seats(15, 20), expected);
    }

    #[test]
    fn users_and_gaps_that_share_a_factor_sit_a_step_apart() {
        // 4 users, 5 turns: the step is 3, so that ages 1, 2, 3 have the seats 3, 2, 1, and lanes 1, 2, 3.
        assert_eq!(seats(4, 5), [(0, 5), (1, 2), (2, 3), (3, 4)]);
        // 9 users, 4 turns: the step is 2.
        let left: Vec<u64> = seats(9, 4).iter().map(|seat| seat.0).collect();
        assert_eq!(left, [0, 2, 3, 1, 3, 1, 2, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_lane_has_one_user(users in 1..200_u32, turns in 2..50_u32) {
            let mut ages = ages(users, u64::from(turns - 1));
            prop_assert_eq!(ages[0], 0);
            ages.sort_unstable();
            prop_assert_eq!(ages, (0..users).collect::<Vec<_>>());
        }
    }
}
