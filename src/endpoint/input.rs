//! What a body says to the model.
//!
//! In: a request body as it was sent. Out: the texts that count as input. Never: a chat template; see `dialogue`.

use serde_json::Value;

use crate::config::EndpointKind;

/// Input of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Texts, to be joined by one space and encoded without special tokens.
    pub texts: Vec<String>,
    /// Token ids that the body gives as numbers; they count as they are.
    pub token_ids: u64,
}

/// Collects the input of a body: every message of the history with its tool calls, then tool schemas; else the prompt. A body that
/// is no JSON has none.
#[must_use]
pub fn input(kind: EndpointKind, body: &[u8]) -> Input {
    let mut input = Input::default();
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return input;
    };
    match kind {
        EndpointKind::Chat => {
            for message in array(&body["messages"]) {
                input.message(message);
            }
            for tool in array(&body["tools"]) {
                input.tool(tool);
            }
        }
        EndpointKind::Completions => input.prompt(&body["prompt"]),
    }
    input
}

/// The texts of [`input`].
#[must_use]
pub fn input_texts(kind: EndpointKind, body: &[u8]) -> Vec<String> {
    input(kind, body).texts
}

impl Input {
    fn message(&mut self, message: &Value) {
        self.text(&message["content"]);
        for part in array(&message["content"]) {
            self.text(&part["text"]);
        }
        for call in array(&message["tool_calls"]) {
            self.text(&call["function"]["name"]);
            self.text(&call["function"]["arguments"]);
        }
    }

    fn tool(&mut self, tool: &Value) {
        let function = &tool["function"];
        self.text(&function["name"]);
        self.text(&function["description"]);
        if let parameters @ Value::Object(_) = &function["parameters"] {
            self.texts.push(parameters.to_string());
        }
    }

    fn prompt(&mut self, prompt: &Value) {
        self.text(prompt);
        for item in array(prompt) {
            match item {
                Value::Number(_) => self.token_ids += 1,
                Value::Array(ids) => self.token_ids += ids.len() as u64,
                other => self.text(other),
            }
        }
    }

    fn text(&mut self, value: &Value) {
        if let Value::String(text) = value {
            self.texts.push(text.clone());
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
