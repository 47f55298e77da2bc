//! Conversations and the bodies of their turns.
//!
//! In: `tests/endpoint/conversations.jsonl`. Out: bodies. Never: a body written out in Rust.

use serde_json::{Value, json};

use super::super::tests::plan;
use super::super::{Api, Reply, ToolCall};
use crate::config::EndpointKind;
use crate::dataset::{ContextMode, Conversation, Turn};

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn conversation(case: &Value) -> Conversation {
    let turn = |turn: &Value| Turn {
        texts: text(&turn["text"]).into_iter().collect(),
        messages: list(&turn["messages"]),
        recorded: list(&turn["recorded"]),
        tools: turn.get("tools").cloned(),
        model: "m".to_owned(),
        ..Turn::default()
    };
    Conversation {
        system: text(&case["system"]),
        user_context: text(&case["user_context"]),
        turns: list(&case["turns"]).iter().map(turn).collect(),
        context: match case["context"].as_str() {
            None => ContextMode::LiveReplies,
            Some("recorded") => ContextMode::RecordedReplies,
            Some("self_contained") => ContextMode::SelfContained,
            Some(other) => panic!("context {other:?}"),
        },
        ..Conversation::default()
    }
}

fn reply(said: &Value) -> Option<Reply> {
    let words = |name: &str| text(&said[name]).unwrap_or_default();
    let call = |call: &Value, index| ToolCall {
        index,
        id: text(&call["id"]).unwrap_or_default(),
        name: text(&call["name"]).unwrap_or_default(),
        arguments: text(&call["arguments"]).unwrap_or_default(),
    };
    let calls = list(&said["tool_calls"]);
    said.is_object().then(|| Reply {
        text: words("text"),
        reasoning: words("reasoning"),
        tool_calls: calls.iter().zip(0..).map(|(c, n)| call(c, n)).collect(),
        ..Reply::default()
    })
}

/// Messages, where a pair stands for a role and a content.
fn messages(expected: &Value) -> Value {
    let message = |message: &Value| match message {
        Value::Array(pair) => json!({"role": pair[0], "content": pair[1]}),
        other => other.clone(),
    };
    list(expected).iter().map(message).collect()
}

#[test]
fn bodies_carry_their_past() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/endpoint/conversations.jsonl"
    );
    let cases = std::fs::read_to_string(file).unwrap();
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let conversation = conversation(&case);
        let replies: Vec<Option<Reply>> = list(&case["replies"]).iter().map(reply).collect();
        let api = Api::new(&plan(EndpointKind::Chat)).unwrap();
        let expected = list(&case["bodies"]);
        assert_eq!(expected.len(), conversation.turns.len(), "{}", case["why"]);
        for (turn, expected) in expected.iter().enumerate() {
            let body = api.render(&conversation, turn, &replies);
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["messages"], messages(expected), "{}", case["why"]);
            assert_eq!(body["tools"], case["tools"][turn], "{}", case["why"]);
        }
    }
}
