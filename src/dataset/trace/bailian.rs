//! The `bailian_trace` format: JSON Lines, each line one request of Alibaba's Qwen traces.
//!
//! In: lines with `chat_id` and `parent_chat_id`. Out: turns in sessions of those that go back to the same request. Never: time in seconds beyond
//! this file.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Asked, Trace, hash_ids, input_length};
use crate::dataset::lines::{self, Entry, shown};
use crate::dataset::{ContextMode, Conversation, Turn};

/// What may stand in a line.
pub(super) const KNOWN: &str = "known are chat_id, parent_chat_id, timestamp, input_length, output_length, type, turn and hash_ids";

/// The parent of a request that follows no other.
const NO_PARENT: i64 = -1;

/// Whom a request follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Link {
    line: u64,
    chat: i64,
    parent: i64,
    turn: i64,
}

impl Trace {
    /// The turn that the line says, a session of its own until [`Trace::chain`] joins them, and the prompt to be made for it.
    pub(super) fn bailian(
        &mut self,
        mut fields: Map<String, Value>,
        line: u64,
    ) -> Result<Entry, String> {
        let link = Link {
            line,
            chat: whole(&mut fields, "chat_id", None)?,
            parent: whole(&mut fields, "parent_chat_id", Some(NO_PARENT))?,
            turn: whole(&mut fields, "turn", Some(1))?,
        };
        // The kind of request: text, search, image or file. The trace has only its length.
        fields.remove("type");
        let tokens = input_length(&mut fields)?
            .ok_or("field input_length: missing; give the prompt's tokens")?;
        let ids = hash_ids(&mut fields)?.unwrap_or_default();
        let turn = Turn {
            role: "user".to_owned(),
            timestamp_ms: Some(seconds(&mut fields)? * 1e3),
            max_tokens: Some(
                lines::output_length(&mut fields)?
                    .ok_or("field output_length: missing; give the output's tokens")?,
            ),
            ..Turn::default()
        };
        self.asked.push(Asked { line, tokens, ids });
        self.links.push(link);
        Ok(Entry {
            turns: vec![turn],
            context: ContextMode::LiveReplies,
            unknown: fields.into_iter().map(|(name, _)| name).collect(),
            ..Entry::default()
        })
    }

    /// Joins requests that go back to the same one to a session that is named after it, in the order of their turns.
    pub(super) fn chain(&mut self, conversations: &mut Vec<Conversation>) {
        if self.links.is_empty() {
            return;
        }
        let mut kept: HashMap<u64, Conversation> = std::mem::take(conversations)
            .into_iter()
            .map(|conversation| (conversation.turns[0].line, conversation))
            .collect();
        let links = std::mem::take(&mut self.links).into_iter();
        let mut links: Vec<Link> = links.filter(|link| kept.contains_key(&link.line)).collect();
        let parents: HashMap<i64, i64> =
            links.iter().map(|link| (link.chat, link.parent)).collect();
        // Sessions in the order in which their first line stands, turns in their own.
        let mut order: HashMap<i64, u64> = HashMap::new();
        let mut roots = HashMap::new();
        for link in &links {
            let root = root(&parents, &mut roots, link.chat);
            order.entry(root).or_insert(link.line);
        }
        let of = |link: &Link| roots.get(&link.chat).copied().unwrap_or(link.chat);
        links.sort_by_key(|link| (order.get(&of(link)).copied(), link.turn, link.line));
        let mut before = None;
        for link in links {
            let Some(mut conversation) = kept.remove(&link.line) else {
                continue;
            };
            let root = of(&link);
            match conversations.last_mut() {
                Some(session) if before == Some(root) => {
                    session.turns.append(&mut conversation.turns);
                }
                _ => {
                    conversation.id = root.to_string();
                    conversations.push(conversation);
                }
            }
            before = Some(root);
        }
    }
}

fn whole(fields: &mut Map<String, Value>, name: &str, absent: Option<i64>) -> Result<i64, String> {
    let value = fields.remove(name);
    let number = value.as_ref().map_or(absent, Value::as_i64);
    number.ok_or_else(|| match value {
        Some(value) => format!("field {name}: {} is not a whole number", shown(&value)),
        None => format!("field {name}: missing; give a whole number"),
    })
}

fn seconds(fields: &mut Map<String, Value>) -> Result<f64, String> {
    let Some(value) = fields.remove("timestamp") else {
        return Err("field timestamp: missing; give seconds".to_owned());
    };
    value
        .as_f64()
        .filter(|number| *number >= 0.0)
        .ok_or_else(|| {
            format!(
                "field timestamp: {} is not a number of seconds from 0 up",
                shown(&value)
            )
        })
}

/// The first request of the chain that `chat` belongs to: one without a parent, or whose parent the trace does not have. Requests that
/// follow one another in a ring have the least of them. `known` is filled as far as it was walked.
fn root(parents: &HashMap<i64, i64>, known: &mut HashMap<i64, i64>, chat: i64) -> i64 {
    let mut path = vec![chat];
    let mut at = chat;
    let found = loop {
        if let Some(&root) = known.get(&at) {
            break root;
        }
        match parents.get(&at) {
            Some(&parent) if parent != NO_PARENT && parents.contains_key(&parent) => {
                if let Some(from) = path.iter().position(|&seen| seen == parent) {
                    break path[from..].iter().copied().min().unwrap_or(parent);
                }
                path.push(parent);
                at = parent;
            }
            _ => break at,
        }
    };
    for chat in path {
        known.insert(chat, found);
    }
    found
}
