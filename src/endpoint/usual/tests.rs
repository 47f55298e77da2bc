//! The quick reading beside the thorough one.
//!
//! In: chunks, usual and odd. Out: verdicts on what both say. Never: a server.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::chat::Chat;
use super::super::completions::Completions;
use super::super::messages::Messages;
use super::super::responses::Responses;
use super::super::{Parsed, PieceKind, Seen};
use super::*;

#[test]
fn what_servers_send_is_usual() {
    let chat = r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" a\nb"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    let found = piece(Shape::Chat, chat.as_bytes()).unwrap().0;
    assert_eq!(found.text.as_deref(), Some(" a\nb"));
    assert_eq!(found.kind(), Some(PieceKind::Text));
    let last = r#"{"object":"text_completion","choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#;
    let found = piece(Shape::Completions, last.as_bytes()).unwrap().0;
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
        assert_eq!(piece(Shape::Chat, odd.as_bytes()), None, "{odd}");
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
        select(vec![r#""a""#, r#""\ud83d\ude00""#, "\"é\"", "null", "\"\""]).prop_map(str::to_owned)
    };
    let delta = object(
        &[
            "role",
            "content",
            "reasoning",
            "reasoning_content",
            "tool_calls",
            "refusal",
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

/// An event with a type.
fn event() -> impl Strategy<Value = String> {
    let kind = select(vec![
        r#""response.output_text.delta""#,
        r#""content_block_delta""#,
        r#""content_block_start""#,
        "null",
    ]);
    let text = || select(vec![r#""a""#, "\"é\"", "null", "\"\""]).prop_map(str::to_owned);
    let delta = object(
        &["type", "text", "thinking", "partial_json"],
        prop_oneof![4 => text(), 1 => any_value()],
    );
    let rest = object(
        &["delta", "index", "error", "object", "sequence_number"],
        prop_oneof![2 => delta, 2 => text(), 1 => any_value()],
    );
    (kind, rest).prop_map(|(kind, rest)| {
        let whole = format!("{{\"type\":{kind},{}", &rest[1..]);
        whole.replace(",}", "}")
    })
}

/// A chunk, and the dialect that is to read it.
fn case() -> impl Strategy<Value = (String, &'static dyn Dialect)> {
    let chunks = select(vec![&Chat as &dyn Dialect, &Completions]);
    let events = select(vec![&Responses as &dyn Dialect, &Messages]);
    prop_oneof![(chunk(), chunks), (event(), events)]
}

#[test]
fn a_template_is_used_where_only_the_text_differs() {
    let chunk = |text: &str, end: &str| {
        format!(
            r#"{{"object":"chat.completion.chunk","choices":[{{"delta":{{"content":"{text}"}}}}]{end}}}"#
        )
    };
    let mut template = Template::default();
    assert!(template.piece(&Chat, chunk(" a", "").as_bytes()).is_some());
    for (text, end, compared) in [
        (" b c", "", true),
        ("", "", true),
        ("\u{e9}", "", true),
        (r"\n", "", false),
        (r#"","content":"x"#, "", false),
        ("\t", "", false),
        (" a", r#","x":0"#, false),
    ] {
        let chunk = chunk(text, end);
        assert_eq!(
            template.differing_text(chunk.as_bytes()).is_some(),
            compared,
            "{chunk}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn a_template_changes_no_answer(
        (chunk, dialect) in case(), old in "[a-c]{1,3}", new in "([a-c\"{}:,\\\\n\u{e9}\t]|\",\"content\":\"){0,6}",
    ) {
        let with = |text: &str| chunk.replace(r#""a""#, &format!("\"{text}\""));
        let mut template = Template::default();
        template.piece(dialect, with(&old).as_bytes());
        let data = with(&new);
        let alone = dialect.usual(data.as_bytes()).map(|(piece, _)| piece);
        prop_assert_eq!(template.piece(dialect, data.as_bytes()), alone, "{}", data);
    }

    #[test]
    fn both_readings_agree((chunk, dialect) in case(), cut in 0usize..400) {
        let cut = (0..=cut.min(chunk.len())).rev().find(|&at| chunk.is_char_boundary(at)).unwrap();
        for data in [chunk.as_str(), &chunk[..cut]] {
            let Some((quick, _)) = dialect.usual(data.as_bytes()) else { continue };
            let thorough = match dialect.read(data.as_bytes(), Seen::default()) {
                Parsed::Piece(piece) => piece,
                Parsed::Nothing => Piece::default(),
                Parsed::NotJson => panic!("{data} is no JSON"),
            };
            prop_assert_eq!(quick, thorough, "{}", data);
        }
    }
}
