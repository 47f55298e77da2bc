//! The codings that hold deflate: gzip and zlib, and deflate alone.
//!
//! In: a coded body, cut anywhere. Out: plain bytes. Never: believes a gzip member whose length or checksum differs.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::Fault;
use super::coding::Sink;

/// Most bytes of one gzip header; names and comments have no bound of their own.
const HEADER_BYTES: usize = 64 << 10;

/// Which optional parts follow a gzip header's ten bytes.
const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

/// Where in a gzip member the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the ten bytes that each header has; this many have come.
    Fixed(u8),
    /// In the length of the extra field; one byte of it, if it has come.
    ExtraLength(Option<u8>),
    /// In the extra field; this many bytes are left.
    Extra(u16),
    Name,
    Comment,
    /// In the header's checksum; this many bytes are left.
    HeaderCrc(u8),
    Data,
    /// In the checksum and the length; this many bytes have come.
    Trailer(usize),
    /// Behind a member; another may follow.
    End,
}

/// `gzip`: members behind each other.
pub(super) struct Gzip {
    place: Place,
    /// Parts of this header that are still to come.
    parts: u8,
    header_bytes: usize,
    inflate: Decompress,
    crc: Crc,
    trailer: [u8; 8],
}

impl Gzip {
    pub(super) fn new() -> Gzip {
        Gzip {
            place: Place::Fixed(0),
            parts: 0,
            header_bytes: 0,
            inflate: Decompress::new(false),
            crc: Crc::new(),
            trailer: [0; 8],
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.place == Place::End
    }

    pub(super) fn feed(&mut self, mut input: &[u8], sink: &mut Sink<'_>) -> Result<(), Fault> {
        while let Some((&byte, rest)) = input.split_first() {
            match self.place {
                Place::Data => {
                    let crc = &mut self.crc;
                    let (used, ended) =
                        inflate(&mut self.inflate, input, sink, |plain| crc.update(plain))?;
                    input = &input[used..];
                    if ended {
                        self.place = Place::Trailer(0);
                    }
                }
                Place::Trailer(count) => {
                    self.trailer[count] = byte;
                    self.place = Place::Trailer(count + 1);
                    if count + 1 == self.trailer.len() {
                        self.check()?;
                        self.place = Place::End;
                    }
                    sink.made(1, 0)?;
                    input = rest;
                }
                Place::End => {
                    self.inflate.reset(false);
                    self.crc.reset();
                    self.header_bytes = 0;
                    self.place = Place::Fixed(0);
                }
                _ => {
                    self.header(byte)?;
                    sink.made(1, 0)?;
                    input = rest;
                }
            }
        }
        Ok(())
    }

    fn header(&mut self, byte: u8) -> Result<(), Fault> {
        self.header_bytes += 1;
        if self.header_bytes > HEADER_BYTES {
            return Err(Fault::BadEncoding);
        }
        self.place = match self.place {
            Place::Fixed(count) => {
                let right = match count {
                    0 => byte == 0x1f,
                    1 => byte == 0x8b,
                    2 => byte == 8,
                    3 => byte & RESERVED == 0,
                    _ => true,
                };
                if !right {
                    return Err(Fault::BadEncoding);
                }
                if count == 3 {
                    self.parts = byte;
                }
                if count == 9 {
                    self.next_part()
                } else {
                    Place::Fixed(count + 1)
                }
            }
            Place::ExtraLength(None) => Place::ExtraLength(Some(byte)),
            Place::ExtraLength(Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => self.next_part(),
                length => Place::Extra(length),
            },
            Place::Extra(left) if left > 1 => Place::Extra(left - 1),
            Place::HeaderCrc(left) if left > 1 => Place::HeaderCrc(left - 1),
            place @ (Place::Name | Place::Comment) if byte != 0 => place,
            _ => self.next_part(),
        };
        Ok(())
    }

    /// The next part of the header that it says it has, in the order of RFC 1952.
    fn next_part(&mut self) -> Place {
        let parts = [
            (EXTRA, Place::ExtraLength(None)),
            (NAME, Place::Name),
            (COMMENT, Place::Comment),
            (HEADER_CRC, Place::HeaderCrc(2)),
        ];
        for (part, place) in parts {
            if self.parts & part != 0 {
                self.parts &= !part;
                return place;
            }
        }
        Place::Data
    }

    fn check(&self) -> Result<(), Fault> {
        let said = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
        let (crc, length) = self.trailer.split_at(4);
        if said(crc) == self.crc.sum() && said(length) == self.crc.amount() {
            Ok(())
        } else {
            Err(Fault::BadEncoding)
        }
    }
}

/// `deflate`: zlib as the standard has it, or bare.
pub(super) struct Deflate {
    /// The first byte, until the second shows what they begin.
    first: Option<u8>,
    /// Known from the second byte on.
    inflate: Option<Decompress>,
    ended: bool,
}

impl Deflate {
    pub(super) fn new() -> Deflate {
        Deflate {
            first: None,
            inflate: None,
            ended: false,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.ended
    }

    pub(super) fn feed(&mut self, mut input: &[u8], sink: &mut Sink<'_>) -> Result<(), Fault> {
        if self.inflate.is_none() {
            let first = match self.first {
                Some(first) => first,
                None => {
                    let Some((&first, rest)) = input.split_first() else {
                        return Ok(());
                    };
                    self.first = Some(first);
                    input = rest;
                    first
                }
            };
            let Some(&second) = input.first() else {
                return Ok(());
            };
            // RFC 1950: method 8, and the two bytes as a number are a multiple of 31.
            let number = u16::from_be_bytes([first, second]);
            let zlib = first & 0x0f == 8 && number.is_multiple_of(31);
            let inflate = self.inflate.insert(Decompress::new(zlib));
            let (_, ended) = self::inflate(inflate, &[first], sink, |_| {})?;
            self.ended = ended;
        }
        let Some(inflate) = &mut self.inflate else {
            return Ok(());
        };
        if !self.ended {
            let (used, ended) = self::inflate(inflate, input, sink, |_| {})?;
            self.ended = ended;
            input = &input[used..];
        }
        if input.is_empty() {
            Ok(())
        } else {
            Err(Fault::BadEncoding)
        }
    }
}

/// Unpacks `input` as far as it goes; says how much of it was used and whether the data ended there. `each` sees what was unpacked.
fn inflate(
    inner: &mut Decompress,
    input: &[u8],
    sink: &mut Sink<'_>,
    mut each: impl FnMut(&[u8]),
) -> Result<(usize, bool), Fault> {
    let mut used = 0;
    loop {
        let (taken, told) = (inner.total_in(), inner.total_out());
        let status = inner.decompress(&input[used..], sink.room(), FlushDecompress::None);
        let step = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
        let (took, made) = (step(inner.total_in(), taken), step(inner.total_out(), told));
        used += took;
        each(sink.filled(made));
        let full = made == sink.room().len();
        sink.made(took, made)?;
        match status {
            Ok(Status::StreamEnd) => return Ok((used, true)),
            Err(_) => return Err(Fault::BadEncoding),
            // What filled the room may have left something behind.
            Ok(_) if full => {}
            Ok(_) if used == input.len() => return Ok((used, false)),
            Ok(_) if took == 0 && made == 0 => return Err(Fault::BadEncoding),
            Ok(_) => {}
        }
    }
}
