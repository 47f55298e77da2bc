//! `chat`: `/v1/chat/completions`.
//!
//! In: turns; chunks and answers. Out: bodies; pieces. Never: both spellings of the output limit in one body.

use serde_json::{Value, json};

use super::body::Fields;
use super::choices::{self, Objects};
use super::content;
use super::dialect::{Dialect, Request, Seen, Usual};
use super::input::array;
use super::parse::{arguments, json, parts_text, peer_error, take_text};
use super::parts::{self, Spelling};
use super::usage::usage;
use super::usual::{self, Shape};
use super::{Input, Piece, Reply, Said};
use crate::dataset::Turn;

/// The dialect.
#[derive(Debug)]
pub(super) struct Chat;

/// Objects of its replies.
const OBJECTS: Objects = Objects(["chat.completion.chunk", "chat.completion"]);

impl Dialect for Chat {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let (plan, this) = (request.plan, request.this());
        let mut body = Fields::new();
        body.set("messages", messages(request));
        body.set("model", this.model.as_str());
        body.set("stream", plan.streaming);
        body.set_some("tools", this.tools.clone());
        let limit = if plan.use_legacy_max_tokens {
            "max_tokens"
        } else {
            "max_completion_tokens"
        };
        body.set_some(limit, this.max_tokens);
        body.extend(request);
        body.ask_for_usage(request);
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        let mut piece = Piece {
            error: peer_error(root),
            ..Piece::default()
        };
        if !OBJECTS.include(root) {
            return piece;
        }
        piece.usage = usage(root);
        piece.others = choices::others(root, said);
        let Some(choice) = choices::first(root) else {
            return piece;
        };
        piece.finish_reason = take_text(choice, "finish_reason");
        let said = said(choice);
        (piece.text, piece.reasoning, piece.tool) = (said.text, said.reasoning, said.tool);
        piece
    }

    fn usual(&self, data: &[u8]) -> Option<Usual> {
        usual::piece(Shape::Chat, data)
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        content::choices(data, &OBJECTS)
            .any(|choice| content::says_something(content::message(choice)))
    }

    fn says(&self, body: &Value, input: &mut Input) {
        for message in array(&body["messages"]) {
            input.message(message);
        }
        for tool in array(&body["tools"]) {
            input.tool(&tool["function"], "parameters");
        }
    }

    fn remember(&self, data: &[u8], reply: &mut Reply) {
        if memchr::memmem::find(data, b"tool_calls").is_none() {
            return;
        }
        let Some(mut root) = json(data) else { return };
        let Some(message) = choices::first(&mut root).and_then(message_of) else {
            return;
        };
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for (place, call) in calls.into_iter().flatten().enumerate() {
            let index = call.get("index").and_then(Value::as_u64);
            let call_of_reply = reply.tool_call(index.unwrap_or(place as u64));
            if let (true, Some(id)) = (call_of_reply.id.is_empty(), call["id"].as_str()) {
                id.clone_into(&mut call_of_reply.id);
            }
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or("");
            call_of_reply.name.push_str(name);
            call_of_reply.arguments.push_str(&arguments(function));
        }
    }
}

/// All messages of a body.
pub(super) fn messages(request: &Request<'_>) -> Vec<Value> {
    let conversation = request.conversation;
    let mut messages = Vec::new();
    if let Some(system) = &conversation.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    if let Some(context) = &conversation.user_context {
        messages.push(json!({"role": "user", "content": context}));
    }
    for (turn, reply) in request.earlier() {
        add(&mut messages, turn);
        messages.extend(reply.and_then(assistant));
    }
    add(&mut messages, request.this());
    messages
}

/// Adds what a turn says: its own messages as they are, else one of its texts and media.
fn add(messages: &mut Vec<Value>, turn: &Turn) {
    if turn.messages.is_empty() {
        let content = parts::content(turn, Spelling::Chat);
        messages.push(json!({"role": parts::role(turn), "content": content}));
    } else {
        messages.extend(turn.messages.iter().cloned());
    }
}

/// The message that a live reply leaves in the history; `None` when nothing was said. Reasoning stands there only when there is no
/// text.
pub(super) fn assistant(reply: &Reply) -> Option<Value> {
    let text = reply.said();
    if reply.tool_calls.is_empty() {
        return (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
    }
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| {
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect();
    let content = if text.is_empty() {
        Value::Null
    } else {
        Value::from(text)
    };
    Some(json!({"role": "assistant", "content": content, "tool_calls": calls}))
}

/// What a choice says. The text of a refusal is output like any other.
fn said(choice: &mut Value) -> Said {
    let Some(message) = message_of(choice) else {
        return Said::default();
    };
    Said {
        tool: tool_text(message),
        reasoning: take_text(message, "reasoning_content")
            .or_else(|| take_text(message, "reasoning")),
        text: take_text(message, "content")
            .or_else(|| parts_text(&message["content"]))
            .or_else(|| take_text(message, "refusal")),
    }
}

/// `delta` of a chunk, `message` of a whole answer.
fn message_of(choice: &mut Value) -> Option<&mut Value> {
    let name = if choice.get("delta").is_some_and(Value::is_object) {
        "delta"
    } else {
        "message"
    };
    choice.get_mut(name).filter(|message| message.is_object())
}

/// Names and argument text of all tool calls, in order.
fn tool_text(message: &Value) -> Option<String> {
    let mut text = String::new();
    for call in message.get("tool_calls")?.as_array()? {
        let Some(function) = call.get("function") else {
            continue;
        };
        text.push_str(function.get("name").and_then(Value::as_str).unwrap_or(""));
        text.push_str(&arguments(function));
    }
    (!text.is_empty()).then_some(text)
}
