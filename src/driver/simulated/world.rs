//! The loop of a simulation.
//!
//! In: events in order of virtual time. Out: completions for engines, and what engines want done. Never: lets two runs of one
//! seed differ.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;

use crate::clock::{Nanos, Tick};
use crate::driver::{CloseReason, Sent, Stamp};
use crate::engine::Engine;

use super::faults::strikes;
use super::network::Link;
use super::pump::{Completion, Worker};
use super::sending::Sending;
use super::{
    Act, Chance, End, Faults, Host, Outcome, SeenRequest, Server, Simulation, Struck, VirtualClock,
};

/// Most bytes that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Something that will happen.
pub(super) enum Event {
    /// An engine wakes.
    Wake {
        engine: usize,
    },
    /// A connection is there, or will not be.
    Connected {
        link: usize,
        started: Tick,
    },
    Failed {
        link: usize,
        reason: CloseReason,
    },
    /// Bytes, or the engine's close, reach the peer.
    AtPeer {
        link: usize,
        bytes: Vec<u8>,
    },
    GoneAtPeer {
        link: usize,
    },
    /// The peer goes on with its answer, or closes.
    Emit {
        link: usize,
    },
    IdleClose {
        link: usize,
        served: u32,
    },
    /// Bytes, or the peer's end, reach the engine's side.
    Arrive {
        link: usize,
        bytes: Vec<u8>,
    },
    ArriveEnd {
        link: usize,
        reason: CloseReason,
    },
    /// The engine's side is read.
    Read {
        link: usize,
    },
    /// The connection breaks.
    Break {
        link: usize,
    },
    /// The kernel takes more of a send.
    SendOn(Sending),
    /// A send completes.
    Sent {
        link: usize,
        bytes: Vec<u8>,
        sent: Sent,
    },
    /// Something else.
    Act(Act),
}

struct Entry {
    at: Tick,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A simulation under way.
pub(super) struct World {
    pub(super) now: Tick,
    pub(super) faults: Faults,
    pub(super) struck: Struck,
    pub(super) kernel_stamps: bool,
    pub(super) latency: Nanos,
    decryption: Nanos,
    looks: u64,
    pub(super) chance: Chance,
    pub(super) server: Server,
    pub(super) links: Vec<Link>,
    pub(super) requests: Vec<SeenRequest>,
    pub(super) at_once: u64,
    pub(super) most_at_once: u64,
    pub(super) hosts: BTreeMap<SocketAddr, Host>,
    pub(super) proxies: BTreeMap<SocketAddr, u16>,
    clock: VirtualClock,
    pub(super) workers: Vec<Worker>,
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
    event_limit: u64,
    time_limit: Tick,
    connections: usize,
    pub(super) closed_at: BTreeMap<usize, Tick>,
    pub(super) sockets: usize,
    pub(super) most_sockets: usize,
    pub(super) buffers_out: usize,
    pub(super) breaches: Vec<String>,
    pub(super) announced: BTreeSet<Tick>,
    pub(super) spinning: bool,
}

impl World {
    pub(super) fn new(simulation: Simulation, engines: Vec<Engine>) -> World {
        let workers = engines.into_iter().map(|engine| Worker {
            engine,
            inbox: Vec::new(),
            sockets: Vec::new(),
            wakes_at: Tick::NEVER,
            starved_until: Tick(0),
            finished: false,
        });
        let mut world = World {
            now: Tick(0),
            faults: simulation.faults,
            struck: Struck::default(),
            kernel_stamps: simulation.kernel_stamps,
            latency: simulation.latency,
            decryption: simulation.decryption,
            looks: 0,
            chance: Chance::new(simulation.seed),
            server: simulation.server,
            links: Vec::new(),
            requests: Vec::new(),
            at_once: 0,
            most_at_once: 0,
            hosts: simulation.hosts,
            proxies: simulation.proxies,
            clock: simulation.clock,
            workers: workers.collect(),
            heap: BinaryHeap::new(),
            order: 0,
            event_limit: simulation.event_limit,
            time_limit: simulation.time_limit,
            connections: 0,
            closed_at: BTreeMap::new(),
            sockets: 0,
            most_sockets: 0,
            buffers_out: 0,
            breaches: Vec::new(),
            announced: BTreeSet::new(),
            spinning: false,
        };
        for engine in 0..world.workers.len() {
            world.wake(engine, Tick(0));
        }
        for (at, act) in simulation.acts {
            world.schedule(at, Event::Act(act));
        }
        world
    }

    pub(super) fn run(mut self) -> Outcome {
        let mut events = 0;
        let end = loop {
            if self.workers.iter().all(|worker| worker.finished) {
                break End::Finished;
            }
            let Some(Reverse(entry)) = self.heap.pop() else {
                break End::Dead;
            };
            events += 1;
            if entry.at > self.time_limit || events > self.event_limit {
                break End::Limit;
            }
            self.now = self.now.max(entry.at);
            self.clock.set(self.now);
            self.happen(entry.event);
            if self.spinning {
                break End::Spinning;
            }
        };
        if end == End::Finished {
            self.settle();
        }
        Outcome {
            end,
            now: self.now,
            events,
            closed_at: self.closed_at,
            sockets_left: self.sockets,
            buffers_left: self.buffers_out,
            engines: self.workers.into_iter().map(|w| w.engine).collect(),
            requests: self.requests,
            most_at_once: self.most_at_once,
            connections: self.connections,
            most_connections: self.most_sockets,
            breaches: self.breaches,
            looks: self.looks,
            announced: self.announced,
            struck: self.struck,
        }
    }

    pub(super) fn schedule(&mut self, at: Tick, event: Event) {
        self.order += 1;
        self.heap.push(Reverse(Entry {
            at: at.max(self.now),
            order: self.order,
            event,
        }));
    }

    /// An engine has decrypted for a while, and its driver looks: what came meanwhile is read now.
    pub(super) fn look(&mut self) {
        self.looks += 1;
        let at = self.now.plus(self.decryption.0);
        let mut later = Vec::new();
        while self.heap.peek().is_some_and(|Reverse(next)| next.at <= at) {
            let Some(Reverse(entry)) = self.heap.pop() else {
                break;
            };
            if matches!(entry.event, Event::Read { .. } | Event::Wake { .. }) {
                later.push(entry.event);
                continue;
            }
            self.now = entry.at;
            self.clock.set(self.now);
            self.happen(entry.event);
        }
        self.now = at;
        self.clock.set(at);
        for event in later {
            match event {
                Event::Wake { .. } => self.schedule(at, event),
                event => self.happen(event),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake { engine } => {
                if self.workers[engine].wakes_at <= self.now && !self.workers[engine].finished {
                    self.pump(engine);
                }
            }
            Event::Connected { link, started } => self.connected(link, started),
            Event::Failed { link, reason } => {
                self.forget(link);
                let tick = self.now;
                self.report(link, Completion::Closed { reason, tick });
                self.links[link].closed = true;
            }
            Event::AtPeer { link, bytes } => self.at_peer(link, &bytes),
            Event::GoneAtPeer { link } => self.gone_at_peer(link),
            Event::Emit { link } => self.emit(link),
            Event::IdleClose { link, served } => self.idle_close(link, served),
            Event::Arrive { link, bytes } => {
                let state = &mut self.links[link];
                if state.ended.is_none() {
                    state.arrive(&bytes, self.now);
                    self.arm(link, Nanos(0));
                }
            }
            Event::ArriveEnd { link, reason } => {
                let state = &mut self.links[link];
                if state.ended.is_none() || (reason == CloseReason::Reset && state.reading) {
                    state.ended = Some(reason);
                    // A reset may throw away what was not read.
                    if reason == CloseReason::Reset && self.chance.below(2) == 0 {
                        state.lose_unread();
                    }
                    self.arm(link, Nanos(0));
                }
            }
            Event::Read { link } => self.read(link),
            Event::Break { link } => self.break_link(link),
            Event::SendOn(sending) => self.send_on(sending),
            Event::Sent { link, bytes, sent } => {
                self.links[link].sending = false;
                self.give_back(link, bytes, sent);
            }
            Event::Act(act) => act(),
        }
    }

    fn connected(&mut self, link: usize, started: Tick) {
        self.connections += 1;
        self.links[link].opening = false;
        let done = self.now;
        let local_port = u16::try_from(1_024 + link % 60_000).unwrap_or(0);
        self.report(
            link,
            Completion::Connected {
                local_port,
                started,
                done,
            },
        );
        self.accepted(link);
    }

    /// A read comes soon, or later and finds more.
    fn arm(&mut self, link: usize, after: Nanos) {
        if std::mem::replace(&mut self.links[link].reading, true) {
            return;
        }
        let mut at = self.now.plus(after.0);
        if strikes!(self, merge) {
            at = at.plus(self.chance.below(5_000_000));
        }
        self.schedule(at, Event::Read { link });
    }

    fn read(&mut self, link: usize) {
        if let Some(at) = self.starved(link) {
            return self.schedule(at, Event::Read { link });
        }
        let state = &mut self.links[link];
        state.reading = false;
        if state.unread.is_empty() {
            if let Some(reason) = state.ended {
                let tick = self.now;
                self.report(link, Completion::Closed { reason, tick });
            }
            return;
        }
        let there = state.unread.len().min(READ_BYTES);
        let take = if state.bytewise {
            there.min(1 + self.chance.index(3))
        } else if strikes!(self, split) {
            1 + self.chance.index(there)
        } else {
            there
        };
        let state = &mut self.links[link];
        let (bytes, newest) = state.take(take);
        let more = !state.unread.is_empty() || state.ended.is_some();
        let stamped = self.kernel_stamps && !strikes!(self, unstamped);
        let stamp = Stamp {
            tick: self.now,
            kernel: if stamped { newest } else { Tick::NEVER },
        };
        self.report(link, Completion::Received { bytes, stamp });
        if more {
            let after = Nanos(self.chance.below(2_000));
            self.arm(link, after);
        }
    }

    /// Until when this engine has no buffer to read into.
    fn starved(&mut self, link: usize) -> Option<Tick> {
        let engine = self.links[link].engine;
        let until = self.workers[engine].starved_until;
        if until > self.now {
            return Some(until);
        }
        strikes!(self, no_buffers).then(|| {
            let until = self.now.plus(1 + self.chance.below(2_000_000));
            self.workers[engine].starved_until = until;
            until
        })
    }

    /// All engines have finished: what was under way completes, and must change nothing.
    fn settle(&mut self) {
        while let Some(Reverse(entry)) = self.heap.pop() {
            match entry.event {
                Event::Sent { link, bytes, sent } => self.give_back(link, bytes, sent),
                Event::SendOn(Sending {
                    link, bytes, sent, ..
                }) => self.give_back(link, bytes, sent),
                _ => {}
            }
        }
        for engine in 0..self.workers.len() {
            self.deliver(engine);
        }
    }
}
