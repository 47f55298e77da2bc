//! The `prompts` format: one prompt a record, as vllm's custom files, sglang's and GuideLLM's have them.
//!
//! In: JSON objects or CSV rows with a prompt and perhaps an output length, each under one of its usual names. Out: a conversation of one
//! turn each. Never: a guess between two columns of the same meaning.

use serde_json::{Map, Value};

use super::format::Format;
use super::lines::{self, Entry, shown};
use super::{ContextMode, Turn};
use crate::file::{Cut, Record};

/// Names of the prompt, the first one found counts.
const PROMPT: &[&str] = &[
    "prompt",
    "instruction",
    "question",
    "input",
    "context",
    "content",
    "text",
];
/// Names of the output length.
const LENGTH: &[&str] = &[
    "output_tokens",
    "output_tokens_count",
    "completion_tokens_count",
    "output_len",
    "output_length",
];
/// Names of a system message.
const SYSTEM: &[&str] = &["system_prompt", "system", "prefix"];
/// What may stand beside a prompt and is not needed: the tokenizer counts, and the server answers for itself.
const NEEDLESS: &[&str] = &[
    "prompt_tokens_count",
    "input_tokens_count",
    "prompt_tokens",
    "completion",
    "response",
    "output",
    "id",
];

/// The format.
pub(super) struct Prompts;

impl Format for Prompts {
    fn cut(&self) -> Cut {
        Cut::JsonOrCsv
    }

    fn known(&self) -> &'static str {
        "known are prompt, output_tokens (or output_tokens_count) and system_prompt"
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let mut fields = record.fields;
        lines::check_type(&mut fields, "prompts")?;
        let Some(name) = PROMPT.iter().find(|name| fields.contains_key(**name)) else {
            return Err(format!(
                "field prompt: missing; give one of {}",
                PROMPT.join(", ")
            ));
        };
        let Some(prompt) = lines::text_field(&mut fields, name)? else {
            return Err(format!("field {name}: missing"));
        };
        let max_tokens = length(&mut fields)?;
        let system = SYSTEM.iter().find(|name| fields.contains_key(**name));
        let system = match system {
            Some(name) => lines::text_field(&mut fields, name)?,
            None => None,
        };
        let turn = Turn {
            texts: vec![prompt],
            role: "user".to_owned(),
            max_tokens,
            ..Turn::default()
        };
        let names = fields.into_iter().map(|(name, _)| name);
        Ok(Some(Entry {
            turns: vec![turn],
            context: ContextMode::SelfContained,
            system,
            unknown: names
                .filter(|name| !NEEDLESS.contains(&name.as_str()))
                .collect(),
            ..Entry::default()
        }))
    }
}

/// Takes the output length out; a table has it as a text.
fn length(fields: &mut Map<String, Value>) -> Result<Option<u32>, String> {
    let Some(name) = LENGTH.iter().find(|name| fields.contains_key(**name)) else {
        return Ok(None);
    };
    let value = fields.remove(*name).unwrap_or_default();
    let number = match &value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    };
    match number.and_then(|number| u32::try_from(number).ok()) {
        Some(tokens) if tokens > 0 => Ok(Some(tokens)),
        _ => Err(format!(
            "field {name}: {} is not a whole number from 1 to {}",
            shown(&value),
            u32::MAX
        )),
    }
}
