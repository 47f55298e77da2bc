//! One response on one connection.
//!
//! In: what each read brought. Out: the head's raw bytes, the decoded body, and where the response ends. Never: bytes beyond
//! [`Limits`], or a result that depends on how the reads cut the bytes.

use std::mem::offset_of;

use super::chunked::Chunked;
use super::coding::Decoder;
use super::head::{self, Head};
use super::{Fault, Framing, Limits, Step};

/// Stray line ends tolerated before a status line (RFC 9112 section 2.2 asks for tolerance, not for how much).
const LEADING_BYTES: usize = 16;

/// Every head starts so; anything else need not be waited for.
const PREFIX: &[u8] = b"HTTP/1.";

/// Where the next byte goes.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Into the head buffer.
    Head,
    /// Into the body; this many are left.
    Length(u64),
    /// Into the chunk decoder.
    Chunked(Chunked),
    /// Into the body.
    UntilClose,
    /// Nowhere: the response is whole.
    Done,
    /// Nowhere: the response is wrong.
    Wrong(Fault),
}

/// Push parser of a response. Re-usable: [`Response::reset`] keeps the head buffer's memory.
///
/// ```
/// use tokenring::wire::{Limits, Response, Step};
/// let (mut response, mut head_bytes, mut body) = (Response::new(Limits::default()), Vec::new(), Vec::new());
/// assert_eq!(response.feed(b"HTTP/1.1 200 OK\r\nContent-Le", &mut head_bytes, &mut body), Step::More);
/// assert_eq!(response.feed(b"ngth: 2\r\n\r\nok", &mut head_bytes, &mut body), Step::Done(13));
/// assert_eq!(body, b"ok");
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Response {
    // What every read needs stands first.
    state: State,
    received: u64,
    /// Takes the content coding off; there only where the head names one.
    decoder: Option<Box<Decoder>>,
    started: bool,
    limits: Limits,
    head: Option<Head>,
    /// Bytes of the head that is not complete yet.
    buffer: Vec<u8>,
    /// Stray line ends before the head.
    leading: usize,
    interim: usize,
    /// What came of a coded body in this read.
    coded: Vec<u8>,
}

impl Response {
    /// So many bytes of a parser serve every read of a body.
    pub(crate) const FRONT_BYTES: usize = offset_of!(Response, head);

    /// A parser that waits for the first byte.
    #[must_use]
    pub fn new(limits: Limits) -> Response {
        Response {
            state: State::Head,
            received: 0,
            decoder: None,
            started: false,
            limits,
            head: None,
            buffer: Vec::new(),
            leading: 0,
            interim: 0,
            coded: Vec::new(),
        }
    }

    /// Makes ready for the next response on the connection.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.buffer.clear();
        self.leading = 0;
        self.interim = 0;
        self.received = 0;
        self.started = false;
        self.head = None;
        self.decoder = None;
    }

    /// Feeds one read. Appends the final head's raw bytes (status line to blank line) to `head_bytes` and decoded body bytes to
    /// `body`. Done carries the bytes of `input` used when the response ended; what follows them is surplus. A fault is final
    /// until [`Response::reset`]; a fault in a head that could be read leaves its bytes in `head_bytes`.
    pub fn feed(
        &mut self,
        input: &[u8],
        head_bytes: &mut Vec<u8>,
        body: &mut Vec<u8>,
    ) -> Step<usize> {
        self.started |= !input.is_empty();
        let mut used = 0;
        if let State::Head = self.state {
            match self.feed_head(input, head_bytes) {
                Step::Done(bytes) => used = bytes,
                Step::More => return Step::More,
                Step::Wrong(fault) => return self.fail(fault),
            }
        }
        let rest = &input[used..];
        let step = if self.decoder.is_none() {
            self.feed_body(rest, body)
        } else {
            self.feed_coded(rest, body)
        };
        match step {
            Step::Done(bytes) => {
                self.state = State::Done;
                Step::Done(used + bytes)
            }
            Step::More => Step::More,
            Step::Wrong(fault) => self.fail(fault),
        }
    }

    /// The connection ended. Ok when the response is whole: it had ended before, or its body lasts until the close.
    pub fn eof(&mut self) -> Result<(), Fault> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                if let Some(Err(fault)) = self.decoder.as_ref().map(|decoder| decoder.finish()) {
                    self.state = State::Wrong(fault);
                    return Err(fault);
                }
                self.state = State::Done;
                Ok(())
            }
            State::Wrong(fault) => Err(fault),
            State::Head if !self.started => Err(Fault::ClosedBeforeResponse),
            State::Head | State::Length(_) | State::Chunked(_) => Err(Fault::Truncated),
        }
    }

    /// The final head, once it is complete. Also there after [`Fault::UnaskedEncoding`], so that the status is not lost.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Whether any byte came since the start or the last reset.
    #[must_use]
    pub fn started(&self) -> bool {
        self.started
    }

    fn fail<T>(&mut self, fault: Fault) -> Step<T> {
        self.state = State::Wrong(fault);
        Step::Wrong(fault)
    }

    /// Takes the framing off.
    #[inline]
    fn feed_body(&mut self, rest: &[u8], body: &mut Vec<u8>) -> Step<usize> {
        match &mut self.state {
            State::Head => Step::More,
            State::Length(left) => feed_length(left, rest, &mut self.received, body),
            State::Chunked(chunked) => chunked.feed(rest, &self.limits, &mut self.received, body),
            State::UntilClose => feed_until_close(rest, &self.limits, &mut self.received, body),
            State::Done => Step::Done(0),
            State::Wrong(fault) => Step::Wrong(*fault),
        }
    }

    /// Takes the framing off, and then the coding.
    #[cold]
    fn feed_coded(&mut self, rest: &[u8], body: &mut Vec<u8>) -> Step<usize> {
        if matches!(self.state, State::Done | State::Wrong(_)) {
            return self.feed_body(rest, body);
        }
        let mut coded = std::mem::take(&mut self.coded);
        coded.clear();
        let mut step = self.feed_body(rest, &mut coded);
        if let Some(decoder) = &mut self.decoder {
            // A fault of the coding comes first in the stream: the framing's is behind all that it let through.
            if let Err(fault) = decoder.feed(&coded, &self.limits, body) {
                step = Step::Wrong(fault);
            } else if let (Step::Done(_), Err(fault)) = (step, decoder.finish()) {
                step = Step::Wrong(fault);
            }
        }
        self.coded = coded;
        step
    }

    /// Collects heads until the final one is complete; Done carries the bytes used.
    fn feed_head(&mut self, input: &[u8], head_bytes: &mut Vec<u8>) -> Step<usize> {
        let mut at = 0;
        while at < input.len() {
            if self.buffer.is_empty() && matches!(input[at], b'\r' | b'\n') {
                self.leading += 1;
                if self.leading > LEADING_BYTES {
                    return Step::Wrong(Fault::BadHead);
                }
                at += 1;
                continue;
            }
            let room = self.limits.head_bytes - self.buffer.len();
            let line =
                memchr::memchr(b'\n', &input[at..]).map_or(input.len() - at, |index| index + 1);
            let take = line.min(room);
            self.buffer.extend_from_slice(&input[at..at + take]);
            at += take;
            let compared = self.buffer.len().min(PREFIX.len());
            if self.buffer[..compared] != PREFIX[..compared] {
                return Step::Wrong(Fault::BadHead);
            }
            if take < line {
                return Step::Wrong(Fault::HeadTooLarge);
            }
            if !(self.buffer.ends_with(b"\n\r\n") || self.buffer.ends_with(b"\n\n")) {
                continue;
            }
            match self.finish_head(head_bytes) {
                Step::Done(()) => return Step::Done(at),
                Step::More => {}
                Step::Wrong(fault) => return Step::Wrong(fault),
            }
        }
        Step::More
    }

    /// Reads a complete head. More: it was an interim one.
    fn finish_head(&mut self, head_bytes: &mut Vec<u8>) -> Step<()> {
        let parsed = match head::parse(&self.buffer, self.limits.header_count) {
            Ok(parsed) => parsed,
            Err(fault) => return Step::Wrong(fault),
        };
        if parsed.status() == 101 {
            head_bytes.extend_from_slice(&self.buffer);
            return Step::Wrong(Fault::UnaskedUpgrade);
        }
        if parsed.status() < 200 {
            self.interim += 1;
            self.leading = 0;
            self.buffer.clear();
            if self.interim > self.limits.interim_count {
                return Step::Wrong(Fault::TooManyInterim);
            }
            return Step::More;
        }
        head_bytes.extend_from_slice(&self.buffer);
        let head = match parsed.head() {
            Ok(head) => head,
            Err(fault) => return Step::Wrong(fault),
        };
        self.head = Some(head);
        if parsed.is_unreadable() {
            return Step::Wrong(Fault::UnaskedEncoding);
        }
        self.decoder = head.coding.map(Decoder::new);
        self.buffer.clear();
        self.state = match head.framing {
            Framing::Empty => State::Length(0),
            Framing::Length(length) if length > self.limits.body_bytes as u64 => {
                return Step::Wrong(Fault::BodyTooLarge);
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunked::START),
            Framing::UntilClose => State::UntilClose,
        };
        Step::Done(())
    }
}

/// Copies up to what is left of the length.
fn feed_length(left: &mut u64, rest: &[u8], received: &mut u64, body: &mut Vec<u8>) -> Step<usize> {
    let take = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
    body.extend_from_slice(&rest[..take]);
    *received += take as u64;
    *left -= take as u64;
    if *left == 0 {
        Step::Done(take)
    } else {
        Step::More
    }
}

/// Copies up to the limit.
fn feed_until_close(
    rest: &[u8],
    limits: &Limits,
    received: &mut u64,
    body: &mut Vec<u8>,
) -> Step<usize> {
    let room = (limits.body_bytes as u64).saturating_sub(*received);
    let take = usize::try_from(room).map_or(rest.len(), |room| room.min(rest.len()));
    body.extend_from_slice(&rest[..take]);
    *received += take as u64;
    if take < rest.len() {
        Step::Wrong(Fault::BodyTooLarge)
    } else {
        Step::More
    }
}
