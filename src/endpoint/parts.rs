//! What one turn says, in parts.
//!
//! In: a turn with texts and media. Out: its `content` in a dialect's spelling. Never: reads a file or a URL; media come as they are
//! sent.

use serde_json::{Value, json};

use crate::dataset::{Media, MediaKind, Turn};

/// How a dialect spells parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `text`, `image_url` with a `url` inside, `input_audio`, `video_url`.
    Chat,
}

/// A turn's content: one text alone as a string, anything else as a list of parts.
pub(super) fn content(turn: &Turn, spelling: Spelling) -> Value {
    if let ([text], []) = (turn.texts.as_slice(), turn.media.as_slice()) {
        return Value::from(text.as_str());
    }
    let texts = turn.texts.iter().map(|text| text_part(text, spelling));
    let media = turn.media.iter().filter_map(|media| part(media, spelling));
    texts.chain(media).collect()
}

/// A turn's role, `user` where it has none.
pub(super) fn role(turn: &Turn) -> &str {
    if turn.role.is_empty() {
        "user"
    } else {
        &turn.role
    }
}

fn text_part(text: &str, spelling: Spelling) -> Value {
    match spelling {
        Spelling::Chat => json!({"type": "text", "text": text}),
    }
}

/// A picture, a sound or a film; nothing where the dialect has no such part.
fn part(media: &Media, spelling: Spelling) -> Option<Value> {
    let content = &*media.content;
    match (spelling, media.kind) {
        (Spelling::Chat, MediaKind::Image) => {
            Some(json!({"type": "image_url", "image_url": {"url": content}}))
        }
        (Spelling::Chat, MediaKind::Video) => {
            Some(json!({"type": "video_url", "video_url": {"url": content}}))
        }
        (Spelling::Chat, MediaKind::Audio) => {
            let (format, data) = sound(content);
            Some(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
        }
    }
}

/// Format and base64 of a sound that is written `wav,<base64>` or `data:audio/wav;base64,<base64>`.
fn sound(content: &str) -> (&str, &str) {
    let (before, data) = content.split_once(',').unwrap_or(("wav", content));
    let kind = before
        .strip_prefix("data:audio/")
        .map_or(before, |kind| kind.split(';').next().unwrap_or(kind));
    let format = match kind {
        "mpeg" => "mp3",
        "x-wav" | "wave" => "wav",
        other => other,
    };
    (format, data)
}
