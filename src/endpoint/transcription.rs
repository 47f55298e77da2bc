//! `audio_transcription`: `/v1/audio/transcriptions`, a form with a file.
//!
//! In: a turn with a sound; answers in JSON or plain text. Out: `multipart/form-data` bodies; pieces that are data. Never: a stream, a
//! count of tokens, or a field for null.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::dialect::{Dialect, Request, Seen};
use super::parse::{json, parsed, peer_error};
use super::usage::usage;
use super::{Input, Parsed, Piece, parts};
use crate::config::FORM_BOUNDARY;
use crate::dataset::{MediaKind, Turn};

/// Fields that are not the user's to set.
const RESERVED: &[&str] = &["file"];

/// A tenth of a millisecond of silence, for the probe: 8 bits, 8 kHz, one sample.
const SILENCE: &[u8] = b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x01\0\0\0\x80\0";

/// The dialect.
#[derive(Debug)]
pub(super) struct AudioTranscription;

impl Dialect for AudioTranscription {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let this = request.this();
        // That there is one, and that it is base64, has been checked.
        let (format, bytes) = sound(this).unwrap_or_default();
        let mut fields = serde_json::Map::new();
        fields.insert("model".to_owned(), Value::from(this.model.as_str()));
        for (name, value) in request.plan.extra_inputs.iter().chain(&this.extra) {
            fields.insert(name.clone(), value.clone());
        }
        form(&format, &bytes, &fields)
    }

    fn check(&self, turn: &Turn) -> Result<(), String> {
        sound(turn).map(|_| ())
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        Piece {
            error: peer_error(root),
            usage: usage(root),
            // An empty text is an answer too: there was nothing to hear.
            data: root.get("text").is_some_and(Value::is_string),
            ..Piece::default()
        }
    }

    /// `response_format` may ask for plain text or subtitles.
    fn read(&self, data: &[u8], seen: Seen) -> Parsed {
        match json(data) {
            Some(mut root) if root.is_object() => parsed(self.piece(&mut root, seen)),
            _ => parsed(Piece {
                data: !data.trim_ascii().is_empty(),
                ..Piece::default()
            }),
        }
    }

    /// Nothing here is streamed.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, _body: &Value, _input: &mut Input) {}

    fn input(&self, _body: &[u8]) -> Input {
        Input::default()
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        let mut fields = serde_json::Map::new();
        fields.insert("model".to_owned(), Value::from(model));
        form("wav", SILENCE, &fields)
    }
}

/// Format and bytes of a turn's first sound.
fn sound(turn: &Turn) -> Result<(String, Vec<u8>), String> {
    let Some(content) = parts::of_kind(turn, MediaKind::Audio).next() else {
        return Err(
            "audio_transcription sends a sound, and there is none; give --audio-length-mean, or a file with \"audio\" fields"
                .to_owned(),
        );
    };
    let (format, data) = parts::sound(content);
    let bytes = STANDARD.decode(data).map_err(|error| {
        format!("the sound is not base64 ({error}); give wav,BASE64, a data URL or a local file")
    })?;
    Ok((format.to_owned(), bytes))
}

/// RFC 7578: parts with a name each, the file's with a file name and a type.
fn form(format: &str, bytes: &[u8], fields: &serde_json::Map<String, Value>) -> Vec<u8> {
    let kind = match format {
        "mp3" => "mpeg",
        other => other,
    };
    let mut body = format!(
        "--{FORM_BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"audio.{format}\"\r\nContent-Type: audio/{kind}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(bytes);
    for (name, value) in fields {
        let value = match value {
            Value::Null => continue,
            _ if RESERVED.contains(&name.as_str()) => continue,
            Value::String(text) => text.clone(),
            // A boolean is lowercase in JSON too.
            other => other.to_string(),
        };
        // RFC 7578 section 2 leaves it to HTML how a quote in a name is written.
        let name = name.replace('"', "%22").replace(['\r', '\n'], " ");
        body.extend_from_slice(
            format!(
                "\r\n--{FORM_BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}"
            )
            .as_bytes(),
        );
    }
    body.extend_from_slice(format!("\r\n--{FORM_BOUNDARY}--\r\n").as_bytes());
    body
}
