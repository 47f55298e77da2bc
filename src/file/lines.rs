//! Lines, one at a time, of bounded length.
//!
//! In: bytes from a reader. Out: each line with its number, without blanks around it. Never: a line longer than the bound in memory.

use std::io::{BufRead, Read};

use super::Trouble;

/// Longest record: as much as a request body of some ten million tokens, and small enough for any machine.
pub const RECORD_BYTES_MOST: usize = 64 << 20;

/// The lines of a reader.
pub(super) struct Lines {
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    /// Lines that have been read.
    number: u64,
}

impl Lines {
    pub(super) fn new(bytes: Box<dyn BufRead + Send>) -> Lines {
        Lines {
            bytes,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line and its number, from 1.
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, Trouble> {
        self.line.clear();
        let most = RECORD_BYTES_MOST as u64 + 1;
        let bytes = &mut self.bytes;
        if bytes.take(most).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.len() > RECORD_BYTES_MOST {
            self.skip_line()?;
            return Err(Trouble::Record {
                line: self.number,
                reason: format!(
                    "longer than {} MiB; give a shorter record",
                    RECORD_BYTES_MOST >> 20
                ),
            });
        }
        Ok(Some((self.number, self.line.trim_ascii())))
    }

    /// Leaves out what is left of a line.
    fn skip_line(&mut self) -> std::io::Result<()> {
        while self.line.last() != Some(&b'\n') {
            self.line.clear();
            let bytes = &mut self.bytes;
            if bytes.take(1 << 20).read_until(b'\n', &mut self.line)? == 0 {
                break;
            }
        }
        Ok(())
    }
}
