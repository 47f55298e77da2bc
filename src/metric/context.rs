//! What of a plan decides which metrics exist.
//!
//! In: a plan. Out: a few flags, cheap to hand to every recorder. Never: changes during a run.

use crate::config::{DatasetSource, Plan, Slo};

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
            goodput: plan.goodput.clone(),
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
