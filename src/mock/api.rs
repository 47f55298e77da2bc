//! A reading of the APIs' request bodies.
//!
//! In: a JSON body. Out: what is to be said. Never: a default that the plan or the API does not name.

use serde_json::Value;

use crate::config::MockPlan;

/// Most tokens one request may ask for.
const TOKENS_MAX: u64 = 1 << 20;

/// The generating paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
    /// `/generate`.
    Generate,
    /// `/generate_stream`.
    GenerateStream,
}

impl Api {
    /// The API of a path; `None` when nothing is generated there.
    pub(super) fn of(path: &str) -> Option<Api> {
        let found = PATHS.iter().find(|(known, _)| *known == path);
        found.map(|(_, api)| *api)
    }

    /// Replies are lists of choices, in chunks that have no names.
    pub(super) fn has_choices(self) -> bool {
        matches!(self, Api::Chat | Api::Completions)
    }
}

/// Where each is.
pub(super) const PATHS: &[(&str, Api)] = &[
    ("/v1/chat/completions", Api::Chat),
    ("/v1/completions", Api::Completions),
    ("/v1/responses", Api::Responses),
    ("/v1/messages", Api::Messages),
    ("/generate", Api::Generate),
    ("/generate_stream", Api::GenerateStream),
];

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
            None if matches!(api, Api::Generate | Api::GenerateStream) => String::new(),
            _ => return Err("`model` must be a string".to_owned()),
        };
        let prompt_tokens = prompt_tokens(api, &value)?;
        let stream =
            api == Api::GenerateStream || (api != Api::Generate && flag(&value, "stream")?);
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
            tokens: tokens(api, &value, plan)?,
            prompt_tokens,
            seed: plan.seed ^ fnv(body),
        })
    }
}

/// Words of the prompt, which each API has in another field.
fn prompt_tokens(api: Api, body: &Value) -> Result<u64, String> {
    let field = match api {
        Api::Chat | Api::Messages => "messages",
        Api::Completions => "prompt",
        Api::Responses => "input",
        Api::Generate | Api::GenerateStream => "inputs",
    };
    let prompt = match &body[field] {
        Value::Array(messages) if field == "messages" && !messages.is_empty() => messages,
        _ if field == "messages" => {
            return Err("`messages` must be a list with at least one message".to_owned());
        }
        Value::String(_) | Value::Array(_) => std::slice::from_ref(&body[field]),
        _ => return Err(format!("`{field}` must be a string or a list")),
    };
    let before = ["system", "instructions"].map(|name| words(&body[name]));
    Ok(before.iter().sum::<u64>() + prompt.iter().map(words).sum::<u64>())
}

/// Output tokens: the limit is always reached, so `ignore_eos` changes nothing.
fn tokens(api: Api, body: &Value, plan: &MockPlan) -> Result<u32, String> {
    let (value, names): (_, &[&str]) = match api {
        Api::Chat | Api::Completions => (body, &["max_completion_tokens", "max_tokens"]),
        Api::Responses => (body, &["max_output_tokens"]),
        Api::Messages => (body, &["max_tokens"]),
        Api::Generate | Api::GenerateStream => (&body["parameters"], &["max_new_tokens"]),
    };
    let mut limit = None;
    for name in names {
        limit = limit.or(count(value, name)?);
    }
    if api == Api::Messages && limit.is_none() {
        return Err("`max_tokens` must be a whole number".to_owned());
    }
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

/// Words of a text, of a message or a part, or of a list of them; a number is a token id.
fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(part) => {
            let said = part.get("text").or_else(|| part.get("content"));
            said.map_or(0, words)
        }
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
