//! What the formats of dataset files have in common, and which file reads which.
//!
//! In: a file, and what the plan says of it. Out: a corpus, or every bad record with its line. Never: a format's own fields.

use std::path::Path;

use super::inputs_json::InputsJson;
use super::lines::{self, Bad, Entry, Reading};
use super::multi_turn::MultiTurn;
use super::prompts::Prompts;
use super::random_pool::RandomPool;
use super::raw_payload::RawPayload;
use super::sharegpt::ShareGpt;
use super::single_turn::SingleTurn;
use super::speed_bench::SpeedBench;
use super::trace::{Ground, Trace};
use super::{Conversation, Corpus, DatasetError};
use crate::config::{FileFormat, FilePlan, FixedSchedule, Plan, TracePlan};
use crate::file::{self, Cut, Record, Records, Trouble};
use crate::tokenizer::Tokenizer;

/// A format of dataset files: what it makes of one record after the other.
pub(super) trait Format {
    /// How its files are cut into records.
    fn cut(&self) -> Cut {
        Cut::Json
    }

    /// What may stand in a record, for the note on fields that are not used.
    fn known(&self) -> &'static str;

    /// The conversation, or the part of one, that a record stands for; `None` when the format keeps it for itself or leaves it out.
    ///
    /// # Errors
    /// A sentence that names the field and what would be right; the place is put before it.
    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String>;

    /// What is to be done where lines of one session build their history in different ways.
    fn one_way(&self) -> &'static str {
        "give both the same context_mode"
    }

    /// Bad records are left out and counted even where the user does not ask for it.
    fn skips(&self) -> bool {
        false
    }

    /// The next record is that of request `number` of the file, from 0; for [`Purpose::Make`].
    fn go_to(&mut self, _number: u64) {}

    /// What the user should know of all that was made so far; for [`Purpose::Make`].
    fn note(&self) -> Option<String> {
        None
    }

    /// Called when all records are read, with the conversations that their entries make, and for records that turn out to be bad. Returns what
    /// the user should see.
    fn finish(
        &mut self,
        _conversations: &mut Vec<Conversation>,
        _bad: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        Ok(Vec::new())
    }
}

/// What records are read for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// All of them, and what they stand for is made at the end.
    Load,
    /// Each alone, to say whether it is right; nothing is made.
    Check,
    /// Some of them, each alone and in any order, as if all were loaded. What prompts are made from, where there are any.
    Make(Option<&'a Ground>),
}

/// What a format may need beside the records.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) purpose: Purpose<'a>,
    /// The plan says how long replies are.
    pub(super) asked_output: bool,
    /// Bodies have a place for a system message.
    pub(super) system_slot: bool,
    /// Pictures may be named by ids.
    pub(super) image_ids: bool,
    /// How a trace is reshaped.
    pub(super) trace: TracePlan,
    /// Its own times are followed.
    pub(super) fixed_schedule: Option<FixedSchedule>,
    /// Conversations of a dataset that has no number of its own.
    pub(super) entries: usize,
    pub(super) file: &'a FilePlan,
    pub(super) tokenizer: &'a dyn Tokenizer,
    pub(super) seed: u64,
}

impl<'a> Setting<'a> {
    /// What `plan` says.
    pub(super) fn of(
        plan: &Plan,
        file: &'a FilePlan,
        tokenizer: &'a dyn Tokenizer,
        seed: u64,
    ) -> Setting<'a> {
        Setting {
            purpose: Purpose::Load,
            asked_output: plan.dataset.output_tokens.is_some(),
            system_slot: plan.endpoint.kind.facts().system_slot,
            image_ids: plan.endpoint.kind.facts().image_ids,
            trace: plan.dataset.trace,
            fixed_schedule: plan.dataset.fixed_schedule,
            entries: plan.dataset.entries,
            file,
            tokenizer,
            seed,
        }
    }
}

/// What reads a file's records. One line for each format; its file has the rest.
pub(super) fn open<'a>(setting: Setting<'a>) -> Result<Box<dyn Format + 'a>, DatasetError> {
    Ok(match setting.file.format {
        FileFormat::SingleTurn => Box::new(SingleTurn::new(setting)),
        FileFormat::MultiTurn => Box::new(MultiTurn::new(setting)),
        FileFormat::RandomPool => Box::new(RandomPool::new(setting)),
        FileFormat::MooncakeTrace | FileFormat::BailianTrace | FileFormat::BurstGptTrace => {
            Box::new(Trace::new(setting)?)
        }
        FileFormat::RawPayload => Box::new(RawPayload::new(setting)),
        FileFormat::InputsJson => Box::new(InputsJson),
        FileFormat::Prompts => Box::new(Prompts),
        FileFormat::ShareGpt => Box::new(ShareGpt::new(setting)),
        FileFormat::SpeedBench => Box::new(SpeedBench::new(setting)),
    })
}

/// Reads a file, or the files of a folder, whole.
pub(super) fn read(
    plan: &Plan,
    file: &FilePlan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let mut format = open(Setting::of(plan, file, tokenizer, seed))?;
    let unreadable = |source| broken(Trouble::Unreadable(source), &file.path);
    let mut reading = Reading::new(file.skip_bad_lines || format.skips(), seed);
    for path in file::files(&file.path).map_err(unreadable)? {
        let records = Records::open(&path, format.cut());
        let records = records.map_err(|trouble| broken(trouble, &path))?;
        parse(records, &path, &mut reading, &mut *format)?;
    }
    let (mut corpus, mut notes) = reading.finish(&file.path, &mut *format)?;
    notes.extend(lines::complete(plan, &file.path, &mut corpus, seed));
    Ok((corpus, notes))
}

/// What `bytes` hold in the format of `file`, each conversation as text, with what the user should see of them; for fuzzers, which have
/// no file. Of the plan only the file counts.
pub fn entries(
    file: &FilePlan,
    bytes: Vec<u8>,
    tokenizer: &dyn Tokenizer,
) -> Result<Vec<String>, DatasetError> {
    let mut format = open(Setting {
        purpose: Purpose::Load,
        asked_output: false,
        system_slot: true,
        image_ids: true,
        trace: TracePlan::default(),
        fixed_schedule: None,
        entries: 3,
        file,
        tokenizer,
        seed: 1,
    })?;
    let records = Records::of(Box::new(std::io::Cursor::new(bytes)), format.cut());
    let mut reading = Reading::new(file.skip_bad_lines, 1);
    parse(records, &file.path, &mut reading, &mut *format)?;
    let (corpus, notes) = reading.finish(&file.path, &mut *format)?;
    let conversations = corpus.conversations.iter();
    Ok(conversations
        .map(|conversation| format!("{conversation:?}"))
        .chain(notes)
        .collect())
}

/// Reads all records of one file. `path` is for messages only. Turns have no model yet.
pub(super) fn parse(
    records: Records,
    path: &Path,
    reading: &mut Reading,
    format: &mut dyn Format,
) -> Result<(), DatasetError> {
    for record in records {
        let (line, entry) = match record {
            Ok(record) => (record.line, format.entry(record)),
            Err(Trouble::Record { line, reason }) => (line, Err(reason)),
            Err(trouble) => return Err(broken(trouble, path)),
        };
        match entry {
            Ok(Some(entry)) if reading.differs(&entry) => {
                reading.refuse(&other_way(path, line, format.one_way()));
            }
            Ok(Some(entry)) => reading.add(entry, path, line),
            Ok(None) => {}
            Err(reason) => reading.refuse(&format!("{}:{line}: {reason}", path.display())),
        }
    }
    Ok(())
}

/// What is said of a line that builds its session's history in another way than the lines before; `one_way` is what would be right.
pub(super) fn other_way(path: &Path, line: u64, one_way: &str) -> String {
    let path = path.display();
    format!(
        "{path}:{line}: field session_id: an earlier line of this session builds its history in another way; {one_way}"
    )
}

/// The error of a file that cannot be read to its end.
pub(super) fn broken(trouble: Trouble, path: &Path) -> DatasetError {
    match trouble {
        Trouble::Unreadable(source) => DatasetError::Unreadable {
            path: path.to_owned(),
            source,
        },
        Trouble::Broken { line, reason } | Trouble::Record { line, reason } => DatasetError::Lines(
            vec![format!("--input-file {}:{line}: {reason}", path.display())],
        ),
    }
}
