//! The `multi_turn` format: JSON Lines, each line one conversation.
//!
//! In: a file of `{"session_id", "turns": [...]}`, each turn as in `single_turn`. Out: a corpus whose history holds the server's own
//! replies. Never: stops at the first bad line.

use std::path::Path;

use serde_json::{Map, Value};

use super::lines::{self, Entry, shown, text_field};
use super::{ContextMode, Corpus, DatasetError, single_turn};

/// What may stand in a line.
pub(super) const KNOWN: &str = "known are session_id and turns, and in a turn text, texts, role, output_length, delay, timestamp and extra";

/// Reads lines. `path` is for messages only. Turns have no model yet.
pub(super) fn parse(
    bytes: &[u8],
    path: &Path,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    lines::parse(bytes, path, seed, KNOWN, entry)
}

pub(super) fn entry(mut fields: Map<String, Value>) -> Result<Entry, String> {
    lines::check_type(&mut fields, "multi_turn")?;
    let session = text_field(&mut fields, "session_id")?;
    let list = match fields.remove("turns") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(other) => {
            return Err(format!(
                "field turns: {} is not a list of at least one turn",
                shown(&other)
            ));
        }
        None => return Err("field turns: missing; give a list of turns".to_owned()),
    };
    let mut unknown: Vec<String> = fields.into_iter().map(|(name, _)| name).collect();
    let mut turns = Vec::with_capacity(list.len());
    for (value, number) in list.into_iter().zip(1_u32..) {
        let Value::Object(mut fields) = value else {
            let value = shown(&value);
            return Err(format!(
                "field turns: turn {number}: {value} is not an object"
            ));
        };
        fields.retain(|_, value| !value.is_null());
        let read = lines::check_type(&mut fields, "single_turn");
        let read = read.and_then(|()| single_turn::turn(&mut fields));
        turns.push(read.map_err(|reason| format!("turn {number}: {reason}"))?);
        unknown.extend(fields.into_iter().map(|(name, _)| format!("turns.{name}")));
    }
    // A leading system turn is the conversation's system message, not a request.
    let leads = turns.len() > 1 && turns[0].role == "system";
    let system = leads.then(|| turns.remove(0).texts.join("\n"));
    Ok(Entry {
        turns,
        session,
        context: ContextMode::LiveReplies,
        system,
        unknown,
    })
}
