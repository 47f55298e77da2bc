//! In: lines of `multi_turn`. Out: modes, turns and the replies in front of them, or sentences. Never: a file.

use serde_json::{Value, json};

use super::super::format::parse;
use super::super::lines::Reading;
use super::super::multi_turn::MultiTurn;
use super::*;
use std::path::Path;

use super::super::Corpus;
use crate::config::EndpointKind;
use crate::file::{Cut, Records};

fn parsed_lines(kind: EndpointKind, lines: &str) -> Result<(Corpus, Vec<String>), String> {
    let records = Records::of(
        Box::new(std::io::Cursor::new(lines.to_owned().into_bytes())),
        Cut::Json,
    );
    let mut format = MultiTurn {
        system_slot: kind.facts().system_slot,
        image_ids: kind.facts().image_ids,
    };
    let (path, mut reading) = (Path::new("in.jsonl"), Reading::new(false, 1));
    parse(records, path, &mut reading, &mut format)
        .and_then(|()| reading.finish(path, &mut format))
        .map_err(|error| error.to_string())
}

fn parsed(kind: EndpointKind, line: &Value) -> Result<(Corpus, Vec<String>), String> {
    parsed_lines(kind, &line.to_string())
}

/// The system message, the mode's place in [`MODES`], and for each turn its recorded replies and its texts.
fn read(kind: EndpointKind, line: &Value) -> Value {
    let (corpus, _) = parsed(kind, line).unwrap();
    let one = &corpus.conversations[0];
    let turn = |turn: &Turn| {
        let recorded: Vec<&Value> = turn
            .recorded
            .iter()
            .map(|reply| &reply["content"])
            .collect();
        json!([recorded, turn.texts])
    };
    let turns: Vec<Value> = one.turns.iter().map(turn).collect();
    json!([
        one.system,
        MODES.iter().position(|(_, mode)| *mode == one.context),
        turns
    ])
}

fn user(text: &str) -> Value {
    json!({"text": text})
}

fn of(role: &str, text: &str) -> Value {
    json!({"role": role, "text": text})
}

#[test]
fn replies_of_the_record_stand_in_front_of_what_follows() {
    for (turns, expected) in [
        (
            json!([user("a"), user("b")]),
            json!([null, 0, [[[], ["a"]], [[], ["b"]]]]),
        ),
        (
            json!([user("a"), of("assistant", "R"), user("b")]),
            json!([null, 1, [[[], ["a"]], [["R"], ["b"]]]]),
        ),
        (
            json!([
                of("assistant", "Q"),
                of("assistant", "R"),
                user("b"),
                of("assistant", "S")
            ]),
            json!([null, 1, [[["Q", "R"], ["b"]]]]),
        ),
        (
            json!([
                of("system", "s"),
                user("a"),
                of("assistant", "R"),
                user("b")
            ]),
            json!(["s", 1, [[[], ["a"]], [["R"], ["b"]]]]),
        ),
    ] {
        let line = json!({"turns": turns});
        assert_eq!(read(EndpointKind::Chat, &line), expected, "{line}");
    }
}

#[test]
fn a_leading_system_turn_is_a_request_only_where_aiperf_has_it_so() {
    let timed = json!({"role": "system", "text": "s", "delay": 0});
    for (kind, turns, hoisted) in [
        (
            EndpointKind::Chat,
            json!([of("system", "s"), user("a")]),
            true,
        ),
        (
            EndpointKind::Completions,
            json!([of("system", "s"), user("a")]),
            false,
        ),
        (EndpointKind::Chat, json!([of("system", "s")]), false),
        (
            EndpointKind::Chat,
            json!([of("system", "s"), of("system", "t"), user("a")]),
            false,
        ),
        (EndpointKind::Chat, json!([timed, user("a")]), false),
        (
            EndpointKind::Chat,
            json!([user("a"), of("system", "s")]),
            false,
        ),
    ] {
        let line = json!({"turns": turns});
        let system = read(kind, &line)[0].clone();
        assert_eq!(system, json!(hoisted.then_some("s")), "{kind:?} {line}");
    }
}

#[test]
fn what_cannot_be_meant_is_said() {
    let reply = of("assistant", "R");
    let timed = json!({"role": "assistant", "text": "R", "delay": 5});
    for (line, reason) in [
        (json!({"turns": [reply]}), "only an assistant's turns"),
        (
            json!({"turns": [user("a"), timed, user("b")]}),
            "turn 2: an assistant's turn is a recorded reply",
        ),
        (
            json!({"context_mode": "live", "turns": [user("a")]}),
            "field context_mode: \"live\" is none of",
        ),
        (
            json!({"context_mode": "message_array_without_responses", "turns": [user("a")]}),
            "is none of",
        ),
        (
            json!({"turns": [{"messages": []}]}),
            "field messages: [] is not a list of at least one",
        ),
        (
            json!({"turns": [{"messages": [{"content": "x"}]}]}),
            "has no role",
        ),
        (
            json!({"turns": [{"text": "a", "messages": [{"role": "user"}]}]}),
            "fields messages and text",
        ),
        (
            json!({"turns": [{"text": "a", "tools": {}}]}),
            "field tools: {} is not a list",
        ),
    ] {
        let error = parsed(EndpointKind::Chat, &line).unwrap_err();
        assert!(
            error.starts_with("in.jsonl:1: ") && error.contains(reason),
            "{error}"
        );
    }
    let (_, notes) = parsed(EndpointKind::Chat, &json!({"turns": [reply, user("b")]})).unwrap();
    assert!(
        notes[0].contains("1 of 1 conversations carry recorded replies"),
        "{notes:?}"
    );
}

#[test]
fn lines_of_one_session_agree_on_the_mode() {
    let lines = [
        json!({"session_id": "s", "turns": [user("a")]}),
        json!({"session_id": "s", "turns": [of("assistant", "R"), user("b")]}),
    ];
    let lines = lines.map(|line| line.to_string()).join("\n");
    let error = parsed_lines(EndpointKind::Chat, &lines).unwrap_err();
    assert!(error.contains("in.jsonl:2: field session_id"), "{error}");
}
