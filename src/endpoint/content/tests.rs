//! The shallow look at a chunk against the thorough one.
//!
//! In: chunks, usual and odd. Out: the same verdict from both. Never: a case that is in one table only.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::config::{EndpointKind, EndpointPlan};
use crate::endpoint::{Api, Parsed};

const KINDS: [EndpointKind; 2] = [EndpointKind::Chat, EndpointKind::Completions];

fn api(kind: EndpointKind) -> Api {
    Api::new(&EndpointPlan::plain(kind)).unwrap()
}

fn shows_content(kind: EndpointKind, data: &[u8]) -> bool {
    api(kind).shows_content(data)
}

/// What the thorough reading says.
fn thoroughly(kind: EndpointKind, data: &[u8]) -> bool {
    matches!(api(kind).parse(data), Parsed::Piece(piece) if piece.kind().is_some())
}

/// Chunks of servers, and whether they are content for chat and for completions.
const CHUNKS: &[(&str, bool, bool)] = &[
    (
        r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"}}]}"#,
        false,
        false,
    ),
    (
        r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        false,
        false,
    ),
    (
        r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
        false,
        false,
    ),
    (
        r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
        true,
        false,
    ),
    (
        r#" { "choices" : [ { "delta" : { "content" : " " } , "index" : 0 } ] , "object" : "chat.completion.chunk" } "#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"index":0,"delta":{"content":"\""}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"index":0,"delta":{"content":"\\"}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"index":1.5,"delta":{"content":"other"}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"content":null,"refusal":"No."}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"index":1,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"reasoning":"hm","content":""}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":""}]}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":{}}}]}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"","arguments":""}}]}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[{"delta":{},"logprobs":{"content":[{"token":"x"}]}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[],"usage":{"completion_tokens":3}}"#,
        false,
        false,
    ),
    (r#"{"error":{"message":"\"content\":\"x\""}}"#, false, false),
    (
        r#"{"object":"text_completion","choices":[{"index":0,"text":"Hi"}]}"#,
        false,
        true,
    ),
    (
        r#"{"object":"text_completion","choices":[{"index":0,"text":""}]}"#,
        false,
        false,
    ),
    (
        r#"{"object":"something","choices":[{"index":0,"text":"Hi","delta":{"content":"Hi"}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[{"index":0,"delta":{"content":"a","content":""}}]}"#,
        false,
        false,
    ),
    (
        r#"{"choices":[{"index":0,"message":{"content":"whole"}}]}"#,
        true,
        false,
    ),
    (
        r#"{"choices":[7,{"delta":"x","message":{"content":"whole"}}]}"#,
        true,
        false,
    ),
    ("[DONE]", false, false),
    ("", false, false),
    ("[]", false, false),
    (r#"{"choices":[{"delta":{"content":"cut"#, false, false),
];

#[test]
fn chunks_of_servers_are_judged_as_by_the_thorough_reading() {
    for &(chunk, chat, completions) in CHUNKS {
        for (kind, expected) in KINDS.into_iter().zip([chat, completions]) {
            assert_eq!(
                shows_content(kind, chunk.as_bytes()),
                expected,
                "{kind:?}: {chunk}"
            );
            assert_eq!(
                thoroughly(kind, chunk.as_bytes()),
                expected,
                "{kind:?}: {chunk}"
            );
        }
    }
}

/// It may miss what is spelt with escapes, and takes the end then; it never sees what is not there.
#[test]
fn a_key_with_escapes_is_not_known() {
    let chunk = br#"{"choices":[{"delta":{"c\u006fntent":"Hi"}}]}"#;
    assert!(thoroughly(EndpointKind::Chat, chunk));
    assert!(!shows_content(EndpointKind::Chat, chunk));
}

/// Values made of the names that matter, in places where they do and where they do not.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(-0.0)),
        Just(json!(true)),
        "[\"\\\\,:{}\\[\\] a]{0,4}".prop_map(Value::from),
        Just(json!("chat.completion.chunk")),
        Just(json!("text_completion")),
        Just(json!("response.output_text.delta")),
        Just(json!("response.completed")),
        Just(json!("content_block_delta")),
        Just(json!("content_block_start")),
        Just(json!("tool_use")),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let key = prop::sample::select(vec![
            "object",
            "choices",
            "index",
            "delta",
            "message",
            "type",
            "content_block",
            "refusal",
            "token",
            "generated_text",
            "content",
            "text",
            "reasoning",
            "reasoning_content",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "other",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                let members = members
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    })
}

fn any_chunk() -> impl Strategy<Value = Value> {
    let wrapped = any_value().prop_map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}));
    let choice = any_value().prop_map(|choice| json!({"choices": [choice]}));
    let call = any_value().prop_map(|call| json!({"choices": [{"delta": {"tool_calls": [call]}}]}));
    let event = (any_value(), any_value()).prop_map(|(delta, kind)| {
        json!({"type": kind, "delta": delta.clone(), "content_block": delta.clone(), "response": delta})
    });
    prop_oneof![any_value(), wrapped, choice, call, event]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_judged_as_by_the_thorough_reading(value in any_chunk(), pretty: bool) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        for kind in KINDS {
            prop_assert_eq!(shows_content(kind, text.as_bytes()), thoroughly(kind, text.as_bytes()), "{}", text);
        }
    }

    #[test]
    fn no_dialect_sees_what_is_not_there(value in any_chunk()) {
        let text = value.to_string();
        for &kind in EndpointKind::ALL {
            let seen = shows_content(kind, text.as_bytes());
            prop_assert!(!seen || thoroughly(kind, text.as_bytes()), "{kind:?}: {text}");
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ content0x\xff".to_vec()), 0..40)) {
        for &kind in EndpointKind::ALL {
            let _ = shows_content(kind, &bytes);
        }
    }
}
