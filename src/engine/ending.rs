//! How a request ends, and leaves.
//!
//! In: the outcome and the moment. Out: the connection kept or closed, the session's next step, the exchange for the recorder once
//! its batch is parsed. Never: loses an exchange.

use crate::clock::Tick;
use crate::config::ConnectionReuse;
use crate::driver::{ConnId, Op};
use crate::record::Outcome;

use super::Engine;
use super::listen::{UNREAD_MOST, Unheard};
use super::session::Session;

impl Engine {
    /// All that was received had been parsed by `now`. Exchanges that ended meanwhile go to the recorder.
    pub(super) fn batch_parsed(&mut self, now: Tick) {
        for conn in self.unmarked.drain(..) {
            // A flight that ended has taken its exchange along; it is marked below.
            let flight = self.table.current(conn).and_then(|c| c.flight.as_mut());
            if let Some(flight) = flight {
                flight.exchange.mark_parsed(now);
                let hears = flight.session.as_ref().is_some_and(|s| s.reader.is_some());
                if hears && self.unread.len() < UNREAD_MOST {
                    self.unread.push_back(conn);
                }
            }
        }
        for unheard in &mut self.unheard {
            unheard.exchange.mark_parsed(now);
        }
        for mut exchange in self.ended.drain(..) {
            exchange.mark_parsed(now);
            self.sink.push(exchange);
        }
    }

    /// Ends the flight on `conn`: the connection is kept or closed, the session goes on or ends, the exchange is handed over.
    pub(super) fn finish(&mut self, conn: ConnId, outcome: Outcome, tick: Tick) {
        self.quiet = None;
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(mut flight) = c.flight.take() else {
            if let Outcome::Fault(fault) = outcome {
                self.failed_ahead(conn, fault);
            }
            return self.close(conn);
        };
        flight.exchange.outcome = outcome;
        flight.exchange.ticks.end = match flight.exchange.reads.last() {
            // Its last byte may have come before its end was known: by the connection's, or after `[DONE]` by a time limit.
            Some(last) if outcome == Outcome::Success => last.arrival(),
            // A limit is over at its time, and something may have come after it that a late loop saw first.
            last => {
                let came = last.map_or(Tick(0), |last| last.tick);
                tick.max(came).max(flight.exchange.ticks.latest())
            }
        };
        self.unsent -= usize::from(std::mem::take(&mut flight.unsent));
        if std::mem::take(&mut flight.prefill) {
            // No content came, or it was not seen: a reply that is no stream, or an error.
            let phase = flight.exchange.id.phase;
            self.phases.prefill_ended(phase, tick);
        }
        self.health.events += flight.exchange.events.len() as u64;
        c.served = c.served.saturating_add(1);
        let keep = outcome == Outcome::Success && flight.keeps_connection() && !c.sending;
        let goes_on = !self.phases.is_cut(flight.exchange.id.phase);
        let session = flight.session.as_mut().filter(|_| goes_on);
        self.settle(conn, keep, session, tick);
        self.counts.in_flight -= 1;
        match outcome {
            Outcome::Success => self.counts.whole += 1,
            Outcome::Fault(_) | Outcome::Timeout => self.counts.failed += 1,
            Outcome::GraceEnded | Outcome::Interrupted | Outcome::Cancelled => {
                self.counts.cancelled += 1;
            }
        }
        let session = self.end_turn(&mut flight, tick);
        let ended = std::mem::replace(&mut flight.exchange, self.sink.blank());
        match session {
            None => self.ended.push(ended),
            Some(session) => self.unheard.push_back(Unheard {
                exchange: ended,
                session,
                serial: flight.serial,
                end: tick,
            }),
        }
        self.spare_flights.push(flight);
    }

    /// Pools the connection, keeps it for its session (if that goes on), or closes it.
    fn settle(&mut self, conn: ConnId, keep: bool, session: Option<&mut Session>, tick: Tick) {
        let next_turn = session.filter(|session| !session.is_last_turn());
        match (keep, self.setup.reuse, next_turn) {
            (true, ConnectionReuse::Pooled, _) => self.table.make_idle(conn, true, tick),
            (true, ConnectionReuse::StickyUserSessions, Some(session)) => {
                session.keep(conn);
                self.table.make_idle(conn, false, tick);
            }
            _ => self.close(conn),
        }
    }

    /// Closes `conn`, and what was opened beside it.
    pub(super) fn close(&mut self, conn: ConnId) {
        let c = self.table.current(conn);
        let rivals = c.map_or_else(Vec::new, |c| std::mem::take(&mut c.rivals));
        for rival in rivals {
            self.close(rival);
        }
        if self.table.release(conn) {
            self.counts.open_connections -= 1;
            self.ops.push_back(Op::Close { conn });
        }
    }

    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare_buffers.len() < 1_024 {
            bytes.clear();
            self.spare_buffers.push(bytes);
        }
    }
}

impl Drop for Engine {
    /// A driver that fails in mid-batch must not lose the exchanges that ended in it.
    fn drop(&mut self) {
        let unheard = self.unheard.drain(..).map(|unheard| unheard.exchange);
        for exchange in self.ended.drain(..).chain(unheard) {
            self.sink.push(exchange);
        }
    }
}
