//! What of a plan decides which metrics exist.
//!
//! In: a plan. Out: a few flags, cheap to hand to every recorder. Never: changes during a run.

use super::registry::{of_input_tokens, of_output_tokens};
use super::{Metric, Row};
use crate::config::{DatasetSource, Ending, Plan, Slo};

/// What of a plan decides which metrics exist and how they are computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Streamed replies were asked for; without it no metric of a stream exists.
    pub streaming: bool,
    /// Token counts are the server's, so they are not compared with the server's.
    pub use_server_token_count: bool,
    /// Inter-token latency divides by the tokens after the first content event, as its own usage counts them.
    pub per_chunk_usage: bool,
    /// The server is the built-in one, whose prompt count is of words; comparing it with tokens would only alarm.
    pub server_counts_words: bool,
    /// Mean length of the prompts asked for, in tokens (`--isl`).
    pub asked_input: Option<f64>,
    /// Streams of the endpoint's dialect end with `[DONE]`.
    pub ends_with_done: bool,
    /// Replies of the endpoint's dialect are no tokens: numbers, places, a text that is not counted.
    pub no_output_tokens: bool,
    /// What is sent is not counted in tokens: pictures, sounds.
    pub no_input_tokens: bool,
    /// What a good request keeps to; empty when no goodput was asked for.
    pub goodput: Vec<Slo>,
}

impl Context {
    /// The context of `plan`.
    #[must_use]
    pub fn of(plan: &Plan) -> Context {
        Context {
            streaming: plan.endpoint.streaming,
            use_server_token_count: plan.endpoint.use_server_token_count,
            per_chunk_usage: plan.endpoint.per_chunk_usage,
            server_counts_words: plan.endpoint.built_in_server,
            asked_input: asked_input(&plan.dataset.source),
            ends_with_done: plan.endpoint.kind.facts().ending == Ending::DoneMark,
            no_output_tokens: !plan.endpoint.kind.facts().produces_tokens,
            no_input_tokens: !plan.endpoint.kind.facts().counts_input,
            goodput: plan.goodput.clone(),
        }
    }

    /// The endpoint is one that has this metric. One that counts tokens where there are none would be 0 or worse, so it is absent.
    pub(super) fn has(&self, metric: &Metric) -> bool {
        let lacks_output = self.no_output_tokens && of_output_tokens(metric);
        let lacks_input = self.no_input_tokens && of_input_tokens(metric);
        !lacks_output && !lacks_input
    }

    /// Takes out of `rows` what the endpoint has not.
    pub(super) fn keep(&self, rows: &mut Vec<Row>) {
        if self.no_output_tokens || self.no_input_tokens {
            rows.retain(|row| self.has(row.metric));
        }
    }
}

fn asked_input(source: &DatasetSource) -> Option<f64> {
    match source {
        DatasetSource::Synthetic(synthetic) if synthetic.pairs.is_empty() => {
            Some(synthetic.input_tokens.mean)
        }
        _ => None,
    }
}
