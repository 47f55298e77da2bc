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
    /// `input_text`, `input_image` with its URL beside, `input_audio`; no film.
    Responses,
    /// `text`, and `image` with a `source`; no sound and no film.
    Messages,
}

/// A turn's content: one text alone as a string, anything else as a list of parts.
pub(super) fn content(turn: &Turn, spelling: Spelling) -> Value {
    if let ([text], []) = (turn.texts.as_slice(), turn.media.as_slice()) {
        return Value::from(text.as_str());
    }
    let texts = turn
        .texts
        .iter()
        .map(|text| text_part(text, role(turn), spelling));
    let media = turn.media.iter().filter_map(|media| part(media, spelling));
    texts.chain(media).collect()
}

/// A message among the items of a `responses` body, its keys in AIPerf's order.
pub(super) fn message(role: &str, content: impl Into<Value>) -> Value {
    json!({"role": role, "content": content.into(), "type": "message"})
}

/// A turn's role, `user` where it has none.
pub(super) fn role(turn: &Turn) -> &str {
    if turn.role.is_empty() {
        "user"
    } else {
        &turn.role
    }
}

/// What a turn has of one kind of media, in order.
pub(super) fn of_kind(turn: &Turn, kind: MediaKind) -> impl Iterator<Item = &str> {
    let media = turn.media.iter().filter(move |media| media.kind == kind);
    media.map(|media| &*media.content)
}

/// One of chat's parts in another spelling; one that has none there as it is.
pub(super) fn respelt(chat: &Value, role: &str, spelling: Spelling) -> Value {
    let media = |kind, content: &str| Media::new(kind, content);
    let respelt = match chat["type"].as_str() {
        Some("text") => chat["text"]
            .as_str()
            .map(|text| text_part(text, role, spelling)),
        Some("image_url") => {
            let url = chat["image_url"]["url"].as_str();
            url.or_else(|| chat["image_url"].as_str())
                .and_then(|url| part(&media(MediaKind::Image, url), spelling))
        }
        _ => None,
    };
    respelt.unwrap_or_else(|| chat.clone())
}

fn text_part(text: &str, role: &str, spelling: Spelling) -> Value {
    match spelling {
        Spelling::Responses if role == "assistant" => json!({"type": "output_text", "text": text}),
        Spelling::Responses => json!({"type": "input_text", "text": text}),
        Spelling::Chat | Spelling::Messages => json!({"type": "text", "text": text}),
    }
}

/// A picture, a sound or a film; nothing where the dialect has no such part.
fn part(media: &Media, spelling: Spelling) -> Option<Value> {
    use MediaKind::{Audio, Image, Video};
    let content = &*media.content;
    let audio = || {
        let (format, data) = sound(content);
        json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
    };
    Some(match (spelling, media.kind) {
        (Spelling::Chat, Image) => {
            let mut part = json!({"type": "image_url", "image_url": {"url": content}});
            // An extension of vLLM, whose cache of pictures goes by it.
            if let Some(uuid) = &media.uuid {
                part["uuid"] = Value::from(&**uuid);
            }
            part
        }
        (Spelling::Chat, Video) => json!({"type": "video_url", "video_url": {"url": content}}),
        (Spelling::Responses, Image) => json!({"type": "input_image", "image_url": content}),
        (Spelling::Chat | Spelling::Responses, Audio) => audio(),
        (Spelling::Messages, Image) => json!({"type": "image", "source": source(content)}),
        (Spelling::Responses, Video) | (Spelling::Messages, Audio | Video) => return None,
    })
}

/// `source` of a picture: the base64 of a data URL, or the URL.
fn source(content: &str) -> Value {
    let data = content
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((kind, data)) => json!({"type": "base64", "media_type": kind, "data": data}),
        None => json!({"type": "url", "url": content}),
    }
}

/// Format and base64 of a sound that is written `wav,<base64>` or `data:audio/wav;base64,<base64>`.
pub(super) fn sound(content: &str) -> (&str, &str) {
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
