//! `image_retrieval`: `/v1/infer`.
//!
//! In: a turn with pictures; answers with `data`. Out: bodies; pieces that are data. Never: a text, a token, or a stream.

use serde_json::{Value, json};

use super::body::Fields;
use super::dialect::{Dialect, Request, Seen};
use super::input::array;
use super::parse::peer_error;
use super::parts;
use super::usage::usage;
use super::{Input, Piece};
use crate::dataset::{MediaKind, Turn};

/// A picture of one white pixel, for the probe.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII=";

/// The dialect.
#[derive(Debug)]
pub(super) struct ImageRetrieval;

impl Dialect for ImageRetrieval {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        let pictures = parts::of_kind(request.this(), MediaKind::Image);
        let mut body = Fields::new();
        body.set("input", pictures.map(picture).collect::<Value>());
        body.extend(request);
        body.into_bytes()
    }

    fn check(&self, turn: &Turn) -> Result<(), String> {
        match parts::of_kind(turn, MediaKind::Image).next() {
            Some(_) => Ok(()),
            None => Err(
                "image_retrieval sends pictures, and there are none; give --image-width-mean and --image-height-mean, or a file with \"image\" fields"
                    .to_owned(),
            ),
        }
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        Piece {
            error: peer_error(root),
            usage: usage(root),
            data: root.get("data").is_some_and(|data| !array(data).is_empty()),
            ..Piece::default()
        }
    }

    /// Nothing here is streamed.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, _body: &Value, _input: &mut Input) {}

    fn probe(&self, _model: &str) -> Vec<u8> {
        json!({"input": [picture(PIXEL)]}).to_string().into_bytes()
    }
}

fn picture(url: &str) -> Value {
    json!({"type": "image_url", "url": url})
}
