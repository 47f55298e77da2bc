//! The state machine of one core.
//!
//! In: stamped completions and the time. Out: operations for the driver, finished exchanges for the recorder.
//! Never: does I/O, reads a clock, parses a reply, or takes a lock.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::{Nanos, Rate, Tick};
use crate::config::{ConnectionReuse, PhasePlan};
use crate::driver::{CloseReason, ConnId, Op, Sent, Stamp};
use crate::endpoint::Reply;
use crate::record::{Exchange, Outcome};
use crate::schedule::Shard;
use crate::wire::{Fault, Limits};

mod ahead;
mod conn;
mod deadline;
mod flight;
mod phase;
mod request;
mod tls;

use conn::{State, Table};
use deadline::Deadlines;
use flight::{Flight, Progress};
use phase::Phases;

/// After `[DONE]` the peer has this long to end the body; then the request ends as it stands and the connection is closed.
const DONE_DRAIN: Nanos = Nanos::from_millis(1_000);

/// The longest the engine lets its driver sleep while a run is on, so that a stop is seen soon.
const LONGEST_WAIT: Nanos = Nanos::from_millis(20);

/// How long a waiting engine sleeps before it asks again whether its phase may start.
const GATE_WAIT: Nanos = Nanos::from_millis(1);

/// What is the same for every worker of a run.
pub struct Setup {
    /// Phases, in order.
    pub phases: Vec<PhasePlan>,
    /// Where requests go; one for each URL of the plan.
    pub targets: Vec<Target>,
    /// How connections are reused.
    pub reuse: ConnectionReuse,
    /// Whole-request limit.
    pub request_timeout: Nanos,
    /// Grace for requests in flight after Ctrl-C in a phase that has none of its own.
    pub stop_grace: Nanos,
    /// Bounds on what peers send.
    pub limits: Limits,
    /// Root seed.
    pub seed: u64,
    /// Scale of the ticks.
    pub rate: Rate,
}

/// One place to send requests to.
pub struct Target {
    /// Its addresses; the first that takes a connection is used. Never empty.
    pub addresses: Vec<SocketAddr>,
    /// TLS, when the URL says `https`.
    pub tls: Option<TlsTarget>,
}

/// TLS towards one name.
pub struct TlsTarget {
    /// Roots, versions and session cache; one for each worker.
    pub config: Arc<rustls::ClientConfig>,
    /// The name in the certificate, sent as SNI.
    pub name: rustls::pki_types::ServerName<'static>,
}

/// What is sent. Implemented over the corpus by the conductor, and by tests.
pub trait Workload {
    /// Conversation that session number `session` of phase `phase` plays.
    fn pick(&mut self, phase: usize, session: u64) -> u32;
    /// Turns in `conversation`, at least 1.
    fn turn_count(&self, conversation: u32) -> u32;
    /// Think time before `turn`.
    fn delay(&self, conversation: u32, turn: u32) -> Nanos;
    /// The most tokens that the reply to `turn` may have, where the request says so; room is made for them.
    fn reply_tokens(&self, _conversation: u32, _turn: u32) -> Option<u32> {
        None
    }
    /// The body that was rendered before the run; `None` when it needs the replies of earlier turns.
    fn body(&self, conversation: u32, turn: u32) -> Option<Arc<[u8]>>;
    /// The body of a turn that needs `history`: one entry for each earlier turn, `None` where a turn failed.
    fn live_body(&self, conversation: u32, turn: u32, history: &[Option<Reply>]) -> Arc<[u8]>;
    /// Later turns of `conversation` need what the server said in earlier ones.
    fn needs_reply(&self, conversation: u32) -> bool;
    /// What the server said in a finished exchange.
    fn reply(&self, exchange: &Exchange) -> Option<Reply>;
    /// Writes the request's head, blank line included.
    fn write_head(
        &self,
        out: &mut Vec<u8>,
        target: u16,
        request_uuid: u128,
        session_uuid: u128,
        body_length: usize,
    );
}

/// Where finished exchanges go. Neither call may block or wait.
pub trait Sink {
    /// An empty exchange, recycled where possible.
    fn blank(&mut self) -> Box<Exchange>;
    /// Takes a finished one.
    fn push(&mut self, exchange: Box<Exchange>);
}

/// What the conductor says to all workers, and hears from them.
pub trait Control {
    /// When `phase` starts; `None` while another worker is not ready for it.
    fn phase_start(&self, phase: usize) -> Option<Tick>;
    /// This worker has nothing left to do before `phase`. Called once for each phase, from 0.
    fn ready_for(&self, phase: usize);
    /// Whether to stop.
    fn stop(&self) -> Stop;
    /// Where this worker stands; called once a loop turn.
    fn publish(&self, counts: &Counts);
}

/// How to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Go on.
    No,
    /// Send nothing more; requests in flight have the grace.
    Drain,
    /// Cut requests in flight.
    Now,
}

/// Where an engine stands. Sums over the run, except `in_flight` and `open_connections`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests begun.
    pub sent: u64,
    /// Exchanges whose response came whole.
    pub whole: u64,
    /// Exchanges that a fault or the request limit ended.
    pub failed: u64,
    /// Exchanges cut by the end of the run.
    pub cancelled: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Connections asked for.
    pub connects: u64,
    /// Requests sent again because a pooled connection proved closed.
    pub resent: u64,
    /// Connections now held.
    pub open_connections: u64,
    /// Requests (or sessions) planned for this worker that were not begun, over all finished phases that had a count.
    pub unsent: u64,
}

impl Counts {
    /// Adds another engine's.
    pub fn add(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.whole += other.whole;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.in_flight += other.in_flight;
        self.connects += other.connects;
        self.resent += other.resent;
        self.open_connections += other.open_connections;
        self.unsent += other.unsent;
    }
}

/// One worker's engine. A driver asks [`Engine::next`] what to do until it says [`Op::Finished`], and reports what completed.
pub struct Engine {
    setup: Arc<Setup>,
    workload: Box<dyn Workload>,
    sink: Box<dyn Sink>,
    control: Arc<dyn Control>,
    shard: Shard,
    table: Table,
    phases: Phases,
    ops: VecDeque<Op>,
    request_deadlines: Deadlines,
    drain_deadlines: Deadlines,
    #[expect(
        clippy::vec_box,
        reason = "they move between here and the table without a copy"
    )]
    spare_flights: Vec<Box<Flight>>,
    spare_buffers: Vec<Vec<u8>>,
    plain: Vec<u8>,
    uuids: request::Uuids,
    counts: Counts,
    serial: u64,
    finished: bool,
}

impl Engine {
    /// An engine for `shard` of the run.
    #[must_use]
    pub fn new(
        setup: Arc<Setup>,
        workload: Box<dyn Workload>,
        sink: Box<dyn Sink>,
        control: Arc<dyn Control>,
        shard: Shard,
    ) -> Engine {
        let table = Table::new(setup.targets.len());
        let uuids = request::Uuids::new(setup.seed, shard.index);
        let request_limit = setup.rate.ticks(setup.request_timeout);
        let drain = setup.rate.ticks(DONE_DRAIN);
        Engine {
            setup,
            workload,
            sink,
            control,
            shard,
            table,
            phases: Phases::new(),
            ops: VecDeque::with_capacity(64),
            request_deadlines: Deadlines::new(request_limit),
            drain_deadlines: Deadlines::new(drain),
            spare_flights: Vec::new(),
            spare_buffers: Vec::new(),
            plain: Vec::new(),
            uuids,
            counts: Counts::default(),
            serial: 0,
            finished: false,
        }
    }

    /// What to do next. `now` may not go backwards.
    pub fn next(&mut self, now: Tick) -> Op {
        if let Some(op) = self.ops.pop_front() {
            return op;
        }
        let until = self.turn(now);
        match self.ops.pop_front() {
            Some(op) => op,
            None if self.finished => Op::Finished,
            None => Op::Wait { until },
        }
    }

    /// `conn` is open. `started` was taken before its set-up began, `done` when it had completed.
    pub fn on_connected(&mut self, conn: ConnId, local_port: u16, started: Tick, done: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        debug_assert_eq!(c.state, State::Connecting);
        c.local_port = local_port;
        c.connect_end = done;
        if let Some(flight) = &mut c.flight {
            let ticks = &mut flight.exchange.ticks;
            if c.address == 0 && !flight.exchange.link.resent {
                ticks.start = started;
            }
            ticks.connect_start = started;
            ticks.connect_end = done;
        }
        let target = &self.setup.targets[usize::from(c.target)];
        match &target.tls {
            None => {
                c.state = State::Busy;
                self.send_request(conn);
            }
            Some(tls) => match tls::Tls::new(tls) {
                Ok(link) => {
                    c.state = State::Handshaking;
                    c.tls = Some(link);
                    self.flush_tls(conn);
                }
                Err(fault) => self.finish(conn, Outcome::Fault(fault), done),
            },
        }
    }

    /// The buffer of a [`Op::Send`] comes back, whole or with an error. An error alone ends nothing: the peer may have answered
    /// before it stopped reading, and the read side will tell.
    pub fn on_sent(&mut self, conn: ConnId, bytes: Vec<u8>, sent: Sent) {
        self.recycle(bytes);
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let with_request = std::mem::take(&mut c.sending_request);
        c.sending = false;
        if with_request && let Some(flight) = &mut c.flight {
            flight.request_sent(&sent);
        }
        if !c.outbox.is_empty() {
            self.start_send(conn);
        }
    }

    /// `data` was read from `conn`.
    pub fn on_received(&mut self, conn: ConnId, data: &[u8], stamp: Stamp) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        if c.tls.is_none() {
            return self.on_plain(conn, data, data.len(), stamp);
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let outcome = c
            .tls
            .as_mut()
            .map_or(Ok(()), |tls| tls.receive(data, &mut plain));
        if let Err(fault) = outcome {
            self.plain = plain;
            return self.finish(conn, Outcome::Fault(fault), stamp.tick);
        }
        self.flush_tls(conn);
        self.after_handshake(conn, stamp.tick);
        if !plain.is_empty() {
            self.on_plain(conn, &plain, data.len(), stamp);
        }
        self.plain = plain;
        let over = self.table.current(conn).and_then(|c| c.tls.as_ref());
        if over.is_some_and(tls::Tls::closed_cleanly) {
            // close_notify ends the peer's side, whether or not the connection ends with it (RFC 8446 section 6.1).
            self.on_closed(conn, CloseReason::Eof, stamp.tick);
        }
    }

    /// `conn` ended, or could not be opened.
    pub fn on_closed(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        match c.state {
            State::Connecting => self.connect_failed(conn, reason, tick),
            State::Idle => self.close(conn),
            State::Handshaking => self.finish(conn, Outcome::Fault(Fault::Tls), tick),
            State::Busy => self.closed_while_busy(conn, reason, tick),
        }
    }

    /// Where this engine stands.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Scale of its ticks.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.setup.rate
    }

    fn on_plain(&mut self, conn: ConnId, data: &[u8], wire_bytes: usize, stamp: Stamp) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(flight) = &mut c.flight else {
            // Bytes that answer no request: the connection is out of step.
            return self.close(conn);
        };
        match flight.receive(data, wire_bytes, stamp) {
            Progress::More => {}
            Progress::DoneSeen => {
                let serial = flight.serial;
                self.drain_deadlines.push(stamp.tick, conn, serial);
            }
            Progress::Whole => self.finish(conn, Outcome::Success, stamp.tick),
            Progress::Wrong(fault) => self.finish(conn, Outcome::Fault(fault), stamp.tick),
        }
    }

    fn closed_while_busy(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(flight) = &mut c.flight else { return };
        let untouched = !flight.response.started();
        if untouched && c.served > 0 && !flight.exchange.link.resent {
            return self.resend(conn);
        }
        let tls_cut = c.tls.as_ref().is_some_and(|tls| !tls.closed_cleanly());
        let outcome = match reason {
            CloseReason::Eof => flight.end_of_stream(tls_cut),
            CloseReason::Reset => Outcome::Fault(Fault::Reset),
            _ => Outcome::Fault(Fault::Io),
        };
        self.finish(conn, outcome, tick);
    }

    /// The next address of the target, or the end of the request.
    fn connect_failed(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let next = c.address + 1;
        let addresses = &self.setup.targets[usize::from(c.target)].addresses;
        if let Some(&address) = addresses.get(usize::from(next)) {
            let conn = self.table.renew(conn);
            let c = self
                .table
                .current(conn)
                .expect("renew returns a current id");
            c.address = next;
            if let Some(flight) = &mut c.flight {
                flight.exchange.link.address = next;
            }
            self.ops.push_back(Op::Connect { conn, address });
            return;
        }
        let fault = match reason {
            CloseReason::Refused => Fault::ConnectRefused,
            CloseReason::LocalExhausted => Fault::LocalExhausted,
            _ => Fault::ConnectFailed,
        };
        self.finish(conn, Outcome::Fault(fault), tick);
    }

    fn after_handshake(&mut self, conn: ConnId, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let ready = c.tls.as_ref().is_some_and(tls::Tls::is_ready);
        if c.state == State::Handshaking && ready {
            c.state = State::Busy;
            if let Some(flight) = &mut c.flight {
                flight.exchange.ticks.tls_end = tick;
            }
            self.send_request(conn);
        }
    }

    /// Ends the flight on `conn`: the connection is kept or closed, the session goes on or ends, the exchange is handed over.
    fn finish(&mut self, conn: ConnId, outcome: Outcome, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(mut flight) = c.flight.take() else {
            return self.close(conn);
        };
        flight.exchange.outcome = outcome;
        flight.exchange.ticks.end = tick;
        c.served = c.served.saturating_add(1);
        let keep = outcome == Outcome::Success && flight.keeps_connection() && !c.sending;
        self.settle(conn, keep, flight.session.as_mut());
        self.counts.in_flight -= 1;
        match outcome {
            Outcome::Success => self.counts.whole += 1,
            Outcome::Fault(_) | Outcome::Timeout => self.counts.failed += 1,
            Outcome::GraceEnded | Outcome::Interrupted => self.counts.cancelled += 1,
        }
        self.end_turn(&mut flight, tick);
        let spare = std::mem::replace(&mut flight.exchange, self.sink.blank());
        self.sink.push(spare);
        self.spare_flights.push(flight);
    }

    /// Pools the connection, keeps it for its session, or closes it.
    fn settle(&mut self, conn: ConnId, keep: bool, session: Option<&mut request::Session>) {
        let goes_on = !self.phases.is_cut();
        let next_turn = session.filter(|session| goes_on && !session.is_last_turn());
        match (keep, self.setup.reuse, next_turn) {
            (true, ConnectionReuse::Pooled, _) => self.table.make_idle(conn, true),
            (true, ConnectionReuse::StickyUserSessions, Some(session)) => {
                session.keep(conn);
                self.table.make_idle(conn, false);
            }
            _ => self.close(conn),
        }
    }

    fn close(&mut self, conn: ConnId) {
        if self.table.release(conn) {
            self.counts.open_connections -= 1;
            self.ops.push_back(Op::Close { conn });
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare_buffers.len() < 1_024 {
            bytes.clear();
            self.spare_buffers.push(bytes);
        }
    }
}
