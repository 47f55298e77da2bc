//! `messages`: Anthropic's `/v1/messages`.
//!
//! In: turns; events by their `type`, and whole messages. Out: bodies; pieces. Never: a body without an output limit; the API has no
//! default for it.

use serde_json::{Map, Value, json};

use super::body::Fields;
use super::content::{is_filled, member};
use super::dialect::{Dialect, Request, Seen, Usual};
use super::history::Part;
use super::input::array;
use super::parse::{json, peer_error, take_text};
use super::parts::{self, Spelling};
use super::usage::usage;
use super::{Input, Marker, Piece, Reply, event, translate};
use crate::config::EndpointPlan;

/// The dialect.
#[derive(Debug)]
pub(super) struct Messages;

/// Output limit where none is asked for, as AIPerf has it.
const MAX_TOKENS_DEFAULT: u32 = 1024;

/// The API's version, sent with every request unless the user names another.
const VERSION: &str = "2023-06-01";

impl Dialect for Messages {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        let mut system: Vec<String> = request.conversation.system.iter().cloned().collect();
        let messages = messages(request, &mut system);
        let mut body = Fields::new();
        body.set("model", this.model.as_str());
        body.set("messages", messages);
        body.set("max_tokens", this.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT));
        body.set_some("stream", request.plan.streaming.then_some(true));
        body.set_some("system", (!system.is_empty()).then(|| system.join("\n\n")));
        body.set_some("tools", request.tools().map(translate::message_tools));
        body.extend(request);
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        let mut piece = Piece {
            error: peer_error(root),
            ..Piece::default()
        };
        match root["type"].as_str().unwrap_or_default() {
            "message" => {
                piece.usage = usage(root);
                piece.finish_reason = take_text(root, "stop_reason");
                if let Some(blocks) = root["content"].as_array_mut() {
                    blocks.iter_mut().for_each(|block| add(block, &mut piece));
                }
            }
            "message_start" => piece.usage = usage(&root["message"]),
            "content_block_start" => add(&mut root["content_block"], &mut piece),
            "content_block_delta" => {
                let delta = &mut root["delta"];
                piece.text = take_text(delta, "text");
                piece.reasoning = take_text(delta, "thinking");
                piece.tool = take_text(delta, "partial_json");
            }
            "message_delta" => {
                piece.usage = usage(root);
                piece.finish_reason = take_text(&mut root["delta"], "stop_reason");
            }
            "message_stop" => piece.complete = true,
            _ => {}
        }
        piece
    }

    fn usual(&self, data: &[u8]) -> Option<Usual> {
        event::piece(event::Shape::Messages, data)
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        match member(data, b"type") {
            b"\"content_block_delta\"" => {
                let delta = member(data, b"delta");
                [&b"text"[..], b"thinking", b"partial_json"]
                    .iter()
                    .any(|name| is_filled(member(delta, name)))
            }
            b"\"content_block_start\"" => {
                let block = member(data, b"content_block");
                match member(block, b"type") {
                    b"\"text\"" => is_filled(member(block, b"text")),
                    b"\"thinking\"" => is_filled(member(block, b"thinking")),
                    b"\"tool_use\"" => is_filled(member(block, b"name")),
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn mark(&self, body: &mut Map<String, Value>, marker: &Marker<'_>) -> Option<()> {
        marker.beside_messages(body, "system", "messages")
    }

    fn says(&self, body: &Value, input: &mut Input) {
        input.text(&body["system"]);
        for part in array(&body["system"]) {
            input.text(&part["text"]);
        }
        for message in array(&body["messages"]) {
            input.message(message);
            for block in array(&message["content"]) {
                input.text(&block["name"]);
                input.schema(&block["input"]);
                input.text(&block["content"]);
                for part in array(&block["content"]) {
                    input.text(&part["text"]);
                }
            }
        }
        for tool in array(&body["tools"]) {
            input.tool(tool, "input_schema");
        }
    }

    fn remember(&self, data: &[u8], reply: &mut Reply) {
        let finder = |words: &[u8]| memchr::memmem::find(data, words).is_some();
        if !finder(b"tool_use") && !finder(b"input_json_delta") {
            return;
        }
        let Some(root) = json(data) else { return };
        let index = root["index"].as_u64().unwrap_or(0);
        let whole = root["content"].as_array().into_iter().flatten();
        let blocks = whole.zip(0..).chain([(&root["content_block"], index)]);
        for (block, index) in blocks.filter(|(block, _)| block["type"] == "tool_use") {
            let call = reply.tool_call(index);
            call.id = block["id"].as_str().unwrap_or("").to_owned();
            call.name = block["name"].as_str().unwrap_or("").to_owned();
            call.arguments = arguments(block).unwrap_or_default();
        }
        if let Some(fragment) = root["delta"]["partial_json"].as_str() {
            reply.tool_call(index).arguments.push_str(fragment);
        }
    }

    fn headers(&self, plan: &EndpointPlan) -> Vec<(&'static str, String)> {
        let key = plan.api_key.iter().map(|key| ("x-api-key", key.clone()));
        key.chain([("anthropic-version", VERSION.to_owned())])
            .collect()
    }
}

/// All messages of a body. System messages of the dataset go to `system`, since they have no place among the others.
fn messages(request: &Request<'_>, system: &mut Vec<String>) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(context) = &request.conversation.user_context {
        messages.push(json!({"role": "user", "content": context}));
    }
    for part in request.parts(0) {
        match part {
            Part::Given(message) => translate::message(message, &mut messages, system),
            Part::Turn(turn) => {
                let content = parts::content(turn, Spelling::Messages);
                messages.push(json!({"role": parts::role(turn), "content": content}));
            }
            Part::Said(reply) => messages.extend(assistant(reply)),
        }
    }
    messages
}

/// The message that a live reply leaves in the history. Thinking is left out: the API takes it back only with its signature.
fn assistant(reply: &Reply) -> Option<Value> {
    let text = reply.said();
    if reply.tool_calls.is_empty() {
        return (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
    }
    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    let calls = reply
        .tool_calls
        .iter()
        .map(|call| translate::tool_use(&call.id, &call.name, &call.arguments));
    let blocks: Vec<Value> = text.into_iter().chain(calls).collect();
    Some(json!({"role": "assistant", "content": blocks}))
}

/// Adds a content block.
fn add(block: &mut Value, piece: &mut Piece) {
    let push = |text: &mut Option<String>, more: Option<String>| {
        if let Some(more) = more {
            text.get_or_insert_default().push_str(&more);
        }
    };
    match block["type"].as_str().unwrap_or_default() {
        "text" => push(&mut piece.text, take_text(block, "text")),
        "thinking" => push(&mut piece.reasoning, take_text(block, "thinking")),
        "tool_use" => {
            push(&mut piece.tool, take_text(block, "name"));
            push(&mut piece.tool, arguments(block));
        }
        _ => {}
    }
}

/// Input of a tool call as text; a stream begins with an empty object and brings the text later.
fn arguments(block: &Value) -> Option<String> {
    let input = block.get("input")?.as_object()?;
    (!input.is_empty()).then(|| block["input"].to_string())
}
