//! The usual chunk of a stream, read without a tree.
//!
//! In: the data of one event. Out: its [`Piece`], when it has the usual shape. Never: another answer than that of the thorough
//! reading in `parse.rs`, which gets what is left alone here; only a field that neither reads may hold what no tree could, such as a
//! number beyond all bounds.
//!
//! A run has as many chunks as tokens, and a tree costs an allocation for each key and each value. Here the fields that matter are
//! taken in passing. Of a key that comes twice the last one counts, as in a tree.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Piece;
use super::dialect::{Dialect, Usual};
use super::usage::counts;

/// The last usual chunk of a reply. The next one mostly differs in its text alone, and is then read by comparing.
#[derive(Debug, Default)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// Where the text stands in `bytes`; empty when there is none to compare with.
    text: Range<usize>,
    /// All of the piece but its text.
    rest: Piece,
}

impl Template {
    /// As [`Dialect::usual`], by comparing where that is enough.
    pub(super) fn piece(&mut self, dialect: &dyn Dialect, data: &[u8]) -> Option<Piece> {
        if let Some(text) = self.differing_text(data) {
            return Some(Piece {
                text: (!text.is_empty()).then(|| text.to_owned()),
                ..self.rest.clone()
            });
        }
        let (piece, text) = dialect.usual(data)?;
        self.text = text.unwrap_or_default();
        if !self.text.is_empty() {
            self.bytes.clear();
            self.bytes.extend_from_slice(data);
            self.rest = Piece {
                text: None,
                ..piece.clone()
            };
        }
        Some(piece)
    }

    /// What stands in the place of the text, when all around it is the same and it is a string without escapes (RFC 8259 section 7).
    fn differing_text<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        if self.text.is_empty() {
            return None;
        }
        let rest = data.strip_prefix(&self.bytes[..self.text.start])?;
        let text = rest.strip_suffix(&self.bytes[self.text.end..])?;
        let plain = text
            .iter()
            .all(|&byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        std::str::from_utf8(text).ok().filter(|_| plain)
    }
}

/// What a usual chunk looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `chat.completion.chunk` with `delta`.
    Chat,
    /// `text_completion` with `text`.
    Completions,
}

/// The piece of a usual chunk, and where its text stands if that has no escapes; `None` when the thorough reading must look at it.
pub(super) fn piece(shape: Shape, data: &[u8]) -> Option<Usual> {
    let text = std::str::from_utf8(data).ok()?;
    let Object(root) = serde_json::from_str::<Object<Root<'_>>>(text).ok()?;
    let expected = match shape {
        Shape::Chat => "chat.completion.chunk",
        Shape::Completions => "text_completion",
    };
    if root.odd || root.object?.0 != expected {
        return None;
    }
    let usage = match root.usage {
        None => None,
        Some(raw) => counts(&serde_json::from_str::<Value>(raw.get()).ok()?),
    };
    let mut piece = Piece {
        usage,
        ..Piece::default()
    };
    let choices = root.choices?;
    if choices.odd {
        return None;
    }
    let Some(Object(choice)) = choices.first else {
        return Some((piece, None));
    };
    if choice.index.is_some_and(|index| index != 0) {
        return None;
    }
    piece.finish_reason = filled(choice.finish_reason);
    let said = match shape {
        Shape::Completions => choice.text,
        Shape::Chat => {
            let Object(delta) = choice.delta?;
            if delta.odd {
                return None;
            }
            piece.reasoning = filled(delta.reasoning_content).or_else(|| filled(delta.reasoning));
            delta.content
        }
    };
    let place = said.as_ref().and_then(|said| said.place_in(text));
    piece.text = filled(said);
    Some((piece, place))
}

fn filled(text: Option<Text<'_>>) -> Option<String> {
    text?.filled()
}

/// The root of a chunk.
#[derive(Default)]
struct Root<'a> {
    object: Option<Text<'a>>,
    usage: Option<&'a RawValue>,
    choices: Option<Choices<'a>>,
    /// Holds something that is not usual.
    odd: bool,
}

/// The first choice of a list, if there is one.
struct Choices<'a> {
    first: Option<Object<Choice<'a>>>,
    /// There are others beside it.
    odd: bool,
}

/// One choice.
#[derive(Default)]
struct Choice<'a> {
    index: Option<u64>,
    finish_reason: Option<Text<'a>>,
    text: Option<Text<'a>>,
    delta: Option<Object<Delta<'a>>>,
}

/// What a choice of a chat adds.
#[derive(Default)]
struct Delta<'a> {
    content: Option<Text<'a>>,
    reasoning_content: Option<Text<'a>>,
    reasoning: Option<Text<'a>>,
    /// Calls tools, or refuses.
    odd: bool,
}

/// The fields of an object.
pub(super) trait Fields<'de>: Default {
    /// Takes the value of `key` from `map`.
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de> Fields<'de> for Root<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "object" => self.object = map.next_value()?,
            "usage" => self.usage = map.next_value()?,
            "choices" => self.choices = map.next_value()?,
            "error" | "usageMetadata" => {
                self.odd |= map.next_value::<Option<IgnoredAny>>()?.is_some();
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Choice<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "index" => self.index = map.next_value()?,
            "finish_reason" => self.finish_reason = map.next_value()?,
            "text" => self.text = map.next_value()?,
            "delta" => self.delta = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Delta<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => self.content = map.next_value()?,
            "reasoning_content" => self.reasoning_content = map.next_value()?,
            "reasoning" => self.reasoning = map.next_value()?,
            "tool_calls" | "refusal" => {
                self.odd |= map.next_value::<Option<IgnoredAny>>()?.is_some();
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A value that is an object and nothing else: a struct that serde derives would take a list as well.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Fields<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<T>, A::Error> {
        let mut fields = T::default();
        while let Some(Text(key)) = map.next_key()? {
            fields.take(&key, &mut map)?;
        }
        Ok(Object(fields))
    }
}

impl<'de> Deserialize<'de> for Choices<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ChoicesVisitor)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'de>, A::Error> {
        let first = list.next_element()?;
        let mut odd = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            odd = true;
        }
        Ok(Choices { first, odd })
    }
}

/// A string, borrowed where it has no escapes.
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// It is `other`.
    pub(super) fn is(&self, other: &str) -> bool {
        self.0 == other
    }

    /// The string, if it is not empty.
    pub(super) fn filled(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.into_owned())
    }

    /// Where in `whole` it was borrowed from.
    pub(super) fn place_in(&self, whole: &str) -> Option<Range<usize>> {
        let Cow::Borrowed(text) = self.0 else {
            return None;
        };
        let start = (text.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        let place = start..start + text.len();
        (whole.get(place.clone()) == Some(text)).then_some(place)
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

#[cfg(test)]
mod tests;
