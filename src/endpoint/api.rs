//! The endpoint of a run.
//!
//! In: the plan. Out: bodies of turns, and readers of replies, in the plan's dialect. Never: anything that depends on which dialect
//! it is.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::dialect::{Naming, Request, Seen};
use super::{Chunks, Dialect, Input, Marker, Parsed, Reply, ReplyBuilder, table};
use crate::config::{Ending, EndpointKind, EndpointPlan};
use crate::dataset::{Conversation, Corpus, Turn};

/// The endpoint of a run, cheap to clone.
///
/// ```
/// use tokenring::config::{EndpointKind, EndpointPlan};
/// use tokenring::endpoint::{Api, Parsed};
/// let api = Api::new(&EndpointPlan::plain(EndpointKind::Chat))?;
/// let data = br#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
/// let Parsed::Piece(piece) = api.parse(data) else { panic!() };
/// assert_eq!(piece.text.as_deref(), Some("Hi"));
/// # Ok::<(), tokenring::endpoint::ApiError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Api {
    plan: Arc<EndpointPlan>,
    dialect: Arc<dyn Dialect>,
}

/// What is wrong with a dialect's own settings, in a sentence that names the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ApiError(pub String);

impl Api {
    /// The plan's endpoint; fails when settings of its dialect are wrong.
    pub fn new(plan: &EndpointPlan) -> Result<Api, ApiError> {
        Ok(Api {
            dialect: table::dialect(plan)?,
            plan: Arc::new(plan.clone()),
        })
    }

    /// Which dialect it is.
    #[must_use]
    pub fn kind(&self) -> EndpointKind {
        self.plan.kind
    }

    /// Body of one turn. `history` holds what each earlier turn was answered with; `None`, or a missing entry, is a turn that failed
    /// and leaves no message. It matters only to [`ContextMode::LiveReplies`](crate::dataset::ContextMode::LiveReplies).
    ///
    /// Fields of `--extra-inputs` replace built-in ones of the same name in place, and the turn's own extras replace both. A turn's
    /// payload is its body as it is. Panics when `turn` is not a turn of `conversation`.
    #[must_use]
    pub fn render(
        &self,
        conversation: &Conversation,
        turn: usize,
        history: &[Option<Reply>],
    ) -> Vec<u8> {
        if let Some(payload) = &conversation.turns[turn].payload {
            return payload.as_bytes().to_vec();
        }
        self.dialect.body(&Request {
            plan: &self.plan,
            conversation,
            turn,
            history,
        })
    }

    /// Which earlier replies the body of `turn` names by their ids.
    #[must_use]
    pub(super) fn naming(&self, turn: &Turn) -> Naming {
        self.dialect.naming(&self.plan, turn)
    }

    /// Every turn has what its body needs. The error names the first that has not, and its line of `file` if it is from one.
    pub fn check(&self, corpus: &Corpus, file: Option<&Path>) -> Result<(), ApiError> {
        for conversation in &corpus.conversations {
            for (number, turn) in conversation.turns.iter().enumerate() {
                if turn.payload.is_none() {
                    let refused = |sentence| {
                        let (id, number) = (&conversation.id, number + 1);
                        let place = place(file, turn.line);
                        ApiError(format!(
                            "{place}conversation {id}, turn {number}: {sentence}"
                        ))
                    };
                    self.dialect.check(turn).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// Reads one object alone: a whole answer, or a chunk.
    #[must_use]
    pub fn parse(&self, data: &[u8]) -> Parsed {
        self.chunks().parse(data)
    }

    /// As [`Api::parse`], by a tree even where that is not needed: what the quick reading is held to.
    #[must_use]
    pub fn parse_thoroughly(&self, data: &[u8]) -> Parsed {
        self.dialect.read(data, Seen::default())
    }

    /// A reader for the chunks of one reply.
    #[must_use]
    pub fn chunks(&self) -> Chunks {
        Chunks::new(Arc::clone(&self.dialect), self.ending())
    }

    /// Puts one reply together for the next turn's history.
    #[must_use]
    pub fn reply_builder(&self) -> ReplyBuilder {
        ReplyBuilder::new(&self.dialect, self.ending())
    }

    /// How a stream says that it is whole.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.plan.kind.facts().ending
    }

    /// What a body says to the model; nothing where the dialect's input is not counted in tokens.
    #[must_use]
    pub fn input(&self, body: &[u8]) -> Input {
        self.dialect.input(body)
    }

    /// The data of an event brings content of the reply; a role, an empty text, usage or an error is none. It neither builds a tree
    /// nor allocates.
    #[must_use]
    pub fn shows_content(&self, data: &[u8]) -> bool {
        self.dialect.shows_content(data)
    }

    /// The body with the marker in it; as it is where there is no place for one, or it is no JSON object.
    #[must_use]
    pub fn marked(&self, body: &[u8], marker: &Marker<'_>) -> Vec<u8> {
        let marked = serde_json::from_slice(body).ok().and_then(|mut fields| {
            self.dialect.mark(&mut fields, marker)?;
            Some(Value::Object(fields).to_string().into_bytes())
        });
        marked.unwrap_or_else(|| body.to_vec())
    }

    /// Body of the readiness probe.
    #[must_use]
    pub fn probe(&self, model: &str) -> Vec<u8> {
        self.dialect.probe(model)
    }

    /// Headers that every request has because of the dialect: the key's, and the content type.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        self.dialect.headers(&self.plan)
    }

    /// `Content-Type` of the bodies.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        self.plan.kind.facts().content_type
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &EndpointPlan {
        &self.plan
    }
}

/// Where a turn stands, to be put before a sentence; nothing for one that was made up.
fn place(file: Option<&Path>, line: u64) -> String {
    match (file.map(Path::display), line) {
        (None, _) => String::new(),
        (Some(file), 0) => format!("--input-file {file}: "),
        (Some(file), line) => format!("--input-file {file}:{line}: "),
    }
}
