//! The table of file formats, and how the first record of a file shows which it is.
//!
//! In: the fields of a record. Out: a [`FileFormat`]. Never: how a record is read; that is `dataset`'s, in the file of the format.

use serde_json::{Map, Value};

/// Fields that a record of a format has. One that begins with `!` must be absent.
type Sign = &'static [&'static str];

/// What the table says of a format.
struct Row {
    format: FileFormat,
    /// As in `--custom-dataset-type`; one that ends in `*` stands for all names that begin like it.
    name: &'static str,
    /// Whether it is a recorded load. A field `timestamp` of its first record is followed unasked.
    trace: bool,
    /// Any of these shows the format.
    signs: &'static [Sign],
}

/// Makes [`FileFormat`] and the table out of one line for each format.
macro_rules! formats {
    ($($(#[$doc:meta])+ $format:ident $name:literal, trace: $trace:literal, signs: $signs:expr;)+) => {
        /// A format of dataset files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FileFormat { $($(#[$doc])+ $format,)+ }

        const FORMATS: &[Row] = &[
            $(Row { format: FileFormat::$format, name: $name, trace: $trace, signs: $signs },)+
        ];
    };
}

// A new format is a line here, a file in `dataset`, and the line that names it in `dataset/format.rs`.
#[rustfmt::skip]
formats! {
    /// Requests; those with the same session are one conversation.
    SingleTurn    "single_turn",    trace: false, signs: &[&["text", "!prompt"], &["texts"], &["image"], &["images"], &["audio"], &["audios"], &["video"], &["videos"]];
    /// Conversations.
    MultiTurn     "multi_turn",     trace: false, signs: &[&["turns", "!forks", "!spawns", "!question_id"]];
    /// Requests to draw from. A file of them looks like one of `single_turn`; a folder of them is known by that.
    RandomPool    "random_pool",    trace: false, signs: &[];
    /// Requests of a recorded load.
    MooncakeTrace "mooncake_trace", trace: true,  signs: &[&["input_length", "!chat_id"], &["text_input"], &["payload"], &["messages", "timestamp"],
                                                           &["messages", "delay"], &["messages", "output_length"], &["messages", "session_id"]];
    /// Requests of Alibaba's traces.
    BailianTrace  "bailian_trace",  trace: true,  signs: &[&["chat_id", "parent_chat_id"]];
    /// Requests of the BurstGPT traces, in rows.
    BurstGptTrace "burst_gpt_trace", trace: true, signs: &[&["Timestamp", "Request tokens", "Response tokens"]];
    /// Whole chat bodies.
    RawPayload    "raw_payload",    trace: false, signs: &[&["messages", "!question_id", "!timestamp", "!delay", "!output_length", "!session_id"]];
    /// The bodies of an earlier run.
    InputsJson    "inputs_json",    trace: false, signs: &[&["data"]];
    /// Prompts as vllm's and GuideLLM's own files have them.
    Prompts       "prompts",        trace: false, signs: &[&["prompt"]];
    /// Talks between people and a model.
    ShareGpt      "sharegpt",       trace: false, signs: &[&["conversations"]];
    /// Questions of several turns, with a category.
    SpeedBench    "speed_bench_*",  trace: false, signs: &[&["question_id", "category"]];
}

/// Formats of AIPerf that are not read, what shows them, and what to do instead.
const REFUSED: &[(&str, Sign, &str)] = &[
    (
        "sagemaker_data_capture",
        &["captureData"],
        "tokenring does not read captures: write each request's body as a line of a raw_payload file, or as payload of a mooncake_trace with its timestamp",
    ),
    (
        "baseten_trace",
        &["timestamp_start_unix_ms"],
        "tokenring does not read Parquet or Arrow: write its rows as a mooncake_trace JSONL file, prompt as text_input and milliseconds as timestamp",
    ),
    (
        "dag_jsonl",
        &["forks"],
        "tokenring plays no forks and spawns: write each branch as a multi_turn conversation",
    ),
    (
        "tracelab",
        &["timing_events"],
        "tokenring plays no agents' traces: write each request as a line of a mooncake_trace with messages and timestamp",
    ),
    (
        "weka_trace",
        &["requests"],
        "tokenring plays no agents' traces: write each request as a line of a mooncake_trace with hash_ids and timestamp",
    ),
];

impl FileFormat {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<FileFormat> {
        FORMATS.iter().map(|row| row.format).collect()
    }

    /// The one that `--custom-dataset-type` calls `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<FileFormat> {
        let fits = |row: &&Row| match row.name.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => row.name == name,
        };
        FORMATS.iter().find(fits).map(|row| row.format)
    }

    /// Its name in `--custom-dataset-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether it is a recorded load. A field `timestamp` of its first record is followed unasked.
    #[must_use]
    pub fn is_trace(self) -> bool {
        self.row().trace
    }

    fn row(self) -> &'static Row {
        // Each variant has a row, since one macro makes both.
        FORMATS
            .iter()
            .find(|row| row.format == self)
            .unwrap_or(&FORMATS[0])
    }
}

/// All names, for a message.
pub(super) fn names() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|row| row.name).collect();
    names.join(", ")
}

/// Why the format called `name` is not read, and what to do instead.
pub(super) fn refusal(name: &str) -> String {
    let listed = REFUSED.iter().find(|(refused, ..)| *refused == name);
    match listed {
        Some((.., sentence)) => (*sentence).to_owned(),
        None => format!(
            "is an AIPerf format that tokenring does not read yet; use {}",
            names()
        ),
    }
}

/// The format of a record: what its field `type` says, or the one that its other fields are a sign of.
pub(super) fn format_of(record: &Map<String, Value>) -> Result<FileFormat, String> {
    let said = record.get("type").and_then(Value::as_str);
    if let Some(format) = said.and_then(FileFormat::named) {
        return Ok(format);
    }
    let shows = |sign: &Sign| {
        sign.iter().all(|key| match key.strip_prefix('!') {
            Some(absent) => !record.contains_key(absent),
            None => record.contains_key(*key),
        })
    };
    if let Some((name, _, sentence)) = REFUSED.iter().find(|(_, sign, _)| shows(sign)) {
        return Err(format!("looks like {name}: {sentence}"));
    }
    let mut found = FORMATS.iter().filter(|row| row.signs.iter().any(shows));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row.format),
        (Some(row), Some(other)) => Err(format!(
            "looks like {} and like {}; say which it is with --custom-dataset-type",
            row.name, other.name
        )),
        (None, _) => Err(format!(
            "has none of the fields by which a format is known in its first record; say which it is with --custom-dataset-type: {}",
            names()
        )),
    }
}
