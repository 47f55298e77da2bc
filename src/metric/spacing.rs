//! How the content of a reply is spaced.
//!
//! In: the chunks of one record. Out: gaps between chunks, gaps between tokens, their spread. Never: takes a chunk for a token
//! unless the counts say that it is one.

use crate::clock::Nanos;
use crate::record::{Chunk, Record};

/// A reply whose token count is within this share of its content events has one token an event.
const ONE_EACH: f64 = 0.1;

/// Times between content events. Those that shared a read have a gap of 0 between them: see `coalesced_events`.
pub(super) fn gaps(chunks: &[Chunk]) -> impl Iterator<Item = Nanos> + '_ {
    chunks.windows(2).map(|pair| pair[1].at - pair[0].at)
}

/// The spread of a request's gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// The longest: a stall.
    pub(super) longest: Nanos,
    /// Their population standard deviation: jitter. In nanoseconds.
    pub(super) deviation_ns: f64,
}

/// The spread of the gaps between `chunks`; `None` without a gap.
pub(super) fn spread(chunks: &[Chunk]) -> Option<Spread> {
    let longest = gaps(chunks).max()?;
    let count = (chunks.len() - 1) as f64;
    let mean = gaps(chunks).map(|gap| gap.0 as f64).sum::<f64>() / count;
    let square = |gap: Nanos| (gap.0 as f64 - mean).powi(2);
    let variance = gaps(chunks).map(square).sum::<f64>() / count;
    Some(Spread {
        longest,
        deviation_ns: variance.sqrt(),
    })
}

/// Tokens of the reply, by the server's count where it has one, else by the client's.
pub(super) fn reply_tokens(record: &Record) -> Option<u64> {
    let told = record.usage.and_then(|usage| usage.completion_tokens);
    told.or(record.tokens.output_sequence_length())
}

/// Tokens of the reply for each of its content events; `None` without content or count.
pub(super) fn tokens_per_chunk(record: &Record) -> Option<f64> {
    let (tokens, events) = (reply_tokens(record)?, record.chunks.len());
    (events > 0).then(|| tokens as f64 / events as f64)
}

/// What is known of the tokens that the chunks of a reply carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The server told them with every event.
    Told,
    /// One each: the reply has as many tokens as content events, give or take a tenth, by the server's count or the client's.
    OneEach,
    /// Nothing.
    Not,
}

/// How the tokens of each chunk are known. The first chunk is left out: no gap stands before it.
pub(super) fn known(record: &Record) -> Known {
    let rest = record.chunks.get(1..).unwrap_or_default();
    if rest.iter().all(|chunk| chunk.tokens.is_some()) {
        return Known::Told;
    }
    let events = record.chunks.len() as f64;
    let told = record.usage.and_then(|usage| usage.completion_tokens);
    let counted = record.tokens.output_sequence_length();
    let near = |tokens: u64| (tokens as f64 - events).abs() <= ONE_EACH * events;
    if [told, counted].into_iter().flatten().any(near) {
        Known::OneEach
    } else {
        Known::Not
    }
}

/// Times between tokens, each with its end (after the request's start) and the number of tokens that it stands before: a gap `g` before a chunk of `k` tokens is `k` gaps of
/// `g / k`. A chunk without a new token lengthens the gap of the next one that has. Nothing where the tokens of each chunk are not
/// known.
pub(super) fn token_gaps(record: &Record) -> impl Iterator<Item = (Nanos, Nanos, u64)> + '_ {
    let known = known(record);
    let chunks = if known == Known::Not {
        &[]
    } else {
        &record.chunks[..]
    };
    let tokens = chunks.iter().skip(1).map(move |chunk| match known {
        Known::Told => (chunk.at, u64::from(chunk.tokens.unwrap_or(0))),
        _ => (chunk.at, 1),
    });
    let mut carried = Nanos(0);
    gaps(chunks)
        .zip(tokens)
        .filter_map(move |(gap, (at, tokens))| {
            let whole = std::mem::take(&mut carried) + gap;
            if tokens == 0 {
                carried = whole;
                return None;
            }
            Some((at, Nanos(whole.0 / tokens), tokens))
        })
}
