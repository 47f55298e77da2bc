//! Joined bodies and rendered ones.
//!
//! In: made-up conversations and replies. Out: that both ways give the same bytes. Never: a body written out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::tests::plan;
use super::super::{Bodies, ToolCall};
use super::*;
use crate::config::EndpointKind;
use crate::dataset::Corpus;

fn word() -> impl Strategy<Value = String> {
    prop::string::string_regex("[a-c\"\\\\\\],\\[é\n]{0,6}").unwrap()
}

fn api(kind: EndpointKind) -> Api {
    Api::new(&plan(kind)).unwrap()
}

/// Any dialect that carries a history, and one that does not.
fn kind() -> impl Strategy<Value = EndpointKind> {
    let carries = |kind: &EndpointKind| kind.facts().history || *kind == EndpointKind::Completions;
    let kinds: Vec<EndpointKind> = EndpointKind::ALL.iter().copied().filter(carries).collect();
    prop::sample::select(kinds)
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    (role, word()).prop_map(|(role, content)| json!({"role": role, "content": content}))
}

fn turn() -> impl Strategy<Value = Turn> {
    let words = prop::collection::vec(word(), 0..3);
    let messages = prop::collection::vec(message(), 0..3);
    let recorded = prop::collection::vec(message(), 0..2);
    let tools = prop::option::of(word().prop_map(|name| json!([{"name": name}])));
    let extra = prop::option::of(prop::sample::select(vec![
        ("seed", json!(1)),
        ("model", json!(1)),
        ("messages", json!(1)),
        ("n", json!(1)),
        ("store", json!(true)),
        ("store", json!(false)),
        ("previous_response_id", json!("r")),
    ]));
    let limit = prop::option::of(1_u32..99);
    let model = prop::sample::select(vec!["m", "other"]);
    let all = (words, messages, recorded, tools, extra, limit, model);
    all.prop_map(
        |(texts, messages, recorded, tools, extra, max_tokens, model)| Turn {
            texts,
            messages,
            recorded,
            tools,
            max_tokens,
            model: model.to_owned(),
            extra: extra
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            ..Turn::default()
        },
    )
}

fn reply() -> impl Strategy<Value = Option<Reply>> {
    let call = (word(), word()).prop_map(|(id, arguments)| ToolCall {
        index: 0,
        id,
        name: "f".to_owned(),
        arguments,
    });
    let calls = prop::collection::vec(call, 0..2);
    let items = prop::collection::vec(message(), 0..3);
    let all = (word(), word(), calls, items, word(), any::<bool>());
    let reply = all.prop_map(|(text, reasoning, tool_calls, items, id, stored)| Reply {
        text,
        reasoning,
        tool_calls,
        id,
        stored,
        items,
    });
    prop::option::of(reply)
}

fn conversation() -> impl Strategy<Value = Conversation> {
    let turns = prop::collection::vec(turn(), 1..5);
    (prop::option::of(word()), prop::option::of(word()), turns).prop_map(
        |(system, user_context, turns)| Conversation {
            system,
            user_context,
            turns,
            ..Conversation::default()
        },
    )
}

/// Plays a conversation; returns each later turn's body.
fn play(
    kind: EndpointKind,
    conversation: &Conversation,
    replies: &[Option<Reply>],
) -> Vec<Arc<[u8]>> {
    let api = api(kind);
    let corpus = Corpus {
        conversations: vec![conversation.clone()],
        ..Corpus::default()
    };
    let bodies = Bodies::render_all(&api, &corpus);
    let mut history = History::default();
    let turns = u32::try_from(conversation.turns.len()).unwrap();
    let step = |turn: u32| {
        let reply = replies[turn as usize - 1].clone();
        bodies.remember(&api, 0, turn - 1, reply, &mut history);
        bodies.live(&api, (0, conversation), turn, &history)
    };
    (1..turns).map(step).collect()
}

proptest! {
    #[test]
    fn joining_is_rendering(conversation in conversation(), replies in prop::collection::vec(reply(), 5), kind in kind()) {
        for (body, turn) in play(kind, &conversation, &replies).iter().zip(1..) {
            let whole = api(kind).render(&conversation, turn, &replies[..turn]);
            prop_assert_eq!(String::from_utf8_lossy(body), String::from_utf8_lossy(&whole));
        }
    }
}

fn long(turns: usize, words: usize) -> Conversation {
    let turn = |number: usize| Turn {
        texts: vec![format!("word{number} ").repeat(words)],
        model: "m".to_owned(),
        max_tokens: Some(9),
        ..Turn::default()
    };
    Conversation {
        turns: (0..turns).map(turn).collect(),
        ..Conversation::default()
    }
}

#[test]
fn a_usual_conversation_comes_apart() {
    let chat = api(EndpointKind::Chat);
    let slot = Slot::new(&chat).unwrap();
    let frames = Frames::new(&chat, &slot, &long(3, 2)).unwrap();
    assert_eq!(frames.later.len(), 2);
    assert!(frames.opening.starts_with(b"{\"messages\":[{"));
    assert!(frames.later[0].own.starts_with(b",{\"role\":\"user\""));
    assert!(frames.later[0].closing.starts_with(b"],\"model\":\"m\""));
    let responses = api(EndpointKind::Responses);
    let slot = Slot::new(&responses).unwrap();
    let frames = Frames::new(&responses, &slot, &long(3, 2)).unwrap();
    assert!(frames.opening.starts_with(b"{\"input\":[{"));
    let named = frames.later[1].named.as_ref().unwrap();
    assert_eq!(&named.opening[..], b"{\"input\":[");
    assert!(named.before.ends_with(b",\"previous_response_id\":\""));
    assert!(named.after.starts_with(b"\","));
    // Completions have no history to put anything in.
    assert!(Slot::new(&api(EndpointKind::Completions)).is_none());
}

/// Eight turns of 4,000 words each way: what is copied for the last body grows with the body, and nothing else does.
#[test]
fn a_long_history_is_copied_once() {
    let conversation = long(8, 4_000);
    let said = Reply {
        text: "reply ".repeat(4_000),
        ..Reply::default()
    };
    let replies = vec![Some(said); 8];
    let bodies = play(EndpointKind::Chat, &conversation, &replies);
    let last = bodies.last().unwrap();
    let whole = api(EndpointKind::Chat).render(&conversation, 7, &replies[..7]);
    assert_eq!(last.len(), whole.len());
    assert!(last[..] == whole[..]);
}
