//! Properties of the parts.
//!
//! In: generated requests and orders. Out: verdicts. Never: a socket.

use proptest::prelude::*;
use tiktoken_rs::CoreBPE;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::api::{Api, Order};
use super::connection::{Shared, Tally, spread};
use super::request::{Request, RequestReader};
use super::script::{Reply, WORDS};
use super::threads;
use crate::clock::Nanos;
use crate::config::MockPlan;

fn order(body: &str) -> Result<Order, String> {
    Order::read(Api::Completions, body.as_bytes(), &MockPlan::default())
}

/// All text of a reply, from the stream's events.
fn text(tokens: u32, prompt: &str) -> String {
    let body =
        format!(r#"{{"model":"m","prompt":"{prompt}","stream":true,"max_tokens":{tokens}}}"#);
    let mut reply = Reply::new(order(&body).unwrap(), 3, 1, 0, false);
    let mut out = Vec::new();
    while !reply.is_over() {
        reply.next_event(&mut out);
    }
    String::from_utf8(out)
        .unwrap()
        .split_terminator("\n\n")
        .map(|event| {
            let json: serde_json::Value =
                serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            json["choices"][0]["text"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// What an event says, built the plain way, and its framing.
fn plain_event(order: &Order, said: u32, text: &str, chunked: bool) -> Vec<u8> {
    let (id, object, delta) = match order.api {
        Api::Chat => (
            "chatcmpl-0000000000000007",
            "chat.completion.chunk",
            "delta",
        ),
        _ => ("cmpl-0000000000000007", "text_completion", "text"),
    };
    let said_here = match order.api {
        Api::Chat => format!(r#"{{"content":"{text}"}}"#),
        _ => format!(r#""{text}""#),
    };
    let usage = if order.continuous_usage {
        let usage = serde_json::json!({
            "prompt_tokens": order.prompt_tokens,
            "completion_tokens": said,
            "total_tokens": order.prompt_tokens + u64::from(said),
        });
        format!(r#","usage":{usage}"#)
    } else if order.include_usage {
        r#","usage":null"#.to_owned()
    } else {
        String::new()
    };
    let event = format!(
        "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":5,\"model\":\"m\\\"x\",\"choices\":[{{\"index\":0,\"{delta}\":{said_here},\
         \"logprobs\":null,\"finish_reason\":null}}]{usage}}}\n\n"
    );
    if chunked {
        format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
    } else {
        event.into_bytes()
    }
}

/// Places of the text, the output's count, the prompt's and the reason of the end.
type Places = [&'static str; 4];

/// APIs that name their events: streamed and whole, fields of a body, and places in the whole answer and in the events.
const NAMED: [(Api, Api, &str, Places, Places); 3] = [
    (
        Api::Responses,
        Api::Responses,
        r#""model":"m","instructions":"be brief","input":[{"role":"user","content":"a b"}],"max_output_tokens":9"#,
        [
            "/output/0/content/0/text",
            "/usage/output_tokens",
            "/usage/input_tokens",
            "/incomplete_details/reason",
        ],
        [
            "/delta",
            "/response/usage/output_tokens",
            "/response/usage/input_tokens",
            "/response/incomplete_details/reason",
        ],
    ),
    (
        Api::Messages,
        Api::Messages,
        r#""model":"m","system":"be brief","messages":[{"role":"user","content":"a b"}],"max_tokens":9"#,
        [
            "/content/0/text",
            "/usage/output_tokens",
            "/usage/input_tokens",
            "/stop_reason",
        ],
        [
            "/delta/text",
            "/usage/output_tokens",
            "/message/usage/input_tokens",
            "/delta/stop_reason",
        ],
    ),
    (
        Api::GenerateStream,
        Api::Generate,
        r#""inputs":"be brief a b","parameters":{"max_new_tokens":9}"#,
        [
            "/generated_text",
            "/details/generated_tokens",
            "/details/input_length",
            "/details/finish_reason",
        ],
        [
            "/token/text",
            "/details/generated_tokens",
            "/details/input_length",
            "/details/finish_reason",
        ],
    ),
];

/// The JSON of a whole reply.
fn parsed(mut reply: Reply) -> serde_json::Value {
    serde_json::from_str(&reply.whole().1).unwrap()
}

/// Data of an event, whose name must be its type.
fn data(event: &str) -> serde_json::Value {
    let (before, data) = event.split_once("data: ").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let name = before.strip_prefix("event: ").map(str::trim_end);
    assert_eq!(name, data["type"].as_str(), "{event}");
    data
}

/// Whole and streamed, an API says the same words, tells the same counts and stops for the same reason.
#[test]
fn apis_that_name_their_events_say_the_same_streamed_and_whole() {
    for (streams, whole, fields, there, here) in NAMED {
        // The words follow from the body, so both are asked with the same one.
        let body = format!(r#"{{{fields},"stream":true}}"#);
        let read = |api| Order::read(api, body.as_bytes(), &MockPlan::default()).unwrap();
        assert_eq!(
            (read(streams).tokens, read(streams).prompt_tokens),
            (9, 4),
            "{body}"
        );
        assert!(read(streams).stream);
        let answer = parsed(Reply::new(read(whole), 1, 7, 5, false));
        let mut reply = Reply::new(read(streams), 2, 7, 5, false);
        let mut out = Vec::new();
        reply.open(false, &mut out);
        while !reply.is_over() {
            reply.next_event(&mut out);
        }
        reply.close(&mut out);
        let out = String::from_utf8(out).unwrap();
        let (_, stream) = out.split_once("\r\n\r\n").unwrap();
        let events: Vec<serde_json::Value> = stream.split_terminator("\n\n").map(data).collect();
        let of = |place: &str| {
            events
                .iter()
                .filter_map(|event| event.pointer(place))
                .collect::<Vec<_>>()
        };
        let said: String = of(here[0])
            .iter()
            .filter_map(|text| text.as_str())
            .collect();
        assert_eq!(
            Some(said.trim_end_matches("</s>")),
            answer.pointer(there[0]).unwrap().as_str()
        );
        for place in 1..4 {
            let last = of(here[place]).pop();
            assert_eq!(last, answer.pointer(there[place]), "{}", here[place]);
            assert!(
                last.is_some_and(|value| !value.is_null()),
                "{}",
                here[place]
            );
        }
    }
}

/// Parts that are made once must give what making each event anew gives, in every form.
#[test]
fn events_are_what_the_plain_way_makes() {
    for (api, prompt) in [
        (Api::Chat, r#""messages":[{"content":"a b"}]"#),
        (Api::Completions, r#""prompt":"a b""#),
    ] {
        for options in [
            "",
            r#""include_usage":true"#,
            r#""include_usage":true,"continuous_usage_stats":true"#,
        ] {
            for (chunked, words, tokens) in [
                (true, 1, 40u32),
                (false, 1, 40),
                (true, 7, 40),
                (true, 1_500, 4_000),
            ] {
                let body = format!(
                    r#"{{"model":"m\"x",{prompt},"stream":true,"stream_options":{{{options}}},"max_tokens":{tokens}}}"#
                );
                let order = Order::read(api, body.as_bytes(), &MockPlan::default()).unwrap();
                let mut reply = Reply::new(order.clone(), words, 7, 5, chunked);
                let twin = Reply::new(order.clone(), tokens, 7, 5, chunked);
                let whole = parsed(twin);
                let choice = &whole["choices"][0];
                let text = choice["text"]
                    .as_str()
                    .or(choice["message"]["content"].as_str());
                let mut left = text.unwrap();
                let mut said = 0;
                while !reply.is_over() {
                    let mut out = Vec::new();
                    reply.next_event(&mut out);
                    let count = words.min(tokens - said);
                    // Each word begins with its only space.
                    let spaces = left.match_indices(' ').map(|(at, _)| at);
                    let end = spaces.skip(1).nth(count as usize - 1).unwrap_or(left.len());
                    let (here, rest) = left.split_at(end);
                    (left, said) = (rest, said + count);
                    let expected = plain_event(&order, said, here, chunked);
                    assert_eq!(
                        String::from_utf8(out),
                        String::from_utf8(expected),
                        "{body}"
                    );
                }
                assert_eq!((left, said), ("", tokens));
            }
        }
    }
}

/// The loaders are costly, so one test walks all three tables.
#[test]
fn a_word_is_one_token_alone_and_joined() {
    let tables: [(&str, CoreBPE); 3] = [
        ("r50k", tiktoken_rs::r50k_base().unwrap()),
        ("cl100k", tiktoken_rs::cl100k_base().unwrap()),
        ("o200k", tiktoken_rs::o200k_base().unwrap()),
    ];
    for (name, table) in &tables {
        for word in WORDS {
            assert_eq!(table.encode_ordinary(word).len(), 1, "{name}: {word:?}");
        }
        let all = WORDS.concat();
        assert_eq!(table.encode_ordinary(&all).len(), WORDS.len(), "{name}");
        for (tokens, prompt) in [(1, "a"), (2, "b"), (100, "c"), (1000, "d")] {
            let said = text(tokens, prompt);
            assert_eq!(
                table.encode_ordinary(&said).len(),
                tokens as usize,
                "{name}: {said}"
            );
        }
    }
    assert_eq!(
        WORDS.iter().collect::<std::collections::HashSet<_>>().len(),
        WORDS.len(),
        "no word twice"
    );
}

#[test]
fn prompt_tokens_are_the_words_of_all_contents() {
    let cases = [
        (r#"[{"role":"user","content":"a  b\nc"}]"#, 3),
        (
            r#"[{"role":"system","content":"a b"},{"role":"user","content":"c"}]"#,
            3,
        ),
        (
            r#"[{"role":"user","content":[{"type":"text","text":"a b"},{"type":"text","text":"c"}]}]"#,
            3,
        ),
        (
            r#"[{"role":"assistant","content":null},{"role":"user","content":""}]"#,
            0,
        ),
    ];
    for (messages, tokens) in cases {
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        let order = Order::read(Api::Chat, body.as_bytes(), &MockPlan::default()).unwrap();
        assert_eq!(order.prompt_tokens, tokens, "{messages}");
    }
    assert_eq!(
        order(r#"{"model":"m","prompt":["a b","c"]}"#)
            .unwrap()
            .prompt_tokens,
        3
    );
    assert_eq!(
        order(r#"{"model":"m","prompt":[5,6,7,8]}"#)
            .unwrap()
            .prompt_tokens,
        4
    );
}

/// The fall-back for other systems, tried here too.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test looks at the clock")]
fn a_thread_for_each_connection_serves_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared {
        plan: MockPlan {
            time_to_first_token: Nanos::from_millis(30),
            inter_token_latency: Nanos::from_millis(2),
            ..MockPlan::default()
        },
        created: 0,
        tally: Tally::default(),
    });
    let crew = threads::Crew::start(&shared, listener, 1, None).unwrap();
    let body = r#"{"model":"m","prompt":"p","stream":true,"max_tokens":6}"#;
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let begin = Instant::now();
    let mut sockets: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for socket in &mut sockets {
        socket.write_all(request.repeat(2).as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    }
    for socket in &mut sockets {
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("data: {").count(), 14, "{text}");
        assert_eq!(
            text.matches("data: [DONE]\n\n\r\n0\r\n\r\n").count(),
            2,
            "{text}"
        );
    }
    let took = begin.elapsed();
    assert!(
        took >= Duration::from_millis(80),
        "two replies of 40 ms: {took:?}"
    );
    drop(crew);
    assert!(TcpStream::connect(address).is_err());
}

/// A request as bytes, and what it should read as.
fn requests() -> impl Strategy<Value = (Vec<u8>, Request)> {
    let body = prop::collection::vec(any::<u8>(), 0..300);
    (
        body,
        any::<bool>(),
        any::<bool>(),
        1usize..40,
        "[a-z]{0,12}",
    )
        .prop_map(|(body, chunked, keep_alive, piece, name)| {
            let connection = if keep_alive {
                "keep-alive"
            } else {
                "Foo, Close"
            };
            let mut bytes =
                format!("POST /{name}?q HTTP/1.1\r\nhOsT:t\r\nconnection: {connection}\r\n")
                    .into_bytes();
            if chunked {
                bytes.extend_from_slice(b"Transfer-Encoding:\tChunked \r\n\r\n");
                for part in body.chunks(piece) {
                    bytes.extend_from_slice(format!("{:04x}\r\n", part.len()).as_bytes());
                    bytes.extend_from_slice(part);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            } else {
                bytes.extend_from_slice(
                    format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
                );
                bytes.extend_from_slice(&body);
            }
            let request = Request {
                method: "POST".to_owned(),
                path: format!("/{name}"),
                chunks_allowed: true,
                keep_alive,
                content_type: String::new(),
                accepts_events: false,
                body,
            };
            (bytes, request)
        })
}

/// Reads everything that comes of `bytes` cut at `cuts`.
fn read(bytes: &[u8], cuts: &[usize]) -> Vec<Result<Request, u16>> {
    let mut reader = RequestReader::new();
    let mut seen = Vec::new();
    let mut from = 0;
    let ends = cuts.iter().copied().chain([bytes.len()]);
    for end in ends {
        let end = end.clamp(from, bytes.len());
        reader.push(&bytes[from..end]);
        from = end;
        loop {
            match reader.next() {
                Ok(Some(request)) => seen.push(Ok(request)),
                Ok(None) => break,
                Err(refusal) => {
                    seen.push(Err(refusal.status));
                    return seen;
                }
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Events of the connections 1 to n lie a n-th of a gap apart, and none is moved by a whole gap.
    #[test]
    fn spread_streams_keep_apart(first in 0u64..1 << 50, gap in 1u64..1 << 36, parts in 1u32..2000) {
        let parts_u64 = u64::from(parts);
        let mut phases: Vec<u64> = Vec::new();
        for number in 0..parts_u64 {
            let due = spread(first + number * 977, gap, number, Some(parts));
            prop_assert!((first + number * 977..first + number * 977 + gap).contains(&due));
            phases.push(due % gap);
        }
        prop_assert!(phases.is_sorted());
        let least = phases.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(gap);
        prop_assert!(least >= gap / parts_u64, "{least} of {gap} / {parts}");
        prop_assert_eq!(spread(first, gap, 7, None), first);
        prop_assert_eq!(spread(first, 0, 7, Some(parts)), first);
    }

    #[test]
    fn requests_read_back_however_they_are_cut(
        made in prop::collection::vec(requests(), 1..4),
        mut cuts in prop::collection::vec(0usize..1500, 0..12),
    ) {
        cuts.sort_unstable();
        let bytes = made.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>();
        let seen = read(&bytes, &cuts);
        let expected = made.into_iter().map(|(_, request)| Ok(request)).collect::<Vec<_>>();
        prop_assert_eq!(seen, expected);
    }

    /// A changed byte may change the outcome, never with the cuts, and never panics.
    #[test]
    fn damage_is_read_the_same_however_it_is_cut(
        (mut bytes, _) in requests(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        mut cuts in prop::collection::vec(0usize..600, 0..12),
    ) {
        cuts.sort_unstable();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        prop_assert_eq!(read(&bytes, &cuts), read(&bytes, &[]));
    }

    #[test]
    fn any_text_is_refused_and_limits_have_bounds(body in "\\PC{0,60}", number in any::<i64>()) {
        prop_assert!(order(&body).is_err());
        let limited = format!(r#"{{"model":"m","prompt":"p","max_tokens":{number}}}"#);
        prop_assert_eq!(order(&limited).is_ok(), (1..=1 << 20).contains(&number));
    }
}
