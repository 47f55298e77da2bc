//! In: lines. Out: conversations, or sentences with file, line and field. Never: a file, but for one.

use proptest::prelude::*;

use std::path::Path;

use super::super::format::parse;
use super::super::lines::Reading;
use super::super::{Corpus, DatasetError};
use super::*;
use crate::file::{Cut, Records};

fn parsed(lines: &str) -> Result<(Corpus, Vec<String>), DatasetError> {
    parsed_bytes(lines.as_bytes())
}

/// As for `chat`, without flags.
const PLAIN: SingleTurn = SingleTurn {
    image_ids: true,
    strip_images: false,
};

fn parsed_bytes(bytes: &[u8]) -> Result<(Corpus, Vec<String>), DatasetError> {
    parsed_as(PLAIN, bytes)
}

fn parsed_as(mut format: SingleTurn, bytes: &[u8]) -> Result<(Corpus, Vec<String>), DatasetError> {
    let bytes = Box::new(std::io::Cursor::new(bytes.to_vec()));
    let records = Records::of(bytes, Cut::Json);
    let (path, mut reading) = (Path::new("in.jsonl"), Reading::new(false, 1));
    parse(records, path, &mut reading, &mut format)?;
    reading.finish(path, &mut format)
}

/// Content and id of each picture, turn by turn.
fn pictures(corpus: &Corpus) -> Vec<Vec<(&str, Option<&str>)>> {
    let turns = corpus.conversations.iter().flat_map(|one| &one.turns);
    turns
        .map(|turn| {
            let media = turn.media.iter();
            media
                .map(|media| (&*media.content, media.uuid.as_deref()))
                .collect()
        })
        .collect()
}

#[test]
fn pictures_have_the_ids_that_a_line_gives_them() {
    let lines = [
        r#"{"text": "one", "images": ["http://h/a", ""], "image_uuids": ["A", "B"]}"#,
        r#"{"image_uuids": ["A"]}"#,
        r#"{"images": [{"name": "n", "contents": ["http://h/a", ""], "uuids": ["A", "B"]}, {"uuids": ["C"]}, "http://h/d"]}"#,
    ];
    let (corpus, notes) = parsed(&lines.join("\n")).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(
        pictures(&corpus),
        [
            vec![("http://h/a", Some("A")), ("", Some("B"))],
            vec![("", Some("A"))],
            vec![
                ("http://h/a", Some("A")),
                ("", Some("B")),
                ("", Some("C")),
                ("http://h/d", None)
            ],
        ]
    );
    // Elsewhere a picture has to be there; its id goes nowhere.
    let elsewhere = || SingleTurn {
        image_ids: false,
        ..PLAIN
    };
    let whole = r#"{"images": ["http://h/a"], "image_uuids": ["A"]}"#;
    assert!(parsed_as(elsewhere(), whole.as_bytes()).is_ok());
    let error = parsed_as(elsewhere(), lines[1].as_bytes()).unwrap_err();
    let wanted = "in.jsonl:1: field image_uuids: the picture \"A\" has no content, and only";
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn repeated_pictures_are_stripped_from_later_turns_of_their_session() {
    let lines = [
        // Twice in one request is sent twice.
        r#"{"session_id": "s", "images": ["http://h/a", "http://h/a"], "image_uuids": ["A", "A"]}"#,
        r#"{"session_id": "t", "images": ["http://h/a"], "image_uuids": ["A"]}"#,
        r#"{"session_id": "s", "images": ["http://h/a", "http://h/b", "", "http://h/d"], "image_uuids": ["A", "B", "C", "D"]}"#,
        r#"{"session_id": "s", "images": ["http://h/c", "http://h/b"], "image_uuids": ["C", "B"]}"#,
        r#"{"session_id": "s", "images": ["http://h/c", "http://h/c"]}"#,
    ];
    let strip = SingleTurn {
        strip_images: true,
        ..PLAIN
    };
    let (corpus, _) = parsed_as(strip, lines.join("\n").as_bytes()).unwrap();
    let contents = |turn: &Vec<(&str, Option<&str>)>| {
        let contents = turn
            .iter()
            .map(|(content, _)| content.replace("http://h/", ""));
        contents.collect::<Vec<String>>().join(",")
    };
    let turns: Vec<String> = pictures(&corpus).iter().map(contents).collect();
    assert_eq!(turns, ["a,a", ",b,,d", "c,", "c,c", "a"]);
}

#[test]
fn a_line_gives_a_turn() {
    let line = r#"{"texts": ["one", {"name": "passages", "contents": ["two", "three"]}], "role": "system", "session_id": "s",
        "output_length": 7, "delay": 250.5, "extra": {"top_k": 3}, "type": "single_turn", "text": null}"#;
    let line = line.replace('\n', " ");
    let (corpus, notes) = parsed(&format!(
        "\n{{\"text\": \"zero\", \"session_id\": \"s\"}}\r\n   \n{line}"
    ))
    .unwrap();
    assert!(notes.is_empty());
    let one = &corpus.conversations[0];
    assert_eq!(
        (corpus.conversations.len(), one.id.as_str(), one.context),
        (1, "s", ContextMode::SelfContained)
    );
    assert_eq!(one.turns[0].texts, ["zero"]);
    assert_eq!(
        (one.turns[0].role.as_str(), one.turns[0].max_tokens),
        ("user", None)
    );
    let turn = &one.turns[1];
    assert_eq!(turn.texts, ["one", "two", "three"]);
    assert_eq!(
        (turn.role.as_str(), turn.max_tokens, turn.delay_ms),
        ("system", Some(7), 250.5)
    );
    assert_eq!(
        serde_json::to_string(&turn.extra).unwrap(),
        r#"{"top_k":3}"#
    );
}

#[test]
fn sessions_group_lines_in_the_order_of_their_first_line() {
    let text = |text: &str, session: &str| format!("{{\"text\": \"{text}\"{session}}}\n");
    let lines = [
        text("a1", ", \"session_id\": \"a\", \"delay\": 9"),
        text("free", ""),
        text("b1", ", \"session_id\": \"b\""),
        text("a2", ", \"session_id\": \"a\", \"delay\": 9"),
        text("free", ""),
    ];
    let (corpus, _) = parsed(&lines.concat()).unwrap();
    let shown: Vec<Vec<&str>> = corpus
        .conversations
        .iter()
        .map(|one| {
            one.turns
                .iter()
                .map(|turn| turn.texts[0].as_str())
                .collect()
        })
        .collect();
    assert_eq!(
        shown,
        [vec!["a1", "a2"], vec!["free"], vec!["b1"], vec!["free"]]
    );
    let ids: Vec<&str> = corpus
        .conversations
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    assert_eq!((ids[0], ids[2]), ("a", "b"));
    assert!(ids[1] != ids[3] && uuid::Uuid::parse_str(ids[1]).is_ok());
    let delays = [0, 1].map(|turn| corpus.conversations[0].turns[turn].delay_ms);
    assert_eq!(delays, [0.0, 9.0], "a first turn has nothing to wait for");
}

#[test]
fn a_timestamp_is_taken() {
    let (corpus, _) = parsed("{\"text\": \"a\", \"timestamp\": 5}").unwrap();
    assert_eq!(corpus.conversations[0].turns[0].timestamp_ms, Some(5.0));
}

#[test]
fn unknown_fields_are_told_once_each() {
    let line = "{\"text\": \"a\", \"outptu_length\": 3}\n";
    let (corpus, notes) = parsed(&format!("{{\"text\": \"a\"}}\n{}", line.repeat(3))).unwrap();
    assert_eq!(corpus.conversations.len(), 4);
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("in.jsonl:2: field outptu_length is not part"),
        "{notes:?}"
    );
}

#[test]
fn bad_lines_are_named_with_their_field() {
    let cases = [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "field text: missing"),
        (r#"{"text": 3}"#, "field text: 3 is not a string"),
        (r#"{"text": ""}"#, "field text: empty"),
        (r#"{"texts": []}"#, "field text: empty"),
        (r#"{"texts": "a"}"#, "field texts: \"a\" is not a list"),
        (r#"{"texts": [4]}"#, "field texts: 4 is neither"),
        (r#"{"texts": [{"name": "n"}]}"#, "no list called contents"),
        (r#"{"texts": [{"contents": [false]}]}"#, "false in contents"),
        (r#"{"text": "a", "texts": ["b"]}"#, "fields text and texts"),
        (r#"{"text": "a", "role": 1}"#, "field role"),
        (r#"{"text": "a", "session_id": ""}"#, "field session_id"),
        (
            r#"{"text": "a", "output_length": 0}"#,
            "field output_length: 0",
        ),
        (
            r#"{"text": "a", "output_length": 1.5}"#,
            "field output_length: 1.5",
        ),
        (
            r#"{"text": "a", "output_length": 4294967296}"#,
            "field output_length",
        ),
        (r#"{"text": "a", "delay": -1}"#, "field delay: -1"),
        (
            r#"{"text": "a", "delay": 1, "timestamp": 1}"#,
            "fields timestamp and delay",
        ),
        (r#"{"text": "a", "extra": []}"#, "field extra"),
        (
            r#"{"text": "a", "image": "no/x.png"}"#,
            "field image: \"no/x.png\" is no URL",
        ),
        (r#"{"audios": []}"#, "give text or texts, or media"),
        (
            r#"{"text": "a", "type": "multi_turn"}"#,
            "field type: \"multi_turn\"",
        ),
    ];
    for (line, part) in cases {
        let message = parsed(&format!("{{\"text\": \"fine\"}}\n\n{line}\n"))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("in.jsonl:3: ") && message.contains(part),
            "{line}: {message}"
        );
    }
}

#[test]
fn all_bad_lines_are_reported_up_to_a_bound() {
    let message = parsed(&"{}\n".repeat(25)).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 21);
    assert!(
        message.ends_with("and 5 more bad lines") && message.contains("in.jsonl:20: "),
        "{message}"
    );
    assert_eq!(
        parsed(&"{}\n".repeat(20))
            .unwrap_err()
            .to_string()
            .lines()
            .count(),
        20
    );
    let empty = parsed(" \n\n").unwrap_err().to_string();
    assert!(empty.contains("no entries"), "{empty}");
    assert!(
        parsed_bytes(b"\xff\n")
            .unwrap_err()
            .to_string()
            .contains("in.jsonl:1: not UTF-8")
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parsed_bytes(&bytes);
    }

    #[test]
    fn no_fields_make_it_panic(name in "text|texts|role|session_id|output_length|delay|timestamp|extra|type|image",
                               value in "null|true|-1|1e999|3|\"a\"|\\[\\]|\\[\"a\"\\]|\\[\\{\\}\\]|\\{\"contents\":\\[1\\]\\}") {
        let line = format!("{{\"text\": \"a\", \"{name}\": {value}}}");
        if let Ok((corpus, _)) = parsed(&line) {
            prop_assert_eq!(corpus.conversations[0].turns.len(), 1);
        }
    }
}

#[test]
fn media_stand_beside_texts_or_alone() {
    let (corpus, notes) = parsed(
        "{\"text\": \"a\", \"image\": \"http://h/1\", \"audio\": \"wav,AA==\"}\n{\"images\": [\"http://h/2\", \"http://h/3\"]}\n",
    )
    .unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let shown: Vec<(usize, Vec<&str>)> = corpus
        .conversations
        .iter()
        .map(|one| {
            let turn = &one.turns[0];
            let media = turn.media.iter().map(|media| &*media.content);
            (turn.texts.len(), media.collect())
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, vec!["http://h/1", "wav,AA=="]),
            (0, vec!["http://h/2", "http://h/3"])
        ]
    );
}
