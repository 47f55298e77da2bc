//! The `single_turn` format: JSON Lines, each line one request.
//!
//! In: a file. Out: a corpus; lines with the same `session_id` are one conversation, played in order, each complete in itself.
//! Never: drops a field without a word, or stops at the first bad line.

use std::path::Path;

use serde_json::{Map, Value};

use super::lines::{self, Entry, shown, text_field};
use super::{ContextMode, Corpus, DatasetError, Turn};

/// What may stand in a line.
pub(super) const KNOWN: &str =
    "known are text, texts, role, session_id, output_length, delay, timestamp and extra";

/// Fields that this format has for other kinds of input.
const MEDIA: [&str; 7] = [
    "image",
    "images",
    "image_uuids",
    "audio",
    "audios",
    "video",
    "videos",
];

/// Reads lines. `path` is for messages only. Turns have no model yet.
pub(crate) fn parse(
    bytes: &[u8],
    path: &Path,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    lines::parse(bytes, path, seed, KNOWN, entry)
}

pub(super) fn entry(mut fields: Map<String, Value>) -> Result<Entry, String> {
    lines::check_type(&mut fields, "single_turn")?;
    let session = text_field(&mut fields, "session_id")?;
    let turn = turn(&mut fields)?;
    Ok(Entry {
        turns: vec![turn],
        session,
        context: ContextMode::SelfContained,
        unknown: fields.into_iter().map(|(name, _)| name).collect(),
        ..Entry::default()
    })
}

/// Takes one request out of `fields`.
pub(super) fn turn(fields: &mut Map<String, Value>) -> Result<Turn, String> {
    if let Some(name) = MEDIA.iter().find(|name| fields.contains_key(**name)) {
        return Err(format!(
            "field {name}: images, audio and video cannot be sent yet; give text only"
        ));
    }
    let texts = texts(fields)?;
    let role = text_field(fields, "role")?.unwrap_or_else(|| "user".to_owned());
    let max_tokens = lines::output_length(fields)?;
    let (timestamp_ms, delay) = lines::timing(fields)?;
    if timestamp_ms.is_some() && delay.is_some() {
        return Err("fields timestamp and delay: give one of them, not both".to_owned());
    }
    Ok(Turn {
        texts,
        role,
        max_tokens,
        delay_ms: delay.unwrap_or(0.0),
        timestamp_ms,
        extra: lines::extra(fields)?,
        ..Turn::default()
    })
}

/// `text`, or `texts`: strings, or objects with a name and contents.
fn texts(fields: &mut Map<String, Value>) -> Result<Vec<String>, String> {
    let texts = match (fields.remove("text"), fields.remove("texts")) {
        (Some(_), Some(_)) => {
            return Err("fields text and texts: give one of them, not both".to_owned());
        }
        (None, None) => return Err("field text: missing; give text or texts".to_owned()),
        (Some(Value::String(text)), None) => vec![text],
        (Some(other), None) => {
            return Err(format!("field text: {} is not a string", shown(&other)));
        }
        (None, Some(Value::Array(list))) => {
            let mut texts = Vec::with_capacity(list.len());
            for item in list {
                texts_of_item(item, &mut texts)?;
            }
            texts
        }
        (None, Some(other)) => return Err(format!("field texts: {} is not a list", shown(&other))),
    };
    if texts.iter().all(String::is_empty) {
        return Err("field text: empty; give at least one character".to_owned());
    }
    Ok(texts)
}

fn texts_of_item(item: Value, texts: &mut Vec<String>) -> Result<(), String> {
    match item {
        Value::String(text) => texts.push(text),
        Value::Object(mut named) => {
            let Some(Value::Array(contents)) = named.remove("contents") else {
                return Err("field texts: an item has no list called contents".to_owned());
            };
            for content in contents {
                let Value::String(text) = content else {
                    return Err(format!(
                        "field texts: {} in contents is not a string",
                        shown(&content)
                    ));
                };
                texts.push(text);
            }
        }
        other => {
            return Err(format!(
                "field texts: {} is neither a string nor an object",
                shown(&other)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
