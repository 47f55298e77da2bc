//! Usage objects.
//!
//! In: a reply object. Out: one [`Usage`], whatever the server calls its counts. Never: a sum or a guess; one exception is stated
//! at `prompt`.

use serde_json::Value;

use super::Usage;

/// Usage of a reply; `None` when it has none, an empty one, or one without any known count.
pub(super) fn usage(root: &Value) -> Option<Usage> {
    let object = ["usage", "usageMetadata"]
        .iter()
        .filter_map(|name| root.get(*name))
        .find(|value| value.is_object())?;
    counts(object)
}

/// The counts of a usage object; `None` for one without any known count, and for what is no object.
pub(super) fn counts(object: &Value) -> Option<Usage> {
    let usage = Usage {
        prompt_tokens: prompt(object),
        completion_tokens: first(
            object,
            &[
                "completion_tokens",
                "output_tokens",
                "candidatesTokenCount",
                "outputTokens",
                "generated_token_count",
            ],
        ),
        total_tokens: first(object, &["total_tokens", "totalTokenCount", "totalTokens"]),
        reasoning_tokens: detail(object, COMPLETION, "reasoning_tokens")
            .or_else(|| count(object, "thoughtsTokenCount")),
        cache_read_tokens: detail(object, PROMPT, "cached_tokens").or_else(|| {
            first(
                object,
                &[
                    "cache_read_input_tokens",
                    "prompt_cache_hit_tokens",
                    "cachedContentTokenCount",
                    "cacheReadInputTokens",
                    "cached_tokens",
                ],
            )
        }),
        cache_write_tokens: first(
            object,
            &["cache_creation_input_tokens", "cacheWriteInputTokens"],
        ),
        cache_miss_tokens: count(object, "prompt_cache_miss_tokens"),
        prompt_audio_tokens: detail(object, PROMPT, "audio_tokens"),
        completion_audio_tokens: detail(object, COMPLETION, "audio_tokens"),
        accepted_prediction_tokens: detail(object, COMPLETION, "accepted_prediction_tokens"),
        rejected_prediction_tokens: detail(object, COMPLETION, "rejected_prediction_tokens"),
    };
    (usage != Usage::default()).then_some(usage)
}

impl Usage {
    /// What a later object of the same reply tells, over what earlier ones told. A reply may tell its prompt when it begins and its
    /// output when it ends.
    pub(crate) fn update(&mut self, later: &Usage) {
        let counts = [
            (&mut self.prompt_tokens, later.prompt_tokens),
            (&mut self.completion_tokens, later.completion_tokens),
            (&mut self.total_tokens, later.total_tokens),
            (&mut self.reasoning_tokens, later.reasoning_tokens),
            (&mut self.cache_read_tokens, later.cache_read_tokens),
            (&mut self.cache_write_tokens, later.cache_write_tokens),
            (&mut self.cache_miss_tokens, later.cache_miss_tokens),
            (&mut self.prompt_audio_tokens, later.prompt_audio_tokens),
            (
                &mut self.completion_audio_tokens,
                later.completion_audio_tokens,
            ),
            (
                &mut self.accepted_prediction_tokens,
                later.accepted_prediction_tokens,
            ),
            (
                &mut self.rejected_prediction_tokens,
                later.rejected_prediction_tokens,
            ),
        ];
        for (count, later) in counts {
            *count = later.or(*count);
        }
    }
}

const PROMPT: [&str; 2] = ["prompt_tokens_details", "input_tokens_details"];
const COMPLETION: [&str; 2] = ["completion_tokens_details", "output_tokens_details"];

/// Prompt tokens. Servers that say `input_tokens` leave the cached ones out of it, so those are added, as AIPerf does.
fn prompt(object: &Value) -> Option<u64> {
    if let Some(tokens) = first(object, &["prompt_tokens", "promptTokenCount"]) {
        return Some(tokens);
    }
    if let Some(tokens) = first(object, &["input_tokens", "inputTokens"]) {
        let cached = [
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "cacheReadInputTokens",
            "cacheWriteInputTokens",
        ];
        let add = |sum: u64, name: &&str| sum.saturating_add(count(object, name).unwrap_or(0));
        return Some(cached.iter().fold(tokens, add));
    }
    count(object, "input_token_count")
}

fn first(object: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| count(object, name))
}

fn detail(object: &Value, parents: [&str; 2], name: &str) -> Option<u64> {
    parents
        .iter()
        .find_map(|parent| count(object.get(*parent)?, name))
}

/// A count; whole numbers written as `7.0` are taken too, negative ones are not.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number in range"
)]
fn count(object: &Value, name: &str) -> Option<u64> {
    // Sub-objects that some gateways wrap the counts in.
    let wrapped = || {
        object
            .get("tokens")
            .or_else(|| object.pointer("/meta/tokens"))?
            .get(name)
    };
    let value = object.get(name).or_else(wrapped)?;
    value.as_u64().or_else(|| {
        let real = value.as_f64()?;
        (real.fract() == 0.0 && (0.0..9e15).contains(&real)).then_some(real as u64)
    })
}
