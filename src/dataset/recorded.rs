//! How a conversation of a file builds its history, and the replies that it has recorded.
//!
//! In: a conversation's turns, and what its line says of itself. Out: a mode; turns of which each is a request. Never: a request for a reply of
//! the record, unless the line asks for live replies.

use serde_json::{Map, Value, json};

use super::lines::text_field;
use super::{ContextMode, Conversation, Turn};

/// AIPerf's names of the modes.
const MODES: [(&str, ContextMode); 3] = [
    ("deltas_without_responses", ContextMode::LiveReplies),
    ("deltas_with_responses", ContextMode::RecordedReplies),
    ("message_array_with_responses", ContextMode::SelfContained),
];

/// Takes `context_mode` out: how a line says it itself.
pub(super) fn mode(fields: &mut Map<String, Value>) -> Result<Option<ContextMode>, String> {
    let Some(name) = text_field(fields, "context_mode")? else {
        return Ok(None);
    };
    match MODES.iter().find(|(known, _)| *known == name) {
        Some((_, mode)) => Ok(Some(*mode)),
        None => Err(format!(
            "field context_mode: {name:?} is none of deltas_without_responses, deltas_with_responses and message_array_with_responses"
        )),
    }
}

/// Whether `turn` is a reply rather than a request.
fn is_reply(turn: &Turn) -> bool {
    turn.role == "assistant"
}

/// The mode of a conversation whose line says none: replies among its turns are the ones to go by.
pub(super) fn implied(turns: &[Turn]) -> ContextMode {
    if turns.iter().any(is_reply) {
        ContextMode::RecordedReplies
    } else {
        ContextMode::LiveReplies
    }
}

/// What the user should know of conversations with recorded replies.
pub(super) fn note(all: &[Conversation]) -> Option<String> {
    let recorded = all
        .iter()
        .filter(|one| one.context == ContextMode::RecordedReplies);
    note_of(recorded.count(), all.len())
}

/// The same of `count` of `all` conversations.
pub(super) fn note_of(count: usize, all: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} of {all} conversations carry recorded replies; these stand in the history, and what the server says does not"
        )
    })
}

/// Moves each reply of the record in front of the turn that follows it. One behind the last turn answers what nobody goes on from, and is
/// left out. Refused: a conversation of replies alone, a reply that is no text, and one with a time or a limit, which it has no use for.
pub(super) fn fold(turns: Vec<Turn>) -> Result<Vec<Turn>, String> {
    let mut kept: Vec<Turn> = Vec::new();
    let mut replies = Vec::new();
    for (mut turn, number) in turns.into_iter().zip(1_u32..) {
        if !is_reply(&turn) {
            turn.recorded.append(&mut replies);
            kept.push(turn);
            continue;
        }
        let timed = turn.timestamp_ms.is_some() || turn.delay_ms > 0.0;
        if timed || turn.max_tokens.is_some() || !turn.extra.is_empty() {
            return Err(format!(
                "turn {number}: an assistant's turn is a recorded reply and is not asked for; leave out its delay, timestamp, \
                 output_length and extra, or say \"context_mode\": \"deltas_without_responses\" to have it sent as a request"
            ));
        }
        if !turn.media.is_empty() {
            return Err(format!(
                "turn {number}: an assistant's turn with images or sounds cannot be a recorded reply; give text only"
            ));
        }
        if turn.messages.is_empty() {
            let content = turn.texts.join("\n");
            replies.push(json!({"role": "assistant", "content": content}));
        } else {
            replies.append(&mut turn.messages);
        }
    }
    if kept.is_empty() {
        return Err(
            "field turns: only an assistant's turns; give at least one of the user".to_owned(),
        );
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
