//! Markers that defeat prefix caches.
//!
//! In: a corpus, and what tells a session from all others. Out: the corpus with room for a marker of each session; markers. Never: a marker
//! of another length, so that a body can be made before its session is known.

use sha2::{Digest, Sha256};

use super::{ContextMode, Corpus, DatasetError, Turn};
use crate::config::CacheBust;
use crate::tokenizer::Tokenizer;

/// What stands in a body until its session is known. No marker looks like it, for theirs are hexadecimal.
pub const MARKER_ROOM: &str = "[rid:____________]";

/// What stands before all prompts of a warmup that is kept apart.
pub const WARMUP_MARKER: &str = "[warmup]";

/// Between a marker and what it marks: a blank line.
pub const MARKER_GAP: &str = "\n\n";

/// Hexadecimal digits of a marker.
const DIGITS: usize = 12;

/// Markers counted to tell what one costs.
const COUNTED: usize = 256;

/// The marker of session `session` of phase `phase`, which plays conversation number `conversation`. `run` tells the run from others,
/// whose prompts a server may still have in its cache.
///
/// ```
/// use tokenring::dataset::{MARKER_ROOM, session_marker};
/// let marker = session_marker(7, 0, 3, 1);
/// assert_eq!(marker.len(), MARKER_ROOM.len());
/// assert_ne!(marker, session_marker(7, 0, 4, 1));
/// ```
#[must_use]
pub fn session_marker(
    run: u64,
    phase: u8,
    session: u64,
    conversation: u32,
) -> [u8; MARKER_ROOM.len()] {
    let mut hash = Sha256::new();
    hash.update(run.to_be_bytes());
    hash.update([phase]);
    hash.update(session.to_be_bytes());
    hash.update(conversation.to_be_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut marker = *b"[rid:____________]";
    for (index, digit) in marker[5..5 + DIGITS].iter_mut().enumerate() {
        let byte = digest[index / 2];
        let half = if index % 2 == 0 { byte >> 4 } else { byte & 15 };
        *digit = b"0123456789abcdef"[usize::from(half)];
    }
    marker
}

/// Tokens of a marker with its gap: the mean of many, since they differ by some.
pub(super) fn marker_tokens(tokenizer: &dyn Tokenizer) -> usize {
    let tokens = |session| {
        let marker = session_marker(0, 0, session, 0);
        tokenizer.count(&format!("{}{MARKER_GAP}", String::from_utf8_lossy(&marker)))
    };
    let sum: usize = (0..).take(COUNTED).map(tokens).sum();
    (sum + COUNTED / 2) / COUNTED
}

/// Puts room for a marker where `target` says: into a conversation's system message, which is made where there is none, or into its first
/// turn. Where each turn is complete in itself, into each.
pub(super) fn make_room(target: CacheBust, corpus: &mut Corpus) -> Result<(), DatasetError> {
    for conversation in &mut corpus.conversations {
        let complete = |turn: &Turn| turn.payload.is_some() || !turn.messages.is_empty();
        if conversation.turns.iter().any(complete) {
            return Err(DatasetError::Unfit(format!(
                "--cache-bust: conversation {} has messages or bodies of its own, which are sent as they are; leave the flag out",
                conversation.id
            )));
        }
        match target {
            CacheBust::SystemPrefix | CacheBust::SystemSuffix => {
                let system = conversation.system.take().unwrap_or_default();
                conversation.system = Some(joined(&system, target == CacheBust::SystemPrefix));
            }
            CacheBust::FirstTurnPrefix | CacheBust::FirstTurnSuffix => {
                let count = match conversation.context {
                    ContextMode::SelfContained => conversation.turns.len(),
                    _ => 1,
                };
                for turn in conversation.turns.iter_mut().take(count) {
                    mark_turn(turn, target == CacheBust::FirstTurnPrefix);
                }
            }
            CacheBust::WarmupSystem | CacheBust::WarmupFirstTurn => {}
        }
    }
    Ok(())
}

fn mark_turn(turn: &mut Turn, before: bool) {
    let text = if before {
        turn.texts.first_mut()
    } else {
        turn.texts.last_mut()
    };
    match text {
        Some(text) => *text = joined(text, before),
        None => turn.texts.push(MARKER_ROOM.to_owned()),
    }
}

fn joined(text: &str, before: bool) -> String {
    match (text.is_empty(), before) {
        (true, _) => MARKER_ROOM.to_owned(),
        (false, true) => format!("{MARKER_ROOM}{MARKER_GAP}{text}"),
        (false, false) => format!("{text}{MARKER_GAP}{MARKER_ROOM}"),
    }
}
