//! Chat messages and tools in the words of other dialects.
//!
//! In: messages and tools as a dataset has them, mostly in chat's form. Out: the same for `responses` and `messages`. Never: a loss
//! of what it does not know; that is passed on as it is.

use serde_json::{Value, json};

use super::input::array;
use super::parse::arguments;
use super::parts::{self, Spelling};

/// Adds a chat message to the items of a `responses` body. Tool calls and their results are items of their own.
pub(super) fn response_items(message: &Value, items: &mut Vec<Value>) {
    if message.get("type").is_some() {
        // An item of this API already.
        items.push(message.clone());
        return;
    }
    let role = message["role"].as_str().unwrap_or("user");
    if role == "tool" {
        items.push(
            json!({"type": "function_call_output", "call_id": message["tool_call_id"],
            "output": flat(&message["content"])}),
        );
        return;
    }
    let content = match &message["content"] {
        Value::Array(chat) => Some(respelt(chat, role, Spelling::Responses)),
        Value::Null => None,
        other => Some(other.clone()),
    };
    if let Some(content) = content {
        items.push(parts::message(role, content));
    }
    for call in array(&message["tool_calls"]) {
        let function = &call["function"];
        items.push(
            json!({"type": "function_call", "call_id": call["id"], "name": function["name"],
            "arguments": arguments(function)}),
        );
    }
}

/// Adds a chat message to those of a `messages` body, or to its `system`.
pub(super) fn message(message: &Value, messages: &mut Vec<Value>, system: &mut Vec<String>) {
    let role = message["role"].as_str().unwrap_or("user");
    if role == "system" || role == "developer" {
        system.push(flat(&message["content"]));
        return;
    }
    if role == "tool" {
        let result = json!({"type": "tool_result", "tool_use_id": message["tool_call_id"],
            "content": flat(&message["content"])});
        // Results of one message's calls stand in one message.
        let last = messages.last_mut().and_then(|last| last.get_mut("content"));
        match last.and_then(Value::as_array_mut) {
            Some(blocks) if blocks.first().is_some_and(|b| b["type"] == "tool_result") => {
                blocks.push(result);
            }
            _ => messages.push(json!({"role": "user", "content": [result]})),
        }
        return;
    }
    let calls = array(&message["tool_calls"]);
    let content = match &message["content"] {
        Value::Array(chat) => respelt(chat, role, Spelling::Messages),
        Value::String(text) if !calls.is_empty() && !text.is_empty() => {
            json!([{"type": "text", "text": text}])
        }
        other => other.clone(),
    };
    if calls.is_empty() {
        messages.push(json!({"role": role, "content": content}));
        return;
    }
    let mut blocks = match content {
        Value::Array(blocks) => blocks,
        _ => Vec::new(),
    };
    blocks.extend(calls.iter().map(|call| {
        let function = &call["function"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        tool_use(
            &text(&call["id"]),
            &text(&function["name"]),
            &arguments(function),
        )
    }));
    messages.push(json!({"role": role, "content": blocks}));
}

/// A tool call as a block of `messages`; arguments that are no JSON object become an empty one, since the API takes nothing else.
pub(super) fn tool_use(id: &str, name: &str, arguments: &str) -> Value {
    let input = serde_json::from_str::<Value>(arguments);
    let input = input.ok().filter(Value::is_object);
    json!({"type": "tool_use", "id": id, "name": name, "input": input.unwrap_or_else(|| json!({}))})
}

/// Tools for `responses`: what chat has in `function` stands beside the type.
pub(super) fn response_tools(tools: &Value) -> Value {
    let tool = |tool: &Value| match tool.get("function").and_then(Value::as_object) {
        Some(function) => {
            let mut flat = serde_json::Map::new();
            flat.insert("type".to_owned(), Value::from("function"));
            flat.extend(function.clone());
            Value::Object(flat)
        }
        None => tool.clone(),
    };
    tools.as_array().map_or_else(
        || tools.clone(),
        |tools| tools.iter().map(tool).collect::<Value>(),
    )
}

/// Tools for `messages`: `parameters` are called `input_schema`.
pub(super) fn message_tools(tools: &Value) -> Value {
    let tool = |tool: &Value| match tool.get("function").and_then(Value::as_object) {
        Some(function) => function
            .iter()
            .filter(|(name, _)| *name != "strict")
            .map(|(name, value)| match name.as_str() {
                "parameters" => ("input_schema".to_owned(), value.clone()),
                _ => (name.clone(), value.clone()),
            })
            .collect(),
        None => tool.clone(),
    };
    tools.as_array().map_or_else(
        || tools.clone(),
        |tools| tools.iter().map(tool).collect::<Value>(),
    )
}

/// The text of content that is one, or a list of parts.
fn flat(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Chat's parts in another spelling.
fn respelt(chat: &[Value], role: &str, spelling: Spelling) -> Value {
    let part = |part: &Value| parts::respelt(part, role, spelling);
    chat.iter().map(part).collect()
}
