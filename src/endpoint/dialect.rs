//! What an API dialect is.
//!
//! In: nothing. Out: the trait that each dialect's file implements, and what its methods are told. Never: a dialect.
//!
//! A new dialect is a file here, a line in `table.rs`, and a row of facts in `config/dialect.rs`.

use std::fmt::Debug;
use std::ops::Range;

use serde_json::{Map, Value, json};

use super::history::{self, Part};
use super::parse::{json, parsed};
use super::{Input, Marker, Parsed, Piece, Reply};
use crate::config::EndpointPlan;
use crate::dataset::{Conversation, Turn};

/// One API dialect, in both directions. What it can do, its paths and its content type are in
/// [`DialectFacts`](crate::config::DialectFacts).
///
/// A dialect does no I/O and keeps nothing between calls; one value serves all threads of a run.
pub trait Dialect: Debug + Send + Sync {
    /// The body of one turn, of the content type that the facts name. A turn with a [`Turn::payload`] never gets here.
    fn body(&self, request: &Request<'_>) -> Vec<u8>;

    /// The turn has what the body needs; else a sentence that says what is missing and how to give it. Asked of every turn before the
    /// load.
    fn check(&self, _turn: &Turn) -> Result<(), String> {
        Ok(())
    }

    /// What a reply object carried: a whole answer, or the data of one event.
    fn piece(&self, root: &mut Value, seen: Seen) -> Piece;

    /// As [`Dialect::piece`], from the bytes. Only a dialect with replies that are no JSON says anything else.
    fn read(&self, data: &[u8], seen: Seen) -> Parsed {
        match json(data) {
            Some(mut root) => parsed(self.piece(&mut root, seen)),
            None => Parsed::NotJson,
        }
    }

    /// As [`Dialect::read`], without a tree, for the chunk that comes a thousand times; `None` for any other. It may never say
    /// anything else than `read`.
    fn usual(&self, _data: &[u8]) -> Option<Usual> {
        None
    }

    /// The data of an event brings content. A worker asks this of the first events of a stream, where prefills are limited: it may
    /// neither build a tree nor allocate, and a wrong no only keeps the slot for longer.
    fn shows_content(&self, data: &[u8]) -> bool;

    /// Adds to `input` what a body says to the model.
    fn says(&self, body: &Value, input: &mut Input);

    /// As [`Dialect::says`], from the bytes of a body. Only a dialect whose bodies are no JSON says anything else.
    fn input(&self, body: &[u8]) -> Input {
        let mut input = Input::default();
        if let Ok(body) = serde_json::from_slice(body) {
            self.says(&body, &mut input);
        }
        input
    }

    /// Keeps of a reply object what the next turn's history needs besides the texts of its piece: tool calls, ids. Asked of every
    /// object of a reply.
    fn remember(&self, _data: &[u8], _reply: &mut Reply) {}

    /// Which earlier replies the body of `turn` names by their ids, where it may name any.
    fn naming(&self, _plan: &EndpointPlan, _turn: &Turn) -> Naming {
        Naming::Nothing
    }

    /// Puts a marker into a body, before what is said to the model. `None` where the body has no place for it.
    fn mark(&self, body: &mut Map<String, Value>, marker: &Marker<'_>) -> Option<()> {
        marker.in_messages(body, "messages")
    }

    /// Headers that the dialect adds, the key's among them. A header that the user gives replaces the one of the same name.
    fn headers(&self, plan: &EndpointPlan) -> Vec<(&'static str, String)> {
        let bearer = plan.api_key.as_ref();
        bearer
            .map(|key| ("Authorization", format!("Bearer {key}")))
            .into_iter()
            .collect()
    }

    /// Body of the readiness probe: the smallest request there is.
    fn probe(&self, model: &str) -> Vec<u8> {
        let message = json!({"role": "user", "content": "Lo"});
        json!({"messages": [message], "max_tokens": 1, "model": model})
            .to_string()
            .into_bytes()
    }
}

/// Which replies a body may name by their ids. The server puts what was said up to the last of them in front, and the body has only what
/// came after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// None.
    Nothing,
    /// Those of which the server says that it keeps them.
    Kept,
    /// All that have one: the user has the server keep them.
    All,
}

impl Naming {
    /// It is one of them.
    #[must_use]
    pub fn takes(self, reply: &Reply) -> bool {
        let kept = match self {
            Naming::Nothing => false,
            Naming::Kept => reply.stored,
            Naming::All => true,
        };
        kept && !reply.id.is_empty()
    }
}

/// What a body is made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The plan.
    pub plan: &'a EndpointPlan,
    /// The conversation.
    pub conversation: &'a Conversation,
    /// The turn, as a place in the conversation's turns.
    pub turn: usize,
    /// What each earlier turn was answered with; `None`, or a missing entry, is a turn that failed. Of use only to
    /// [`ContextMode::LiveReplies`](crate::dataset::ContextMode::LiveReplies).
    pub history: &'a [Option<Reply>],
}

impl<'a> Request<'a> {
    /// The turn that is asked.
    #[must_use]
    pub fn this(&self) -> &'a Turn {
        &self.conversation.turns[self.turn]
    }

    /// What the body says, in order, without the first `kept` turns: those the server remembers.
    pub(super) fn parts(&self, kept: usize) -> Vec<Part<'a>> {
        history::parts(self.conversation, self.turn, self.history, kept)
    }

    /// The tools that the body offers.
    #[must_use]
    pub fn tools(&self) -> Option<&'a Value> {
        history::tools(self.conversation, self.turn)
    }
}

/// What a reply has brought before the object at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Output text.
    pub text: bool,
    /// Reasoning text.
    pub reasoning: bool,
    /// Tool-call text.
    pub tool: bool,
}

/// The piece of a usual chunk, and where its text stands in the data if it has no escapes.
pub type Usual = (Piece, Option<Range<usize>>);
