//! Flags of prompts and files become a [`DatasetPlan`].
//!
//! In: settings, and the first line of a dataset file. Out: what is sent, as a plan. Never: reads a whole dataset.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::Problems;
use super::fixed_schedule::fixed_schedule;
use super::lengths;
use super::lex::Settings;
use super::plan::{
    CorpusKind, DatasetPlan, DatasetSource, EndpointKind, Length, Sampling, Streaming,
    SyntheticPlan,
};

/// Entries of a synthetic dataset when no flag gives a size.
const ENTRIES_DEFAULT: usize = 100;
/// Unique conversations that a request or session count asks for at most; a run may be longer than its dataset.
const ENTRIES_MOST: usize = 1 << 24;
/// Longest first line that is looked at to tell a file's format.
const LINE_BYTES_MOST: u64 = 16 << 20;
/// Longest system prompt file.
const SYSTEM_PROMPT_BYTES_MOST: u64 = 64 << 20;

/// Flags that shape made-up prompts and so contradict a file.
const SYNTHETIC_ONLY: &[&str] = &[
    "--prompt-input-tokens-mean",
    "--prompt-input-tokens-stddev",
    "--seq-dist",
    "--prompt-batch-size",
    "--prompt-prefix-pool-size",
    "--prompt-prefix-length",
    "--shared-system-prompt-length",
    "--user-context-prompt-length",
    "--conversation-turn-mean",
    "--conversation-turn-stddev",
    "--conversation-turn-delay-mean",
    "--conversation-turn-delay-stddev",
    "--conversation-turn-delay-ratio",
];

/// Reads and checks everything about what is sent.
pub(super) fn dataset(
    settings: &Settings,
    kind: EndpointKind,
    problems: &mut Problems,
) -> DatasetPlan {
    check_turns(settings, kind, problems);
    check_prefixes(settings, kind, problems);
    let entries = [
        "--num-dataset-entries",
        "--conversation-num",
        "--request-count",
    ]
    .iter()
    .find_map(|flag| settings.size(flag))
    .unwrap_or(ENTRIES_DEFAULT)
    .min(ENTRIES_MOST);
    let (source, promoted) = source(settings, problems);
    DatasetPlan {
        fixed_schedule: fixed_schedule(settings, &source, promoted, problems),
        source,
        entries,
        sampling: match settings.choice("--dataset-sampling-strategy") {
            Some("random") => Sampling::Random,
            Some("shuffle") => Sampling::Shuffle,
            _ => Sampling::Sequential,
        },
        output_tokens: output_tokens(settings, problems),
        system_prompt: system_prompt(settings, problems),
        streaming: match settings.choice("--stream-input") {
            Some("always") => Streaming::Always,
            Some("never") => Streaming::Never,
            _ => Streaming::Auto,
        },
    }
}

/// File formats that are read.
const FORMATS: &[&str] = &["single_turn", "multi_turn", "mooncake_trace"];

/// Fields of a first line, and the format that they are a sign of.
const SIGNS: &[(&str, &str)] = &[
    ("turns", "multi_turn"),
    ("messages", "mooncake_trace"),
    ("payload", "mooncake_trace"),
    ("input_length", "mooncake_trace"),
    ("text_input", "mooncake_trace"),
    ("captureData", "sagemaker_data_capture"),
    ("data", "inputs_json"),
    ("text", "single_turn"),
    ("texts", "single_turn"),
];

/// Tokens that a hash id of a `mooncake_trace` stands for.
const BLOCK_TOKENS_DEFAULT: u64 = 512;

/// Where conversations come from, and whether the file is a trace whose timestamps are followed unasked: one that is named as such by
/// `--custom-dataset-type` and whose first record has one.
fn source(settings: &Settings, problems: &mut Problems) -> (DatasetSource, bool) {
    let kind = settings.choice("--custom-dataset-type");
    if let Some(other) = kind.filter(|kind| !FORMATS.contains(kind)) {
        problems.push(format!(
            "--custom-dataset-type {other} is an AIPerf format that tokenring does not read yet; use {}",
            FORMATS.join(", ")
        ));
    }
    let block = "--prompt-input-tokens-block-size";
    let Some(path) = settings.text("--input-file").map(PathBuf::from) else {
        if kind.is_some() {
            problems.push("--custom-dataset-type needs --input-file, which names the file to read");
        }
        if settings.given(block) {
            problems.push(format!(
                "{} needs --input-file with a mooncake_trace, whose hash ids it measures",
                settings.spelling(block)
            ));
        }
        return (
            DatasetSource::Synthetic(synthetic(settings, problems)),
            false,
        );
    };
    for flag in SYNTHETIC_ONLY.iter().filter(|flag| settings.given(flag)) {
        problems.push(format!(
            "{} shapes made-up prompts and cannot be used with --input-file; leave one of them out",
            settings.spelling(flag)
        ));
    }
    let known = kind.filter(|kind| FORMATS.contains(kind));
    let (found, timed) = first_record(&path, kind.is_some()).unwrap_or_else(|sentence| {
        problems.push(format!(
            "--input-file {:?} {sentence}",
            path.display().to_string()
        ));
        ("single_turn", false)
    });
    let source = match known.unwrap_or(found) {
        "multi_turn" => DatasetSource::MultiTurn { path },
        "mooncake_trace" => DatasetSource::MooncakeTrace {
            path,
            block_tokens: settings
                .integer(block)
                .unwrap_or(BLOCK_TOKENS_DEFAULT)
                .try_into()
                .unwrap_or(u32::MAX),
        },
        _ => DatasetSource::SingleTurn { path },
    };
    let promoted = timed && known == Some("mooncake_trace");
    (source, promoted)
}

/// The format that the first record of a file shows, and whether it has a timestamp. `named`: the format is known already, and a file
/// that shows none is not wrong.
fn first_record(path: &Path, named: bool) -> Result<(&'static str, bool), String> {
    let unread = |e: std::io::Error| format!("cannot be read: {e}");
    let metadata = fs::metadata(path).map_err(unread)?;
    if metadata.is_dir() {
        return Err(
            "is a folder, which tokenring does not read yet; give a single_turn JSONL file"
                .to_owned(),
        );
    }
    if !metadata.is_file() {
        // A pipe can be read only once, and that is the dataset's to do.
        return Ok(("single_turn", false));
    }
    let file = fs::File::open(path).map_err(unread)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(file.take(LINE_BYTES_MOST));
    while line.trim_ascii().is_empty() {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(unread)? == 0 {
            if named {
                return Ok(("single_turn", false));
            }
            return Err("is empty; give a JSONL file with one JSON object in each line".to_owned());
        }
    }
    let object = serde_json::from_slice::<Map<String, Value>>(&line);
    let timed = object.as_ref().is_ok_and(|o| o.contains_key("timestamp"));
    match object
        .map_err(|_| NO_OBJECT.to_owned())
        .and_then(|object| format_of(&object))
    {
        Ok(format) => Ok((format, timed)),
        Err(_) if named => Ok(("single_turn", timed)),
        Err(sentence) => Err(sentence),
    }
}

const NO_OBJECT: &str = "does not begin with a JSON object in one line; give a single_turn JSONL file, or say which format it has with \
                         --custom-dataset-type";

/// The format of a record: what its field `type` says, or the one that its other fields are a sign of.
fn format_of(object: &Map<String, Value>) -> Result<&'static str, String> {
    let said = object.get("type").and_then(Value::as_str);
    if let Some(format) = FORMATS.iter().find(|format| Some(**format) == said) {
        return Ok(format);
    }
    let mut found = SIGNS.iter().filter(|(key, _)| object.contains_key(*key));
    let Some((_, format)) = found.next() else {
        return Err(
            "has neither \"text\" nor \"texts\" in its first line; give a single_turn, multi_turn or mooncake_trace JSONL file"
                .to_owned(),
        );
    };
    if let Some((_, other)) = found.find(|(_, other)| other != format) {
        return Err(format!(
            "looks like {format} and like {other}; say which it is with --custom-dataset-type"
        ));
    }
    if !FORMATS.contains(format) {
        return Err(format!(
            "looks like {format}, which tokenring does not read yet; give a {} file",
            FORMATS.join(", ")
        ));
    }
    Ok(format)
}

fn synthetic(settings: &Settings, problems: &mut Problems) -> SyntheticPlan {
    let length = |mean: &str, stddev: &str, default: f64| Length {
        mean: whole(settings, mean).unwrap_or(default),
        stddev: settings
            .number(stddev)
            .or(whole(settings, stddev))
            .unwrap_or(0.0),
    };
    let pairs = match settings.text("--seq-dist").map(lengths::pairs) {
        Some(Ok(pairs)) => pairs,
        Some(Err(sentence)) => {
            problems.push(format!("{} {sentence}", settings.spelling("--seq-dist")));
            Vec::new()
        }
        None => Vec::new(),
    };
    SyntheticPlan {
        input_tokens: length(
            "--prompt-input-tokens-mean",
            "--prompt-input-tokens-stddev",
            550.0,
        ),
        pairs,
        batch_size: settings.size("--prompt-batch-size").unwrap_or(1),
        corpus: match settings.choice("--prompt-corpus") {
            Some("coding") => CorpusKind::Coding,
            Some("random") => CorpusKind::Random,
            _ => CorpusKind::Sonnet,
        },
        turns: length(
            "--conversation-turn-mean",
            "--conversation-turn-stddev",
            1.0,
        ),
        delay_ms: Length {
            mean: settings
                .number("--conversation-turn-delay-mean")
                .unwrap_or(0.0),
            stddev: settings
                .number("--conversation-turn-delay-stddev")
                .unwrap_or(0.0),
        },
        delay_ratio: settings
            .number("--conversation-turn-delay-ratio")
            .unwrap_or(1.0),
        prefix_pool: settings.size("--prompt-prefix-pool-size").unwrap_or(0),
        prefix_tokens: settings.size("--prompt-prefix-length").unwrap_or(0),
        shared_system_tokens: settings.size("--shared-system-prompt-length"),
        user_context_tokens: settings.size("--user-context-prompt-length"),
    }
}

/// Whole numbers of these flags stay below 2^32, so that nothing is lost.
fn whole(settings: &Settings, flag: &str) -> Option<f64> {
    settings
        .integer(flag)
        .and_then(|n| u32::try_from(n).ok())
        .map(f64::from)
}

fn output_tokens(settings: &Settings, problems: &mut Problems) -> Option<Length> {
    let stddev = settings
        .number("--prompt-output-tokens-stddev")
        .unwrap_or(0.0);
    let mean = whole(settings, "--prompt-output-tokens-mean");
    if stddev > 0.0 && !settings.given("--prompt-output-tokens-mean") {
        problems.push(format!(
            "{} needs --output-tokens-mean: without it no output limit is sent",
            settings.spelling("--prompt-output-tokens-stddev")
        ));
    }
    mean.map(|mean| Length { mean, stddev })
}

fn system_prompt(settings: &Settings, problems: &mut Problems) -> Option<String> {
    let Some(path) = settings.text("--system-prompt-file") else {
        return settings.text("--system-prompt").map(str::to_owned);
    };
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| {
        file.take(SYSTEM_PROMPT_BYTES_MOST)
            .read_to_string(&mut text)
    });
    match read {
        Ok(0) => problems.push(format!(
            "--system-prompt-file {path:?} is empty; leave the flag out for no system message"
        )),
        Ok(_) => {}
        Err(e) => problems.push(format!(
            "--system-prompt-file {path:?} cannot be read as UTF-8 text: {e}"
        )),
    }
    Some(text)
}

fn check_turns(settings: &Settings, kind: EndpointKind, problems: &mut Problems) {
    let several = settings.integer("--conversation-turn-mean").unwrap_or(1) > 1
        || settings.integer("--conversation-turn-stddev").unwrap_or(0) > 0;
    if several && kind == EndpointKind::Completions {
        problems.push("--conversation-turn-mean above 1 needs --endpoint-type chat: completions carry no history");
    }
}

fn check_prefixes(settings: &Settings, kind: EndpointKind, problems: &mut Problems) {
    let (text, file) = ("--system-prompt", "--system-prompt-file");
    let (pool, prefix) = ("--prompt-prefix-pool-size", "--prompt-prefix-length");
    let (shared, context) = (
        "--shared-system-prompt-length",
        "--user-context-prompt-length",
    );
    let excluded = [
        (text, file),
        (text, shared),
        (text, pool),
        (file, shared),
        (file, pool),
        (pool, shared),
        (pool, context),
        (prefix, shared),
        (prefix, context),
    ];
    for (one, other) in excluded {
        if settings.given(one) && settings.given(other) {
            let (one, other) = (settings.spelling(one), settings.spelling(other));
            problems.push(format!(
                "{one} and {other} exclude each other; give one of them"
            ));
        }
    }
    if settings.given(context) && !settings.given("--num-dataset-entries") {
        problems.push(format!(
            "{context} needs --num-dataset-entries, which says how many conversations get one"
        ));
    }
    for flag in [text, file, shared, context] {
        if settings.given(flag) && kind == EndpointKind::Completions {
            problems.push(format!(
                "{flag} needs --endpoint-type chat: completions have no place for it"
            ));
        }
    }
    for (one, needs) in [(pool, prefix), (prefix, pool)] {
        if settings.size(one).unwrap_or(0) > 0 && !settings.given(needs) {
            problems.push(format!(
                "{} needs {needs}: without it there are no prefixes",
                settings.spelling(one)
            ));
        }
    }
}
