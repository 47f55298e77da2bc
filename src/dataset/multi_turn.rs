//! The `multi_turn` format: JSON Lines, each line one conversation.
//!
//! In: a file of `{"session_id", "turns": [...]}`, each turn as in `single_turn`, or messages as a chat API has them. Out: a corpus whose
//! history holds the server's own replies, or the file's where it has some. Never: stops at the first bad line.

use serde_json::{Map, Value};

use super::format::{Format, Setting};
use super::lines::{self, Bad, Entry, shown, text_field};
use super::{ContextMode, Conversation, DatasetError, Turn, media, recorded, single_turn};
use crate::file::Record;

/// What may stand in a line.
const KNOWN: &str = "known are session_id, turns and context_mode, and in a turn text, texts, image, images, image_uuids, audio, audios, video, videos, \
                     messages, tools, role, output_length, delay, timestamp and extra";

/// Fields that a turn has only as a request.
const OF_REQUESTS: [&str; 4] = ["timestamp", "delay", "output_length", "extra"];

/// The format.
pub(super) struct MultiTurn {
    /// Bodies have a place for a system message.
    pub(super) system_slot: bool,
    /// Pictures may be named by ids.
    pub(super) image_ids: bool,
}

impl MultiTurn {
    pub(super) fn new(setting: Setting<'_>) -> MultiTurn {
        MultiTurn {
            system_slot: setting.system_slot,
            image_ids: setting.image_ids,
        }
    }
}

impl Format for MultiTurn {
    fn known(&self) -> &'static str {
        KNOWN
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let entry = entry(record.fields, self.system_slot)?;
        media::check_ids(&entry.turns, self.image_ids)?;
        Ok(Some(entry))
    }

    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        _: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        Ok(recorded::note(conversations).into_iter().collect())
    }
}

fn entry(mut fields: Map<String, Value>, system_slot: bool) -> Result<Entry, String> {
    lines::check_type(&mut fields, "multi_turn")?;
    let session = text_field(&mut fields, "session_id")?;
    let said = recorded::mode(&mut fields)?;
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
    let mut leads = false;
    for (value, number) in list.into_iter().zip(1_u32..) {
        let Value::Object(mut fields) = value else {
            let value = shown(&value);
            return Err(format!(
                "field turns: turn {number}: {value} is not an object"
            ));
        };
        fields.retain(|_, value| !value.is_null());
        let plain = !OF_REQUESTS.iter().any(|name| fields.contains_key(*name));
        let turn = turn(&mut fields).map_err(|reason| format!("turn {number}: {reason}"))?;
        leads |= number == 1 && plain && is_system(&turn);
        turns.push(turn);
        unknown.extend(fields.into_iter().map(|(name, _)| format!("turns.{name}")));
    }
    // A leading system turn is the conversation's system message, not a request. Of two, neither is, as in AIPerf.
    leads &= system_slot && turns.get(1).is_some_and(|turn| turn.role != "system");
    let system = leads.then(|| turns.remove(0).texts.join("\n"));
    let context = said.unwrap_or_else(|| recorded::implied(&turns));
    if context == ContextMode::RecordedReplies {
        turns = recorded::fold(turns)?;
    }
    Ok(Entry {
        turns,
        session,
        context,
        system,
        unknown,
    })
}

fn is_system(turn: &Turn) -> bool {
    turn.role == "system" && turn.media.is_empty() && turn.messages.is_empty()
}

/// A turn of texts, or of messages such as the results of tools.
fn turn(fields: &mut Map<String, Value>) -> Result<Turn, String> {
    lines::check_type(fields, "single_turn")?;
    let tools = match fields.remove("tools") {
        None => None,
        Some(list @ Value::Array(_)) => Some(list),
        Some(other) => return Err(format!("field tools: {} is not a list", shown(&other))),
    };
    let messages = messages(fields)?;
    if messages.is_empty() {
        let turn = single_turn::turn(fields)?;
        return Ok(Turn { tools, ..turn });
    }
    let own = [
        "text",
        "texts",
        "role",
        "image",
        "images",
        "image_uuids",
        "audio",
        "audios",
        "video",
        "videos",
    ];
    if let Some(name) = own.iter().find(|name| fields.contains_key(**name)) {
        return Err(format!(
            "fields messages and {name}: give one of them, not both"
        ));
    }
    // What is left of a turn without a text is read as that of one with a text is.
    fields.insert("text".to_owned(), Value::from("."));
    let turn = single_turn::turn(fields)?;
    Ok(Turn {
        texts: Vec::new(),
        messages,
        tools,
        ..turn
    })
}

/// Takes `messages` out: objects with a role.
fn messages(fields: &mut Map<String, Value>) -> Result<Vec<Value>, String> {
    let list = lines::messages(fields)?;
    match list.iter().find(|message| !message["role"].is_string()) {
        Some(message) => Err(format!("field messages: {} has no role", shown(message))),
        None => Ok(list),
    }
}
