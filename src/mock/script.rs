//! What the server says: words, JSON and SSE.
//!
//! In: an order. Out: the bytes of each event. Never: a clock or a socket; the same order gives the same words.

use std::io::Write;

use serde_json::{Value, json};

use super::api::{Api, Order};
use super::wording::{self, Said};

/// Each with a leading space is one token of r50k (GPT-2), cl100k and o200k, alone and after any other of them.
pub(super) const WORDS: [&str; 64] = [
    " the", " of", " and", " to", " in", " that", " it", " with", " as", " for", " was", " on",
    " are", " by", " be", " this", " have", " from", " or", " one", " had", " not", " but",
    " what", " all", " were", " when", " we", " there", " can", " an", " your", " which", " their",
    " said", " if", " do", " will", " each", " about", " how", " up", " out", " them", " then",
    " she", " many", " some", " so", " these", " would", " other", " into", " has", " more",
    " her", " two", " like", " him", " see", " time", " could", " no", " make",
];

/// A reply that is being said.
#[derive(Debug)]
pub(super) struct Reply {
    order: Order,
    tokens_per_chunk: u32,
    id: String,
    created: u64,
    /// A content event's bytes before and after its text, made once: after it only a usage that grows is left out.
    prefix: Vec<u8>,
    suffix: Vec<u8>,
    /// What ends a content event with its framing.
    end: &'static [u8],
    /// Tokens said so far.
    said: u32,
    /// The text of the next event, and its usage if that grows.
    text: String,
    usage: Vec<u8>,
    random: u64,
    /// Chunked transfer coding; otherwise the end of the connection ends the body.
    chunked: bool,
}

impl Reply {
    pub(super) fn new(
        order: Order,
        tokens_per_chunk: u32,
        number: u64,
        created: u64,
        chunked: bool,
    ) -> Reply {
        let id = order.api.id(number);
        // OpenAI: with `include_usage` every chunk but the last has a null usage.
        let usage = if order.include_usage && !order.continuous_usage {
            r#","usage":null"#
        } else {
            ""
        };
        let nothing = Said {
            id: &id,
            created,
            model: &order.model,
            prompt_tokens: order.prompt_tokens,
            tokens: 0,
            text: "",
        };
        let (prefix, suffix) = order.api.around_text(nothing, usage);
        Reply {
            prefix: prefix.into_bytes(),
            suffix: suffix.into_bytes(),
            end: if chunked { b"}\n\n\r\n" } else { b"}\n\n" },
            random: order.seed,
            order,
            tokens_per_chunk: tokens_per_chunk.max(1),
            id,
            created,
            said: 0,
            text: String::new(),
            usage: Vec::new(),
            chunked,
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.order.stream
    }

    /// All tokens have been said.
    pub(super) fn is_over(&self) -> bool {
        self.said >= self.order.tokens
    }

    /// Number of content events in the whole reply.
    pub(super) fn chunk_count(&self) -> u32 {
        self.order.tokens.div_ceil(self.tokens_per_chunk)
    }

    /// Tokens that are said.
    pub(super) fn tokens(&self) -> u32 {
        match self.order.api {
            Api::Numbers(_) => 0,
            _ => self.order.tokens,
        }
    }

    /// Head of a stream and, for chat, the first chunk with the role.
    pub(super) fn open(&self, keep_alive: bool, out: &mut Vec<u8>) {
        let framing = if self.chunked {
            "Transfer-Encoding: chunked\r\n"
        } else {
            ""
        };
        let connection = if keep_alive { "keep-alive" } else { "close" };
        out.extend_from_slice(
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n\
                 {framing}Connection: {connection}\r\n\r\n"
            )
            .as_bytes(),
        );
        for (name, data) in self.order.api.opening(self.so_far("")) {
            self.event(name, &data, out);
        }
        if self.order.api == Api::Chat {
            let choice = json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null});
            let usage = self.order.continuous_usage.then(|| self.usage());
            self.event("", &self.chunk(&json!([choice]), usage.as_ref()), out);
        }
    }

    /// The next content event.
    pub(super) fn next_event(&mut self, out: &mut Vec<u8>) {
        let words = self.tokens_per_chunk.min(self.order.tokens - self.said);
        self.text.clear();
        self.draw(words);
        self.usage.clear();
        if self.order.continuous_usage {
            // Writing to memory does not fail.
            let _ = write!(self.usage, r#","usage":{}"#, self.usage());
        }
        let parts: [&[u8]; 5] = [
            &self.prefix,
            self.text.as_bytes(),
            &self.suffix,
            &self.usage,
            self.end,
        ];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(length + SIZE_LINE_BYTES);
        if self.chunked {
            // The line end after the chunk's data is not counted.
            size_line(length - 2, out);
        }
        for part in parts {
            out.extend_from_slice(part);
        }
    }

    /// What follows the last content event: the finish reason, usage if asked for, the API's own last words, and the end of the
    /// body.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        if self.order.api.has_choices() {
            self.close_choices(out);
        } else {
            self.text.clear();
            (self.random, self.said) = (self.order.seed, 0);
            self.draw(self.order.tokens);
            for (name, data) in self.order.api.closing(self.so_far(&self.text)) {
                self.event(name, &data, out);
            }
        }
        if self.chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn close_choices(&self, out: &mut Vec<u8>) {
        let choice = match self.order.api {
            Api::Chat => {
                json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"})
            }
            _ => json!({"index": 0, "text": "", "logprobs": null, "finish_reason": "length"}),
        };
        let usage = self.order.continuous_usage.then(|| self.usage());
        self.event("", &self.chunk(&json!([choice]), usage.as_ref()), out);
        if self.order.include_usage {
            self.event("", &self.chunk(&json!([]), Some(&self.usage())), out);
        }
        self.frame(14, out, |out| out.extend_from_slice(b"data: [DONE]\n\n"));
    }

    /// The whole reply of a request that does not stream, with its content type.
    pub(super) fn whole(&mut self) -> (&'static str, String) {
        let value = match self.order.answer.take() {
            Some(answer) => {
                self.said = self.order.tokens;
                answer
            }
            None => {
                self.text.clear();
                self.draw(self.order.tokens);
                if self.order.plain {
                    return (
                        "text/plain; charset=utf-8",
                        self.text.trim_start().to_owned(),
                    );
                }
                self.order.api.whole(self.so_far(&self.text))
            }
        };
        ("application/json", value.to_string())
    }

    /// Appends words to `text`.
    fn draw(&mut self, words: u32) {
        for _ in 0..words {
            let index = usize::try_from(random(&mut self.random) >> 58).unwrap_or(0);
            self.text.push_str(WORDS[index % WORDS.len()]);
        }
        self.said += words;
    }

    fn usage(&self) -> Value {
        wording::usage(self.so_far(""))
    }

    fn so_far<'a>(&'a self, text: &'a str) -> Said<'a> {
        Said {
            id: &self.id,
            created: self.created,
            model: &self.order.model,
            prompt_tokens: self.order.prompt_tokens,
            tokens: self.said,
            text,
        }
    }

    fn chunk(&self, choices: &Value, usage: Option<&Value>) -> Value {
        let object = match self.order.api {
            Api::Chat => "chat.completion.chunk",
            _ => "text_completion",
        };
        let mut chunk = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.order.model, "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage.clone();
        } else if self.order.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn event(&self, name: &str, data: &Value, out: &mut Vec<u8>) {
        let text = if name.is_empty() {
            format!("data: {data}\n\n")
        } else {
            format!("event: {name}\ndata: {data}\n\n")
        };
        self.frame(text.len(), out, |out| {
            out.extend_from_slice(text.as_bytes());
        });
    }

    fn frame(&self, length: usize, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.chunked {
            size_line(length, out);
        }
        fill(out);
        if self.chunked {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Longest line that [`size_line`] writes.
const SIZE_LINE_BYTES: usize = 2 * size_of::<usize>() + 2;

/// A chunk's size in hexadecimal digits, without zeros in front, and the line's end.
fn size_line(length: usize, out: &mut Vec<u8>) {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[length >> (4 * place) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

/// The next number of `SplitMix64`.
pub(super) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A reply that is not a stream.
pub(super) fn plain(
    status: u16,
    kind: &str,
    body: &[u8],
    keep_alive: bool,
    extra: &str,
    out: &mut Vec<u8>,
) {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    out.extend_from_slice(
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{extra}Connection: {connection}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
    );
    out.extend_from_slice(body);
}

/// An error in the API's shape.
pub(super) fn error(status: u16, message: &str, keep_alive: bool, extra: &str, out: &mut Vec<u8>) {
    let body = json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": status}});
    plain(
        status,
        "application/json",
        body.to_string().as_bytes(),
        keep_alive,
        extra,
        out,
    );
}
