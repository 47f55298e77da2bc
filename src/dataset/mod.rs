//! What is said to the server.
//!
//! In: the plan and a tokenizer. Out: a [`Corpus`] of conversations, the same for every run with the same seed.
//! Never: knows an API's body shape, or sends anything.

use serde_json::{Map, Value};

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
