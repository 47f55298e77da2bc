//! The `inputs_json` format: the bodies that a run has sent, as `inputs.json` holds them.
//!
//! In: an object whose list `data` has a `session_id` and `payloads` in each item. Out: the same sessions with the same bodies. Never: a
//! byte of a body changed.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::format::Format;
use super::lines::Entry;
use super::{ContextMode, raw_payload};
use crate::file::{Cut, Record};

/// The format.
pub(super) struct InputsJson;

#[derive(Deserialize)]
struct Session<'a> {
    session_id: Option<String>,
    #[serde(borrow)]
    payloads: Vec<&'a RawValue>,
}

impl Format for InputsJson {
    fn cut(&self) -> Cut {
        Cut::Items("data")
    }

    fn known(&self) -> &'static str {
        "known are session_id and payloads"
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let session: Session<'_> = serde_json::from_str(&record.text).map_err(|error| {
            format!("field payloads: {error}; give {{\"session_id\", \"payloads\": [...]}}")
        })?;
        if session.payloads.is_empty() {
            return Err("field payloads: empty; give at least one body".to_owned());
        }
        let mut turns = Vec::with_capacity(session.payloads.len());
        for (payload, number) in session.payloads.iter().zip(1..) {
            let body: Map<String, Value> = serde_json::from_str(payload.get())
                .map_err(|_| format!("field payloads: number {number} is not an object"))?;
            turns.push(raw_payload::turn(&body, payload.get().into()));
        }
        let known = ["session_id", "payloads"];
        let names = record.fields.into_iter().map(|(name, _)| name);
        Ok(Some(Entry {
            turns,
            session: session.session_id,
            context: ContextMode::SelfContained,
            unknown: names
                .filter(|name| !known.contains(&name.as_str()))
                .collect(),
            ..Entry::default()
        }))
    }
}
