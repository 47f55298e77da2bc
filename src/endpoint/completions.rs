//! `completions`: `/v1/completions`.
//!
//! In: a turn; chunks and answers. Out: bodies; pieces. Never: a history; the API has no place for one.

use serde_json::{Value, json};

use super::body::{Fields, one_or_list};
use super::choices::{self, Objects};
use super::content;
use super::dialect::{Dialect, Request, Seen, Usual};
use super::parse::{peer_error, take_text};
use super::usage::usage;
use super::usual::{self, Shape};
use super::{Input, Piece, Said};
use crate::dataset::Turn;

/// The dialect.
#[derive(Debug)]
pub(super) struct Completions;

/// Objects of its replies.
const OBJECTS: Objects = Objects(["text_completion", "completion"]);

impl Dialect for Completions {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        let mut body = Fields::new();
        body.set("prompt", prompt(this));
        body.set("model", this.model.as_str());
        body.set("stream", request.plan.streaming);
        body.set_some("max_tokens", this.max_tokens);
        body.extend(request);
        body.ask_for_usage(request);
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        let mut piece = Piece {
            error: peer_error(root),
            ..Piece::default()
        };
        if !OBJECTS.include(root) {
            return piece;
        }
        piece.usage = usage(root);
        piece.others = choices::others(root, said);
        if let Some(choice) = choices::first(root) {
            piece.finish_reason = take_text(choice, "finish_reason");
            piece.text = said(choice).text;
        }
        piece
    }

    fn usual(&self, data: &[u8]) -> Option<Usual> {
        usual::piece(Shape::Completions, data)
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        content::choices(data, &OBJECTS)
            .any(|choice| content::is_filled(content::member(choice, b"text")))
    }

    fn says(&self, body: &Value, input: &mut Input) {
        input.prompt(&body["prompt"]);
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        json!({"prompt": "Lo", "max_tokens": 1, "model": model})
            .to_string()
            .into_bytes()
    }
}

/// Texts, or the token ids that stand for them.
fn prompt(turn: &Turn) -> Value {
    match turn.token_ids.as_slice() {
        [] => one_or_list(&turn.texts),
        [ids] => Value::from(ids.clone()),
        several => several.iter().cloned().map(Value::from).collect(),
    }
}

/// What a choice says.
fn said(choice: &mut Value) -> Said {
    Said {
        text: take_text(choice, "text"),
        ..Said::default()
    }
}
