//! `embeddings`, `nim_embeddings` and `chat_embeddings`: `/v1/embeddings`.
//!
//! In: a turn; answers with `data`. Out: bodies; pieces that are data. Never: a stream, a history, or a look at the numbers.

use serde_json::{Value, json};

use super::body::Fields;
use super::dialect::{Dialect, Request, Seen};
use super::input::array;
use super::parse::peer_error;
use super::usage::usage;
use super::{Input, Piece, chat, parts};
use crate::dataset::{MediaKind, Turn};

/// How the body spells what is to be embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Embeddings {
    /// `input`: a list of texts.
    Texts,
    /// `input`: a list of texts, of pictures, or of both as `text picture`.
    Pairs,
    /// `messages`, as chat spells them.
    Messages,
}

impl Dialect for Embeddings {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        let mut body = Fields::new();
        match self {
            Embeddings::Texts | Embeddings::Pairs => {
                body.set("model", this.model.as_str());
                body.set("input", self.inputs(this));
            }
            Embeddings::Messages => {
                body.set("messages", chat::messages(request));
                body.set("model", this.model.as_str());
            }
        }
        body.extend(request);
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        // What an element calls its object is not asked: some servers leave it out.
        let embedded = |item: &Value| item.get("embedding").is_some_and(|e| !e.is_null());
        Piece {
            error: peer_error(root),
            usage: usage(root),
            data: root
                .get("data")
                .is_some_and(|data| array(data).iter().any(embedded)),
            ..Piece::default()
        }
    }

    /// Nothing here is streamed.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, body: &Value, input: &mut Input) {
        match self {
            Embeddings::Texts => input.prompt(&body["input"]),
            // The picture in a text is no text.
            Embeddings::Pairs => {
                for item in array(&body["input"]) {
                    let text = item.as_str().unwrap_or("");
                    let words = text
                        .split_once("data:image/")
                        .map_or(text, |(words, _)| words);
                    input.text(&Value::from(words.trim_end_matches(' ')));
                }
            }
            Embeddings::Messages => {
                for message in array(&body["messages"]) {
                    input.message(message);
                }
            }
        }
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        match self {
            Embeddings::Texts | Embeddings::Pairs => json!({"model": model, "input": ["Lo"]}),
            Embeddings::Messages => {
                json!({"messages": [{"role": "user", "content": "Lo"}], "model": model})
            }
        }
        .to_string()
        .into_bytes()
    }
}

impl Embeddings {
    /// A text and a picture of the same place stand together; what has no partner stands alone.
    fn inputs(self, turn: &Turn) -> Vec<Value> {
        if !turn.token_ids.is_empty() {
            return turn.token_ids.iter().map(|ids| json!(ids)).collect();
        }
        let mut pictures = parts::of_kind(turn, MediaKind::Image);
        if self == Embeddings::Texts {
            return turn.texts.iter().map(|text| json!(text)).collect();
        }
        let texts = turn.texts.iter().map(|text| match pictures.next() {
            Some(picture) if text.is_empty() => json!(picture),
            Some(picture) => json!(format!("{text} {picture}")),
            None => json!(text),
        });
        let mut inputs: Vec<Value> = texts.collect();
        inputs.extend(pictures.map(|picture| json!(picture)));
        inputs
    }
}
