//! Bodies that are known before they are sent.
//!
//! In: the plan and the corpus. Out: shared bytes for each turn that needs no live reply; the others
//! by joining what is known of them with the replies. Never: renders a turn on a worker, unless its dialect's bodies do not come apart.

use std::sync::Arc;

use super::live::{self, Frames, Slot};
use super::{Api, History, Reply};
use crate::dataset::{ContextMode, Conversation, Corpus};

/// Bodies by conversation and turn. First turns, and every turn of a conversation that needs no live replies, are there; a later turn
/// that waits for live replies is not.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    bodies: Vec<Known>,
    /// How replies are put in; `None` where bodies with live replies are rendered whole.
    slot: Option<Slot>,
}

/// What is known of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) turns: Vec<Option<Arc<[u8]>>>,
    /// Of turns that wait for live replies.
    pub(super) frames: Option<Frames>,
}

impl Bodies {
    /// As [`Bodies::take_all`], for who needs the corpus whole.
    #[must_use]
    pub fn render_all(api: &Api, corpus: &Corpus) -> Bodies {
        Bodies::take_all(api, &mut corpus.clone())
    }

    /// Renders all of them on every core of the process's mask. Conversations whose bodies are all known let go of their contents, so that
    /// a dataset is not kept twice.
    #[must_use]
    pub fn take_all(api: &Api, corpus: &mut Corpus) -> Bodies {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = corpus.conversations.len().div_ceil(threads).max(1);
        let mut bodies = vec![Known::default(); corpus.conversations.len()];
        let slot = corpus.conversations.iter().any(is_live);
        let slot = slot.then(|| Slot::new(api)).flatten();
        let slot_of = slot.as_ref();
        std::thread::scope(|scope| {
            let shares = corpus.conversations.chunks_mut(share);
            for (conversations, places) in shares.zip(bodies.chunks_mut(share)) {
                scope.spawn(move || {
                    for (conversation, place) in conversations.iter_mut().zip(places) {
                        *place = render_known(api, slot_of, conversation);
                        if place.turns.iter().all(Option::is_some) {
                            conversation.forget_contents();
                        }
                    }
                });
            }
        });
        Bodies { bodies, slot }
    }

    /// The body of a turn; `None` when it depends on live replies, or there is no such turn.
    #[must_use]
    pub fn body(&self, conversation: u32, turn: u32) -> Option<&Arc<[u8]>> {
        let known = self.bodies.get(conversation as usize)?;
        known.turns.get(turn as usize)?.as_ref()
    }

    /// Takes along that `turn` of conversation number `conversation` was answered with `reply`, or failed. Turns come in order.
    pub fn remember(
        &self,
        api: &Api,
        conversation: u32,
        turn: u32,
        reply: Option<Reply>,
        history: &mut History,
    ) {
        live::remember(self.frames(conversation), api, turn, reply, history);
    }

    /// The body of `turn`, the second or a later one of conversation number `number`, behind `history`.
    #[must_use]
    pub fn live(
        &self,
        api: &Api,
        (number, conversation): (u32, &Conversation),
        turn: u32,
        history: &History,
    ) -> Arc<[u8]> {
        live::body(self.frames(number), api, conversation, turn, history)
    }

    fn frames(&self, conversation: u32) -> Option<(&Frames, &Slot)> {
        let frames = self.bodies.get(conversation as usize)?.frames.as_ref();
        frames.zip(self.slot.as_ref())
    }
}

/// Some turns wait for live replies.
fn is_live(conversation: &Conversation) -> bool {
    conversation.context == ContextMode::LiveReplies && conversation.turns.len() > 1
}

/// Renders what can be known of `conversation` before it is played.
pub(super) fn render_known(api: &Api, slot: Option<&Slot>, conversation: &Conversation) -> Known {
    let live = conversation.context == ContextMode::LiveReplies;
    let known = |turn| turn == 0 || !live;
    let turns = (0..conversation.turns.len())
        .map(|turn| known(turn).then(|| Arc::from(api.render(conversation, turn, &[]))));
    let slot = slot.filter(|_| is_live(conversation));
    Known {
        turns: turns.collect(),
        frames: slot.and_then(|slot| Frames::new(api, slot, conversation)),
    }
}
