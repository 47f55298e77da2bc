//! Bodies that wait for live replies, as far as they are known before the run.
//!
//! In: conversations, before the run; then one reply at a time. Out: the next turn's body, by joining bytes. Never: renders a turn or an
//! earlier reply again while load is sent, or knows a dialect.
//!
//! A body is taken apart by comparing two: that of a conversation that ends with its first turn, and that of one that ends with its first
//! and this turn. They agree up to the end of the history, and in what stands behind it. Where a server keeps replies, a third one names a
//! reply by its id and has only what came after. A dialect whose bodies do not come apart so, since its fields in front differ from turn to
//! turn, has them rendered whole.

use std::sync::Arc;

use super::dialect::Naming;
use super::{Api, Reply, history};
use crate::dataset::{ContextMode, Conversation, Turn};

/// What a session takes along from turn to turn.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The next body's bytes up to the latest reply.
    said: Vec<u8>,
    /// The latest reply that has an id, and the latest of those that the server says it keeps.
    all: Option<Told>,
    kept: Option<Told>,
    /// One entry for each earlier turn, where bodies are rendered whole.
    replies: Vec<Option<Reply>>,
}

impl History {
    /// A turn was answered with `reply`, or failed.
    pub fn push(&mut self, reply: Option<Reply>) {
        self.replies.push(reply);
    }

    /// What earlier turns were answered with, as far as it was kept.
    #[must_use]
    pub fn replies(&self) -> &[Option<Reply>] {
        &self.replies
    }

    /// Notes a reply, whose bytes are the last ones, and how a later body may name it.
    fn tell(&mut self, id: String, stored: bool) {
        if id.is_empty() {
            return;
        }
        let end = self.said.len();
        let told = Told { id, end };
        if stored {
            self.kept = Some(told.clone());
        }
        self.all = Some(told);
    }

    /// The latest reply that a body may name.
    fn told(&self, naming: Naming) -> Option<&Told> {
        match naming {
            Naming::Nothing => None,
            Naming::Kept => self.kept.as_ref(),
            Naming::All => self.all.as_ref(),
        }
    }
}

/// A reply with an id.
#[derive(Clone, Debug)]
struct Told {
    id: String,
    /// Where it ends among the bytes said.
    end: usize,
}

/// The known bytes of a conversation's bodies.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// From the start of every later body up to the end of the first turn.
    opening: Box<[u8]>,
    /// Turns from the second on.
    later: Vec<Frame>,
}

#[derive(Clone, Debug)]
struct Frame {
    /// The turn's own messages, with the comma in front.
    own: Box<[u8]>,
    /// From the end of the history to the end of the body.
    closing: Box<[u8]>,
    /// The same in a body that names a reply, and which it may name.
    named: Option<Named>,
    naming: Naming,
}

/// What is known of a body that names a reply.
#[derive(Clone, Debug)]
struct Named {
    /// From its start up to the first message after that reply.
    opening: Box<[u8]>,
    /// From the last message to the reply's id.
    before: Box<[u8]>,
    /// From there to the end.
    after: Box<[u8]>,
}

impl Named {
    /// `both` are two turns, the second of which has the messages `own`. `None` where the body does not come apart.
    fn new(api: &Api, both: &Conversation, own: &[u8]) -> Option<Named> {
        let body = |id: &str| {
            let reply = Reply {
                id: id.to_owned(),
                stored: true,
                ..trial()
            };
            api.render(both, 1, &[Some(reply)])
        };
        // They differ in the id alone.
        let (body, other) = (body("a"), body("b"));
        let own = own.get(1..)?;
        let begin = memchr::memmem::find(&body, own)?;
        let end = begin + own.len();
        let id = body.iter().zip(&other).take_while(|(a, b)| a == b).count();
        Some(Named {
            opening: body[..begin].into(),
            before: body.get(end..id)?.into(),
            after: body.get(id + 1..)?.into(),
        })
    }
}

/// Takes along that `turn` was answered with `reply`, or failed; without frames as it is.
pub(super) fn remember(
    frames: Option<(&Frames, &Slot)>,
    api: &Api,
    turn: u32,
    reply: Option<Reply>,
    history: &mut History,
) {
    match frames {
        Some((frames, slot)) => frames.remember(api, slot, turn as usize, reply, history),
        None => history.push(reply),
    }
}

/// The body of `turn`, the second or a later one of `conversation`, behind `history`; without frames it is rendered whole.
pub(super) fn body(
    frames: Option<(&Frames, &Slot)>,
    api: &Api,
    conversation: &Conversation,
    turn: u32,
    history: &History,
) -> Arc<[u8]> {
    match frames {
        Some((frames, _)) => frames.body(turn as usize, history),
        None => api
            .render(conversation, turn as usize, history.replies())
            .into(),
    }
}

impl Frames {
    /// `None` where the bodies do not come apart.
    pub(super) fn new(api: &Api, slot: &Slot, conversation: &Conversation) -> Option<Frames> {
        let mut opening: Option<Box<[u8]>> = None;
        let mut later = Vec::new();
        for (number, turn) in conversation.turns.iter().enumerate().skip(1) {
            let this = Turn {
                tools: history::tools(conversation, number).cloned(),
                ..turn.clone()
            };
            // The first turn's words under this turn's settings, which stand behind the history.
            let words = conversation.turns[0].clone();
            let first = Turn {
                texts: words.texts,
                text_names: words.text_names,
                media: words.media,
                messages: words.messages,
                recorded: words.recorded,
                role: words.role,
                ..this.clone()
            };
            let alone = ending_with(conversation, vec![first.clone()]);
            let naming = api.naming(&this);
            let mut both = ending_with(conversation, vec![first, this]);
            let (front, own, closing) =
                apart(&api.render(&alone, 0, &[]), &api.render(&both, 1, &[]))?;
            if *opening.get_or_insert_with(|| front.clone()) != front {
                return None;
            }
            both.context = ContextMode::LiveReplies;
            let named = match naming {
                Naming::Nothing => None,
                _ => Some(Named::new(api, &both, &own)?),
            };
            later.push(Frame {
                own,
                closing,
                named,
                naming,
            });
        }
        let opening = opening?;
        let frames = Frames { opening, later };
        let agree = |reply| frames.agree(api, slot, conversation, reply);
        let kept = Reply {
            id: "c".to_owned(),
            stored: true,
            ..trial()
        };
        (agree(None) && agree(Some(trial())) && agree(Some(kept))).then_some(frames)
    }

    /// The longest body is the same by either way. A dialect may write a message otherwise beside some other one.
    fn agree(
        &self,
        api: &Api,
        slot: &Slot,
        conversation: &Conversation,
        reply: Option<Reply>,
    ) -> bool {
        let last = self.later.len();
        let mut history = History::default();
        for turn in 0..last {
            self.remember(api, slot, turn, reply.clone(), &mut history);
        }
        let replies = vec![reply; last];
        self.body(last, &history)[..] == api.render(conversation, last, &replies)
    }

    /// `turn` was answered with `reply`, or failed.
    pub(super) fn remember(
        &self,
        api: &Api,
        slot: &Slot,
        turn: usize,
        reply: Option<Reply>,
        history: &mut History,
    ) {
        let own = match turn.checked_sub(1) {
            None => &self.opening,
            Some(later) => &self.later[later].own,
        };
        history.said.extend_from_slice(own);
        let Some(mut reply) = reply else { return };
        // Here it is written out, also where it may be named.
        let id = std::mem::take(&mut reply.id);
        let stored = std::mem::take(&mut reply.stored);
        slot.write(api, reply, &mut history.said);
        history.tell(id, stored);
    }

    /// The body of `turn`, the second or a later one.
    pub(super) fn body(&self, turn: usize, history: &History) -> Arc<[u8]> {
        let frame = &self.later[turn - 1];
        let told = history.told(frame.naming);
        let Some((named, told)) = frame.named.as_ref().zip(told) else {
            return joined(&[&history.said, &frame.own, &frame.closing]);
        };
        let said = &history.said[told.end..];
        // The first message has no comma in front.
        let (said, own) = match said {
            [] => (said, &frame.own[1..]),
            _ => (&said[1..], &frame.own[..]),
        };
        let id = serde_json::Value::from(told.id.as_str()).to_string();
        let id = &id.as_bytes()[1..id.len() - 1];
        joined(&[&named.opening, said, own, &named.before, id, &named.after])
    }
}

/// One behind the other.
fn joined(parts: &[&[u8]]) -> Arc<[u8]> {
    let length = parts.iter().map(|part| part.len()).sum();
    // Shared bytes are laid out once: from a vector they would be copied twice.
    let mut body: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    if let Some(mut space) = Arc::get_mut(&mut body) {
        for part in parts {
            let (place, rest) = space.split_at_mut(part.len());
            place.copy_from_slice(part);
            space = rest;
        }
    }
    body
}

/// How a reply looks inside a body: what a small body has more with it than without.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Two turns, between which the reply stands.
    around: Conversation,
    /// Bytes in front of it.
    front: usize,
    /// Bytes behind it.
    behind: Box<[u8]>,
}

impl Slot {
    /// `None` where a reply is not simply put between.
    pub(super) fn new(api: &Api) -> Option<Slot> {
        let turn = Turn {
            texts: vec!["a".to_owned()],
            role: "user".to_owned(),
            ..Turn::default()
        };
        let nothing = Conversation::default();
        let alone = ending_with(&nothing, vec![turn.clone()]);
        let mut around = ending_with(&nothing, vec![turn.clone(), turn]);
        let (front, own, closing) =
            apart(&api.render(&alone, 0, &[]), &api.render(&around, 1, &[]))?;
        around.context = ContextMode::LiveReplies;
        let slot = Slot {
            around,
            front: front.len(),
            behind: [own, closing].concat().into(),
        };
        let body = api.render(&slot.around, 1, &[Some(trial())]);
        let fits = body.starts_with(&front) && body.get(slot.front) == Some(&b',');
        (fits && body.ends_with(&slot.behind) && slot.middle(&body).len() > 1).then_some(slot)
    }

    /// Appends the reply's messages, each with a comma in front.
    fn write(&self, api: &Api, reply: Reply, out: &mut Vec<u8>) {
        let body = api.render(&self.around, 1, &[Some(reply)]);
        out.extend_from_slice(self.middle(&body));
    }

    fn middle<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        let end = body.len().saturating_sub(self.behind.len());
        body.get(self.front..end).unwrap_or_default()
    }
}

/// A reply to see where replies go.
fn trial() -> Reply {
    Reply {
        text: "b".to_owned(),
        ..Reply::default()
    }
}

/// The same conversation with other turns, whose history is theirs alone.
fn ending_with(conversation: &Conversation, turns: Vec<Turn>) -> Conversation {
    Conversation {
        id: String::new(),
        system: conversation.system.clone(),
        user_context: conversation.user_context.clone(),
        turns,
        context: ContextMode::RecordedReplies,
    }
}

type Bytes = Box<[u8]>;

/// What two bodies begin with, what `long` has more, and what they end with; `None` unless the list of messages ends where they part.
fn apart(short: &[u8], long: &[u8]) -> Option<(Bytes, Bytes, Bytes)> {
    let same = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let (front, closing) = short.split_at(same);
    let more = long.get(same..long.len().checked_sub(closing.len())?)?;
    let parts = closing.first() == Some(&b']') && more.first() == Some(&b',');
    let fits = parts && long.ends_with(closing);
    fits.then(|| (front.into(), more.into(), closing.into()))
}

#[cfg(test)]
mod tests;
