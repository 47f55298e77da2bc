//! The job as crates.io does it: httparse for head and chunk sizes, eventsource-stream for the events, serde_json for their data.
//!
//! In: a reply's reads. Out: what was found in them. Never: a runtime, or a copy that these crates do not make.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use eventsource_stream::Eventsource;
use futures_core::Stream;
use serde::Deserialize;

use crate::Work;
use crate::input::Input;

/// Finds the events.
pub(crate) fn scan(input: &Input, replies: u64) -> Work {
    let mut work = Work::default();
    for _ in 0..replies {
        // The line that names the data and the line ends are not part of it: 6 + 1 + 1 bytes less each.
        work.checksum = 0;
        work.events += events(&input.reads(), |data| {
            work.checksum += data.len() as u64 + 8;
        });
    }
    work
}

/// Finds the events and reads what they say.
pub(crate) fn parse(input: &Input, replies: u64) -> Work {
    let mut work = Work::default();
    for _ in 0..replies {
        let mut text = String::new();
        let mut said = 0;
        let mut usage = None;
        work.events += events(&input.reads(), |data| {
            if data == "[DONE]" {
                return;
            }
            let chunk: Chunk = serde_json::from_str(data).expect("a chunk");
            usage = chunk.usage.or(usage.take());
            let content = chunk
                .choices
                .into_iter()
                .next()
                .and_then(|c| c.delta.content);
            if let Some(content) = content.filter(|content| !content.is_empty()) {
                said += 1;
                text.push_str(&content);
            }
        });
        assert!(usage.is_some_and(|u| u.completion_tokens > 0) && !text.is_empty());
        work.checksum = said;
    }
    work
}

/// The parts of a chunk that a client reads.
#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// Shows the data of each event of one reply; says how many there were.
fn events(reads: &[&[u8]], mut show: impl FnMut(&str)) -> u64 {
    let body = Body {
        reads: reads.iter().copied(),
        read: &[],
        in_body: false,
        left: 0,
    };
    let mut stream = pin!(body.eventsource());
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    // Every byte is there already, so that the stream is never pending.
    while let Poll::Ready(Some(event)) = stream.as_mut().poll_next(&mut context) {
        show(&event.expect("the stream is sound").data);
        count += 1;
    }
    count
}

/// The body's pieces, borrowed from the reads, which are cut between chunks.
struct Body<'a, I> {
    reads: I,
    read: &'a [u8],
    in_body: bool,
    /// Bytes of the open chunk, its line end included.
    left: usize,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Body<'a, I> {
    fn next_piece(&mut self) -> Option<&'a [u8]> {
        loop {
            if self.read.is_empty() {
                self.read = self.reads.next()?;
            }
            if !self.in_body {
                let mut headers = [httparse::EMPTY_HEADER; 64];
                let mut head = httparse::Response::new(&mut headers);
                let status = head.parse(self.read).expect("a head");
                let httparse::Status::Complete(length) = status else {
                    panic!("the first read brings the head");
                };
                self.in_body = true;
                self.read = &self.read[length..];
                continue;
            }
            if self.left == 0 {
                let status = httparse::parse_chunk_size(self.read).expect("a chunk size");
                let httparse::Status::Complete((line, size)) = status else {
                    panic!("no read ends within a chunk size");
                };
                if size == 0 {
                    return None;
                }
                self.read = &self.read[line..];
                self.left = usize::try_from(size).expect("a small chunk");
            }
            let take = self.left.min(self.read.len());
            let piece = &self.read[..take];
            self.left -= take;
            self.read = &self.read[take..];
            if self.left == 0 {
                self.read = self.read.strip_prefix(b"\r\n").expect("the chunk's end");
            }
            return Some(piece);
        }
    }
}

impl<'a, I: Iterator<Item = &'a [u8]> + Unpin> Stream for Body<'a, I> {
    type Item = Result<&'a [u8], Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.get_mut().next_piece().map(Ok))
    }
}
