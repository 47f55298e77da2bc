//! `--input-file`: which file, and in which format.
//!
//! In: settings, and the first record of the file. Out: a [`FilePlan`]. Never: reads more of a file than its first record.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::Problems;
use super::format::{FileFormat, format_of, names, refusal};
use super::lex::Settings;
use crate::file::{Cut, Records, Trouble};

/// A file of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlan {
    /// The file.
    pub path: PathBuf,
    /// What its records are.
    pub format: FileFormat,
    /// Tokens that one hash id of a trace stands for, at least 1.
    pub block_tokens: u32,
}

impl FilePlan {
    /// The file at `path`, with the defaults of all flags.
    #[must_use]
    pub fn new(path: PathBuf, format: FileFormat) -> FilePlan {
        FilePlan {
            path,
            format,
            block_tokens: BLOCK_TOKENS_DEFAULT,
        }
    }
}

const KIND: &str = "--custom-dataset-type";
const BLOCK: &str = "--prompt-input-tokens-block-size";
const BLOCK_TOKENS_DEFAULT: u32 = 512;

/// Flags that need a file, checked where there is none.
pub(super) fn check_absent(settings: &Settings, problems: &mut Problems) {
    check_kind(settings, problems);
    if settings.given(KIND) {
        problems.push("--custom-dataset-type needs --input-file, which names the file to read");
    }
    if settings.given(BLOCK) {
        problems.push(format!(
            "{} needs --input-file with a mooncake_trace, whose hash ids it measures",
            settings.spelling(BLOCK)
        ));
    }
}

/// The file at `path`, and whether it is a trace whose timestamps are followed unasked: one that is named as such by
/// `--custom-dataset-type` and whose first record has one.
pub(super) fn file(
    settings: &Settings,
    path: PathBuf,
    problems: &mut Problems,
) -> (FilePlan, bool) {
    check_kind(settings, problems);
    let named = settings.choice(KIND).and_then(FileFormat::named);
    let (found, timed) = first_record(&path, settings.given(KIND)).unwrap_or_else(|sentence| {
        problems.push(format!(
            "--input-file {:?} {sentence}",
            path.display().to_string()
        ));
        (FileFormat::SingleTurn, false)
    });
    let promoted = timed && named.is_some_and(FileFormat::is_trace);
    let mut file = FilePlan::new(path, named.unwrap_or(found));
    if let Some(tokens) = settings.integer(BLOCK) {
        file.block_tokens = tokens.try_into().unwrap_or(u32::MAX);
    }
    (file, promoted)
}

fn check_kind(settings: &Settings, problems: &mut Problems) {
    let kind = settings.choice(KIND);
    if let Some(other) = kind.filter(|kind| FileFormat::named(kind).is_none()) {
        problems.push(format!("{KIND} {other} {}", refusal(other)));
    }
}

/// The format that the first record of a file shows, and whether it has a timestamp. `named`: the format is known already, and a file
/// that shows none is not wrong.
fn first_record(path: &Path, named: bool) -> Result<(FileFormat, bool), String> {
    let unread = |e: std::io::Error| format!("cannot be read: {e}");
    let metadata = fs::metadata(path).map_err(unread)?;
    if metadata.is_dir() {
        return Err(format!(
            "is a folder, which tokenring does not read yet; give a file: {}",
            names()
        ));
    }
    if !metadata.is_file() {
        // A pipe can be read only once, and that is the dataset's to do.
        return Ok((FileFormat::SingleTurn, false));
    }
    let first = match Records::open(path, Cut::Json).map(|mut records| records.next()) {
        Ok(Some(Ok(record))) => record,
        Err(Trouble::Unreadable(error)) | Ok(Some(Err(Trouble::Unreadable(error)))) => {
            return Err(unread(error));
        }
        // What is wrong is told with its line when the file is read.
        _ if named => return Ok((FileFormat::SingleTurn, false)),
        Ok(None) => {
            return Err("is empty; give a JSONL file with one JSON object in each line".to_owned());
        }
        Ok(Some(Err(Trouble::Record { .. }))) => return Err(NO_OBJECT.to_owned()),
        Err(trouble) | Ok(Some(Err(trouble))) => return Err(trouble.to_string()),
    };
    let timed = first.fields.contains_key("timestamp");
    match format_of(&first.fields) {
        Ok(format) => Ok((format, timed)),
        Err(_) if named => Ok((FileFormat::SingleTurn, timed)),
        Err(sentence) => Err(sentence),
    }
}

const NO_OBJECT: &str = "does not begin with a JSON object in one line; give a single_turn JSONL file, or say which format it has with \
                         --custom-dataset-type";
