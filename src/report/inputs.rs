//! `inputs.json`: the whole dataset as request bodies.
//!
//! In: the corpus and a body for each turn. Out: JSON that can be fed back. Never: holds more than one conversation's bodies.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Value, json};

use crate::dataset::Corpus;
use crate::report::ReportError;
use crate::report::artifact::write_whole;

/// Bodies of all turns.
pub struct InputBodies<'a> {
    /// The conversations.
    pub corpus: &'a Corpus,
    /// Body of (conversation index, turn index); `None` where it cannot be rendered.
    pub body: &'a dyn Fn(usize, usize) -> Option<Cow<'a, [u8]>>,
}

/// Writes the file, one conversation at a time.
pub(super) fn write(path: &Path, inputs: &InputBodies<'_>) -> Result<(), ReportError> {
    write_whole(path, |file| {
        file.write_all(b"{\n  \"data\": [")?;
        for (index, conversation) in inputs.corpus.conversations.iter().enumerate() {
            let bodies =
                (0..conversation.turns.len()).filter_map(|turn| (inputs.body)(index, turn));
            let payloads: Vec<Value> = bodies.map(|body| parse_body(&body)).collect();
            let entry = json!({"session_id": conversation.id, "payloads": payloads});
            let text = format!("{entry:#}").replace('\n', "\n    ");
            let lead = if index == 0 { "\n    " } else { ",\n    " };
            file.write_all(lead.as_bytes())?;
            file.write_all(text.as_bytes())?;
        }
        file.write_all(b"\n  ]\n}")
    })
}

fn parse_body(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(body).into_owned()))
}
