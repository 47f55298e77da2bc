//! `zstd` (RFC 8878), block by block.
//!
//! In: a coded body, cut anywhere. Out: the plain bytes of each block as soon as it is whole. Never: waits for the end of a frame.
//!
//! The decoder holds back a whole window of plain text until its frame ends, which a reply may do minutes later. So blocks are cut out
//! here, and after each the decoder is told in passing that the frame has ended (an empty last block; it goes on with the next block all
//! the same). Then it shows all that it holds to a writer that looks at it and takes nothing, so that later blocks can refer to it.

use std::io::{self, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::Fault;
use super::coding::Sink;

const MAGIC: u32 = 0xfd2f_b528;
/// Frames with these magic numbers hold nothing; the last four bits differ.
const SKIPPED: u32 = 0x184d_2a50;
/// An empty raw block that is the last of its frame, and a checksum for frames that have one.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
/// Largest window in HTTP (RFC 9659).
const WINDOW_BYTES: u64 = 8 << 20;
/// Largest block.
const BLOCK_BYTES: usize = 128 << 10;
/// Bytes of a block header, and of a checksum.
const BLOCK_HEADER: usize = 3;
const CHECKSUM: usize = 4;

/// What the bytes that are collected will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before or in a frame header.
    Header,
    /// In the length of a frame that is skipped; its magic number has come.
    SkippedLength,
    /// In a frame that is skipped.
    Skip(u32),
    /// In a block header or its block.
    Block,
    /// In the checksum behind the last block.
    Checksum,
}

/// Frames behind each other.
pub(super) struct Zstd {
    place: Place,
    /// A header, or a block with its header, as far as it has come.
    held: Vec<u8>,
    decoder: FrameDecoder,
    has_checksum: bool,
    /// Plain bytes of this frame that were told.
    told: usize,
    /// A frame has ended.
    any: bool,
}

impl Zstd {
    pub(super) fn new() -> Zstd {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES);
        Zstd {
            place: Place::Header,
            held: Vec::new(),
            decoder,
            has_checksum: false,
            told: 0,
            any: false,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.any && self.place == Place::Header && self.held.is_empty()
    }

    pub(super) fn feed(&mut self, mut input: &[u8], sink: &mut Sink<'_>) -> Result<(), Fault> {
        loop {
            if let Place::Skip(left) = self.place {
                let skip = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                input = &input[skip..];
                let left = left - u32::try_from(skip).unwrap_or(left);
                self.place = Place::Skip(left);
                sink.made(skip, 0)?;
                if left > 0 {
                    return Ok(());
                }
                self.any = true;
                self.place = Place::Header;
            }
            // What is needed grows as more is known: first a length, then what has that length.
            let needed = self.needed()?;
            let take = needed.saturating_sub(self.held.len()).min(input.len());
            self.held.extend_from_slice(&input[..take]);
            input = &input[take..];
            if self.held.len() < needed {
                return Ok(());
            }
            if self.needed()? == needed {
                self.take(sink)?;
                self.held.clear();
            }
        }
    }

    /// Bytes of what is being collected, as far as what is held tells.
    fn needed(&self) -> Result<usize, Fault> {
        let held = &self.held[..];
        match self.place {
            Place::Header => match *held {
                [a, b, c, d, descriptor, ..] if u32::from_le_bytes([a, b, c, d]) == MAGIC => {
                    Ok(header_bytes(descriptor))
                }
                [a, b, c, d, ..] => match u32::from_le_bytes([a, b, c, d]) {
                    MAGIC => Ok(5),
                    other if other & !0xf == SKIPPED => Ok(4),
                    _ => Err(Fault::BadEncoding),
                },
                _ => Ok(4),
            },
            Place::Block => match *held {
                [a, b, c, ..] => {
                    let header = u32::from_le_bytes([a, b, c, 0]);
                    let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
                    // Of a block that repeats one byte, the size is that of what it becomes.
                    let size = match header >> 1 & 3 {
                        3 => return Err(Fault::BadEncoding),
                        1 => 1,
                        _ => size,
                    };
                    if size > BLOCK_BYTES {
                        return Err(Fault::BadEncoding);
                    }
                    Ok(BLOCK_HEADER + size)
                }
                _ => Ok(BLOCK_HEADER),
            },
            Place::SkippedLength | Place::Checksum => Ok(CHECKSUM),
            Place::Skip(_) => Ok(0),
        }
    }

    /// Takes what was collected whole.
    fn take(&mut self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        let held = &self.held[..];
        match (self.place, held) {
            (Place::Header, [_, _, _, _, descriptor, ..]) => {
                self.has_checksum = descriptor & 4 != 0;
                self.told = 0;
                let begun = self.decoder.reset(held);
                begun.map_err(|_| Fault::BadEncoding)?;
                self.place = Place::Block;
                sink.made(held.len(), 0)
            }
            (Place::Header, _) => {
                self.place = Place::SkippedLength;
                sink.made(held.len(), 0)
            }
            (Place::SkippedLength, &[a, b, c, d]) => {
                self.place = Place::Skip(u32::from_le_bytes([a, b, c, d]));
                sink.made(CHECKSUM, 0)
            }
            (Place::Block, _) => self.block(sink),
            (Place::Checksum, &[a, b, c, d]) => {
                let said = u32::from_le_bytes([a, b, c, d]);
                let fits = self.decoder.get_calculated_checksum() == Some(said);
                self.end_frame();
                if fits {
                    sink.made(CHECKSUM, 0)
                } else {
                    Err(Fault::BadEncoding)
                }
            }
            _ => Err(Fault::BadEncoding),
        }
    }

    fn block(&mut self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        let used = self.held.len();
        let is_last = self.held[0] & 1 != 0;
        // Whether it is the last is this file's business.
        self.held[0] &= !1;
        self.held.extend_from_slice(&LAST_BLOCK);
        let blocks = BlockDecodingStrategy::UptoBlocks(2);
        let decoded = self.decoder.decode_blocks(&self.held[..], blocks);
        let mut shown = Shown {
            told: self.told,
            takes: is_last,
            used,
            sink,
            fault: None,
        };
        // An error here is the writer's own, which notes what it was.
        let _ = self.decoder.collect_to_writer(&mut shown);
        let (told, fault) = (shown.told, shown.fault);
        self.told = told;
        if let Some(fault) = fault {
            return Err(fault);
        }
        decoded.map_err(|_| Fault::BadEncoding)?;
        if is_last {
            self.place = Place::Checksum;
            if !self.has_checksum {
                self.end_frame();
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) {
        self.any = true;
        self.place = Place::Header;
    }
}

/// Bytes of a frame header with its magic number (RFC 8878 section 3.1.1.1).
fn header_bytes(descriptor: u8) -> usize {
    let single = descriptor & 0x20 != 0;
    let window = usize::from(!single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 => usize::from(single),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    5 + window + dictionary + size
}

/// Looks at what the decoder holds, and tells what was not told.
struct Shown<'a, 'b> {
    told: usize,
    /// Takes it as well: the frame is over, and the checksum is of what was taken.
    takes: bool,
    /// Coded bytes that became it.
    used: usize,
    sink: &'a mut Sink<'b>,
    fault: Option<Fault>,
}

impl Write for Shown<'_, '_> {
    /// The decoder never lets go of anything inside a frame, so all that it holds is in one piece.
    fn write(&mut self, all: &[u8]) -> io::Result<usize> {
        let new = all.get(self.told..).unwrap_or_default();
        let counted = self.sink.put(std::mem::take(&mut self.used), new);
        self.fault = self.fault.or(counted.err());
        self.told = all.len().max(self.told);
        Ok(if self.takes { all.len() } else { 0 })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
