//! Request bodies.
//!
//! In: the plan, a conversation, a turn number and earlier replies. Out: JSON bytes in AIPerf's key order, without spaces.
//! Never: an unasked field, or both spellings of the output limit.

use serde_json::{Map, Value, json};

use super::Reply;
use crate::config::{EndpointKind, EndpointPlan};
use crate::dataset::{ContextMode, Conversation, Turn};

/// The path that is added to a base URL when `--endpoint` gives none.
#[must_use]
pub fn default_path(kind: EndpointKind) -> &'static str {
    match kind {
        EndpointKind::Chat => "/v1/chat/completions",
        EndpointKind::Completions => "/v1/completions",
    }
}

/// Body of one turn. `history` holds what each earlier turn was answered with; `None`, or a missing entry, is a turn that failed
/// and leaves no message. It matters only to [`ContextMode::LiveReplies`].
///
/// Fields of `--extra-inputs` replace built-in ones of the same name in place, and the turn's own extras replace both. Panics
/// when `turn` is not a turn of `conversation`.
#[must_use]
pub fn render(
    plan: &EndpointPlan,
    conversation: &Conversation,
    turn: usize,
    history: &[Option<Reply>],
) -> Vec<u8> {
    let this = &conversation.turns[turn];
    if let Some(payload) = &this.payload {
        return payload.as_bytes().to_vec();
    }
    let mut body = Map::new();
    match plan.kind {
        EndpointKind::Chat => {
            let messages = messages(conversation, turn, history);
            body.insert("messages".to_owned(), Value::Array(messages));
        }
        EndpointKind::Completions => {
            body.insert("prompt".to_owned(), one_or_list(&this.texts));
        }
    }
    body.insert("model".to_owned(), Value::from(this.model.as_str()));
    body.insert("stream".to_owned(), Value::Bool(plan.streaming));
    if let Some(tools) = &this.tools {
        body.insert("tools".to_owned(), tools.clone());
    }
    if let Some(limit) = this.max_tokens {
        body.insert(limit_name(plan).to_owned(), Value::from(limit));
    }
    for (name, value) in plan.extra_inputs.iter().chain(&this.extra) {
        body.insert(name.clone(), value.clone());
    }
    if plan.streaming {
        ask_for_usage(plan, &mut body);
    }
    Value::Object(body).to_string().into_bytes()
}

fn limit_name(plan: &EndpointPlan) -> &'static str {
    if plan.kind == EndpointKind::Chat && !plan.use_legacy_max_tokens {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// Adds to `stream_options` what the user has not set; one that is no object is the user's own affair.
fn ask_for_usage(plan: &EndpointPlan, body: &mut Map<String, Value>) {
    let options = body
        .entry("stream_options")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(options) = options {
        options.entry("include_usage").or_insert(Value::Bool(true));
        if plan.per_chunk_usage {
            options
                .entry("continuous_usage_stats")
                .or_insert(Value::Bool(true));
        }
    }
}

fn messages(conversation: &Conversation, turn: usize, history: &[Option<Reply>]) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(system) = &conversation.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    if let Some(context) = &conversation.user_context {
        messages.push(json!({"role": "user", "content": context}));
    }
    if conversation.context == ContextMode::LiveReplies {
        for (index, earlier) in conversation.turns[..turn].iter().enumerate() {
            messages.push(message(earlier));
            let reply = history.get(index).and_then(Option::as_ref);
            messages.extend(reply.and_then(Reply::message));
        }
    }
    match conversation.turns[turn].messages.as_slice() {
        [] => messages.push(message(&conversation.turns[turn])),
        own => messages.extend_from_slice(own),
    }
    messages
}

fn message(turn: &Turn) -> Value {
    let role = if turn.role.is_empty() {
        "user"
    } else {
        &turn.role
    };
    let content = match turn.texts.as_slice() {
        [text] => Value::from(text.as_str()),
        texts => texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect(),
    };
    json!({"role": role, "content": content})
}

fn one_or_list(texts: &[String]) -> Value {
    match texts {
        [text] => Value::from(text.as_str()),
        texts => Value::from(texts.to_vec()),
    }
}
