//! `responses`: `/v1/responses`.
//!
//! In: turns; events by their `type`, and whole responses. Out: bodies; pieces. Never: a text twice, though the API repeats each one
//! in the events that end its part, its item and the response.

use serde_json::{Map, Value, json};

use super::body::Fields;
use super::content::{elements, is_filled, member, members};
use super::dialect::{Dialect, Naming, Request, Seen, Usual};
use super::history::Part;
use super::input::array;
use super::parse::{json, peer_error, root_error, take_text};
use super::parts::{self, Spelling};
use super::usage::usage;
use super::{Input, Marker, Piece, Reply, event, translate};
use crate::config::EndpointPlan;
use crate::dataset::{ContextMode, Turn};

/// The dialect.
#[derive(Debug)]
pub(super) struct Responses;

impl Dialect for Responses {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let (plan, this) = (request.plan, request.this());
        let stored = stored(request);
        let mut body = Fields::new();
        body.set("input", input(request, stored.map(|(turn, _)| turn)));
        body.set("model", this.model.as_str());
        body.set("stream", plan.streaming);
        body.set_some("previous_response_id", stored.map(|(_, id)| id));
        body.set_some("instructions", request.conversation.system.as_deref());
        body.set_some("max_output_tokens", this.max_tokens);
        body.set_some("tools", request.tools().map(translate::response_tools));
        body.extend(request);
        // The API tells usage unasked; this is for servers that want the question, and refused by those that do not know it.
        if plan.use_server_token_count {
            body.ask_for_usage(request);
        }
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, seen: Seen) -> Piece {
        let kind = take_text(root, "type").unwrap_or_default();
        if kind.is_empty() || kind == "response" {
            let mut piece = Piece {
                error: peer_error(root),
                ..Piece::default()
            };
            let ours = root.get("object").and_then(Value::as_str) == Some("response")
                || root.get("output").is_some_and(Value::is_array);
            if ours {
                whole(root, &mut piece, seen);
            }
            return piece;
        }
        let mut piece = Piece::default();
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                piece.text = take_text(root, "delta");
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                piece.reasoning = take_text(root, "delta");
            }
            "response.function_call_arguments.delta"
            | "response.custom_tool_call_input.delta"
            | "response.mcp_call_arguments.delta" => piece.tool = take_text(root, "delta"),
            "response.output_text.done" if !seen.text => piece.text = take_text(root, "text"),
            "response.refusal.done" if !seen.text => piece.text = take_text(root, "refusal"),
            "response.output_item.added" => piece.tool = call_name(&mut root["item"]),
            "response.completed" | "response.incomplete" | "response.failed" => {
                piece.complete = true;
                let mut response = root["response"].take();
                piece.error = peer_error(&response);
                whole(&mut response, &mut piece, seen);
            }
            "error" => piece.error = root_error(root),
            _ => piece.error = peer_error(root),
        }
        piece
    }

    fn usual(&self, data: &[u8]) -> Option<Usual> {
        event::piece(event::Shape::Responses, data)
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        match member(data, b"type") {
            b"\"response.output_text.delta\""
            | b"\"response.refusal.delta\""
            | b"\"response.reasoning_text.delta\""
            | b"\"response.reasoning_summary_text.delta\""
            | b"\"response.function_call_arguments.delta\""
            | b"\"response.custom_tool_call_input.delta\""
            | b"\"response.mcp_call_arguments.delta\"" => is_filled(member(data, b"delta")),
            b"\"response.output_item.added\"" => {
                let item = member(data, b"item");
                member(item, b"type") == b"\"function_call\"" && is_filled(member(item, b"name"))
            }
            b"\"response.completed\"" | b"\"response.incomplete\"" => {
                let response = member(data, b"response");
                elements(member(response, b"output")).any(|item| {
                    let parts = || elements(member(item, b"content"));
                    member(item, b"type") == b"\"message\""
                        && parts().any(|part| {
                            members(part).any(|(key, _)| key == b"text")
                                && is_filled(member(part, b"text"))
                        })
                })
            }
            _ => false,
        }
    }

    fn mark(&self, body: &mut Map<String, Value>, marker: &Marker<'_>) -> Option<()> {
        marker.beside_messages(body, "instructions", "input")
    }

    fn says(&self, body: &Value, input: &mut Input) {
        input.text(&body["instructions"]);
        input.text(&body["input"]);
        for item in array(&body["input"]) {
            input.message(item);
            input.text(&item["name"]);
            input.text(&item["arguments"]);
            input.text(&item["output"]);
        }
        for tool in array(&body["tools"]) {
            input.tool(tool, "parameters");
        }
    }

    fn remember(&self, data: &[u8], reply: &mut Reply) {
        let finder = |words: &[u8]| memchr::memmem::find(data, words).is_some();
        if !finder(b"\"output\"") && !finder(b"response.output_item.done") {
            return;
        }
        let Some(root) = json(data) else { return };
        if root["type"] == "response.output_item.done" {
            remember_call(&root["item"], reply);
            reply.items.push(root["item"].clone());
            return;
        }
        let response = match root.get("response") {
            Some(response) => response,
            None => &root,
        };
        let items = array(&response["output"]);
        items.iter().for_each(|item| remember_call(item, reply));
        if !items.is_empty() {
            reply.items = items.to_vec();
        }
        if let Some(id) = response["id"].as_str() {
            id.clone_into(&mut reply.id);
        }
        reply.stored |= response["store"] == true;
    }

    fn naming(&self, plan: &EndpointPlan, turn: &Turn) -> Naming {
        let extra = |name: &str| turn.extra.get(name).or_else(|| plan.extra_inputs.get(name));
        if extra("previous_response_id").is_some() {
            return Naming::Nothing;
        }
        match extra("store") {
            Some(Value::Bool(true)) => Naming::All,
            Some(Value::Bool(false)) => Naming::Nothing,
            _ => Naming::Kept,
        }
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        // The API asks for 16 at least.
        json!({"input": "Lo", "max_output_tokens": 16, "model": model})
            .to_string()
            .into_bytes()
    }
}

/// The last earlier turn whose response the server keeps, and that response's id: the user asks for it by `store`, or the server says
/// so. The body then has only what came after.
fn stored<'a>(request: &Request<'a>) -> Option<(usize, &'a str)> {
    let naming = Responses.naming(request.plan, request.this());
    let live = request.conversation.context == ContextMode::LiveReplies;
    let replies = request.history.iter().take(request.turn).enumerate();
    replies
        .filter(|_| live)
        .filter_map(|(turn, reply)| Some((turn, reply.as_ref()?)))
        .filter(|(_, reply)| naming.takes(reply))
        .map(|(turn, reply)| (turn, reply.id.as_str()))
        .next_back()
}

/// Items of `input`, those after turn `known` if the server knows the ones before.
fn input(request: &Request<'_>, known: Option<usize>) -> Vec<Value> {
    let mut items = Vec::new();
    if let (Some(context), None) = (&request.conversation.user_context, known) {
        items.push(parts::message("user", context.as_str()));
    }
    for part in request.parts(known.map_or(0, |turn| turn + 1)) {
        match part {
            Part::Given(message) => translate::response_items(message, &mut items),
            Part::Turn(turn) => {
                let content = parts::content(turn, Spelling::Responses);
                let role = parts::role(turn);
                items.push(parts::message(role, content));
            }
            Part::Said(reply) => said(&mut items, reply),
        }
    }
    items
}

/// What a live reply leaves in the history: the server's own items, as the API's makers have it done and as AIPerf does it. A server that
/// told none has its text repeated.
fn said(items: &mut Vec<Value>, reply: &Reply) {
    if !reply.items.is_empty() {
        items.extend(reply.items.iter().cloned());
        return;
    }
    let text = reply.said();
    if !text.is_empty() {
        items.push(parts::message("assistant", text));
    }
    for call in &reply.tool_calls {
        items.push(
            json!({"type": "function_call", "call_id": call.id, "name": call.name,
            "arguments": call.arguments}),
        );
    }
}

/// Takes a whole response apart. What its stream has brought already is left alone.
fn whole(response: &mut Value, piece: &mut Piece, seen: Seen) {
    piece.usage = usage(response);
    let mut refused = false;
    if let Some(items) = response.get_mut("output").and_then(Value::as_array_mut) {
        for item in items {
            refused |= item_of(item, piece);
        }
    } else {
        piece.text = take_text(response, "output_text");
    }
    // A stream that has brought anything has brought all of it.
    if seen.text || seen.reasoning || seen.tool {
        (piece.text, piece.reasoning, piece.tool) = (None, None, None);
    }
    let reason = response.pointer("/incomplete_details/reason");
    let reason = reason.or_else(|| response.get("status"));
    piece.finish_reason = match reason.and_then(Value::as_str) {
        _ if refused => Some("refusal".to_owned()),
        reason => reason.map(str::to_owned),
    };
    if piece.error.is_none() && response["status"] == "failed" {
        piece.error = root_error(&json!({"message": "the response failed, and does not say why"}));
    }
}

/// Adds one item of `output`; says whether it is a refusal.
fn item_of(item: &mut Value, piece: &mut Piece) -> bool {
    let mut refused = false;
    match item.get("type").and_then(Value::as_str) {
        Some("message") => {
            for part in array(&item["content"]) {
                push(&mut piece.text, &part["text"]);
                push(&mut piece.text, &part["refusal"]);
                refused |= part["type"] == "refusal";
            }
        }
        Some("reasoning") => {
            let content = array(&item["content"]);
            let parts = if content.is_empty() {
                array(&item["summary"])
            } else {
                content
            };
            for part in parts {
                push(&mut piece.reasoning, &part["text"]);
            }
        }
        Some("function_call" | "mcp_call" | "custom_tool_call") => {
            push(&mut piece.tool, &item["name"]);
            push(&mut piece.tool, &item["arguments"]);
            push(&mut piece.tool, &item["input"]);
        }
        _ => {}
    }
    refused
}

/// Adds a string that is not empty.
fn push(text: &mut Option<String>, value: &Value) {
    if let Some(more) = value.as_str().filter(|more| !more.is_empty()) {
        text.get_or_insert_default().push_str(more);
    }
}

/// The name of a tool call that begins.
fn call_name(item: &mut Value) -> Option<String> {
    let call = item.get("type").and_then(Value::as_str) == Some("function_call");
    call.then(|| take_text(item, "name")).flatten()
}

/// Keeps a tool call, unless it is known.
fn remember_call(item: &Value, reply: &mut Reply) {
    let text = |name: &str| item[name].as_str().unwrap_or("").to_owned();
    let id = text("call_id");
    let known = reply.tool_calls.iter().any(|call| call.id == id);
    if item["type"] != "function_call" || known {
        return;
    }
    let index = reply.tool_calls.len() as u64;
    let call = reply.tool_call(index);
    call.id = id;
    call.name = text("name");
    call.arguments = text("arguments");
}
