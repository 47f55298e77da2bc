//! What a request says of its conversation's past.
//!
//! In: a conversation, a turn of it, and what the server said to earlier ones. Out: the messages in order, as references; the rules that every
//! dialect with messages shares. Never: a dialect's field name, or a copy of a text.

use serde_json::{Value, json};

use super::Reply;
use crate::dataset::{ContextMode, Conversation, Turn};

/// Between two system messages that become one, as AIPerf joins them.
const SYSTEM_SEPARATOR: &str = "\n\n";

/// One stretch of a request's messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// A message as the dataset has it, in the shape of a chat message.
    Given(&'a Value),
    /// A turn that the dialect puts into a message of its own.
    Turn(&'a Turn),
    /// What the server said in this run.
    Said(&'a Reply),
}

/// The parts of the request for `turn`, in order. `replies` holds what each earlier turn was answered with; `None`, or a missing entry, is
/// a turn that failed or said nothing. It matters only to [`ContextMode::LiveReplies`]. `after` is the number of turns that the server has
/// kept, and that are left out.
///
/// Panics when `turn` is not a turn of `conversation`.
pub(super) fn parts<'a>(
    conversation: &'a Conversation,
    turn: usize,
    replies: &'a [Option<Reply>],
    after: usize,
) -> Vec<Part<'a>> {
    let first = match conversation.context {
        ContextMode::SelfContained => turn,
        ContextMode::LiveReplies | ContextMode::RecordedReplies => after,
    };
    let live = conversation.context == ContextMode::LiveReplies;
    let mut parts = Vec::new();
    for (index, this) in conversation.turns[..=turn].iter().enumerate().skip(first) {
        parts.extend(this.recorded.iter().map(Part::Given));
        if this.messages.is_empty() {
            parts.push(Part::Turn(this));
        } else {
            parts.extend(this.messages.iter().map(Part::Given));
        }
        if live && index < turn {
            let said = replies.get(index).and_then(Option::as_ref);
            parts.extend(said.map(Part::Said));
        }
    }
    parts
}

/// The tools that the request for `turn` offers: its own, or else those of the latest turn in its history that has some.
pub(super) fn tools(conversation: &Conversation, turn: usize) -> Option<&Value> {
    let first = match conversation.context {
        ContextMode::SelfContained => turn,
        ContextMode::LiveReplies | ContextMode::RecordedReplies => 0,
    };
    let turns = conversation.turns[first..=turn].iter();
    turns.rev().find_map(|turn| turn.tools.as_ref())
}

/// Puts the conversation's own messages in front. A system message is joined with one that leads already, since many servers mishandle two.
pub(super) fn lead(messages: &mut Vec<Value>, conversation: &Conversation) {
    let mut front = Vec::new();
    if let Some(system) = &conversation.system {
        let leads = messages
            .first()
            .is_some_and(|first| first["role"] == "system");
        if leads {
            let mut merged = messages.remove(0);
            merged["content"] = joined(system, merged["content"].take());
            front.push(merged);
        } else {
            front.push(json!({"role": "system", "content": system}));
        }
    }
    if let Some(context) = &conversation.user_context {
        front.push(json!({"role": "user", "content": context}));
    }
    messages.splice(0..0, front);
}

/// `system` in front of the content of another system message, whose shape stays.
fn joined(system: &str, content: Value) -> Value {
    match content {
        Value::String(own) if !own.is_empty() => {
            Value::from(format!("{system}{SYSTEM_SEPARATOR}{own}"))
        }
        Value::Array(mut parts) => {
            parts.insert(0, json!({"type": "text", "text": system}));
            Value::Array(parts)
        }
        _ => Value::from(system),
    }
}

#[cfg(test)]
mod tests;
