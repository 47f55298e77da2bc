//! Replies of an API that only the user knows.
//!
//! In: a reply in JSON or plain text, and where its answer stands if the user said. Out: a piece. Never: usage, which such a reply has
//! under no known name.

use serde_json::{Map, Value};

use super::input::array;
use super::parse::peer_error;
use super::select::{STEPS_MAX, Selection, Stop};
use super::{ApiError, PeerError, Piece};

/// Where the answer stands.
#[derive(Debug, Default)]
pub(super) enum Answer {
    /// Wherever an answer usually stands.
    #[default]
    Usual,
    /// At a JSON pointer (RFC 6901).
    Pointer(String),
    /// At what a JMESPath expression selects.
    Path(Box<Selection>),
}

impl Answer {
    /// As the extra input `response_field` says.
    pub(super) fn new(extras: &Map<String, Value>) -> Result<Answer, ApiError> {
        let refused =
            |sentence: String| ApiError(format!("--extra-inputs response_field {sentence}"));
        match extras.get("response_field") {
            None | Some(Value::Null) => Ok(Answer::Usual),
            Some(Value::String(pointer)) if pointer.starts_with('/') => {
                Ok(Answer::Pointer(pointer.clone()))
            }
            Some(Value::String(path)) => match Selection::new(path) {
                Ok(selection) => Ok(Answer::Path(Box::new(selection))),
                Err(sentence) => Err(refused(sentence)),
            },
            Some(other) => Err(refused(format!(
                "{other} is no text; give a JMESPath or a JSON pointer"
            ))),
        }
    }

    /// What a reply carried.
    pub(super) fn piece(&self, root: &Value) -> Piece {
        let mut piece = Piece {
            error: peer_error(root),
            ..Piece::default()
        };
        let found = match self {
            Answer::Usual => None,
            Answer::Pointer(pointer) => root.pointer(pointer).cloned(),
            Answer::Path(selection) => match selection.search(root) {
                Ok(found) => found,
                Err(Stop::Unfit) => None,
                Err(Stop::TooMuch) => {
                    piece.error = Some(too_much());
                    return piece;
                }
            },
        };
        match found.filter(|value| !value.is_null()) {
            Some(value) => put(&value, &mut piece),
            None => usual(root, &mut piece),
        }
        piece
    }

    /// What a reply that is no JSON carried: itself.
    pub(super) fn plain(data: &[u8]) -> Piece {
        let text = String::from_utf8_lossy(data);
        Piece {
            text: (!text.trim().is_empty() && text != "[DONE]").then(|| text.into_owned()),
            ..Piece::default()
        }
    }
}

/// The reply is no answer, since its answer was not found.
fn too_much() -> PeerError {
    PeerError {
        code: None,
        kind: Some("ResponseFieldError".to_owned()),
        message: format!(
            "--extra-inputs response_field takes more than {STEPS_MAX} steps in this reply; give a simpler JMESPath, or a JSON pointer"
        ),
    }
}

/// A selected value: a text, texts, or something that is no text.
fn put(value: &Value, piece: &mut Piece) {
    match value {
        Value::String(text) => piece.text = (!text.is_empty()).then(|| text.clone()),
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_string) => {
            let texts: String = items.iter().filter_map(Value::as_str).collect();
            piece.text = (!texts.is_empty()).then_some(texts);
        }
        Value::Array(items) if items.is_empty() => {}
        _ => piece.data = true,
    }
}

/// Embeddings, then scores, then text, in the places that AIPerf looks at and in its order.
fn usual(root: &Value, piece: &mut Piece) {
    let filled = |name| !array(&root[name]).is_empty();
    let embedded = array(&root["data"])
        .iter()
        .any(|item| !item["embedding"].is_null());
    let numbers = ["embeddings", "embedding", "rankings", "results"];
    if embedded || numbers.into_iter().any(filled) {
        piece.data = true;
        return;
    }
    let choice = &root["choices"][0];
    let places = ["text", "content", "response", "output", "result"].map(|name| &root[name]);
    let choices = [
        &choice["text"],
        &choice["message"]["content"],
        &choice["delta"]["content"],
    ];
    let text = places
        .into_iter()
        .chain(choices)
        .find_map(|value| value.as_str().filter(|t| !t.is_empty()));
    piece.text = text.map(str::to_owned);
    if let (None, Value::String(whole)) = (text, root) {
        put(&Value::from(whole.as_str()), piece);
    }
}
