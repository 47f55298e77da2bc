//! A text in pieces of whole lines.
//!
//! In: bytes from a reader. Out: some MiB at a time, which end where a line ends. Never: judges a line, or keeps more of one than shows that
//! it is too long.

use std::io::Read;

use super::cutter::newlines;
use super::unpack::trouble;
use super::{RECORD_BYTES_MOST, Trouble};

/// Bytes of a piece; one that holds a longer line is longer.
const PIECE_BYTES: usize = 4 << 20;

/// The pieces of a text, in order.
pub struct Pieces {
    text: Box<dyn Read + Send>,
    /// The beginning of a line whose end was not read yet.
    carried: Vec<u8>,
    /// Lines given so far.
    lines: u64,
}

impl Pieces {
    /// The pieces of `text`, from its beginning.
    #[must_use]
    pub fn new(text: Box<dyn Read + Send>) -> Pieces {
        Pieces {
            text,
            carried: Vec::new(),
            lines: 0,
        }
    }

    /// The next whole lines; `None` at the end.
    ///
    /// # Errors
    /// As [`Records`](super::Records) has them of the same bytes, with the same line.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        let mut piece = std::mem::take(&mut self.carried);
        loop {
            let room = PIECE_BYTES.saturating_sub(piece.len()).max(PIECE_BYTES / 4);
            piece.reserve(room);
            let read = (&mut self.text).take(room as u64).read_to_end(&mut piece);
            let read = read.map_err(|error| trouble(error, self.lines + newlines(&piece) + 1))?;
            let end = if read < room {
                Some(piece.len())
            } else {
                memchr::memrchr(b'\n', &piece).map(|end| end + 1)
            };
            if let Some(end) = end {
                self.carried = piece.split_off(end);
                self.lines += newlines(&piece);
                return Ok((!piece.is_empty()).then_some(piece));
            }
            if piece.len() > RECORD_BYTES_MOST {
                // It is refused for its length, also where it is blank so far: the rest of it need not be kept.
                piece.truncate(RECORD_BYTES_MOST + 1);
                piece[RECORD_BYTES_MOST] = b'.';
            }
        }
    }
}
