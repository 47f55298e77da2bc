//! Traces: recorded loads of lengths, shared beginnings and times.
//!
//! In: a file, the plan, a tokenizer. Out: a corpus whose prompts have the lengths and the shared beginnings that the file says, or that it is
//! reshaped to. Never: a prompt of another length without a note; a text for a line that is left out.

mod bailian;
mod blocks;
mod burst_gpt;
mod mooncake;
mod synthesis;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::lines::{self, shown};
use super::{Conversation, Corpus, DatasetError, Turn, fixed_schedule};
use crate::config::{DatasetSource, Plan, TracePlan};
use crate::tokenizer::Tokenizer;
use blocks::Blocks;

/// Longest prompt of a line, as for made-up prompts.
const INPUT_TOKENS_MOST: u64 = 1 << 24;

/// What a line says of a prompt instead of its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// The line, which is its turn's [`Turn::line`].
    line: u64,
    /// Length; at least 1.
    tokens: u32,
    /// What its beginning is; each stands for a block of tokens.
    ids: Vec<u64>,
}

impl Asked {
    /// What is wrong with the ids; `sizes` are those of all ids so far.
    fn misfit(&self, block: u32, sizes: &mut HashMap<u64, u32>) -> Option<String> {
        let mut left = self.tokens;
        for &id in &self.ids {
            if left == 0 {
                return Some(format!(
                    "{} ids of {block} tokens are more than the input_length {}; give fewer, or --isl-block-size",
                    self.ids.len(),
                    self.tokens
                ));
            }
            let size = left.min(block);
            left -= size;
            let known = *sizes.entry(id).or_insert(size);
            if known != size {
                return Some(format!(
                    "{id} stands for {size} tokens here and for {known} in an earlier line; give each length an id of its own, or --isl-block-size"
                ));
            }
        }
        None
    }
}

/// What is kept of a trace's lines beside the conversations that they make.
#[derive(Default)]
struct Trace {
    /// Prompts to be made, by ascending line. Their turns have no text yet.
    asked: Vec<Asked>,
    /// Who follows whom, by ascending line; empty where sessions are named.
    links: Vec<bailian::Link>,
    notes: Vec<String>,
}

/// What a prompt is made with.
struct Making<'a> {
    plan: &'a Plan,
    path: &'a Path,
    /// Tokens that a hash id stands for.
    block_tokens: u32,
    /// Tells the ids of one trace from those of another.
    file_hash: String,
    tokenizer: &'a dyn Tokenizer,
    seed: u64,
}

/// Reads the trace that `source` names; one of another kind is empty.
pub(super) fn read(
    plan: &Plan,
    source: &DatasetSource,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let (path, block_tokens) = match source {
        DatasetSource::MooncakeTrace { path, block_tokens }
        | DatasetSource::BailianTrace { path, block_tokens } => (path, *block_tokens),
        DatasetSource::BurstGptTrace { path } => (path, 1),
        _ => return Err(DatasetError::NoEntries),
    };
    let bytes = lines::bytes_of(path)?;
    let mut trace = Trace::default();
    let (mut corpus, mut notes) = match source {
        DatasetSource::BurstGptTrace { .. } => trace.rows(&bytes, path, seed),
        DatasetSource::BailianTrace { .. } => {
            lines::parse(&bytes, path, seed, bailian::KNOWN, |fields, line| {
                trace.bailian(fields, line)
            })
        }
        _ => lines::parse(&bytes, path, seed, mooncake::KNOWN, |fields, line| {
            trace.mooncake(fields, line)
        }),
    }?;
    let file_hash = file_hash(&bytes);
    drop(bytes);
    let making = Making {
        plan,
        path,
        block_tokens,
        file_hash,
        tokenizer,
        seed,
    };
    notes.extend(trace.finish(&making, &mut corpus.conversations)?);
    notes.extend(lines::complete(plan, path, &mut corpus, seed));
    Ok((corpus, notes))
}

/// The first 16 hexadecimal digits of SHA-256 of the file: equal ids of two files are not the same text.
fn file_hash(bytes: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let hex = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    hex.collect()
}

impl Trace {
    /// Called when all lines are read, with the conversations that they make: leaves out, joins, reshapes, and makes the prompts. Returns what
    /// the user should see.
    fn finish(
        mut self,
        making: &Making<'_>,
        conversations: &mut Vec<Conversation>,
    ) -> Result<Vec<String>, DatasetError> {
        let dataset = &making.plan.dataset;
        mooncake::check_sessions(making.path, conversations)?;
        if let Some(schedule) = dataset.fixed_schedule {
            fixed_schedule::drop_outside(schedule, conversations);
        }
        self.drop_longer(dataset.trace.input_tokens_most, conversations);
        if conversations.is_empty() && dataset.fixed_schedule.is_none() {
            return Err(DatasetError::Empty(making.path.to_owned()));
        }
        self.chain(conversations);
        self.keep_asked(conversations);
        scale_outputs(&dataset.trace, conversations);
        self.ignore_times(making.plan, conversations);
        let (block, seed) = (making.block_tokens, making.seed);
        self.notes.extend(synthesis::reshape(
            &dataset.trace,
            block,
            seed,
            &mut self.asked,
        ));
        self.check_blocks(making)?;
        if !self.asked.is_empty() {
            self.write(making, conversations)?;
        }
        Ok(self.notes)
    }

    /// Leaves out lines whose prompt is longer than `most`.
    fn drop_longer(&mut self, most: Option<u32>, conversations: &mut Vec<Conversation>) {
        let Some(most) = most else { return };
        let longer = self.asked.iter().filter(|asked| asked.tokens > most);
        let lines: HashSet<u64> = longer.map(|asked| asked.line).collect();
        if lines.is_empty() {
            return;
        }
        for conversation in &mut *conversations {
            conversation
                .turns
                .retain(|turn| !lines.contains(&turn.line));
        }
        conversations.retain(|c| !c.turns.is_empty());
        self.notes.push(format!(
            "{} lines of the trace were left out: their input_length is over --synthesis-max-isl {most}",
            lines.len()
        ));
    }

    /// Forgets the prompts of lines that were left out.
    fn keep_asked(&mut self, conversations: &[Conversation]) {
        let turns = conversations.iter().flat_map(|c| &c.turns);
        let lines: HashSet<u64> = turns.map(|turn| turn.line).collect();
        self.asked.retain(|asked| lines.contains(&asked.line));
    }

    fn ignore_times(&mut self, plan: &Plan, conversations: &mut [Conversation]) {
        if !plan.dataset.trace.ignore_delays {
            return;
        }
        if plan.dataset.fixed_schedule.is_some() {
            self.notes.push(
                "--ignore-trace-delays has no effect: the trace's timestamps are followed; --no-fixed-schedule leaves them aside".to_owned(),
            );
            return;
        }
        for turn in turns(conversations) {
            turn.timestamp_ms = None;
            turn.delay_ms = 0.0;
        }
    }

    /// All but a line's last block are whole, and an id stands for one text of one length, as in AIPerf: else the trace is wrong, or the size of a
    /// block is.
    fn check_blocks(&self, making: &Making<'_>) -> Result<(), DatasetError> {
        let block = making.block_tokens;
        let mut wrong = Vec::new();
        let mut sizes: HashMap<u64, u32> = HashMap::new();
        for asked in &self.asked {
            if let Some(sentence) = asked.misfit(block, &mut sizes) {
                let path = making.path.display();
                wrong.push(format!("{path}:{}: field hash_ids: {sentence}", asked.line));
            }
            if wrong.len() == lines::BAD_LINES_MAX {
                break;
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(DatasetError::Lines(wrong))
        }
    }

    /// Gives the turns their texts.
    fn write(
        &mut self,
        making: &Making<'_>,
        conversations: &mut [Conversation],
    ) -> Result<(), DatasetError> {
        let name = making.tokenizer.name();
        if making.tokenizer.count("The quick brown fox") == 0 {
            return Err(DatasetError::UnusableTokenizer(name.to_owned()));
        }
        let source = blocks::Source::new(making.tokenizer, making.seed);
        let mut blocks = Blocks::new(&source, making.block_tokens, making.seed, &making.file_hash);
        let mut turns: Vec<&mut Turn> = turns(conversations).collect();
        turns.sort_unstable_by_key(|turn| turn.line);
        let mut rest = self.asked.iter().peekable();
        let mut work = Vec::with_capacity(self.asked.len());
        for turn in turns {
            if let Some(asked) = rest.next_if(|asked| asked.line == turn.line) {
                work.push((turn, asked));
            }
        }
        let prompts = work.len();
        let missed = blocks.write_all(work);
        if missed > 0 {
            self.notes.push(format!(
                "{missed} of {prompts} prompts could not be made to the exact length with the tokenizer {name}"
            ));
        }
        Ok(())
    }
}

fn turns(conversations: &mut [Conversation]) -> impl Iterator<Item = &mut Turn> {
    let conversations = conversations.iter_mut();
    conversations.flat_map(|conversation| &mut conversation.turns)
}

/// AIPerf rounds halves to the even number and sends at least one token.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn scale_outputs(trace: &TracePlan, conversations: &mut [Conversation]) {
    let (factor, most) = (trace.output_length, trace.output_tokens_most);
    for tokens in turns(conversations).filter_map(|turn| turn.max_tokens.as_mut()) {
        if factor != 1.0 {
            *tokens = ((f64::from(*tokens) * factor).round_ties_even() as u32).max(1);
        }
        *tokens = (*tokens).min(most.unwrap_or(u32::MAX));
    }
}

/// Takes `input_length` out.
fn input_length(fields: &mut Map<String, Value>) -> Result<Option<u32>, String> {
    let Some(value) = fields.remove("input_length") else {
        return Ok(None);
    };
    let whole = value
        .as_u64()
        .filter(|n| (1..=INPUT_TOKENS_MOST).contains(n));
    match whole.and_then(|n| u32::try_from(n).ok()) {
        Some(tokens) => Ok(Some(tokens)),
        None => Err(format!(
            "field input_length: {} is not a whole number from 1 to {INPUT_TOKENS_MOST}",
            shown(&value)
        )),
    }
}

/// Takes `hash_ids` out. Negative ids are as good as others.
fn hash_ids(fields: &mut Map<String, Value>) -> Result<Option<Vec<u64>>, String> {
    let Some(value) = fields.remove("hash_ids") else {
        return Ok(None);
    };
    let id = |id: &Value| id.as_u64().or_else(|| id.as_i64().map(i64::cast_unsigned));
    let ids = value
        .as_array()
        .and_then(|list| list.iter().map(id).collect());
    match ids {
        Some(ids) => Ok(Some(ids)),
        None => Err(format!(
            "field hash_ids: {} is not a list of whole numbers",
            shown(&value)
        )),
    }
}
