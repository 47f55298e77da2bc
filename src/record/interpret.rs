//! An exchange becomes a record.
//!
//! In: one exchange, the calibration of the run. Out: exactly one [`Record`]. Never: panics on what a peer sent, or invents a
//! moment that was not stamped.

use std::collections::HashMap;
use std::sync::Arc;

use super::counting::{InputCount, input_count};
use super::failure::{failure, header_lines, reason_phrase, retry_after};
use super::reading::{Choice, Keep, Reading, read};
use super::{Chunk, Exchange, Outcome, Read, Record, ReplyEvent, TokenCounts, Trace};
use crate::clock::{Calibration, Nanos, Tick};
use crate::config::{ExportLevel, Plan, Secrets};
use crate::dataset::{ContextMode, Corpus, Turn};
use crate::endpoint::{Api, Bodies};
use crate::tokenizer::Tokenizer;
use crate::wire::Coding;

/// Makes records. It owns the counts of prompts already seen; one is enough for a run, and several may work side by side.
pub struct Interpreter {
    plan: Arc<Plan>,
    api: Api,
    corpus: Arc<Corpus>,
    bodies: Arc<Bodies>,
    tokenizer: Arc<dyn Tokenizer>,
    /// Hidden in all that a server says, for some send back what they were sent.
    secrets: Secrets,
    /// Input tokens of the known bodies, by conversation and turn.
    counted: HashMap<(u32, u32), InputCount>,
}

impl Interpreter {
    /// An interpreter for one run.
    #[must_use]
    pub fn new(
        plan: Arc<Plan>,
        api: Api,
        corpus: Arc<Corpus>,
        bodies: Arc<Bodies>,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Self {
        Interpreter {
            secrets: Secrets::of(&plan.endpoint),
            plan,
            api,
            corpus,
            bodies,
            tokenizer,
            counted: HashMap::new(),
        }
    }

    /// Understands one exchange. `keep_text` keeps the reply's text. Header lines of the trace are filled only when an export
    /// asks for them (`--export-http-trace`, or the raw level), events only at the raw level.
    pub fn interpret(
        &mut self,
        exchange: &Exchange,
        calibration: &Calibration,
        keep_text: bool,
    ) -> Record {
        let mut record = self.understand(exchange, calibration, keep_text);
        if !self.secrets.is_empty() {
            self.hide_secrets(&mut record);
        }
        record
    }

    fn hide_secrets(&self, record: &mut Record) {
        let error = record.error.iter_mut();
        let texts = error.flat_map(|error| [&mut error.kind, &mut error.message]);
        let trace = &mut record.trace;
        let values = trace.response_headers.iter_mut().map(|(_, value)| value);
        let texts = texts.chain(values).chain([&mut trace.reason]);
        let texts = texts
            .chain(&mut record.text)
            .chain(record.other_texts.iter_mut().map(|(_, text)| text))
            .chain(&mut record.finish_reason);
        texts.for_each(|text| self.secrets.hide_in(text));
    }

    fn understand(
        &mut self,
        exchange: &Exchange,
        calibration: &Calibration,
        keep_text: bool,
    ) -> Record {
        let moments = Moments {
            exchange,
            calibration,
            start: start(exchange, calibration),
        };
        let keep = Keep {
            text: keep_text,
            marks: self.plan.output.level == ExportLevel::Raw,
        };
        let mut reading = read(&self.api, exchange, keep);
        let chunks = moments.chunks(&reading);
        let conversation = self
            .corpus
            .conversations
            .get(exchange.id.conversation as usize);
        let id = match &exchange.made {
            Some(made) => Some(&made.id),
            None => conversation.map(|found| &found.id),
        };
        let conversation_id = id.cloned().unwrap_or_default();
        let outcome = exchange.outcome;
        let error = failure(exchange, &reading);
        let cancelled = matches!(outcome, Outcome::GraceEnded | Outcome::Interrupted);
        let live = match &exchange.made {
            Some(made) => made.needs_reply(),
            None => conversation.is_some_and(|found| found.context == ContextMode::LiveReplies),
        };
        let due = exchange.ticks.due;
        let since_due = |tick: Tick| {
            let known = due != Tick::NEVER && tick != Tick::NEVER;
            known.then(|| calibration.between(due, tick))
        };
        Record {
            id: exchange.id,
            request_uuid: exchange.request_uuid,
            conversation_id,
            wall_start_ns: calibration.wall_ns(moments.start),
            monotonic_start_ns: calibration.monotonic_ns(moments.start),
            lateness: since_due(moments.start).unwrap_or_default(),
            slot_wait: since_due(exchange.ticks.slot).unwrap_or_default(),
            head_received: moments.at(exchange.ticks.head_received),
            end: moments.end(),
            last_response: moments.last_response(&reading),
            streamed: reading.streamed,
            coalesced_count: coalesced(&chunks),
            whole_in_one_read: reading.streamed && is_in_one_read(&chunks),
            chunks,
            events: events(&reading),
            tokens: self.tokens(exchange, &reading),
            image_count: self.image_count(exchange),
            sound: self.sound(exchange),
            usage: reading.usage,
            first_chunk_tokens: reading.first_chunk_tokens,
            done_seen: reading.done_seen,
            keep_alive_count: reading.keep_alive_count,
            status: exchange.head.map_or(0, |head| head.status),
            leaves_a_gap: error.is_some() && !cancelled && live && !exchange.id.last_turn,
            error,
            retry_after: retry_after(exchange),
            coding: exchange.head.and_then(|head| head.coding.map(Coding::name)),
            cancelled,
            cancelled_on_purpose: outcome == Outcome::Cancelled,
            trace: self.trace(&moments),
            finish_reason: reading.finish_reason.take(),
            text: keep_text.then_some(reading.text),
            other_texts: other_texts(reading.others, keep_text),
        }
    }

    fn image_count(&self, exchange: &Exchange) -> u32 {
        if let Some(made) = &exchange.made {
            return made.image_count(exchange.id.turn);
        }
        let id = exchange.id;
        let conversations = &self.corpus.conversations;
        let conversation = conversations.get(id.conversation as usize);
        conversation.map_or(0, |conversation| conversation.image_count(id.turn as usize))
    }

    fn sound(&self, exchange: &Exchange) -> Nanos {
        if let Some(made) = &exchange.made {
            return Nanos(made.sound_ns(exchange.id.turn));
        }
        let id = exchange.id;
        let conversation = self.corpus.conversations.get(id.conversation as usize);
        Nanos(conversation.map_or(0, |conversation| conversation.sound_ns(id.turn as usize)))
    }

    fn tokens(&mut self, exchange: &Exchange, reading: &Reading) -> TokenCounts {
        let input = self.input_tokens(exchange);
        let client_input = input.map(|input| input.tokens);
        let id = exchange.id;
        let limit = |turns: &[Turn]| turns.get(id.turn as usize)?.max_tokens;
        let told = match &exchange.made {
            Some(made) => made.max_tokens(id.turn),
            None => self
                .corpus
                .conversations
                .get(id.conversation as usize)
                .and_then(|conversation| limit(&conversation.turns)),
        };
        let requested_output = told.map(u64::from);
        let counts = TokenCounts {
            requested_output,
            client_input,
            template: input.and_then(|input| input.template),
            template_refused: input.is_some_and(|input| input.refused),
            other_choices: u32::try_from(reading.others.len()).unwrap_or(u32::MAX),
            ..TokenCounts::default()
        };
        if self.plan.endpoint.use_server_token_count {
            let usage = reading.usage.unwrap_or_default();
            let reasoning = usage.reasoning_tokens;
            let output = usage
                .completion_tokens
                .map(|all| all.saturating_sub(reasoning.unwrap_or(0)));
            return TokenCounts {
                input: usage.prompt_tokens,
                output,
                reasoning,
                ..counts
            };
        }
        // Each choice by itself; `None` when none of them says any.
        let count = |text: &String| (!text.is_empty()).then(|| self.tokenizer.count(text) as u64);
        let outputs = reading.others.iter().map(|choice| &choice.output);
        let reasonings = reading.others.iter().map(|choice| &choice.reasoning);
        let sum =
            |all: &mut dyn Iterator<Item = &String>| all.filter_map(count).reduce(|a, b| a + b);
        TokenCounts {
            input: client_input,
            output: sum(&mut std::iter::once(&reading.output).chain(outputs)),
            reasoning: sum(&mut std::iter::once(&reading.reasoning).chain(reasonings)),
            ..counts
        }
    }

    /// Input tokens of the body that was sent; known bodies are counted once.
    fn input_tokens(&mut self, exchange: &Exchange) -> Option<InputCount> {
        if !self.api.kind().facts().counts_input {
            return None;
        }
        if let Some(body) = &exchange.live_body {
            return Some(input_count(&self.api, &*self.tokenizer, body));
        }
        let key = (exchange.id.conversation, exchange.id.turn);
        if let Some(&count) = self.counted.get(&key) {
            return Some(count);
        }
        let body = self.bodies.body(key.0, key.1)?;
        let count = input_count(&self.api, &*self.tokenizer, body);
        self.counted.insert(key, count);
        Some(count)
    }

    /// Where the connection led: an address, a path, or what the URL says where there was no connection.
    fn remote(&self, exchange: &Exchange) -> String {
        let endpoint = &self.plan.endpoint;
        if let Some(path) = &endpoint.network.unix_socket {
            return path.display().to_string();
        }
        let url = endpoint.urls.get(usize::from(exchange.id.url));
        match (exchange.link.remote, url) {
            (Some(address), _) => address.to_string(),
            (None, Some(url)) => format!("{}:{}", url.host, url.port),
            (None, None) => String::new(),
        }
    }

    fn trace(&self, moments: &Moments<'_>) -> Trace {
        let exchange = moments.exchange;
        let (ticks, link) = (&exchange.ticks, &exchange.link);
        let output = &self.plan.output;
        let headers = output.http_trace || output.level == ExportLevel::Raw;
        let lines = |head: &[u8]| {
            if headers {
                header_lines(head)
            } else {
                Vec::new()
            }
        };
        let reads = moments.body_reads();
        let tls = ticks.tls_end != Tick::NEVER && ticks.connect_end != Tick::NEVER;
        let tls_length = || {
            moments
                .calibration
                .between(ticks.connect_end, ticks.tls_end)
        };
        let connected = if tls {
            ticks.tls_end
        } else {
            ticks.connect_end
        };
        Trace {
            reused: link.reused,
            resent: link.resent,
            set_up_ahead: link
                .ahead
                .then(|| moments.calibration.between(ticks.connect_start, connected)),
            connect_start: moments.at(ticks.connect_start).filter(|_| !link.ahead),
            connect_end: moments.at(connected).filter(|_| !link.ahead),
            tls: tls.then(tls_length),
            send_start: moments.at(ticks.first_byte_sent),
            send_end: moments.at(ticks.last_byte_sent),
            first_body: reads.first().map(|read| read.0),
            last_body: reads.last().map(|read| read.0),
            bytes_sent: exchange.request_body_bytes,
            bytes_received: exchange.body.len() as u64,
            writes: link.writes,
            reads,
            reason: reason_phrase(&exchange.head_bytes),
            request_headers: lines(&exchange.request_head),
            response_headers: lines(&exchange.head_bytes),
            local_port: link.local_port,
            remote: self.remote(exchange),
        }
    }
}

/// Texts of the choices besides the first in the order of their indices; none unless they are kept.
fn other_texts(others: Vec<Choice>, keep: bool) -> Vec<(u64, String)> {
    if !keep {
        return Vec::new();
    }
    let texts = others.into_iter().map(|choice| (choice.index, choice.text));
    let mut texts: Vec<(u64, String)> = texts.collect();
    texts.sort_unstable_by_key(|&(index, _)| index);
    texts
}

/// The request's start. One that was cut before it was taken up has only a due time, or none.
fn start(exchange: &Exchange, calibration: &Calibration) -> Tick {
    [exchange.ticks.start, exchange.ticks.due, exchange.ticks.end]
        .into_iter()
        .find(|&tick| tick != Tick::NEVER)
        .unwrap_or(calibration.start.tick)
}

/// Ticks of one exchange as lengths of time from its start.
struct Moments<'a> {
    exchange: &'a Exchange,
    calibration: &'a Calibration,
    start: Tick,
}

impl Moments<'_> {
    fn at(&self, tick: Tick) -> Option<Nanos> {
        (tick != Tick::NEVER).then(|| self.calibration.between(self.start, tick))
    }

    /// Arrival of a read; a mark without a read falls back to the end.
    fn read_at(&self, index: u32) -> Nanos {
        let read = self.exchange.reads.get(index as usize);
        read.and_then(|read| self.at(read.arrival()))
            .unwrap_or_else(|| self.end())
    }

    fn end(&self) -> Nanos {
        let last = self.exchange.reads.last().map(Read::arrival);
        self.at(self.exchange.ticks.end)
            .or_else(|| self.at(last?))
            .unwrap_or_default()
    }

    fn chunks(&self, reading: &Reading) -> Vec<Chunk> {
        // A whole answer is one chunk, and no event that could have told anything.
        let tokens = reading.tally.by_content().into_iter();
        let tokens = tokens.chain(std::iter::repeat(None));
        let chunk = |(&(kind, output, read), tokens)| Chunk {
            at: self.read_at(read),
            read,
            kind,
            output,
            tokens,
        };
        reading.pieces.iter().zip(tokens).map(chunk).collect()
    }

    fn last_response(&self, reading: &Reading) -> Option<Nanos> {
        reading.last_read.map(|read| self.read_at(read))
    }

    fn body_reads(&self) -> Vec<(Nanos, u32)> {
        let mut before = 0;
        let mut reads = Vec::with_capacity(self.exchange.reads.len());
        for read in &self.exchange.reads {
            let bytes = read.body_end.saturating_sub(before);
            before = read.body_end;
            if bytes > 0 {
                let at = self.at(read.arrival()).unwrap_or_default();
                reads.push((at, u32::try_from(bytes).unwrap_or(u32::MAX)));
            }
        }
        reads
    }
}

/// All events with their tokens, where their places were kept.
fn events(reading: &Reading) -> Vec<ReplyEvent> {
    if reading.marks.is_empty() {
        return Vec::new();
    }
    let events = reading.marks.iter().zip(reading.tally.by_event());
    events
        .map(|(&mark, tokens)| ReplyEvent { mark, tokens })
        .collect()
}

/// Content events that share a read with another one.
fn coalesced(chunks: &[Chunk]) -> u32 {
    let shared: usize = chunks
        .chunk_by(|left, right| left.read == right.read)
        .map(<[Chunk]>::len)
        .filter(|&count| count > 1)
        .sum();
    u32::try_from(shared).unwrap_or(u32::MAX)
}

fn is_in_one_read(chunks: &[Chunk]) -> bool {
    chunks.len() > 1 && chunks.iter().all(|chunk| chunk.read == chunks[0].read)
}
