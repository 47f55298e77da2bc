//! The `raw_payload` format: whole request bodies.
//!
//! In: a file of chat bodies, or a folder of such files. Out: turns that are sent byte by byte as they stand; each line of a file is a
//! conversation, and each file of a folder is one. Never: a byte of a body changed, a model or a limit put in.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::format::{Format, Setting};
use super::lines::{Entry, shown};
use super::{ContextMode, Turn};
use crate::file::Record;

/// The format.
pub(super) struct RawPayload {
    folder: bool,
}

impl RawPayload {
    pub(super) fn new(setting: Setting<'_>) -> RawPayload {
        RawPayload {
            folder: setting.file.path.is_dir(),
        }
    }
}

impl Format for RawPayload {
    fn known(&self) -> &'static str {
        "everything is part of the body"
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        match record.fields.get("messages") {
            Some(Value::Array(messages)) if !messages.is_empty() => {}
            Some(other) => {
                return Err(format!(
                    "field messages: {} is not a list of at least one message",
                    shown(other)
                ));
            }
            None => {
                return Err("field messages: missing; give whole chat bodies".to_owned());
            }
        }
        Ok(Some(Entry {
            turns: vec![turn(&record.fields, record.text.into())],
            session: self.folder.then(|| record.stem.to_string()),
            context: ContextMode::SelfContained,
            ..Entry::default()
        }))
    }
}

/// The turn whose body is `text`; `body` are its fields.
pub(super) fn turn(body: &Map<String, Value>, text: Arc<str>) -> Turn {
    let limit = ["max_completion_tokens", "max_tokens"]
        .iter()
        .find_map(|name| body.get(*name)?.as_u64());
    Turn {
        payload: Some(text),
        role: "user".to_owned(),
        // For room that is made ahead; the body says it to the server.
        max_tokens: limit.and_then(|limit| limit.try_into().ok()),
        ..Turn::default()
    }
}
