//! Dialects, both directions, by tables.
//!
//! In: `bodies.jsonl` and `streams.jsonl`. Out: bodies byte by byte; records and histories. Never: a dialect's rule in Rust.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokenring::config::{EndpointKind, EndpointPlan};
use tokenring::dataset::{ContextMode, Conversation, Media, MediaKind, Turn};
use tokenring::endpoint::{Api, HeaderTemplate, Reply};
use tokenring::record::reply_of;
use tokenring::wire::ContentKind;

use crate::{api, exchange, interpret, kind, lines, plan};

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn turn(case: &Value) -> Turn {
    let media = list(&case["media"]).into_iter().map(|media| {
        let kind = match media[0].as_str() {
            Some("image") => MediaKind::Image,
            Some("audio") => MediaKind::Audio,
            Some("video") => MediaKind::Video,
            other => panic!("no kind {other:?}"),
        };
        Media {
            name: media[2].as_str().map(Arc::from),
            ..Media::new(kind, media[1].as_str().unwrap())
        }
    });
    Turn {
        texts: list(&case["texts"]).iter().filter_map(text).collect(),
        text_names: list(&case["names"]).iter().filter_map(text).collect(),
        media: media.collect(),
        messages: list(&case["messages"]),
        tools: case.get("tools").cloned(),
        payload: case["payload"].as_str().map(Arc::from),
        model: text(&case["model"]).unwrap_or_default(),
        max_tokens: case["max_tokens"]
            .as_u64()
            .map(|limit| u32::try_from(limit).unwrap()),
        ..Turn::default()
    }
}

#[test]
fn bodies_are_as_the_table_says() {
    for case in lines("bodies.jsonl") {
        let mut plan = EndpointPlan::plain(kind(case["api"].as_str().unwrap()));
        plan.streaming = case["stream"] == true;
        plan.use_server_token_count = case["server_counts"] == true;
        if let Value::Object(extra) = &case["extra"] {
            plan.extra_inputs = extra.clone();
        }
        let conversation = Conversation {
            system: text(&case["system"]),
            user_context: text(&case["context_message"]),
            turns: list(&case["turns"]).iter().map(turn).collect(),
            context: match case["context"].as_str() {
                Some("recorded") => ContextMode::RecordedReplies,
                _ => ContextMode::LiveReplies,
            },
            ..Conversation::default()
        };
        let history = list(&case["history"]).into_iter().enumerate();
        let history: Vec<Option<Reply>> = history
            .map(|(number, said)| {
                text(&said).map(|text| Reply {
                    text,
                    id: format!("reply-{number}"),
                    ..Reply::default()
                })
            })
            .collect();
        let api = Api::new(&plan).unwrap();
        let last = conversation.turns.len() - 1;
        let body = api.render(&conversation, last, &history);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            case["body"],
            "{}",
            case["why"]
        );
    }
}

#[test]
fn streams_are_read_as_the_table_says() {
    for case in lines("streams.jsonl") {
        let why = &case["why"];
        let kind = kind(case["api"].as_str().unwrap());
        let events: Vec<String> = list(&case["events"])
            .iter()
            .map(|event| match event[0].as_str() {
                None | Some("") => format!("data: {}\n\n", event[1]),
                Some(name) => format!("event: {name}\ndata: {}\n\n", event[1]),
            })
            .collect();
        let pieces: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
        let exchange = exchange(200, ContentKind::EventStream, &pieces);
        let record = interpret(plan(kind), &exchange);
        let error = record.error.as_ref().map(|error| error.kind.as_str());
        assert_eq!(error, case["error"].as_str(), "{why}");
        assert_eq!(record.text.as_deref(), case["text"].as_str(), "{why}");
        assert_eq!(Value::from(record.chunks.len()), case["pieces"], "{why}");
        let usage = record.usage.unwrap_or_default();
        assert_eq!(usage.prompt_tokens, case["prompt"].as_u64(), "{why}");
        assert_eq!(
            usage.completion_tokens,
            case["completion"].as_u64(),
            "{why}"
        );
        assert_eq!(
            record.finish_reason.as_deref(),
            case["finish"].as_str(),
            "{why}"
        );
        let others = record.other_texts.iter();
        let others: Vec<Value> = others.map(|(choice, text)| json!([choice, text])).collect();
        assert_eq!(others, list(&case["other_texts"]), "{why}");
        if let Some(output) = case["output"].as_u64() {
            assert_eq!(record.tokens.output, Some(output), "{why}");
            assert_eq!(record.tokens.reasoning, case["reasoning"].as_u64(), "{why}");
            assert_eq!(json!(record.tokens.other_choices), case["others"], "{why}");
        }
        let reply = reply_of(&api(kind), &exchange);
        assert!(
            error.is_none() || reply.is_none(),
            "{why}: a failed reply stays in the history"
        );
        if let Value::Array(expected) = &case["history"] {
            assert_eq!(history(kind, reply), *expected, "{why}");
        }
    }
}

/// What the next turn's body has between both turns.
fn history(kind: EndpointKind, reply: Option<Reply>) -> Vec<Value> {
    let turn = Turn {
        texts: vec!["hi".to_owned()],
        ..Turn::default()
    };
    let conversation = Conversation {
        turns: vec![turn.clone(), turn],
        ..Conversation::default()
    };
    let body = api(kind).render(&conversation, 1, &[reply]);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let all = ["messages", "input"].map(|name| list(&body[name])).concat();
    all[1..all.len() - 1].to_vec()
}

#[test]
fn the_key_stands_where_the_dialect_wants_it() {
    let lines = |kind: EndpointKind, headers: &[(&str, &str)]| {
        let mut plan = EndpointPlan::plain(kind);
        plan.api_key = Some("k".to_owned());
        let own = headers.iter();
        plan.headers = own
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        let mut out = Vec::new();
        HeaderTemplate::new(&Api::new(&plan).unwrap()).write(&mut out, 1, 2, &[]);
        String::from_utf8(out).unwrap()
    };
    let chat = lines(EndpointKind::Chat, &[]);
    assert!(chat.contains("Authorization: Bearer k\r\n") && !chat.contains("x-api-key"));
    let messages = lines(EndpointKind::Messages, &[]);
    assert!(messages.contains("x-api-key: k\r\n") && !messages.contains("Bearer"));
    assert!(messages.contains("anthropic-version: 2023-06-01\r\n"));
    let own = lines(
        EndpointKind::Messages,
        &[("Anthropic-Version", "2030-01-01")],
    );
    assert!(own.contains("2030-01-01") && !own.contains("2023-06-01"));
}

/// JSON of the names and types that dialects look at.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(1e300)),
        "[ -~é]{0,3}".prop_map(Value::from),
        prop::sample::select(vec![
            "response.completed",
            "response.output_item.added",
            "response.output_item.done",
            "function_call",
            "message",
            "message_start",
            "message_delta",
            "content_block_start",
            "content_block_delta",
            "tool_use",
            "response",
            "error",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let names = prop::sample::select(vec![
            "type",
            "object",
            "choices",
            "index",
            "delta",
            "message",
            "content",
            "text",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "response",
            "output",
            "item",
            "usage",
            "details",
            "token",
            "generated_text",
            "content_block",
            "input",
            "error",
            "status",
            "prompt",
            "messages",
            "tools",
            "id",
            "store",
            "prefill",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each is read, kept for a history, and counted as a body.
    #[test]
    fn no_json_is_too_odd_for_a_dialect(values in prop::collection::vec(any_json(), 1..4)) {
        for &kind in EndpointKind::ALL {
            let api = api(kind);
            let (mut chunks, mut builder) = (api.chunks(), api.reply_builder());
            for value in &values {
                let data = value.to_string();
                let _ = chunks.parse(data.as_bytes());
                builder.push(data.as_bytes());
                let _ = api.input(data.as_bytes());
                let _ = api.shows_content(data.as_bytes());
            }
            let _ = builder.finish();
        }
    }

    #[test]
    fn no_message_of_a_dataset_is_too_odd(messages in prop::collection::vec(any_json(), 1..3), tools in any_json()) {
        let turn = Turn { messages, tools: Some(tools), ..Turn::default() };
        let conversation = Conversation { turns: vec![turn], ..Conversation::default() };
        for &kind in EndpointKind::ALL {
            let body = api(kind).render(&conversation, 0, &[]);
            let form = kind.facts().content_type != "application/json";
            prop_assert!(form || serde_json::from_slice::<Value>(&body).is_ok());
        }
    }
}
