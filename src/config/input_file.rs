//! `--input-file`: which file, and in which format.
//!
//! In: settings, and the first record of the file. Out: a [`FilePlan`]. Never: reads more of a file than its first record.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::Problems;
use super::format::{FileFormat, format_of, refusal};
use super::lex::Settings;
use crate::file::Trouble;

/// A file of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlan {
    /// The file.
    pub path: PathBuf,
    /// What its records are.
    pub format: FileFormat,
    /// Tokens that one hash id of a trace stands for, at least 1.
    pub block_tokens: u32,
    /// Questions of other categories are left out.
    pub category: Option<String>,
    /// Texts of a turn that is drawn from a pool, at least 1.
    pub prompt_batch: usize,
    /// Bad lines are left out and counted.
    pub skip_bad_lines: bool,
    /// A picture with an id goes out once a session.
    pub strip_images: bool,
    /// The file is the hub's, and its path is known once it was found in the cache or came from there.
    pub public: Option<PublicDataset>,
}

/// A file of a dataset of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicDataset {
    /// As `--public-dataset` calls it.
    pub name: &'static str,
    /// The dataset, as `ORG/NAME`.
    pub dataset: &'static str,
    /// Its place in the dataset.
    pub file: &'static str,
}

/// The one that is read.
const SHAREGPT: PublicDataset = PublicDataset {
    name: "sharegpt",
    dataset: "anon8231489123/ShareGPT_Vicuna_unfiltered",
    file: "ShareGPT_V3_unfiltered_cleaned_split.json",
};

impl FilePlan {
    /// The file at `path`, with the defaults of all flags.
    #[must_use]
    pub fn new(path: PathBuf, format: FileFormat) -> FilePlan {
        FilePlan {
            path,
            format,
            block_tokens: match format {
                FileFormat::BailianTrace => BAILIAN_BLOCK_TOKENS_DEFAULT,
                _ => BLOCK_TOKENS_DEFAULT,
            },
            category: None,
            prompt_batch: 1,
            skip_bad_lines: false,
            strip_images: false,
            public: None,
        }
    }
}

const KIND: &str = "--custom-dataset-type";
const BLOCK: &str = "--prompt-input-tokens-block-size";
const BATCH: &str = "--prompt-batch-size";
const SKIP: &str = "--skip-bad-lines";
const STRIP: &str = "--uuid-and-strip";
const PUBLIC: &str = "--public-dataset";
const BLOCK_TOKENS_DEFAULT: u32 = 512;
const BAILIAN_BLOCK_TOKENS_DEFAULT: u32 = 16;

/// Flags that need a file, checked where there is none.
pub(super) fn check_absent(settings: &Settings, problems: &mut Problems) {
    check_kind(settings, problems);
    if settings.given(KIND) {
        problems.push("--custom-dataset-type needs --input-file, which names the file to read");
    }
    if settings.given(SKIP) {
        problems.push("--skip-bad-lines needs --input-file, whose lines it speaks of");
    }
    if settings.given(STRIP) {
        problems.push("--uuid-and-strip needs --input-file, whose pictures it speaks of");
    }
    if settings.given(BLOCK) {
        problems.push(format!(
            "{} needs --input-file with a mooncake_trace or bailian_trace, whose hash ids it measures",
            settings.spelling(BLOCK)
        ));
    }
}

/// The public dataset that is asked for and that no file stands for.
pub(super) fn public(settings: &Settings, problems: &mut Problems) -> Option<FilePlan> {
    if !settings.given(PUBLIC) || settings.given("--input-file") {
        return None;
    }
    check_both(settings, problems);
    let mut file = FilePlan::new(PathBuf::from(SHAREGPT.file), FileFormat::ShareGpt);
    file.skip_bad_lines = settings.given(SKIP);
    file.public = Some(SHAREGPT);
    Some(file)
}

fn check_both(settings: &Settings, problems: &mut Problems) {
    if settings.given(PUBLIC) && settings.given(KIND) {
        problems.push(
            "--public-dataset and --custom-dataset-type exclude each other; leave one of them out",
        );
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
    let public = settings.given(PUBLIC).then_some(FileFormat::ShareGpt);
    check_both(settings, problems);
    let named = settings.choice(KIND).and_then(FileFormat::named);
    let named = named.or(public);
    let (found, timed) = first_record(&path, settings.given(KIND) || public.is_some())
        .unwrap_or_else(|sentence| {
            problems.push(format!(
                "--input-file {:?} {sentence}",
                path.display().to_string()
            ));
            (FileFormat::SingleTurn, false)
        });
    let promoted = timed && named.is_some_and(FileFormat::is_trace);
    let mut file = FilePlan::new(path, named.unwrap_or(found));
    file.category = settings.choice(KIND).and_then(category);
    file.prompt_batch = settings.size(BATCH).unwrap_or(1).max(1);
    file.skip_bad_lines = settings.given(SKIP);
    file.strip_images = settings.given(STRIP);
    check_pool(settings, &file, problems);
    if file.strip_images && file.format != FileFormat::SingleTurn {
        problems.push(format!(
            "--uuid-and-strip needs a single_turn file, and {} is another; give the turns of a session as lines with one session_id",
            file.path.display()
        ));
    }
    if let Some(tokens) = settings.integer(BLOCK) {
        file.block_tokens = tokens.try_into().unwrap_or(u32::MAX);
    }
    (file, promoted)
}

fn check_kind(settings: &Settings, problems: &mut Problems) {
    let kind = settings.choice(KIND);
    if let Some(other) = kind.filter(|kind| FileFormat::named(kind).is_none()) {
        problems.push(format!("{KIND} {other}: {}", refusal(other)));
    }
}

/// The category at the end of a name such as `speed_bench_math` or `speed_bench_throughput_1k_low_entropy`; a whole split has none.
fn category(name: &str) -> Option<String> {
    let suffix = name.strip_prefix("speed_bench_")?;
    let category = match suffix.strip_prefix("throughput_") {
        Some(split) => split.split_once('_').map_or("", |(_, category)| category),
        None if suffix == "qualitative" => "",
        None => suffix,
    };
    (!category.is_empty()).then(|| category.to_owned())
}

/// Texts are drawn in batches only from one file of a pool.
fn check_pool(settings: &Settings, file: &FilePlan, problems: &mut Problems) {
    if settings.given(BATCH) && (file.format != FileFormat::RandomPool || file.path.is_dir()) {
        problems.push(format!(
            "{} with --input-file draws texts from a random_pool in one file; leave it out for anything else",
            settings.spelling(BATCH)
        ));
    }
}

/// The format that the first record of a file shows, and whether it has a timestamp. `named`: the format is known already, and a file
/// that shows none is not wrong.
fn first_record(path: &Path, named: bool) -> Result<(FileFormat, bool), String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let metadata = fs::metadata(path).map_err(unread)?;
    if !metadata.is_file() && !metadata.is_dir() {
        // A pipe can be read only once, and that is the dataset's to do.
        return Ok((FileFormat::SingleTurn, false));
    }
    let files = crate::file::files(path).map_err(unread)?;
    let Some(file) = files.first() else {
        return Err("is a folder without files".to_owned());
    };
    let first = match crate::file::first(file) {
        Ok(Some(record)) => record,
        Err(Trouble::Unreadable(error)) => return Err(unread(error)),
        // What is wrong is told with its line when the file is read.
        _ if named => return Ok((FileFormat::SingleTurn, false)),
        Ok(None) => {
            return Err("is empty; give a JSONL file with one JSON object in each line".to_owned());
        }
        Err(Trouble::Broken { line, reason } | Trouble::Record { line, reason }) => {
            return Err(format!(
                "cannot be told to be of any format: line {line}: {reason}; say which it has with --custom-dataset-type"
            ));
        }
    };
    let timed = first.get("timestamp").is_some_and(|value| !value.is_null());
    let found = match format_of(&first) {
        // A folder of requests is a pool.
        Ok(FileFormat::SingleTurn) if metadata.is_dir() => Ok(FileFormat::RandomPool),
        found => found,
    };
    match found {
        Ok(format) => Ok((format, timed)),
        Err(_) if named => Ok((FileFormat::SingleTurn, timed)),
        Err(sentence) => Err(sentence),
    }
}
