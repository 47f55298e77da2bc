//! Reply objects.
//!
//! In: the data of one event, or a whole body. Out: a [`Piece`]. Never: fails a reply because a field that does not matter has an
//! odd type, and never leans on the order of keys.

use serde_json::Value;

use super::usage::usage;
use super::{PeerError, Piece, usual};
use crate::config::EndpointKind;

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

/// Parses a chunk or a whole answer.
///
/// `object` must name the dialect's own objects; a reply without `object`, which some servers send, is taken as one. Of several
/// choices the one with index 0 (or no index) is read. An `error` object counts whatever else is there.
///
/// ```
/// use tokenring::config::EndpointKind;
/// use tokenring::endpoint::{Parsed, parse};
/// let data = br#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
/// let Parsed::Piece(piece) = parse(EndpointKind::Chat, data) else { panic!() };
/// assert_eq!(piece.text.as_deref(), Some("Hi"));
/// ```
#[must_use]
pub fn parse(kind: EndpointKind, data: &[u8]) -> Parsed {
    Chunks::new(kind).parse(data)
}

/// Reads the chunks of one reply, one after the other: what [`parse`] says of each, at less cost.
#[derive(Debug)]
pub struct Chunks {
    kind: EndpointKind,
    template: usual::Template,
}

impl Chunks {
    /// Before the first chunk.
    #[must_use]
    pub fn new(kind: EndpointKind) -> Chunks {
        Chunks {
            kind,
            template: usual::Template::default(),
        }
    }

    /// What they are chunks of.
    #[must_use]
    pub fn kind(&self) -> EndpointKind {
        self.kind
    }

    /// The next chunk.
    pub fn parse(&mut self, data: &[u8]) -> Parsed {
        match self.template.piece(self.kind, data) {
            Some(piece) => parsed(piece),
            None => parse_thoroughly(self.kind, data),
        }
    }
}

/// As [`parse`], whatever the shape.
pub(super) fn parse_thoroughly(kind: EndpointKind, data: &[u8]) -> Parsed {
    match json(data) {
        Some(mut value) => parsed(piece(kind, &mut value)),
        None => Parsed::NotJson,
    }
}

fn parsed(piece: Piece) -> Parsed {
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

fn piece(kind: EndpointKind, root: &mut Value) -> Piece {
    let mut piece = Piece {
        error: peer_error(root),
        ..Piece::default()
    };
    if !is_ours(kind, root) {
        return piece;
    }
    piece.usage = usage(root);
    let Some(choice) = first_choice(root) else {
        return piece;
    };
    piece.finish_reason = take_text(choice, "finish_reason");
    match kind {
        EndpointKind::Completions => piece.text = take_text(choice, "text"),
        EndpointKind::Chat => {
            if let Some(message) = message_of(choice) {
                piece.tool = tool_text(message);
                piece.reasoning = take_text(message, "reasoning_content")
                    .or_else(|| take_text(message, "reasoning"));
                piece.text = take_text(message, "content").or_else(|| parts(&message["content"]));
            }
        }
    }
    piece
}

fn is_ours(kind: EndpointKind, root: &Value) -> bool {
    match root.get("object") {
        None | Some(Value::Null) => root.is_object(),
        Some(Value::String(object)) => match kind {
            EndpointKind::Chat => {
                matches!(object.as_str(), "chat.completion.chunk" | "chat.completion")
            }
            EndpointKind::Completions => {
                matches!(object.as_str(), "text_completion" | "completion")
            }
        },
        Some(_) => false,
    }
}

/// The choice with index 0; one without an index is taken for it.
pub(super) fn first_choice(root: &mut Value) -> Option<&mut Value> {
    let choices = root.get_mut("choices")?.as_array_mut()?;
    choices.iter_mut().find(|choice| match choice.get("index") {
        Some(Value::Number(index)) => index.as_u64() == Some(0),
        _ => choice.is_object(),
    })
}

/// `delta` of a chunk, `message` of a whole answer.
pub(super) fn message_of(choice: &mut Value) -> Option<&mut Value> {
    let name = if choice.get("delta").is_some_and(Value::is_object) {
        "delta"
    } else {
        "message"
    };
    choice.get_mut(name).filter(|message| message.is_object())
}

/// Moves a non-empty string out of an object.
fn take_text(object: &mut Value, name: &str) -> Option<String> {
    match object.get_mut(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(std::mem::take(text)),
        _ => None,
    }
}

/// Text of content that came as a list of parts.
fn parts(content: &Value) -> Option<String> {
    let text: String = content
        .as_array()?
        .iter()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    (!text.is_empty()).then_some(text)
}

/// Names and argument text of all tool calls, in order.
fn tool_text(message: &Value) -> Option<String> {
    let mut text = String::new();
    for call in message.get("tool_calls")?.as_array()? {
        let Some(function) = call.get("function") else {
            continue;
        };
        text.push_str(function.get("name").and_then(Value::as_str).unwrap_or(""));
        text.push_str(&arguments(function));
    }
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
fn peer_error(root: &Value) -> Option<PeerError> {
    let error = match root.get("error") {
        Some(Value::Null | Value::Bool(false)) | None => {
            (root.get("object")?.as_str()? == "error").then_some(root)?
        }
        Some(error) => error,
    };
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
