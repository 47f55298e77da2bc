//! The room as its users see it.
//!
//! In: plans, turns, reply JSON. Out: bodies, headers, pieces. Never: a server.

use serde_json::{Map, Value, json};

use super::*;
use crate::config::{EndpointKind, EndpointPlan};
use crate::dataset::{ContextMode, Conversation, Turn};

pub(super) fn plan(kind: EndpointKind) -> EndpointPlan {
    EndpointPlan {
        streaming: true,
        ..EndpointPlan::plain(kind)
    }
}

fn api(plan: &EndpointPlan) -> Api {
    Api::new(plan).unwrap()
}

fn input_texts(kind: EndpointKind, body: &[u8]) -> Vec<String> {
    api(&plan(kind)).input(body).texts
}

fn turn(text: &str) -> Turn {
    Turn {
        texts: vec![text.to_owned()],
        role: "user".to_owned(),
        model: "m".to_owned(),
        max_tokens: Some(5),
        ..Turn::default()
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else {
        panic!("an object")
    };
    map
}

fn text(plan: &EndpointPlan, conversation: &Conversation, turn: usize) -> String {
    String::from_utf8(api(plan).render(conversation, turn, &[])).unwrap()
}

#[test]
fn bodies_have_the_keys_in_order() {
    let mut conversation = Conversation {
        system: Some("sys".to_owned()),
        user_context: Some("ctx".to_owned()),
        turns: vec![turn("é\n")],
        ..Conversation::default()
    };
    let mut plan = plan(EndpointKind::Chat);
    plan.extra_inputs = object(json!({"temperature": 0.5, "model": "x"}));
    assert_eq!(
        text(&plan, &conversation, 0),
        "{\"messages\":[{\"role\":\"system\",\"content\":\"sys\"},{\"role\":\"user\",\"content\":\"ctx\"},\
         {\"role\":\"user\",\"content\":\"é\\n\"}],\"model\":\"x\",\"stream\":true,\"max_completion_tokens\":5,\
         \"temperature\":0.5,\"stream_options\":{\"include_usage\":true}}"
    );
    plan.kind = EndpointKind::Completions;
    plan.streaming = false;
    conversation.turns[0].texts.push("b".to_owned());
    conversation.turns[0].extra = object(json!({"temperature": 1}));
    assert_eq!(
        text(&plan, &conversation, 0),
        "{\"prompt\":[\"é\\n\",\"b\"],\"model\":\"x\",\"stream\":false,\"max_tokens\":5,\"temperature\":1}"
    );
}

#[test]
fn token_ids_are_the_prompt() {
    let mut plan = plan(EndpointKind::Completions);
    plan.streaming = false;
    let mut conversation = Conversation {
        turns: vec![turn("a")],
        ..Conversation::default()
    };
    conversation.turns[0].texts.clear();
    let one = vec![vec![7, 8]];
    for (ids, want, tokens) in [
        (one, json!([7, 8]), 2),
        (vec![vec![7, 8], vec![9]], json!([[7, 8], [9]]), 3),
    ] {
        conversation.turns[0].token_ids = ids;
        let body = text(&plan, &conversation, 0);
        let parsed: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed["prompt"], want);
        let input = api(&plan).input(body.as_bytes());
        assert_eq!(input.token_ids, tokens);
    }
}

#[test]
fn stream_options_of_the_user_stand() {
    let conversation = Conversation {
        turns: vec![turn("a")],
        ..Conversation::default()
    };
    let cases = [
        (json!({}), false, json!({"include_usage": true})),
        (
            json!({}),
            true,
            json!({"include_usage": true, "continuous_usage_stats": true}),
        ),
        (
            json!({"stream_options": {"include_usage": false}}),
            false,
            json!({"include_usage": false}),
        ),
        (json!({"stream_options": null}), true, json!(null)),
    ];
    for (extra, per_chunk_usage, want) in cases {
        let mut plan = plan(EndpointKind::Chat);
        plan.extra_inputs = object(extra);
        plan.per_chunk_usage = per_chunk_usage;
        let body: Value = serde_json::from_str(&text(&plan, &conversation, 0)).unwrap();
        assert_eq!(body["stream_options"], want);
    }
}

#[test]
fn replies_stand_between_the_turns() {
    let mut conversation = Conversation {
        turns: vec![turn("a"), turn("b"), turn("c")],
        ..Conversation::default()
    };
    let reply = Reply {
        reasoning: "hm".to_owned(),
        ..Reply::default()
    };
    let plan = plan(EndpointKind::Chat);
    let body = api(&plan).render(&conversation, 2, &[Some(reply), None]);
    assert_eq!(
        input_texts(EndpointKind::Chat, &body),
        ["a", "hm", "b", "c"]
    );
    let corpus = |conversation: &Conversation| crate::dataset::Corpus {
        conversations: vec![conversation.clone()],
        ..crate::dataset::Corpus::default()
    };
    let bodies = Bodies::render_all(&api(&plan), &corpus(&conversation));
    assert!(bodies.body(0, 0).is_some() && bodies.body(0, 1).is_none());
    conversation.context = ContextMode::SelfContained;
    let bodies = Bodies::render_all(&api(&plan), &corpus(&conversation));
    let last = bodies.body(0, 2).unwrap();
    assert_eq!(input_texts(EndpointKind::Chat, last), ["c"]);
}

#[test]
fn a_dataset_is_not_kept_twice() {
    let media = |kind| crate::dataset::Media::new(kind, "http://h");
    let mut once = turn("a");
    once.media = vec![
        media(crate::dataset::MediaKind::Image),
        media(crate::dataset::MediaKind::Audio),
    ];
    let known = Conversation {
        turns: vec![once.clone()],
        system: Some("s".to_owned()),
        ..Conversation::default()
    };
    let live = Conversation {
        turns: vec![turn("a"), turn("b")],
        ..Conversation::default()
    };
    let mut corpus = crate::dataset::Corpus {
        conversations: vec![known.clone(), live],
        ..crate::dataset::Corpus::default()
    };
    let api = api(&plan(EndpointKind::Chat));
    let all = Bodies::render_all(&api, &corpus);
    let bodies = Bodies::take_all(&api, &mut corpus);
    assert!(bodies.body(0, 0).is_some() && bodies.body(0, 0) == all.body(0, 0));
    let [first, second] = corpus.conversations.as_slice() else {
        panic!("two conversations")
    };
    assert!(first.turns[0].texts.is_empty() && first.system.is_none());
    assert_eq!(first.turns[0].max_tokens, once.max_tokens);
    assert_eq!(first.image_count(0), 1);
    assert_eq!(second.turns[1].texts, ["b"]);
}

#[test]
fn headers_stand_in_order_and_give_way_to_the_users() {
    let mut plan = plan(EndpointKind::Chat);
    plan.api_key = Some("k".to_owned());
    plan.session_header = Some("X-Sess".to_owned());
    let headers = [("X-Team", "perf"), ("accept", "*/*"), ("HOST", "h")];
    plan.headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    let template = HeaderTemplate::new(&api(&plan));
    let mut out = Vec::new();
    let two = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let session = uuid::Uuid::parse_str(two).unwrap();
    template.write(&mut out, 1, session.as_u128(), &[]);
    let one = "00000000-0000-0000-0000-000000000001";
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!(
            "User-Agent: tokenring/{}\r\nX-Request-ID: {one}\r\nX-Sess: {two}\r\nX-Team: perf\r\nAuthorization: Bearer k\r\n\
             Accept: */*\r\nContent-Type: application/json\r\nX-Session-Affinity: {two}\r\n",
            env!("CARGO_PKG_VERSION")
        )
    );
    // A user's session is called by his number.
    let mut out = Vec::new();
    template.write(&mut out, 1, 17, &[]);
    let lines = String::from_utf8(out).unwrap();
    assert!(lines.contains("X-Sess: 17\r\n") && lines.contains("X-Session-Affinity: 17\r\n"));
    assert_eq!(template.host_override(), Some("h"));
    assert_eq!(template.content_length_override(), None);
}

#[test]
fn tool_call_fragments_become_one_message() {
    let chat = api(&plan(EndpointKind::Chat));
    let mut builder = chat.reply_builder();
    for call in [
        json!({"index": 0, "id": "t1", "function": {"name": "f", "arguments": ""}}),
        json!({"index": 0, "function": {"arguments": "{\"a\""}}),
        json!({"index": 0, "function": {"arguments": ":1}"}}),
    ] {
        builder.push(
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
                .to_string()
                .as_bytes(),
        );
    }
    let message = chat::assistant(&builder.finish().unwrap()).unwrap();
    assert_eq!(message["content"], Value::Null);
    assert_eq!(
        message["tool_calls"],
        json!([{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}])
    );
}
