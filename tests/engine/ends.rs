//! Each request ends within every limit, and by the one that was over first.
//!
//! In: a played run, its limits, how late its loop may have woken. Out: a panic that names the request. Never: a bound wider than the fault
//! that asks for it: without a fault that wakes the loop late, limits hold to the tick.

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{CancellationPlan, PhasePlan, TimeLimits};
use tokenring::driver::simulated::Faults;
use tokenring::engine::Stop;
use tokenring::record::{Cause, ErrorClass, Exchange, Outcome, Record};
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, Played};
use crate::check::Place;

/// The longest that an engine sleeps while it waits for nothing else: so late it sees a stop.
const LONGEST_SLEEP: u64 = 20 * MILLI;

/// What bounds the requests of a run.
pub(crate) struct Ends {
    seed: u64,
    whole: Nanos,
    limits: TimeLimits,
    cancellation: Option<CancellationPlan>,
    phases: Vec<PhasePlan>,
    /// After this everything is over, if the run was stopped.
    stopped: Option<Tick>,
    first_stop: Option<Tick>,
    /// Connections are not ready before TLS is set up.
    secure: bool,
    /// The loop may wake so late.
    late: u64,
}

impl Ends {
    pub(crate) fn of(bench: &Bench, seed: u64, faults: &Faults, stops: &[(Tick, Stop)]) -> Ends {
        let late = match (faults.freeze > 0.0, faults.lag > 0.0) {
            (true, _) => 500 * MILLI,
            (false, true) => 200_000,
            (false, false) => 0,
        };
        let graces = bench.phases.iter().map(|phase| phase.grace);
        let graces = graces.map(|grace| grace.unwrap_or(bench.stop_grace));
        let grace = graces.max().unwrap_or_default().max(bench.stop_grace);
        let over = stops.iter().map(|&(at, stop)| match stop {
            Stop::Now => at.plus(LONGEST_SLEEP + late),
            _ => at.plus(LONGEST_SLEEP + grace.0 + 2 * late),
        });
        Ends {
            seed,
            whole: bench.request_timeout,
            limits: bench.time_limits,
            cancellation: bench.cancellation,
            phases: bench.phases.clone(),
            stopped: over.min(),
            first_stop: stops.iter().map(|&(at, _)| at).min(),
            secure: bench.targets.iter().any(|target| target.tls.is_some()),
            late,
        }
    }

    /// Every exchange of `played`.
    pub(crate) fn check(&self, played: &Played) {
        for exchange in &played.exchanges {
            let place = &Place {
                seed: self.seed,
                exchange,
            };
            let end = exchange.ticks.end;
            self.within(exchange.ticks.submitted, self.whole, end, place);
            assert!(self.stopped.is_none_or(|over| end <= over), "{place}: stop");
            self.setting_up(exchange, place);
            self.receiving(exchange, place);
            self.cause(exchange, played, place);
        }
    }

    /// What began at `from` and has `limit` is over at `at` at the latest.
    fn within(&self, from: Tick, limit: Nanos, at: Tick, place: &Place) {
        let most = limit.0.saturating_add(self.late);
        let took = at.since(from);
        assert!(took <= most, "{place}: took {took} ns of {limit:?}");
    }

    /// No connection took longer than it may, there or not.
    fn setting_up(&self, exchange: &Exchange, place: &Place) {
        let (ticks, link) = (exchange.ticks, exchange.link);
        // A request that was sent again does not tell when that was; a test of its own does.
        if link.resent || link.reused || link.ahead {
            return;
        }
        if let Some(limit) = self.limits.connect {
            let ready = match self.secure {
                true => ticks.tls_end,
                false => ticks.connect_end,
            };
            self.within(ticks.submitted, limit, ready.min(ticks.end), place);
        }
    }

    /// No wait for a first or a further byte was longer than it may.
    fn receiving(&self, exchange: &Exchange, place: &Place) {
        let (ticks, reads) = (exchange.ticks, &exchange.reads);
        if let Some(limit) = self.limits.first_byte
            && exchange.link.sent_whole
        {
            let first = reads.first().map_or(ticks.end, |read| read.tick);
            self.within(ticks.last_byte_sent, limit, first, place);
        }
        let Some(limit) = self.limits.idle else {
            return;
        };
        // After [DONE] only the end of the body is waited for, which has a limit of its own.
        let done = exchange.body.windows(6).position(|six| six == b"[DONE]");
        let done = done.map_or(u64::MAX, |at| at as u64 + 6);
        let before_done = reads.iter().take_while(|read| read.body_end < done);
        let waited = before_done.enumerate().map(|(number, read)| {
            let next = reads.get(number + 1);
            (read.tick, next.map_or(ticks.end, |next| next.tick))
        });
        for (from, to) in waited {
            self.within(from, limit, to, place);
        }
    }

    /// The limit that is named was over, and was the first to be.
    fn cause(&self, exchange: &Exchange, played: &Played, place: &Place) {
        let ticks = exchange.ticks;
        let over = |from: Tick, limit: Option<Nanos>| {
            limit.is_some_and(|limit| from != Tick::NEVER && ticks.end >= from.plus(limit.0))
        };
        let named = match exchange.outcome {
            Outcome::Timeout => {
                let connected = exchange.link.reused || ticks.connect_end != Tick::NEVER;
                connected && over(ticks.submitted, Some(self.whole))
            }
            Outcome::Fault(Fault::ConnectTimeout) => {
                let by_limit = over(ticks.submitted, self.limits.connect);
                let by_whole = over(ticks.submitted, Some(self.whole));
                exchange.reads.is_empty() && !exchange.link.sent_whole && (by_limit || by_whole)
            }
            Outcome::Fault(Fault::FirstByteTimeout) => {
                exchange.reads.is_empty() && over(ticks.last_byte_sent, self.limits.first_byte)
            }
            Outcome::Fault(Fault::IdleTimeout) => {
                let heard = match self.limits.keep_alive_counts {
                    true => exchange.reads.last(),
                    false => exchange.reads.first(),
                };
                heard.is_some_and(|read| over(read.tick, self.limits.idle))
            }
            Outcome::Cancelled => over(
                ticks.last_byte_sent,
                self.cancellation.map(|plan| plan.delay),
            ),
            Outcome::GraceEnded => {
                let phase = usize::from(exchange.id.phase);
                let (plan, start) = (&self.phases[phase], played.starts[phase]);
                let end = plan.stop.duration.zip(plan.grace);
                let end = end.map(|(duration, grace)| Nanos(duration.0 + grace.0));
                end.is_some_and(|end| ticks.end.since(start) <= end.0 + self.late)
                    && over(start, end)
            }
            Outcome::Interrupted => self.first_stop.is_some_and(|stop| ticks.end >= stop),
            Outcome::Success | Outcome::Fault(_) => true,
        };
        assert!(named, "{place}: ended by a limit that was not over");
    }
}

/// A request that did not end well is in the class of what ended it, unless a status that is no 2xx had come before.
pub(crate) fn check_class(exchange: &Exchange, record: &Record, place: &Place) {
    let class = record.error.as_ref().map(|error| error.class);
    let refused = exchange.head.filter(|head| !head.is_success());
    let cause = match exchange.outcome {
        Outcome::Fault(_) | Outcome::Timeout if refused.is_some() => {
            Cause::Status(refused.map_or(0, |head| head.status))
        }
        Outcome::Success => {
            let by_reply = [
                ErrorClass::HttpStatus,
                ErrorClass::RateLimited,
                ErrorClass::StreamError,
                ErrorClass::Empty,
                ErrorClass::Truncated,
            ];
            let right = class.is_none_or(|class| by_reply.contains(&class));
            return assert!(right, "{place}: {class:?} of a reply that came whole");
        }
        Outcome::Fault(fault) => Cause::Fault(fault),
        Outcome::Timeout => Cause::RequestLimit,
        Outcome::Cancelled | Outcome::GraceEnded | Outcome::Interrupted => Cause::Cut,
    };
    assert_eq!(class, Some(ErrorClass::of(cause)), "{place}");
}
