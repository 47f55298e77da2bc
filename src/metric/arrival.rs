//! When the tokens of a reply arrived.
//!
//! In: one record, whatever became of it. Out: its tokens, each with the arrival of its content event. Never: a token without an
//! arrival, or an arrival that was not stamped.

use super::request::index;
use super::spacing::reply_tokens;
use super::{Stats, Window};
use crate::clock::Nanos;
use crate::record::Record;

/// Output tokens that arrived: the reply's length as the metrics take it. Where no count could be had (a cut stream, counted by a server
/// that told nothing yet), what the server told with its events, or else one for each content event.
#[must_use]
pub fn token_count(record: &Record) -> f64 {
    if record.chunks.is_empty() {
        return 0.0;
    }
    let counted = record.tokens.output_sequence_length();
    match counted.or_else(|| reply_tokens(record)) {
        Some(count) => count as f64,
        None => weights(record).sum(),
    }
}

/// The tokens of [`token_count`], content event by content event, each with its arrival after the request's start. They are dealt in
/// the proportion that the server told with its events, or else evenly, so that they always sum to the count.
pub fn tokens(record: &Record) -> impl Iterator<Item = (Nanos, f64)> + '_ {
    let weight: f64 = weights(record).sum();
    let each = if weight > 0.0 {
        token_count(record) / weight
    } else {
        0.0
    };
    let chunks = record.chunks.iter().zip(weights(record));
    chunks.map(move |(chunk, weight)| (chunk.at, weight * each))
}

/// Tokens that arrived in a window, whatever became of their requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// In millionths, so that the order in which records come changes no sum.
    micro_tokens: u128,
    /// When the last of them came.
    last_ns: u64,
    /// The throughputs of valid requests take them too.
    pub(super) by_arrival: bool,
}

impl Arrived {
    /// `tokens` came, the last of them at `last_ns`.
    pub(super) fn add(&mut self, tokens: f64, last_ns: u64) {
        self.last_ns = self.last_ns.max(last_ns);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, which is meant"
        )]
        let micro = (tokens * 1e6).round() as u128;
        self.micro_tokens = self.micro_tokens.saturating_add(micro);
    }

    pub(super) fn merge(&mut self, other: Arrived) {
        self.micro_tokens = self.micro_tokens.saturating_add(other.micro_tokens);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    pub(super) fn tokens(self) -> f64 {
        self.micro_tokens as f64 / 1e6
    }

    /// `measured`, but not before the last of them: of a phase before, they may come after its own last request.
    pub(super) fn within(self, measured: Window) -> Window {
        Window {
            end_ns: measured.end_ns.max(self.last_ns),
            ..measured
        }
    }

    /// Sets the rows of the windowed metrics in `rows`, which are indexed like the registry.
    pub(super) fn fill(self, window: Window, rows: &mut [Option<Stats>]) {
        let (tokens, seconds) = (self.tokens(), window.length().seconds());
        if tokens > 0.0 {
            let rate = (seconds > 0.0).then(|| Stats::scalar(tokens / seconds));
            rows[index!("windowed_output_token_throughput")] = rate;
            rows[index!("windowed_output_tokens")] = Some(Stats::scalar(tokens));
            rows[index!("windowed_duration")] = Some(Stats::scalar(seconds));
        }
    }
}

/// What each content event carried, where the server told it with every one; else one each.
fn weights(record: &Record) -> impl Iterator<Item = f64> + '_ {
    let chunks = &record.chunks;
    let told = chunks.iter().all(|chunk| chunk.tokens.is_some())
        && chunks.iter().any(|chunk| chunk.tokens > Some(0));
    let weight = move |tokens: Option<u32>| tokens.filter(|_| told).map_or(1.0, f64::from);
    chunks.iter().map(move |chunk| weight(chunk.tokens))
}
