//! Flags of prompts and files become a [`DatasetPlan`].
//!
//! In: settings. Out: what is sent, as a plan. Never: reads a dataset.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use super::dialect::EndpointKind;
use super::error::Problems;
use super::fixed_schedule::fixed_schedule;
use super::format::FileFormat;
use super::lex::Settings;
use super::plan::{
    CorpusKind, DatasetPlan, DatasetSource, Length, Sampling, Streaming, SyntheticPlan,
};
use super::prompts::prompts;
use super::rankings::{self, RankingsPlan, rankings};
use super::trace::trace;
use super::{input_file, lengths};

/// Entries of a synthetic dataset when no flag gives a size.
const ENTRIES_DEFAULT: usize = 100;
/// Unique conversations that a request or session count asks for at most; a run may be longer than its dataset.
const ENTRIES_MOST: usize = 1 << 24;
/// Longest system prompt file.
const SYSTEM_PROMPT_BYTES_MOST: u64 = 64 << 20;

/// Flags that shape what is made up besides a prompt's own text, and so contradict a file.
const SYNTHETIC_ONLY: &[&str] = &[
    "--shared-system-prompt-length",
    "--user-context-prompt-length",
    "--image-width-mean",
    "--image-height-mean",
    "--image-batch-size",
    "--audio-length-mean",
    "--audio-batch-size",
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
    let (source, promoted) = source(settings, kind, problems);
    let is_pool = |source: &DatasetSource| matches!(source, DatasetSource::File(file) if file.format == FileFormat::RandomPool);
    DatasetPlan {
        fixed_schedule: fixed_schedule(settings, &source, promoted, problems),
        trace: trace(settings, &source, problems),
        entries,
        sampling: match settings.choice("--dataset-sampling-strategy") {
            Some("random") => Sampling::Random,
            Some("shuffle") => Sampling::Shuffle,
            None if is_pool(&source) => Sampling::Shuffle,
            _ => Sampling::Sequential,
        },
        output_tokens: output_tokens(settings, problems),
        system_prompt: system_prompt(settings, problems),
        streaming: match settings.choice("--stream-input") {
            Some("always") => Streaming::Always,
            Some("never") => Streaming::Never,
            _ => Streaming::Auto,
        },
        prompts: prompts(settings, kind, problems),
        source,
    }
}

/// Where conversations come from, and whether it is a trace whose timestamps are followed unasked.
fn source(
    settings: &Settings,
    kind: EndpointKind,
    problems: &mut Problems,
) -> (DatasetSource, bool) {
    let rankings = rankings(settings, kind, problems);
    let public = input_file::public(settings, problems);
    let Some(path) = settings.text("--input-file").map(PathBuf::from) else {
        if let Some(file) = public {
            check_shaping(settings, problems);
            return (DatasetSource::File(file), false);
        }
        input_file::check_absent(settings, problems);
        return (
            DatasetSource::Synthetic(synthetic(settings, rankings, problems)),
            false,
        );
    };
    check_shaping(settings, problems);
    let (file, promoted) = input_file::file(settings, path, problems);
    (DatasetSource::File(file), promoted)
}

fn check_shaping(settings: &Settings, problems: &mut Problems) {
    // What is made up of a pool's entries is checked with the pool.
    let shaping = rankings::OF_PROMPTS
        .iter()
        .chain(SYNTHETIC_ONLY)
        .chain(rankings::PLACES.iter().map(|(flag, _)| flag))
        .filter(|flag| **flag != "--prompt-batch-size");
    for flag in shaping.filter(|flag| settings.given(flag)) {
        problems.push(format!(
            "{} shapes made-up prompts and cannot be used with --input-file; leave one of them out",
            settings.spelling(flag)
        ));
    }
}

fn synthetic(
    settings: &Settings,
    rankings: Option<RankingsPlan>,
    problems: &mut Problems,
) -> SyntheticPlan {
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
        rankings,
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
    if several && !kind.facts().history {
        problems.push(format!(
            "--conversation-turn-mean above 1 needs --endpoint-type {}: {} carries no history",
            EndpointKind::names_of(|facts| facts.history),
            kind.name()
        ));
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
        if settings.given(flag) && !kind.facts().system_slot {
            problems.push(format!(
                "{flag} needs --endpoint-type {}: {} has no place for it",
                EndpointKind::names_of(|facts| facts.system_slot),
                kind.name()
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
