//! The `sharegpt` format: talks between people and a model.
//!
//! In: objects with `conversations`, a list of `{"from", "value"}`. Out: conversations of the people's words, whose output limit is the
//! length of the recorded answer. Never: a talk that the usual filter leaves out: prompts of less than 4 or more than 1,024 tokens,
//! answers of less than 4 (unless `--osl` is given), more than 2,048 together.

use serde_json::{Map, Value};

use super::format::{Format, Setting};
use super::lines::{Bad, Entry, shown};
use super::{ContextMode, Conversation, DatasetError, Turn};
use crate::file::Record;
use crate::tokenizer::Tokenizer;

const PROMPT_LEAST: usize = 4;
const PROMPT_MOST: usize = 1024;
const ANSWER_LEAST: usize = 4;
const SUM_MOST: usize = 2048;

/// The format.
pub(super) struct ShareGpt<'a> {
    tokenizer: &'a dyn Tokenizer,
    /// Short answers matter, since no flag says how long the output is.
    check_short: bool,
    read: u64,
    /// The flag that names the file, and the file.
    file: String,
    /// Left out, by reason.
    without_pair: u64,
    short: u64,
    long: u64,
}

impl<'a> ShareGpt<'a> {
    pub(super) fn new(setting: Setting<'a>) -> ShareGpt<'a> {
        ShareGpt {
            tokenizer: setting.tokenizer,
            check_short: !setting.asked_output,
            file: match setting.file.public {
                Some(public) => format!("--public-dataset {}", public.name),
                None => format!("--input-file {}", setting.file.path.display()),
            },
            read: 0,
            without_pair: 0,
            short: 0,
            long: 0,
        }
    }

    /// Whether a pair of these lengths is used; counts the talk when it is not.
    fn keeps(&mut self, prompt: usize, answer: usize) -> bool {
        if prompt < PROMPT_LEAST || (self.check_short && answer < ANSWER_LEAST) {
            self.short += 1;
            return false;
        }
        if prompt > PROMPT_MOST || prompt + answer > SUM_MOST {
            self.long += 1;
            return false;
        }
        true
    }
}

impl Format for ShareGpt<'_> {
    fn known(&self) -> &'static str {
        "known are id and conversations"
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let said = said(record.fields)?;
        self.read += 1;
        let mut turns = Vec::new();
        let mut waiting: Option<&str> = None;
        for (from, text) in &said {
            if !is_model(from) {
                waiting = is_person(from).then_some(text.as_str());
                continue;
            }
            let Some(prompt) = waiting.take() else {
                continue;
            };
            let lengths = [prompt, text].map(|text| self.tokenizer.count(text));
            if !self.keeps(lengths[0], lengths[1]) {
                return Ok(None);
            }
            turns.push(Turn {
                texts: vec![prompt.to_owned()],
                role: "user".to_owned(),
                max_tokens: u32::try_from(lengths[1]).ok().filter(|tokens| *tokens > 0),
                ..Turn::default()
            });
        }
        if turns.is_empty() {
            self.without_pair += 1;
            return Ok(None);
        }
        let first = said.first().filter(|(from, _)| from == "system");
        Ok(Some(Entry {
            turns,
            context: ContextMode::LiveReplies,
            system: first.map(|(_, text)| text.clone()),
            ..Entry::default()
        }))
    }

    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        _: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        let out = self.without_pair + self.short + self.long;
        if out == 0 {
            return Ok(Vec::new());
        }
        let sentence = format!(
            "sharegpt: {out} of {} conversations are left out: {} with a prompt or an answer of less than {PROMPT_LEAST} tokens, \
             {} with a prompt over {PROMPT_MOST} or more than {SUM_MOST} together, {} without a prompt that is answered",
            self.read, self.short, self.long, self.without_pair
        );
        if conversations.is_empty() {
            return Err(DatasetError::Lines(vec![format!(
                "{}: {sentence}; none is left",
                self.file
            )]));
        }
        Ok(vec![sentence])
    }
}

fn is_model(from: &str) -> bool {
    ["gpt", "assistant", "chatgpt", "bing", "bard", "model"].contains(&from)
}

fn is_person(from: &str) -> bool {
    ["human", "user"].contains(&from)
}

/// Who said what.
fn said(mut fields: Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let list = match fields.remove("conversations") {
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(format!(
                "field conversations: {} is not a list",
                shown(&other)
            ));
        }
        None => {
            return Err(
                "field conversations: missing; give a list of {\"from\", \"value\"}".to_owned(),
            );
        }
    };
    let mut said = Vec::with_capacity(list.len());
    for (item, number) in list.iter().zip(1..) {
        let text = |name: &str, other: &str| item[name].as_str().or(item[other].as_str());
        match (text("from", "role"), text("value", "content")) {
            (Some(from), Some(value)) => said.push((from.to_owned(), value.to_owned())),
            _ => {
                return Err(format!(
                    "field conversations: item {number}: {} has no texts from and value",
                    shown(item)
                ));
            }
        }
    }
    Ok(said)
}
