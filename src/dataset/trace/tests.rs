//! Traces: what their lines become.
//!
//! In: lines, flags. Out: prompts, sessions and times, or sentences. Never: a server.

use std::collections::HashMap;
use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::config::{DatasetSource, FilePlan, FixedSchedule, Length};
use crate::dataset::tests::{plan, synthetic};
use crate::dataset::{ContextMode, Corpus, build};
use crate::tokenizer::{JsonTokenizer, ShippedTokenizer, Tokenizer};

/// How a trace is read.
#[derive(Clone, Default)]
struct Asking {
    kind: &'static str,
    block: u32,
    skip: bool,
    schedule: Option<FixedSchedule>,
    trace: TracePlan,
}

fn asking(kind: &'static str, block: u32) -> Asking {
    Asking {
        kind,
        block,
        ..Asking::default()
    }
}

fn gpt2() -> ShippedTokenizer {
    ShippedTokenizer::new("gpt2").expect("it is shipped")
}

fn built(
    text: &str,
    asking: &Asking,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), String> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("room for it");
    let path = file.path().to_owned();
    let mut plan = plan(synthetic(5.0), 1);
    let format = match asking.kind {
        "bailian" => FileFormat::BailianTrace,
        "burst" => FileFormat::BurstGptTrace,
        _ => FileFormat::MooncakeTrace,
    };
    plan.dataset.source = DatasetSource::File(FilePlan {
        block_tokens: asking.block,
        skip_bad_lines: asking.skip,
        ..FilePlan::new(path, format)
    });
    plan.dataset.fixed_schedule = asking.schedule;
    plan.dataset.trace = asking.trace;
    let name = file.path().display().to_string();
    let told = |text: String| text.replace(&name, "F");
    match build(&plan, tokenizer, seed) {
        Ok((corpus, notes)) => Ok((corpus, notes.into_iter().map(told).collect())),
        Err(error) => Err(told(error.to_string())),
    }
}

fn texts(corpus: &Corpus) -> Vec<&str> {
    let turns = corpus.conversations.iter().flat_map(|c| &c.turns);
    turns.map(|turn| turn.texts[0].as_str()).collect()
}

/// A line for each list of ids.
fn lines_of(lines: &[(u32, &[u64])]) -> String {
    let line = |(length, ids): &(u32, &[u64])| {
        format!("{{\"input_length\": {length}, \"hash_ids\": {ids:?}}}\n")
    };
    lines.iter().map(line).collect()
}

/// A tokenizer with a token of its own for the beginning of a text.
fn with_beginning() -> JsonTokenizer {
    let text = crate::tokenizer::tests::tiny_json().replace("<end>", "<s>");
    JsonTokenizer::parse("tiny", &text).expect("a tokenizer")
}

#[test]
fn equal_ids_are_equal_text_and_all_lengths_are_exact() {
    let lines: [(u32, &[u64]); 6] = [
        (60, &[1, 2]),
        (64, &[1, 3]),
        (100, &[1, 2, 9, 8]),
        (50, &[7]),
        (31, &[5]),
        (90, &[1, 2]),
    ];
    let lines = [lines[1], lines[3], lines[4], lines[5], lines[2]];
    let names = ["gpt2", "cl100k_base", "o200k_base"];
    let shipped = names.map(|name| ShippedTokenizer::new(name).expect("it is shipped"));
    let own = with_beginning();
    let mut tokenizers: Vec<&dyn Tokenizer> = vec![&own];
    tokenizers.extend(shipped.iter().map(|one| one as &dyn Tokenizer));
    for tokenizer in tokenizers {
        let name = tokenizer.name();
        let (corpus, notes) =
            built(&lines_of(&lines), &asking("", 32), tokenizer, 5).expect("right lines");
        assert_eq!(notes, [""; 0], "{name}");
        let texts = texts(&corpus);
        for (text, (length, _)) in texts.iter().zip(lines) {
            assert_eq!(tokenizer.count(text), length as usize, "{name}: {text}");
        }
        let blocks = |one: usize, other: usize| {
            let pairs = texts[one].bytes().zip(texts[other].bytes());
            let shared = pairs.take_while(|(a, b)| a == b).count();
            tokenizer.count(&texts[one][..shared]) / 32
        };
        assert_eq!(
            (blocks(0, 3), blocks(0, 4), blocks(3, 4)),
            (1, 1, 2),
            "{name}"
        );
        assert_eq!((blocks(0, 1), blocks(1, 2)), (0, 0), "{name}");
        let beginning = if name == "tiny" { "<s>" } else { " the" };
        assert!(texts[0].starts_with(beginning), "{name}: {}", texts[0]);
        assert_eq!(
            texts[4].matches("<s>").count(),
            if name == "tiny" { 4 } else { 0 }
        );
    }
}

#[test]
fn a_block_follows_from_the_file_the_seed_and_the_id() {
    let tokenizer = gpt2();
    let of = |text: &str, seed: u64| {
        let (corpus, _) = built(text, &asking("", 16), &tokenizer, seed).expect("right lines");
        texts(&corpus)
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let lines = lines_of(&[(16, &[1]), (32, &[1, 2])]);
    assert_eq!(of(&lines, 1), of(&lines, 1));
    assert_ne!(of(&lines, 1)[0], of(&lines, 2)[0], "another seed");
    assert_ne!(
        of(&lines, 1)[0],
        of(&format!("{lines}\n"), 1)[0],
        "another file"
    );
}

/// Format, lines, and what is said of them.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "",
        r#"{"timestamp": 0}"#,
        "F:1: field input_length: missing; give one of input_length, text_input, messages, payload",
    ),
    (
        "",
        r#"{"input_length": 5, "payload": {"a": 1}}"#,
        "F:1: fields input_length and payload: give one of them, not both",
    ),
    (
        "",
        r#"{"text_input": "a", "messages": [{"role": "user"}]}"#,
        "F:1: fields text_input and messages: give one",
    ),
    (
        "",
        r#"{"text_input": "a", "hash_ids": [1]}"#,
        "F:1: field hash_ids: needs input_length, not text_input",
    ),
    (
        "",
        r#"{"input_length": 5, "tools": [{}]}"#,
        "F:1: field tools: needs messages, not input_length",
    ),
    (
        "",
        r#"{"messages": []}"#,
        "F:1: field messages: [] is not a list of at least one message",
    ),
    (
        "",
        r#"{"messages": [{"content": "a"}]}"#,
        "F:1: field messages: {\"content\":\"a\"} has no role",
    ),
    (
        "",
        r#"{"messages": [{"role": "user"}], "tools": []}"#,
        "F:1: field tools: [] is not a list of at least one tool",
    ),
    (
        "",
        r#"{"payload": {}}"#,
        "F:1: field payload: {} is not an object with at least one field",
    ),
    (
        "",
        r#"{"input_length": 0}"#,
        "F:1: field input_length: 0 is not a whole number from 1",
    ),
    (
        "",
        r#"{"input_length": 5, "hash_ids": ["a"]}"#,
        "F:1: field hash_ids: [\"a\"] is not a list of whole numbers",
    ),
    (
        "",
        "{\"input_length\": 32, \"hash_ids\": [1, 2]}\n{\"input_length\": 20, \"hash_ids\": [1, 2]}",
        "F:2: field hash_ids: 2 stands for 4 tokens here and for 16 in an earlier line",
    ),
    (
        "",
        r#"{"input_length": 32, "hash_ids": [1, 2, 3]}"#,
        "F:1: field hash_ids: 3 ids of 16 tokens are more than the input_length 32",
    ),
    (
        "",
        "{\"session_id\": \"s\", \"payload\": {\"a\": 1}}\n{\"session_id\": \"s\", \"messages\": [{\"role\": \"user\"}]}",
        "F:2: field session_id: session \"s\" begins with payload and goes on with messages",
    ),
    (
        "",
        "{\"session_id\": \"s\", \"payload\": {\"a\": 1}}\n{\"session_id\": \"s\", \"input_length\": 5}",
        "F:2: field session_id: an earlier line of this session builds its history in another way; give each session one form of content",
    ),
    (
        "bailian",
        r#"{"chat_id": 1, "timestamp": 0, "output_length": 5}"#,
        "F:1: field input_length: missing",
    ),
    (
        "bailian",
        r#"{"chat_id": 1, "timestamp": "0", "input_length": 5, "output_length": 5}"#,
        "F:1: field timestamp: \"0\" is not a number of seconds",
    ),
    (
        "bailian",
        r#"{"timestamp": 0, "input_length": 5, "output_length": 5}"#,
        "F:1: field chat_id: missing; give a whole number",
    ),
    (
        "bailian",
        r#"{"chat_id": 1.5, "timestamp": 0, "input_length": 5, "output_length": 5}"#,
        "F:1: field chat_id: 1.5 is not a whole number",
    ),
    (
        "burst",
        "Timestamp,Request tokens\n1,2\n",
        "F:2: column Response tokens: missing",
    ),
    (
        "burst",
        "Timestamp,Request tokens,Response tokens\n1,x,2\n",
        "F:2: column Request tokens: \"x\" is not a whole number from 1",
    ),
];

#[test]
fn wrong_lines_name_their_fields() {
    let tokenizer = gpt2();
    for (kind, text, sentence) in WRONG {
        let error = built(text, &asking(kind, 16), &tokenizer, 1).expect_err(text);
        assert!(error.contains(sentence), "{text}\n{error}");
    }
}

#[test]
fn messages_and_bodies_stand_as_they_are() {
    let text = r#"{"session_id": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "tools": [{"type": "function"}]}
{"payload": {"z": 1, "a": {"b": 2.50}}, "output_length": 3}
{"session_id": "m", "messages": [{"role": "user", "content": "v"}], "delay": 9, "extra": {"top_k": 1}}
"#;
    let (corpus, notes) = built(text, &asking("", 16), &gpt2(), 1).expect("right lines");
    assert_eq!(notes, [""; 0]);
    let [session, body] = corpus.conversations.as_slice() else {
        panic!("{corpus:?}");
    };
    assert_eq!(
        (session.id.as_str(), session.context),
        ("m", ContextMode::SelfContained)
    );
    assert_eq!(session.turns[0].messages[1]["content"], "u");
    assert_eq!(
        session.turns[0].tools,
        Some(serde_json::json!([{"type": "function"}]))
    );
    assert_eq!((session.turns[1].delay_ms, session.turns[1].line), (9.0, 3));
    assert_eq!(
        body.turns[0].payload.as_deref(),
        Some(r#"{"z":1,"a":{"b":2.5}}"#)
    );
    assert_eq!(body.context, ContextMode::SelfContained);
}

fn bailian(lines: &[(i64, i64, f64, i64)]) -> String {
    let line = |(chat, parent, at, turn): &(i64, i64, f64, i64)| {
        format!(
            "{{\"chat_id\": {chat}, \"parent_chat_id\": {parent}, \"timestamp\": {at}, \"turn\": {turn}, \"type\": \"text\", \"input_length\": 5, \"output_length\": 2}}\n"
        )
    };
    lines.iter().map(line).collect()
}

#[test]
fn bailian_sessions_are_chains_by_root_in_order_of_turns() {
    let text = bailian(&[
        (10, -1, 0.25, 1),
        (20, 99, 0.5, 4),
        (12, 11, 2.0, 3),
        (11, 10, 1.0, 2),
        (13, 10, 1.5, 2),
        (30, 31, 3.0, 1),
        (31, 30, 3.5, 2),
    ]);
    let (corpus, _) = built(&text, &asking("bailian", 16), &gpt2(), 1).expect("right lines");
    let seen: Vec<(&str, Vec<u64>)> = corpus
        .conversations
        .iter()
        .map(|c| {
            (
                c.id.as_str(),
                c.turns.iter().map(|turn| turn.line).collect(),
            )
        })
        .collect();
    // 12 stands before the request that it follows; 20 follows one that is not there; 30 and 31 follow each other.
    assert_eq!(
        seen,
        [
            ("10", vec![1, 4, 5, 3]),
            ("20", vec![2]),
            ("30", vec![6, 7])
        ]
    );
    assert_eq!(corpus.conversations[0].turns[0].timestamp_ms, Some(250.0));
    assert_eq!(corpus.conversations[0].context, ContextMode::LiveReplies);
}

#[test]
fn what_lies_outside_the_offsets_is_nobodys_parent() {
    let text = bailian(&[(10, -1, 0.25, 1), (11, 10, 1.0, 2), (12, 11, 2.0, 3)]);
    let asking = Asking {
        schedule: Some(FixedSchedule {
            auto_offset: false,
            start_ms: Some(500),
            end_ms: None,
        }),
        trace: TracePlan {
            speedup: 2.0,
            ..TracePlan::default()
        },
        ..asking("bailian", 16)
    };
    let (corpus, _) = built(&text, &asking, &gpt2(), 1).expect("right lines");
    assert_eq!(corpus.conversations.len(), 1);
    assert_eq!(corpus.conversations[0].id, "11");
    let times = corpus.conversations[0]
        .turns
        .iter()
        .map(|turn| turn.timestamp_ms);
    assert_eq!(times.collect::<Vec<_>>(), [Some(250.0), Some(750.0)]);
}

#[test]
fn bad_rows_of_a_burst_trace_are_left_out_and_counted() {
    let text = "\u{feff}Timestamp,Model,Request tokens,Response tokens\n5.5,\"GPT, 4\",12,3\n6,x,,3\n-1,x,5,3\n7,x,5,0\n\"8\nx\",x,5,1\n9,x,4,1\n1";
    let (corpus, notes) = built(text, &asking("burst", 1), &gpt2(), 1).expect("two right rows");
    let turns: Vec<(u64, Option<f64>, Option<u32>, usize)> = corpus
        .conversations
        .iter()
        .map(|c| &c.turns[0])
        .map(|t| {
            (
                t.line,
                t.timestamp_ms,
                t.max_tokens,
                gpt2().count(&t.texts[0]),
            )
        })
        .collect();
    assert_eq!(
        turns,
        [
            (2, Some(5500.0), Some(3), 12),
            (8, Some(9000.0), Some(1), 4)
        ]
    );
    let said = notes.iter().any(|note| {
        note.contains("F: 5 bad lines are left out") && note.contains("F:3: column Request tokens")
    });
    assert!(said, "{notes:?}");
}

/// Lengths and ids as AIPerf 0.13's `synthesize` makes them from the same three lines, blocks of 16; ids by the order in which they come.
#[test]
fn reshaped_traces_have_aiperfs_lengths_and_shared_blocks() {
    let lines = lines_of(&[(60, &[1, 2, 3, 4]), (50, &[1, 2, 5, 6]), (20, &[1, 7])]);
    let plan = |prefix_length, prompt_length, input_tokens_most| TracePlan {
        prefix_length,
        prompt_length,
        input_tokens_most,
        ..TracePlan::default()
    };
    let cases = [
        (plan(1.0, 2.0, None), [88, 68, 24]),
        (plan(1.0, 0.5, None), [46, 41, 18]),
        (plan(2.0, 1.0, None), [92, 82, 36]),
        (plan(1.5, 1.0, None), [76, 66, 36]),
        (plan(0.5, 1.0, None), [44, 34, 20]),
        (plan(1.0, 2.0, Some(70)), [70, 68, 24]),
    ];
    let tokenizer = gpt2();
    for (trace, right) in cases {
        let asking = Asking {
            trace,
            ..asking("", 16)
        };
        let (corpus, notes) = built(&lines, &asking, &tokenizer, 3).expect("right lines");
        let texts = texts(&corpus);
        let counts: Vec<u32> = texts
            .iter()
            .map(|text| u32::try_from(tokenizer.count(text)).unwrap_or(0))
            .collect();
        assert_eq!(counts, right, "{trace:?} {notes:?}");
        let shared = |one: &str, other: &str| {
            one.bytes()
                .zip(other.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        let blocks = tokenizer.count(&texts[0][..shared(texts[0], texts[1])]) / 16;
        let expected = if trace.prefix_length < 1.0 {
            1
        } else if trace.prefix_length < 2.0 {
            2
        } else {
            4
        };
        assert_eq!(blocks, expected, "{trace:?}");
    }
}

#[test]
fn outputs_times_and_long_lines_are_reshaped() {
    let text = "{\"input_length\": 9, \"output_length\": 5, \"timestamp\": 100}\n{\"input_length\": 8, \"output_length\": 90, \"timestamp\": 300, \"delay\": 7}\n{\"input_length\": 8}\n";
    let asking = Asking {
        trace: TracePlan {
            output_length: 0.5,
            input_tokens_most: Some(8),
            output_tokens_most: Some(40),
            ignore_delays: true,
            ..TracePlan::default()
        },
        ..asking("", 16)
    };
    let (corpus, notes) = built(text, &asking, &gpt2(), 1).expect("right lines");
    let turns: Vec<_> = corpus.conversations.iter().map(|c| &c.turns[0]).collect();
    assert_eq!(
        turns
            .iter()
            .map(|t| (t.line, t.max_tokens))
            .collect::<Vec<_>>(),
        [(2, Some(40)), (3, None)]
    );
    assert!(turns.iter().all(|t| t.timestamp_ms.is_none()));
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("1 lines of the trace were left out")),
        "{notes:?}"
    );
}

/// The sentences of a schedule that cannot be followed name the line.
#[test]
fn schedule_errors_name_the_line() {
    let followed = |start_ms: Option<u64>, end_ms: Option<u64>| Asking {
        schedule: Some(FixedSchedule {
            auto_offset: start_ms.is_none(),
            start_ms,
            end_ms,
        }),
        ..asking("", 16)
    };
    let cases = [
        (
            "\n{\"text_input\": \"a\"}",
            followed(None, None),
            "--fixed-schedule: F:2: neither this nor a later line has a timestamp",
        ),
        (
            "{\"text_input\": \"a\", \"timestamp\": 1}\n{\"text_input\": \"b\"}",
            followed(None, None),
            "F:2: the first turn of session",
        ),
        (
            "{\"text_input\": \"a\", \"timestamp\": 0}\n{\"text_input\": \"b\", \"timestamp\": 1e15}",
            followed(None, None),
            "F:2: field timestamp: 1000000000000000 milliseconds",
        ),
        (
            "{\"text_input\": \"a\", \"timestamp\": 5}",
            followed(Some(6), Some(9)),
            "F: no timestamp from --fixed-schedule-start-offset 6 to --fixed-schedule-end-offset 9; widen them",
        ),
        (
            "{\"text_input\": \"a\", \"timestamp\": 5, \"session_id\": \"s\"}\n{\"text_input\": \"b\", \"session_id\": \"s\"}",
            followed(Some(6), None),
            "F:2: the first turn of session \"s\"",
        ),
    ];
    for (text, asking, sentence) in cases {
        let error = built(text, &asking, &gpt2(), 1).expect_err(text);
        assert!(error.contains(sentence), "{text}\n{error}");
    }
}

/// A line of a trace: which session, and when.
fn any_line() -> impl Strategy<Value = (Option<u8>, Option<u64>, Option<u64>)> {
    (
        prop::option::of(0_u8..4),
        prop::option::weighted(0.8, 0_u64..5_000),
        prop::option::of(0_u64..50),
    )
}

proptest! {
    /// Any lines in any order: each is a turn at its own time less the zero, or outside the offsets; sessions keep the order of the file; what
    /// cannot be followed is refused with the number of the line.
    #[test]
    fn a_schedule_keeps_every_line_within_its_offsets(lines in prop::collection::vec(any_line(), 1..40),
                                                      start in prop::option::of(0_u64..3_000), length in prop::option::of(0_u64..3_000)) {
        let end = length.map(|length| start.unwrap_or(0) + length);
        let text: String = lines.iter().map(|(session, at, delay)| {
            let mut line = serde_json::json!({"text_input": "words"});
            if let Some(session) = session { line["session_id"] = session.to_string().into(); }
            if let Some(at) = at { line["timestamp"] = (*at).into(); }
            if let Some(delay) = delay { line["delay"] = (*delay).into(); }
            format!("{line}\n")
        }).collect();
        let schedule = FixedSchedule { auto_offset: start.is_none(), start_ms: start, end_ms: end };
        let asking = Asking { schedule: Some(schedule), ..asking("", 16) };
        let within = |at: &Option<u64>| at.is_none_or(|at| at >= start.unwrap_or(0) && end.is_none_or(|end| at <= end));
        let kept: Vec<u64> = lines.iter().zip(1..).filter(|((_, at, _), _)| within(at)).map(|(_, line)| line).collect();
        let mut sessions: HashMap<u8, u64> = HashMap::new();
        let firsts: Vec<u64> = kept.iter().copied().filter(|&line| {
            let session = lines[usize::try_from(line).unwrap_or(1) - 1].0;
            session.is_none_or(|session| *sessions.entry(session).or_insert(line) == line)
        }).collect();
        let time = |line: u64| lines[usize::try_from(line).unwrap_or(1) - 1].1;
        let followable = !kept.is_empty() && firsts.iter().all(|&line| time(line).is_some());
        match built(&text, &asking, &ByWords, 1) {
            Err(error) => {
                prop_assert!(!followable, "{}", error);
                prop_assert!(error.contains("F:") , "{}", error);
            }
            Ok((corpus, _)) => {
                prop_assert!(followable);
                let zero = start.unwrap_or_else(|| firsts.iter().filter_map(|&line| time(line)).min().unwrap_or(0));
                let mut seen = Vec::new();
                for conversation in &corpus.conversations {
                    prop_assert!(conversation.turns.is_sorted_by_key(|turn| turn.line));
                    prop_assert_eq!(conversation.turns[0].delay_ms, 0.0);
                    for turn in &conversation.turns {
                        seen.push(turn.line);
                        let right = time(turn.line).map(|at| at.saturating_sub(zero) as f64);
                        prop_assert_eq!(turn.timestamp_ms, right);
                    }
                }
                seen.sort_unstable();
                prop_assert_eq!(seen, kept);
                prop_assert_eq!(corpus.begins().count(), corpus.conversations.len());
            }
        }
    }

    /// Whatever the factors, every line keeps a prompt, its blocks fit its length, and an id is one text.
    #[test]
    fn reshaped_lines_always_fit(prefix in 0.0_f64..4.0, prompt in 0.0_f64..4.0, roots in 1_u32..4, most in prop::option::of(1_u32..200),
                                 shapes in prop::collection::vec((1_usize..6, 0_usize..4, 1_u32..17), 1..20)) {
        let mut next = 100;
        let mut asked: Vec<Asked> = shapes.iter().zip(1..).map(|(&(shared, own, last), line)| {
            let mut ids: Vec<u64> = (0..shared as u64).collect();
            ids.extend((0..own).map(|_| { next += 1; next }));
            // A shared block is whole wherever it stands.
            let last = if own == 0 { 16 } else { last.min(16) };
            let tokens = 16 * (u32::try_from(ids.len()).unwrap_or(1) - 1) + last;
            Asked { record: line, line, tokens, ids }
        }).collect();
        let plan = TracePlan { prefix_length: prefix, prompt_length: prompt, prefix_roots: roots, input_tokens_most: most, ..TracePlan::default() };
        synthesis::reshape(&plan, 16, 3, &mut asked);
        let mut sizes = HashMap::new();
        for asked in &asked {
            prop_assert!(asked.tokens >= 1 && asked.tokens <= most.unwrap_or(u32::MAX));
            if most.is_none() {
                prop_assert_eq!(asked.misfit(16, &mut sizes), None);
            }
            prop_assert!(asked.ids.len() * 16 < asked.tokens as usize + 16);
        }
    }
}

/// Counts words.
struct ByWords;

impl Tokenizer for ByWords {
    fn name(&self) -> &'static str {
        "words"
    }
    fn encode(&self, text: &str) -> Vec<u32> {
        text.split_whitespace().map(|_| 0).collect()
    }
    fn decode(&self, ids: &[u32]) -> String {
        ids.iter().map(|_| " a").collect()
    }
    fn vocabulary_size(&self) -> u32 {
        1
    }
}

/// A limit of the plan is for lines that have none of their own.
#[test]
fn a_traces_own_outputs_come_before_the_plans() {
    let mut asked = plan(synthetic(5.0), 1);
    asked.dataset.output_tokens = Some(Length::constant(77.0));
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(
        file,
        "{{\"input_length\": 5, \"output_length\": 6}}\n{{\"input_length\": 5}}"
    )
    .expect("room for it");
    let path = file.path().to_owned();
    asked.dataset.source = DatasetSource::File(FilePlan::new(path, FileFormat::MooncakeTrace));
    let (corpus, _) = build(&asked, &gpt2(), 1).expect("right lines");
    let limits = corpus.conversations.iter().map(|c| c.turns[0].max_tokens);
    assert_eq!(limits.collect::<Vec<_>>(), [Some(6), Some(77)]);
}
