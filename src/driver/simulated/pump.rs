//! The driver's half of a simulation.
//!
//! In: completions. Out: an engine pumped as a real driver pumps it, and its operations on simulated connections. Never: hands
//! over a completion when it happens rather than when the engine wakes.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::clock::Tick;
use crate::driver::{CloseReason, ConnId, Op, Sent, Stamp};
use crate::engine::Engine;

use super::Reach;
use super::faults::strikes;
use super::network::Link;
use super::peer::Peer;
use super::proxy::Proxy;
use super::world::{Event, World};

/// An engine that wants to be asked again at once this often at one time never stops.
const SPINS: u32 = 64;

/// A completion that waits for its engine to wake.
pub(super) enum Completion {
    Connected {
        local_port: u16,
        started: Tick,
        done: Tick,
    },
    Received {
        bytes: Vec<u8>,
        stamp: Stamp,
    },
    Sent {
        bytes: Vec<u8>,
        sent: Sent,
    },
    Closed {
        reason: CloseReason,
        tick: Tick,
    },
}

/// One engine and its driver's state.
pub(super) struct Worker {
    pub(super) engine: Engine,
    pub(super) inbox: Vec<(ConnId, Completion)>,
    /// The link of each connection index.
    pub(super) sockets: Vec<Option<usize>>,
    pub(super) wakes_at: Tick,
    /// Until then nothing is read.
    pub(super) starved_until: Tick,
    pub(super) finished: bool,
}

impl World {
    /// Queues a completion for its engine and wakes it.
    pub(super) fn report(&mut self, link: usize, completion: Completion) {
        let state = &self.links[link];
        let (engine, conn) = (state.engine, state.conn);
        let returns_buffer = matches!(completion, Completion::Sent { .. });
        if state.closed && !returns_buffer && !strikes!(self, stale) {
            return;
        }
        self.workers[engine].inbox.push((conn, completion));
        let at = self.lagged(self.now);
        self.wake(engine, at);
    }

    fn lagged(&mut self, at: Tick) -> Tick {
        if strikes!(self, freeze) {
            at.plus(self.chance.below(500_000_000))
        } else if strikes!(self, lag) {
            at.plus(self.chance.below(200_000))
        } else {
            at
        }
    }

    pub(super) fn wake(&mut self, engine: usize, at: Tick) {
        if at < self.workers[engine].wakes_at {
            self.workers[engine].wakes_at = at;
            self.schedule(at, Event::Wake { engine });
        }
    }

    /// What a real driver's loop does in one turn.
    pub(super) fn pump(&mut self, engine: usize) {
        self.workers[engine].wakes_at = Tick::NEVER;
        for _ in 0..SPINS {
            self.deliver(engine);
            let Some(until) = self.carry_out(engine) else {
                self.workers[engine].finished = true;
                return;
            };
            if until > self.now && self.workers[engine].inbox.is_empty() {
                let at = self.lagged(until);
                return self.wake(engine, at);
            }
        }
        self.spinning = true;
    }

    pub(super) fn deliver(&mut self, index: usize) {
        let mut inbox = std::mem::take(&mut self.workers[index].inbox);
        if inbox.len() > 1 && strikes!(self, reorder) {
            inbox = self.reordered(inbox);
        }
        let mut looked = false;
        for (conn, completion) in inbox {
            let engine = &mut self.workers[index].engine;
            match completion {
                Completion::Connected {
                    local_port,
                    started,
                    done,
                } => engine.on_connected(conn, local_port, started, done),
                Completion::Received { bytes, stamp } => {
                    looked |= self.hand_over(index, conn, &bytes, stamp);
                }
                Completion::Sent { bytes, sent } => engine.on_sent(conn, bytes, sent),
                Completion::Closed { reason, tick } => engine.on_closed(conn, reason, tick),
            }
        }
        if looked {
            // What was decrypted since the last look.
            self.look();
        }
    }

    /// Hands over a read, and looks as often as the engine wants that; whether it did.
    fn hand_over(&mut self, index: usize, conn: ConnId, bytes: &[u8], stamp: Stamp) -> bool {
        let mut rest = bytes;
        loop {
            let taken = self.workers[index].engine.on_received(conn, rest, stamp);
            rest = &rest[taken..];
            if rest.is_empty() {
                return bytes.len() > taken;
            }
            self.look();
        }
    }

    /// Another order, in which the completions of each connection keep theirs.
    fn reordered(&mut self, inbox: Vec<(ConnId, Completion)>) -> Vec<(ConnId, Completion)> {
        let mut left: VecDeque<_> = inbox.into();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let (picked, _) = left[self.chance.index(left.len())];
            let first = left.iter().position(|(conn, _)| *conn == picked);
            order.extend(first.and_then(|first| left.remove(first)));
        }
        order
    }

    fn carry_out(&mut self, engine: usize) -> Option<Tick> {
        loop {
            match self.workers[engine].engine.next(self.now) {
                Op::Connect { conn, address } => self.connect(engine, conn, address),
                Op::Send { conn, bytes } => self.send(engine, conn, bytes),
                Op::Close { conn } => self.close(engine, conn),
                Op::Wait {
                    until,
                    send_due,
                    sending,
                } => {
                    if send_due {
                        self.announced.insert(until);
                    }
                    self.check_sending(engine, sending);
                    return Some(until);
                }
                Op::Finished => return None,
            }
        }
    }

    /// A driver may leave reads for a while only when no request is on its way out.
    fn check_sending(&mut self, engine: usize, sending: bool) {
        let worker = &self.workers[engine];
        if sending || !worker.inbox.is_empty() {
            return;
        }
        let mut links = worker.sockets.iter().flatten();
        let on_its_way = |&&link: &&usize| self.links[link].opening || self.links[link].sending;
        if let Some(&link) = links.find(on_its_way) {
            let conn = self.links[link].conn;
            self.breaches.push(format!(
                "{conn:?} was on its way out, and the engine did not say so"
            ));
        }
    }

    fn connect(&mut self, engine: usize, conn: ConnId, address: SocketAddr) {
        let host = self.hosts.get(&address).cloned().unwrap_or_default();
        let bytewise = strikes!(self, bytewise);
        let link = self.links.len();
        let mut peer = Peer::new(host.tls.as_ref());
        peer.proxy = self.proxies.get(&address).copied().map(Proxy::new);
        self.links.push(Link::new(engine, conn, peer, bytewise));
        let sockets = &mut self.workers[engine].sockets;
        let index = conn.index as usize;
        sockets.resize(sockets.len().max(index + 1), None);
        if sockets[index].replace(link).is_some() {
            self.breaches
                .push(format!("{conn:?} was opened over another connection"));
        } else {
            self.sockets += 1;
            self.most_sockets = self.most_sockets.max(self.sockets);
        }
        let silent = strikes!(self, silent_connect);
        let refused = strikes!(self, refuse) || host.reach == Reach::Refused;
        let failed = strikes!(self, failed_connect);
        let mut at = self.now.plus(2 * self.latency.0);
        if strikes!(self, slow_connect) {
            at = at.plus(self.chance.below(3_000_000_000));
        }
        let started = self.now;
        if silent || host.reach == Reach::Silent {
            return;
        }
        let event = match (refused, failed) {
            (true, _) => Event::Failed {
                link,
                reason: CloseReason::Refused,
            },
            (_, true) => Event::Failed {
                link,
                reason: [
                    CloseReason::Unreachable,
                    CloseReason::LocalExhausted,
                    CloseReason::Io,
                ][self.chance.index(3)],
            },
            _ => Event::Connected { link, started },
        };
        self.schedule(at, event);
    }

    fn close(&mut self, engine: usize, conn: ConnId) {
        let open = self.link_of(engine, conn);
        let Some(link) = self.known(engine, conn, "closed") else {
            return;
        };
        self.links[link].closed_by_engine = true;
        if open.is_some() {
            self.forget(link);
            self.links[link].closed = true;
            self.closed_at.insert(link, self.now);
            self.close_to_peer(link);
        }
    }

    /// The link of `conn`, also of one that has failed without the engine's knowing. An engine may do no more with a connection that
    /// it has closed, or never opened.
    pub(super) fn known(&mut self, engine: usize, conn: ConnId, done: &str) -> Option<usize> {
        let of_conn = |link: &Link| link.engine == engine && link.conn == conn;
        let link = self.link_of(engine, conn);
        let link = link.or_else(|| self.links.iter().rposition(of_conn));
        let link = link.filter(|&link| !self.links[link].closed_by_engine);
        if link.is_none() {
            let breach = format!("{conn:?} was {done}, and is not open");
            self.breaches.push(breach);
        }
        link
    }

    pub(super) fn link_of(&self, engine: usize, conn: ConnId) -> Option<usize> {
        let link = (*self.workers[engine].sockets.get(conn.index as usize)?)?;
        (self.links[link].conn == conn).then_some(link)
    }

    pub(super) fn forget(&mut self, link: usize) {
        let (engine, conn) = (self.links[link].engine, self.links[link].conn);
        if self.link_of(engine, conn) == Some(link) {
            self.workers[engine].sockets[conn.index as usize] = None;
            self.sockets -= 1;
        }
    }
}
