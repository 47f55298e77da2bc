//! One client's connection, without its socket.
//!
//! In: bytes read and times. Out: bytes to write and the time of the next event. Never: touches a socket or reads a clock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::api::{Api, Order, PATHS};
use super::request::{Refusal, Request, RequestReader};
use super::script::{self, Reply};
use crate::config::MockPlan;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: MockPlan,
    /// Unix seconds at start: `created` of every reply.
    pub(super) created: u64,
    pub(super) tally: Tally,
}

/// Counters of `/metrics`.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) generations: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) tokens: AtomicU64,
}

/// A content event that stands in the output, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventMark {
    pub(super) connection: u64,
    pub(super) request: u64,
    pub(super) event: u32,
    /// When it was to be sent.
    pub(super) due: u64,
    /// When its request came.
    pub(super) came: Moment,
}

/// When a request came, or that part of it which was read last. For a request that waited behind another, both are when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// When the kernel had received its last byte; where the kernel does not tell, the same as `read`.
    pub(super) received: u64,
    /// When that byte had been read. Due times count from here.
    pub(super) read: u64,
}

impl Moment {
    /// Without a word of the kernel.
    pub(super) fn at(read: u64) -> Moment {
        Moment {
            received: read,
            read,
        }
    }
}

/// One connection's state.
#[derive(Debug)]
pub(super) struct Connection {
    /// From 1, in order of acceptance.
    number: u64,
    reader: RequestReader,
    /// Bytes to write; the caller takes them from the front.
    pub(super) out: Vec<u8>,
    active: Option<Active>,
    /// Nothing is read any more; the connection ends when `out` is empty and no reply is active.
    closing: bool,
    /// The client sends no more; what it sent before is still answered.
    input_ended: bool,
}

/// A reply under way.
#[derive(Debug)]
struct Active {
    reply: Reply,
    request: u64,
    keep_alive: bool,
    came: Moment,
    /// When event 0 is due.
    first: u64,
    /// Between content events.
    gap: u64,
    /// Content events written.
    event: u32,
    /// Content events that go out together; the first of them says when.
    together: u32,
}

impl Active {
    /// Absolute: lateness of one event does not move the next.
    fn due(&self) -> u64 {
        let event = if self.reply.streams() {
            self.event
        } else {
            self.reply.chunk_count().saturating_sub(1)
        };
        self.first
            .saturating_add(self.gap.saturating_mul(u64::from(event)))
    }
}

impl Connection {
    pub(super) fn new(number: u64) -> Connection {
        Connection {
            number,
            reader: RequestReader::new(),
            out: Vec::new(),
            active: None,
            closing: false,
            input_ended: false,
        }
    }

    /// Takes bytes that came at `now`.
    pub(super) fn receive(&mut self, bytes: &[u8], now: Moment, shared: &Shared) {
        if self.closing {
            return;
        }
        self.reader.push(bytes);
        self.proceed(now, shared);
    }

    /// The client sends no more.
    pub(super) fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// More bytes may be read: not while a reply is under way and much waits already.
    pub(super) fn wants_input(&self) -> bool {
        !self.closing
            && !self.input_ended
            && (self.active.is_none() || self.reader.waiting() < super::request::HEAD_BYTES)
    }

    /// When [`Connection::speak`] should be called next.
    pub(super) fn due(&self) -> Option<u64> {
        self.active.as_ref().map(Active::due)
    }

    /// Nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        (self.closing || self.input_ended) && self.active.is_none() && self.out.is_empty()
    }

    /// Puts the event that is due into `out`, with those that go out together with it; the mark names the first. `None` when no
    /// reply is under way or it is not due yet.
    pub(super) fn speak(&mut self, now: u64) -> Option<EventMark> {
        let active = self.active.as_mut()?;
        if active.due() > now {
            return None;
        }
        let mark = EventMark {
            connection: self.number,
            request: active.request,
            event: active.event,
            due: active.due(),
            came: active.came,
        };
        if active.reply.streams() {
            for _ in 0..active.together {
                active.reply.next_event(&mut self.out);
                active.event += 1;
                if active.reply.is_over() {
                    break;
                }
            }
        } else {
            let (kind, body) = active.reply.whole();
            script::plain(
                200,
                kind,
                body.as_bytes(),
                active.keep_alive,
                "",
                &mut self.out,
            );
        }
        Some(mark)
    }

    /// Ends the reply when its last event has been written, and begins with a request that waits. True when something was put
    /// into `out`.
    pub(super) fn settle(&mut self, now: u64, shared: &Shared) -> bool {
        let Some(mut active) = self.active.take_if(|active| active.reply.is_over()) else {
            return false;
        };
        if active.reply.streams() {
            active.reply.close(&mut self.out);
        }
        shared
            .tally
            .tokens
            .fetch_add(u64::from(active.reply.tokens()), Ordering::Relaxed);
        if active.keep_alive {
            self.proceed(Moment::at(now), shared);
        } else {
            self.closing = true;
        }
        !self.out.is_empty()
    }

    /// Reads requests until one needs time or bytes are missing.
    fn proceed(&mut self, now: Moment, shared: &Shared) {
        while self.active.is_none() && !self.closing {
            match self.reader.next() {
                Ok(Some(request)) => self.answer(&request, now, shared),
                Ok(None) => {
                    if self.reader.take_continue() {
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    return;
                }
                Err(Refusal { status, reason }) => {
                    shared.tally.refusals.fetch_add(1, Ordering::Relaxed);
                    script::error(status, reason, false, "", &mut self.out);
                    self.closing = true;
                }
            }
        }
    }

    fn answer(&mut self, request: &Request, now: Moment, shared: &Shared) {
        let number = shared.tally.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let keep = request.keep_alive;
        let before = self.out.len();
        let generates = Api::of(&request.path);
        let page = page(&request.path, shared);
        match (generates, page, request.method.as_str()) {
            (Some(api), _, "POST") => self.generate(api, request, number, now, shared),
            (None, Some((kind, body)), "GET" | "HEAD") => {
                script::plain(200, kind, body.as_bytes(), keep, "", &mut self.out);
            }
            (Some(_), ..) => {
                let allow = "Allow: POST\r\n";
                script::error(405, "this path takes POST", keep, allow, &mut self.out);
            }
            (None, Some(_), _) => {
                let allow = "Allow: GET, HEAD\r\n";
                script::error(405, "this path takes GET", keep, allow, &mut self.out);
            }
            (None, None, _) => {
                let paths: Vec<&str> = PATHS.iter().map(|(path, _)| *path).collect();
                let message = format!(
                    "no such path: {}; there are {}, /v1/models, /health and /metrics",
                    request.path,
                    paths.join(", ")
                );
                script::error(404, &message, keep, "", &mut self.out);
            }
        }
        if request.method == "HEAD" {
            strip_body(&mut self.out, before);
        }
        if self.active.is_none() && !keep {
            self.closing = true;
        }
    }

    fn generate(&mut self, api: Api, request: &Request, number: u64, now: Moment, shared: &Shared) {
        let plan = &shared.plan;
        match Order::of(api, request, plan) {
            Ok(order) => {
                shared.tally.generations.fetch_add(1, Ordering::Relaxed);
                let keep_alive = request.keep_alive && (request.chunks_allowed || !order.stream);
                let reply = Reply::new(
                    order,
                    plan.tokens_per_chunk,
                    number,
                    shared.created,
                    request.chunks_allowed,
                );
                if reply.streams() {
                    reply.open(keep_alive, &mut self.out);
                }
                let gap = plan
                    .inter_token_latency
                    .0
                    .saturating_mul(u64::from(plan.tokens_per_chunk.max(1)));
                let first = now.read.saturating_add(plan.time_to_first_token.0);
                self.active = Some(Active {
                    came: now,
                    first: spread(first, gap, self.number, plan.spread),
                    reply,
                    request: number,
                    keep_alive,
                    gap,
                    event: 0,
                    together: plan.events_per_write.max(1),
                });
            }
            Err(message) => {
                shared.tally.refusals.fetch_add(1, Ordering::Relaxed);
                script::error(400, &message, request.keep_alive, "", &mut self.out);
            }
        }
    }
}

/// The first moment from `first` on that lies in a connection's own part of the time between two events: part `number` mod
/// `parts` of `parts`. So events of up to `parts` connections never fall together, however their requests came.
pub(super) fn spread(first: u64, gap: u64, number: u64, parts: Option<u32>) -> u64 {
    let Some(parts) = parts.map(u64::from).filter(|parts| *parts > 0) else {
        return first;
    };
    if gap == 0 {
        return first;
    }
    let part = u128::from(gap) * u128::from(number % parts) / u128::from(parts);
    // Below `gap`, which is 64 bits wide.
    let part = u64::try_from(part).unwrap_or(0);
    let wait = (part + gap - first % gap) % gap;
    first.saturating_add(wait)
}

/// RFC 9110 section 9.3.2: a reply to HEAD has the fields of GET and no content.
fn strip_body(out: &mut Vec<u8>, from: usize) {
    if let Some(end) = out[from..]
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
    {
        out.truncate(from + end + 4);
    }
}

/// Content type and body of the paths that only tell.
fn page(path: &str, shared: &Shared) -> Option<(&'static str, String)> {
    match path {
        "/" | "/health" => Some(("application/json", r#"{"status":"ok"}"#.to_owned())),
        "/v1/models" => Some(("application/json", models(shared).to_string())),
        "/metrics" => Some((
            "text/plain; version=0.0.4; charset=utf-8",
            metrics(&shared.tally),
        )),
        _ => None,
    }
}

fn models(shared: &Shared) -> serde_json::Value {
    let list: Vec<_> = shared
        .plan
        .models
        .iter()
        .map(|id| json!({"id": id, "object": "model", "created": shared.created, "owned_by": "tokenring"}))
        .collect();
    json!({"object": "list", "data": list})
}

fn metrics(tally: &Tally) -> String {
    let counters = [
        ("connections", "Connections accepted.", &tally.connections),
        ("requests", "Requests read to their end.", &tally.requests),
        (
            "generations",
            "Completion requests accepted.",
            &tally.generations,
        ),
        (
            "refusals",
            "Requests that could not be read.",
            &tally.refusals,
        ),
        (
            "generated_tokens",
            "Tokens of completed replies.",
            &tally.tokens,
        ),
    ];
    let mut text = String::new();
    for (name, help, counter) in counters {
        let value = counter.load(Ordering::Relaxed);
        text.push_str(&format!(
            "# HELP tokenring_mock_{name}_total {help}\n# TYPE tokenring_mock_{name}_total counter\ntokenring_mock_{name}_total {value}\n"
        ));
    }
    text
}
