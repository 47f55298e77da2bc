//! What is made one by one is what is built at once.
//!
//! In: small traces. Out: whether the two ways agree. Never: an order in which it would matter.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;

use proptest::prelude::*;

use super::super::{Dataset, build, open};
use super::*;
use crate::clock::Nanos;
use crate::config::{Command, parse};
use crate::file::tests::{gzip, zstd};
use crate::tokenizer::ShippedTokenizer;

/// A trace of a few lines, some of them of one session.
fn traces() -> impl Strategy<Value = String> {
    let line = (0_u32..50, 0_u32..7, 1_u32..60, 0_u32..4, 0_u32..16);
    prop::collection::vec(line, 1..120).prop_map(|lines| {
        let mut text = String::new();
        let mut begun = HashSet::new();
        for (number, (time, kind, length, hash, session)) in lines.into_iter().enumerate() {
            let mut rest = match kind {
                0 => format!(r#""text_input": "text {number}""#),
                // An id stands for one text of one length.
                1 => format!(
                    r#""input_length": {}, "hash_ids": [{hash}, {}]"#,
                    length + 16,
                    100 + length.min(16)
                ),
                2 => format!(r#""input_length": {length}, "output_length": 9"#),
                3 => format!(r#""input_length": {length}, "odd": 1"#),
                4 => format!(
                    r#""messages": [{{"role": "user", "content": "m{number}"}}], "output_length": {length}"#
                ),
                5 => format!(r#""payload": {{"n": {number}, "text": "ü"}}"#),
                _ => format!(r#""input_length": {length}"#),
            };
            // Now and then a session has two forms, or begins without a time.
            let mixes = number == 99 && length > 50;
            let form = if mixes { 0 } else { [0, 0, 0, 0, 1, 2, 0][kind as usize] };
            let id = format!("s{form}{session}");
            let goes_on = session < 12 && !begun.insert(id.clone());
            if session < 12 {
                write!(rest, r#", "session_id": "{id}""#).unwrap();
            }
            let end = if hash == 3 { "\r\n\n" } else { "\n" };
            let when = if (goes_on || number == 98) && length % 3 == 0 {
                format!(r#""delay": {time}"#)
            } else {
                format!(r#""timestamp": {time}"#)
            };
            write!(text, r#"  {{{when}, {rest}}}{end}"#).unwrap();
        }
        text
    })
}

/// Conversations of several turns, some of them in several lines, and some with recorded replies.
fn talks() -> impl Strategy<Value = String> {
    let turn = (0_u32..50, 0_u32..4);
    let line = (0_u32..50, prop::collection::vec(turn, 0..3), 0_u32..40);
    prop::collection::vec(line, 1..60).prop_map(|lines| {
        let mut text = String::new();
        for (number, (time, turns, session)) in lines.into_iter().enumerate() {
            write!(text, r#"{{"session_id": "t{session}", "turns": [{{"text": "{number}", "timestamp": {time}}}"#).unwrap();
            // A session's lines all have replies, or none; now and then they disagree.
            if session % 3 == 1 || (session == 39 && time > 40) {
                let reply = r#"{"role": "assistant", "text": "it was"}"#;
                let call = r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": []}, {"role": "tool", "content": "ok"}], "role": "assistant"}"#;
                write!(text, ", {}", if time % 2 == 0 { reply } else { call }).unwrap();
            }
            for (time, kind) in turns {
                let when = match kind {
                    0 => format!(r#", "timestamp": {time}"#),
                    1 => format!(r#", "delay": {time}"#),
                    _ => String::new(),
                };
                write!(text, r#", {{"text": "and {kind}"{when}}}"#).unwrap();
            }
            text.push_str("]}\n");
        }
        text
    })
}

/// Single turns, some of them of one session.
fn singles() -> impl Strategy<Value = String> {
    let line = (0_u32..50, 0_u32..40);
    prop::collection::vec(line, 1..90).prop_map(|lines| {
        let mut text = String::new();
        for (number, (time, session)) in lines.into_iter().enumerate() {
            writeln!(
                text,
                r#"{{"timestamp": {time}, "text": "{number}", "session_id": "u{session}"}}"#
            )
            .unwrap();
        }
        text
    })
}

fn plan(path: &Path, flags: &str) -> Plan {
    let words = format!(
        "profile --model a,b --model-selection-strategy random --url h --osl 50 --output-tokens-stddev 20 --input-file {} {flags}",
        path.display()
    );
    let words = words.split_whitespace().map(std::ffi::OsString::from);
    match parse(words) {
        Ok(Command::Profile(plan)) => *plan,
        other => panic!("{other:?}"),
    }
}

const TRACE: &str = "--custom-dataset-type mooncake-trace --fixed-schedule";

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// `text` as it is, packed with gzip, and with zstd.
fn pack(how: u32, text: &[u8]) -> Vec<u8> {
    match how {
        0 => text.to_owned(),
        1 => gzip(text),
        _ => zstd(text),
    }
}

/// When a conversation is due, and all that it is.
fn shown(conversation: &Conversation, due: Option<Nanos>) -> String {
    let mut conversation = conversation.clone();
    for turn in &mut conversation.turns {
        turn.line = 0;
        // Numbered in a trace only.
        turn.record = 0;
    }
    format!("{due:?} {conversation:?}")
}

/// Makes each conversation of `text` alone and compares all with the loaded ones, or the errors.
fn compare(text: &str, seed: u64, flags: &str, how: u32) {
    let file = file(text);
    let always = plan(
        file.path(),
        &format!("--fixed-schedule --stream-input always {flags}"),
    );
    std::fs::write(file.path(), pack(how, text.as_bytes())).unwrap();
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    let built = build(&always, &tokenizer, seed);
    let streamed = open(&always, &tokenizer, seed);
    let (built, streamed) = match (built, streamed) {
        (Ok(built), Ok(streamed)) => (built, streamed),
        (Err(one), Err(other)) => {
            assert_eq!(one.to_string(), other.to_string());
            return;
        }
        (one, other) => panic!("{:?} {:?}", one.err(), other.err()),
    };
    let (Dataset::Streamed(streamed, begins), notes) = streamed else {
        panic!("it was loaded: {:?}", streamed.1)
    };
    let mut maker = streamed.maker(&always, &tokenizer, 1).unwrap();
    let numbers = begins
        .listed
        .unwrap_or_else(|| (begins.first..).take(begins.due.len()).collect());
    let mut turns: Vec<_> = numbers.iter().zip(&begins.due).enumerate().collect();
    match how {
        // Backwards, for it must not matter.
        0 => turns.reverse(),
        _ => turns.sort_by_key(|turn| turn.1.1),
    }
    let mut made: Vec<(usize, String)> = Vec::new();
    let mut requests = 0;
    for (at, (&number, &due)) in turns {
        let conversation = maker.make(0, number).unwrap();
        requests += conversation.turns.len() as u64;
        made.push((at, shown(&conversation, Some(due))));
    }
    made.sort();
    assert_eq!(made.len(), built.0.conversations.len());
    for (made, loaded) in made.iter().zip(&built.0.conversations) {
        assert_eq!(made.1, shown(loaded, loaded.turns[0].own_time()));
    }
    assert_eq!(streamed.request_count(), requests);
    let inexact = built.1.iter().any(|note| note.contains("exact length"));
    assert_eq!(built.1.len() - usize::from(inexact), notes.len());
    let recorded = |notes: &[String]| notes.iter().find(|note| note.contains("recorded")).cloned();
    assert_eq!(recorded(&built.1), recorded(&notes));
}

const WINDOW: &str = "--fixed-schedule-start-offset 10 --fixed-schedule-end-offset 40";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_streamed_trace_is_the_built_one(text in traces(), seed: u64, cut in 0_usize..4, how in 0_u32..3) {
        let flags = ["", WINDOW, "--system-prompt Be.",
            "--synthesis-speedup-ratio 4 --synthesis-output-len-multiplier 0.3 --synthesis-max-osl 12"];
        compare(&text, seed, &format!("--custom-dataset-type mooncake-trace --isl-block-size 16 {}", flags[cut]), how);
    }

    #[test]
    fn streamed_conversations_are_the_built_ones(text in talks(), seed: u64, cut in 0_usize..2, how in 0_u32..3) {
        compare(&text, seed, &format!("--custom-dataset-type multi_turn {}", ["", WINDOW][cut]), how);
    }

    #[test]
    fn streamed_single_turns_are_the_built_ones(text in singles(), seed: u64, cut in 0_usize..2, how in 0_u32..3) {
        compare(&text, seed, &format!("--custom-dataset-type single_turn {}", ["", WINDOW][cut]), how);
    }
}

#[test]
fn errors_of_sessions_are_those_of_the_loaded_way() {
    let line = |time: &str, rest: &str| format!("{{{time}\"session_id\": \"s\", {rest}}}\n");
    let (text, messages) = (r#""text_input": "a""#, r#""messages": [{"role": "user"}]"#);
    let payload = r#""payload": {"a": 1}"#;
    let first = line("\"timestamp\": 5, ", text);
    let other = "{\"timestamp\": 1, \"text_input\": \"b\", \"session_id\": \"o\"}\n";
    let of_messages = line("\"timestamp\": 5, ", messages);
    let cases = [
        // Two ways of building the history, and bad lines around.
        format!(
            "{first}{}{{}}\n{other}{}{{}}\n",
            line("", messages),
            line("", payload)
        ),
        // Two forms, more often than is told.
        format!("{of_messages}{other}{}", line("", payload).repeat(30)),
        // No time, of the session that began first.
        format!("{}{other}{first}", line("", text)),
        format!("{}{}", line("", text), line("", text)),
        // Times that are too late: of the first session a later turn.
        format!(
            "{first}{}{}",
            other.replace("1,", "9e15,"),
            line("\"timestamp\": 8e15, ", text)
        ),
    ];
    for text in cases {
        for how in 0..2 {
            compare(&text, 1, "--custom-dataset-type mooncake-trace", how);
        }
    }
}

#[test]
fn a_file_that_is_changed_meanwhile_is_told_of() {
    let file = file(
        "{\"timestamp\": 0, \"text_input\": \"a\"}\n{\"timestamp\": 9, \"text_input\": \"b\"}\n",
    );
    let plan = plan(file.path(), &format!("{TRACE} --stream-input always"));
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    let Ok((Dataset::Streamed(streamed, _), _)) = open(&plan, &tokenizer, 1) else {
        panic!("it was loaded");
    };
    std::fs::write(file.path(), "{\"timestamp\": 0, \"text_input\": \"a\"}\n{}").unwrap();
    let mut maker = streamed.maker(&plan, &tokenizer, 1).unwrap();
    let error = maker.make(0, 1).unwrap_err().to_string();
    assert!(
        error.contains("entry 2 was changed while the load was on"),
        "{error}"
    );
}

#[test]
fn what_stays_whole_says_why() {
    let line = "{\"timestamp\": 0, \"text_input\": \"a\", \"session_id\": \"s\"}\n";
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    let long = format!(
        "{{\"timestamp\": 9, \"text_input\": \"{}\"}}\n",
        "x".repeat(1 << 20)
    );
    let far = pack(1, format!("{}{line}", long.repeat(9)).as_bytes());
    let always = "--stream-input always";
    let cases = [
        (line.into(), "--stream-input never", None),
        (line.into(), "--stream-input auto", None),
        (
            line.into(),
            "--no-fixed-schedule --stream-input always",
            Some("only a fixed schedule"),
        ),
        (
            line.into(),
            "--warmup-duration 1 --stream-input always",
            Some("its warmup may play more"),
        ),
        (
            format!("[{}]", line.trim()).into(),
            always,
            Some("JSON object"),
        ),
        (
            line.into(),
            "--warmup-request-count 1 --dataset-sampling-strategy random --stream-input always",
            Some("its warmup does not play it in its order"),
        ),
        (
            line.into(),
            "--stream-input always --skip-bad-lines",
            Some("--skip-bad-lines"),
        ),
        (
            line.into(),
            "--stream-input always --synthesis-max-isl 9",
            Some("reshaped"),
        ),
        (
            line.into(),
            "--stream-input always --cache-bust system-prefix",
            Some("--cache-bust"),
        ),
        (far, always, Some("far from the order of their times")),
    ];
    for (bytes, flags, why) in cases {
        let bytes: Vec<u8> = bytes;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), line).unwrap();
        let kind = "--custom-dataset-type mooncake-trace";
        let plan = plan(file.path(), &format!("{kind} {flags}"));
        std::fs::write(file.path(), bytes).unwrap();
        let Attempt::Loaded(said) = super::open(&plan, &tokenizer, 1).unwrap() else {
            panic!("{flags}: it is streamed");
        };
        match (said, why) {
            (None, None) => {}
            (Some(said), Some(why)) => assert!(said.contains(why), "{said}"),
            (said, why) => panic!("{flags}: {said:?} instead of {why:?}"),
        }
    }
}

#[test]
fn what_is_wrong_with_a_packed_trace_is_told_in_the_same_words() {
    let good = "{\"timestamp\": 0, \"text_input\": \"a\"}\n";
    let lines = good.repeat(300_000);
    let cut = |how, count: usize| pack(how, lines.as_bytes())[..count].to_owned();
    let flipped = |how| {
        let mut packed = pack(how, lines.as_bytes());
        let middle = packed.len() / 2;
        packed[middle] ^= 0x55;
        packed
    };
    let bad = format!(
        "{}{{\"timestamp\": 0}}\n{good}[]\n",
        &lines[..good.len() * 200_000]
    );
    let cases = [
        cut(1, 60),
        cut(2, 60),
        cut(1, 9_000),
        flipped(1),
        flipped(2),
        pack(1, bad.as_bytes()),
        pack(2, bad.as_bytes()),
        pack(2, b"\n \n"),
        pack(1, b"PAR1"),
        pack(1, b"{\"text_input\": \"a\"}"),
    ];
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    for packed in cases {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), good).unwrap();
        let plan = plan(file.path(), &format!("{TRACE} --stream-input always"));
        std::fs::write(file.path(), packed).unwrap();
        let loaded = build(&plan, &tokenizer, 1).unwrap_err().to_string();
        let Err(streamed) = super::open(&plan, &tokenizer, 1) else {
            panic!("nothing was said instead of {loaded}");
        };
        assert_eq!(streamed.to_string(), loaded);
    }
}
