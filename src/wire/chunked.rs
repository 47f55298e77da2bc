//! Decoder of the chunked transfer coding (RFC 9112 section 7.1).
//!
//! In: bytes after the head, cut anywhere. Out: body bytes and where the body ends. Never: keeps a byte, or trusts a size
//! before it has checked it.

use super::{Fault, Limits, Step};

/// Where in the coding the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the digits of a chunk size; true once there was one.
    Size(bool),
    /// After the digits, in blanks before `;` or the line end.
    Blank,
    /// In a chunk extension. Quoting does not matter: neither form may hold CR or LF.
    Extension,
    /// After the CR of a chunk-size line.
    SizeLineFeed,
    /// In chunk data.
    Data,
    /// After chunk data.
    DataEnd,
    /// After the CR behind chunk data.
    DataLineFeed,
    /// In the trailer section.
    Trailer(TrailerPlace),
}

/// Where in the trailer section the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerPlace {
    /// First byte of a line.
    LineStart,
    /// In a field name, before the colon.
    Name,
    /// In a field value or a folded line.
    Value,
    /// After the CR of a field line.
    LineFeed,
    /// After the CR of the empty line.
    LastLineFeed,
}

/// Push decoder; a fault is final.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    place: Place,
    /// Size while it is read, then what is left of the chunk.
    left: u64,
    /// Bytes of the chunk-size line, or of the trailer section, so far.
    used: usize,
}

impl Chunked {
    /// Before the first chunk.
    pub(super) const START: Chunked = Chunked {
        place: Place::Size(false),
        left: 0,
        used: 0,
    };

    /// Feeds one piece; `received` counts body bytes over the whole response. Done carries the bytes of `input` used.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        limits: &Limits,
        received: &mut u64,
        body: &mut Vec<u8>,
    ) -> Step<usize> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let usual = self.usual(rest, limits, *received);
            if usual > 0 {
                at += usual;
                continue;
            }
            let step = match self.place {
                Place::Data => {
                    at += self.data(rest, received, body);
                    continue;
                }
                Place::Trailer(place) => {
                    at += 1;
                    self.trailer(place, rest[0], limits)
                }
                Place::Extension => {
                    let end = memchr::memchr2(b'\r', b'\n', rest);
                    let skipped = end.unwrap_or(rest.len());
                    self.used = self.used.saturating_add(skipped);
                    at += skipped;
                    if self.used > limits.chunk_line_bytes {
                        return Step::Wrong(Fault::BadChunkSize);
                    }
                    match end {
                        Some(index) => {
                            at += 1;
                            self.size_line(rest[index], limits, *received)
                        }
                        None => return Step::More,
                    }
                }
                Place::DataEnd | Place::DataLineFeed => {
                    at += 1;
                    self.data_end(rest[0])
                }
                Place::Size(_) | Place::Blank | Place::SizeLineFeed => {
                    at += 1;
                    self.size_line(rest[0], limits, *received)
                }
            };
            match step {
                Step::More => {}
                Step::Done(()) => return Step::Done(at),
                Step::Wrong(fault) => return Step::Wrong(fault),
            }
        }
        Step::More
    }

    /// What nearly always stands between the data of two chunks, taken at once: a line end, and a line of a few digits. Says how many bytes
    /// that was; 0 where it is not at hand whole, or is anything else.
    #[inline]
    fn usual(&mut self, rest: &[u8], limits: &Limits, received: u64) -> usize {
        match self.place {
            Place::DataEnd if rest.starts_with(b"\r\n") => {
                self.place = Place::Size(false);
                2
            }
            Place::Size(false) => match usual_size_line(rest) {
                Some((size, length))
                    if length <= limits.chunk_line_bytes
                        && received.saturating_add(size) <= limits.body_bytes as u64 =>
                {
                    self.left = size;
                    self.place = Place::Data;
                    length
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Copies chunk data; says how much.
    fn data(&mut self, rest: &[u8], received: &mut u64, body: &mut Vec<u8>) -> usize {
        let take = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
        body.extend_from_slice(&rest[..take]);
        *received += take as u64;
        self.left -= take as u64;
        if self.left == 0 {
            self.place = Place::DataEnd;
        }
        take
    }

    /// One byte of a chunk-size line.
    fn size_line(&mut self, byte: u8, limits: &Limits, received: u64) -> Step<()> {
        self.used = self.used.saturating_add(1);
        if self.used > limits.chunk_line_bytes {
            return Step::Wrong(Fault::BadChunkSize);
        }
        match (self.place, byte) {
            (Place::Size(_), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.left >> 60 != 0 {
                    return Step::Wrong(Fault::BadChunkSize);
                }
                // The pattern above admits only hexadecimal digits: a letter's low four bits are 1..=6.
                let digit = if byte.is_ascii_digit() {
                    byte - b'0'
                } else {
                    (byte & 0x0f) + 9
                };
                self.left = self.left << 4 | u64::from(digit);
                self.place = Place::Size(true);
                Step::More
            }
            (Place::Size(true) | Place::Blank, b' ' | b'\t') => {
                self.place = Place::Blank;
                Step::More
            }
            (Place::Size(true) | Place::Blank, b';') => {
                self.place = Place::Extension;
                Step::More
            }
            (Place::Size(true) | Place::Blank | Place::Extension, b'\r') => {
                self.place = Place::SizeLineFeed;
                Step::More
            }
            (Place::Size(true) | Place::Blank | Place::Extension | Place::SizeLineFeed, b'\n') => {
                self.used = 0;
                if self.left == 0 {
                    self.place = Place::Trailer(TrailerPlace::LineStart);
                } else if received.saturating_add(self.left) > limits.body_bytes as u64 {
                    return Step::Wrong(Fault::BodyTooLarge);
                } else {
                    self.place = Place::Data;
                }
                Step::More
            }
            _ => Step::Wrong(Fault::BadChunkSize),
        }
    }

    /// One byte of the line end behind chunk data.
    fn data_end(&mut self, byte: u8) -> Step<()> {
        match (self.place, byte) {
            (Place::DataEnd, b'\r') => self.place = Place::DataLineFeed,
            (_, b'\n') => self.place = Place::Size(false),
            _ => return Step::Wrong(Fault::BadChunkEnd),
        }
        Step::More
    }

    /// One byte of the trailer section.
    fn trailer(&mut self, place: TrailerPlace, byte: u8, limits: &Limits) -> Step<()> {
        self.used = self.used.saturating_add(1);
        if self.used > limits.trailer_bytes {
            return Step::Wrong(Fault::BadTrailer);
        }
        let next = match (place, byte) {
            (TrailerPlace::LineStart | TrailerPlace::LastLineFeed, b'\n') => return Step::Done(()),
            (TrailerPlace::LineStart, b'\r') => TrailerPlace::LastLineFeed,
            (TrailerPlace::LineStart, b' ' | b'\t') | (TrailerPlace::Name, b':') => {
                TrailerPlace::Value
            }
            (TrailerPlace::LineStart | TrailerPlace::Name, byte) if is_token(byte) => {
                TrailerPlace::Name
            }
            (TrailerPlace::Value, b'\r') => TrailerPlace::LineFeed,
            (TrailerPlace::Value | TrailerPlace::LineFeed, b'\n') => TrailerPlace::LineStart,
            (TrailerPlace::Value, byte) if byte != 0 => TrailerPlace::Value,
            _ => return Step::Wrong(Fault::BadTrailer),
        };
        self.place = Place::Trailer(next);
        Step::More
    }
}

/// The size that a chunk-size line of one to seven digits and CR LF says, and how long the line is. None for any other line, and for a size
/// of 0, which ends the body.
#[inline]
fn usual_size_line(rest: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    for (index, &byte) in rest.iter().take(8).enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if size > 0 && rest.get(index + 1) == Some(&b'\n') => {
                return Some((size, index + 2));
            }
            _ => return None,
        };
        size = size << 4 | u64::from(digit);
    }
    None
}

/// A byte of a field name (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
