//! Replies of real servers and made-up ones, read as the recorder reads them.
//!
//! In: `tests/endpoint/*.jsonl` and the captures beside them. Out: pieces and records. Never: a server, or the crate's own HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "endpoint/byte_tokenizer.rs"]
mod byte_tokenizer;
#[path = "endpoint/dialects.rs"]
mod dialects;

use byte_tokenizer::ByteTokenizer;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use tokenring::clock::{Anchor, Calibration, Nanos, Tick};
use tokenring::config::*;
use tokenring::dataset::{Conversation, Corpus, Turn};
use tokenring::endpoint::{Api, Bodies, Parsed};
use tokenring::record::{EventMark, Exchange, Interpreter, Outcome, Read, Record, reply_of};
use tokenring::wire::{ContentKind, Fault, Framing, Head};

fn plan(kind: EndpointKind) -> Plan {
    Plan {
        models: vec!["m".to_owned()],
        model_selection: ModelSelection::RoundRobin,
        endpoint: EndpointPlan {
            streaming: true,
            ..EndpointPlan::plain(kind)
        },
        tokenizer: TokenizerPlan {
            apply_chat_template: false,
            name: None,
            revision: "main".to_owned(),
        },
        dataset: DatasetPlan {
            source: DatasetSource::File(FilePlan::new(PathBuf::new(), FileFormat::SingleTurn)),
            entries: 1,
            sampling: Sampling::Sequential,
            output_tokens: None,
            system_prompt: None,
            prompts: PromptPlan::default(),
            fixed_schedule: None,
            trace: tokenring::config::TracePlan::default(),
            streaming: Streaming::Auto,
        },
        phases: Vec::new(),
        goodput: Vec::new(),
        output: OutputPlan {
            directory: PathBuf::new(),
            prefix: None,
            level: ExportLevel::Raw,
            outputs_json: true,
            http_trace: true,
            show_trace_timing: false,
            ui: UiKind::None,
            log_level: LogLevel::Error,
            stats_interval: None,
            slices: None,
        },
        workers: WorkerPlan::default(),
        random_seed: None,
        failed_request_threshold: None,
        cancellation: None,
        cli_command: String::new(),
        input_config: Value::Null,
    }
}

fn interpret(plan: Plan, exchange: &Exchange) -> Record {
    let turn = Turn {
        texts: vec!["hello".to_owned()],
        max_tokens: Some(9),
        ..Turn::default()
    };
    let api = Api::new(&plan.endpoint).unwrap();
    let corpus = Corpus {
        conversations: vec![Conversation {
            id: "c".to_owned(),
            turns: vec![turn],
            ..Conversation::default()
        }],
        ..Corpus::default()
    };
    let bodies = Arc::new(Bodies::render_all(&api, &corpus));
    let start = Anchor {
        tick: Tick(0),
        raw_ns: 0,
        monotonic_ns: 0,
        wall_ns: 0,
        width: 0,
    };
    let calibration = Calibration::from_start(start, 1.0);
    Interpreter::new(
        Arc::new(plan),
        api,
        Arc::new(corpus),
        bodies,
        Arc::new(ByteTokenizer),
    )
    .interpret(exchange, &calibration, true)
}

fn kind(name: &str) -> EndpointKind {
    EndpointKind::named(name).unwrap_or_else(|| panic!("no dialect {name}"))
}

fn api(kind: EndpointKind) -> Api {
    Api::new(&EndpointPlan::plain(kind)).unwrap()
}

/// An exchange that started at tick 100; read i came at 200 + 10 i.
fn exchange(status: u16, content: ContentKind, pieces: &[&[u8]]) -> Exchange {
    let mut exchange = Exchange {
        head: Some(Head {
            coding: None,
            status,
            framing: Framing::Chunked,
            keep_alive: true,
            content,
        }),
        head_bytes: b"HTTP/1.1 429 Too Many Requests\r\nA: b\r\n\r\n".to_vec(),
        ..Exchange::default()
    };
    exchange.ticks.start = Tick(100);
    for (index, piece) in pieces.iter().enumerate() {
        exchange.body.extend_from_slice(piece);
        exchange.reads.push(Read {
            tick: Tick(200 + 10 * index as u64),
            kernel: Tick::NEVER,
            parsed: Tick::NEVER,
            body_end: exchange.body.len() as u64,
            wire_bytes: 1,
            by_kernel: false,
        });
    }
    exchange.ticks.end = Tick(900);
    exchange
}

fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/endpoint/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn pieces_are_as_the_table_says() {
    for case in lines("parse.jsonl") {
        let dialect = kind(case["api"].as_str().unwrap_or("chat"));
        let piece = match api(dialect).parse(case["data"].to_string().as_bytes()) {
            Parsed::Piece(piece) => piece,
            Parsed::Nothing => Default::default(),
            Parsed::NotJson => panic!("{case}"),
        };
        let text = |name: &str| case[name].as_str();
        assert_eq!(piece.text.as_deref(), text("text"), "{case}");
        assert_eq!(piece.reasoning.as_deref(), text("reasoning"), "{case}");
        assert_eq!(piece.tool.as_deref(), text("tool"), "{case}");
        let error = piece.error.as_ref().map(|error| error.message.as_str());
        assert_eq!(error, text("error"), "{case}");
        let others: Vec<Value> = piece
            .others
            .iter()
            .map(|other| {
                Value::from(vec![
                    Value::from(other.index),
                    Value::from(other.said.text.clone()),
                ])
            })
            .collect();
        assert_eq!(
            others.as_slice(),
            case["others"].as_array().map_or(&[][..], Vec::as_slice),
            "{case}"
        );
        assert_eq!(
            piece
                .finish_reason
                .as_deref()
                .filter(|_| case.get("finish").is_some()),
            text("finish"),
            "{case}"
        );
        assert_eq!(piece.data, case["is_data"] == true, "{case}");
        assert_eq!(piece.complete, case["complete"] == true, "{case}");
        let usage = piece.usage.unwrap_or_default();
        assert_eq!(usage.prompt_tokens, case["prompt"].as_u64(), "{case}");
        assert_eq!(
            usage.completion_tokens,
            case["completion"].as_u64(),
            "{case}"
        );
    }
}

/// Takes a capture apart: status, stream or not, body.
fn decode(capture: &[u8]) -> (u16, bool, Vec<u8>) {
    let end = capture
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&capture[..end]).to_lowercase();
    let status = head[9..12].parse().unwrap();
    let mut rest = &capture[end + 4..];
    let mut body = Vec::new();
    if !head.contains("chunked") {
        body = rest.to_vec();
        rest = b"";
    }
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = if size == 0 {
            b""
        } else {
            &rest[end + 4 + size..]
        };
    }
    (status, head.contains("event-stream"), body)
}

#[test]
fn captures_of_real_servers_are_read_right() {
    for case in lines("captured.jsonl") {
        let name = case["capture"].as_str().unwrap();
        let root = env!("CARGO_MANIFEST_DIR");
        let capture = std::fs::read(format!("{root}/tests/endpoint/captured/{name}")).unwrap();
        let (status, stream, body) = decode(&capture);
        let content = if stream {
            ContentKind::EventStream
        } else {
            ContentKind::Json
        };
        let pieces: Vec<&[u8]> = body.chunks(100).collect();
        let kind = [
            EndpointKind::Embeddings,
            EndpointKind::Completions,
            EndpointKind::Responses,
        ]
        .into_iter()
        .find(|kind| name.contains(kind.name()))
        .unwrap_or(EndpointKind::Chat);
        let exchange = exchange(status, content, &pieces);
        let record = interpret(plan(kind), &exchange);
        assert_eq!(Value::from(record.status), case["status"], "{name}");
        assert_eq!(record.text.as_deref(), case["text"].as_str(), "{name}");
        assert_eq!(Value::from(record.chunks.len()), case["pieces"], "{name}");
        let usage = record.usage.unwrap_or_default();
        assert_eq!(
            usage.prompt_tokens,
            case["prompt_tokens"].as_u64(),
            "{name}"
        );
        assert_eq!(
            usage.completion_tokens,
            case["completion_tokens"].as_u64(),
            "{name}"
        );
        assert_eq!(
            record.first_chunk_tokens,
            case["first_chunk_tokens"].as_u64(),
            "{name}"
        );
        assert_eq!(
            record.finish_reason.as_deref(),
            case["finish_reason"].as_str(),
            "{name}"
        );
        assert_eq!(Value::from(record.done_seen), case["done"], "{name}");
        assert_eq!(record.is_success(), status == 200, "{name}");
        assert_eq!(
            reply_of(&api(kind), &exchange).is_some(),
            status == 200 && kind.facts().produces_tokens,
            "{name}"
        );
    }
}

const A: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n";
const WHOLE: &[u8] = b"{\"choices\":[{\"message\":{\"content\":\"ab\"}}]}";

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn failures_have_their_codes_and_names() {
    use ContentKind::{EventStream, Json, Other};
    type Case<'a> = (
        u16,
        ContentKind,
        &'a [&'a [u8]],
        Outcome,
        Option<u16>,
        &'a str,
        usize,
    );
    let broken = b"data: {\"error\":{\"message\":\"x\",\"type\":\"t\",\"code\":500}}\n\n";
    let cases: [Case<'_>; 15] = [
        (
            429,
            Json,
            &[b"slow"],
            Outcome::Success,
            Some(429),
            "Too Many Requests",
            0,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::Fault(Fault::Truncated),
            None,
            "Truncated",
            1,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::Timeout,
            None,
            "RequestTimeout",
            1,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::GraceEnded,
            Some(499),
            "RequestCancellationError",
            1,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::Cancelled,
            Some(499),
            "RequestCancellationError",
            1,
        ),
        // The cut comes before the status, which may not have been looked at.
        (
            429,
            Json,
            &[],
            Outcome::Cancelled,
            Some(499),
            "RequestCancellationError",
            0,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::Interrupted,
            Some(499),
            "RequestCancellationError",
            1,
        ),
        (
            200,
            EventStream,
            &[A, broken],
            Outcome::Success,
            Some(500),
            "t",
            1,
        ),
        (
            200,
            EventStream,
            &[b"event: error\ndata: {\"message\":\"x\"}\n\n"],
            Outcome::Success,
            Some(502),
            "SSEError",
            0,
        ),
        (
            200,
            EventStream,
            &[b"data: [DONE]\n\n"],
            Outcome::Success,
            None,
            "InvalidInferenceResultError",
            0,
        ),
        (
            200,
            Json,
            &[],
            Outcome::Success,
            None,
            "InvalidInferenceResultError",
            0,
        ),
        (
            200,
            Other,
            &[A, b"data: [DONE]\n\n"],
            Outcome::Success,
            None,
            "",
            1,
        ),
        // A17: a finish reason ends a stream as well as `[DONE]` does, and the end of the body alone does not.
        (
            200,
            EventStream,
            &[
                A,
                b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            ],
            Outcome::Success,
            None,
            "",
            1,
        ),
        (
            200,
            EventStream,
            &[A],
            Outcome::Success,
            None,
            "Truncated",
            1,
        ),
        (200, Json, &[WHOLE], Outcome::Success, None, "", 1),
    ];
    for (status, content, pieces, outcome, code, kind, chunks) in cases {
        let mut exchange = exchange(status, content, pieces);
        exchange.outcome = outcome;
        let record = interpret(plan(EndpointKind::Chat), &exchange);
        let reply = reply_of(&api(EndpointKind::Chat), &exchange);
        assert_eq!(reply.is_some(), record.is_success(), "{kind}");
        let error = record.error.clone().unwrap_or_default();
        assert_eq!(
            (error.code, error.kind.as_str()),
            (code, kind),
            "{record:?}"
        );
        assert_eq!(record.chunks.len(), chunks, "{kind}");
        assert_eq!(record.was_cancelled(), code == Some(499));
        let on_purpose = outcome == Outcome::Cancelled;
        assert_eq!(record.cancelled_on_purpose, on_purpose);
        assert_eq!(record.cancelled, record.was_cancelled() && !on_purpose);
        assert_eq!(
            record.streamed,
            status == 200 && pieces.first().is_some_and(|p| p != &WHOLE)
        );
        assert_eq!(record.tokens.output, (chunks > 0).then_some(2));
        assert_eq!(
            (record.tokens.input, record.tokens.requested_output),
            (Some(5), Some(9))
        );
    }
}

#[test]
fn arrivals_are_those_of_the_completing_reads() {
    let (left, right) = A.split_at(20);
    let two = [right, A, A].concat();
    let mut exchange = exchange(
        200,
        ContentKind::Other,
        &[b": ping\n\n", left, &two, A, b"data: [DONE]\n\n"],
    );
    exchange.reads[3].kernel = Tick(225);
    exchange.reads[3].by_kernel = true;
    // There, but not chosen.
    exchange.reads[4].kernel = Tick(231);
    let record = interpret(plan(EndpointKind::Chat), &exchange);
    let at: Vec<u64> = record.chunks.iter().map(|chunk| chunk.at.0).collect();
    assert_eq!(at, [120, 120, 120, 125]);
    assert_eq!(record.last_response, Some(Nanos(140)));
    assert_eq!((record.coalesced_count, record.keep_alive_count), (3, 1));
    assert!(!record.whole_in_one_read && record.done_seen);
    assert_eq!(record.end, Nanos(800));
}

/// Continuous usage tells the tokens of each event, and chunks take those of empty deltas before them (B10, B11, B12).
#[test]
fn tokens_are_told_by_event_and_by_chunk() {
    let usage = |content: &str, total: u64| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}],\"usage\":{{\"completion_tokens\":{total}}}}}\n\n"
        )
    };
    let last = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":12}}\n\n";
    let events = [
        usage("", 0),
        usage("abc", 5),
        usage("", 6),
        usage("d", 7),
        ": ping\n\n".to_owned(),
        usage("efg", 12),
        last.to_owned(),
    ];
    let pieces: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
    let mut plan = plan(EndpointKind::Chat);
    let told = |plan: Plan, pieces: &[&[u8]]| {
        let record = interpret(plan, &exchange(200, ContentKind::EventStream, pieces));
        let chunks: Vec<Option<u32>> = record.chunks.iter().map(|c| c.tokens).collect();
        let events: Vec<Option<u32>> = record.events.iter().map(|e| e.tokens).collect();
        (chunks, events)
    };
    plan.output.level = ExportLevel::Records;
    let (chunks, events) = told(plan.clone(), &pieces);
    assert_eq!(chunks, [Some(5), Some(2), Some(5)]);
    assert_eq!(events, [], "events are for the raw export");
    plan.output.level = ExportLevel::Raw;
    let (_, events) = told(plan.clone(), &pieces);
    let known = [0, 5, 1, 1, 0, 5, 0].map(Some);
    assert_eq!(events[..4], known[..4]);
    assert_eq!(
        (events[4], &events[5..]),
        (None, &known[5..]),
        "a comment tells nothing"
    );
    let (chunks, events) = told(plan, &[A, A, last.as_bytes()]);
    assert_eq!((chunks, events), (vec![None; 2], vec![None; 3]));
}

/// A stream that calls itself something else: lines end in any of three ways, and the last event may lack its empty line.
#[test]
fn undeclared_streams_are_read_like_declared_ones() {
    let data = "{\"choices\":[{\"delta\":{\"content\":\"ab\"},\"finish_reason\":\"stop\"}]}";
    let bodies = [
        format!("\u{feff}data:{data}\r\n\r\ndata: {data}\n\n\n\n: ping\r\rid: 1\ndata: {data}"),
        format!(
            "event: x\ndata:  {data}\n\ndatabase: {data}\ndata: {data}\n\nretry: 5\rdata: {data}\r\r"
        ),
        format!(
            "data: {}\ndata: {}\n\ndata: {data}\n\ndata: {data}\n",
            &data[..10],
            &data[10..]
        ),
    ];
    for body in &bodies {
        for size in [1, 7, body.len()] {
            let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
            for content in [ContentKind::Other, ContentKind::EventStream] {
                let mut exchange = exchange(200, content, &pieces);
                let record = interpret(plan(EndpointKind::Chat), &exchange);
                assert_eq!(record.text.as_deref(), Some("ababab"), "{body:?}");
                assert!(record.streamed && record.is_success(), "{body:?}");
                assert_eq!(record.chunks.len(), 3, "{body:?}");
                // Cut: an event without its end is no event.
                exchange.outcome = Outcome::Fault(Fault::Reset);
                let closed = body.ends_with("\r\r");
                let record = interpret(plan(EndpointKind::Chat), &exchange);
                assert_eq!(record.chunks.len(), 2 + usize::from(closed), "{body:?}");
            }
        }
    }
}

/// One line of the error summary a cause, however far each request had come.
#[test]
fn failures_of_one_cause_have_one_message() {
    for fault in Fault::ALL {
        let details: Vec<_> = [&[A][..], &[A, A]]
            .into_iter()
            .map(|pieces| {
                let mut exchange = exchange(200, ContentKind::EventStream, pieces);
                exchange.outcome = Outcome::Fault(fault);
                interpret(plan(EndpointKind::Chat), &exchange)
                    .error
                    .unwrap()
            })
            .collect();
        assert_eq!(details[0], details[1]);
        // A proxy's own status stands beside its fault.
        let proxy = matches!(fault, Fault::ProxyAuthentication | Fault::ProxyRefused);
        let code = proxy.then_some(details[0].code).flatten();
        assert_eq!(
            (details[0].code, details[0].kind.as_str()),
            (code, fault.name())
        );
        assert_eq!(details[0].message, fault.message());
    }
}

#[test]
fn a_servers_absurd_counts_do_not_overflow() {
    let usage = b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":18446744073709551615,\
        \"completion_tokens_details\":{\"reasoning_tokens\":18446744073709551615}}}\n\n";
    let mut plan = plan(EndpointKind::Chat);
    plan.endpoint.use_server_token_count = true;
    let exchange = exchange(200, ContentKind::EventStream, &[A, usage]);
    let mut tokens = interpret(plan, &exchange).tokens;
    assert_eq!(tokens.output_sequence_length(), Some(u64::MAX));
    tokens.output = Some(1);
    assert_eq!(tokens.output_sequence_length(), Some(u64::MAX));
}

#[test]
fn server_counts_replace_the_clients() {
    let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":11,\
        \"completion_tokens_details\":{\"reasoning_tokens\":4}}}\n\n";
    let mut plan = plan(EndpointKind::Chat);
    plan.endpoint.use_server_token_count = true;
    let counts = |pieces: &[&[u8]]| {
        let exchange = exchange(200, ContentKind::EventStream, pieces);
        interpret(plan.clone(), &exchange).tokens
    };
    let tokens = counts(&[A, usage]);
    assert_eq!(
        (tokens.input, tokens.output, tokens.reasoning),
        (Some(7), Some(7), Some(4))
    );
    assert_eq!(tokens.output_sequence_length(), Some(11));
    assert_eq!(tokens.client_input, Some(5));
    let tokens = counts(&[A]);
    assert_eq!(
        (tokens.input, tokens.output_sequence_length()),
        (None, None)
    );
}

#[test]
fn empty_deltas_with_usage_are_no_content_but_count_as_first_tokens() {
    let event = |content: &str, tokens: u32| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}}}}],\"usage\":{{\"completion_tokens\":{tokens}}}}}\n\n"
        )
    };
    let events = [event("", 1), event("", 2), event("abc", 3), event("d", 4)];
    let pieces: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
    let exchange = exchange(200, ContentKind::EventStream, &pieces);
    let record = interpret(plan(EndpointKind::Chat), &exchange);
    assert_eq!(record.chunks.len(), 2);
    assert_eq!(record.chunks[0].at, Nanos(120));
    assert_eq!(record.first_chunk_tokens, Some(3));
    assert_eq!(record.usage.unwrap().completion_tokens, Some(4));
}

#[test]
fn a_refusal_without_a_reason_still_has_a_name() {
    let mut exchange = exchange(503, ContentKind::Other, &[b"busy"]);
    exchange.head_bytes = b"HTTP/1.1 503\r\n\r\n".to_vec();
    let error = interpret(plan(EndpointKind::Chat), &exchange)
        .error
        .unwrap();
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("HTTP 503", "busy")
    );
}

proptest! {
    #[test]
    fn any_body_makes_one_record(
        parts in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            Just(A.to_vec()), Just(WHOLE.to_vec()), Just(b"event: error\n\n".to_vec()),
        ], 0..8),
        marks in prop::collection::vec((any::<u16>(), any::<u16>(), 0u32..9), 0..8),
        status in 200u16..600,
        cut in any::<bool>(),
    ) {
        let pieces: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut exchange = exchange(status, ContentKind::EventStream, &pieces);
        let length = exchange.body.len() as u64 + 1;
        exchange.events = marks.iter().map(|&(one, two, read)| {
            let (one, two) = (u64::from(one) % length, u64::from(two) % length);
            EventMark { begin: one.min(two), end: one.max(two), read, first_read: 0 }
        }).collect();
        if cut {
            exchange.outcome = Outcome::Fault(Fault::Reset);
        }
        let record = interpret(plan(EndpointKind::Chat), &exchange);
        let reply = reply_of(&api(EndpointKind::Chat), &exchange);
        prop_assert!(record.is_success() || reply.is_none(), "{:?}", record.error);
        if status >= 300 || cut {
            prop_assert!(!record.is_success());
        } else {
            prop_assert!(!record.is_success() || !record.chunks.is_empty());
        }
        let named = record.error.as_ref().is_none_or(|error| !error.kind.is_empty());
        prop_assert!(named, "{:?}", record.error);
        prop_assert!(record.chunks.iter().all(|chunk| chunk.at <= record.end));
    }
}
