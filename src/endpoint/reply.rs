//! What a finished turn said.
//!
//! In: reply objects in order. Out: the assistant message for the next turn's history. Never: counts tokens.

use serde_json::{Value, json};

use super::parse::{first_choice, json, message_of};
use super::{Chunks, Parsed, calls};
use crate::config::EndpointKind;

/// What a finished turn said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Content.
    pub text: String,
    /// Reasoning; it stands in the history only when there is no content.
    pub reasoning: String,
    /// Tool calls, fragments merged.
    pub tool_calls: Vec<ToolCall>,
}

/// One tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Index that joins its fragments.
    pub index: u64,
    /// Its id, empty when the server gave none.
    pub id: String,
    /// Function name.
    pub name: String,
    /// Arguments, as the server wrote them.
    pub arguments: String,
}

impl Reply {
    /// The assistant message; `None` when nothing was said.
    #[must_use]
    pub fn message(&self) -> Option<Value> {
        let text = if self.text.is_empty() {
            &self.reasoning
        } else {
            &self.text
        };
        if self.tool_calls.is_empty() {
            return (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
        }
        let calls: Vec<Value> = self
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
            Value::from(text.as_str())
        };
        Some(json!({"role": "assistant", "content": content, "tool_calls": calls}))
    }
}

/// Puts a reply together, one object at a time.
#[derive(Debug)]
pub struct ReplyBuilder {
    kind: EndpointKind,
    chunks: Chunks,
    reply: Reply,
    failed: bool,
}

impl ReplyBuilder {
    /// An empty one.
    #[must_use]
    pub fn new(kind: EndpointKind) -> Self {
        ReplyBuilder {
            kind,
            chunks: Chunks::new(kind),
            reply: Reply::default(),
            failed: false,
        }
    }

    /// Adds one reply object.
    pub fn push(&mut self, data: &[u8]) {
        // A first fragment may carry no more than an id.
        self.push_tool_calls(data);
        let Parsed::Piece(piece) = self.chunks.parse(data) else {
            return;
        };
        self.failed |= piece.error.is_some();
        self.reply
            .text
            .push_str(piece.text.as_deref().unwrap_or(""));
        self.reply
            .reasoning
            .push_str(piece.reasoning.as_deref().unwrap_or(""));
    }

    /// The reply; `None` when the peer reported an error or said nothing.
    #[must_use]
    pub fn finish(self) -> Option<Reply> {
        (!self.failed && self.reply != Reply::default()).then_some(self.reply)
    }

    fn push_tool_calls(&mut self, data: &[u8]) {
        let named = |name: &[u8]| memchr::memmem::find(data, name).is_some();
        if self.kind != EndpointKind::Chat || !(named(b"tool_calls") || named(b"function_call")) {
            return;
        }
        let Some(mut root) = json(data) else { return };
        if let Some(message) = first_choice(&mut root).and_then(message_of) {
            calls::take_in(&mut self.reply.tool_calls, message);
        }
    }
}
