//! Bodies that are known before they are sent.
//!
//! In: the plan and the corpus, or one conversation of a streamed dataset. Out: shared bytes for each turn that needs no live reply.
//! Never: renders on a worker.

use std::sync::Arc;

use super::render;
use crate::config::EndpointPlan;
use crate::dataset::{ContextMode, Conversation, Corpus};

/// Bodies by conversation and turn. First turns, and every turn of a self-contained conversation, are there; a later turn that
/// waits for live replies is not.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    bodies: Vec<Vec<Option<Arc<[u8]>>>>,
}

impl Bodies {
    /// Renders all of them on every core of the process's mask.
    #[must_use]
    pub fn render_all(plan: &EndpointPlan, corpus: &Corpus) -> Bodies {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = corpus.conversations.len().div_ceil(threads).max(1);
        let mut bodies = vec![Vec::new(); corpus.conversations.len()];
        std::thread::scope(|scope| {
            let shares = corpus.conversations.chunks(share);
            for (conversations, places) in shares.zip(bodies.chunks_mut(share)) {
                scope.spawn(move || {
                    for (conversation, place) in conversations.iter().zip(places) {
                        *place = render_known(plan, conversation);
                    }
                });
            }
        });
        Bodies { bodies }
    }

    /// The body of a turn; `None` when it depends on live replies, or there is no such turn.
    #[must_use]
    pub fn body(&self, conversation: u32, turn: u32) -> Option<&Arc<[u8]>> {
        let turns = self.bodies.get(conversation as usize)?;
        turns.get(turn as usize)?.as_ref()
    }
}

/// A request that was made while the load was on, from a dataset that is streamed: what else would be asked of the corpus.
#[derive(Debug)]
pub struct Made {
    /// Id of its conversation in files.
    pub id: String,
    /// Output limit.
    pub max_tokens: Option<u32>,
    /// Its body.
    pub body: Arc<[u8]>,
}

impl Made {
    /// Renders the only turn of `conversation`. Panics when it has none.
    #[must_use]
    pub fn new(plan: &EndpointPlan, conversation: Conversation) -> Made {
        Made {
            body: render(plan, &conversation, 0, &[]).into(),
            max_tokens: conversation.turns[0].max_tokens,
            id: conversation.id,
        }
    }
}

fn render_known(plan: &EndpointPlan, conversation: &Conversation) -> Vec<Option<Arc<[u8]>>> {
    let known = |turn| turn == 0 || conversation.context == ContextMode::SelfContained;
    (0..conversation.turns.len())
        .map(|turn| known(turn).then(|| Arc::from(render(plan, conversation, turn, &[]))))
        .collect()
}
