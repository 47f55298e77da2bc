//! `chat`: `/v1/chat/completions`.
//!
//! In: turns; chunks and answers. Out: bodies; pieces. Never: both spellings of the output limit in one body.

use serde_json::{Value, json};

use super::body::Fields;
use super::choices::{self, Objects};
use super::content;
use super::dialect::{Dialect, Request, Seen, Usual};
use super::history::{self, Part};
use super::input::array;
use super::parse::{arguments, json, parts_text, peer_error, take_text};
use super::parts::{self, Spelling};
use super::usage::usage;
use super::usual::{self, Shape};
use super::{Input, Piece, Reply, Said, calls};

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
        body.set_some("tools", request.tools().cloned());
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
        let named = |name: &[u8]| memchr::memmem::find(data, name).is_some();
        if !named(b"tool_calls") && !named(b"function_call") {
            return;
        }
        let Some(mut root) = json(data) else { return };
        if let Some(message) = choices::first(&mut root).and_then(message_of) {
            calls::take_in(&mut reply.tool_calls, message);
        }
    }
}

/// All messages of a body.
pub(super) fn messages(request: &Request<'_>) -> Vec<Value> {
    let parts = request.parts(0).into_iter();
    let own = parts.filter_map(|part| match part {
        Part::Given(message) => Some(message.clone()),
        Part::Turn(turn) => {
            let content = parts::content(turn, Spelling::Chat);
            Some(json!({"role": parts::role(turn), "content": content}))
        }
        Part::Said(reply) => assistant(reply),
    });
    let mut messages = own.collect();
    history::lead(&mut messages, request.conversation);
    messages
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
            let function = json!({"name": call.name, "arguments": call.arguments});
            if call.id.is_empty() {
                json!({"type": "function", "function": function})
            } else {
                json!({"id": call.id, "type": "function", "function": function})
            }
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
