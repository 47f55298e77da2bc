//! How a request begins, goes out, and leads to its session's next turn.
//!
//! In: intents of the schedule. Out: connects and sends. Never: renders a body that could have been rendered before.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::clock::Tick;
use crate::config::ConnectionReuse;
use crate::driver::{ConnId, Op};
use crate::endpoint::Reply;
use crate::record::{Outcome, RequestId};
use crate::schedule::{Intent, IntentKind};
use crate::wire::Fault;

use super::Engine;
use super::conn::State;
use super::flight::Flight;
use super::phase::Waiting;

/// One playing of a conversation.
#[derive(Debug)]
pub(super) struct Session {
    /// Number within its phase over all workers.
    pub(super) number: u64,
    uuid: u128,
    conversation: u32,
    turn: u32,
    turn_count: u32,
    url: u16,
    /// What the server said in each earlier turn; kept only where a later turn needs it.
    history: Vec<Option<Reply>>,
    /// Its own connection, with sticky sessions.
    conn: Option<ConnId>,
}

impl Session {
    /// The turn under way is its last.
    pub(super) fn is_last_turn(&self) -> bool {
        self.turn + 1 >= self.turn_count
    }

    /// The connection kept for its next turn, which may have been closed since.
    pub(super) fn own_connection(&self) -> Option<ConnId> {
        self.conn
    }

    /// Its next turn goes out on `conn`.
    pub(super) fn keep(&mut self, conn: ConnId) {
        self.conn = Some(conn);
    }
}

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
        let number = self.phases.running().schedule.next_request_number();
        let session = match intent.kind {
            IntentKind::Start { session } => self.start_session(session),
            IntentKind::Continue => self
                .phases
                .running()
                .ready
                .pop_front()
                .expect("the schedule counts ready turns"),
        };
        self.serial += 1;
        let phase = self.phases.index();
        // A spare flight was given an empty exchange when its last one was handed over.
        let mut flight = match self.spare_flights.pop() {
            Some(flight) => flight,
            None => Box::new(Flight::new(self.sink.blank(), self.setup.limits)),
        };
        flight.reset();
        flight.serial = self.serial;
        flight.tokens = self
            .workload
            .reply_tokens(session.conversation, session.turn);
        let request_uuid = self.uuids.draw();
        let exchange = &mut *flight.exchange;
        exchange.ticks.due = intent.due;
        exchange.ticks.start = now;
        exchange.ticks.submitted = now;
        exchange.request_uuid = request_uuid;
        exchange.id = RequestId {
            phase: u8::try_from(phase).unwrap_or(u8::MAX),
            worker: u16::try_from(self.shard.index).unwrap_or(u16::MAX),
            number,
            session: session.number,
            session_uuid: session.uuid,
            conversation: session.conversation,
            turn: session.turn,
            last_turn: session.is_last_turn(),
            url: session.url,
        };
        let prepared = self.workload.body(session.conversation, session.turn);
        exchange.live_body = match prepared {
            Some(_) => None,
            None => Some(self.workload.live_body(
                session.conversation,
                session.turn,
                &session.history,
            )),
        };
        let body_length = prepared
            .as_ref()
            .or(exchange.live_body.as_ref())
            .map_or(0, |body| body.len());
        exchange.request_body_bytes = body_length as u64;
        self.workload.write_head(
            &mut exchange.request_head,
            session.url,
            request_uuid,
            session.uuid,
            body_length,
        );
        self.counts.sent += 1;
        self.counts.in_flight += 1;
        self.assign(flight, session, now);
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
            ConnectionReuse::StickyUserSessions => own.filter(|&conn| {
                self.table
                    .current(conn)
                    .is_some_and(|c| c.state == State::Idle)
            }),
        };
        let conn = match warm {
            Some(conn) => {
                let c = self
                    .table
                    .current(conn)
                    .expect("an idle connection is in the table");
                c.state = State::Busy;
                flight.exchange.link.reused = c.served > 0;
                flight.exchange.link.address = c.address;
                flight.exchange.link.local_port = c.local_port;
                c.flight = Some(flight);
                self.send_request(conn);
                conn
            }
            None => self.open(url, flight),
        };
        self.request_deadlines.push(now, conn, serial);
    }

    fn open(&mut self, url: u16, flight: Box<Flight>) -> ConnId {
        let address = self.setup.targets[usize::from(url)].addresses[0];
        let conn = self.table.open(url, flight);
        self.counts.connects += 1;
        self.counts.open_connections += 1;
        self.ops.push_back(Op::Connect { conn, address });
        conn
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
        flight.exchange.link.sent_whole = false;
        flight.exchange.ticks.last_byte_sent = Tick::NEVER;
        self.unsent += usize::from(!std::mem::replace(&mut flight.unsent, true));
        self.counts.resent += 1;
        let serial = flight.serial;
        let url = flight.exchange.id.url;
        let fresh = self.open(url, flight);
        self.request_deadlines.moved(serial, fresh);
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

    /// The session of a finished flight goes on to its next turn, or ends.
    pub(super) fn end_turn(&mut self, flight: &mut Flight, now: Tick) {
        let Some(mut session) = flight.session.take() else {
            return;
        };
        if session.is_last_turn() || self.phases.is_cut() {
            self.phases.running().schedule.session_ended(now);
            return;
        }
        let good = flight.exchange.outcome == Outcome::Success
            && self.workload.needs_reply(session.conversation);
        let reply = if good {
            self.workload.reply(&flight.exchange)
        } else {
            None
        };
        session.history.push(reply);
        session.turn += 1;
        let own = self.workload.own_time(session.conversation, session.turn);
        let own = own.and_then(|after| self.phases.running().schedule.own_time(after));
        let due = own.unwrap_or_else(|| {
            let think = self.workload.delay(session.conversation, session.turn);
            now.plus(self.setup.rate.ticks(think))
        });
        self.phases.running().wait(Waiting {
            due,
            serial: flight.serial,
            session,
        });
    }

    fn start_session(&mut self, number: u64) -> Session {
        let told = self.phases.running().schedule.conversation(number);
        let conversation = told.unwrap_or_else(|| self.workload.pick(self.phases.index(), number));
        let turn_count = self.workload.turn_count(conversation);
        let url_count = self.setup.targets.len() as u64;
        Session {
            number,
            uuid: self.uuids.draw(),
            conversation,
            turn: 0,
            turn_count,
            url: u16::try_from(number % url_count)
                .expect("the remainder is below a count of targets that fits 16 bits"),
            history: Vec::new(),
            conn: None,
        }
    }

    /// Ends every request under way.
    pub(super) fn cut(&mut self, outcome: Outcome, now: Tick) {
        for conn in self.table.ids() {
            if self.table.current(conn).is_some_and(|c| c.flight.is_some()) {
                self.finish(conn, outcome, now);
            }
        }
    }

    /// Ends requests whose limit has passed, and those that wait for nothing but the end of a body after `[DONE]`.
    pub(super) fn expire(&mut self, now: Tick) {
        while let Some(first) = self.request_deadlines.first() {
            let carrier = self.table.carrier(first);
            if carrier.is_some() && first.at > now {
                break;
            }
            self.request_deadlines.pop();
            if let Some(conn) = carrier {
                let connecting = self
                    .table
                    .current(conn)
                    .is_some_and(|c| c.state == State::Connecting);
                let outcome = if connecting {
                    Outcome::Fault(Fault::ConnectTimeout)
                } else {
                    Outcome::Timeout
                };
                self.finish(conn, outcome, now);
            }
        }
        let live = usize::try_from(self.counts.in_flight).unwrap_or(usize::MAX);
        let table = &mut self.table;
        self.request_deadlines
            .prune(live, |&deadline| table.carrier(deadline).is_some());
        while let Some(first) = self.drain_deadlines.first() {
            let carrier = self.table.carrier(first);
            if carrier.is_some() && first.at > now {
                break;
            }
            self.drain_deadlines.pop();
            if let Some(conn) = carrier {
                self.end_drained(conn, now);
            }
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
        self.finish(conn, Outcome::Success, now);
    }
}
