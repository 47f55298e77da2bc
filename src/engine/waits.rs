//! Limits on what a request waits for: its connection, the first byte, the next byte.
//!
//! In: when each wait began. Out: which requests have waited too long. Never: a timer for a read, or a look at every stream.
//!
//! The first two waits begin once, so a queue is enough for each. The third begins anew with every read; its limit is looked at only
//! when it would be over without any, and then put where the latest read moved it. That costs each stream one heap operation in the
//! length of the limit, whatever it receives, and nothing is done for a read but to note its time, which is noted anyway.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{Nanos, Rate, Tick};
use crate::config::TimeLimits;
use crate::driver::ConnId;
use crate::record::Outcome;
use crate::wire::Fault;

use super::Engine;
use super::conn::{State, Table};
use super::deadline::{Deadline, Deadlines};

/// Idle limits that would be over so soon are looked at together, so that streams that go on cause no wake-ups of their own.
const TOGETHER: Nanos = Nanos::from_millis(20);

/// The waits of one engine. A limit that is off has no queue.
pub(super) struct Waits {
    connect: Option<Deadlines>,
    first_byte: Option<Deadlines>,
    idle: Option<Idle>,
    /// Keep-alives of a stream are bytes like others.
    pub(super) keep_alive_counts: bool,
}

impl Waits {
    pub(super) fn new(limits: &TimeLimits, rate: Rate) -> Waits {
        let queue = |limit: Option<Nanos>| limit.map(|limit| Deadlines::new(rate.ticks(limit)));
        let together = rate.ticks(TOGETHER);
        Waits {
            connect: queue(limits.connect),
            first_byte: queue(limits.first_byte),
            idle: limits
                .idle
                .map(|limit| Idle::new(rate.ticks(limit), together)),
            keep_alive_counts: limits.keep_alive_counts,
        }
    }

    /// Flight `serial` waits for its connection; says whether that has a limit.
    pub(super) fn connecting(&mut self, start: Tick, conn: ConnId, serial: u64) -> bool {
        let Some(queue) = &mut self.connect else {
            return false;
        };
        queue.push(start, conn, serial);
        true
    }

    /// Flight `serial`, whose wait for a connection began at `start`, waits for `conn` from here on. Its limit stays.
    pub(super) fn connecting_moved(&mut self, start: Tick, conn: ConnId, serial: u64) {
        if let Some(queue) = &mut self.connect {
            queue.moved(start, serial, conn);
        }
    }

    /// Flight `serial` waits for its first byte; says whether that has a limit.
    pub(super) fn sent(&mut self, last: Tick, conn: ConnId, serial: u64) -> bool {
        let Some(queue) = &mut self.first_byte else {
            return false;
        };
        queue.push(last, conn, serial);
        true
    }

    /// The first bytes for flight `serial` have come; says whether more of them have a limit.
    pub(super) fn began(&mut self, came: Tick, conn: ConnId, serial: u64) -> bool {
        let Some(idle) = &mut self.idle else {
            return false;
        };
        idle.push(came, conn, serial);
        true
    }

    /// When to look again.
    pub(super) fn first(&self) -> Option<Tick> {
        let queues = [&self.connect, &self.first_byte].into_iter().flatten();
        let queued = queues.filter_map(|queue| queue.first().map(|first| first.at));
        let idle = self.idle.as_ref().and_then(Idle::first);
        queued.chain(idle).min()
    }

    /// Drops limits of requests that have ended, once they are many more than the `live` ones.
    fn prune(&mut self, live: usize, table: &mut Table) {
        for queue in [&mut self.connect, &mut self.first_byte]
            .into_iter()
            .flatten()
        {
            queue.prune(live, |&deadline| table.carrier(deadline).is_some());
        }
        if let Some(idle) = &mut self.idle {
            idle.prune(live, table);
        }
    }
}

/// When a stream's idle limit is over unless something has come meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Check {
    at: Tick,
    serial: u64,
    index: u32,
    generation: u32,
}

/// Idle limits of all streams.
struct Idle {
    length: u64,
    together: u64,
    checks: BinaryHeap<Reverse<Check>>,
}

impl Idle {
    fn new(length: u64, together: u64) -> Idle {
        Idle {
            length,
            // Not more than a part of the limit itself, or a busy stream would be looked at over and over.
            together: together.min(length / 2),
            checks: BinaryHeap::new(),
        }
    }

    fn push(&mut self, heard: Tick, conn: ConnId, serial: u64) {
        self.checks.push(Reverse(Check {
            at: heard.plus(self.length),
            serial,
            index: conn.index,
            generation: conn.generation,
        }));
    }

    fn first(&self) -> Option<Tick> {
        self.checks.peek().map(|check| check.0.at)
    }

    /// Takes out a stream from which nothing has come for the limit, with the moment when that was over.
    fn expired(&mut self, table: &mut Table, now: Tick) -> Option<(ConnId, Tick)> {
        let horizon = now.plus(self.together);
        while let Some(&Reverse(check)) = self.checks.peek() {
            if check.at > horizon {
                return None;
            }
            let carrier = table.carrier(check.deadline());
            let flight = carrier
                .and_then(|conn| table.current(conn))
                .and_then(|c| c.flight.as_ref())
                // After `[DONE]` only the body's end is waited for, which has a limit of its own.
                .filter(|flight| !flight.done_seen());
            let (Some(conn), Some(flight)) = (carrier, flight) else {
                self.checks.pop();
                continue;
            };
            let at = flight.heard.plus(self.length);
            if at > check.at {
                let heard = flight.heard;
                self.checks.pop();
                self.push(heard, conn, check.serial);
            } else if at > now {
                return None;
            } else {
                self.checks.pop();
                return Some((conn, at));
            }
        }
        None
    }

    fn prune(&mut self, live: usize, table: &mut Table) {
        if self.checks.len() > 64 + 4 * live {
            self.checks
                .retain(|check| table.carrier(check.0.deadline()).is_some());
        }
    }
}

impl Check {
    fn deadline(self) -> Deadline {
        Deadline {
            at: self.at,
            conn: ConnId {
                index: self.index,
                generation: self.generation,
            },
            serial: self.serial,
        }
    }
}

/// What a wait was for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Connect,
    FirstByte,
    Idle,
}

impl Engine {
    /// Ends requests that have waited too long for what they wait for.
    pub(super) fn expire_waits(&mut self, now: Tick) {
        while let Some((wait, conn, at)) = self.expired_wait(now) {
            let fault = match wait {
                Wait::Connect => Fault::ConnectTimeout,
                Wait::FirstByte => Fault::FirstByteTimeout,
                Wait::Idle => Fault::IdleTimeout,
            };
            if self.waits_still(wait, conn, at) {
                self.finish(conn, Outcome::Fault(fault), now);
            }
        }
        let live = usize::try_from(self.counts.in_flight).unwrap_or(usize::MAX);
        self.waits.prune(live, &mut self.table);
    }

    fn expired_wait(&mut self, now: Tick) -> Option<(Wait, ConnId, Tick)> {
        let (waits, table) = (&mut self.waits, &mut self.table);
        let queues = [
            (Wait::Connect, &mut waits.connect),
            (Wait::FirstByte, &mut waits.first_byte),
        ];
        for (wait, queue) in queues {
            let expired = queue.as_mut().and_then(|queue| queue.expired(table, now));
            if let Some((conn, at)) = expired {
                return Some((wait, conn, at));
            }
        }
        let idle = waits.idle.as_mut();
        let (conn, at) = idle.and_then(|idle| idle.expired(table, now))?;
        Some((Wait::Idle, conn, at))
    }

    /// The request on `conn` still waits for what its limit, over at `at`, was for, and no other limit was over before.
    fn waits_still(&mut self, wait: Wait, conn: ConnId, at: Tick) -> bool {
        let whole = self.request_deadlines.length();
        let first_byte = self.waits.first_byte.as_ref().map(Deadlines::length);
        let Some(c) = self.table.current(conn) else {
            return false;
        };
        let setting_up = matches!(
            c.state,
            State::Connecting | State::Tunnelling | State::Handshaking
        );
        let Some(flight) = &c.flight else {
            return false;
        };
        let ticks = &flight.exchange.ticks;
        let waits = match wait {
            Wait::Connect => setting_up,
            // One that was sent again has its time from the second sending.
            Wait::FirstByte => {
                let sent = ticks.last_byte_sent;
                let due = first_byte.filter(|_| sent != Tick::NEVER);
                !flight.response.started() && due.is_some_and(|length| sent.plus(length) == at)
            }
            Wait::Idle => true,
        };
        waits && at <= ticks.submitted.plus(whole)
    }
}
