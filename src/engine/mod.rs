//! The state machine of one core.
//!
//! In: stamped completions and the time. Out: operations for the driver, finished exchanges for the recorder.
//! Never: does I/O, reads a clock, parses a reply, or takes a lock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::{Nanos, Rate, Tick};
use crate::driver::{CloseReason, ConnId, Op, Sent, Stamp};
use crate::record::{Exchange, Outcome, Read};
use crate::schedule::{CancellationDraw, Shard};
use crate::wire::Fault;

mod ahead;
mod ahead_of_phase;
mod arrived;
mod border;
mod conn;
mod deadline;
mod ending;
mod eyeballs;
mod flight;
mod handover;
mod health;
mod idle;
mod listen;
mod phase;
mod prefill;
mod records;
mod request;
mod session;
mod tls;
mod tunnel;
mod unsent;
mod waits;

pub use ahead::BODY_BYTES_MOST;
pub use arrived::Arrived;
pub use border::{
    ConnectRules, Control, Counts, Leftover, Setup, Sink, Stop, Target, TlsTarget, Workload,
};
use conn::{State, Table};
use deadline::Deadlines;
pub use eyeballs::UsedAddress;
use eyeballs::{Races, Route};
use flight::{Flight, Progress, arrival};
pub use health::LoopHealth;
use phase::Phases;

/// After `[DONE]` the peer has this long to end the body; then the request ends as it stands and the connection is closed.
const DONE_DRAIN: Nanos = Nanos::from_millis(1_000);

/// The end of a kept connection that comes later than this after a request's last byte did not cross it on the way: the peer had the
/// request and may have begun it, so it is not sent again. Longer than a round trip, and shorter than anybody's patience with a server.
const CROSSING: Nanos = Nanos::from_millis(1_000);

/// The longest the engine lets its driver sleep while a run is on, so that a stop is seen soon.
const LONGEST_WAIT: Nanos = Nanos::from_millis(20);

/// How long a waiting engine sleeps before it asks again whether its phase may start.
const GATE_WAIT: Nanos = Nanos::from_millis(1);

/// One worker's engine. A driver asks [`Engine::next`] what to do until it says [`Op::Finished`], and reports what completed.
pub struct Engine {
    setup: Arc<Setup>,
    workload: Box<dyn Workload>,
    sink: Box<dyn Sink>,
    control: Arc<dyn Control>,
    shard: Shard,
    table: Table,
    routes: Vec<Route>,
    races: Races,
    /// Version of the targets' addresses.
    addresses_seen: u64,
    phases: Phases,
    ops: VecDeque<Op>,
    request_deadlines: Deadlines,
    waits: waits::Waits,
    drain_deadlines: Deadlines,
    /// Cuts on purpose, from the last byte sent.
    cancel_deadlines: Deadlines,
    cancellation: Option<CancellationDraw>,
    #[expect(
        clippy::vec_box,
        reason = "they move between here and the table without a copy"
    )]
    spare_flights: Vec<Box<Flight>>,
    spare_buffers: Vec<Vec<u8>>,
    plain: Vec<u8>,
    stretch: tls::Stretch,
    /// Connections with reads of this batch that are not marked as parsed yet.
    unmarked: Vec<ConnId>,
    /// Exchanges that ended in this batch: handed over when it is parsed.
    #[expect(
        clippy::vec_box,
        reason = "they move from here to the sink without a copy"
    )]
    ended: Vec<Box<Exchange>>,
    unheard: VecDeque<listen::Unheard>,
    unread: listen::Unread,
    uuids: request::Uuids,
    ahead: ahead_of_phase::Ahead,
    counts: Counts,
    arrived: Arrived,
    /// Requests under way that the driver has not yet sent whole.
    unsent: usize,
    health: LoopHealth,
    /// Until when nothing is due, as of the last turn; `None` when something has happened since that may change it. Most reads do not.
    quiet: Option<Tick>,
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
        let routes = setup.targets.iter();
        let routes = routes.map(|target| Route::new(&target.addresses)).collect();
        let uuids = request::Uuids::new(setup.seed, shard.index);
        let request_limit = setup.rate.ticks(setup.request_timeout);
        let waits = waits::Waits::new(&setup.time_limits, setup.rate);
        let drain = setup.rate.ticks(DONE_DRAIN);
        let asked = setup.cancellation;
        let cancel_delay = asked.map_or(0, |asked| setup.rate.ticks(asked.delay));
        let cancellation = asked.map(|asked| CancellationDraw::new(asked.percent, setup.seed));
        Engine {
            setup,
            workload,
            sink,
            control,
            shard,
            table,
            routes,
            races: Races::new(),
            addresses_seen: 0,
            phases: Phases::new(),
            ops: VecDeque::with_capacity(64),
            request_deadlines: Deadlines::new(request_limit),
            waits,
            drain_deadlines: Deadlines::new(drain),
            cancel_deadlines: Deadlines::new(cancel_delay),
            cancellation,
            spare_flights: Vec::new(),
            spare_buffers: Vec::new(),
            plain: Vec::new(),
            stretch: tls::Stretch::default(),
            unmarked: Vec::new(),
            ended: Vec::new(),
            unheard: VecDeque::new(),
            unread: VecDeque::new(),
            uuids,
            ahead: ahead_of_phase::Ahead::default(),
            counts: Counts::default(),
            arrived: Arrived::default(),
            unsent: 0,
            health: LoopHealth::new(),
            quiet: None,
            serial: 0,
            finished: false,
        }
    }

    /// What to do next. `now` may not go backwards. Drivers ask when they have handed over a batch of completions, so the first
    /// `now` after a batch is when it had been parsed; and they look for new completions before they hand over the next one.
    pub fn next(&mut self, now: Tick) -> Op {
        self.stretch.ended();
        self.health.awake(now);
        self.batch_parsed(now);
        if let Some(op) = self.pop(now) {
            return op;
        }
        let mut until = self.until(now);
        if self.ops.is_empty() && self.has_to_listen() {
            let again = self.listen(now);
            if self.quiet.is_none() {
                until = self.until(now);
            }
            until = again.map_or(until, |again| until.min(again));
        }
        if let Some(op) = self.pop(now) {
            return op;
        }
        self.health.asleep(now, until);
        if self.finished {
            return Op::Finished;
        }
        let cut = self.cancel_deadlines.first().map(|first| first.at);
        Op::Wait {
            until,
            send_due: until == self.phases.next_send() || cut == Some(until),
            sending: self.unsent + self.ahead.pending() > 0,
        }
    }

    fn pop(&mut self, now: Tick) -> Option<Op> {
        let op = self.ops.pop_front()?;
        if let Op::Connect { conn, .. } = op {
            self.connect_begun(conn, now);
        }
        Some(op)
    }

    /// The driver looks at what has completed by `now`, with operations still to be carried out: a turn of the loop ends here.
    pub fn looked(&mut self, now: Tick) {
        self.health.asleep(now, now);
    }

    /// Until when nothing is due, once all that is due has been done or stands in the list of operations.
    fn until(&mut self, now: Tick) -> Tick {
        match self.quiet {
            Some(until) if now < until => until,
            _ => {
                let until = self.turn(now);
                // What was cut or expired in this turn.
                self.batch_parsed(now);
                self.quiet = Some(until).filter(|_| self.ops.is_empty());
                until
            }
        }
    }

    /// `conn` is open. `started` was taken before its set-up began, `done` when it had completed.
    pub fn on_connected(&mut self, conn: ConnId, local_port: u16, started: Tick, done: Tick) {
        self.health.awake(done);
        self.quiet = None;
        self.race_won(conn);
        let Some(c) = self.table.current(conn) else {
            return;
        };
        debug_assert_eq!(c.state, State::Connecting);
        // What other addresses took is a part of it.
        let started = if c.tried > 1 { c.asked } else { started };
        c.local_port = local_port;
        c.connect_start = started;
        c.connect_end = done;
        if let Some(flight) = &mut c.flight {
            flight.exchange.link.address = c.address;
            flight.exchange.link.remote = c.remote;
            let ticks = &mut flight.exchange.ticks;
            if !flight.exchange.link.resent {
                ticks.start = started;
            }
            ticks.connect_start = started;
            ticks.connect_end = done;
        }
        if self.setup.targets[usize::from(c.target)].tunnel.is_some() {
            return self.ask_for_tunnel(conn);
        }
        self.link_up(conn, done);
    }

    /// What is sent on `conn` now reaches the server: TLS begins, or the request goes out.
    fn link_up(&mut self, conn: ConnId, done: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let target = &self.setup.targets[usize::from(c.target)];
        match &target.tls {
            None if c.flight.is_none() => self.opened_ahead(conn),
            None => {
                c.state = State::Busy;
                self.send_request(conn);
            }
            Some(tls) => match tls::Tls::new(tls) {
                Ok(link) => {
                    c.state = State::Handshaking;
                    c.tls = Some(Box::new(link));
                    self.flush_tls(conn);
                }
                Err(fault) => self.finish(conn, Outcome::Fault(fault), done),
            },
        }
    }

    /// The buffer of a [`Op::Send`] comes back, whole or with an error. An error alone ends nothing: the peer may have answered
    /// before it stopped reading, and the read side will tell.
    pub fn on_sent(&mut self, conn: ConnId, bytes: Vec<u8>, sent: Sent) {
        self.health.awake(sent.last);
        self.recycle(bytes);
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let with_request = std::mem::take(&mut c.sending_request);
        c.sending = false;
        if with_request && let Some(flight) = &mut c.flight {
            flight.request_sent(&sent);
            self.unsent -= usize::from(std::mem::take(&mut flight.unsent));
            self.health.sent(&sent);
            if sent.error.is_none() {
                let serial = flight.serial;
                if flight.is_to_be_cancelled {
                    self.cancel_deadlines.push(sent.last, conn, serial);
                    self.quiet = None;
                }
                if self.waits.sent(sent.last, conn, serial) {
                    self.quiet = None;
                }
            }
        }
        if !c.outbox.is_empty() {
            self.start_send(conn);
        } else if c.is_ready_ahead() {
            self.opened_ahead(conn);
        }
    }

    /// `data` was read from `conn`; how many bytes of it were taken. Over TLS they may be fewer than all: then the driver stamps what has
    /// completed meanwhile and hands over the rest, with the same stamp, before anything else. So no stamp waits for more than the
    /// decryption of one record.
    #[must_use]
    pub fn on_received(&mut self, conn: ConnId, data: &[u8], stamp: Stamp) -> usize {
        if !self.stretch.is_within_a_read() {
            self.health.received(stamp);
        }
        let Some(c) = self.table.current(conn) else {
            return data.len();
        };
        if c.state == State::Tunnelling {
            let came = arrival(stamp, self.setup.stamps);
            self.on_tunnel(conn, data, came);
        } else if c.tls.is_some() {
            return self.on_ciphertext(conn, data, stamp);
        } else {
            self.on_plain(conn, data, data.len(), stamp);
        }
        data.len()
    }

    /// `conn` ended, or could not be opened.
    pub fn on_closed(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        self.health.awake(tick);
        let Some(c) = self.table.current(conn) else {
            return;
        };
        match c.state {
            State::Connecting => self.connect_failed(conn, reason, tick),
            State::Idle => self.close(conn),
            State::Tunnelling => self.finish(conn, Outcome::Fault(Fault::ProxyRefused), tick),
            State::Handshaking => self.finish(conn, Outcome::Fault(Fault::Tls), tick),
            State::Busy => self.closed_while_busy(conn, reason, tick),
        }
    }

    /// Where this engine stands.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What it has received.
    #[must_use]
    pub fn arrived(&self) -> &Arrived {
        &self.arrived
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
        let events = flight.exchange.events.len();
        if !flight.is_unmarked() {
            self.unmarked.push(conn);
        }
        let began = !flight.response.started();
        // The bytes of a head are heard, whatever comes with them.
        let in_head = flight.exchange.head.is_none();
        let progress = flight.receive(data, wire_bytes, stamp, self.setup.stamps);
        c.near = flight.near();
        let read = flight.exchange.reads.last();
        let came = read.map_or(stamp.tick, Read::arrival);
        flight.hear(events, stamp.tick, in_head || self.waits.keep_alive_counts);
        if began && self.waits.began(stamp.tick, conn, flight.serial) {
            self.quiet = None;
        }
        if flight.prefill && prefill::is_over(flight, events, &*self.workload) {
            flight.prefill = false;
            let phase = flight.exchange.id.phase;
            self.phases.prefill_ended(phase, came);
            self.quiet = None;
        }
        match progress {
            Progress::More if flight.in_stream() => {
                self.arrived
                    .in_stream(flight.exchange.events.len() - events);
            }
            Progress::More => {}
            Progress::DoneSeen => {
                let serial = flight.serial;
                self.drain_deadlines.push(stamp.tick, conn, serial);
                self.quiet = None;
            }
            Progress::Whole => {
                self.arrived.reply(flight.exchange.ticks.start, stamp);
                self.finish(conn, Outcome::Success, came);
            }
            Progress::Wrong(fault) => self.finish(conn, Outcome::Fault(fault), stamp.tick),
        }
    }

    fn closed_while_busy(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(flight) = &mut c.flight else { return };
        let untouched = !flight.response.started();
        let kept = c.served > 0 || flight.exchange.link.ahead;
        let sent = flight.exchange.ticks.last_byte_sent;
        let crossed = sent == Tick::NEVER || tick.since(sent) <= self.setup.rate.ticks(CROSSING);
        if untouched && kept && crossed && !flight.exchange.link.resent {
            return self.resend(conn);
        }
        let tls_cut = c.tls.as_ref().is_some_and(|tls| !tls.closed_cleanly());
        let outcome = match reason {
            _ if untouched && flight.write_failed => Outcome::Fault(Fault::WriteFailed),
            CloseReason::Eof => flight.end_of_stream(tls_cut),
            CloseReason::Reset => Outcome::Fault(Fault::Reset),
            _ => Outcome::Fault(Fault::Io),
        };
        self.finish(conn, outcome, tick);
    }
}
