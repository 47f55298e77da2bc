//! API dialects: bodies out, replies in.
//!
//! In: a turn and its history; reply JSON. Out: request bodies; [`Piece`]s.
//! Never: does I/O, reads a clock, or counts tokens.

mod bodies;
mod body;
mod content;
mod headers;
mod input;
mod parse;
mod reply;
mod session_name;
#[cfg(test)]
mod tests;
mod usage;
mod usual;

pub use bodies::{Bodies, Made};
pub use body::{default_path, render};
pub use content::shows_content;
pub use headers::HeaderTemplate;
pub use input::{Input, input, input_texts};
pub use parse::{Chunks, Parsed, parse};
pub use reply::{Reply, ReplyBuilder, ToolCall};
pub use session_name::SessionName;

/// What one reply object carried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Content text (empty strings are not content and stay `None`).
    pub text: Option<String>,
    /// Reasoning text.
    pub reasoning: Option<String>,
    /// Tool-call text: function names and argument fragments.
    pub tool: Option<String>,
    /// A non-empty usage object.
    pub usage: Option<Usage>,
    /// An error object: the peer says that the request failed.
    pub error: Option<PeerError>,
    /// Why generation ended.
    pub finish_reason: Option<String>,
}

impl Piece {
    /// What the content is, if there is any.
    #[must_use]
    pub fn kind(&self) -> Option<PieceKind> {
        if self.reasoning.is_some() {
            Some(PieceKind::Reasoning)
        } else if self.tool.is_some() {
            Some(PieceKind::Tool)
        } else if self.text.is_some() {
            Some(PieceKind::Text)
        } else {
            None
        }
    }
}

/// Kinds of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Output text.
    Text,
    /// Reasoning, possibly with output text beside it.
    Reasoning,
    /// Tool-call text.
    Tool,
}

/// An error object inside a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerError {
    /// Numeric code, where it gave one.
    pub code: Option<u16>,
    /// Its `type`, where it gave one.
    pub kind: Option<String>,
    /// Its message, or the whole object as text.
    pub message: String,
}

/// Usage counts, mapped from every server's spelling (metrics.md section 3 of AIPerf's facts).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Completion tokens, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Total.
    pub total_tokens: Option<u64>,
    /// Reasoning tokens.
    pub reasoning_tokens: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Prompt tokens that missed the cache.
    pub cache_miss_tokens: Option<u64>,
    /// Audio tokens in the prompt.
    pub prompt_audio_tokens: Option<u64>,
    /// Audio tokens in the completion.
    pub completion_audio_tokens: Option<u64>,
    /// Predicted tokens that were accepted.
    pub accepted_prediction_tokens: Option<u64>,
    /// Predicted tokens that were rejected.
    pub rejected_prediction_tokens: Option<u64>,
}
