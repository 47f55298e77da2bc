//! The built-in server as its clients see it.
//!
//! In: raw bytes on sockets. Out: verdicts on the replies' bytes and times. Never: uses the crate's own HTTP reader.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, and the tests look at the clock"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokenring::clock::Nanos;
use tokenring::config::MockPlan;
use tokenring::mock::{self, Running};

fn serve(plan: MockPlan) -> Running {
    mock::start(&MockPlan {
        threads: Some(1),
        ..plan
    })
    .unwrap()
}

fn fast() -> MockPlan {
    MockPlan {
        time_to_first_token: Nanos(0),
        inter_token_latency: Nanos(0),
        ..MockPlan::default()
    }
}

fn connect(server: &Running) -> TcpStream {
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn chat(extra: &str) -> Vec<u8> {
    post(
        "/v1/chat/completions",
        &format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"one two  three"}}]{extra}}}"#
        ),
    )
}

/// A reply taken apart.
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// When the bytes up to each chunk's end had been read.
    chunks: Vec<(Instant, Vec<u8>)>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Data of the events of an SSE body.
    fn events(&self) -> Vec<String> {
        let text = std::str::from_utf8(&self.body).unwrap();
        assert!(text.ends_with("\n\n"), "{text:?}");
        text[..text.len() - 2]
            .split("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}

/// Reads replies from a socket, byte for byte.
struct Reader {
    socket: TcpStream,
    buffer: Vec<u8>,
    read_at: Instant,
}

impl Reader {
    fn new(socket: TcpStream) -> Reader {
        Reader {
            socket,
            buffer: Vec::new(),
            read_at: Instant::now(),
        }
    }

    fn fill(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.socket.read(&mut bytes).unwrap();
        self.read_at = Instant::now();
        assert!(count > 0, "the server closed the connection early");
        self.buffer.extend_from_slice(&bytes[..count]);
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.fill();
        }
        self.buffer.drain(..count).collect()
    }

    fn line(&mut self, end: &[u8]) -> String {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|w| w == end) {
                let line = self.take(at + end.len());
                return String::from_utf8(line[..at].to_vec()).unwrap();
            }
            self.fill();
        }
    }

    fn reply(&mut self) -> Reply {
        let head = self.line(b"\r\n\r\n");
        let status = head[9..12].parse().unwrap();
        let lower = head.to_ascii_lowercase();
        let (mut body, mut chunks) = (Vec::new(), Vec::new());
        if lower.contains("transfer-encoding: chunked") {
            loop {
                let size = usize::from_str_radix(&self.line(b"\r\n"), 16).unwrap();
                let chunk = self.take(size);
                assert_eq!(self.take(2), b"\r\n");
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&chunk);
                chunks.push((self.read_at, chunk));
            }
        } else if let Some((_, rest)) = lower.split_once("content-length: ") {
            let length = rest.lines().next().unwrap().parse().unwrap();
            body = self.take(length);
        }
        Reply {
            status,
            head,
            body,
            chunks,
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.buffer.is_empty() && self.socket.read(&mut [0; 1]).unwrap() == 0
    }
}

fn ask(server: &Running, request: &[u8]) -> Reply {
    let mut socket = connect(server);
    socket.write_all(request).unwrap();
    Reader::new(socket).reply()
}

#[test]
fn a_stream_has_role_content_finish_usage_and_done() {
    let server = serve(fast());
    let reply = ask(
        &server,
        &chat(r#","stream":true,"max_tokens":3,"stream_options":{"include_usage":true}"#),
    );
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("Content-Type: text/event-stream"));
    let events = reply.events();
    assert_eq!(events.len(), 7, "{events:?}");
    assert_eq!(events[6], "[DONE]");
    let json: Vec<Value> = events[..6]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(json[0]["choices"][0]["delta"]["role"], "assistant");
    for event in &json[1..4] {
        let text = event["choices"][0]["delta"]["content"].as_str().unwrap();
        assert!(text.starts_with(' ') && text.len() > 1, "{text:?}");
        assert_eq!(event["usage"], Value::Null);
        assert_eq!(event["object"], "chat.completion.chunk");
    }
    assert_eq!(json[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(json[5]["choices"], Value::Array(Vec::new()));
    assert_eq!(json[5]["usage"]["completion_tokens"], 3);
    assert_eq!(json[5]["usage"]["prompt_tokens"], 3);
    assert_eq!(json[5]["usage"]["total_tokens"], 6);
    assert_eq!(server.requests_seen(), 1);
}

#[test]
fn completions_stream_without_a_role_chunk() {
    let server = serve(fast());
    let body = r#"{"model":"m","prompt":"a b","stream":true,"max_tokens":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
    let events = ask(&server, &post("/v1/completions", body)).events();
    let json: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(json.len(), 4);
    assert!(json[0]["choices"][0]["text"].as_str().unwrap().len() > 1);
    assert_eq!(json[0]["usage"]["completion_tokens"], 1);
    assert_eq!(json[1]["usage"]["completion_tokens"], 2);
    assert_eq!(json[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(json[3]["usage"]["total_tokens"], 4);
}

#[test]
fn a_reply_without_streaming_says_what_the_stream_says() {
    let server = serve(MockPlan {
        tokens_per_chunk: 4,
        ..fast()
    });
    // Words depend on the body, so the two requests differ in the path's stream flag alone: compare lengths and words.
    let whole = ask(&server, &chat(r#","max_completion_tokens":10"#));
    assert_eq!(whole.status, 200);
    let json = whole.json();
    let text = json["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text.split_whitespace().count(), 10);
    assert_eq!(json["usage"]["completion_tokens"], 10);
    assert_eq!(json["choices"][0]["finish_reason"], "length");
    let again = ask(&server, &chat(r#","max_completion_tokens":10"#));
    assert_eq!(
        again.json()["choices"],
        json["choices"],
        "same body, same words"
    );
    let other = serve(MockPlan {
        seed: 1,
        tokens_per_chunk: 4,
        ..fast()
    });
    let reply = ask(&other, &chat(r#","max_completion_tokens":10"#));
    assert_ne!(reply.json()["choices"], json["choices"], "another seed");
}

#[test]
fn token_limits_are_read_as_the_api_says() {
    let cases = [
        ("", 100),
        (r#","max_tokens":7"#, 7),
        (r#","max_completion_tokens":5,"max_tokens":7"#, 5),
        (r#","max_tokens":9,"min_tokens":9,"ignore_eos":true"#, 9),
        (r#","min_tokens":120"#, 120),
        (r#","max_tokens":null,"n":3"#, 100),
    ];
    let server = serve(fast());
    for (extra, tokens) in cases {
        let reply = ask(&server, &chat(extra));
        assert_eq!(
            reply.json()["usage"]["completion_tokens"],
            tokens,
            "{extra}"
        );
    }
}

#[test]
fn chunks_carry_as_many_tokens_as_planned() {
    let server = serve(MockPlan {
        tokens_per_chunk: 4,
        ..fast()
    });
    let events = ask(&server, &chat(r#","stream":true,"max_tokens":10"#)).events();
    let counts: Vec<usize> = events[1..4]
        .iter()
        .map(|event| {
            let json: Value = serde_json::from_str(event).unwrap();
            assert!(json.get("usage").is_none(), "not asked for");
            json["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap()
                .split_whitespace()
                .count()
        })
        .collect();
    assert_eq!(counts, [4, 4, 2]);
    assert_eq!(events.len(), 6);
}

#[test]
fn events_that_go_out_together_are_one_write_at_the_time_of_the_first() {
    let server = serve(MockPlan {
        inter_token_latency: Nanos::from_millis(10),
        events_per_write: 4,
        ..fast()
    });
    let begin = Instant::now();
    let reply = ask(&server, &chat(r#","stream":true,"max_tokens":10"#));
    // A role, ten words, a finish reason and `[DONE]`; the words came as 4, 4 and 2.
    assert_eq!(reply.events().len(), 13);
    let at: Vec<Instant> = reply.chunks.iter().map(|chunk| chunk.0).collect();
    for (first, last, due_ms) in [(1, 4, 0), (5, 8, 40), (9, 10, 80)] {
        assert_eq!(at[first], at[last], "events {first} to {last} share a read");
        let after = at[first] - begin;
        assert!(after >= Duration::from_millis(due_ms), "{first}: {after:?}");
    }
}

#[test]
fn refusals_name_the_fault() {
    let big = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        65 << 20
    );
    let long = format!(
        "GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n",
        "x".repeat(66_000)
    );
    // Request, status, a word of the message, and whether the connection goes on.
    let cases: Vec<(Vec<u8>, u16, &str, bool)> = vec![
        (post("/v1/nothing", "{}"), 404, "/v1/nothing", true),
        (post("/v1/chat/completions", "{"), 400, "JSON", true),
        (post("/v1/chat/completions", "[]"), 400, "object", true),
        (post("/v1/chat/completions", "{}"), 400, "model", true),
        (post("/v1/chat/completions", r#"{"model":"m"}"#), 400, "messages", true),
        (post("/v1/completions", r#"{"model":"m"}"#), 400, "prompt", true),
        (chat(r#","stream":1"#), 400, "stream", true),
        (chat(r#","max_tokens":0"#), 400, "at least 1", true),
        (chat(r#","max_tokens":-1"#), 400, "max_tokens", true),
        (chat(r#","max_tokens":2,"min_tokens":3"#), 400, "min_tokens", true),
        (chat(r#","max_tokens":99999999"#), 400, "the most", true),
        (chat(r#","stream_options":{"include_usage":true}"#), 400, "stream_options", true),
        (b"GET /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(), 405, "POST", true),
        (post("/v1/models", "{}"), 405, "GET", true),
        (b"nonsense\r\n\r\n".to_vec(), 400, "request line", false),
        (b"GET / HTTP/2.0\r\nHost: t\r\n\r\n".to_vec(), 505, "version", false),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 400, "Host", false),
        (b"GET / HTTP/1.1\r\nHost : t\r\n\r\n".to_vec(), 400, "token", false),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: +1\r\n\r\n".to_vec(), 400, "digits", false),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), 400, "exclude", false),
        (b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n".to_vec(), 501, "chunked", false),
        (b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nxy\r\n".to_vec(), 400, "hexadecimal", false),
        (b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n".to_vec(), 400, "CR LF", false),
        (big.into_bytes(), 413, "64 MB", false),
        (long.into_bytes(), 431, "64 KB", false),
    ];
    let server = serve(fast());
    for (request, status, word, goes_on) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(120)]).into_owned();
        let mut socket = connect(&server);
        socket.write_all(&request).unwrap();
        let mut reader = Reader::new(socket);
        let reply = reader.reply();
        assert_eq!(reply.status, status, "{shown}");
        let message = reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(word), "{shown}: {message}");
        if goes_on {
            reader
                .socket
                .write_all(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
                .unwrap();
            assert_eq!(reader.reply().status, 200, "{shown}");
        } else {
            assert!(reader.is_at_end(), "{shown}");
        }
    }
}

#[test]
fn framings_of_a_request_come_to_the_same() {
    let body = r#"{"model":"m","prompt":"x y z","max_tokens":4}"#;
    let (first, second) = body.split_at(11);
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x};note=1\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\nTrailer: x\r\n\r\n",
        first.len(),
        second.len()
    );
    let absolute = String::from_utf8(post("/v1/completions", body))
        .unwrap()
        .replace("POST /v1", "POST http://test:80/v1")
        .replace("/completions HTTP", "/completions?a=b HTTP");
    let server = serve(fast());
    let expected = ask(&server, &post("/v1/completions", body)).json()["choices"].clone();
    for request in [chunked.into_bytes(), absolute.into_bytes()] {
        assert_eq!(ask(&server, &request).json()["choices"], expected);
        let mut socket = connect(&server);
        for byte in &request {
            socket.write_all(&[*byte]).unwrap();
        }
        assert_eq!(
            Reader::new(socket).reply().json()["choices"],
            expected,
            "byte by byte"
        );
    }
}

#[test]
fn a_connection_carries_many_requests_also_when_pipelined() {
    let server = serve(MockPlan {
        time_to_first_token: Nanos::from_millis(5),
        ..fast()
    });
    let mut socket = connect(&server);
    let mut requests = Vec::new();
    for _ in 0..3 {
        requests.extend(chat(r#","stream":true,"max_tokens":2"#));
        requests.extend_from_slice(b"\r\nGET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    socket.write_all(&requests).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut reader = Reader::new(socket);
    for _ in 0..3 {
        assert_eq!(reader.reply().events().len(), 5);
        assert_eq!(reader.reply().json()["data"][0]["id"], "mock-model");
    }
    assert!(reader.is_at_end());
    assert_eq!(server.requests_seen(), 6);
}

#[test]
fn expect_gets_continue_and_close_closes() {
    let server = serve(fast());
    let mut socket = connect(&server);
    let body = r#"{"model":"m","prompt":"x","max_tokens":1}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut reader = Reader::new(socket);
    assert_eq!(reader.reply().status, 100);
    reader.socket.write_all(body.as_bytes()).unwrap();
    let reply = reader.reply();
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("Connection: close"));
    assert!(reader.is_at_end());
}

#[test]
fn an_old_client_gets_a_stream_that_ends_with_the_connection() {
    let server = serve(fast());
    let request = String::from_utf8(chat(r#","stream":true,"max_tokens":2"#)).unwrap();
    let mut socket = connect(&server);
    socket
        .write_all(request.replace("HTTP/1.1", "HTTP/1.0").as_bytes())
        .unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked"), "{head}");
    assert!(
        body.starts_with("data: {") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
}

#[test]
fn other_paths_answer() {
    let server = serve(MockPlan {
        models: vec!["a".to_owned(), "b".to_owned()],
        ..fast()
    });
    let models = ask(&server, b"GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n").json();
    assert_eq!(models["data"][1]["id"], "b");
    ask(&server, &chat(r#","max_tokens":5"#));
    let metrics = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(
        text.contains("tokenring_mock_generated_tokens_total 5\n"),
        "{text}"
    );
    assert!(text.contains("tokenring_mock_requests_total 3\n"), "{text}");
}

/// One event may be late by this on a machine with other work.
const TOLERANCE: Duration = Duration::from_millis(200);
/// At least one event in each half of a stream is no later than this: lateness is passing and does not add up.
const PUNCTUAL: Duration = Duration::from_millis(2);

#[test]
fn events_come_at_their_absolute_times() {
    let server = serve(MockPlan {
        time_to_first_token: Nanos::from_millis(40),
        inter_token_latency: Nanos::from_millis(4),
        tokens_per_chunk: 2,
        ..MockPlan::default()
    });
    let mut socket = connect(&server);
    let request = chat(r#","stream":true,"max_tokens":102"#);
    let before = Instant::now();
    socket.write_all(&request).unwrap();
    let after = Instant::now();
    let reply = Reader::new(socket).reply();
    let content = &reply.chunks[1..52];
    let gap = Duration::from_millis(8);
    // The role comes as soon as the server has read the request, which a busy machine may delay.
    let begun = reply.chunks[0].0;
    let mut lateness = Vec::new();
    for (index, (read_at, _)) in (0u32..).zip(content) {
        let due = Duration::from_millis(40) + gap * index;
        assert!(
            *read_at >= before + due,
            "event {index} came before its time"
        );
        assert!(
            *read_at < after + due + TOLERANCE,
            "event {index} came late"
        );
        lateness.push(read_at.saturating_duration_since(begun + due));
    }
    for half in lateness.chunks(26) {
        assert!(half.iter().min().unwrap() < &PUNCTUAL, "{lateness:?}");
    }
}

#[test]
fn a_whole_reply_comes_when_a_stream_would_end() {
    let server = serve(MockPlan {
        time_to_first_token: Nanos::from_millis(20),
        inter_token_latency: Nanos::from_millis(5),
        ..MockPlan::default()
    });
    let before = Instant::now();
    ask(&server, &chat(r#","max_tokens":5"#));
    let took = before.elapsed();
    assert!(
        took >= Duration::from_millis(40) && took < Duration::from_millis(40) + TOLERANCE,
        "{took:?}"
    );
}

#[test]
fn two_hundred_streams_run_at_once_and_the_log_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("server.log");
    let server = serve(MockPlan {
        time_to_first_token: Nanos::from_millis(150),
        inter_token_latency: Nanos::from_millis(10),
        log: Some(log.clone()),
        ..MockPlan::default()
    });
    let request = chat(r#","stream":true,"max_tokens":20"#);
    let (begin, sent) = (Instant::now(), monotonic());
    let sockets: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = connect(&server);
            socket.write_all(&request).unwrap();
            socket
        })
        .collect();
    for socket in sockets {
        assert_eq!(Reader::new(socket).reply().events().len(), 23);
    }
    // One after the other would take 200 times 340 ms.
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    server.stop();
    check_log(&fs::read_to_string(log).unwrap(), sent, monotonic());
}

/// The clock of the server's log.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Each reply has its 20 events in order, none before its time.
fn check_log(text: &str, sent: u64, end: u64) {
    let mut replies = BTreeMap::<(u64, u64), Vec<(u64, u64)>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<u64> = line
            .split(' ')
            .map(|field| field.parse().unwrap())
            .collect();
        let [connection, request, event, at, due, after, received, read] = fields[..] else {
            panic!("{line}");
        };
        assert!(due <= at && at <= after && received <= read, "{line}");
        // The kernel's stamp is mapped from another clock; on a loaded machine it may be off by some microseconds.
        assert!(received + 100_000 >= sent, "{line}");
        assert_eq!(due, read + 150_000_000 + event * 10_000_000, "{line}");
        let reply = replies.entry((connection, request)).or_default();
        reply.push((event, at));
    }
    assert_eq!(replies.len(), 200);
    for events in replies.values() {
        assert_eq!(events.len(), 20);
        for (index, (event, at)) in (0u64..).zip(events) {
            assert_eq!(*event, index);
            let due = sent + 150_000_000 + index * 10_000_000;
            assert!(
                (due..end).contains(at),
                "event {index} at {at}, due at {due}, end at {end}"
            );
        }
    }
}

#[test]
fn a_client_that_goes_away_does_not_disturb_others() {
    let server = serve(MockPlan {
        time_to_first_token: Nanos::from_millis(10),
        inter_token_latency: Nanos::from_millis(2),
        ..MockPlan::default()
    });
    for _ in 0..20 {
        let mut socket = connect(&server);
        socket.write_all(&chat(r#","stream":true"#)).unwrap();
        socket.read_exact(&mut [0; 20]).unwrap();
    }
    let reply = ask(&server, &chat(r#","stream":true,"max_tokens":30"#));
    assert_eq!(reply.events().len(), 33);
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let server = serve(fast());
    let mut socket = connect(&server);
    socket
        .write_all(&chat(r#","stream":true,"max_tokens":20000"#))
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let events = Reader::new(socket).reply().events();
    assert_eq!(events.len(), 20_003);
}

#[test]
fn stop_joins_while_streams_run_and_start_names_faults() {
    let server = serve(MockPlan {
        threads: Some(3),
        time_to_first_token: Nanos::from_millis(60_000),
        ..MockPlan::default()
    });
    let mut socket = connect(&server);
    socket.write_all(&chat("")).unwrap();
    let port = server.address.port();
    let taken = mock::start(&MockPlan {
        port,
        ..MockPlan::default()
    });
    assert!(
        taken
            .unwrap_err()
            .to_string()
            .contains(&format!("--port {port}"))
    );
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(
        socket.read(&mut [0; 1]).unwrap_or(0),
        0,
        "the connection is cut"
    );
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let core = mock::start(&MockPlan {
        cpus: vec![99_999],
        ..MockPlan::default()
    });
    assert!(core.unwrap_err().to_string().contains("99999"));
    let log = mock::start(&MockPlan {
        log: Some("/nonexistent/folder/log".into()),
        ..MockPlan::default()
    });
    assert!(log.unwrap_err().to_string().contains("--log /nonexistent"));
}
