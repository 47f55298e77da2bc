//! The `single_turn` format: JSON Lines, each line one request.
//!
//! In: a file. Out: a corpus; lines with the same `session_id` are one conversation, played in order, each complete in itself.
//! Never: drops a field without a word, or stops at the first bad line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use super::length;
use super::seed::{child_seed, numbered};
use super::synthetic::{conversation_id, pick_model};
use super::{ContextMode, Conversation, Corpus, DatasetError, Turn};
use crate::config::Plan;

/// Bad lines told of before the rest is only counted.
const BAD_LINES_MAX: usize = 20;

/// Unknown fields told of.
const UNKNOWN_MAX: usize = 5;

/// What may stand in a line.
const KNOWN: &str =
    "known are text, texts, role, session_id, output_length, delay, timestamp and extra";

/// First bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

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

/// Reads the file at `path`.
pub(super) fn read(
    plan: &Plan,
    path: &Path,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let bytes = std::fs::read(path).map_err(|source| DatasetError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let (mut corpus, notes) = parse(&bytes, path, seed)?;
    let mut models = numbered(child_seed(seed, "composer.turn.model_selection"), 0);
    let mut limits = numbered(child_seed(seed, "composer.turn.max_tokens"), 0);
    let turns = corpus
        .conversations
        .iter_mut()
        .flat_map(|conversation| &mut conversation.turns);
    for (turn, overall) in turns.zip(0..) {
        turn.model = pick_model(plan, overall, &mut models);
        if turn.max_tokens.is_none() {
            let limit = plan.dataset.output_tokens;
            turn.max_tokens = limit.map(|limit| length::draw_output(limit, &mut limits));
        }
    }
    if let Some(system) = &plan.dataset.system_prompt {
        for conversation in &mut corpus.conversations {
            conversation.system = Some(system.clone());
        }
    }
    Ok((corpus, notes))
}

/// Reads lines. `path` is for messages only. Turns have no model yet.
pub(crate) fn parse(
    bytes: &[u8],
    path: &Path,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    if bytes.starts_with(&GZIP) {
        return Err(DatasetError::Lines(vec![format!(
            "--input-file {}: compressed with gzip; give the file as gunzip leaves it",
            path.display()
        )]));
    }
    let mut reading = Reading {
        ids: child_seed(seed, "dataset.conversation.id"),
        ..Reading::default()
    };
    for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1_u64..) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match entry(line) {
            Ok(entry) => reading.add(entry, number),
            Err(reason) => reading.refuse(&format!("{}:{number}: {reason}", path.display())),
        }
    }
    reading.finish(path)
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    conversations: Vec<Conversation>,
    /// Index of each session's conversation.
    sessions: HashMap<String, usize>,
    /// Seed of the ids of lines without a session.
    ids: u64,
    /// The first messages, and how many there are.
    bad: Vec<String>,
    bad_count: usize,
    /// Lines with a timestamp.
    timed: usize,
    /// Fields that the format does not have, with the first line of each.
    unknown: BTreeMap<String, u64>,
}

impl Reading {
    fn add(&mut self, entry: Entry, number: u64) {
        self.timed += usize::from(entry.timed);
        for name in entry.unknown {
            if self.unknown.len() < UNKNOWN_MAX {
                self.unknown.entry(name).or_insert(number);
            }
        }
        let known = entry
            .session
            .as_ref()
            .and_then(|session| self.sessions.get(session));
        if let Some(&index) = known {
            self.conversations[index].turns.push(entry.turn);
            return;
        }
        let index = self.conversations.len();
        let id = match entry.session {
            Some(session) => {
                self.sessions.insert(session.clone(), index);
                session
            }
            None => conversation_id(&mut numbered(self.ids, index as u64)),
        };
        self.conversations.push(Conversation {
            id,
            turns: vec![entry.turn],
            context: ContextMode::SelfContained,
            ..Conversation::default()
        });
    }

    fn refuse(&mut self, message: &str) {
        self.bad_count += 1;
        if self.bad.len() < BAD_LINES_MAX {
            self.bad.push(message.to_owned());
        }
    }

    fn finish(mut self, path: &Path) -> Result<(Corpus, Vec<String>), DatasetError> {
        let shown = path.display();
        if self.bad_count > 0 {
            if self.bad_count > self.bad.len() {
                let more = self.bad_count - self.bad.len();
                self.bad.push(format!("{shown}: and {more} more bad lines"));
            }
            return Err(DatasetError::Lines(self.bad));
        }
        if self.conversations.is_empty() {
            return Err(DatasetError::Empty(path.to_owned()));
        }
        // A conversation's first turn has nothing to wait for.
        for conversation in &mut self.conversations {
            conversation.turns[0].delay_ms = 0.0;
        }
        let mut notes = Vec::new();
        if self.timed > 0 {
            notes.push(format!(
                "{shown}: {} lines have a timestamp; it is not used, requests follow the load options",
                self.timed
            ));
        }
        for (name, line) in &self.unknown {
            notes.push(format!(
                "{shown}:{line}: field {name} is not part of this format and is not used; {KNOWN}"
            ));
        }
        let conversations = self.conversations;
        Ok((Corpus { conversations }, notes))
    }
}

/// One line.
struct Entry {
    turn: Turn,
    session: Option<String>,
    timed: bool,
    /// Fields that are not part of the format.
    unknown: Vec<String>,
}

fn entry(line: &[u8]) -> Result<Entry, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err("not a JSON object; give one such as {\"text\": \"Hello\"}".to_owned());
    };
    fields.retain(|_, value| !value.is_null());
    if let Some(kind) = fields.remove("type")
        && kind != "single_turn"
    {
        return Err(format!("field type: {kind} is not \"single_turn\""));
    }
    if let Some(name) = MEDIA.iter().find(|name| fields.contains_key(**name)) {
        return Err(format!(
            "field {name}: images, audio and video cannot be sent yet; give text only"
        ));
    }
    let texts = texts(&mut fields)?;
    let role = text_field(&mut fields, "role")?.unwrap_or_else(|| "user".to_owned());
    let session = text_field(&mut fields, "session_id")?;
    let max_tokens = output_length(&mut fields)?;
    let timestamp = milliseconds(&mut fields, "timestamp")?;
    let delay = milliseconds(&mut fields, "delay")?;
    if timestamp.is_some() && delay.is_some() {
        return Err("fields timestamp and delay: give one of them, not both".to_owned());
    }
    let extra = match fields.remove("extra") {
        None => Map::new(),
        Some(Value::Object(extra)) => extra,
        Some(other) => return Err(format!("field extra: {} is not an object", shown(&other))),
    };
    Ok(Entry {
        turn: Turn {
            texts,
            role,
            model: String::new(),
            max_tokens,
            delay_ms: delay.unwrap_or(0.0),
            extra,
        },
        session,
        timed: timestamp.is_some(),
        unknown: fields.into_iter().map(|(name, _)| name).collect(),
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

fn text_field(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(other) => Err(format!(
            "field {name}: {} is not a string of at least one character",
            shown(&other)
        )),
    }
}

fn output_length(fields: &mut Map<String, Value>) -> Result<Option<u32>, String> {
    let Some(value) = fields.remove("output_length") else {
        return Ok(None);
    };
    let whole = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    match whole.filter(|tokens| *tokens > 0) {
        Some(tokens) => Ok(Some(tokens)),
        None => Err(format!(
            "field output_length: {} is not a whole number from 1 to {}",
            shown(&value),
            u32::MAX
        )),
    }
}

fn milliseconds(fields: &mut Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    let Some(value) = fields.remove(name) else {
        return Ok(None);
    };
    match value
        .as_f64()
        .filter(|number| number.is_finite() && *number >= 0.0)
    {
        Some(number) => Ok(Some(number)),
        None => Err(format!(
            "field {name}: {} is not a number of milliseconds from 0 up",
            shown(&value)
        )),
    }
}

/// The beginning of a value, for a message.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        return text;
    }
    let head: String = text.chars().take(37).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests;
