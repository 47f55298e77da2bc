//! What records become, one entry a record.
//!
//! In: the fields of a record; entries. Out: values of fields; a corpus, or every bad line with its number. Never: drops a field without a
//! word, or stops at the first bad line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use super::format::Format;
use super::length;
use super::seed::{child_seed, numbered};
use super::synthetic::{conversation_id, pick_model};
use super::{ContextMode, Conversation, Corpus, DatasetError, Turn};
use crate::config::Plan;

/// Bad lines told of before the rest is only counted.
pub(super) const BAD_LINES_MAX: usize = 20;

/// Bad lines told of when they are left out.
const SKIPPED_TOLD: usize = 3;

/// Unknown fields told of.
const UNKNOWN_MAX: usize = 5;

/// What one record stands for.
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

/// Gives turns what the plan says and the file does not: a model, an output limit, a system message. The notes are of timestamps that are
/// not followed.
pub(super) fn complete(plan: &Plan, path: &Path, corpus: &mut Corpus, seed: u64) -> Option<String> {
    let completion = Completion::new(plan, seed);
    let numbered_by_file = plan.dataset.source.is_trace();
    let turns = corpus
        .conversations
        .iter_mut()
        .flat_map(|conversation| &mut conversation.turns);
    let mut timed = 0;
    for (turn, overall) in turns.zip(0..) {
        timed += usize::from(turn.timestamp_ms.is_some());
        // Lines of a trace may have been left out by now.
        let overall = if numbered_by_file {
            turn.record
        } else {
            overall
        };
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

/// Takes `messages` out: none where the field is absent, else at least one. What a message is made of is the format's to judge.
pub(super) fn messages(fields: &mut Map<String, Value>) -> Result<Vec<Value>, String> {
    match fields.remove("messages") {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if !list.is_empty() => Ok(list),
        Some(other) => Err(format!(
            "field messages: {} is not a list of at least one message",
            shown(&other)
        )),
    }
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
pub(super) struct Reading {
    conversations: Vec<Conversation>,
    /// Index of each session's conversation.
    sessions: HashMap<String, usize>,
    /// Seed of the ids of lines without a session.
    ids: u64,
    bad: Bad,
    unknown: Unknown,
}

impl Reading {
    /// `skip`: bad lines are counted, and are no error.
    pub(super) fn new(skip: bool, seed: u64) -> Reading {
        Reading {
            bad: Bad {
                skip,
                ..Bad::default()
            },
            ids: child_seed(seed, "dataset.conversation.id"),
            ..Reading::default()
        }
    }

    /// The session of `entry` was begun in another mode.
    pub(super) fn differs(&self, entry: &Entry) -> bool {
        let session = entry.session.as_ref();
        let begun = session.and_then(|session| self.sessions.get(session));
        begun.is_some_and(|&index| self.conversations[index].context != entry.context)
    }

    /// An entry without turns only tells of unknown fields.
    pub(super) fn add(&mut self, mut entry: Entry, path: &Path, line: u64) {
        for name in entry.unknown {
            self.unknown.add(name, path, line);
        }
        if entry.turns.is_empty() {
            return;
        }
        for turn in &mut entry.turns {
            turn.line = line;
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

    pub(super) fn refuse(&mut self, message: &str) {
        self.bad.refuse(message);
    }

    pub(super) fn finish(
        mut self,
        path: &Path,
        format: &mut dyn Format,
    ) -> Result<(Corpus, Vec<String>), DatasetError> {
        self.bad.check(path)?;
        let told = format.finish(&mut self.conversations, &mut self.bad)?;
        self.bad.check(path)?;
        if self.conversations.is_empty() {
            return Err(self.bad.nothing_left(path));
        }
        let mut notes: Vec<String> = self.bad.note(path).into_iter().collect();
        notes.extend(told);
        // A conversation's first turn has nothing to wait for.
        for conversation in &mut self.conversations {
            conversation.turns[0].delay_ms = 0.0;
        }
        notes.extend(self.unknown.notes(format.known()));
        let conversations = self.conversations;
        let corpus = Corpus {
            conversations,
            bad_lines: self.bad.count as u64,
        };
        Ok((corpus, notes))
    }
}

/// Fields that the format does not have, with the first place of each.
#[derive(Default)]
pub(super) struct Unknown(BTreeMap<String, String>);

impl Unknown {
    pub(super) fn add(&mut self, name: String, path: &Path, line: u64) {
        if self.0.len() < UNKNOWN_MAX {
            let place = || format!("{}:{line}", path.display());
            self.0.entry(name).or_insert_with(place);
        }
    }

    /// What the user should see of them.
    pub(super) fn notes(&self, known: &str) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(name, place)| {
            format!("{place}: field {name} is not part of this format and is not used; {known}")
        })
    }
}

/// Lines that are wrong.
#[derive(Default)]
pub(super) struct Bad {
    /// The first messages.
    told: Vec<String>,
    count: usize,
    /// They are left out.
    skip: bool,
}

impl Bad {
    /// `message` begins with the line's place.
    pub(super) fn refuse(&mut self, message: &str) {
        self.count += 1;
        let most = if self.skip {
            SKIPPED_TOLD
        } else {
            BAD_LINES_MAX
        };
        if self.told.len() < most {
            self.told.push(message.to_owned());
        }
    }

    /// `count` more of which nothing is told.
    pub(super) fn refuse_untold(&mut self, count: usize) {
        self.count += count;
    }

    /// An error where there are any and they are not left out.
    pub(super) fn check(&self, path: &Path) -> Result<(), DatasetError> {
        if self.count == 0 || self.skip {
            return Ok(());
        }
        let mut told = self.told.clone();
        if self.count > told.len() {
            let more = self.count - told.len();
            told.push(format!("{}: and {more} more bad lines", path.display()));
        }
        Err(DatasetError::Lines(told))
    }

    /// The error of a file of which nothing is left.
    fn nothing_left(mut self, path: &Path) -> DatasetError {
        if self.count == 0 {
            return DatasetError::Empty(path.to_owned());
        }
        let all = format!("{}: all {} lines are bad", path.display(), self.count);
        self.told.push(all);
        DatasetError::Lines(self.told)
    }

    /// What the user should see of what is left out.
    fn note(&self, path: &Path) -> Option<String> {
        (self.count > 0).then(|| {
            format!(
                "{}: {} bad lines are left out; the first: {}",
                path.display(),
                self.count,
                self.told.join("; ")
            )
        })
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
