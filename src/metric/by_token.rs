//! Latencies between tokens, weighted by request and by token.
//!
//! In: valid streamed records. Out: one value and one weight for each, and the statistics of all. Never: another population for the mean
//! than for a percentile.
//!
//! A server that answers one request with 2 tokens 100 ms apart and another with 101 tokens 10 ms apart has a time per output token of
//! 55 ms, since half of its requests saw 100 ms, and an inter-token latency of 10.9 ms, since nearly all of its tokens came after 10 ms.
//! Tools report either under either name; here each has its own.

use super::weighted::weighted;
use super::{Context, Stats};
use crate::record::Record;

/// `time_per_output_token` of `record`: the time from its first to its last content, over all tokens but the first. In milliseconds, with
/// that number of tokens. `None` for what was no stream, and below two tokens.
///
/// It is vLLM's TPOT. `inter_token_latency` differs with `--per-chunk-usage` alone, where it leaves out all tokens of the first event.
pub(super) fn time_per_output_token(record: &Record, context: &Context) -> Option<(f64, u64)> {
    if !(context.streaming && record.streamed) {
        return None;
    }
    let (first, last) = (record.chunks.first()?, record.chunks.last()?);
    let length = record.tokens.output_sequence_length()?;
    let after_first = length.checked_sub(1).filter(|rest| *rest > 0)?;
    let decode = last.at - first.at;
    Some((decode.millis() / after_first as f64, after_first))
}

/// The same values, each as often as it has tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct ByToken {
    pairs: Vec<(f64, u64)>,
}

impl ByToken {
    pub(super) fn add(&mut self, record: &Record, context: &Context) {
        if !record.cancelled && record.is_success() {
            self.pairs.extend(time_per_output_token(record, context));
        }
    }

    pub(super) fn merge(&mut self, other: ByToken) {
        self.pairs.extend(other.pairs);
    }

    /// Mean, extremes, deviation and percentiles over all tokens; the count is theirs. `None` without any.
    pub(super) fn stats(&mut self) -> Option<Stats> {
        // The order in which records came changes no sum.
        self.pairs
            .sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let stats = weighted(|| self.pairs.iter().copied())?;
        let tokens = self.pairs.iter().map(|pair| pair.1);
        Some(Stats {
            count: Some(tokens.fold(0, u64::saturating_add)),
            ..stats
        })
    }
}
