//! Connections that are opened before a phase starts.
//!
//! In: the phase's plan. Out: idle connections in the pool, or a count of those that could not be opened. Never: holds a phase
//! back for longer than [`LONGEST`].

use std::collections::VecDeque;

use crate::clock::{Nanos, Tick};
use crate::driver::ConnId;
use crate::schedule::Schedule;
use crate::wire::Fault;

use super::Engine;
use super::conn::State;

/// A connection that is not open after so long counts as failed, and the phase starts without it.
const LONGEST: Nanos = Nanos::from_millis(10_000);

/// Connections that are set up at once, over all workers. More would overrun the queue of a listening socket, 128 of old and on
/// many systems, and a connection that finds it full is tried again only after a second.
const AT_ONCE: usize = 128;

/// Connections on their way to being open ahead of a phase.
#[derive(Default)]
pub(super) struct Ahead {
    /// When they are given up; `None` while none was asked for.
    until: Option<Tick>,
    /// Neither open nor failed.
    pending: usize,
    /// Targets of those that are not begun.
    waiting: VecDeque<u16>,
}

impl Ahead {
    /// Connections that are still being set up.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }
}

impl Engine {
    /// Opens this worker's share of the phase's connections, as far as they are missing. Says until when to wait for them; `None` when
    /// there is nothing to wait for.
    pub(super) fn connect_ahead(&mut self, now: Tick) -> Option<Tick> {
        let until = match self.ahead.until {
            Some(until) => until,
            None => {
                self.ahead.waiting = self.missing();
                let connect = self.setup.time_limits.connect.unwrap_or(LONGEST);
                let longest = LONGEST.min(self.setup.request_timeout).min(connect);
                *self
                    .ahead
                    .until
                    .insert(now.plus(self.setup.rate.ticks(longest)))
            }
        };
        if now >= until {
            self.give_up_ahead();
        }
        self.open_ahead();
        if self.ahead.pending > 0 {
            return Some(until);
        }
        self.ahead.until = None;
        None
    }

    /// `conn` is ready for requests and has none yet. One whose last bytes of set-up the driver still holds is not open before those
    /// are sent.
    pub(super) fn opened_ahead(&mut self, conn: ConnId) {
        let Some(c) = self.table.current(conn).filter(|c| !c.sending) else {
            return;
        };
        let since = if c.tls.is_some() {
            c.tls_end
        } else {
            c.connect_end
        };
        self.quiet = None;
        self.table.make_idle(conn, true, since);
        self.ahead.pending = self.ahead.pending.saturating_sub(1);
        self.counts.opened_ahead += 1;
    }

    /// `conn`, which carries no request, is about to be closed for `fault`; an idle one is no loss.
    pub(super) fn failed_ahead(&mut self, conn: ConnId, fault: Fault) {
        let state = self.table.current(conn).map(|c| c.state);
        if matches!(
            state,
            Some(State::Connecting | State::Tunnelling | State::Handshaking)
        ) {
            self.quiet = None;
            self.ahead.pending = self.ahead.pending.saturating_sub(1);
            self.counts.failed_ahead += 1;
            self.counts.fault_ahead.get_or_insert(fault);
        }
    }

    /// Begins as many as may be under way at once.
    fn open_ahead(&mut self) {
        let most = (AT_ONCE / self.shard.count).max(1);
        while self.ahead.pending < most
            && let Some(target) = self.ahead.waiting.pop_front()
        {
            self.ahead.pending += 1;
            self.open(target, None);
        }
    }

    /// Targets of this worker's share of the phase's connections, as far as they are not there. Connection k of the phase belongs to the
    /// worker of slot k, and goes where session k of a first phase does.
    fn missing(&self) -> VecDeque<u16> {
        let mut missing = VecDeque::new();
        let Some(plan) = self.setup.phases.get(self.phases.index()) else {
            return missing;
        };
        let shard = self.shard.within(&self.setup.phases, self.phases.index());
        let (total, stride) = (plan.slots.pre_connect, Schedule::stride(plan, shard));
        let stride = usize::try_from(stride).unwrap_or(usize::MAX);
        if self.shard.index >= stride {
            return missing;
        }
        let mut wanted = vec![0_usize; self.setup.targets.len()];
        // Counted once: it is a look at every connection.
        let held: Vec<usize> = (0..)
            .take(wanted.len())
            .map(|target| self.table.held(target))
            .collect();
        for number in (self.shard.index..total).step_by(stride) {
            let target = self.setup.url_order[number % self.setup.url_order.len()];
            wanted[usize::from(target)] += 1;
            if wanted[usize::from(target)] > held[usize::from(target)] {
                missing.push_back(target);
            }
        }
        missing
    }

    /// What is not open now will not be.
    fn give_up_ahead(&mut self) {
        let unbegun = std::mem::take(&mut self.ahead.waiting);
        if !unbegun.is_empty() {
            self.counts.failed_ahead += unbegun.len() as u64;
            self.counts.fault_ahead.get_or_insert(Fault::ConnectTimeout);
        }
        for conn in self.table.ids() {
            let unused = self
                .table
                .current(conn)
                .is_some_and(|c| c.flight.is_none() && c.leader.is_none());
            if unused {
                let before = self.ahead.pending;
                self.failed_ahead(conn, Fault::ConnectTimeout);
                if self.ahead.pending < before {
                    self.close(conn);
                }
            }
        }
    }
}
