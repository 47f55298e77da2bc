//! Content codings, taken off while the body arrives (RFC 9110 section 8.4.1).
//!
//! In: a coded body, cut anywhere. Out: the plain body as far as it can be told. Never: more of it than [`Limits`] allow, or memory
//! for a response that is not coded.
//!
//! No coding is ever asked for. A server that codes all the same, or a proxy before it, is understood, so that events are found and
//! stamped by the read that brought the last byte of theirs. Where the packer waits for more before it lets go of an event, that
//! wait is in the stamp: for a client it is the server's.
//!
//! Of a body that is broken, and would be over a limit soon after, which of the two faults it ends with may hang on how it was cut: the brotli
//! decoder lets go of what it has only between reads.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::inflate::{Deflate, Gzip};
use super::zstd::Zstd;
use super::{Fault, Limits};

/// Bytes unpacked at a time.
const ROOM_BYTES: usize = 8 << 10;

/// A body of this length may be as dense as it likes: a reply that repeats one word is.
const FREE_BYTES: u64 = 1 << 20;

/// A content coding that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` or `x-gzip` (RFC 1952).
    Gzip,
    /// `deflate`: zlib (RFC 1950), or bare deflate (RFC 1951), which some servers send under this name.
    Deflate,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
}

impl Coding {
    /// Every coding.
    pub const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    /// The coding that an item of `Content-Encoding` names.
    #[must_use]
    pub fn named(item: &[u8]) -> Option<Coding> {
        let same = |coding: &Coding| item.eq_ignore_ascii_case(coding.name().as_bytes());
        let found = Coding::ALL.into_iter().find(same);
        found.or_else(|| item.eq_ignore_ascii_case(b"x-gzip").then_some(Coding::Gzip))
    }

    /// Its name in `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
}

/// Takes one coding off one body.
pub(super) struct Decoder {
    packing: Packing,
    /// Something came.
    begun: bool,
    out: Unpacked,
}

enum Packing {
    Gzip(Gzip),
    Deflate(Deflate),
    Brotli(Brotli),
    Zstd(Box<Zstd>),
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, made) = (self.out.used, self.out.made);
        write!(f, "Decoder {{ used: {used}, made: {made} }}")
    }
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Box<Decoder> {
        Box::new(Decoder {
            packing: match coding {
                Coding::Gzip => Packing::Gzip(Gzip::new()),
                Coding::Deflate => Packing::Deflate(Deflate::new()),
                Coding::Brotli => Packing::Brotli(Brotli::new()),
                Coding::Zstd => Packing::Zstd(Box::new(Zstd::new())),
            },
            begun: false,
            out: Unpacked {
                room: vec![0; ROOM_BYTES].into_boxed_slice(),
                used: 0,
                made: 0,
            },
        })
    }

    /// Takes `input` in; appends all that can be told by now to `body`, also before a fault.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        limits: &Limits,
        body: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if input.is_empty() {
            return Ok(());
        }
        self.begun = true;
        let mut sink = Sink {
            out: &mut self.out,
            limits,
            body,
        };
        match &mut self.packing {
            Packing::Gzip(packing) => packing.feed(input, &mut sink),
            Packing::Deflate(packing) => packing.feed(input, &mut sink),
            Packing::Brotli(packing) => packing.feed(input, &mut sink),
            Packing::Zstd(packing) => packing.feed(input, &mut sink),
        }
    }

    /// The body has ended. An empty one is whole in any coding: some servers name it for errors without a body.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        let whole = match &self.packing {
            Packing::Gzip(packing) => packing.is_whole(),
            Packing::Deflate(packing) => packing.is_whole(),
            Packing::Brotli(packing) => packing.ended,
            Packing::Zstd(packing) => packing.is_whole(),
        };
        if whole || !self.begun {
            Ok(())
        } else {
            Err(Fault::Truncated)
        }
    }
}

/// What has been unpacked so far, and room for more.
struct Unpacked {
    room: Box<[u8]>,
    /// Coded bytes used.
    used: u64,
    /// Plain bytes made.
    made: u64,
}

/// Where plain bytes go.
pub(super) struct Sink<'a> {
    out: &'a mut Unpacked,
    limits: &'a Limits,
    body: &'a mut Vec<u8>,
}

impl Sink<'_> {
    /// Room to unpack into, before [`Sink::made`].
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.out.room
    }

    /// The first `bytes` of the room, which the decoder has filled.
    pub(super) fn filled(&self, bytes: usize) -> &[u8] {
        &self.out.room[..bytes]
    }

    /// `used` coded bytes have become the first `made` bytes of the room.
    pub(super) fn made(&mut self, used: usize, made: usize) -> Result<(), Fault> {
        self.body.extend_from_slice(&self.out.room[..made]);
        self.count(used, made)
    }

    /// `used` coded bytes have become `plain`.
    pub(super) fn put(&mut self, used: usize, plain: &[u8]) -> Result<(), Fault> {
        self.body.extend_from_slice(plain);
        self.count(used, plain.len())
    }

    fn count(&mut self, used: usize, made: usize) -> Result<(), Fault> {
        let out = &mut self.out;
        out.used += used as u64;
        out.made += made as u64;
        if out.made > self.limits.body_bytes as u64 {
            let over = out.made - self.limits.body_bytes as u64;
            let kept = self.body.len() as u64 - over.min(self.body.len() as u64);
            self.body
                .truncate(usize::try_from(kept).unwrap_or(usize::MAX));
            return Err(Fault::BodyTooLarge);
        }
        let most = out.used.saturating_mul(self.limits.density as u64);
        if out.made > FREE_BYTES && out.made > most.saturating_add(FREE_BYTES) {
            return Err(Fault::EncodingTooDense);
        }
        Ok(())
    }
}

/// `br`.
struct Brotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    total: usize,
    ended: bool,
}

impl Brotli {
    fn new() -> Brotli {
        let alloc = StandardAlloc::default;
        Brotli {
            // Strict: windows as HTTP has them, 16 MiB at most.
            state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())),
            total: 0,
            ended: false,
        }
    }

    fn feed(&mut self, input: &[u8], sink: &mut Sink<'_>) -> Result<(), Fault> {
        let mut used = 0;
        loop {
            if self.ended {
                return if used < input.len() {
                    Err(Fault::BadEncoding)
                } else {
                    Ok(())
                };
            }
            let room = sink.room();
            let (before, mut left, mut made, mut free) = (used, input.len() - used, 0, room.len());
            let result = BrotliDecompressStream(
                &mut left,
                &mut used,
                input,
                &mut free,
                &mut made,
                room,
                &mut self.total,
                &mut self.state,
            );
            sink.made(used - before, made)?;
            match result {
                BrotliResult::ResultSuccess => self.ended = true,
                BrotliResult::ResultFailure => return Err(Fault::BadEncoding),
                BrotliResult::NeedsMoreOutput => {}
                // What filled the room may have left something behind.
                BrotliResult::NeedsMoreInput if free == 0 => {}
                BrotliResult::NeedsMoreInput => return Ok(()),
            }
        }
    }
}
