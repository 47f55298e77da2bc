//! Service level objectives.
//!
//! In: thresholds in display units, one request's values. Out: whether it was good. Never: judges a failed request.

use super::registry::{METRICS, compares_usage, find, needs_stream};
use super::{Context, Metric, Value};
use crate::config::Slo;

/// A threshold on `tag` makes sense in this run: requests have one value of it each, and this run computes it.
#[must_use]
pub fn applicable(tag: &str, context: &Context) -> bool {
    find(tag).is_some_and(|metric| {
        metric.in_records
            && !matches!(tag, "inter_chunk_latency" | "error_isl")
            && (context.streaming || !needs_stream(metric))
            && context.has(metric)
            && !(context.use_server_token_count && compares_usage(metric))
    })
}

/// All tags that a threshold may be on in this run, in the registry's order.
#[must_use]
pub fn applicable_tags(context: &Context) -> Vec<&'static str> {
    let tags = METRICS.iter().map(|metric| metric.tag);
    tags.filter(|tag| applicable(tag, context)).collect()
}

/// Every objective has a value and keeps to its threshold: at most it, or at least it for a metric that is better when larger. A
/// request that lacks one of the metrics (inter-token latency of one token) is not good.
#[must_use]
pub fn is_good(values: &[(&'static Metric, Value)], objectives: &[Slo]) -> bool {
    objectives.iter().all(|objective| {
        values
            .iter()
            .find(|(metric, _)| metric.tag == objective.tag)
            .is_some_and(|(metric, value)| keeps(metric, value, objective.threshold))
    })
}

fn keeps(metric: &Metric, value: &Value, threshold: f64) -> bool {
    match value {
        Value::One(value) if metric.larger_is_better => *value >= threshold,
        Value::One(value) => *value <= threshold,
        Value::Many(_) => false,
    }
}
