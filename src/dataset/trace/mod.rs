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
use std::io;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::format::{Format, Purpose, Setting, broken};
use super::lines::{Bad, Entry, shown};
use super::pieces::Pieces;
use super::{Conversation, DatasetError, Turn, fixed_schedule};
use crate::config::{FileFormat, TracePlan};
use crate::file::{self, Cut, Record};
use crate::tokenizer::Tokenizer;
use blocks::Blocks;
pub(super) use mooncake::{Form, mixed};

/// Longest prompt of a line, as for made-up prompts.
const INPUT_TOKENS_MOST: u64 = 1 << 24;

/// What a line says of a prompt instead of its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// The request, which is its turn's [`Turn::record`].
    record: u64,
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

/// What prompts are made from, whoever makes them.
pub(super) struct Ground {
    /// What they are cut from.
    pieces: Pieces,
    /// Tells the ids of one trace from those of another.
    file_hash: String,
}

impl Ground {
    /// Refuses a tokenizer that no prompt can be made with.
    pub(super) fn new(setting: &Setting<'_>) -> Result<Ground, DatasetError> {
        let tokenizer = setting.tokenizer;
        if tokenizer.count("The quick brown fox") == 0 {
            return Err(DatasetError::UnusableTokenizer(tokenizer.name().to_owned()));
        }
        Ok(Ground {
            pieces: blocks::source(tokenizer, setting.seed),
            file_hash: file_hash(setting)?,
        })
    }

    fn blocks<'a>(&'a self, setting: &Setting<'a>) -> Blocks<'a> {
        let (block, tokenizer) = (setting.file.block_tokens, setting.tokenizer);
        Blocks::new(
            &self.pieces,
            tokenizer,
            block,
            setting.seed,
            &self.file_hash,
        )
    }
}

/// The formats.
pub(super) struct Trace<'a> {
    setting: Setting<'a>,
    /// What makes a prompt at once, where that is asked for.
    blocks: Option<Blocks<'a>>,
    /// Prompts made at once, and those that missed their length.
    made: u64,
    missed: u64,
    /// Requests so far.
    records: u64,
    /// Prompts to be made, by ascending request. Their turns have no text yet.
    asked: Vec<Asked>,
    /// Who follows whom, by ascending request; empty where sessions are named.
    links: Vec<bailian::Link>,
    notes: Vec<String>,
}

impl<'a> Trace<'a> {
    /// A folder of traces has no one line of time, and is refused.
    pub(super) fn new(setting: Setting<'a>) -> Result<Trace<'a>, DatasetError> {
        let path = &setting.file.path;
        if path.is_dir() {
            return Err(DatasetError::Lines(vec![format!(
                "--input-file {}: is a folder, but a {} is one file",
                path.display(),
                setting.file.format.name()
            )]));
        }
        let blocks = match setting.purpose {
            Purpose::Make(Some(ground)) => Some(ground.blocks(&setting)),
            _ => None,
        };
        Ok(Trace {
            setting,
            blocks,
            made: 0,
            missed: 0,
            records: 0,
            asked: Vec::new(),
            links: Vec::new(),
            notes: Vec::new(),
        })
    }
}

impl Format for Trace<'_> {
    fn cut(&self) -> Cut {
        match self.setting.file.format {
            FileFormat::BurstGptTrace => Cut::Csv,
            _ => Cut::Json,
        }
    }

    fn known(&self) -> &'static str {
        match self.setting.file.format {
            FileFormat::BailianTrace => bailian::KNOWN,
            _ => mooncake::KNOWN,
        }
    }

    fn one_way(&self) -> &'static str {
        "give each session one form of content"
    }

    /// As in AIPerf, bad rows of a `burst_gpt_trace` are never an error.
    fn skips(&self) -> bool {
        self.setting.file.format == FileFormat::BurstGptTrace
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let (fields, line) = (record.fields, record.line);
        let mut entry = match self.setting.file.format {
            FileFormat::BurstGptTrace => self.burst_gpt(&fields, line),
            FileFormat::BailianTrace => self.bailian(fields, line),
            _ => self.mooncake(fields, line),
        }?;
        for turn in &mut entry.turns {
            turn.record = self.records;
            if matches!(self.setting.purpose, Purpose::Make(_)) {
                scale_output(&self.setting.trace, turn);
            }
        }
        self.records += 1;
        Ok(Some(entry))
    }

    fn go_to(&mut self, number: u64) {
        self.records = number;
    }

    fn note(&self) -> Option<String> {
        missed_note(self.missed, self.made, self.setting.tokenizer)
    }

    /// Leaves out, joins, reshapes, and makes the prompts.
    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        bad: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        let dataset = self.setting;
        let file = dataset.file;
        mooncake::check_sessions(&file.path, conversations, bad);
        if let Some(schedule) = dataset.fixed_schedule
            && !conversations.is_empty()
        {
            fixed_schedule::check_times(Some(&file.path), conversations)?;
            fixed_schedule::drop_outside(schedule, conversations);
            if conversations.is_empty() {
                return Err(fixed_schedule::nothing_within(schedule, Some(&file.path)));
            }
        }
        self.drop_longer(conversations)?;
        self.chain(conversations);
        self.keep_asked(conversations);
        turns(conversations).for_each(|turn| scale_output(&dataset.trace, turn));
        self.ignore_times(conversations);
        self.notes.extend(synthesis::reshape(
            &dataset.trace,
            file.block_tokens,
            self.setting.seed,
            &mut self.asked,
        ));
        self.check_blocks(conversations, bad);
        if !self.asked.is_empty() {
            self.write(conversations)?;
        }
        Ok(std::mem::take(&mut self.notes))
    }
}

/// The first 16 hexadecimal digits of SHA-256 of the file's text, packed or not: equal ids of two files are not the same text. Those of no text
/// for what can be read only once.
fn file_hash(setting: &Setting<'_>) -> Result<String, DatasetError> {
    let path = &setting.file.path;
    let mut digest = Sha256::new();
    if path.is_file() {
        let mut text = file::text(path).map_err(|trouble| broken(trouble, path))?;
        io::copy(&mut text, &mut digest).map_err(|source| DatasetError::Unreadable {
            path: path.clone(),
            source,
        })?;
    }
    let digest: [u8; 32] = digest.finalize().into();
    let hex = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    Ok(hex.collect())
}

impl Trace<'_> {
    /// The prompt of `turn` is asked for: remembers it, or makes it now.
    fn ask(&mut self, asked: Asked, turn: &mut Turn) -> Result<(), String> {
        match self.setting.purpose {
            Purpose::Load => self.asked.push(asked),
            Purpose::Check => {
                // Whether an id has one length in all lines shows only where all are loaded.
                let block = self.setting.file.block_tokens;
                if let Some(sentence) = asked.misfit(block, &mut HashMap::new()) {
                    return Err(format!("field hash_ids: {sentence}"));
                }
            }
            Purpose::Make(_) => {
                if let Some(blocks) = &mut self.blocks {
                    let fitted = blocks.one(&asked);
                    self.made += 1;
                    self.missed += u64::from(fitted.off_by != 0);
                    turn.texts = vec![fitted.text];
                }
            }
        }
        Ok(())
    }

    /// Leaves out lines whose prompt is longer than the plan allows.
    fn drop_longer(&mut self, conversations: &mut Vec<Conversation>) -> Result<(), DatasetError> {
        let Some(most) = self.setting.trace.input_tokens_most else {
            return Ok(());
        };
        let longer = self.asked.iter().filter(|asked| asked.tokens > most);
        let records: HashSet<u64> = longer.map(|asked| asked.record).collect();
        if records.is_empty() {
            return Ok(());
        }
        let count = leave_out(&records, conversations);
        if count == 0 {
            return Ok(());
        }
        let note = format!(
            "{count} lines of the trace were left out: their input_length is over --synthesis-max-isl {most}"
        );
        if conversations.is_empty() {
            return Err(DatasetError::Lines(vec![format!("{note}; none is left")]));
        }
        self.notes.push(note);
        Ok(())
    }

    /// Forgets the prompts of lines that were left out.
    fn keep_asked(&mut self, conversations: &[Conversation]) {
        let turns = conversations.iter().flat_map(|c| &c.turns);
        let records: HashSet<u64> = turns.map(|turn| turn.record).collect();
        self.asked.retain(|asked| records.contains(&asked.record));
    }

    fn ignore_times(&mut self, conversations: &mut [Conversation]) {
        let dataset = self.setting;
        if !dataset.trace.ignore_delays {
            return;
        }
        if dataset.fixed_schedule.is_some() {
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
    fn check_blocks(&mut self, conversations: &mut Vec<Conversation>, bad: &mut Bad) {
        let file = self.setting.file;
        let mut sizes: HashMap<u64, u32> = HashMap::new();
        let mut wrong = HashSet::new();
        self.asked.retain(|asked| {
            let misfit = asked.misfit(file.block_tokens, &mut sizes);
            if let Some(sentence) = &misfit {
                wrong.insert(asked.record);
                let (path, line) = (file.path.display(), asked.line);
                bad.refuse(&format!("{path}:{line}: field hash_ids: {sentence}"));
            }
            misfit.is_none()
        });
        if !wrong.is_empty() {
            leave_out(&wrong, conversations);
        }
    }

    /// Gives the turns their texts.
    fn write(&mut self, conversations: &mut [Conversation]) -> Result<(), DatasetError> {
        let ground = Ground::new(&self.setting)?;
        let mut blocks = ground.blocks(&self.setting);
        let mut turns: Vec<&mut Turn> = turns(conversations).collect();
        turns.sort_unstable_by_key(|turn| turn.record);
        let mut rest = self.asked.iter().peekable();
        let mut work = Vec::with_capacity(self.asked.len());
        for turn in turns {
            if let Some(asked) = rest.next_if(|asked| asked.record == turn.record) {
                work.push((turn, asked));
            }
        }
        let prompts = work.len() as u64;
        let missed = blocks.write_all(work);
        self.notes
            .extend(missed_note(missed, prompts, self.setting.tokenizer));
        Ok(())
    }
}

fn missed_note(missed: u64, prompts: u64, tokenizer: &dyn Tokenizer) -> Option<String> {
    (missed > 0).then(|| {
        format!(
            "{missed} of {prompts} prompts could not be made to the exact length with the tokenizer {}",
            tokenizer.name()
        )
    })
}

/// Drops the turns of these requests, and conversations that have none left. How many turns.
fn leave_out(records: &HashSet<u64>, conversations: &mut Vec<Conversation>) -> usize {
    let before = conversations.iter().map(|c| c.turns.len()).sum::<usize>();
    for conversation in &mut *conversations {
        conversation
            .turns
            .retain(|turn| !records.contains(&turn.record));
    }
    conversations.retain(|c| !c.turns.is_empty());
    before - conversations.iter().map(|c| c.turns.len()).sum::<usize>()
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
fn scale_output(trace: &TracePlan, turn: &mut Turn) {
    let (factor, most) = (trace.output_length, trace.output_tokens_most);
    if let Some(tokens) = &mut turn.max_tokens {
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
