//! JSON Lines, one entry a line.
//!
//! In: a file, and how a line of its format is read. Out: a corpus, or every bad line with its number. Never: drops a field without a
//! word, or stops at the first bad line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use super::length;
use super::seed::{child_seed, numbered};
use super::synthetic::{conversation_id, pick_model};
use super::{ContextMode, Conversation, Corpus, DatasetError, Turn};
use crate::config::Plan;

/// Bad lines told of before the rest is only counted.
pub(super) const BAD_LINES_MAX: usize = 20;

/// Unknown fields told of.
const UNKNOWN_MAX: usize = 5;

/// First bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// One line.
#[derive(Default)]
pub(super) struct Entry {
    /// At least one.
    pub(super) turns: Vec<Turn>,
    /// Lines with the same one are one conversation.
    pub(super) session: Option<String>,
    pub(super) context: ContextMode,
    pub(super) system: Option<String>,
    /// Fields that are not part of the format.
    pub(super) unknown: Vec<String>,
}

/// Reads the file at `path` with the `parse` of its format.
pub(super) fn read(
    plan: &Plan,
    path: &Path,
    seed: u64,
    parse: impl FnOnce(&[u8], &Path, u64) -> Result<(Corpus, Vec<String>), DatasetError>,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let (mut corpus, mut notes) = parse(&bytes_of(path)?, path, seed)?;
    notes.extend(complete(plan, path, &mut corpus, seed));
    Ok((corpus, notes))
}

/// The bytes of the file at `path`.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, DatasetError> {
    std::fs::read(path).map_err(|source| DatasetError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Gives turns what the plan says and the file does not: a model, an output limit, a system message. The notes are of timestamps that are
/// not followed.
pub(super) fn complete(plan: &Plan, path: &Path, corpus: &mut Corpus, seed: u64) -> Option<String> {
    let mut models = numbered(child_seed(seed, "composer.turn.model_selection"), 0);
    let mut limits = numbered(child_seed(seed, "composer.turn.max_tokens"), 0);
    let turns = corpus
        .conversations
        .iter_mut()
        .flat_map(|conversation| &mut conversation.turns);
    let mut timed = 0;
    for (turn, overall) in turns.zip(0..) {
        timed += usize::from(turn.timestamp_ms.is_some());
        turn.model = pick_model(plan, overall, &mut models);
        if turn.max_tokens.is_none() {
            let limit = plan.dataset.output_tokens;
            turn.max_tokens = limit.map(|limit| length::draw_output(limit, &mut limits));
        }
    }
    if let Some(system) = &plan.dataset.system_prompt {
        for conversation in &mut corpus.conversations {
            conversation.system = Some(match conversation.system.take() {
                Some(own) => format!("{system}\n\n{own}"),
                None => system.clone(),
            });
        }
    }
    (timed > 0 && plan.dataset.fixed_schedule.is_none()).then(|| {
        format!(
            "{}: {timed} turns have a timestamp; it is not used, requests follow the load options; --fixed-schedule follows it",
            path.display()
        )
    })
}

/// Reads lines. `path` is for messages only, `known` says what may stand in a line. Turns have no model yet.
pub(super) fn parse(
    bytes: &[u8],
    path: &Path,
    seed: u64,
    known: &str,
    mut entry: impl FnMut(Map<String, Value>, u64) -> Result<Entry, String>,
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
        match object(line).and_then(|fields| entry(fields, number)) {
            Ok(entry) => reading.add(entry, number),
            Err(reason) => reading.refuse(&format!("{}:{number}: {reason}", path.display())),
        }
    }
    reading.finish(path, known)
}

/// The fields of a line; those that are null are as good as absent.
fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err("not a JSON object; give one such as {\"text\": \"Hello\"}".to_owned());
    };
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// Takes the field `type` out, which may only say `kind`.
pub(super) fn check_type(fields: &mut Map<String, Value>, kind: &str) -> Result<(), String> {
    match fields.remove("type") {
        Some(other) if other != kind => Err(format!("field type: {other} is not \"{kind}\"")),
        _ => Ok(()),
    }
}

/// Takes `timestamp` and `delay` out.
pub(super) fn timing(
    fields: &mut Map<String, Value>,
) -> Result<(Option<f64>, Option<f64>), String> {
    Ok((
        milliseconds(fields, "timestamp")?,
        milliseconds(fields, "delay")?,
    ))
}

/// Takes `extra` out.
pub(super) fn extra(fields: &mut Map<String, Value>) -> Result<Map<String, Value>, String> {
    match fields.remove("extra") {
        None => Ok(Map::new()),
        Some(Value::Object(extra)) => Ok(extra),
        Some(other) => Err(format!("field extra: {} is not an object", shown(&other))),
    }
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
    /// Fields that the format does not have, with the first line of each.
    unknown: BTreeMap<String, u64>,
}

impl Reading {
    fn add(&mut self, mut entry: Entry, number: u64) {
        for turn in &mut entry.turns {
            turn.line = number;
        }
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
            self.conversations[index].turns.extend(entry.turns);
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
            turns: entry.turns,
            context: entry.context,
            system: entry.system,
            ..Conversation::default()
        });
    }

    fn refuse(&mut self, message: &str) {
        self.bad_count += 1;
        if self.bad.len() < BAD_LINES_MAX {
            self.bad.push(message.to_owned());
        }
    }

    fn finish(mut self, path: &Path, known: &str) -> Result<(Corpus, Vec<String>), DatasetError> {
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
        for (name, line) in &self.unknown {
            notes.push(format!(
                "{shown}:{line}: field {name} is not part of this format and is not used; {known}"
            ));
        }
        let conversations = self.conversations;
        Ok((Corpus { conversations }, notes))
    }
}

pub(super) fn text_field(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(other) => Err(format!(
            "field {name}: {} is not a string of at least one character",
            shown(&other)
        )),
    }
}

pub(super) fn output_length(fields: &mut Map<String, Value>) -> Result<Option<u32>, String> {
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

pub(super) fn milliseconds(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<f64>, String> {
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
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        return text;
    }
    let head: String = text.chars().take(37).collect();
    format!("{head}...")
}
