//! The `single_turn` format: JSON Lines, each line one request.
//!
//! In: a file. Out: a corpus; lines with the same `session_id` are one conversation, played in order, each complete in itself.
//! Never: drops a field without a word, or stops at the first bad line.

use serde_json::{Map, Value};

use super::format::{Format, Setting};
use super::lines::{self, Bad, Entry, shown, text_field};
use super::{ContextMode, Conversation, DatasetError, Turn, media};
use crate::file::Record;

/// What may stand in a line.
const KNOWN: &str = "known are text, texts, image, images, image_uuids, audio, audios, video, videos, role, session_id, output_length, delay, timestamp and extra";

/// The format.
pub(super) struct SingleTurn {
    /// Pictures may be named by ids.
    image_ids: bool,
    /// A picture with an id goes out once a session.
    strip_images: bool,
}

impl SingleTurn {
    pub(super) fn new(setting: Setting<'_>) -> SingleTurn {
        SingleTurn {
            image_ids: setting.image_ids,
            strip_images: setting.file.strip_images,
        }
    }
}

impl Format for SingleTurn {
    fn known(&self) -> &'static str {
        KNOWN
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let mut fields = record.fields;
        lines::check_type(&mut fields, "single_turn")?;
        let session = text_field(&mut fields, "session_id")?;
        let turn = turn(&mut fields)?;
        media::check_ids(std::slice::from_ref(&turn), self.image_ids)?;
        Ok(Some(Entry {
            turns: vec![turn],
            session,
            context: ContextMode::SelfContained,
            unknown: fields.into_iter().map(|(name, _)| name).collect(),
            ..Entry::default()
        }))
    }

    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        _: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        if self.strip_images {
            conversations.iter_mut().for_each(media::strip_repeated);
        }
        Ok(Vec::new())
    }
}

/// Takes one request out of `fields`.
pub(super) fn turn(fields: &mut Map<String, Value>) -> Result<Turn, String> {
    let media = media::take(fields)?;
    let (texts, text_names) = texts(fields, media.is_empty())?;
    let role = text_field(fields, "role")?.unwrap_or_else(|| "user".to_owned());
    let max_tokens = lines::output_length(fields)?;
    let (timestamp_ms, delay) = lines::timing(fields)?;
    if timestamp_ms.is_some() && delay.is_some() {
        return Err("fields timestamp and delay: give one of them, not both".to_owned());
    }
    Ok(Turn {
        texts,
        text_names,
        media,
        role,
        max_tokens,
        delay_ms: delay.unwrap_or(0.0),
        timestamp_ms,
        extra: lines::extra(fields)?,
        ..Turn::default()
    })
}

/// Texts, and what each is called; no names where none is called anything.
type NamedTexts = (Vec<String>, Vec<String>);

/// `text`, or `texts`: strings, or objects with a name and contents. They may be missing where they are not `needed`.
fn texts(fields: &mut Map<String, Value>, needed: bool) -> Result<NamedTexts, String> {
    let mut names = Vec::new();
    let texts = match (fields.remove("text"), fields.remove("texts")) {
        (Some(_), Some(_)) => {
            return Err("fields text and texts: give one of them, not both".to_owned());
        }
        (None, None) if !needed => return Ok(NamedTexts::default()),
        (None, None) => return Err("field text: missing; give text or texts, or media".to_owned()),
        (Some(Value::String(text)), None) => vec![text],
        (Some(other), None) => {
            return Err(format!("field text: {} is not a string", shown(&other)));
        }
        (None, Some(Value::Array(list))) => {
            let mut texts = Vec::with_capacity(list.len());
            for item in list {
                let name = texts_of_item(item, &mut texts)?;
                names.resize(texts.len(), name);
            }
            texts
        }
        (None, Some(other)) => return Err(format!("field texts: {} is not a list", shown(&other))),
    };
    if texts.iter().all(String::is_empty) {
        return Err("field text: empty; give at least one character".to_owned());
    }
    if names.iter().all(String::is_empty) {
        names.clear();
    }
    Ok((texts, names))
}

/// Adds the texts of one item of `texts`; returns its name, empty where it has none.
fn texts_of_item(item: Value, texts: &mut Vec<String>) -> Result<String, String> {
    match item {
        Value::String(text) => {
            texts.push(text);
            Ok(String::new())
        }
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
            match named.remove("name") {
                Some(Value::String(name)) => Ok(name),
                None | Some(Value::Null) => Ok(String::new()),
                Some(other) => Err(format!(
                    "field texts: the name {} is not a string",
                    shown(&other)
                )),
            }
        }
        other => Err(format!(
            "field texts: {} is neither a string nor an object",
            shown(&other)
        )),
    }
}

#[cfg(test)]
mod tests;
