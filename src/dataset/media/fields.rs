//! Media that a dataset's entry names.
//!
//! In: the fields of an entry. Out: media as they are sent: URLs and data URLs as they stand, files read and encoded. Never: fetches a URL.

use std::path::Path;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

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

/// What an item says, with the id of each.
type Contents = Vec<(String, Option<Arc<str>>)>;

/// Takes the fields `image`, `images`, `image_uuids`, `audio`, `audios`, `video` and `videos` out. What is neither a URL with a host, nor a
/// data URL, nor `wav,<base64>` or `mp3,<base64>`, is the path of a file, from the folder in which the program runs.
pub(in crate::dataset) fn take(fields: &mut Map<String, Value>) -> Result<Vec<Media>, String> {
    pair_ids(fields)?;
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
            for (content, uuid) in strings(field, value, kind)? {
                let content = encoded(kind, content);
                let content = content.map_err(|reason| format!("field {field}: {reason}"))?;
                media.push(Media {
                    name: name.clone(),
                    uuid,
                    ..Media::new(kind, content)
                });
            }
        }
    }
    Ok(media)
}

/// Puts the ids of `image_uuids` beside the strings of `images`; without these they stand alone.
fn pair_ids(fields: &mut Map<String, Value>) -> Result<(), String> {
    let Some(ids) = fields.remove("image_uuids") else {
        return Ok(());
    };
    if fields.contains_key("image") {
        return Err(
            "fields image and image_uuids: ids go with images, a list of strings".to_owned(),
        );
    }
    let ids = match ids {
        Value::Array(ids) => ids,
        other => {
            let other = shown(&other);
            return Err(format!("field image_uuids: {other} is not a list"));
        }
    };
    let images = match fields.remove("images") {
        None => vec![Value::from(""); ids.len()],
        Some(Value::Array(list)) if list.is_empty() => vec![Value::from(""); ids.len()],
        Some(Value::Array(list)) => list,
        Some(other) => return Err(format!("field images: {} is not a list", shown(&other))),
    };
    if images.iter().any(Value::is_object) {
        return Err(
            "fields images and image_uuids: an object of images has its ids in its own uuids"
                .to_owned(),
        );
    }
    if images.len() != ids.len() {
        let (images, ids) = (images.len(), ids.len());
        return Err(format!(
            "field image_uuids: {ids} ids for {images} images; give one for each"
        ));
    }
    let items = images.into_iter().zip(ids);
    let items = items.map(|(image, id)| json!({"contents": [image], "uuids": [id]}));
    fields.insert("images".to_owned(), items.collect());
    Ok(())
}

/// A string, or the strings of an object with contents.
fn strings(field: &str, value: Value, kind: MediaKind) -> Result<Contents, String> {
    let texts: Contents = match value {
        Value::String(text) => vec![(text, None)],
        Value::Object(mut named) => {
            let ids = named.remove("uuids").filter(|_| kind == MediaKind::Image);
            match (named.remove("contents"), ids) {
                (Some(Value::Array(contents)), None) => {
                    let contents = contents.into_iter().map(|content| text(field, content));
                    let contents = contents.map(|content| Ok((content?, None)));
                    contents.collect::<Result<_, String>>()?
                }
                (contents, Some(Value::Array(ids))) => with_ids(field, contents, ids)?,
                (_, Some(other)) => {
                    let other = shown(&other);
                    return Err(format!("field {field}: uuids: {other} is not a list"));
                }
                _ => {
                    return Err(format!(
                        "field {field}: an item has no list called contents"
                    ));
                }
            }
        }
        other => {
            return Err(format!(
                "field {field}: {} is neither a string nor an object",
                shown(&other)
            ));
        }
    };
    match texts
        .iter()
        .any(|(text, id)| text.is_empty() && id.is_none())
    {
        true => Err(format!("field {field}: an empty string names nothing")),
        false => Ok(texts),
    }
}

fn text(field: &str, content: Value) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text),
        other => Err(format!(
            "field {field}: {} in contents is not a string",
            shown(&other)
        )),
    }
}

/// Contents beside their ids; ids alone where there are none.
fn with_ids(field: &str, contents: Option<Value>, ids: Vec<Value>) -> Result<Contents, String> {
    let contents = match contents {
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => vec![Value::from(""); ids.len()],
    };
    if contents.len() != ids.len() {
        let (contents, ids) = (contents.len(), ids.len());
        return Err(format!(
            "field {field}: {ids} uuids for {contents} contents; give one for each"
        ));
    }
    let pairs = contents.into_iter().zip(ids).map(|(content, id)| {
        let content = text(field, content)?;
        match id {
            Value::String(id) if !id.is_empty() => Ok((content, Some(Arc::from(id)))),
            other => Err(format!(
                "field {field}: the id {} is no string of at least one character",
                shown(&other)
            )),
        }
    });
    pairs.collect()
}

fn encoded(kind: MediaKind, content: String) -> Result<Arc<str>, String> {
    if content.is_empty() || is_as_sent(kind, &content) {
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
