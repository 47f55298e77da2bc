//! `huggingface_generate`: `/generate` and `/generate_stream` of text-generation-inference.
//!
//! In: a turn; events with a token, and whole answers. Out: bodies; pieces. Never: a history, or the text of a special token, which
//! the server leaves out of its own `generated_text` too.

use serde_json::{Map, Value, json};

use super::body::{Fields, one_or_list};
use super::content::{NULL, is_filled, member};
use super::dialect::{Dialect, Request, Seen};
use super::parse::{peer_error, take_text};
use super::{Input, Piece, Usage};

/// The dialect.
#[derive(Debug)]
pub(super) struct HuggingfaceGenerate;

impl Dialect for HuggingfaceGenerate {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        let mut parameters = Map::new();
        if let Some(limit) = this.max_tokens {
            parameters.insert("max_new_tokens".to_owned(), Value::from(limit));
        }
        let extras = request.plan.extra_inputs.iter().chain(&this.extra);
        parameters.extend(extras.map(|(name, value)| (name.clone(), value.clone())));
        let mut body = Fields::new();
        body.set("inputs", one_or_list(&this.texts));
        body.set("parameters", Value::Object(parameters));
        body.into_bytes()
    }

    fn piece(&self, root: &mut Value, seen: Seen) -> Piece {
        // A whole answer may be the only element of a list.
        let root = match root {
            Value::Array(answers) if !answers.is_empty() => &mut answers[0],
            other => other,
        };
        let mut piece = Piece {
            error: peer_error(root),
            ..Piece::default()
        };
        let whole = root.get("generated_text").is_some_and(Value::is_string);
        if root.get("token").is_some_and(Value::is_object) {
            let token = &mut root["token"];
            if token["special"] != true {
                piece.text = take_text(token, "text");
            }
        } else if whole && !seen.text {
            piece.text = take_text(root, "generated_text");
        }
        piece.complete = whole;
        if let Some(details) = root.get_mut("details").filter(|d| d.is_object()) {
            piece.finish_reason = take_text(details, "finish_reason");
            let prefill = details["prefill"]
                .as_array()
                .map(|tokens| tokens.len() as u64);
            let usage = Usage {
                prompt_tokens: details["input_length"]
                    .as_u64()
                    .or(prefill.filter(|&length| length > 0)),
                completion_tokens: details["generated_tokens"].as_u64(),
                ..Usage::default()
            };
            piece.usage = (usage != Usage::default()).then_some(usage);
        }
        piece
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        let token = member(data, b"token");
        if token.starts_with(b"{") {
            return member(token, b"special") != b"true" && is_filled(member(token, b"text"));
        }
        token == NULL && is_filled(member(data, b"generated_text"))
    }

    fn says(&self, body: &Value, input: &mut Input) {
        input.prompt(&body["inputs"]);
    }

    fn probe(&self, _model: &str) -> Vec<u8> {
        json!({"inputs": "Lo", "parameters": {"max_new_tokens": 1}})
            .to_string()
            .into_bytes()
    }
}
