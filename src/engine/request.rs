//! How a request begins, goes out, and leads to its session's next turn.
//!
//! In: intents of the schedule. Out: connects and sends. Never: makes a body that could have been made before it is due.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::clock::Tick;
use crate::config::{ConnectionReuse, PhaseKind};
use crate::driver::{ConnId, Op};
use crate::endpoint::{History, Reply};
use crate::record::{Exchange, Outcome, RequestId};
use crate::schedule::{Intent, IntentKind};
use crate::wire::Fault;

use super::conn::State;
use super::flight::Flight;
use super::phase::Waiting;
use super::session::Session;
use super::{Engine, Workload};

/// Seeded random version 4 UUIDs, different for each worker.
pub(super) struct Uuids(ChaCha8Rng);

impl Uuids {
    pub(super) fn new(seed: u64, worker: usize) -> Uuids {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(1 + worker as u64);
        Uuids(random)
    }

    fn draw(&mut self) -> u128 {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .as_u128()
    }
}

impl Engine {
    /// Sends what the schedule says, now.
    pub(super) fn begin(&mut self, intent: Intent, now: Tick) {
        let counted = self.phases.running().schedule.next_request_number();
        let mut session = self.session_of(intent.kind);
        let last_turns = &mut self.phases.running().last_turns;
        *last_turns += u64::from(session.is_last_turn());
        let number = match &session.course {
            Some(course) => course.number(session.turn),
            None => counted,
        };
        self.serial += 1;
        let phase = self.phases.number();
        let mut flight = self.take_flight();
        flight.serial = self.serial;
        flight.prefill = self.phases.running().schedule.limits_prefill();
        flight.tokens = session.reply_tokens(&*self.workload);
        flight.is_to_be_cancelled = self.draws_cancellation(phase, number);
        let request_uuid = self.uuids.draw();
        let exchange = &mut *flight.exchange;
        exchange.ticks.due = intent.due;
        exchange.ticks.slot = self.phases.running().sendable(intent);
        exchange.ticks.start = now;
        exchange.ticks.submitted = now;
        exchange.request_uuid = request_uuid;
        exchange.id = RequestId {
            phase,
            worker: u16::try_from(self.shard.index).unwrap_or(u16::MAX),
            number,
            session: session.number,
            session_uuid: session.uuid,
            conversation: session.conversation,
            turn: session.turn,
            last_turn: session.is_last_turn(),
            url: session.url,
        };
        let body_length = choose_body(&*self.workload, exchange, &mut session);
        exchange.request_body_bytes = body_length as u64;
        let (head, id) = (&mut exchange.request_head, &exchange.id);
        self.workload
            .write_head(head, id, request_uuid, body_length);
        if !session.is_last_turn() && session.needs_reply(&*self.workload) {
            session.reader = self.workload.reader();
        }
        self.counts.sent += 1;
        self.counts.in_flight += 1;
        self.assign(flight, session, now);
    }

    /// Who speaks next.
    fn session_of(&mut self, kind: IntentKind) -> Session {
        match kind {
            IntentKind::Start { session } => self.start_session(session),
            IntentKind::Continue => {
                let ready = self.phases.running().ready.pop_front();
                ready.expect("the schedule counts ready turns")
            }
        }
    }

    /// An empty flight. A spare one was given an empty exchange when its last one was handed over.
    fn take_flight(&mut self) -> Box<Flight> {
        let mut flight = match self.spare_flights.pop() {
            Some(flight) => flight,
            None => Box::new(Flight::new(self.sink.blank(), self.setup.limits)),
        };
        flight.reset();
        flight
    }

    /// Whether request `number` of `phase` is to be cut on purpose.
    fn draws_cancellation(&mut self, phase: u8, number: u64) -> bool {
        let phase = usize::from(phase);
        let profiling = self.setup.phases[phase].kind == PhaseKind::Profiling;
        let draw = self.cancellation.as_mut().filter(|_| profiling);
        draw.is_some_and(|draw| draw.picks(phase, number))
    }

    /// Puts a flight on a connection: the session's own, an idle one, or a new one.
    fn assign(&mut self, mut flight: Box<Flight>, session: Session, now: Tick) {
        let url = session.url;
        let own = session.conn;
        let serial = flight.serial;
        flight.session = Some(session);
        flight.unsent = true;
        self.unsent += 1;
        let warm = match self.setup.reuse {
            ConnectionReuse::Pooled => self.table.take_idle(url),
            ConnectionReuse::Never => None,
            ConnectionReuse::StickyUserSessions => own
                .filter(|&conn| self.is_fresh(conn, now))
                // Only those are pooled that were opened ahead and belong to no session yet.
                .or_else(|| self.table.take_idle(url)),
        };
        let conn = match warm {
            Some(conn) => {
                let c = self
                    .table
                    .current(conn)
                    .expect("an idle connection is in the table");
                c.state = State::Busy;
                flight.exchange.link.reused = c.served > 0;
                if c.served == 0 {
                    // Opened ahead: its set-up is told by its first request, though it is no part of it.
                    flight.exchange.link.ahead = true;
                    flight.exchange.ticks.connect_start = c.connect_start;
                    flight.exchange.ticks.connect_end = c.connect_end;
                    flight.exchange.ticks.tls_end = c.tls_end;
                }
                flight.exchange.link.address = c.address;
                flight.exchange.link.remote = c.remote;
                flight.exchange.link.local_port = c.local_port;
                c.flight = Some(flight);
                self.send_request(conn);
                conn
            }
            None => self.open(url, Some(flight)),
        };
        self.request_deadlines.push(now, conn, serial);
    }

    /// The pooled connection proved closed before it answered anything: the same request, once, on a new one. Its clock goes on
    /// from the first try.
    pub(super) fn resend(&mut self, conn: ConnId) {
        let Some(mut flight) = self.table.current(conn).and_then(|c| c.flight.take()) else {
            return;
        };
        self.close(conn);
        flight.reset();
        flight.exchange.reads.clear();
        flight.exchange.link.resent = true;
        flight.exchange.link.reused = false;
        flight.exchange.link.ahead = false;
        flight.exchange.link.sent_whole = false;
        flight.exchange.ticks.last_byte_sent = Tick::NEVER;
        flight.exchange.ticks.connect_start = Tick::NEVER;
        flight.exchange.ticks.connect_end = Tick::NEVER;
        flight.exchange.ticks.tls_end = Tick::NEVER;
        self.unsent += usize::from(!std::mem::replace(&mut flight.unsent, true));
        self.counts.resent += 1;
        let serial = flight.serial;
        let url = flight.exchange.id.url;
        let submitted = flight.exchange.ticks.submitted;
        let fresh = self.open(url, Some(flight));
        self.request_deadlines.moved(submitted, serial, fresh);
    }

    /// Head and body of the flight on `conn` go out.
    pub(super) fn send_request(&mut self, conn: ConnId) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(flight) = &mut c.flight else { return };
        flight.exchange.link.local_port = c.local_port;
        let id = flight.exchange.id;
        let head = std::mem::take(&mut flight.exchange.request_head);
        let live = flight.exchange.live_body.clone();
        let body = live.or_else(|| self.workload.body(id.conversation, id.turn));
        let body = body.as_deref().unwrap_or(&[]);
        flight.exchange.link.bytes_sent = (head.len() + body.len()) as u64;
        if c.outbox.capacity() == 0 {
            // Taken only when something is to be written: one that waits in an idle connection would go with it.
            c.outbox = self.spare_buffers.pop().unwrap_or_default();
        }
        let mut outcome = Ok(());
        match &mut c.tls {
            None => {
                c.outbox.extend_from_slice(&head);
                c.outbox.extend_from_slice(body);
            }
            Some(tls) => {
                tls.unbound();
                outcome = tls.send(&head).and_then(|()| tls.send(body));
                tls.take_outgoing(&mut c.outbox);
            }
        }
        flight.exchange.request_head = head;
        let now = flight.exchange.ticks.start;
        c.outbox_request = true;
        match outcome {
            Ok(()) => self.start_send(conn),
            Err(fault) => self.finish(conn, Outcome::Fault(fault), now),
        }
    }

    /// TLS bytes that are not a request (handshake, alerts, key updates) go out.
    pub(super) fn flush_tls(&mut self, conn: ConnId) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        if let Some(tls) = &mut c.tls {
            tls.take_outgoing(&mut c.outbox);
        }
        self.start_send(conn);
    }

    /// Hands the outbox to the driver, unless it still holds an earlier one.
    pub(super) fn start_send(&mut self, conn: ConnId) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        if c.sending || c.outbox.is_empty() {
            return;
        }
        c.sending = true;
        c.sending_request = std::mem::take(&mut c.outbox_request);
        let bytes = std::mem::take(&mut c.outbox);
        self.ops.push_back(Op::Send { conn, bytes });
    }

    /// The session of a finished flight goes on to its next turn, or ends. One whose reply must be read first is given back.
    pub(super) fn end_turn(&mut self, flight: &mut Flight, now: Tick) -> Option<Session> {
        let mut session = flight.session.take()?;
        let phase = flight.exchange.id.phase;
        self.phases.turn_ended(phase, session.is_last_turn());
        if session.is_last_turn() || self.phases.is_cut(phase) {
            self.phases.session_ended(phase, now);
            return None;
        }
        let good = flight.exchange.outcome == Outcome::Success;
        if good && session.needs_reply(&*self.workload) {
            return Some(session);
        }
        session.reader = None;
        self.go_on(session, None, flight.serial, now);
        None
    }

    /// `session` goes on to its next turn after a reply that ended at `now`: the turn's body is made, and then it waits until it is due.
    fn go_on(&mut self, mut session: Session, reply: Option<Reply>, serial: u64, now: Tick) {
        let workload = &*self.workload;
        if session.needs_reply(workload) {
            session.remember(workload, reply);
        }
        session.turn += 1;
        session.make_body(workload);
        let due = match &mut session.course {
            Some(course) => course.next_due(session.turn, now),
            None => {
                let own = session.own_time(workload, session.turn);
                let own = own.and_then(|after| self.phases.running().schedule.own_time(after));
                own.unwrap_or_else(|| now.plus(self.setup.rate.ticks(session.delay(workload))))
            }
        };
        self.phases.running().wait(Waiting {
            due,
            serial,
            session,
        });
    }

    /// `session` has heard the whole of `exchange`, whose reply ended at `end`.
    pub(super) fn heard(
        &mut self,
        mut session: Session,
        exchange: &Exchange,
        serial: u64,
        end: Tick,
    ) {
        let phase = exchange.id.phase;
        if self.phases.is_cut(phase) {
            return self.drop_session(&session, phase, end);
        }
        let reader = session.reader.take();
        let reply = self.workload.reply(exchange, reader);
        self.go_on(session, reply, serial, end);
    }

    /// `session` ends before its last turn, and a connection of its own with it.
    pub(super) fn drop_session(&mut self, session: &Session, phase: u8, now: Tick) {
        self.phases.session_ended(phase, now);
        if let Some(conn) = session.own_connection() {
            self.close(conn);
        }
    }

    fn start_session(&mut self, number: u64) -> Session {
        let told = self.phases.running().schedule.conversation(number);
        let conversation = told.unwrap_or_else(|| self.workload.pick(self.phases.index(), number));
        // A warmup before the replay plays what was made before the run.
        let made = told.and_then(|_| self.workload.take_made(number));
        let course = self.phases.running().schedule.course();
        let turn_count = match (&course, &made) {
            (Some(course), _) => course.turns,
            (None, Some(made)) => made.turn_count(),
            (None, None) => self.workload.turn_count(conversation),
        };
        let order = &self.setup.url_order;
        let session = Session {
            number,
            uuid: match &course {
                Some(course) => u128::from(course.user),
                None => self.uuids.draw(),
            },
            conversation,
            turn: 0,
            turn_count,
            url: order[usize::try_from(number % order.len() as u64)
                .expect("the remainder is below a length in memory")],
            made,
            history: History::default(),
            body: None,
            reader: None,
            conn: None,
            course,
        };
        if told.is_some() {
            self.count_due(&session);
        }
        session
    }

    /// Ends every request of phase `phase` that is under way.
    pub(super) fn cut(&mut self, phase: u8, outcome: Outcome, now: Tick) {
        for conn in self.table.ids() {
            let flight = self.table.current(conn).and_then(|c| c.flight.as_ref());
            if flight.is_some_and(|flight| flight.exchange.id.phase == phase) {
                self.finish(conn, outcome, now);
            }
        }
    }

    /// Ends requests that are to be cancelled now, those whose limit has passed, and those that wait for nothing but the end of a
    /// body after `[DONE]`.
    pub(super) fn expire(&mut self, now: Tick) {
        self.start_rivals(now);
        self.sweep_idle(now);
        let delay = self.cancel_deadlines.length();
        while let Some((conn, at)) = self.cancel_deadlines.expired(&mut self.table, now) {
            let flight = self.table.current(conn).and_then(|c| c.flight.as_ref());
            let sent = flight.map(|flight| flight.exchange.ticks.last_byte_sent);
            // One that was sent again has its time from the second sending.
            if sent.is_some_and(|sent| sent != Tick::NEVER && sent.plus(delay) == at) {
                self.finish(conn, Outcome::Cancelled, now);
            }
        }
        self.expire_waits(now);
        while let Some((conn, _)) = self.request_deadlines.expired(&mut self.table, now) {
            let connecting = self
                .table
                .current(conn)
                .is_some_and(|c| matches!(c.state, State::Connecting | State::Tunnelling));
            let outcome = if connecting {
                Outcome::Fault(Fault::ConnectTimeout)
            } else {
                Outcome::Timeout
            };
            self.finish(conn, outcome, now);
        }
        let live = usize::try_from(self.counts.in_flight).unwrap_or(usize::MAX);
        for deadlines in [&mut self.request_deadlines, &mut self.cancel_deadlines] {
            let table = &mut self.table;
            deadlines.prune(live, |&deadline| table.carrier(deadline).is_some());
        }
        while let Some((conn, _)) = self.drain_deadlines.expired(&mut self.table, now) {
            self.end_drained(conn, now);
        }
    }

    fn end_drained(&mut self, conn: ConnId, now: Tick) {
        let Some(flight) = self.table.current(conn).and_then(|c| c.flight.as_mut()) else {
            return;
        };
        debug_assert!(flight.done_seen());
        // The body never ended by itself, so the connection cannot serve again.
        if let Some(head) = &mut flight.exchange.head {
            head.keep_alive = false;
        }
        flight.exchange.link.left_open = true;
        self.finish(conn, Outcome::Success, now);
    }
}

/// Gives `exchange` the body of its turn, unless it is one that the corpus has; says how long it is.
fn choose_body(workload: &dyn Workload, exchange: &mut Exchange, session: &mut Session) -> usize {
    exchange.made.clone_from(&session.made);
    let prepared = match &exchange.made {
        Some(_) => None,
        None => workload.body(session.conversation, session.turn),
    };
    let live = session.body.take().filter(|_| prepared.is_none());
    let made = exchange.made.as_ref();
    let made = made.and_then(|made| made.body(session.turn).cloned());
    exchange.live_body = made.or(live);
    let body = exchange.live_body.as_ref().or(prepared.as_ref());
    let own = body.and_then(|body| workload.own_body(&exchange.id, body));
    let length = own.as_ref().or(body).map_or(0, |body| body.len());
    if own.is_some() {
        exchange.live_body = own;
    }
    length
}
