//! What a simulated server says.
//!
//! In: an answer as a value. Out: timed pieces of bytes. Never: reads a request, or shares a line with `wire`.

use crate::clock::Nanos;

use super::chance::Chance;

/// How the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// Each piece is a chunk.
    Chunked,
    /// `Content-Length`.
    Length,
    /// `Content-Length` in HTTP/1.0 with `Connection: keep-alive`.
    OldLength,
    /// The end of the connection.
    Close,
    /// The end of the connection, in HTTP/1.0.
    OldClose,
}

/// What happens to an answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is given whole.
    Whole,
    /// All pieces of the body are given, the body never ends, and the connection stays open.
    Open,
    /// All is given, then close_notify, and the connection stays open below TLS.
    Notify,
    /// Nothing more comes after this many bytes.
    Stall(usize),
    /// The connection is reset after this many bytes.
    Reset(usize),
    /// The connection is closed in order after this many bytes.
    Close(usize),
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// 103 responses before it.
    pub interim: u32,
    /// How the body is delimited.
    pub delimiter: Delimiter,
    /// The connection serves further requests; without effect on a body that ends with the connection.
    pub keep_alive: bool,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Time from the request to the head.
    pub delay: Nanos,
    /// The body, each piece with the time since the one before.
    pub pieces: Vec<(Nanos, Vec<u8>)>,
    /// From the last piece to the end of the body.
    pub end_delay: Nanos,
    /// It comes byte by byte, so far apart.
    pub drip: Option<Nanos>,
    /// Bytes that answer nothing, straight after.
    pub surplus: Vec<u8>,
    /// Bytes after an orderly end, below TLS: those that follow close_notify.
    pub after_end: Vec<u8>,
    /// The head is no HTTP.
    pub garbage_head: bool,
    /// The size of the first chunk is no number.
    pub bad_chunk: bool,
    /// It is given once the request's head is there, before its body.
    pub early: bool,
    /// What happens to it.
    pub ending: Ending,
}

impl Answer {
    /// An event stream of `events` messages, `gap` apart, and `[DONE]`.
    #[must_use]
    pub fn stream(events: usize, gap: Nanos) -> Answer {
        let mut pieces: Vec<(Nanos, Vec<u8>)> = (0..events)
            .map(|event| (gap, format!("data: {{\"n\":{event}}}\n\n").into_bytes()))
            .collect();
        pieces.push((gap, b"data: [DONE]\n\n".to_vec()));
        Answer {
            status: 200,
            interim: 0,
            delimiter: Delimiter::Chunked,
            keep_alive: true,
            content_type: "text/event-stream",
            delay: gap,
            pieces,
            end_delay: Nanos(0),
            drip: None,
            surplus: Vec::new(),
            after_end: Vec::new(),
            garbage_head: false,
            bad_chunk: false,
            early: false,
            ending: Ending::Whole,
        }
    }

    /// A JSON body after `delay`.
    #[must_use]
    pub fn json(status: u16, body: &str, delay: Nanos) -> Answer {
        Answer {
            status,
            delimiter: Delimiter::Length,
            content_type: "application/json",
            delay,
            pieces: vec![(Nanos(0), body.as_bytes().to_vec())],
            ..Answer::stream(0, Nanos(0))
        }
    }

    /// Any right answer: each shape that a server may choose.
    #[must_use]
    pub fn random(chance: &mut Chance) -> Answer {
        let gap = Nanos(1 + chance.below(3_000_000));
        let mut answer = match chance.below(5) {
            0 => Answer::json(200, "{\"choices\":[]}", gap),
            1 => Answer::json(
                [400, 404, 429, 500, 503][chance.index(5)],
                "{\"error\":{}}",
                gap,
            ),
            _ => Answer::stream(chance.index(12), gap),
        };
        if answer.content_type == "text/event-stream" {
            for (gap, piece) in &mut answer.pieces {
                *gap = Nanos(chance.below(2_000_000) * chance.below(2));
                let end = piece.len();
                let (place, extra): (usize, &[u8]) = match chance.below(8) {
                    0 => (0, b": keep-alive\n\n"),
                    1 => (0, b"event: message\r\nid: 7\r\n"),
                    2 => (end, b"\r\n"),
                    _ => (end, b""),
                };
                piece.splice(place..place, extra.iter().copied());
            }
        }
        answer.interim = u32::try_from(chance.below(9).saturating_sub(6)).unwrap_or(0);
        answer.delimiter = match chance.below(9) {
            0 => Delimiter::Close,
            1 => Delimiter::OldClose,
            2 => Delimiter::OldLength,
            3 | 4 => Delimiter::Length,
            _ => Delimiter::Chunked,
        };
        answer.keep_alive = chance.below(5) > 0;
        answer
    }

    /// The body without its framing.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(|(_, piece)| piece.clone())
            .collect()
    }

    /// It is cut, and nothing but its text shows that: its body ends with the connection.
    #[must_use]
    pub fn ends_unseen(&self) -> bool {
        let until_close = matches!(self.delimiter, Delimiter::Close | Delimiter::OldClose);
        until_close && matches!(self.ending, Ending::Close(_))
    }

    /// The peer closes after it.
    pub(super) fn closes(&self) -> bool {
        !self.keep_alive || matches!(self.delimiter, Delimiter::Close | Delimiter::OldClose)
    }

    /// The bytes to be sent, with the time before each piece, up to where the ending cuts them.
    pub(super) fn render(&self) -> Vec<(Nanos, Vec<u8>)> {
        let mut pieces = vec![(self.delay, self.head())];
        for (place, (gap, body)) in self.pieces.iter().enumerate() {
            let mut piece = Vec::new();
            if self.delimiter != Delimiter::Chunked {
                piece.extend_from_slice(body);
            } else if !body.is_empty() {
                let size = if place == 0 && self.bad_chunk {
                    "zz".to_owned()
                } else {
                    format!("{:x}", body.len())
                };
                piece.extend_from_slice(size.as_bytes());
                piece.extend_from_slice(b"\r\n");
                piece.extend_from_slice(body);
                piece.extend_from_slice(b"\r\n");
            }
            pieces.push((*gap, piece));
        }
        let last = match self.delimiter == Delimiter::Chunked && self.ending != Ending::Open {
            true => b"0\r\n\r\n".to_vec(),
            false => Vec::new(),
        };
        pieces.push((self.end_delay, last));
        pieces.push((Nanos(0), self.surplus.clone()));
        if let Ending::Stall(most) | Ending::Reset(most) | Ending::Close(most) = self.ending {
            cut(&mut pieces, most);
        }
        pieces.retain(|(gap, piece)| *gap > Nanos(0) || !piece.is_empty());
        match self.drip {
            Some(apart) => pieces
                .into_iter()
                .flat_map(|piece| drop_by_drop(piece, apart))
                .collect(),
            None => pieces,
        }
    }

    /// Bytes of head and body with their framing, when nothing cuts them.
    #[must_use]
    pub fn wire_length(&self) -> usize {
        let whole = Answer {
            ending: Ending::Whole,
            ..self.clone()
        };
        whole.render().iter().map(|(_, piece)| piece.len()).sum()
    }

    fn head(&self) -> Vec<u8> {
        if self.garbage_head {
            return b"220 mail.example ESMTP\r\n".to_vec();
        }
        let mut head =
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(self.interim as usize);
        let old = matches!(self.delimiter, Delimiter::OldLength | Delimiter::OldClose);
        let version = if old { "1.0" } else { "1.1" };
        head += &format!("HTTP/{version} {} Answer\r\n", self.status);
        head += &format!("Content-Type: {}\r\n", self.content_type);
        match self.delimiter {
            Delimiter::Chunked => head += "Transfer-Encoding: chunked\r\n",
            Delimiter::Length | Delimiter::OldLength => {
                // An open body promises more than comes.
                let more = usize::from(self.ending == Ending::Open);
                head += &format!("Content-Length: {}\r\n", self.body().len() + more);
            }
            Delimiter::Close | Delimiter::OldClose => {}
        }
        if !self.keep_alive {
            head += "Connection: close\r\n";
        } else if self.delimiter == Delimiter::OldLength {
            head += "Connection: keep-alive\r\n";
        }
        (head + "\r\n").into_bytes()
    }
}

/// One byte after the other.
fn drop_by_drop((gap, piece): (Nanos, Vec<u8>), apart: Nanos) -> Vec<(Nanos, Vec<u8>)> {
    if piece.is_empty() {
        return vec![(gap, piece)];
    }
    let bytes = piece.into_iter().enumerate();
    bytes
        .map(|(place, byte)| (if place == 0 { gap } else { apart }, vec![byte]))
        .collect()
}

/// Keeps the first `most` bytes; the wait before the first piece stays in any case.
fn cut(pieces: &mut Vec<(Nanos, Vec<u8>)>, most: usize) {
    let mut left = most;
    for (_, piece) in pieces.iter_mut() {
        piece.truncate(left);
        left -= piece.len();
    }
    while pieces.len() > 1 && pieces.last().is_some_and(|(_, piece)| piece.is_empty()) {
        pieces.pop();
    }
}
