//! Reply objects.
//!
//! In: the data of one event, or a whole body. Out: a [`Piece`]. Never: fails a reply because a field that does not matter has an
//! odd type, and never leans on the order of keys.

use std::sync::Arc;

use serde_json::Value;

use super::dialect::{Dialect, Seen};
use super::{PeerError, Piece, usual};
use crate::config::Ending;

/// Outcome of a parse.
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart at once; a box would cost an allocation for each token"
)]
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    /// Something of use was in it.
    Piece(Piece),
    /// JSON, but nothing of use: a role, an empty delta, another choice, another object.
    Nothing,
    /// No JSON (`[DONE]`, for one).
    NotJson,
}

/// Reads the chunks of one reply, one after the other.
///
/// A reply object of another API is nothing. The choice with index 0 (or no index) is the one whose texts a piece
/// has; those of others stand in [`Piece::others`]. An `error` object counts
/// whatever else is there.
#[derive(Debug)]
pub struct Chunks {
    dialect: Arc<dyn Dialect>,
    ending: Ending,
    template: usual::Template,
    seen: Seen,
}

impl Chunks {
    /// Before the first chunk.
    pub(super) fn new(dialect: Arc<dyn Dialect>, ending: Ending) -> Chunks {
        Chunks {
            dialect,
            ending,
            template: usual::Template::default(),
            seen: Seen::default(),
        }
    }

    /// How the dialect's streams end.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The next chunk.
    pub fn parse(&mut self, data: &[u8]) -> Parsed {
        let parsed = match self.template.piece(&*self.dialect, data) {
            Some(piece) => parsed(piece),
            None => self.dialect.read(data, self.seen),
        };
        if let Parsed::Piece(piece) = &parsed {
            self.seen.text |= piece.text.is_some();
            self.seen.reasoning |= piece.reasoning.is_some();
            self.seen.tool |= piece.tool.is_some();
        }
        parsed
    }
}

/// As it is, or nothing.
pub(super) fn parsed(piece: Piece) -> Parsed {
    if piece == Piece::default() {
        Parsed::Nothing
    } else {
        Parsed::Piece(piece)
    }
}

/// JSON; bytes that are no UTF-8 become U+FFFD rather than lose the whole object.
pub(super) fn json(data: &[u8]) -> Option<Value> {
    serde_json::from_slice(data)
        .or_else(|error| match std::str::from_utf8(data) {
            Ok(_) => Err(error),
            Err(_) => serde_json::from_str(&String::from_utf8_lossy(data)),
        })
        .ok()
}

/// Moves a non-empty string out of an object.
pub(super) fn take_text(object: &mut Value, name: &str) -> Option<String> {
    match object.get_mut(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(std::mem::take(text)),
        _ => None,
    }
}

/// Text of content that came as a list of parts.
pub(super) fn parts_text(content: &Value) -> Option<String> {
    let text: String = content
        .as_array()?
        .iter()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    (!text.is_empty()).then_some(text)
}

/// Arguments as text; some servers send the object itself.
pub(super) fn arguments(function: &Value) -> String {
    match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => String::new(),
    }
}

/// An error at the root: `{"error": {...}}`, `{"error": "text"}`, or the older `{"object": "error", ...}`.
pub(super) fn peer_error(root: &Value) -> Option<PeerError> {
    let error = match root.get("error") {
        Some(Value::Null | Value::Bool(false)) | None => {
            (root.get("object")?.as_str()? == "error").then_some(root)?
        }
        Some(error) => error,
    };
    root_error(error)
}

/// An object, or a text, that is an error.
pub(super) fn root_error(error: &Value) -> Option<PeerError> {
    let field = |name| error.get(name).and_then(Value::as_str);
    let message = match (field("message"), error) {
        (Some(message), _) => message.to_owned(),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    };
    let code = match error.get("code") {
        Some(Value::Number(code)) => code.as_u64().and_then(|code| u16::try_from(code).ok()),
        Some(Value::String(code)) => code.parse().ok(),
        _ => None,
    };
    Some(PeerError {
        code,
        kind: field("type").map(str::to_owned),
        message,
    })
}
