//! Lines, one at a time, of bounded length.
//!
//! In: bytes from a reader. Out: each line with its number, without blanks around it. Never: a line longer than the bound in memory.

use std::io::{BufRead, Read};

use super::unpack::trouble;
use super::{RECORD_BYTES_MOST, Source, Trouble};

/// The lines of a reader.
pub(super) struct Lines {
    bytes: Source,
    line: Vec<u8>,
    /// Number of the next line.
    number: u64,
}

impl Lines {
    /// `number` is that of the first line.
    pub(super) fn new(bytes: Source, number: u64) -> Lines {
        Lines {
            bytes,
            line: Vec::new(),
            number,
        }
    }

    /// The next line that is not blank, and its number.
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, Trouble> {
        loop {
            self.line.clear();
            let line = self.number;
            if self.read(RECORD_BYTES_MOST + 1)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > RECORD_BYTES_MOST {
                while self.line.last() != Some(&b'\n') {
                    self.line.clear();
                    if self.read(1 << 20)? == 0 {
                        break;
                    }
                }
                return Err(Trouble::Record {
                    line,
                    reason: too_long(),
                });
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some((line, self.line.trim_ascii())));
            }
        }
    }

    fn read(&mut self, most: usize) -> Result<usize, Trouble> {
        let bytes = (&mut self.bytes).take(most as u64);
        read_line(bytes, &mut self.line).map_err(|error| trouble(error, self.number))
    }
}

fn read_line(mut bytes: impl BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    bytes.read_until(b'\n', line)
}

/// What is said of a record over the bound.
pub(super) fn too_long() -> String {
    format!(
        "longer than {} MiB; give shorter records",
        RECORD_BYTES_MOST >> 20
    )
}
