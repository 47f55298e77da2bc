//! A reply, read for the history of the next turn.
//!
//! In: an exchange's body and marks, finished or still growing. Out: what the server said. Never: much at once, where it comes in events; a
//! count or a time.

use super::reading::{event_bytes, is_done_mark, is_error, marks, missed, payload};
use super::{EventMark, Exchange, Outcome};
use crate::config::Ending;
use crate::endpoint::{Api, Reply, ReplyBuilder};
use crate::wire::fields;

/// Reads one reply, a few events at a time.
#[derive(Debug)]
pub struct ReplyReader {
    builder: ReplyBuilder,
    /// How a stream says that it is whole.
    ending: Ending,
    /// Its last mark has been there.
    done: bool,
    /// Events taken in.
    taken: usize,
    failed: bool,
    /// It came in events.
    streamed: bool,
}

impl ReplyReader {
    /// A reader that has read nothing.
    #[must_use]
    pub fn new(api: &Api) -> ReplyReader {
        ReplyReader {
            builder: api.reply_builder(),
            ending: api.ending(),
            done: false,
            taken: 0,
            failed: false,
            streamed: false,
        }
    }

    /// Takes in at most `most` of the events that have been marked, and says how many it took.
    pub fn step(&mut self, exchange: &Exchange, most: usize) -> usize {
        let next = exchange.events.get(self.taken..).unwrap_or_default();
        let count = next.len().min(most);
        for mark in &next[..count] {
            self.event(exchange, mark);
        }
        self.taken += count;
        count
    }

    /// Events of `exchange` that it has not taken in.
    #[must_use]
    pub fn left(&self, exchange: &Exchange) -> usize {
        exchange.events.len().saturating_sub(self.taken)
    }

    /// What the reply in a finished exchange comes to, what was left of it included. `None` when it failed, was
    /// cut short, or said nothing: whatever its record calls an error.
    #[must_use]
    pub fn finish(mut self, exchange: &Exchange) -> Option<Reply> {
        let whole = exchange.outcome == Outcome::Success;
        if !whole || !exchange.head.is_some_and(|head| head.is_success()) {
            return None;
        }
        if exchange.events.is_empty() {
            // A whole answer, or a stream that did not say that it is one.
            match marks(exchange) {
                Some(marks) => marks.iter().for_each(|mark| self.event(exchange, mark)),
                None => self.builder.push(&exchange.body),
            }
        }
        self.step(exchange, usize::MAX);
        // The record of such a stream is a failure, and half an answer is none that a user would have gone on from.
        let done = self.done || self.builder.is_complete();
        let cut = self.streamed && missed(self.ending, done, self.builder.has_reason()).is_some();
        self.builder.finish().filter(|_| !self.failed && !cut)
    }

    fn event(&mut self, exchange: &Exchange, mark: &EventMark) {
        let fields = fields(event_bytes(exchange, mark));
        self.streamed = true;
        self.failed |= is_error(&fields);
        let payload = payload(&fields);
        self.done |= is_done_mark(payload);
        self.builder.push(payload);
    }
}

/// What a finished turn said, for the history of the next one. `None` when it failed or said nothing.
#[must_use]
pub fn reply_of(api: &Api, exchange: &Exchange) -> Option<Reply> {
    ReplyReader::new(api).finish(exchange)
}
