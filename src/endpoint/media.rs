//! Pictures and sounds in a chat message.
//!
//! In: media of a turn. Out: content parts. Never: reads a file or a URL.

use serde_json::{Value, json};

use crate::dataset::{Media, MediaKind};

/// The content part of one picture, sound or film.
pub(super) fn part(media: &Media) -> Value {
    let content = &*media.content;
    match media.kind {
        MediaKind::Image => json!({"type": "image_url", "image_url": {"url": content}}),
        MediaKind::Video => json!({"type": "video_url", "video_url": {"url": content}}),
        MediaKind::Audio => {
            let (format, data) = content.split_once(',').unwrap_or(("wav", content));
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
    }
}
