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

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Piece;
use super::usage::counts;
use crate::config::EndpointKind;

/// The piece of a usual chunk; `None` when the thorough reading must look at it.
pub(super) fn piece(kind: EndpointKind, data: &[u8]) -> Option<Piece> {
    let text = std::str::from_utf8(data).ok()?;
    let Object(root) = serde_json::from_str::<Object<Root<'_>>>(text).ok()?;
    let expected = match kind {
        EndpointKind::Chat => "chat.completion.chunk",
        EndpointKind::Completions => "text_completion",
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
    let Some(Object(choice)) = root.choices?.first else {
        return Some(piece);
    };
    if choice.index.is_some_and(|index| index != 0) {
        return None;
    }
    piece.finish_reason = filled(choice.finish_reason);
    match kind {
        EndpointKind::Completions => piece.text = filled(choice.text),
        EndpointKind::Chat => {
            let Object(delta) = choice.delta?;
            if delta.odd {
                return None;
            }
            piece.reasoning = filled(delta.reasoning_content).or_else(|| filled(delta.reasoning));
            piece.text = filled(delta.content);
        }
    }
    Some(piece)
}

fn filled(text: Option<Text<'_>>) -> Option<String> {
    let Text(text) = text?;
    (!text.is_empty()).then(|| text.into_owned())
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
    /// Calls tools.
    odd: bool,
}

/// The fields of an object.
trait Fields<'de>: Default {
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
            "tool_calls" => self.odd |= map.next_value::<Option<IgnoredAny>>()?.is_some(),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A value that is an object and nothing else: a struct that serde derives would take a list as well.
struct Object<T>(T);

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
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Choices { first })
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

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
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::parse::parse_thoroughly;
    use super::super::{Parsed, PieceKind};
    use super::*;

    #[test]
    fn what_servers_send_is_usual() {
        let chat = r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" a\nb"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
        let found = piece(EndpointKind::Chat, chat.as_bytes()).unwrap();
        assert_eq!(found.text.as_deref(), Some(" a\nb"));
        assert_eq!(found.kind(), Some(PieceKind::Text));
        let last = r#"{"object":"text_completion","choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#;
        let found = piece(EndpointKind::Completions, last.as_bytes()).unwrap();
        assert_eq!(found.finish_reason.as_deref(), Some("stop"));
        assert_eq!(found.usage.and_then(|usage| usage.prompt_tokens), Some(3));
    }

    #[test]
    fn what_is_odd_is_left_alone() {
        for odd in [
            r#"{"object":"chat.completion","choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"object":"chat.completion.chunk","choices":[{"index":1,"delta":{"content":"a"}},{"index":0,"delta":{}}]}"#,
            r#"{"object":"chat.completion.chunk","choices":[{"delta":{"content":["a"]}}]}"#,
            r#"{"object":"chat.completion.chunk","choices":[{"delta":{"tool_calls":[]}}]}"#,
            r#"{"object":"chat.completion.chunk","choices":[["a"]]}"#,
            r#"{"object":"chat.completion.chunk","choices":[],"error":{}}"#,
            r#"["chat.completion.chunk"]"#,
            "[DONE]",
            "\u{feff}{}",
        ] {
            assert_eq!(piece(EndpointKind::Chat, odd.as_bytes()), None, "{odd}");
        }
    }

    /// Members of an object: keys, also twice, with any of some values.
    fn object(
        keys: &'static [&'static str],
        value: impl Strategy<Value = String> + 'static,
    ) -> BoxedStrategy<String> {
        vec((select(keys), value), 0..6)
            .prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| format!("\"{key}\":{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            })
            .boxed()
    }

    fn any_value() -> impl Strategy<Value = String> {
        select(vec![
            "null",
            "0",
            "1",
            "-1",
            "0.0",
            "true",
            r#""""#,
            r#""a""#,
            r#""\u00e9\n""#,
            "[]",
            "[0]",
            "{}",
            r#"{"content":"b"}"#,
            r#"{"completion_tokens":5}"#,
            r#"{"message":"m"}"#,
            r#""chat.completion.chunk""#,
            r#""text_completion""#,
            r#"[{"text":"c"}]"#,
        ])
        .prop_map(str::to_owned)
    }

    fn chunk() -> impl Strategy<Value = String> {
        let text = || {
            select(vec![r#""a""#, r#""\ud83d\ude00""#, "\"é\"", "null", "\"\""])
                .prop_map(str::to_owned)
        };
        let delta = object(
            &[
                "role",
                "content",
                "reasoning",
                "reasoning_content",
                "tool_calls",
            ],
            prop_oneof![4 => text(), 1 => any_value()],
        );
        let choice = object(
            &[
                "index",
                "delta",
                "text",
                "finish_reason",
                "message",
                "logprobs",
            ],
            prop_oneof![2 => delta, 1 => text(), 1 => any_value()],
        );
        let choices = vec(choice, 0..3).prop_map(|all| format!("[{}]", all.join(",")));
        let root = object(
            &[
                "choices",
                "usage",
                "usageMetadata",
                "error",
                "id",
                "choices",
            ],
            prop_oneof![4 => choices, 1 => any_value()],
        );
        let object = prop_oneof![
            3 => select(vec![r#""object":"chat.completion.chunk","#, r#""object":"text_completion","#]),
            1 => select(vec!["", r#""object":null,"#, r#""object":1,"#]),
        ];
        (object, root).prop_map(|(object, root)| {
            let whole = format!("{{{object}{}", &root[1..]);
            whole.replace(",}", "}")
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn both_readings_agree(chunk in chunk(), chat in any::<bool>(), cut in 0usize..400) {
            let kind = if chat { EndpointKind::Chat } else { EndpointKind::Completions };
            let cut = (0..=cut.min(chunk.len())).rev().find(|&at| chunk.is_char_boundary(at)).unwrap();
            for data in [chunk.as_str(), &chunk[..cut]] {
                let Some(quick) = piece(kind, data.as_bytes()) else { continue };
                let thorough = match parse_thoroughly(kind, data.as_bytes()) {
                    Parsed::Piece(piece) => piece,
                    Parsed::Nothing => Piece::default(),
                    Parsed::NotJson => panic!("{data} is no JSON"),
                };
                prop_assert_eq!(quick, thorough, "{}", data);
            }
        }
    }
}
