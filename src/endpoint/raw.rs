//! `raw`: bodies that the dataset gives whole.
//!
//! In: replies. Out: pieces. Never: a body of its own; each turn's payload is sent as it is.

use serde_json::Value;

use super::dialect::{Dialect, Request, Seen};
use super::found::Answer;
use super::parse::{json, parsed};
use super::{Input, Parsed, Piece};
use crate::dataset::Turn;

/// The dialect.
#[derive(Debug)]
pub(super) struct Raw(pub(super) Answer);

impl Dialect for Raw {
    /// Never asked for: a turn has a payload, which has been checked.
    fn body(&self, _request: &Request<'_>) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn check(&self, _turn: &Turn) -> Result<(), String> {
        Err(
            "--endpoint-type raw sends bodies of a file, and this turn has none; give --input-file with --custom-dataset-type raw-payload or inputs-json"
                .to_owned(),
        )
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        self.0.piece(root)
    }

    fn read(&self, data: &[u8], seen: Seen) -> Parsed {
        read(self, data, seen)
    }

    /// What an event carries is found with a tree, and none may be built for this question.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, body: &Value, input: &mut Input) {
        says(body, input);
    }
}

/// A reply that is no JSON is text.
pub(super) fn read(dialect: &dyn Dialect, data: &[u8], seen: Seen) -> Parsed {
    match json(data) {
        Some(mut root) => parsed(dialect.piece(&mut root, seen)),
        None => parsed(Answer::plain(data)),
    }
}

/// What a body says, in the places where other dialects have it.
pub(super) fn says(body: &Value, input: &mut Input) {
    for message in super::input::array(&body["messages"]) {
        input.message(message);
    }
    for name in ["prompt", "input", "inputs", "text", "texts", "query"] {
        input.prompt(&body[name]);
    }
}
