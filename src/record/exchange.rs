//! What one request left behind, in ticks and raw bytes.
//!
//! In: the engine's stamps and the peer's bytes. Out: one value per request sent, moved to the recorder.
//! Never: parses, converts a tick, or outlives its request on the worker (it is recycled).

use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::Tick;
use crate::endpoint::Made;
use crate::wire::{Fault, Head};

/// Everything the worker knows of one request. Filled in place, moved through the recorder's queue, and given back to be used
/// again, so that a warm worker allocates nothing.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Exchange {
    // What every read needs stands first.
    /// Every read that brought bytes of this response, in order.
    pub reads: Vec<Read>,
    /// Every server-sent event, in order. Empty when the response was no event stream.
    pub events: Vec<EventMark>,
    /// The parsed response head, if it came whole.
    pub head: Option<Head>,
    /// Body bytes after transfer decoding.
    pub body: Vec<u8>,
    /// Which request this is.
    pub id: RequestId,
    /// Moments of the request; [`Tick::NEVER`] where a moment did not come.
    pub ticks: Ticks,
    /// Raw bytes of the final response head (status line to blank line).
    pub head_bytes: Vec<u8>,
    /// How it ended.
    pub outcome: Outcome,
    /// About the connection it used.
    pub link: Link,
    /// The request's head as sent, without the body.
    pub request_head: Vec<u8>,
    /// The `X-Request-ID` sent.
    pub request_uuid: u128,
    /// Length of the request body in bytes.
    pub request_body_bytes: u64,
    /// Body of a turn that was rendered in mid-run (live history, a streamed dataset); `None` means the corpus's own body for this
    /// turn.
    pub live_body: Option<Arc<[u8]>>,
    /// What a streamed dataset says of the request; `None` means that the corpus says it.
    pub made: Option<Arc<Made>>,
}

impl Exchange {
    /// So many bytes of an exchange serve every read.
    pub(crate) const FRONT_BYTES: usize = offset_of!(Exchange, id);

    /// Its latest reads, those not marked yet, had been parsed by `tick`.
    pub fn mark_parsed(&mut self, tick: Tick) {
        let latest = self.reads.iter_mut().rev();
        for read in latest.take_while(|read| read.parsed == Tick::NEVER) {
            read.parsed = tick;
        }
    }

    /// Bytes of memory that its buffers hold, used or not, itself left out.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        let bytes = [&self.head_bytes, &self.body, &self.request_head];
        let bytes: usize = bytes.iter().map(|buffer| buffer.capacity()).sum();
        bytes
            + self.reads.capacity() * size_of::<Read>()
            + self.events.capacity() * size_of::<EventMark>()
    }

    /// Bytes of memory that its contents lie in, itself left out: whole pages, but no more of a buffer than it has. What buffers have beyond
    /// is address space, for they are made for the longest reply that may come.
    #[must_use]
    pub fn filled_bytes(&self) -> usize {
        let pages = |length: usize, capacity: usize| length.next_multiple_of(PAGE).min(capacity);
        let bytes = [&self.head_bytes, &self.body, &self.request_head];
        let bytes: usize = bytes.iter().map(|b| pages(b.len(), b.capacity())).sum();
        let (read, event) = (size_of::<Read>(), size_of::<EventMark>());
        bytes
            + pages(self.reads.len() * read, self.reads.capacity() * read)
            + pages(self.events.len() * event, self.events.capacity() * event)
    }

    /// Empties it for the next request; keeps the buffers.
    pub fn clear(&mut self) {
        self.id = RequestId::default();
        self.ticks = Ticks::default();
        self.reads.clear();
        self.events.clear();
        self.head = None;
        self.head_bytes.clear();
        self.body.clear();
        self.outcome = Outcome::Success;
        self.link = Link::default();
        self.request_head.clear();
        self.request_uuid = 0;
        self.request_body_bytes = 0;
        self.live_body = None;
        self.made = None;
    }
}

/// What the system deals out memory in, nearly everywhere.
const PAGE: usize = 4_096;

/// Which request an exchange was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestId {
    /// Index into the plan's phases.
    pub phase: u8,
    /// Worker that sent it, from 0.
    pub worker: u16,
    /// Number of the request within its phase over all workers, from 0 (AIPerf's `session_num`).
    pub number: u64,
    /// Number of the session within its phase over all workers, from 0.
    pub session: u64,
    /// The session's `X-Correlation-ID`, as [`SessionName`](crate::endpoint::SessionName) reads it.
    pub session_uuid: u128,
    /// Index into the corpus's conversations.
    pub conversation: u32,
    /// Index of the turn within the conversation.
    pub turn: u32,
    /// It is the conversation's last turn.
    pub last_turn: bool,
    /// Index into the plan's URLs.
    pub url: u16,
}

/// Moments of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// When the schedule meant it to be sent. In the closed loop: when the slot came free.
    pub due: Tick,
    /// From when on it could be sent: when it was due, or when the slot or the turn that it waited for was there, if that was later.
    /// Of several that came free in one batch of completions the last is taken for all, so it may be late by the length of a batch.
    pub slot: Tick,
    /// Start of the request (AIPerf's `start_perf_ns`): the stamp just before the first system call for it, which begins its
    /// connection's set-up or, on a kept connection, sends its first byte. When the engine took it up, if it never got that far.
    pub start: Tick,
    /// When it had a slot and was handed on to be sent: what passes from here to `start` is the client's own work.
    pub submitted: Tick,
    /// Connection set-up asked for; `NEVER` on a reused connection, before the start on one that was opened ahead.
    pub connect_start: Tick,
    /// TCP connected.
    pub connect_end: Tick,
    /// TLS handshake done; `NEVER` without TLS.
    pub tls_end: Tick,
    /// Just before the first byte was handed to the kernel.
    pub first_byte_sent: Tick,
    /// Just after the last byte was handed to the kernel.
    pub last_byte_sent: Tick,
    /// Arrival of the read that completed the response head.
    pub head_received: Tick,
    /// The exchange ended. A whole response: the arrival of its last byte, by the same source of stamps as every other arrival. A
    /// fault in what came: the arrival of the read that showed it. A closed connection, a limit, a cut: when it was noticed.
    pub end: Tick,
}

impl Ticks {
    /// The last moment that came, but for the end.
    #[must_use]
    pub fn latest(&self) -> Tick {
        let moments = [
            self.start,
            self.connect_end,
            self.tls_end,
            self.last_byte_sent,
            self.first_byte_sent,
            self.head_received,
        ];
        let came = moments.into_iter().filter(|&tick| tick != Tick::NEVER);
        came.max().unwrap_or(Tick(0))
    }
}

impl Default for Ticks {
    fn default() -> Self {
        let never = Tick::NEVER;
        Ticks {
            due: never,
            slot: never,
            start: never,
            submitted: never,
            connect_start: never,
            connect_end: never,
            tls_end: never,
            first_byte_sent: never,
            last_byte_sent: never,
            head_received: never,
            end: never,
        }
    }
}

/// One read from the socket that brought bytes of this response, with its three stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When the driver saw it complete, before anything was parsed.
    pub tick: Tick,
    /// When the kernel received its newest segment; `NEVER` when the kernel told nothing.
    pub kernel: Tick,
    /// When it had been parsed, and every other read of its batch with it: one look at the counter serves them all, so it is not
    /// early, and late by at most the batch. `NEVER` until then.
    pub parsed: Tick,
    /// Length of [`Exchange::body`] after the read.
    pub body_end: u64,
    /// Bytes of this response in the read, on the wire (ciphertext for TLS).
    pub wire_bytes: u32,
    /// The kernel's stamp is its arrival: it was chosen for that, and is there.
    pub by_kernel: bool,
}

impl Read {
    /// When its bytes came, as the metrics take it: the kernel's stamp where it was chosen and is there, else the driver's.
    #[must_use]
    pub fn arrival(&self) -> Tick {
        if self.by_kernel {
            self.kernel
        } else {
            self.tick
        }
    }
}

/// One server-sent event, as a place in [`Exchange::body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMark {
    /// Its first byte.
    pub begin: u64,
    /// One past its last byte (the line end that closes it).
    pub end: u64,
    /// Index into [`Exchange::reads`] of the read that completed it: its arrival.
    pub read: u32,
    /// Index of the read that brought its first byte.
    pub first_read: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The response came whole, framing and all. Whether its content is a success is for [`Interpreter`](crate::record::Interpreter).
    #[default]
    Success,
    /// The peer or the network broke it.
    Fault(Fault),
    /// The whole-request limit ran out.
    Timeout,
    /// Cut on purpose, as the plan asked.
    Cancelled,
    /// Cut by the end of the grace period.
    GraceEnded,
    /// Cut by Ctrl-C, SIGTERM or an abort.
    Interrupted,
}

/// About the connection a request used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The connection had served a request before.
    pub reused: bool,
    /// The connection was opened before the phase began, and this is its first request: the ticks of its set-up lie before the start.
    pub ahead: bool,
    /// A pooled connection turned out closed before any response byte, and the request was sent again on a new one.
    pub resent: bool,
    /// The reply was taken as whole although the peer did not end its body: not within the time that it has for that after `[DONE]`.
    pub left_open: bool,
    /// Local port, 0 when unknown.
    pub local_port: u16,
    /// Index into the target's addresses.
    pub address: u16,
    /// That address, a proxy's where there is one; `None` on a connection that never was.
    pub remote: Option<SocketAddr>,
    /// Write calls that carried bytes.
    pub writes: u32,
    /// All bytes were written before the response ended.
    pub sent_whole: bool,
    /// Bytes written, head and body (plaintext).
    pub bytes_sent: u64,
}
