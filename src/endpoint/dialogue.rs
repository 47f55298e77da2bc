//! Who says what in a body.
//!
//! In: a request body as it was sent. Out: messages and tools in the form of the chat API, as servers hand them to a chat template.
//! Never: a text that is in the body but not said.

use serde_json::{Map, Value, json};

/// What a chat template is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// Messages with role and content.
    pub messages: Vec<Value>,
    /// Tools, each with its `function`.
    pub tools: Option<Value>,
    /// Variables that the body hands to the template (`chat_template_kwargs`).
    pub variables: Map<String, Value>,
}

/// Messages and tools of `body`; `None` when it holds no messages, as a plain prompt or an embedding's input does not.
///
/// The shape decides, not the kind of endpoint: `messages` with an optional `system` beside them, or `input` items that have a
/// role with optional `instructions`.
#[must_use]
pub fn dialogue(body: &[u8]) -> Option<Spoken> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let (list, system) = match &body["messages"] {
        Value::Array(messages) => (messages, &body["system"]),
        _ => (body["input"].as_array()?, &body["instructions"]),
    };
    let said = |item: &&Value| item["role"].is_string();
    let mut messages: Vec<Value> = list.iter().filter(said).cloned().collect();
    if messages.is_empty() {
        return None;
    }
    messages.iter_mut().for_each(name_texts);
    if !system.is_null() {
        let mut first = json!({"role": "system", "content": system});
        name_texts(&mut first);
        messages.insert(0, first);
    }
    let tools = body["tools"].as_array().filter(|tools| !tools.is_empty());
    let tools = tools.map(|tools| tools.iter().map(tool).collect());
    let variables = body["chat_template_kwargs"].as_object();
    Some(Spoken {
        messages,
        tools,
        variables: variables.cloned().unwrap_or_default(),
    })
}

/// Text parts are called `text` in the chat API, and `input_text` or `output_text` elsewhere.
fn name_texts(message: &mut Value) {
    let parts = message.get_mut("content").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten() {
        if matches!(part["type"].as_str(), Some("input_text" | "output_text")) {
            part["type"] = Value::from("text");
        }
    }
}

/// A tool in the form of the chat API; other APIs have its fields one level higher, and `input_schema` for its parameters.
fn tool(tool: &Value) -> Value {
    if tool["function"].is_object() || !tool["name"].is_string() {
        return tool.clone();
    }
    let mut function = json!({"name": tool["name"]});
    for (name, field) in [
        ("description", "description"),
        ("parameters", "parameters"),
        ("parameters", "input_schema"),
    ] {
        if let Some(value) = tool.get(field) {
            function[name] = value.clone();
        }
    }
    json!({"type": "function", "function": function})
}
