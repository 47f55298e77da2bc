//! A reading of the APIs' request bodies.
//!
//! In: a body. Out: what is to be said. Never: a default that the plan or the API does not name.

use serde_json::Value;

use super::form;
use super::numbers::Numbers;
use super::request::Request;
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
    /// `/rag/api/prompt`.
    Rag,
    /// `/v1/audio/transcriptions`.
    Transcriptions,
    /// A path that answers with numbers.
    Numbers(Numbers),
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
    ("/rag/api/prompt", Api::Rag),
    ("/v1/audio/transcriptions", Api::Transcriptions),
    ("/v1/embeddings", Api::Numbers(Numbers::Embeddings)),
    ("/v1/ranking", Api::Numbers(Numbers::Ranking)),
    ("/v2/rerank", Api::Numbers(Numbers::Rerank)),
    ("/rerank", Api::Numbers(Numbers::TeiRerank)),
    ("/v1/infer", Api::Numbers(Numbers::Infer)),
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
    /// The answer of an API that says no words.
    pub(super) answer: Option<Value>,
    /// The answer is the text alone.
    pub(super) plain: bool,
}

impl Order {
    /// Reads a request of any API. The error is a sentence for the client.
    pub(super) fn of(api: Api, request: &Request, plan: &MockPlan) -> Result<Order, String> {
        match api {
            Api::Transcriptions => Order::transcription(request, plan),
            Api::Numbers(numbers) => Order::numbers(numbers, &request.body, plan),
            Api::Rag => {
                let order = Order::read(api, &request.body, plan)?;
                // Its body has no field that says so.
                let stream = order.stream || request.accepts_events;
                Ok(Order { stream, ..order })
            }
            _ => Order::read(api, &request.body, plan),
        }
    }

    fn numbers(numbers: Numbers, body: &[u8], plan: &MockPlan) -> Result<Order, String> {
        let value = object(body)?;
        let seed = plan.seed ^ fnv(body);
        let answer = numbers.answer(&value, seed)?;
        Ok(Order {
            prompt_tokens: answer.prompt_tokens,
            answer: Some(answer.value),
            ..Order::whole(Api::Numbers(numbers), 1, seed)
        })
    }

    fn transcription(request: &Request, plan: &MockPlan) -> Result<Order, String> {
        let parts = form::parts(&request.content_type, &request.body)?;
        for name in ["file", "model"] {
            if form::field(&parts, name).is_none_or(<[u8]>::is_empty) {
                return Err(format!("the form must have a `{name}` that is not empty"));
            }
        }
        let plain = match form::field(&parts, "response_format") {
            None | Some(b"json") => false,
            Some(b"text") => true,
            Some(_) => return Err("`response_format` must be json or text".to_owned()),
        };
        let seed = plan.seed ^ fnv(&request.body);
        Ok(Order {
            plain,
            ..Order::whole(Api::Transcriptions, plan.tokens.max(1), seed)
        })
    }

    /// An answer at once, without a model's name in it.
    fn whole(api: Api, tokens: u32, seed: u64) -> Order {
        Order {
            api,
            model: String::new(),
            stream: false,
            include_usage: false,
            continuous_usage: false,
            tokens,
            prompt_tokens: 0,
            seed,
            answer: None,
            plain: false,
        }
    }

    /// Reads a body of an API that says words for words. The error is a sentence for the client.
    pub(super) fn read(api: Api, body: &[u8], plan: &MockPlan) -> Result<Order, String> {
        let value = object(body)?;
        let model = match api {
            Api::Generate | Api::GenerateStream if value.get("model").is_none() => String::new(),
            Api::Rag => text(&value, "inference_model")?.to_owned(),
            _ => model(&value)?.to_owned(),
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
            answer: None,
            plain: false,
        })
    }
}

fn object(body: &[u8]) -> Result<Value, String> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not valid JSON: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("the body must be a JSON object".to_owned())
    }
}

pub(super) fn model(body: &Value) -> Result<&str, String> {
    text(body, "model")
}

fn text<'a>(body: &'a Value, field: &str) -> Result<&'a str, String> {
    let text = body[field].as_str();
    text.ok_or_else(|| format!("`{field}` must be a string"))
}

/// Words of the prompt, which each API has in another field.
fn prompt_tokens(api: Api, body: &Value) -> Result<u64, String> {
    let field = match api {
        Api::Chat | Api::Messages => "messages",
        Api::Completions => "prompt",
        Api::Responses => "input",
        Api::Rag => "query",
        _ => "inputs",
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
        // It has no limit.
        Api::Rag => (body, &[]),
        _ => (&body["parameters"], &["max_new_tokens"]),
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

pub(super) fn count(value: &Value, name: &str) -> Result<Option<u64>, String> {
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
pub(super) fn words(value: &Value) -> u64 {
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
