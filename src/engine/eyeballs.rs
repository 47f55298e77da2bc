//! Connections to servers that have several addresses.
//!
//! In: a target, refusals, silence. Out: a connection to the first address that answers, and which it was. Never: lets a request fail while
//! an address is untried, or pays for a dead one twice.
//!
//! RFC 8305 section 5: an attempt that is not answered after a head start gets a rival to the next address beside it, and one that fails
//! is followed at once. The first to be connected takes the request; the others are closed. Its address is where the next connection begins.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::clock::Tick;
use crate::driver::{CloseReason, ConnId, Op};
use crate::record::Outcome;
use crate::wire::Fault;

use super::Engine;
use super::conn::State;
use super::flight::Flight;

/// How one target is reached.
pub(super) struct Route {
    /// Never empty.
    addresses: Vec<SocketAddr>,
    /// Where the next connection begins.
    first: usize,
    /// One has answered.
    answered: bool,
}

impl Route {
    /// The first address is tried first.
    pub(super) fn new(addresses: &[SocketAddr]) -> Route {
        Route {
            addresses: addresses.to_vec(),
            first: 0,
            answered: false,
        }
    }

    /// Address number `tried` of a connection that began at `first`.
    fn address(&self, first: u16, tried: u16) -> Option<(u16, SocketAddr)> {
        let count = self.addresses.len();
        if usize::from(tried) >= count {
            return None;
        }
        let index = (usize::from(first) + usize::from(tried)) % count;
        let narrow = u16::try_from(index).ok()?;
        Some((narrow, self.addresses[index]))
    }

    /// A look-up found others. Connections that are there stay, and the next begins where the last did, if that address is still one.
    fn replace(&mut self, addresses: &[SocketAddr]) {
        if addresses.is_empty() {
            return;
        }
        let last = self.addresses[self.first];
        let still = addresses.iter().position(|address| *address == last);
        self.addresses.clear();
        self.addresses.extend_from_slice(addresses);
        self.first = still.unwrap_or(0);
        self.answered &= still.is_some();
    }

    fn answered(&mut self, address: SocketAddr) {
        // One that a later look-up no longer has is not gone back to.
        if let Some(index) = self.addresses.iter().position(|known| *known == address) {
            self.first = index;
            self.answered = true;
        }
    }
}

/// Attempts that may get a rival: when, and which. They began in this order, and all have the same head start.
pub(super) type Races = VecDeque<(Tick, ConnId)>;

/// Of several addresses the one that was used last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedAddress {
    /// Index into the targets.
    pub target: usize,
    /// The address.
    pub address: SocketAddr,
}

impl Engine {
    /// The address of each target that has answered.
    #[must_use]
    pub fn used_addresses(&self) -> Vec<UsedAddress> {
        let routes = self.routes.iter().enumerate();
        let answered = routes.filter(|(_, route)| route.answered);
        answered
            .map(|(target, route)| UsedAddress {
                target,
                address: route.addresses[route.first],
            })
            .collect()
    }

    /// Takes what a look-up has found meanwhile.
    pub(super) fn take_addresses(&mut self) {
        if let Some((version, lists)) = self.control.addresses(self.addresses_seen) {
            self.addresses_seen = version;
            for (route, addresses) in self.routes.iter_mut().zip(lists.iter()) {
                route.replace(addresses);
            }
        }
    }

    /// Opens a connection to `url` that carries `flight`, or is there ahead of one.
    pub(super) fn open(&mut self, url: u16, flight: Option<Box<Flight>>) -> ConnId {
        let conn = self.table.open(url, flight);
        let first = u16::try_from(self.routes[usize::from(url)].first).unwrap_or(0);
        let c = self
            .table
            .current(conn)
            .expect("the connection has just been opened");
        c.first = first;
        self.counts.connects += 1;
        self.counts.open_connections += 1;
        self.attempt(conn);
        conn
    }

    /// `conn` tries its next address, if there is one.
    fn attempt(&mut self, conn: ConnId) -> bool {
        let Some(c) = self.table.current(conn) else {
            return false;
        };
        let route = &self.routes[usize::from(c.target)];
        let Some((index, address)) = route.address(c.first, c.tried) else {
            return false;
        };
        c.tried += 1;
        c.address = index;
        c.remote = Some(address);
        self.counts.attempts += 1;
        self.ops.push_back(Op::Connect { conn, address });
        true
    }

    /// The driver is about to carry out a connect of `conn`. With the first one the request's wait for a connection begins; it goes on
    /// over all further attempts, also where one of those takes the request over.
    pub(super) fn connect_begun(&mut self, conn: ConnId, now: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let is_first = c.asked == Tick::NEVER;
        c.asked = c.asked.min(now);
        if let Some(flight) = c.flight.as_ref().filter(|_| is_first)
            && self.waits.connecting(now, conn, flight.serial)
        {
            self.quiet = None;
        }
        let leader = c.leader.unwrap_or(conn);
        let Some(c) = self.table.current(leader) else {
            return;
        };
        let route = &self.routes[usize::from(c.target)];
        if route.address(c.first, c.tried).is_some() {
            let head_start = self.setup.rate.ticks(self.setup.connects.head_start);
            self.races.push_back((now.plus(head_start), leader));
            self.quiet = None;
        }
    }

    /// Attempts whose head start is over get a rival.
    pub(super) fn start_rivals(&mut self, now: Tick) {
        while let Some(&(at, conn)) = self.races.front() {
            if at > now {
                return;
            }
            self.races.pop_front();
            self.start_rival(conn);
        }
    }

    /// When the next attempt gets a rival. Most have been answered long before, and a worker does not wake for those.
    pub(super) fn next_race(&mut self) -> Option<Tick> {
        while let Some(&(at, conn)) = self.races.front() {
            let state = self.table.current(conn).map(|c| c.state);
            if state == Some(State::Connecting) {
                return Some(at);
            }
            self.races.pop_front();
        }
        None
    }

    fn start_rival(&mut self, leader: ConnId) {
        let Some(c) = self.table.current(leader) else {
            return;
        };
        let (target, first, tried) = (c.target, c.first, c.tried);
        let untried = self.routes[usize::from(target)].address(first, tried);
        if c.state != State::Connecting || untried.is_none() {
            return;
        }
        c.tried += 1;
        let rival = self.table.open(target, None);
        if let Some(c) = self.table.current(leader) {
            c.rivals.push(rival);
        }
        if let Some(c) = self.table.current(rival) {
            c.leader = Some(leader);
            c.first = first;
            c.tried = tried;
        }
        self.counts.open_connections += 1;
        self.quiet = None;
        self.attempt(rival);
    }

    /// `conn` is connected: what was tried beside it is closed, and it carries the request.
    pub(super) fn race_won(&mut self, conn: ConnId) {
        self.take_over(conn);
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let rivals = std::mem::take(&mut c.rivals);
        if let Some(address) = c.remote {
            self.routes[usize::from(c.target)].answered(address);
        }
        for rival in rivals {
            self.close(rival);
        }
    }

    /// A rival takes the place of the connection that it was opened beside, which is closed.
    fn take_over(&mut self, rival: ConnId) {
        let leader = self.table.current(rival).and_then(|c| c.leader.take());
        let Some(leader) = leader else { return };
        let Some(l) = self.table.current(leader) else {
            return;
        };
        let flight = l.flight.take();
        let mut rivals = std::mem::take(&mut l.rivals);
        let (asked, tried) = (l.asked, l.tried);
        self.close(leader);
        if let Some(flight) = &flight {
            let (submitted, serial) = (flight.exchange.ticks.submitted, flight.serial);
            self.request_deadlines.moved(submitted, serial, rival);
            if asked != Tick::NEVER {
                self.waits.connecting_moved(asked, rival, serial);
            }
        }
        rivals.retain(|&other| other != rival);
        self.lead(&rivals, rival);
        if let Some(c) = self.table.current(rival) {
            c.rivals = rivals;
            c.flight = flight;
            c.asked = c.asked.min(asked);
            c.tried = tried;
        }
    }

    /// From here on `rivals` stand beside `leader`.
    fn lead(&mut self, rivals: &[ConnId], leader: ConnId) {
        for &rival in rivals {
            if let Some(c) = self.table.current(rival) {
                c.leader = Some(leader);
            }
        }
    }

    /// The next address of the target, a rival that is still on its way, or the end of the request.
    pub(super) fn connect_failed(&mut self, conn: ConnId, reason: CloseReason, tick: Tick) {
        self.quiet = None;
        let Some(c) = self.table.current(conn) else {
            return;
        };
        if let Some(leader) = c.leader {
            self.close(conn);
            if let Some(c) = self.table.current(leader) {
                c.rivals.retain(|&other| other != conn);
            }
            return self.start_rival(leader);
        }
        let (target, first, tried) = (c.target, c.first, c.tried);
        if self.routes[usize::from(target)]
            .address(first, tried)
            .is_some()
        {
            let again = self.table.renew(conn);
            let rivals = self.table.current(again).map(|c| c.rivals.clone());
            self.lead(&rivals.unwrap_or_default(), again);
            self.attempt(again);
            return;
        }
        while let Some(rival) = self.table.current(conn).and_then(|c| c.rivals.pop()) {
            if self.table.current(rival).is_some() {
                return self.take_over(rival);
            }
        }
        let tunnel = self.setup.targets[usize::from(target)].tunnel.is_some();
        let fault = match reason {
            CloseReason::LocalExhausted => Fault::LocalExhausted,
            _ if tunnel => Fault::ProxyUnreachable,
            CloseReason::Refused => Fault::ConnectRefused,
            _ => Fault::ConnectFailed,
        };
        if let Some(c) = self.table.current(conn)
            && let Some(flight) = &mut c.flight
        {
            flight.exchange.link.address = c.address;
        }
        self.finish(conn, Outcome::Fault(fault), tick);
    }
}
