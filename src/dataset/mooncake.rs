//! The `mooncake_trace` format: JSON Lines, each line one request of a recorded load.
//!
//! In: a file of lengths, hash ids, texts and times; a tokenizer. Out: a corpus; requests that share leading hash ids share the
//! beginning of their prompts. Never: a prompt of another length than the line says without a note.

use std::collections::HashMap;
use std::path::Path;

use rand::RngExt;
use serde_json::{Map, Value};

use super::fit::Fitter;
use super::lines::{self, Entry, shown, text_field};
use super::pieces::Pieces;
use super::seed::{child_seed, numbered};
use super::{ContextMode, Corpus, DatasetError, Turn};
use crate::config::{CorpusKind, Plan};
use crate::tokenizer::Tokenizer;

/// What may stand in a line.
pub(super) const KNOWN: &str = "known are input_length, hash_ids, text_input, output_length, timestamp, delay, session_id and extra";

/// Longest prompt of a line, as for made-up prompts.
const INPUT_TOKENS_MOST: u64 = 1 << 24;

/// Tokens of text that prompts are cut from.
const SOURCE_TOKENS: usize = 1 << 20;

/// Bytes of the texts of hash ids that are kept, and a block more.
const BLOCK_BYTES_MOST: usize = 64 << 20;

/// Reads the file at `path`. A hash id stands for `block_tokens` tokens.
pub(super) fn read(
    plan: &Plan,
    path: &Path,
    block_tokens: u32,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let bytes = lines::bytes_of(path)?;
    check(tokenizer)?;
    let pieces = source(tokenizer, seed);
    let mut writer = Writer::new(Some((&pieces, tokenizer)), block_tokens, seed);
    let (mut corpus, mut notes) = lines::parse(&bytes, path, seed, KNOWN, |fields| {
        entry(fields, &mut writer)
    })?;
    notes.extend(lines::complete(plan, path, &mut corpus, seed));
    notes.extend(writer.note());
    Ok((corpus, notes))
}

/// Refuses a tokenizer that no prompt can be made with.
pub(super) fn check(tokenizer: &dyn Tokenizer) -> Result<(), DatasetError> {
    if tokenizer.count("The quick brown fox") == 0 {
        return Err(DatasetError::UnusableTokenizer(tokenizer.name().to_owned()));
    }
    Ok(())
}

/// The text that prompts are cut from.
pub(super) fn source(tokenizer: &dyn Tokenizer, seed: u64) -> Pieces {
    Pieces::new(CorpusKind::Sonnet, tokenizer, seed, SOURCE_TOKENS)
}

pub(super) fn entry(
    mut fields: Map<String, Value>,
    writer: &mut Writer<'_>,
) -> Result<Entry, String> {
    let number = writer.entries;
    writer.entries += 1;
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
        (Some(length), None) => writer.prompt(number, length, &hashes.unwrap_or_default())?,
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
pub(super) struct Writer<'a> {
    /// None for one that only checks what it is asked for: its prompts are empty.
    fitter: Option<Fitter<'a>>,
    block_tokens: usize,
    /// Texts of hash ids, to be used again. They hang on the id alone, so all can be forgotten.
    blocks: HashMap<u64, String>,
    block_bytes: usize,
    block_seed: u64,
    rest_seed: u64,
    /// Entries read: the number of the next one in its file.
    entries: u64,
    prompts: u64,
    missed: u64,
}

impl<'a> Writer<'a> {
    /// A writer of prompts cut from some text, or a checker.
    pub(super) fn new(
        text: Option<(&'a Pieces, &'a dyn Tokenizer)>,
        block_tokens: u32,
        seed: u64,
    ) -> Writer<'a> {
        Writer {
            fitter: text.map(|(pieces, tokenizer)| Fitter { pieces, tokenizer }),
            block_tokens: block_tokens as usize,
            blocks: HashMap::new(),
            block_bytes: 0,
            block_seed: child_seed(seed, "dataset.prompt.hash_block"),
            rest_seed: child_seed(seed, "dataset.prompt.place"),
            entries: 0,
            prompts: 0,
            missed: 0,
        }
    }

    /// The next entry is number `entry` of its file.
    pub(super) fn go_to(&mut self, entry: u64) {
        self.entries = entry;
    }

    /// Prompts of another length than was asked for.
    pub(super) fn note(&self) -> Option<String> {
        let tokenizer = self.fitter?.tokenizer;
        (self.missed > 0).then(|| {
            format!(
                "{} of {} prompts could not be made to the exact length with the tokenizer {}",
                self.missed,
                self.prompts,
                tokenizer.name()
            )
        })
    }

    /// The prompt of entry `number`, `length` tokens: a block for each id, the last one cut to fit, and other text behind them where they are too short.
    fn prompt(&mut self, number: u64, length: usize, ids: &[u64]) -> Result<String, String> {
        let block = self.block_tokens;
        if !ids.is_empty() && (ids.len() - 1).saturating_mul(block) >= length {
            return Err(format!(
                "field hash_ids: {} ids of {block} tokens are more than the input_length {length}; give fewer, or --isl-block-size",
                ids.len()
            ));
        }
        let Some(fitter) = self.fitter else {
            return Ok(String::new());
        };
        let whole = (length / block).min(ids.len());
        let mut head = String::new();
        for &id in &ids[..whole] {
            head.push_str(self.block(fitter, id));
        }
        let mut generator = match ids.get(whole) {
            Some(&id) => numbered(self.block_seed, id),
            None => numbered(self.rest_seed, number),
        };
        let start = generator.random_range(0..fitter.pieces.len());
        let fitted = fitter.fit(&head, start, length);
        self.prompts += 1;
        self.missed += u64::from(fitted.off_by != 0);
        Ok(fitted.text)
    }

    fn block(&mut self, fitter: Fitter<'_>, id: u64) -> &str {
        if self.block_bytes > BLOCK_BYTES_MOST {
            self.blocks.clear();
            self.block_bytes = 0;
        }
        let (seed, tokens, bytes) = (self.block_seed, self.block_tokens, &mut self.block_bytes);
        self.blocks.entry(id).or_insert_with(|| {
            let start = numbered(seed, id).random_range(0..fitter.pieces.len());
            let text = fitter.fit("", start, tokens).text;
            *bytes += text.len();
            text
        })
    }
}
