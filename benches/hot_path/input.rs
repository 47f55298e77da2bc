//! A reply as a real server sent it, made longer.
//!
//! In: a captured stream of vLLM. Out: the same head, first and last chunks, with its content chunks between them again and again, cut
//! in reads. Never: an event that no server sent.

use crate::replay;

/// Content events of the reply.
const CONTENT_EVENTS: usize = 300;

/// The captured stream.
const CAPTURED: &[u8] = include_bytes!("../../tests/wire/captured/vllm-chat-stream-usage.resp");

/// Content chunks in it: those between the one with the role and the three that end it.
const CONTENT: std::ops::Range<usize> = 1..12;

/// One reply, cut in reads.
pub(crate) struct Input {
    bytes: Vec<u8>,
    events_a_read: usize,
}

impl Input {
    /// A reply of which each read brings `events_a_read` events, each event in a chunk of its own.
    pub(crate) fn new(events_a_read: usize) -> Input {
        let text = String::from_utf8_lossy(CAPTURED);
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        // As captured the server closes each connection; without that header it keeps them.
        let head = head.replacen("connection: close", "x-nothing: close", 1);
        // An event ends with two line feeds, and the chunk with the next line end.
        let chunks: Vec<&str> = body.split_inclusive("\n\n\r\n").collect();
        // The little model said nothing with some of its tokens.
        let content: Vec<&str> = chunks[CONTENT]
            .iter()
            .copied()
            .filter(|chunk| !chunk.contains(r#""content":"""#))
            .collect();
        let mut long = format!("{head}\r\n\r\n{}", chunks[0]);
        long.extend(content.iter().cycle().take(CONTENT_EVENTS).copied());
        long.extend(chunks[CONTENT.end..].iter().copied());
        Input {
            bytes: long.into_bytes(),
            events_a_read,
        }
    }

    /// Its reads, in order.
    pub(crate) fn reads(&self) -> Vec<&[u8]> {
        replay::reads(&self.bytes, self.events_a_read)
    }
}
