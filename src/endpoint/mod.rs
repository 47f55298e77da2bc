//! API dialects: bodies out, replies in.
//!
//! In: a turn and its history; reply JSON. Out: request bodies; [`Piece`]s.
//! Never: does I/O, reads a clock, or counts tokens.

mod api;
mod bodies;
mod body;
mod calls;
mod chat;
mod choices;
mod completions;
mod content;
mod dialect;
mod dialogue;
mod embeddings;
mod event;
mod found;
mod headers;
mod history;
mod huggingface;
mod input;
mod live;
mod made;
mod marker;
mod messages;
mod parse;
mod parts;
mod rankings;
mod raw;
mod reply;
mod responses;
mod retrieval;
mod select;
mod session_name;
mod solido;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod transcription;
mod translate;
mod usage;
mod usual;

pub use api::{Api, ApiError};
pub use bodies::Bodies;
pub use dialect::{Dialect, Request, Seen, Usual};
pub use dialogue::{Spoken, dialogue};
pub use headers::HeaderTemplate;
pub use input::Input;
pub use live::History;
pub use made::{Made, Renderer};
pub use marker::Marker;
pub use parse::{Chunks, Parsed};
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
    /// What other choices than the first carried (`n` above 1); those without content are left out.
    pub others: Vec<OtherChoice>,
    /// An answer that is no text: numbers, a picture. It counts as a response, and has no tokens.
    pub data: bool,
    /// A non-empty usage object.
    pub usage: Option<Usage>,
    /// An error object: the peer says that the request failed.
    pub error: Option<PeerError>,
    /// Why generation ended.
    pub finish_reason: Option<String>,
    /// This is the event that says that the reply is whole; see [`crate::config::Ending`].
    pub complete: bool,
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
        } else if let [other, ..] = self.others.as_slice() {
            Some(other.said.kind())
        } else if self.data {
            Some(PieceKind::Data)
        } else {
            None
        }
    }
}

/// What another choice than the first carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherChoice {
    /// Its index, above 0.
    pub index: u64,
    /// What it said; some of it.
    pub said: Said,
}

/// Texts of one choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Content text.
    pub text: Option<String>,
    /// Reasoning text.
    pub reasoning: Option<String>,
    /// Tool-call text.
    pub tool: Option<String>,
}

impl Said {
    /// Nothing was said.
    fn is_empty(&self) -> bool {
        self.text.is_none() && self.reasoning.is_none() && self.tool.is_none()
    }

    /// What the content is.
    fn kind(&self) -> PieceKind {
        if self.reasoning.is_some() {
            PieceKind::Reasoning
        } else if self.tool.is_some() {
            PieceKind::Tool
        } else {
            PieceKind::Text
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
    /// An answer that is no text.
    Data,
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
