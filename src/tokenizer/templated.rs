//! A tokenizer that knows its model's chat template.
//!
//! In: a tokenizer and the folder that it came from. Out: the same tokenizer with the template. Never: another template than the one
//! that the model's own files name.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{ChatTemplate, Tokenizer};

/// Names the template, or holds it, and the special tokens.
pub(super) const CONFIG_FILE: &str = "tokenizer_config.json";

/// The template alone; newer models have it beside the configuration, and it comes first.
pub(super) const TEMPLATE_FILE: &str = "chat_template.jinja";

/// Special tokens that a template may name.
const TOKEN_NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// A tokenizer and its model's chat template.
pub(super) struct Templated {
    inner: Arc<dyn Tokenizer>,
    template: ChatTemplate,
    /// Tokens that the template adds to a user's message.
    overhead: usize,
}

impl Templated {
    /// Reads the template from `folder`.
    ///
    /// # Errors
    ///
    /// Why there is none, in one sentence.
    pub(super) fn read(inner: Arc<dyn Tokenizer>, folder: &Path) -> Result<Templated, String> {
        let template = read(folder, jiff::ZonedDateTime::now())?;
        Templated::new(inner, template)
    }

    /// Puts both together.
    ///
    /// # Errors
    ///
    /// The template cannot be carried out for one user's message.
    pub(super) fn new(
        inner: Arc<dyn Tokenizer>,
        template: ChatTemplate,
    ) -> Result<Templated, String> {
        let (text, prompt) = template.around_a_prompt()?;
        let overhead = inner.count(&text).saturating_sub(inner.count(prompt));
        Ok(Templated {
            inner,
            template,
            overhead,
        })
    }
}

impl Tokenizer for Templated {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        self.inner.encode(text)
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids)
    }

    fn count(&self, text: &str) -> usize {
        self.inner.count(text)
    }

    fn vocabulary_size(&self) -> u32 {
        self.inner.vocabulary_size()
    }

    fn added_special_count(&self) -> usize {
        self.inner.added_special_count()
    }

    fn prompt_overhead(&self) -> usize {
        // The template writes the special tokens itself.
        self.overhead
    }

    fn chat_template(&self) -> Option<&ChatTemplate> {
        Some(&self.template)
    }
}

/// The chat template of the model in `folder`. `now` is what its `strftime_now` tells.
///
/// # Errors
///
/// Why there is none, in one sentence.
pub fn read(folder: &Path, now: jiff::ZonedDateTime) -> Result<ChatTemplate, String> {
    let configuration = match text(folder, CONFIG_FILE)? {
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| format!("{CONFIG_FILE} is no JSON: {error}"))?,
        None => Value::Null,
    };
    let beside = text(folder, TEMPLATE_FILE)?;
    let source = match &beside {
        Some(text) => text.as_str(),
        None => named(&configuration["chat_template"])?,
    };
    ChatTemplate::new(source, &special_tokens(&configuration), now)
}

/// A file of the folder; `None` when there is none.
fn text(folder: &Path, name: &str) -> Result<Option<String>, String> {
    match fs::read_to_string(folder.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{name} cannot be read: {error}")),
    }
}

/// The template of the configuration: the only one, or the one called `default` in a list of named ones.
fn named(field: &Value) -> Result<&str, String> {
    match field {
        Value::String(text) => Ok(text),
        Value::Array(list) => {
            let default = list.iter().find(|entry| entry["name"] == "default");
            let text = default.and_then(|entry| entry["template"].as_str());
            text.ok_or_else(|| {
                let names: Vec<&str> = list.iter().filter_map(|e| e["name"].as_str()).collect();
                format!(
                    "its chat templates are named {}, and none is named default",
                    names.join(", ")
                )
            })
        }
        Value::Object(map) => {
            let text = map.get("default").and_then(Value::as_str);
            text.ok_or_else(|| "none of its chat templates is named default".to_owned())
        }
        _ => Err(format!(
            "it has no chat template: there is no {TEMPLATE_FILE}, and no chat_template in {CONFIG_FILE}"
        )),
    }
}

/// Names and texts; a token is a text or an object that holds one.
fn special_tokens(configuration: &Value) -> Vec<(String, String)> {
    TOKEN_NAMES
        .iter()
        .filter_map(|&name| {
            let token = &configuration[name];
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            Some((name.to_owned(), text.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
