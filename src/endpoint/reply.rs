//! What a finished turn said.
//!
//! In: reply objects in order. Out: what the next turn's history is made from. Never: counts tokens.

use std::sync::Arc;

use serde_json::Value;

use super::{Chunks, Dialect, Parsed, calls};
use crate::config::Ending;

/// What a finished turn said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Content.
    pub text: String,
    /// Reasoning; it stands in the history only when there is no content.
    pub reasoning: String,
    /// Tool calls, fragments merged.
    pub tool_calls: Vec<ToolCall>,
    /// What the server calls the reply, where a later request may name it.
    pub id: String,
    /// The server says that it keeps the reply.
    pub stored: bool,
    /// The server's own items, where an API takes them back as they came.
    pub items: Vec<Value>,
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
    /// What stands in the history: the text, or the reasoning when there is no text.
    #[must_use]
    pub fn said(&self) -> &str {
        if self.text.is_empty() {
            &self.reasoning
        } else {
            &self.text
        }
    }

    /// The tool call with this index, made if there is none.
    pub(super) fn tool_call(&mut self, index: u64) -> &mut ToolCall {
        calls::at(&mut self.tool_calls, index)
    }
}

/// Puts a reply together, one object at a time.
#[derive(Debug)]
pub struct ReplyBuilder {
    dialect: Arc<dyn Dialect>,
    chunks: Chunks,
    reply: Reply,
    failed: bool,
    complete: bool,
    reasoned: bool,
}

impl ReplyBuilder {
    /// An empty one.
    pub(super) fn new(dialect: &Arc<dyn Dialect>, ending: Ending) -> ReplyBuilder {
        ReplyBuilder {
            dialect: Arc::clone(dialect),
            chunks: Chunks::new(Arc::clone(dialect), ending),
            reply: Reply::default(),
            failed: false,
            complete: false,
            reasoned: false,
        }
    }

    /// Adds one reply object.
    pub fn push(&mut self, data: &[u8]) {
        if let Parsed::Piece(piece) = self.chunks.parse(data) {
            self.failed |= piece.error.is_some();
            self.complete |= piece.complete;
            self.reasoned |= piece.finish_reason.is_some();
            self.reply
                .text
                .push_str(piece.text.as_deref().unwrap_or(""));
            self.reply
                .reasoning
                .push_str(piece.reasoning.as_deref().unwrap_or(""));
        }
        // A first fragment of a tool call may carry no more than an id, and is no piece then.
        self.dialect.remember(data, &mut self.reply);
    }

    /// The event that ends a whole reply has been there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The server gave a reason for the reply's end.
    #[must_use]
    pub fn has_reason(&self) -> bool {
        self.reasoned
    }

    /// The reply; `None` when the peer reported an error or said nothing.
    #[must_use]
    pub fn finish(self) -> Option<Reply> {
        let reply = &self.reply;
        let silent = reply.said().is_empty() && reply.tool_calls.is_empty();
        (!self.failed && !silent).then_some(self.reply)
    }
}
