//! `solido_rag`: `/rag/api/prompt`.
//!
//! In: a turn; answers with `content`. Out: bodies; pieces. Never: a history, or an output limit; the API has no field for one.

use serde_json::{Value, json};

use super::body::Fields;
use super::content::{is_filled, member};
use super::dialect::{Dialect, Request, Seen};
use super::parse::{peer_error, take_text};
use super::usage::usage;
use super::{Input, Piece};

/// The dialect.
#[derive(Debug)]
pub(super) struct SolidoRag;

impl Dialect for SolidoRag {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        let mut body = Fields::new();
        body.set("query", this.texts.clone());
        body.set("filters", json!({"family": "Solido", "tool": "SDE"}));
        body.set("inference_model", this.model.as_str());
        body.extend(request);
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        Piece {
            error: peer_error(root),
            usage: usage(root),
            text: take_text(root, "content"),
            ..Piece::default()
        }
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        is_filled(member(data, b"content"))
    }

    fn says(&self, body: &Value, input: &mut Input) {
        input.prompt(&body["query"]);
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        json!({"query": ["Lo"], "filters": {"family": "Solido", "tool": "SDE"}, "inference_model": model})
            .to_string()
            .into_bytes()
    }
}
