//! The connections of one engine.
//!
//! In: ids. Out: the connection that an id means now, or nothing. Never: lets a completion of a closed connection reach the one
//! that took its place.

use std::net::SocketAddr;

use crate::clock::Tick;
use crate::driver::{ConnId, fetch_front};
use crate::wire::ConnectReply;

use super::deadline::Deadline;
use super::flight::{Flight, Near};
use super::tls::Tls;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// TCP is being set up.
    Connecting,
    /// A proxy was asked for a tunnel.
    Tunnelling,
    /// TLS is being set up.
    Handshaking,
    /// A request is under way.
    Busy,
    /// It waits for a request.
    Idle,
}

/// One TCP connection. What every read needs stands first.
#[repr(C)]
pub(super) struct Connection {
    pub(super) state: State,
    /// The driver holds a buffer of this connection.
    pub(super) sending: bool,
    /// That buffer holds the request's last byte.
    pub(super) sending_request: bool,
    /// The outbox ends with the request's last byte.
    pub(super) outbox_request: bool,
    /// Index into the targets.
    pub(super) target: u16,
    /// Index into the target's addresses, of the latest attempt.
    pub(super) address: u16,
    pub(super) tls: Option<Box<Tls>>,
    /// The request under way; `None` when idle, and while it is set up ahead of a phase.
    pub(super) flight: Option<Box<Flight>>,
    /// Where the flight's memory was after its latest read.
    pub(super) near: Near,
    /// That address.
    pub(super) remote: Option<SocketAddr>,
    /// Index of the first attempt's address, and how many were tried, those of rivals included.
    pub(super) first: u16,
    pub(super) tried: u16,
    /// When the first attempt was asked of the driver.
    pub(super) asked: Tick,
    /// It was opened beside this one, to another address, and has nothing of its own.
    pub(super) leader: Option<ConnId>,
    /// Those that were opened beside it.
    pub(super) rivals: Vec<ConnId>,
    /// Since when it waits for a request.
    pub(super) idle_since: Tick,
    /// What a proxy answers; `None` when it has, and without one.
    pub(super) tunnel: Option<ConnectReply>,
    /// Requests that ended on it.
    pub(super) served: u32,
    pub(super) local_port: u16,
    /// When its set-up began, when TCP was connected, when TLS was.
    pub(super) connect_start: Tick,
    pub(super) connect_end: Tick,
    pub(super) tls_end: Tick,
    /// Bytes to be sent after those now being sent.
    pub(super) outbox: Vec<u8>,
}

impl Connection {
    /// TLS or a tunnel is set up, and there is no request yet.
    pub(super) fn is_ready_ahead(&self) -> bool {
        let ready = match self.state {
            State::Handshaking => self.tls.as_ref().is_some_and(|tls| tls.is_ready()),
            State::Tunnelling => self.tunnel.is_none(),
            State::Connecting | State::Busy | State::Idle => false,
        };
        self.flight.is_none() && ready
    }
}

/// Its first line holds what tells where all the rest is.
#[repr(C, align(64))]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// All connections, and which of them are idle.
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Idle connections for each target, the most recently used last.
    idle: Vec<Vec<ConnId>>,
}

impl Table {
    pub(super) fn new(target_count: usize) -> Table {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            idle: vec![Vec::new(); target_count],
        }
    }

    /// Connections to `target`, whatever they do.
    pub(super) fn held(&self, target: u16) -> usize {
        let connections = self
            .slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref());
        let own = connections.filter(|c| c.target == target && c.leader.is_none());
        own.count()
    }

    /// A new connection towards `target` that carries `flight`, or is there ahead of one.
    pub(super) fn open(&mut self, target: u16, flight: Option<Box<Flight>>) -> ConnId {
        let connection = Connection {
            state: State::Connecting,
            sending: false,
            sending_request: false,
            outbox_request: false,
            target,
            address: 0,
            tls: None,
            flight,
            near: Near::default(),
            remote: None,
            first: 0,
            tried: 0,
            asked: Tick::NEVER,
            leader: None,
            rivals: Vec::new(),
            idle_since: Tick::NEVER,
            tunnel: None,
            served: 0,
            local_port: 0,
            connect_start: Tick::NEVER,
            connect_end: Tick::NEVER,
            tls_end: Tick::NEVER,
            outbox: Vec::new(),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                connection: None,
            });
            u32::try_from(self.slots.len() - 1).expect("connections fit 32 bits")
        });
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.connection.is_none());
        slot.connection = Some(connection);
        ConnId {
            index,
            generation: slot.generation,
        }
    }

    /// The connection that `conn` means, if it is still there.
    pub(super) fn current(&mut self, conn: ConnId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        if slot.generation == conn.generation {
            slot.connection.as_mut()
        } else {
            None
        }
    }

    /// Asks for what tells where the memory of `conn` is.
    pub(super) fn fetch_slot(&self, conn: ConnId) {
        if let Some(slot) = self.slots.get(conn.index as usize) {
            fetch_front(slot, 1);
        }
    }

    /// Asks for what the next read on `conn` needs.
    pub(super) fn fetch_flight(&self, conn: ConnId) {
        let slot = self.slots.get(conn.index as usize);
        let connection = slot.and_then(|slot| slot.connection.as_ref());
        if let Some(connection) = connection
            && let Some(flight) = &connection.flight
        {
            flight.fetch();
            connection.near.fetch();
        }
    }

    /// The connection in slot `index`, if there is one.
    fn at(&mut self, index: u32) -> Option<(ConnId, &mut Connection)> {
        let slot = self.slots.get_mut(index as usize)?;
        let generation = slot.generation;
        slot.connection
            .as_mut()
            .map(|connection| (ConnId { index, generation }, connection))
    }

    /// The connection that still carries the flight of `deadline`. One that moved to its next address keeps its index and flight.
    pub(super) fn carrier(&mut self, deadline: Deadline) -> Option<ConnId> {
        let (conn, c) = self.at(deadline.conn.index)?;
        let flight = c.flight.as_ref();
        let same = flight.is_some_and(|flight| flight.serial == deadline.serial);
        same.then_some(conn)
    }

    /// The same connection under a new generation, so that completions of its past are not taken for its own.
    pub(super) fn renew(&mut self, conn: ConnId) -> ConnId {
        let slot = &mut self.slots[conn.index as usize];
        debug_assert_eq!(slot.generation, conn.generation);
        slot.generation = slot.generation.wrapping_add(1);
        ConnId {
            index: conn.index,
            generation: slot.generation,
        }
    }

    /// Frees the slot of `conn`; false when it was gone already.
    pub(super) fn release(&mut self, conn: ConnId) -> bool {
        let Some(slot) = self.slots.get_mut(conn.index as usize) else {
            return false;
        };
        if slot.generation != conn.generation {
            return false;
        }
        let Some(connection) = slot.connection.take() else {
            return false;
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(conn.index);
        if connection.state == State::Idle {
            self.idle[usize::from(connection.target)].retain(|&other| other != conn);
        }
        true
    }

    /// Marks `conn` idle since `tick`; a pooled one can be taken by any request to its target.
    pub(super) fn make_idle(&mut self, conn: ConnId, pooled: bool, tick: Tick) {
        let Some(connection) = self.current(conn) else {
            return;
        };
        connection.state = State::Idle;
        connection.idle_since = tick;
        let target = usize::from(connection.target);
        if pooled {
            self.idle[target].push(conn);
        }
    }

    /// The idle connection to `target` that was used last: the one least likely to have been closed by the peer meanwhile.
    pub(super) fn take_idle(&mut self, target: u16) -> Option<ConnId> {
        self.idle[usize::from(target)].pop()
    }

    /// Takes out of the pool what has waited for `most` ticks or longer. Each target's list is in the order in which its connections came
    /// to be idle, but for those of one batch.
    pub(super) fn take_idle_since(&mut self, now: Tick, most: u64) -> Vec<ConnId> {
        let mut stale = Vec::new();
        for target in 0..self.idle.len() {
            let mut count = 0;
            while let Some(&conn) = self.idle[target].get(count) {
                let since = self.current(conn).map_or(now, |c| c.idle_since);
                if now.since(since) < most {
                    break;
                }
                count += 1;
            }
            stale.extend(self.idle[target].drain(..count));
        }
        stale
    }

    /// Ids of all connections.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let held = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.connection.is_some());
        held.map(|(index, slot)| ConnId {
            index: u32::try_from(index).expect("connections fit 32 bits"),
            generation: slot.generation,
        })
        .collect()
    }
}
