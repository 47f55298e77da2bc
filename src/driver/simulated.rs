//! The driver of tests: virtual time, a seeded network, scripted servers.
//!
//! In: engines and a seed. Out: what the servers saw, and the engines at their end. Never: a socket, a clock, or anything that
//! does not follow from the seed.
//!
//! A tick is a nanosecond. Several engines run interleaved in one virtual time, as workers of a run do. They are pumped as a
//! real driver pumps them: completions are stamped when they happen, queued, and handed over together when the engine wakes;
//! then the engine is asked until it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Nanos, Tick};
use crate::engine::Engine;

mod answer;
mod chance;
mod faults;
mod network;
mod peer;
mod proxy;
mod pump;
mod sending;
mod world;

pub use answer::{Answer, Delimiter, Ending};
pub use chance::Chance;
pub use faults::{Faults, Struck};

/// Virtual time, readable while a simulation runs.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Tick) {
        self.0.store(now.0, Ordering::Relaxed);
    }
}

/// What is behind an address.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// What connecting leads to.
    pub reach: Reach,
    /// It speaks TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// What connecting leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// A connection.
    #[default]
    Open,
    /// A refusal.
    Refused,
    /// Nothing, ever.
    Silent,
}

/// A request as its server saw it.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    /// Which engine sent it.
    pub engine: usize,
    /// Connection it came on, counted over the run.
    pub connection: usize,
    /// Requests that came on this connection before.
    pub earlier: u32,
    /// When its last byte came.
    pub at: Tick,
    /// Its head, blank line included.
    pub head: Vec<u8>,
    /// Its body.
    pub body: Vec<u8>,
    /// How it was answered; `None` when the connection was closed instead.
    pub answer: Option<Answer>,
}

/// How a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All engines said that they had finished.
    Finished,
    /// The limit of events, or of virtual time, came first.
    Limit,
    /// Nothing was to come, and not all engines had finished.
    Dead,
    /// An engine wanted to be asked again at once, over and over.
    Spinning,
}

/// What a simulation left behind.
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Virtual time at the end.
    pub now: Tick,
    /// The engines.
    pub engines: Vec<Engine>,
    /// Events that happened.
    pub events: u64,
    /// All requests that servers took, in order.
    pub requests: Vec<SeenRequest>,
    /// Most requests being answered at once: from the last byte of the request to the last byte of the answer.
    pub most_at_once: u64,
    /// Connections that were set up.
    pub connections: usize,
    /// Most connections that the engines held at once.
    pub most_connections: usize,
    /// When the engines closed each connection.
    pub closed_at: BTreeMap<usize, Tick>,
    /// Connections that the engines had not closed.
    pub sockets_left: usize,
    /// Send buffers that were not given back.
    pub buffers_left: usize,
    /// Breaches of the driver's contract: two sends at once, a connection opened over another, an operation on one that is closed.
    pub breaches: Vec<String>,
    /// Looks at the network that engines asked for in the middle of a read.
    pub looks: u64,
    /// Times for which engines said that a send would be due.
    pub announced: BTreeSet<Tick>,
    /// What went wrong, and how often.
    pub struck: Struck,
}

/// Decides what is answered.
pub type Server = Box<dyn FnMut(&SeenRequest, &mut Chance) -> Answer>;

/// Something that happens at a time.
pub type Act = Box<dyn FnOnce()>;

/// A run to be simulated.
///
/// ```
/// use tokenring::driver::simulated::{End, Simulation};
/// let outcome = Simulation::new(7).run(Vec::new());
/// assert_eq!(outcome.end, End::Finished);
/// ```
pub struct Simulation {
    /// What everything random follows from.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// Reads bear the kernel's stamp as well: when their newest byte came.
    pub kernel_stamps: bool,
    /// Time from one end of a connection to the other.
    pub latency: Nanos,
    /// Time that an engine takes to decrypt what it takes of a read at once. Meanwhile the network goes on, and what it brings is read,
    /// and stamped, when the driver looks. 0 for no such time.
    pub decryption: Nanos,
    /// What is behind which address; plain open servers where nothing is said.
    pub hosts: BTreeMap<SocketAddr, Host>,
    /// Proxies before hosts: the status that each gives a CONNECT, 0 for an answer that is no HTTP.
    pub proxies: BTreeMap<SocketAddr, u16>,
    /// What is answered.
    pub server: Server,
    /// What happens when, besides the network.
    pub acts: Vec<(Tick, Act)>,
    /// The virtual time.
    pub clock: VirtualClock,
    /// The simulation gives up after so many events.
    pub event_limit: u64,
    /// The simulation gives up at this time.
    pub time_limit: Tick,
}

impl Simulation {
    /// A network without faults, and servers with answers of any right shape.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        Simulation {
            seed,
            faults: Faults::none(),
            kernel_stamps: false,
            latency: Nanos(50_000),
            decryption: Nanos(0),
            hosts: BTreeMap::new(),
            proxies: BTreeMap::new(),
            server: Box::new(|_, chance| Answer::random(chance)),
            acts: Vec::new(),
            clock: VirtualClock::default(),
            event_limit: 3_000_000,
            time_limit: Tick(Nanos::from_millis(3_600_000).0),
        }
    }

    /// Runs `engines` to their end, or to a limit.
    #[must_use]
    pub fn run(self, engines: Vec<Engine>) -> Outcome {
        world::World::new(self, engines).run()
    }
}
