//! The bodies of the targets, on inputs glued from pieces that matter.
//!
//! In: random inputs. Out: whether the bodies find something. Never: a file.

use proptest::prelude::*;

/// Bytes glued from pieces that matter, so that the depths are reached.
fn glued(pieces: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

const SSE: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"data",
    b":",
    b" ",
    b"data: ",
    b"data:",
    b"event: error",
    b"event:",
    b"ERROR",
    b"[DONE]",
    b"{}",
    b": ping",
    b"id: 1",
    b"retry: 3",
    b"\xEF\xBB\xBF",
    b"\xEF",
    b"x",
    b"\t",
    b"\x0b",
    b"\0",
];
const CHUNKED: &[&[u8]] = &[
    b"0\r\n\r\n",
    b"0\r\n",
    b"\r\n",
    b"\n",
    b"3\r\nabc\r\n",
    b"5",
    b";a=\"b;c\"",
    b"a",
    b"X: y\r\n",
    b" ",
    b"\r",
    b"1\nz\n",
    b"ffffffffffffffffff",
    b"1ff\r\n",
    b"000000000000000000002",
    b"-",
    b"xyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyz",
];
const RESPONSE: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 204\r\n",
    b"\r\n",
    b"\n",
    b"HTTP/1.",
    b"Content-Length: 5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Content-Type: text/event-stream\r\n",
    b"Content-Encoding: gzip\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"data: x\n\n",
    b"8\r\ndata: a\n\r\n",
    b"data: [DONE]\n\n",
    b" folded\r\n",
    b"X: ",
    b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
];

const ANSWERS: &[&[u8]] = &[
    b"HTTP/1.1 200 Connection established\r\n",
    b"HTTP/1.0 200\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 407 No\r\n",
    b"HTTP/1.1 101 Other\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"Via: x\r\n",
    b"Content-Length: 5\r\n",
    b"hello",
    b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
];
const REQUESTS: &[&[u8]] = &[
    b"POST /v1/chat/completions HTTP/1.1\r\n",
    b"GET /health HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"Content-Length: 2\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Content-Type: multipart/form-data; boundary=b\r\n",
    b"--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nx\r\n--b--\r\n",
    b"\r\n",
    b"\n",
    b"{}",
    b"2\r\n{}\r\n",
    b"0\r\n\r\n",
    b";a=b",
    b"fffffffffffffffff",
];

/// Texts packed by what this crate has of packers; one byte of some is changed.
fn packed() -> impl Strategy<Value = Vec<u8>> {
    use flate2::Compression;
    use std::io::Write as _;
    let pack = |deflate: bool, text: Vec<u8>| {
        if deflate {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
            out.write_all(&text).and_then(|()| out.finish())
        } else {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
            out.write_all(&text).and_then(|()| out.finish())
        }
    };
    let text = prop_oneof![glued(SSE), glued(RESPONSE).prop_map(|text| text.repeat(40))];
    let spoil = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (any::<bool>(), text, spoil).prop_map(move |(deflate, text, spoil)| {
        let mut bytes = vec![u8::from(deflate), 3, 1, 7, 40];
        bytes.extend(pack(deflate, text).expect("memory takes all"));
        if let Some((index, byte)) = spoil {
            let at = 5 + index.index(bytes.len() - 5);
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn packed_bodies_are_read_alike_in_one_piece_and_in_many(data in packed()) {
        super::coded(&data);
    }

    #[test]
    fn a_proxy_s_answer_is_read_alike_in_one_piece_and_in_many(data in glued(ANSWERS)) {
        super::tunnel(&[&[3, 1, 9, 30], &data[..]].concat());
    }

    #[test]
    fn requests_are_read_alike_in_one_piece_and_in_many(data in glued(REQUESTS)) {
        super::served(&[&[3, 1, 9, 30], &data[..]].concat());
    }

    #[test]
    fn sse_agrees_with_a_plain_reading(data in glued(SSE)) {
        super::sse(&data);
    }

    #[test]
    fn chunks_agree_with_a_plain_reading(data in glued(CHUNKED)) {
        super::body(&data);
    }

    #[test]
    fn heads_are_read_alike_in_one_piece_and_in_many(data in glued(RESPONSE)) {
        super::head(&data);
    }

    #[test]
    fn responses_are_read_alike_in_one_piece_and_in_many(
        lengths in prop::collection::vec(any::<u8>(), 0..16),
        data in glued(RESPONSE),
    ) {
        let count = u8::try_from(lengths.len()).expect("at most 15");
        super::response(&[&[count], &lengths[..], &data].concat());
    }

    #[test]
    fn arbitrary_bytes_break_nothing(data in prop::collection::vec(any::<u8>(), 0..200)) {
        super::head(&data);
        super::body(&data);
        super::sse(&data);
        super::response(&data);
        super::reply(&data);
        super::coded(&data);
        super::tunnel(&data);
        super::served(&data);
        super::template(&data);
    }
}
