//! `inputs.json`: the whole dataset as request bodies.
//!
//! In: conversations and a body for each of their turns. Out: JSON that can be fed back. Never: holds more than one conversation's bodies.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::config::Secrets;
use crate::report::ReportError;
use crate::report::artifact::{ArtifactNames, write_whole};

/// Bodies of all turns.
pub struct InputBodies<'a> {
    /// Conversations.
    pub count: usize,
    /// Hidden in the bodies.
    pub secrets: &'a Secrets,
    /// Id and bodies of each, asked for in order from 0; `None` where it cannot be made any more.
    pub conversation: &'a dyn Fn(usize) -> Option<NamedBodies<'a>>,
}

/// What there is to do for the file at the end of a run.
#[derive(Clone, Copy)]
pub enum Inputs<'a> {
    /// Nothing: it was written before the load.
    Written,
    /// It is written now.
    Now(&'a InputBodies<'a>),
    /// There is none.
    Never,
}

/// A conversation's id and the bodies of its turns.
pub type NamedBodies<'a> = (String, Vec<Cow<'a, [u8]>>);

/// Writes the file, one conversation at a time.
///
/// # Errors
///
/// It cannot be written; an earlier one is still there.
pub fn write(names: &ArtifactNames, inputs: &InputBodies<'_>) -> Result<(), ReportError> {
    write_whole(&names.inputs(), |file| {
        file.write_all(b"{\n  \"data\": [")?;
        let conversations = (0..inputs.count).filter_map(inputs.conversation);
        for (index, (id, bodies)) in conversations.enumerate() {
            let payloads: Vec<Value> = bodies
                .iter()
                .map(|body| parse_body(body, inputs.secrets))
                .collect();
            let entry = json!({"session_id": id, "payloads": payloads});
            let text = format!("{entry:#}").replace('\n', "\n    ");
            let lead = if index == 0 { "\n    " } else { ",\n    " };
            file.write_all(lead.as_bytes())?;
            file.write_all(text.as_bytes())?;
        }
        file.write_all(b"\n  ]\n}")
    })
}

fn parse_body(body: &[u8], secrets: &Secrets) -> Value {
    let text = String::from_utf8_lossy(body);
    let text = secrets.hide(&text);
    serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_ref()))
}
