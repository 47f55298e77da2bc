//! The `mooncake_trace` format: JSON Lines, each line one request of a recorded load.
//!
//! In: a file of lengths, hash ids, texts and times; a tokenizer. Out: a corpus; requests that share leading hash ids share the
//! beginning of their prompts. Never: a prompt of another length than the line says without a note.

use std::collections::HashMap;

use rand::RngExt;
use serde_json::{Map, Value};

use super::fit::Fitter;
use super::format::{Format, Setting};
use super::lines::{self, Entry, shown, text_field};
use super::pieces::Pieces;
use super::seed::{child_seed, numbered};
use super::{ContextMode, Conversation, DatasetError, Turn};
use crate::config::CorpusKind;
use crate::file::Record;
use crate::tokenizer::Tokenizer;

/// What may stand in a line.
const KNOWN: &str = "known are input_length, hash_ids, text_input, output_length, timestamp, delay, session_id and extra";

/// Longest prompt of a line, as for made-up prompts.
const INPUT_TOKENS_MOST: u64 = 1 << 24;

/// Tokens of text that prompts are cut from.
const SOURCE_TOKENS: usize = 1 << 20;

/// The format.
pub(super) struct Mooncake<'a> {
    writer: Writer<'a>,
}

impl<'a> Mooncake<'a> {
    pub(super) fn new(setting: Setting<'a>) -> Result<Mooncake<'a>, DatasetError> {
        let (tokenizer, seed) = (setting.tokenizer, setting.seed);
        if tokenizer.count("The quick brown fox") == 0 {
            return Err(DatasetError::UnusableTokenizer(tokenizer.name().to_owned()));
        }
        let writer = Writer {
            pieces: Pieces::new(CorpusKind::Sonnet, tokenizer, seed, SOURCE_TOKENS),
            tokenizer,
            block_tokens: setting.file.block_tokens as usize,
            blocks: HashMap::new(),
            block_seed: child_seed(seed, "dataset.prompt.hash_block"),
            rest_seed: child_seed(seed, "dataset.prompt.place"),
            prompts: 0,
            missed: 0,
        };
        Ok(Mooncake { writer })
    }
}

impl Format for Mooncake<'_> {
    fn known(&self) -> &'static str {
        KNOWN
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        entry(record.fields, &mut self.writer).map(Some)
    }

    fn finish(&mut self, _: &mut Vec<Conversation>) -> Result<Vec<String>, DatasetError> {
        let writer = &self.writer;
        if writer.missed == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![format!(
            "{} of {} prompts could not be made to the exact length with the tokenizer {}",
            writer.missed,
            writer.prompts,
            writer.tokenizer.name()
        )])
    }
}

fn entry(mut fields: Map<String, Value>, writer: &mut Writer<'_>) -> Result<Entry, String> {
    lines::check_type(&mut fields, "mooncake_trace")?;
    for name in ["messages", "tools", "payload"] {
        if fields.contains_key(name) {
            return Err(format!(
                "field {name}: cannot be sent yet; give input_length or text_input"
            ));
        }
    }
    let length = input_length(&mut fields)?;
    let hashes = hash_ids(&mut fields)?;
    let text = match (length, text_field(&mut fields, "text_input")?) {
        (Some(_), Some(_)) => {
            return Err(
                "fields input_length and text_input: give one of them, not both".to_owned(),
            );
        }
        (None, None) => {
            return Err("field input_length: missing; give input_length or text_input".to_owned());
        }
        (None, Some(_)) if hashes.is_some() => {
            return Err("field hash_ids: needs input_length, not text_input".to_owned());
        }
        (None, Some(text)) => text,
        (Some(length), None) => writer.prompt(length, &hashes.unwrap_or_default())?,
    };
    let (timestamp_ms, delay) = lines::timing(&mut fields)?;
    let turn = Turn {
        texts: vec![text],
        role: "user".to_owned(),
        max_tokens: lines::output_length(&mut fields)?,
        delay_ms: delay.unwrap_or(0.0),
        timestamp_ms,
        extra: lines::extra(&mut fields)?,
        ..Turn::default()
    };
    Ok(Entry {
        session: text_field(&mut fields, "session_id")?,
        turns: vec![turn],
        context: ContextMode::LiveReplies,
        unknown: fields.into_iter().map(|(name, _)| name).collect(),
        ..Entry::default()
    })
}

fn input_length(fields: &mut Map<String, Value>) -> Result<Option<usize>, String> {
    let Some(value) = fields.remove("input_length") else {
        return Ok(None);
    };
    let whole = value
        .as_u64()
        .filter(|n| (1..=INPUT_TOKENS_MOST).contains(n));
    match whole.and_then(|n| usize::try_from(n).ok()) {
        Some(tokens) => Ok(Some(tokens)),
        None => Err(format!(
            "field input_length: {} is not a whole number from 1 to {INPUT_TOKENS_MOST}",
            shown(&value)
        )),
    }
}

fn hash_ids(fields: &mut Map<String, Value>) -> Result<Option<Vec<u64>>, String> {
    let Some(value) = fields.remove("hash_ids") else {
        return Ok(None);
    };
    let ids = value
        .as_array()
        .and_then(|list| list.iter().map(Value::as_u64).collect());
    match ids {
        Some(ids) => Ok(Some(ids)),
        None => Err(format!(
            "field hash_ids: {} is not a list of whole numbers from 0 up",
            shown(&value)
        )),
    }
}

/// Writes prompts. Each hash id has a text of its own, the same wherever it stands.
struct Writer<'a> {
    pieces: Pieces,
    tokenizer: &'a dyn Tokenizer,
    block_tokens: usize,
    blocks: HashMap<u64, String>,
    block_seed: u64,
    rest_seed: u64,
    prompts: u64,
    missed: u64,
}

impl Writer<'_> {
    /// A prompt of `length` tokens: a block for each id, the last one cut to fit, and other text behind them where they are too short.
    fn prompt(&mut self, length: usize, ids: &[u64]) -> Result<String, String> {
        let block = self.block_tokens;
        if !ids.is_empty() && (ids.len() - 1).saturating_mul(block) >= length {
            return Err(format!(
                "field hash_ids: {} ids of {block} tokens are more than the input_length {length}; give fewer, or --isl-block-size",
                ids.len()
            ));
        }
        let whole = (length / block).min(ids.len());
        let mut head = String::new();
        for &id in &ids[..whole] {
            head.push_str(self.block(id));
        }
        let mut generator = match ids.get(whole) {
            Some(&id) => numbered(self.block_seed, id),
            None => numbered(self.rest_seed, self.prompts),
        };
        let start = generator.random_range(0..self.pieces.len());
        let fitter = Fitter {
            pieces: &self.pieces,
            tokenizer: self.tokenizer,
        };
        let fitted = fitter.fit(&head, start, length);
        self.prompts += 1;
        self.missed += u64::from(fitted.off_by != 0);
        Ok(fitted.text)
    }

    fn block(&mut self, id: u64) -> &str {
        let (seed, tokens) = (self.block_seed, self.block_tokens);
        let fitter = Fitter {
            pieces: &self.pieces,
            tokenizer: self.tokenizer,
        };
        self.blocks.entry(id).or_insert_with(|| {
            let start = numbered(seed, id).random_range(0..fitter.pieces.len());
            fitter.fit("", start, tokens).text
        })
    }
}
