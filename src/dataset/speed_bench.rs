//! The `speed_bench_*` formats: questions of several turns, each of a category.
//!
//! In: objects with `question_id`, `category` and `messages`. Out: a conversation for each question of the category that the format's name
//! ends in. Never: a recorded answer in the history; the server's own replies stand there.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::format::{Format, Setting};
use super::lines::{self, Bad, Entry, shown};
use super::{ContextMode, Conversation, DatasetError, Turn};
use crate::file::Record;

/// The format.
pub(super) struct SpeedBench<'a> {
    /// Category that is wanted.
    wanted: Option<&'a str>,
    left_out: u64,
    categories: BTreeSet<String>,
}

impl<'a> SpeedBench<'a> {
    pub(super) fn new(setting: Setting<'a>) -> SpeedBench<'a> {
        SpeedBench {
            wanted: setting.file.category.as_deref(),
            left_out: 0,
            categories: BTreeSet::new(),
        }
    }
}

impl Format for SpeedBench<'_> {
    fn known(&self) -> &'static str {
        "known are question_id, category and messages"
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let mut fields = record.fields;
        let category = lines::text_field(&mut fields, "category")?.unwrap_or_default();
        let (turns, system) = turns(&mut fields)?;
        let plain = category.to_ascii_lowercase().replace([' ', '-'], "_");
        if self.wanted.is_some_and(|wanted| plain != wanted) {
            self.left_out += 1;
            self.categories.insert(category);
            return Ok(None);
        }
        let session = match fields.remove("question_id") {
            None => None,
            Some(Value::String(id)) => Some(id),
            Some(id @ Value::Number(_)) => Some(id.to_string()),
            Some(other) => {
                return Err(format!(
                    "field question_id: {} is neither a text nor a number",
                    shown(&other)
                ));
            }
        };
        Ok(Some(Entry {
            turns,
            session,
            context: ContextMode::LiveReplies,
            system,
            ..Entry::default()
        }))
    }

    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        _: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        let (Some(wanted), 1..) = (self.wanted, self.left_out) else {
            return Ok(Vec::new());
        };
        if conversations.is_empty() {
            let found: Vec<&str> = self.categories.iter().map(String::as_str).collect();
            return Err(DatasetError::Lines(vec![format!(
                "--custom-dataset-type: no question is of the category {wanted}; the file has {}",
                found.join(", ")
            )]));
        }
        Ok(vec![format!(
            "speed_bench: {} questions of other categories than {wanted} are left out",
            self.left_out
        )])
    }
}

/// What the person says in `messages`, and a system message before it. `turns`, a list of texts, is taken too.
fn turns(fields: &mut Map<String, Value>) -> Result<(Vec<Turn>, Option<String>), String> {
    let list = match fields.remove("messages").or(fields.remove("turns")) {
        Some(Value::Array(list)) => list,
        Some(other) => return Err(format!("field messages: {} is not a list", shown(&other))),
        None => return Err("field messages: missing; give a list of messages".to_owned()),
    };
    let (mut turns, mut system) = (Vec::new(), None);
    for (message, number) in list.iter().zip(1..) {
        let content = message.as_str().or(message["content"].as_str());
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            return Err(format!(
                "field messages: number {number}: {} has no text content",
                shown(message)
            ));
        };
        match message["role"].as_str().unwrap_or("user") {
            "system" if turns.is_empty() => system = Some(content.to_owned()),
            "user" => turns.push(Turn {
                texts: vec![content.to_owned()],
                role: "user".to_owned(),
                ..Turn::default()
            }),
            _ => {}
        }
    }
    if turns.is_empty() {
        return Err("field messages: no message of the role user".to_owned());
    }
    Ok((turns, system))
}
