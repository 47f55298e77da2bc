//! The `mooncake_trace` format: JSON Lines, each line one request of a recorded load.
//!
//! In: lines with a length, a text, messages or a whole body, and times. Out: turns, and the prompts to be made for them. Never: two forms of
//! content in one line, or in one session.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Asked, Trace, hash_ids, input_length};
use crate::dataset::lines::{self, Bad, Entry, shown, text_field};
use crate::dataset::{ContextMode, Conversation, Turn};

/// What may stand in a line.
pub(super) const KNOWN: &str = "known are input_length, hash_ids, text_input, messages, tools, payload, output_length, timestamp, delay, session_id and extra";

/// Forms of content, of which a line has exactly one.
const FORMS: [&str; 4] = ["input_length", "text_input", "messages", "payload"];

impl Trace<'_> {
    /// The turn that the line says, and the prompt to be made for it.
    pub(super) fn mooncake(
        &mut self,
        mut fields: Map<String, Value>,
        line: u64,
    ) -> Result<Entry, String> {
        lines::check_type(&mut fields, "mooncake_trace")?;
        let form = form(&fields)?;
        let length = input_length(&mut fields)?;
        let ids = hash_ids(&mut fields)?;
        if ids.is_some() && length.is_none() {
            return Err(format!("field hash_ids: needs input_length, not {form}"));
        }
        if fields.contains_key("tools") && form != "messages" {
            return Err(format!("field tools: needs messages, not {form}"));
        }
        let text = text_field(&mut fields, "text_input")?;
        let (timestamp_ms, delay) = lines::timing(&mut fields)?;
        let mut turn = Turn {
            texts: text.into_iter().collect(),
            messages: messages(&mut fields)?,
            tools: tools(&mut fields)?,
            payload: payload(&mut fields)?,
            role: "user".to_owned(),
            max_tokens: lines::output_length(&mut fields)?,
            delay_ms: delay.unwrap_or(0.0),
            timestamp_ms,
            extra: lines::extra(&mut fields)?,
            ..Turn::default()
        };
        // Whatever is wrong with a line shows before its prompt is asked for.
        let session = text_field(&mut fields, "session_id")?;
        if let Some(tokens) = length {
            let asked = Asked {
                record: self.records,
                line,
                tokens,
                ids: ids.unwrap_or_default(),
            };
            self.ask(asked, &mut turn)?;
        }
        Ok(Entry {
            session,
            context: context(&turn),
            turns: vec![turn],
            unknown: fields.into_iter().map(|(name, _)| name).collect(),
            ..Entry::default()
        })
    }
}

/// Messages and bodies of the file hold their own history.
fn context(turn: &Turn) -> ContextMode {
    if turn.messages.is_empty() && turn.payload.is_none() {
        ContextMode::LiveReplies
    } else {
        ContextMode::SelfContained
    }
}

/// The one form that the line has.
fn form(fields: &Map<String, Value>) -> Result<&'static str, String> {
    let mut found = FORMS.into_iter().filter(|name| fields.contains_key(*name));
    match (found.next(), found.next()) {
        (None, _) => Err(format!(
            "field input_length: missing; give one of {}",
            FORMS.join(", ")
        )),
        (Some(one), Some(other)) => Err(format!(
            "fields {one} and {other}: give one of them, not both"
        )),
        (Some(one), None) => Ok(one),
    }
}

fn messages(fields: &mut Map<String, Value>) -> Result<Vec<Value>, String> {
    let list = lines::messages(fields)?;
    match list.iter().find(|message| message.get("role").is_none()) {
        Some(message) => Err(format!(
            "field messages: {} has no role; give messages such as {{\"role\": \"user\", \"content\": \"Hello\"}}",
            shown(message)
        )),
        None => Ok(list),
    }
}

fn tools(fields: &mut Map<String, Value>) -> Result<Option<Value>, String> {
    match fields.remove("tools") {
        None => Ok(None),
        Some(Value::Array(list))
            if !list.is_empty() && list.iter().all(serde_json::Value::is_object) =>
        {
            Ok(Some(Value::Array(list)))
        }
        Some(other) => Err(format!(
            "field tools: {} is not a list of at least one tool",
            shown(&other)
        )),
    }
}

fn payload(fields: &mut Map<String, Value>) -> Result<Option<Arc<str>>, String> {
    match fields.remove("payload") {
        None => Ok(None),
        Some(Value::Object(body)) if !body.is_empty() => {
            Ok(Some(Value::Object(body).to_string().into()))
        }
        Some(other) => Err(format!(
            "field payload: {} is not an object with at least one field",
            shown(&other)
        )),
    }
}

/// The form of a turn; a session has all its turns of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::dataset) enum Form {
    /// A body, sent as it is.
    Payload,
    /// Messages with their own history.
    Messages,
    /// A text, or a length of one to be made up.
    #[default]
    Prompt,
}

impl Form {
    /// The form that `turn` has.
    pub(in crate::dataset) fn of(turn: &Turn) -> Form {
        match (turn.messages.is_empty(), &turn.payload) {
            (_, Some(_)) => Form::Payload,
            (false, None) => Form::Messages,
            (true, None) => Form::Prompt,
        }
    }

    /// The fields of a line that has it.
    fn name(self) -> &'static str {
        match self {
            Form::Payload => "payload",
            Form::Messages => "messages",
            Form::Prompt => "input_length or text_input",
        }
    }
}

/// What is said of a line of the form `own` in the session `id`, which began with the form `first`.
pub(in crate::dataset) fn mixed(
    path: &Path,
    line: u64,
    id: &str,
    (first, own): (Form, Form),
) -> String {
    format!(
        "{}:{line}: field session_id: session {id:?} begins with {} and goes on with {}; give each session one form",
        path.display(),
        first.name(),
        own.name(),
    )
}

/// A session's turns are all of one form: made up or text, or messages, or bodies.
pub(super) fn check_sessions(path: &Path, conversations: &mut [Conversation], bad: &mut Bad) {
    for conversation in conversations {
        let first = Form::of(&conversation.turns[0]);
        let id = &conversation.id;
        conversation.turns.retain(|turn| {
            let own = Form::of(turn);
            if own != first {
                bad.refuse(&mixed(path, turn.line, id, (first, own)));
            }
            own == first
        });
    }
}
