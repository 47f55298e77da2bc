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
const BAD_LINES_MAX: usize = 20;

/// Unknown fields told of.
const UNKNOWN_MAX: usize = 5;

/// First bytes of a compressed file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];

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
    let completion = Completion::new(plan, seed);
    let turns = corpus
        .conversations
        .iter_mut()
        .flat_map(|conversation| &mut conversation.turns);
    let mut timed = 0;
    for (turn, overall) in turns.zip(0..) {
        timed += usize::from(turn.timestamp_ms.is_some());
        completion.turn(turn, overall);
    }
    for conversation in &mut corpus.conversations {
        completion.system(conversation);
    }
    (timed > 0 && plan.dataset.fixed_schedule.is_none()).then(|| {
        format!(
            "{}: {timed} turns have a timestamp; it is not used, requests follow the load options; --fixed-schedule follows it",
            path.display()
        )
    })
}

/// What the plan says and a file does not. What is drawn for a turn hangs on the turn's number, not on what was drawn before, so that
/// turns can be completed in any order.
pub(super) struct Completion<'a> {
    plan: &'a Plan,
    models: u64,
    limits: u64,
}

impl<'a> Completion<'a> {
    pub(super) fn new(plan: &'a Plan, seed: u64) -> Completion<'a> {
        Completion {
            plan,
            models: child_seed(seed, "composer.turn.model_selection"),
            limits: child_seed(seed, "composer.turn.max_tokens"),
        }
    }

    /// Gives a model and an output limit to `turn`, which is number `overall` of the file.
    pub(super) fn turn(&self, turn: &mut Turn, overall: u64) {
        turn.model = pick_model(self.plan, overall, &mut numbered(self.models, overall));
        if turn.max_tokens.is_none() {
            let limit = self.plan.dataset.output_tokens;
            let mut generator = numbered(self.limits, overall);
            turn.max_tokens = limit.map(|limit| length::draw_output(limit, &mut generator));
        }
    }

    /// Puts the plan's system message before the file's own.
    pub(super) fn system(&self, conversation: &mut Conversation) {
        if let Some(system) = &self.plan.dataset.system_prompt {
            conversation.system = Some(match conversation.system.take() {
                Some(own) => format!("{system}\n\n{own}"),
                None => system.clone(),
            });
        }
    }
}

/// Reads lines. `path` is for messages only, `known` says what may stand in a line. Turns have no model yet.
pub(super) fn parse(
    bytes: &[u8],
    path: &Path,
    seed: u64,
    known: &str,
    mut entry: impl FnMut(Map<String, Value>) -> Result<Entry, String>,
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
        match object(line).and_then(&mut entry) {
            Ok(entry) => reading.add(entry, number),
            Err(reason) => reading.findings.refuse(path, number, &reason),
        }
    }
    reading.finish(path, known)
}

/// The fields of a line; those that are null are as good as absent.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
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
    findings: Findings,
}

/// What there is to say about the lines of a file.
#[derive(Default)]
pub(super) struct Findings {
    /// The first messages, and how many there are.
    bad: Vec<String>,
    bad_count: usize,
    /// Fields that the format does not have, with the first line of each.
    unknown: BTreeMap<String, u64>,
}

impl Reading {
    fn add(&mut self, entry: Entry, number: u64) {
        self.findings.note_unknown(entry.unknown, number);
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

    fn finish(mut self, path: &Path, known: &str) -> Result<(Corpus, Vec<String>), DatasetError> {
        let notes = self.findings.finish(path, known)?;
        if self.conversations.is_empty() {
            return Err(DatasetError::Empty(path.to_owned()));
        }
        // A conversation's first turn has nothing to wait for.
        for conversation in &mut self.conversations {
            conversation.turns[0].delay_ms = 0.0;
        }
        let conversations = self.conversations;
        Ok((Corpus { conversations }, notes))
    }
}

impl Findings {
    /// Line `number` has fields that the format does not.
    pub(super) fn note_unknown(&mut self, names: Vec<String>, number: u64) {
        for name in names {
            if self.unknown.len() < UNKNOWN_MAX {
                self.unknown.entry(name).or_insert(number);
            }
        }
    }

    /// Line `number` is wrong.
    pub(super) fn refuse(&mut self, path: &Path, number: u64, reason: &str) {
        self.bad_count += 1;
        if self.bad.len() < BAD_LINES_MAX {
            let message = format!("{}:{number}: {reason}", path.display());
            self.bad.push(message);
        }
    }

    /// All that is wrong, or else what the user should know.
    pub(super) fn finish(mut self, path: &Path, known: &str) -> Result<Vec<String>, DatasetError> {
        let shown = path.display();
        if self.bad_count > 0 {
            if self.bad_count > self.bad.len() {
                let more = self.bad_count - self.bad.len();
                self.bad.push(format!("{shown}: and {more} more bad lines"));
            }
            return Err(DatasetError::Lines(self.bad));
        }
        let unknown = self.unknown.iter();
        let notes = unknown.map(|(name, line)| {
            format!(
                "{shown}:{line}: field {name} is not part of this format and is not used; {known}"
            )
        });
        Ok(notes.collect())
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
