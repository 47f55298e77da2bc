//! What a body says to the model.
//!
//! In: parts of a request body as it was sent. Out: the texts that count as input. Never: a chat template; see `dialogue`.

use serde_json::Value;

/// Input of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Texts, to be joined by one space and encoded without special tokens.
    pub texts: Vec<String>,
    /// Token ids that the body gives as numbers; they count as they are.
    pub token_ids: u64,
}

impl Input {
    /// A message: its content, in one piece or in parts, and its tool calls.
    pub(super) fn message(&mut self, message: &Value) {
        self.text(&message["content"]);
        for part in array(&message["content"]) {
            self.text(&part["text"]);
        }
        for call in array(&message["tool_calls"]) {
            self.text(&call["function"]["name"]);
            self.text(&call["function"]["arguments"]);
        }
    }

    /// A tool that is offered; its schema has the name `schema`.
    pub(super) fn tool(&mut self, function: &Value, schema: &str) {
        self.text(&function["name"]);
        self.text(&function["description"]);
        self.schema(&function[schema]);
    }

    /// A value that is an object, as JSON.
    pub(super) fn schema(&mut self, value: &Value) {
        if value.is_object() {
            self.texts.push(value.to_string());
        }
    }

    /// A prompt: a text or token ids, or a list of those.
    pub(super) fn prompt(&mut self, prompt: &Value) {
        self.text(prompt);
        for item in array(prompt) {
            match item {
                Value::Number(_) => self.token_ids += 1,
                Value::Array(ids) => self.token_ids += ids.len() as u64,
                other => self.text(other),
            }
        }
    }

    /// A value that is a string.
    pub(super) fn text(&mut self, value: &Value) {
        if let Value::String(text) = value {
            self.texts.push(text.clone());
        }
    }
}

/// The elements of a list; none of what is no list.
pub(super) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
