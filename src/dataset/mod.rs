//! What is said to the server.
//!
//! In: the plan and a tokenizer. Out: a [`Corpus`] of conversations, the same for every run with the same seed.
//! Never: knows an API's body shape, or sends anything.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::config::{DatasetSource, Plan};
use crate::tokenizer::Tokenizer;

mod code;
mod fit;
mod length;
mod pieces;
mod sampler;
mod seed;
mod single_turn;
mod synthetic;

pub use sampler::Sampler;
pub use seed::{child_seed, stream};

/// All conversations of a run. Immutable; shared by the workers.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// Unique conversations.
    pub conversations: Vec<Conversation>,
}

/// One conversation.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Id in files: uuid-like, derived from the seed, or the file's own `session_id`.
    pub id: String,
    /// System message.
    pub system: Option<String>,
    /// Extra first user message.
    pub user_context: Option<String>,
    /// At least one.
    pub turns: Vec<Turn>,
    /// How the history of later turns is built.
    pub context: ContextMode,
}

/// How the history of a later turn is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextMode {
    /// Turns are user deltas; the server's live replies are put between them.
    #[default]
    LiveReplies,
    /// Each turn is complete in itself.
    SelfContained,
}

/// One request's worth of input.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Texts; one in most cases.
    pub texts: Vec<String>,
    /// Message role, `user` by default.
    pub role: String,
    /// Model to ask.
    pub model: String,
    /// Output limit.
    pub max_tokens: Option<u32>,
    /// Think time before this turn, in milliseconds (0 for a first turn).
    pub delay_ms: f64,
    /// Extra top-level body fields, over `--extra-inputs`.
    pub extra: Map<String, Value>,
}

/// Why there is no corpus.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The input file cannot be read.
    #[error("--input-file {}: {source}; give the path of a readable JSONL file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Lines of the input file are wrong; one message a line, each with its file and line.
    #[error("{}", .0.join("\n"))]
    Lines(Vec<String>),
    /// The input file holds no entry.
    #[error("--input-file {}: no entries; give one JSON object per line, such as {{\"text\": \"Hello\"}}", .0.display())]
    Empty(PathBuf),
    /// The plan asks for no conversations.
    #[error("--num-dataset-entries 0: give 1 or more")]
    NoEntries,
    /// The tokenizer gives no tokens for any text tried.
    #[error(
        "--tokenizer {0}: it turns ordinary words into no tokens, so prompts cannot be made to length; give another one"
    )]
    UnusableTokenizer(String),
}

/// Builds all conversations of a run, with sentences the user should see.
///
/// The corpus depends on the plan, the tokenizer and `seed` only: not on the machine, its cores or the time.
pub fn build(
    plan: &Plan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    match &plan.dataset.source {
        DatasetSource::Synthetic(synthetic) => synthetic::build(plan, synthetic, tokenizer, seed),
        DatasetSource::SingleTurn { path } => single_turn::read(plan, path, seed),
    }
}

#[cfg(test)]
mod tests;
