//! Cases too small for a file of their own.
//!
//! In: bytes. Out: heads, faults, fields. Never: a split of the input; `tests/wire.rs` does every one.

use super::*;

fn feed(response: &mut Response, input: &[u8]) -> (Step<usize>, Vec<u8>, Vec<u8>) {
    let (mut head_bytes, mut body) = (Vec::new(), Vec::new());
    let step = response.feed(input, &mut head_bytes, &mut body);
    (step, head_bytes, body)
}

#[test]
fn a_response_is_reused_behind_whole_and_broken_ones() {
    let mut response = Response::new(Limits::default());
    let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for before in [
        &good[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 2",
        b"\r\n",
        b"nonsense",
    ] {
        feed(&mut response, before);
        response.reset();
        assert!(!response.started());
        assert_eq!(response.head(), None);
        assert_eq!(response.eof(), Err(Fault::ClosedBeforeResponse));
        let (step, head_bytes, body) = feed(&mut response, good);
        assert_eq!(
            (step, &head_bytes[..], &body[..]),
            (Step::Done(good.len()), &good[..38], &b"ok"[..])
        );
        assert_eq!(response.eof(), Ok(()));
        assert_eq!(
            feed(&mut response, b"x").0,
            Step::Done(0),
            "surplus is not taken"
        );
    }
}

#[test]
fn a_fault_lasts_until_reset() {
    let mut response = Response::new(Limits::default());
    assert_eq!(
        feed(&mut response, b"SSH-2.0").0,
        Step::Wrong(Fault::BadHead)
    );
    assert_eq!(
        feed(&mut response, b"HTTP/1.1 200 OK\r\n\r\n").0,
        Step::Wrong(Fault::BadHead)
    );
    assert_eq!(response.eof(), Err(Fault::BadHead));

    let mut scanner = SseScanner::new(Limits {
        event_bytes: 8,
        ..Limits::default()
    });
    assert_eq!(
        scanner.next(b"data: 456"),
        Step::Wrong(Fault::EventTooLarge)
    );
    assert_eq!(
        scanner.next(b"data: 456\n\ndata\n\n"),
        Step::Wrong(Fault::EventTooLarge)
    );
    assert_eq!(
        scanner.finish(b"data: 456\n\ndata\n\n"),
        Step::Wrong(Fault::EventTooLarge)
    );
    scanner.reset();
    assert_eq!(
        scanner.next(b"data:\n\n"),
        Step::Done(SseEvent {
            begin: 0,
            end: 7,
            kind: SseKind::KeepAlive
        })
    );
    scanner.reset();
    assert_eq!(
        scanner.next(b"data: 456"),
        Step::Wrong(Fault::EventTooLarge),
        "reset keeps the limit"
    );
}

#[test]
fn an_event_is_there_with_the_byte_that_closes_it() {
    for (body, end) in [
        ("data: a\n\n", 9),
        ("data: a\r\n\r", 10),
        ("data: a\r\r", 9),
        ("data: a\n\r", 9),
    ] {
        let mut scanner = SseScanner::new(Limits::default());
        let bytes = body.as_bytes();
        assert_eq!(scanner.next(&bytes[..end - 1]), Step::More, "{body:?}");
        assert_eq!(
            scanner.next(bytes),
            Step::Done(SseEvent {
                begin: 0,
                end: end as u64,
                kind: SseKind::Message
            }),
            "{body:?}"
        );
    }
}

#[test]
fn limits_act_on_the_byte_that_passes_them() {
    let limits = Limits {
        head_bytes: 20,
        chunk_line_bytes: 4,
        trailer_bytes: 4,
        body_bytes: 3,
        ..Limits::default()
    };
    let chunked = "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n";
    let roomy = Limits {
        head_bytes: 100,
        ..limits
    };
    for (limits, fits, byte, fault) in [
        (limits, "HTTP/1.1 200 OK\r\nX: ", b'y', Fault::HeadTooLarge),
        (limits, "HTTP/1.1 200\r\n\r\nabc", b'd', Fault::BodyTooLarge),
        (roomy, &format!("{chunked}3;ab"), b'c', Fault::BadChunkSize),
        (
            roomy,
            &format!("{chunked}0\r\nX: y"),
            b'z',
            Fault::BadTrailer,
        ),
        (roomy, &format!("{chunked}4\r"), b'\n', Fault::BodyTooLarge),
        (
            roomy,
            &format!("{chunked}2\r\nab\r\n2\r"),
            b'\n',
            Fault::BodyTooLarge,
        ),
    ] {
        let mut response = Response::new(limits);
        assert_eq!(
            feed(&mut response, fits.as_bytes()).0,
            Step::More,
            "{fits:?}"
        );
        assert_eq!(
            feed(&mut response, &[byte]).0,
            Step::Wrong(fault),
            "{fits:?}"
        );
    }
}

#[test]
fn request_heads_name_host_first_and_length_last() {
    let table = [
        (
            "POST",
            "Accept: */*\r\n",
            12,
            "POST /v1?a=b HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\nContent-Length: 12\r\n\r\n",
        ),
        (
            "POST",
            "",
            0,
            "POST /v1?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n",
        ),
        ("GET", "", 0, "GET /v1?a=b HTTP/1.1\r\nHost: h:1\r\n\r\n"),
        (
            "GET",
            "",
            3,
            "GET /v1?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\n",
        ),
    ];
    for (method, lines, body_length, expected) in table {
        let mut out = b"before".to_vec();
        let fields = |out: &mut Vec<u8>| out.extend_from_slice(lines.as_bytes());
        write_request_head(&mut out, method, "/v1?a=b", "h:1", fields, body_length);
        assert_eq!(String::from_utf8_lossy(&out), format!("before{expected}"));
    }
}

#[test]
fn head_bytes_are_read_for_people() {
    for (line, reason) in [
        (
            "HTTP/1.1 429 Too Many Requests\r\n\r\n",
            "Too Many Requests",
        ),
        ("HTTP/1.1 200\r\n", ""),
        ("HTTP/1.1 200 \r\n", ""),
        ("HTTP/1.1 200 OK", "OK"),
        ("", ""),
    ] {
        assert_eq!(reason_phrase(line.as_bytes()), reason, "{line:?}");
    }
    let lines = header_lines(
        b"HTTP/1.1 200 OK\r\nA: b\r\nX-Url:  http://c:1/ \r\nLong: x\r\n\ty\nEmpty:\r\n\r\n",
    );
    let lines: Vec<_> = lines
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            ("A", "b"),
            ("X-Url", "http://c:1/"),
            ("Long", "x y"),
            ("Empty", "")
        ]
    );
}

#[test]
fn fields_are_read_after_the_standard() {
    let read = fields(b"event: a\nid: 1\nid: \0\nretry: 10\nretry: 1x\n: one\n:two\ndata: x\nevent\nunknown: y\n\n");
    assert_eq!(read.data.as_deref(), Some(&b"x"[..]));
    assert!(
        matches!(read.data, Some(std::borrow::Cow::Borrowed(_))),
        "one line is not copied"
    );
    assert_eq!(
        (read.event, read.id, read.retry),
        (Some(&b""[..]), Some(&b"1"[..]), Some(10))
    );
    assert_eq!(read.comments, [&b"one"[..], b"two"]);
    assert_eq!(fields(b""), SseFields::default());
    assert_eq!(
        fields(b"data: a\r\ndata\rdata:b").data.as_deref(),
        Some(&b"a\n\nb"[..])
    );
}

#[test]
fn every_fault_has_its_own_name_and_sentence() {
    for (index, fault) in Fault::ALL.iter().enumerate() {
        assert_eq!(fault.name(), format!("{fault:?}"));
        assert!(fault.message().ends_with('.'), "{fault:?}");
        for other in &Fault::ALL[..index] {
            assert_ne!(fault.message(), other.message());
        }
    }
}
