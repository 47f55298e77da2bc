//! The validated plan of a run.
//!
//! In: nothing; these are plain values. Out: what every other room reads. Never: a flag, an environment variable or a default
//! that a later room would have to guess.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::cancellation::CancellationPlan;
use super::dialect::EndpointKind;
use super::driver::{DriverKind, StampKind, WaitPlan};
use super::fixed_schedule::FixedSchedule;
use super::format::FileFormat;
use super::input_file::FilePlan;
use super::limits::TimeLimits;
use super::network::NetworkPlan;
use super::prompts::PromptPlan;
use super::rankings::RankingsPlan;
use super::rate::{Gaps, LatePolicy, RequestRate};
use super::slices::SlicePlan;
use super::slots::SlotPlan;
use super::tls::TlsPlan;
use super::trace::TracePlan;
use super::url::TargetUrl;
use super::url_strategy::UrlStrategy;
use super::users::UsersPlan;
use crate::clock::Nanos;

/// Everything a run needs to know. Immutable once made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Model names sent in requests; at least one.
    pub models: Vec<String>,
    /// How a model is picked when there are several.
    pub model_selection: ModelSelection,
    /// Where and how requests go.
    pub endpoint: EndpointPlan,
    /// How tokens are counted.
    pub tokenizer: TokenizerPlan,
    /// What is sent.
    pub dataset: DatasetPlan,
    /// Warmup (if asked for), then profiling. Run in order.
    pub phases: Vec<PhasePlan>,
    /// Service level objectives; all must hold for a request to count as good. Empty: no goodput.
    pub goodput: Vec<Slo>,
    /// What is written where.
    pub output: OutputPlan,
    /// Threads and cores.
    pub workers: WorkerPlan,
    /// Root seed; `None` means that the program drew one from the system (kept in the report).
    pub random_seed: Option<u64>,
    /// Abort when errors / records exceeds this ratio; armed after max(concurrency, 10) profiling records.
    pub failed_request_threshold: Option<f64>,
    /// Profiling requests that are cancelled on purpose.
    pub cancellation: Option<CancellationPlan>,
    /// The command line, with secrets replaced by `<redacted>`, values single-quoted.
    pub cli_command: String,
    /// What the user set, as nested JSON in AIPerf's `input_config` shape, secrets replaced.
    pub input_config: Value,
}

impl Plan {
    /// The profiling phase, which every plan has.
    #[must_use]
    pub fn profiling(&self) -> &PhasePlan {
        self.phases
            .iter()
            .find(|p| p.kind == PhaseKind::Profiling)
            .expect("a plan has a profiling phase")
    }
}

/// How a model is picked for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSelection {
    /// Turn counter modulo the number of models, at dataset build.
    RoundRobin,
    /// Uniformly at random, seeded.
    Random,
}

/// Where and how requests go.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    /// API dialect.
    pub kind: EndpointKind,
    /// Streamed replies are asked for.
    pub streaming: bool,
    /// `--streaming` was given to a dialect that has no streams.
    pub streaming_refused: bool,
    /// Joined request URLs, one for each `--url`, each with scheme and path; never empty (the built-in server's when the user
    /// gave none, set by the conductor).
    pub urls: Vec<TargetUrl>,
    /// Which of them a session goes to.
    pub url_strategy: UrlStrategy,
    /// No `--url` was given: the built-in server is to be started.
    pub built_in_server: bool,
    /// `--custom-endpoint`, as given.
    pub custom_path: Option<String>,
    /// Whole-request limit, from the start of the request (its connection's set-up included) to its end.
    pub request_timeout: Nanos,
    /// How long a request may wait for what.
    pub time_limits: TimeLimits,
    /// Sent as `Authorization: Bearer <key>`.
    pub api_key: Option<String>,
    /// User's extra headers, in order. A name here replaces the built-in header of the same name, without regard to case.
    pub headers: Vec<(String, String)>,
    /// Header name that replaces `X-Correlation-ID`.
    pub session_header: Option<String>,
    /// Further headers that carry a session's name, for routers that keep a session on one server.
    pub affinity_headers: Vec<&'static str>,
    /// Extra top-level body fields, merged last.
    pub extra_inputs: Map<String, Value>,
    /// Chat only: `max_tokens` rather than `max_completion_tokens`.
    pub use_legacy_max_tokens: bool,
    /// Token counts come from the reply's `usage`.
    pub use_server_token_count: bool,
    /// Ask for `stream_options.continuous_usage_stats` and divide ITL by tokens after the first chunk.
    pub per_chunk_usage: bool,
    /// Whom to trust over TLS, and who to be.
    pub tls: TlsPlan,
    /// How it is found, and how sockets to it are made.
    pub network: NetworkPlan,
    /// How connections are reused.
    pub reuse: ConnectionReuse,
    /// Readiness probe before the run.
    pub wait_for_model: Option<WaitForModel>,
}

/// `--connection-reuse-strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// A keep-alive pool per worker.
    Pooled,
    /// A new connection for each request.
    Never,
    /// A connection of its own for each session, until its last turn, an error or a cancel.
    StickyUserSessions,
}

/// `--wait-for-model-*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitForModel {
    /// Give up after this long.
    pub timeout: Nanos,
    /// Between probes.
    pub interval: Nanos,
    /// What is probed.
    pub mode: WaitMode,
}

/// What a readiness probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// `GET /v1/models` lists the model (404 falls back to the base URL).
    Models,
    /// A one-token request is answered below 500.
    Inference,
    /// Models, then inference.
    Both,
}

/// `--tokenizer*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerPlan {
    /// Input is counted as the model's chat template writes it.
    pub apply_chat_template: bool,
    /// Shipped name, directory, `tokenizer.json` or hub id. `None`: the first model's name, or `builtin` when that looks like a
    /// placeholder (resolved by the tokenizer room, which says so).
    pub name: Option<String>,
    /// Hub revision; `main` by default.
    pub revision: String,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Where conversations come from.
    pub source: DatasetSource,
    /// Number of unique conversations of a synthetic dataset.
    pub entries: usize,
    /// Order in which conversations are drawn.
    pub sampling: Sampling,
    /// Output limit for turns that carry none; `None` sends no limit.
    pub output_tokens: Option<Length>,
    /// Verbatim system message.
    pub system_prompt: Option<String>,
    /// What is done to prompts beside their lengths.
    pub prompts: PromptPlan,
    /// Which of the dataset's timestamps are followed; `None` follows none.
    pub fixed_schedule: Option<FixedSchedule>,
    /// What is done to a trace before it is replayed.
    pub trace: TracePlan,
    /// Whether a long file is streamed.
    pub streaming: Streaming,
}

/// `--stream-input`: whether requests are made while the load is on, a window ahead of their time, or all of them before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// Where the file can be streamed and is at least [`Streaming::AUTO_BYTES`] long, or packed [`Streaming::AUTO_PACKED_BYTES`].
    #[default]
    Auto,
    /// Where the file can be streamed.
    Always,
    /// Never.
    Never,
}

impl Streaming {
    /// From this size on, a file is streamed unasked.
    pub const AUTO_BYTES: u64 = 64 << 20;
    /// The same for a packed file: lines of JSON take an eighth of their room or less.
    pub const AUTO_PACKED_BYTES: u64 = Streaming::AUTO_BYTES / 8;
}

/// Where conversations come from.
#[derive(Clone, Debug)]
pub enum DatasetSource {
    /// Made up, to length.
    Synthetic(SyntheticPlan),
    /// A file.
    File(FilePlan),
}

impl DatasetSource {
    /// The file, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            DatasetSource::Synthetic(_) => None,
            DatasetSource::File(file) => Some(&file.path),
        }
    }

    /// It is a recorded load.
    #[must_use]
    pub fn is_trace(&self) -> bool {
        self.format().is_some_and(FileFormat::is_trace)
    }

    /// The file's format, if it is one.
    #[must_use]
    pub fn format(&self) -> Option<FileFormat> {
        match self {
            DatasetSource::Synthetic(_) => None,
            DatasetSource::File(file) => Some(file.format),
        }
    }
}

/// A synthetic dataset.
#[derive(Clone, Debug)]
pub struct SyntheticPlan {
    /// Prompt tokens.
    pub input_tokens: Length,
    /// Pairs of lengths drawn together (`--seq-dist`); replaces `input_tokens` and the output limit when present.
    pub pairs: Vec<LengthPair>,
    /// Texts in each turn.
    pub batch_size: usize,
    /// A query and its passages in place of a prompt, for the dialects that rank.
    pub rankings: Option<RankingsPlan>,
    /// Source of the words.
    pub corpus: CorpusKind,
    /// Turns per conversation.
    pub turns: Length,
    /// Think time before turns 2 and later, in milliseconds, before `delay_ratio`.
    pub delay_ms: Length,
    /// Multiplier on think time.
    pub delay_ratio: f64,
    /// Number of random prefixes; 0 means none.
    pub prefix_pool: usize,
    /// Tokens in each prefix.
    pub prefix_tokens: usize,
    /// Tokens of one synthetic system message shared by all conversations.
    pub shared_system_tokens: Option<usize>,
    /// Tokens of an extra first user message of each conversation.
    pub user_context_tokens: Option<usize>,
}

/// A normal distribution of lengths; a standard deviation of 0 is a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, at least 0.
    pub stddev: f64,
}

impl Length {
    /// Always `mean`.
    #[must_use]
    pub const fn constant(mean: f64) -> Length {
        Length { mean, stddev: 0.0 }
    }
}

/// One entry of `--seq-dist`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthPair {
    /// Prompt tokens.
    pub input: Length,
    /// Output limit.
    pub output: Length,
    /// Percent; all entries sum to 100.
    pub percent: f64,
}

/// `--prompt-corpus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorpusKind {
    /// Shakespeare.
    Sonnet,
    /// Generated code-like text.
    Coding,
    /// Random token ids.
    Random,
}

/// `--dataset-sampling-strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// In order, wrapping round.
    Sequential,
    /// With replacement.
    Random,
    /// A permutation, drawn anew when used up.
    Shuffle,
}

/// Warmup or profiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Its records are kept apart.
    Warmup,
    /// What is measured.
    Profiling,
}

impl PhaseKind {
    /// `warmup` or `profiling`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PhaseKind::Warmup => "warmup",
            PhaseKind::Profiling => "profiling",
        }
    }
}

/// One phase of load.
#[derive(Clone, Debug, PartialEq)]
pub struct PhasePlan {
    /// Warmup or profiling.
    pub kind: PhaseKind,
    /// It begins when the phase before has stopped sending, while requests of that one are still in flight.
    pub seamless: bool,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// Most sessions open at once; `None` is unlimited (only with a rate).
    pub concurrency: Option<usize>,
    /// Its other limits, and how they grow.
    pub slots: SlotPlan,
    /// What becomes of arrivals at a rate that could not be sent in time.
    pub late: LatePolicy,
    /// The first of these that is reached ends sending.
    pub stop: StopRule,
    /// How long requests in flight may go on after `stop.duration`; `None` waits for all.
    pub grace: Option<Nanos>,
}

/// When requests are due.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// As soon as a slot is free.
    ClosedLoop,
    /// At a rate.
    Rated {
        /// The law of the gaps, whose mean follows the rate.
        gaps: Gaps,
        /// How many a second.
        rate: RequestRate,
    },
    /// At the dataset's own timestamps.
    FixedSchedule,
    /// When a user's next turn comes round.
    Users(UsersPlan),
}

/// What ends sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopRule {
    /// Requests sent.
    pub requests: Option<u64>,
    /// Sessions started; started ones play to their end.
    pub sessions: Option<u64>,
    /// Time since the phase's start.
    pub duration: Option<Nanos>,
}

/// One service level objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// Metric tag, known to `metric::registry`.
    pub tag: String,
    /// Threshold in the metric's display unit.
    pub threshold: f64,
}

/// How much is written of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExportLevel {
    /// CSV and JSON only.
    Summary,
    /// Adds `profile_export.jsonl`.
    Records,
    /// Adds `profile_export_raw.jsonl`.
    Raw,
}

/// What is shown while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiKind {
    /// Progress bar on a terminal, plain lines on a pipe.
    Simple,
    /// Nothing but the result.
    None,
}

/// `--log-level`, from quiet to loud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Errors only.
    Error,
    /// And warnings.
    Warning,
    /// And what happens.
    Info,
    /// And details.
    Debug,
    /// And everything.
    Trace,
}

/// What is written where.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputPlan {
    /// Where files go, the auto-named folder included.
    pub directory: PathBuf,
    /// Common base name of every export, suffixes already stripped.
    pub prefix: Option<String>,
    /// How much is written of each request.
    pub level: ExportLevel,
    /// `outputs.json`.
    pub outputs_json: bool,
    /// `trace_data` in `profile_export.jsonl`.
    pub http_trace: bool,
    /// HTTP trace table on the console.
    pub show_trace_timing: bool,
    /// What is shown while running.
    pub ui: UiKind,
    /// Verbosity of the log file.
    pub log_level: LogLevel,
    /// Between live lines; `None` never.
    pub stats_interval: Option<Nanos>,
    /// `--slice-duration`: files of the run slice by slice.
    pub slices: Option<SlicePlan>,
}

/// Threads and cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPlan {
    /// `--workers-max`.
    pub max: Option<usize>,
    /// `--cpus`: cores for the workers, in order; must be inside the process's CPU mask. Empty: chosen.
    pub cpus: Vec<usize>,
    /// `--driver`.
    pub driver: DriverKind,
    /// `--timestamp-source`; `None`: the kernel's stamps where the driver has them.
    pub stamps: Option<StampKind>,
    /// How they wait.
    pub wait: WaitPlan,
    /// `--require-trusted`: the exit code says whether the client's health was judged trusted.
    pub require_trusted: bool,
}
