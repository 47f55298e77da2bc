//! What an engine is given, and what it gives.
//!
//! In: nothing; these are types. Out: the border between engines, the conductor and tests. Never: behaviour.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::{Nanos, Rate, Tick};
use crate::config::{CancellationPlan, ConnectionReuse, PhasePlan, TimeLimits};
use crate::driver::StampSource;
use crate::endpoint::{History, Made, Reply};
use crate::record::{Exchange, ReplyReader, RequestId};
use crate::schedule::Timeline;
use crate::wire::{Fault, Limits};

/// What is the same for every worker of a run.
pub struct Setup {
    /// Phases, in order.
    pub phases: Vec<PhasePlan>,
    /// Where requests go; one for each URL of the plan.
    pub targets: Vec<Target>,
    /// Which of them sessions go to, in turn: session number s to entry s modulo the length. Never empty.
    pub url_order: Vec<u16>,
    /// How connections are reused.
    pub reuse: ConnectionReuse,
    /// How they are opened and kept.
    pub connects: ConnectRules,
    /// Whole-request limit.
    pub request_timeout: Nanos,
    /// Limits on what a request waits for.
    pub time_limits: TimeLimits,
    /// Which requests of profiling phases are cancelled on purpose, and when.
    pub cancellation: Option<CancellationPlan>,
    /// Grace for requests in flight after Ctrl-C in a phase that has none of its own.
    pub stop_grace: Nanos,
    /// Bounds on what peers send.
    pub limits: Limits,
    /// Root seed.
    pub seed: u64,
    /// Scale of the ticks.
    pub rate: Rate,
    /// Which stamp of a read is its arrival. The other one stays in the exchange.
    pub stamps: StampSource,
}

/// How connections are opened and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRules {
    /// An attempt that is not answered after this long gets a second one beside it, to the next address.
    pub head_start: Nanos,
    /// A connection that waited so long for a request is closed; `None` keeps it until the peer closes it.
    pub idle: Option<Nanos>,
}

/// As RFC 8305 recommends, and AIPerf keeps connections.
impl Default for ConnectRules {
    fn default() -> Self {
        ConnectRules {
            head_start: Nanos::from_millis(250),
            idle: Some(Nanos::from_millis(300_000)),
        }
    }
}

/// One place to send requests to.
pub struct Target {
    /// Its addresses, in the order in which they are tried. Never empty.
    pub addresses: Vec<SocketAddr>,
    /// What asks a proxy at these addresses for a tunnel to the server; `None`: they are the server's own.
    pub tunnel: Option<Vec<u8>>,
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
    /// Phase `phase` begins; phases before it have used the dataset's order up to `used`.
    fn go_on(&mut self, _phase: usize, _used: u64) {}
    /// Conversation that session number `session` of phase `phase` plays.
    fn pick(&mut self, phase: usize, session: u64) -> u32;
    /// Turns in `conversation`, at least 1.
    fn turn_count(&self, conversation: u32) -> u32;
    /// Think time before `turn`.
    fn delay(&self, conversation: u32, turn: u32) -> Nanos;
    /// When the conversations of a fixed schedule begin; asked once for a phase that follows one.
    fn timeline(&self) -> Arc<Timeline> {
        Arc::default()
    }
    /// Sessions of a fixed schedule below this number can begin, and those after it are still being made; `None` where all requests
    /// were made before the run.
    fn made_below(&self) -> Option<u64> {
        None
    }
    /// What was made during the run for `session` of a fixed schedule; asked once for each session, in their order. Its conversation and its bodies are asked of
    /// that then, and not of the workload.
    fn take_made(&mut self, _session: u64) -> Option<Arc<Made>> {
        None
    }
    /// When `turn` is due after the phase's start, where it has a time of its own.
    fn own_time(&self, _conversation: u32, _turn: u32) -> Option<Nanos> {
        None
    }
    /// The most tokens that the reply to `turn` may have, where the request says so; room is made for them.
    fn reply_tokens(&self, _conversation: u32, _turn: u32) -> Option<u32> {
        None
    }
    /// The body that was rendered before the run; `None` when it needs the replies of earlier turns.
    fn body(&self, conversation: u32, turn: u32) -> Option<Arc<[u8]>>;
    /// The body of a turn that needs `history`.
    fn live_body(&self, conversation: u32, turn: u32, history: &History) -> Arc<[u8]>;
    /// `body` as request `id` sends it, where it differs from request to request. Asked for once, before a byte of the request is sent.
    fn own_body(&self, _id: &RequestId, _body: &[u8]) -> Option<Arc<[u8]>> {
        None
    }
    /// Later turns of `conversation` need what the server said in earlier ones.
    fn needs_reply(&self, conversation: u32) -> bool;
    /// What reads such a reply while it comes, between what is due; `None` reads it at once when it has come.
    fn reader(&self) -> Option<ReplyReader> {
        None
    }
    /// What the server said in a finished exchange, of which `reader` has taken in a part.
    fn reply(&self, exchange: &Exchange, reader: Option<ReplyReader>) -> Option<Reply>;
    /// `history` goes on with `turn` and what it was answered with, `None` if it failed. Turns come in order.
    fn remember(
        &self,
        _conversation: u32,
        _turn: u32,
        reply: Option<Reply>,
        history: &mut History,
    ) {
        history.push(reply);
    }
    /// The data of an event brings content of a reply, so that its prefill is over. Asked of a stream's first events, and only where
    /// prefills are limited: it may neither build a tree nor allocate.
    fn shows_content(&self, data: &[u8]) -> bool {
        !data.is_empty()
    }
    /// Writes the head of request `id`, blank line included.
    fn write_head(&self, out: &mut Vec<u8>, id: &RequestId, request_uuid: u128, body_length: usize);
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
    /// This worker sends nothing more before `phase`, which begins while requests of the phase before are still in flight: at the
    /// latest `at` of all workers. Called in the place of `ready_for`.
    fn hand_over(&self, phase: usize, _at: Tick) {
        self.ready_for(phase);
    }
    /// On this worker, phases before `phase` have used the dataset's order up to `used`. Called before the worker is ready for it.
    fn used(&self, _phase: usize, _used: u64) {}
    /// The largest `used` of all workers, known when `phase` has a start.
    fn used_before(&self, _phase: usize) -> u64 {
        0
    }
    /// Addresses of the targets that a look-up has found since the one of version `seen`, with their version.
    fn addresses(&self, _seen: u64) -> Option<(u64, Arc<Vec<Vec<SocketAddr>>>)> {
        None
    }
    /// Whether to stop.
    fn stop(&self) -> Stop;
    /// Where this worker stands; called when that may have changed, and every 20 ms.
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
    /// Exchanges cut on purpose, or by the end of the run.
    pub cancelled: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Connections asked for.
    pub connects: u64,
    /// Attempts that they took: more, where a name has addresses that do not answer.
    pub attempts: u64,
    /// Requests sent again because a pooled connection proved closed.
    pub resent: u64,
    /// Kept connections closed because no request came for them in time.
    pub idle_closed: u64,
    /// Connections now held.
    pub open_connections: u64,
    /// Connections that were open before their phase started.
    pub opened_ahead: u64,
    /// Connections that should have been, and could not be opened.
    pub failed_ahead: u64,
    /// Why the first of them could not.
    pub fault_ahead: Option<Fault>,
    /// What the warmup was to send and did not, once it has stopped sending.
    pub warmup: Leftover,
    /// The same of profiling.
    pub profiling: Leftover,
}

/// What a phase was to send and did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Requests planned that were not begun: what is missing to the request stop; without one, sessions missing to the session stop; without
    /// that either, arrivals that had come due. Of one worker it may be below 0: users' sessions are numbered in the order of their
    /// starts, so it may begin more than its share, and another as many fewer. Sums over all workers are not.
    pub unsent: i64,
    /// Arrivals left out because they were too late (`--late-policy skip`).
    pub skipped: u64,
    /// When the last of those was due.
    pub last_skipped: Option<Tick>,
}

impl Leftover {
    /// Adds another engine's.
    fn add(&mut self, other: &Leftover) {
        self.unsent += other.unsent;
        self.skipped += other.skipped;
        self.last_skipped = self.last_skipped.max(other.last_skipped);
    }
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
        self.attempts += other.attempts;
        self.resent += other.resent;
        self.idle_closed += other.idle_closed;
        self.open_connections += other.open_connections;
        self.opened_ahead += other.opened_ahead;
        self.failed_ahead += other.failed_ahead;
        self.fault_ahead = self.fault_ahead.or(other.fault_ahead);
        self.warmup.add(&other.warmup);
        self.profiling.add(&other.profiling);
    }
}
