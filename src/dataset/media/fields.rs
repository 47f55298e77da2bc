//! Media that a dataset's entry names.
//!
//! In: the fields of an entry. Out: media as they are sent: URLs and data URLs as they stand, files read and encoded. Never: fetches a URL.

use std::path::Path;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value};

use crate::dataset::lines::shown;
use crate::dataset::{Media, MediaKind};

/// Fields of one entry and of several, by kind.
const FIELDS: [(&str, &str, MediaKind); 3] = [
    ("image", "images", MediaKind::Image),
    ("audio", "audios", MediaKind::Audio),
    ("video", "videos", MediaKind::Video),
];

/// Largest file that is encoded; a body has no room for more.
const FILE_BYTES_MOST: u64 = 256 << 20;

/// Takes the fields `image`, `images`, `audio`, `audios`, `video` and `videos` out. What is neither a URL with a host, nor a data URL, nor
/// `wav,<base64>` or `mp3,<base64>`, is the path of a file, from the folder in which the program runs.
pub(in crate::dataset) fn take(fields: &mut Map<String, Value>) -> Result<Vec<Media>, String> {
    let mut media = Vec::new();
    for (one, several, kind) in FIELDS {
        let (field, contents) = match (fields.remove(one), fields.remove(several)) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "fields {one} and {several}: give one of them, not both"
                ));
            }
            (None, None) => continue,
            (Some(value), None) => (one, vec![value]),
            (None, Some(Value::Array(list))) => (several, list),
            (None, Some(other)) => {
                return Err(format!("field {several}: {} is not a list", shown(&other)));
            }
        };
        for value in contents {
            let name = value["name"].as_str().map(Arc::from);
            for content in strings(field, value)? {
                let content = encoded(kind, content);
                let content = content.map_err(|reason| format!("field {field}: {reason}"))?;
                media.push(Media {
                    name: name.clone(),
                    ..Media::new(kind, content)
                });
            }
        }
    }
    Ok(media)
}

/// A string, or the strings of an object with contents.
fn strings(field: &str, value: Value) -> Result<Vec<String>, String> {
    let texts = match value {
        Value::String(text) => vec![text],
        Value::Object(mut named) => match named.remove("contents") {
            Some(Value::Array(contents)) => {
                let strings = contents.into_iter().map(|content| match content {
                    Value::String(text) => Ok(text),
                    other => Err(format!(
                        "field {field}: {} in contents is not a string",
                        shown(&other)
                    )),
                });
                strings.collect::<Result<_, _>>()?
            }
            _ => {
                return Err(format!(
                    "field {field}: an item has no list called contents"
                ));
            }
        },
        other => {
            return Err(format!(
                "field {field}: {} is neither a string nor an object",
                shown(&other)
            ));
        }
    };
    match texts.iter().any(String::is_empty) {
        true => Err(format!("field {field}: an empty string names nothing")),
        false => Ok(texts),
    }
}

fn encoded(kind: MediaKind, content: String) -> Result<Arc<str>, String> {
    if is_as_sent(kind, &content) {
        return Ok(content.into());
    }
    if kind == MediaKind::Video {
        return Err(
            "a video goes out by its URL or as a data URL; files are encoded for images and audio only"
                .to_owned(),
        );
    }
    let path = Path::new(&content);
    let unread =
        |reason: String| format!("{content:?} is no URL, and as a file cannot be read: {reason}");
    let length = std::fs::metadata(path)
        .map_err(|e| unread(e.to_string()))?
        .len();
    if length > FILE_BYTES_MOST {
        return Err(unread(format!(
            "{length} bytes are more than {FILE_BYTES_MOST}"
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| unread(e.to_string()))?;
    let (prefix, wanted) = match kind {
        MediaKind::Image => (picture_prefix(&bytes), "PNG, JPEG, GIF nor WebP"),
        _ => (sound_prefix(&bytes), "WAV nor MP3"),
    };
    let Some(prefix) = prefix else {
        return Err(format!("{content:?} is neither {wanted}"));
    };
    let mut text = String::from(prefix);
    BASE64_STANDARD.encode_string(bytes, &mut text);
    Ok(text.into())
}

/// It needs no encoding: a URL with a host, a data URL, or a sound in base64.
fn is_as_sent(kind: MediaKind, content: &str) -> bool {
    let sound = content.starts_with("wav,") || content.starts_with("mp3,");
    let url = content.split_once("://").is_some_and(|(scheme, rest)| {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
        let host = !rest.is_empty() && !rest.starts_with('/');
        !scheme.is_empty() && scheme.bytes().all(letters) && host
    });
    url || content.starts_with("data:") || (kind == MediaKind::Audio && sound)
}

/// What stands before the base64 of a picture, by its first bytes.
fn picture_prefix(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("data:image/png;base64,"),
        [0xff, 0xd8, 0xff, ..] => Some("data:image/jpeg;base64,"),
        [b'G', b'I', b'F', b'8', ..] => Some("data:image/gif;base64,"),
        _ if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => {
            Some("data:image/webp;base64,")
        }
        _ => None,
    }
}

/// What stands before the base64 of a sound, by its first bytes: a RIFF file of waves, an ID3 tag, or the sync word of an MPEG frame of layer
/// III.
fn sound_prefix(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'I', b'D', b'3', ..] => Some("mp3,"),
        [0xff, second, ..] if second & 0xe6 == 0xe2 => Some("mp3,"),
        _ if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") => Some("wav,"),
        _ => None,
    }
}
