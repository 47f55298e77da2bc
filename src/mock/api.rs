//! A reading of the OpenAI API's request bodies.
//!
//! In: a JSON body. Out: what is to be said. Never: a default that the plan or the API does not name.

use serde_json::Value;

use crate::config::MockPlan;

/// Most tokens one request may ask for.
const TOKENS_MAX: u64 = 1 << 20;

/// The two generating paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// What a body asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) api: Api,
    pub(super) model: String,
    pub(super) stream: bool,
    /// A last chunk with `usage` and no choices.
    pub(super) include_usage: bool,
    /// `usage` so far in each chunk.
    pub(super) continuous_usage: bool,
    /// Output tokens; at least 1.
    pub(super) tokens: u32,
    /// Words between white space in all texts of the prompt; for a list of token ids, its length.
    pub(super) prompt_tokens: u64,
    /// Seed of the words, from the plan's seed and the body.
    pub(super) seed: u64,
}

impl Order {
    /// Reads a body. The error is a sentence for the client.
    pub(super) fn read(api: Api, body: &[u8], plan: &MockPlan) -> Result<Order, String> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not valid JSON: {error}"))?;
        let Value::Object(fields) = &value else {
            return Err("the body must be a JSON object".to_owned());
        };
        let model = match fields.get("model") {
            Some(Value::String(model)) => model.clone(),
            _ => return Err("`model` must be a string".to_owned()),
        };
        let prompt_tokens = match api {
            Api::Chat => match fields.get("messages") {
                Some(Value::Array(messages)) if !messages.is_empty() => messages
                    .iter()
                    .map(|message| words(&message["content"]))
                    .sum(),
                _ => return Err("`messages` must be a list with at least one message".to_owned()),
            },
            Api::Completions => match fields.get("prompt") {
                Some(prompt @ (Value::String(_) | Value::Array(_))) => words(prompt),
                _ => return Err("`prompt` must be a string or a list".to_owned()),
            },
        };
        let stream = flag(&value, "stream")?;
        let options = &value["stream_options"];
        if !options.is_null() && !stream {
            return Err("`stream_options` needs `stream` to be true".to_owned());
        }
        Ok(Order {
            api,
            model,
            stream,
            include_usage: flag(options, "include_usage")?,
            continuous_usage: flag(options, "continuous_usage_stats")?,
            tokens: tokens(&value, plan)?,
            prompt_tokens,
            seed: plan.seed ^ fnv(body),
        })
    }
}

/// Output tokens: the limit is always reached, so `ignore_eos` changes nothing.
fn tokens(value: &Value, plan: &MockPlan) -> Result<u32, String> {
    let limit = match count(value, "max_completion_tokens")? {
        None => count(value, "max_tokens")?,
        some => some,
    };
    let least = count(value, "min_tokens")?.unwrap_or(0);
    let tokens = match limit {
        Some(0) => return Err("the token limit must be at least 1".to_owned()),
        Some(limit) if least > limit => {
            return Err(format!(
                "`min_tokens` is {least}, above the limit of {limit}"
            ));
        }
        Some(limit) => limit,
        None => u64::from(plan.tokens).max(least).max(1),
    };
    if tokens > TOKENS_MAX {
        return Err(format!(
            "{tokens} tokens are asked for; the most is {TOKENS_MAX}"
        ));
    }
    Ok(u32::try_from(tokens).unwrap_or(u32::MAX))
}

fn count(value: &Value, name: &str) -> Result<Option<u64>, String> {
    match &value[name] {
        Value::Null => Ok(None),
        number => number
            .as_u64()
            .map(Some)
            .ok_or_else(|| format!("`{name}` must be a whole number that is not negative")),
    }
}

fn flag(value: &Value, name: &str) -> Result<bool, String> {
    match &value[name] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("`{name}` must be true or false")),
    }
}

/// Words of a text, of a list of texts or of content parts; a number is a token id.
fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(part) => part.get("text").map_or(0, words),
        Value::Number(_) => 1,
        Value::Null | Value::Bool(_) => 0,
    }
}

/// FNV-1a: equal bodies get equal words, whatever the order in which they come.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
