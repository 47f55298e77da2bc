//! The usual event of a dialect whose events have a `type`, read without a tree.
//!
//! In: the data of one event. Out: its piece, when it is a text delta. Never: another answer than that of the thorough reading; see
//! `usual.rs`, whose ways these are.

use serde::de::{IgnoredAny, MapAccess};

use super::Piece;
use super::dialect::Usual;
use super::usual::{Fields, Object, Text};

/// What a text delta looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `delta` is the text.
    Responses,
    /// `delta` is an object with the text.
    Messages,
}

/// The piece of a usual event, and where its text stands if that has no escapes; `None` when the thorough reading must look at it.
pub(super) fn piece(shape: Shape, data: &[u8]) -> Option<Usual> {
    let text = std::str::from_utf8(data).ok()?;
    let said = match shape {
        Shape::Responses => {
            let Object(root) = serde_json::from_str::<Object<Flat<'_>>>(text).ok()?;
            (root.kind?.is("response.output_text.delta")).then_some(root.delta)??
        }
        Shape::Messages => {
            let Object(root) = serde_json::from_str::<Object<Nested<'_>>>(text).ok()?;
            let Object(delta) =
                (!root.odd && root.kind?.is("content_block_delta")).then_some(root.delta)??;
            (!delta.odd).then_some(delta.text)??
        }
    };
    let place = said.place_in(text);
    let piece = Piece {
        text: said.filled(),
        ..Piece::default()
    };
    Some((piece, place))
}

/// The root of an event with a text as its delta.
#[derive(Default)]
struct Flat<'a> {
    kind: Option<Text<'a>>,
    delta: Option<Text<'a>>,
}

/// The root of an event with an object as its delta.
#[derive(Default)]
struct Nested<'a> {
    kind: Option<Text<'a>>,
    delta: Option<Object<Delta<'a>>>,
    /// Has what may be an error beside it.
    odd: bool,
}

/// What a block adds.
#[derive(Default)]
struct Delta<'a> {
    text: Option<Text<'a>>,
    /// Has something else than text.
    odd: bool,
}

impl<'de> Fields<'de> for Flat<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "delta" => self.delta = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Nested<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "delta" => self.delta = map.next_value()?,
            "error" | "object" => self.odd |= map.next_value::<Option<IgnoredAny>>()?.is_some(),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Delta<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => self.text = map.next_value()?,
            "thinking" | "partial_json" => {
                self.odd |= map.next_value::<Option<IgnoredAny>>()?.is_some();
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}
