//! Conversations that are made while the load is on.
//!
//! In: one conversation of a streamed dataset. Out: what else would be asked of the corpus and its bodies. Never: more of a conversation in
//! memory than its turns still need.

use std::sync::Arc;

use super::bodies::{self, Known};
use super::live::{self, Frames, Slot};
use super::{Api, History, Reply};
use crate::dataset::{Conversation, Turn};

/// Makes them.
#[derive(Clone, Debug)]
pub struct Renderer {
    api: Api,
    /// How replies are put into bodies.
    slot: Option<Arc<Slot>>,
}

impl Renderer {
    /// For bodies of `api`.
    #[must_use]
    pub fn new(api: &Api) -> Renderer {
        Renderer {
            slot: Slot::new(api).map(Arc::new),
            api: api.clone(),
        }
    }

    /// Renders what can be known of `conversation`.
    #[must_use]
    pub fn make(&self, conversation: Conversation) -> Made {
        let known = bodies::render_known(&self.api, self.slot.as_deref(), &conversation);
        let Known { turns, frames } = known;
        let turns = turns.into_iter().enumerate();
        let turns = turns.map(|(number, body)| MadeTurn {
            max_tokens: conversation.turns[number].max_tokens,
            image_count: conversation.image_count(number),
            sound_ns: conversation.sound_ns(number),
            delay_ms: conversation.turns[number].delay_ms,
            timestamp_ms: conversation.turns[number].timestamp_ms,
            body,
        });
        let turns: Vec<MadeTurn> = turns.collect();
        let id = conversation.id.clone();
        let waits = turns.iter().any(|turn| turn.body.is_none());
        let live = waits.then(|| {
            Box::new(Live {
                api: self.api.clone(),
                slot: self.slot.clone(),
                frames,
                conversation,
            })
        });
        Made { id, turns, live }
    }
}

/// A conversation that was made while the load was on, and the bodies of its turns as far as they are known. Turns are numbered from 0;
/// asking for one that it has not is a panic.
#[derive(Debug)]
pub struct Made {
    /// Its id in files.
    pub id: String,
    turns: Vec<MadeTurn>,
    /// Where turns wait for live replies.
    live: Option<Box<Live>>,
}

#[derive(Debug)]
struct MadeTurn {
    max_tokens: Option<u32>,
    image_count: u32,
    sound_ns: u64,
    delay_ms: f64,
    timestamp_ms: Option<f64>,
    body: Option<Arc<[u8]>>,
}

/// What bodies with live replies are made from.
#[derive(Debug)]
struct Live {
    api: Api,
    slot: Option<Arc<Slot>>,
    frames: Option<Frames>,
    conversation: Conversation,
}

impl Live {
    fn frames(&self) -> Option<(&Frames, &Slot)> {
        self.frames.as_ref().zip(self.slot.as_deref())
    }
}

impl Made {
    /// Turns, at least 1.
    #[must_use]
    pub fn turn_count(&self) -> u32 {
        u32::try_from(self.turns.len()).unwrap_or(u32::MAX)
    }

    /// The output limit of `turn`.
    #[must_use]
    pub fn max_tokens(&self, turn: u32) -> Option<u32> {
        self.turn(turn).max_tokens
    }

    /// Pictures in the request of `turn`.
    #[must_use]
    pub fn image_count(&self, turn: u32) -> u32 {
        self.turn(turn).image_count
    }

    /// How long its sounds last, in nanoseconds.
    #[must_use]
    pub fn sound_ns(&self, turn: u32) -> u64 {
        self.turn(turn).sound_ns
    }

    /// Think time before `turn`, in milliseconds.
    #[must_use]
    pub fn delay_ms(&self, turn: u32) -> f64 {
        self.turn(turn).delay_ms
    }

    /// When `turn` is due after the schedule's zero, in milliseconds, where it has a time of its own.
    #[must_use]
    pub fn timestamp_ms(&self, turn: u32) -> Option<f64> {
        self.turn(turn).timestamp_ms
    }

    /// The body of `turn`; `None` where it waits for live replies.
    #[must_use]
    pub fn body(&self, turn: u32) -> Option<&Arc<[u8]>> {
        self.turn(turn).body.as_ref()
    }

    /// Later turns need what the server said in earlier ones.
    #[must_use]
    pub fn needs_reply(&self) -> bool {
        self.live.is_some()
    }

    /// Takes along that `turn` was answered with `reply`, or failed. Turns come in order.
    pub fn remember(&self, turn: u32, reply: Option<Reply>, history: &mut History) {
        let Some(live) = &self.live else { return };
        live::remember(live.frames(), &live.api, turn, reply, history);
    }

    /// The body of `turn` behind `history`; empty where it waits for no reply.
    #[must_use]
    pub fn live_body(&self, turn: u32, history: &History) -> Arc<[u8]> {
        let Some(live) = &self.live else {
            return self.body(turn).cloned().unwrap_or_default();
        };
        live::body(live.frames(), &live.api, &live.conversation, turn, history)
    }

    /// The bodies of all turns as they are without live replies.
    pub fn bodies(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let turns = self.turns.iter().enumerate();
        turns.filter_map(|(number, turn)| match (&turn.body, &self.live) {
            (Some(body), _) => Some(body.to_vec()),
            (None, Some(live)) => Some(live.api.render(&live.conversation, number, &[])),
            (None, None) => None,
        })
    }

    /// Bytes of the bodies that are known, and about what the others are made from: the turns, and their texts here and in frames.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        let bodies = self.turns.iter().filter_map(|turn| turn.body.as_ref());
        let turns = self.live.iter().flat_map(|live| &live.conversation.turns);
        let from = turns.map(|turn| {
            let texts = turn.texts.iter().map(String::len).sum::<usize>();
            2 * (size_of::<Turn>() + texts)
        });
        bodies.map(|body| body.len()).chain(from).sum()
    }

    fn turn(&self, turn: u32) -> &MadeTurn {
        &self.turns[turn as usize]
    }
}
