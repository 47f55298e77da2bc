//! `nim_rankings`, `cohere_rankings` and `hf_tei_rankings`: passages in order of a query.
//!
//! In: a turn with texts that are named `query` and `passages`; answers with scores. Out: bodies; pieces that are data. Never: a stream,
//! a history, or a look at the scores.

use serde_json::{Value, json};

use super::body::Fields;
use super::dialect::{Dialect, Request, Seen};
use super::input::array;
use super::parse::peer_error;
use super::usage::usage;
use super::{Input, Piece};
use crate::dataset::Turn;

/// How the body spells a query and its passages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rankings {
    /// `query` and `passages`, each an object with a `text`.
    Nim,
    /// `query` and `documents`.
    Cohere,
    /// `query` and `texts`, without a model.
    Tei,
}

impl Dialect for Rankings {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        // That there is one has been checked.
        let query = named(this, &["query", "queries"]).next().unwrap_or("");
        let passages: Vec<&str> = named(this, &["passages", "passage"]).collect();
        let mut body = self.fields(&this.model, query, &passages);
        body.extend(request);
        body.into_bytes()
    }

    fn check(&self, turn: &Turn) -> Result<(), String> {
        let queries = named(turn, &["query", "queries"]).count();
        let passages = named(turn, &["passages", "passage"]).count();
        if queries == 1 && passages > 0 {
            return Ok(());
        }
        let found = match (queries, passages) {
            (0, _) => "no text named query".to_owned(),
            (1, _) => "no text named passages".to_owned(),
            (several, _) => format!("{several} texts named query"),
        };
        Err(format!(
            "a ranking needs one query and its passages, and there is {found}; give texts such as \
             \"texts\":[{{\"name\":\"query\",\"contents\":[\"...\"]}},{{\"name\":\"passages\",\"contents\":[\"...\"]}}]"
        ))
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        let scores = match self {
            Rankings::Nim => root.get("rankings"),
            Rankings::Cohere => root.get("results"),
            Rankings::Tei => root.get("results").or(Some(&*root)),
        };
        Piece {
            data: scores.is_some_and(|scores| !array(scores).is_empty()),
            error: peer_error(root),
            usage: usage(root),
            ..Piece::default()
        }
    }

    /// Nothing here is streamed.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, body: &Value, input: &mut Input) {
        match self {
            Rankings::Nim => {
                input.text(&body["query"]["text"]);
                for passage in array(&body["passages"]) {
                    input.text(&passage["text"]);
                }
            }
            Rankings::Cohere | Rankings::Tei => {
                input.text(&body["query"]);
                input.prompt(&body[self.passages()]);
            }
        }
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        self.fields(model, "Lo", &["Lo"]).into_bytes()
    }
}

impl Rankings {
    fn fields(self, model: &str, query: &str, passages: &[&str]) -> Fields {
        let mut body = Fields::new();
        if self != Rankings::Tei {
            body.set("model", model);
        }
        if self == Rankings::Nim {
            body.set("query", json!({"text": query}));
            let passages = passages.iter().map(|text| json!({"text": text}));
            body.set(self.passages(), passages.collect::<Value>());
        } else {
            body.set("query", query);
            body.set(self.passages(), passages);
        }
        body
    }

    fn passages(self) -> &'static str {
        match self {
            Rankings::Nim => "passages",
            Rankings::Cohere => "documents",
            Rankings::Tei => "texts",
        }
    }
}

/// The texts of a turn that have one of these names.
fn named<'a>(turn: &'a Turn, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let texts = turn.texts.iter().zip(&turn.text_names);
    texts
        .filter(|(_, name)| names.contains(&name.as_str()))
        .map(|(text, _)| text.as_str())
}
