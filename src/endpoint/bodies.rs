//! Bodies that are known before the run.
//!
//! In: the plan and the corpus. Out: shared bytes for each turn that needs no live reply. Never: renders while load is sent.

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
    /// As [`Bodies::take_all`], for who needs the corpus whole.
    #[must_use]
    pub fn render_all(plan: &EndpointPlan, corpus: &Corpus) -> Bodies {
        Bodies::take_all(plan, &mut corpus.clone())
    }

    /// Renders all of them on every core of the process's mask. Conversations whose bodies are all known let go of their contents, so that
    /// a dataset is not kept twice.
    #[must_use]
    pub fn take_all(plan: &EndpointPlan, corpus: &mut Corpus) -> Bodies {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = corpus.conversations.len().div_ceil(threads).max(1);
        let mut bodies = vec![Vec::new(); corpus.conversations.len()];
        std::thread::scope(|scope| {
            let shares = corpus.conversations.chunks_mut(share);
            for (conversations, places) in shares.zip(bodies.chunks_mut(share)) {
                scope.spawn(move || {
                    for (conversation, place) in conversations.iter_mut().zip(places) {
                        *place = render_known(plan, conversation);
                        if place.iter().all(Option::is_some) {
                            conversation.forget_contents();
                        }
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

fn render_known(plan: &EndpointPlan, conversation: &Conversation) -> Vec<Option<Arc<[u8]>>> {
    let known = |turn| turn == 0 || conversation.context == ContextMode::SelfContained;
    (0..conversation.turns.len())
        .map(|turn| known(turn).then(|| Arc::from(render(plan, conversation, turn, &[]))))
        .collect()
}
