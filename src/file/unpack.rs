//! Plain text out of what a file holds.
//!
//! In: bytes, compressed or not, with or without a byte order mark. Out: bytes that are meant to be UTF-8, or why there are none. Never:
//! trusts a file's name; its first bytes say what it is.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Source, Trouble};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Beginnings of files that hold no text.
const OTHERS: &[(&[u8], &str)] = &[
    (
        b"PAR1",
        "is a Parquet file, as AIPerf's baseten_trace is; convert it to a mooncake_trace JSONL file",
    ),
    (
        b"ARRO",
        "is an Arrow file, as AIPerf's baseten_trace may be; convert it to a mooncake_trace JSONL file",
    ),
    (b"PK\x03\x04", "is a zip file; unpack it, or use gzip"),
    (
        b"BZh",
        "is packed with bzip2; unpack it, or use gzip or zstd",
    ),
    (
        b"\xfd7zX",
        "is packed with xz; unpack it, or use gzip or zstd",
    ),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
];
const UTF_16: &str = "is UTF-16; save it as UTF-8";

/// A file that begins with `head` is packed.
pub(super) fn is_packed(head: &[u8]) -> bool {
    head.starts_with(GZIP) || head.starts_with(ZSTD)
}

/// The text of `bytes`.
pub(super) fn plain(bytes: Source) -> Result<Source, Trouble> {
    let (head, bytes) = peek(bytes)?;
    let bytes = if head.starts_with(GZIP) {
        Packed::source("gzip", bytes, |counted| {
            Box::new(MultiGzDecoder::new(counted))
        })
    } else if head.starts_with(ZSTD) {
        Packed::source("zstd", bytes, |counted| Box::new(Frames::new(counted)))
    } else {
        bytes
    };
    let (head, mut bytes) = peek(bytes)?;
    if head.starts_with(BYTE_ORDER_MARK) {
        bytes.consume(BYTE_ORDER_MARK.len());
    }
    let other = OTHERS.iter().find(|(begin, _)| head.starts_with(begin));
    // Without a mark UTF-16 shows by the other half of its first letter.
    let half = matches!(head.as_slice(), [0, 1..=255, ..] | [1..=255, 0, ..]);
    match other {
        Some((_, reason)) => Err(broken(1, (*reason).to_owned())),
        None if half => Err(broken(1, UTF_16.to_owned())),
        None => Ok(bytes),
    }
}

/// The first four bytes, or as many as there are; they stay in the stream.
fn peek(mut bytes: Source) -> Result<(Vec<u8>, Source), Trouble> {
    let mut head = Vec::with_capacity(4);
    (&mut bytes)
        .take(4)
        .read_to_end(&mut head)
        .map_err(|error| trouble(error, 1))?;
    let again = Cursor::new(head.clone()).chain(bytes);
    Ok((head, Box::new(again)))
}

/// An error of a reader, at `line` of its text.
pub(super) fn trouble(error: io::Error, line: u64) -> Trouble {
    match error.kind() {
        io::ErrorKind::InvalidData => broken(line, error.to_string()),
        _ => Trouble::Unreadable(error),
    }
}

fn broken(line: u64, reason: String) -> Trouble {
    Trouble::Broken { line, reason }
}

/// What is wrong with the bytes themselves, as a reader says it.
pub(super) fn spoiled(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A decoder whose errors name the format and the place.
struct Packed {
    format: &'static str,
    decoder: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Packed {
    fn source(
        format: &'static str,
        bytes: Source,
        decoder: impl FnOnce(Counted) -> Box<dyn Read + Send>,
    ) -> Source {
        let taken = Arc::default();
        let counted = Counted {
            bytes,
            taken: Arc::clone(&taken),
        };
        let packed = Packed {
            format,
            decoder: decoder(counted),
            taken,
        };
        Box::new(BufReader::with_capacity(1 << 16, packed))
    }
}

impl Read for Packed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(into).map_err(|error| {
            let (format, byte) = (self.format, self.taken.load(Ordering::Relaxed));
            spoiled(format!(
                "broken {format} data at byte {byte} of the file: {error}"
            ))
        })
    }
}

/// Counts what is taken out of a stream.
struct Counted {
    bytes: Source,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(into)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.bytes.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        self.bytes.consume(count);
    }
}

/// The text of zstd frames behind each other, as several runs of the packer leave them.
struct Frames {
    bytes: Counted,
    decoder: FrameDecoder,
    /// Inside a frame.
    open: bool,
}

impl Frames {
    fn new(bytes: Counted) -> Frames {
        Frames {
            bytes,
            decoder: FrameDecoder::new(),
            open: false,
        }
    }

    /// Begins the next frame; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.bytes.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.bytes) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.bytes).take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl Read for Frames {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.open {
                self.open = self.begin()?;
                if !self.open {
                    return Ok(0);
                }
            }
            let decoder = &mut self.decoder;
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                decoder
                    .decode_blocks(&mut self.bytes, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let count = decoder.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            let said = decoder.get_checksum_from_data();
            if said.is_some() && said != decoder.get_calculated_checksum() {
                return Err(io::Error::other("the checksum does not fit"));
            }
            self.open = false;
        }
    }
}
