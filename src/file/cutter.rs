//! JSON values out of a stream, whole and unparsed.
//!
//! In: bytes from a reader. Out: the bytes of one value after the other, with the line on which it begins. Never: more than one value in
//! memory, or a judgement of what is inside one.

use std::io::BufRead;

use super::lines::too_long;
use super::unpack::trouble;
use super::{RECORD_BYTES_MOST, Source, Trouble};

/// A place in a stream of JSON.
pub(super) struct Cutter {
    bytes: Source,
    line: u64,
    value: Vec<u8>,
    cut: bool,
}

impl Cutter {
    pub(super) fn new(bytes: Source) -> Cutter {
        Cutter {
            bytes,
            line: 1,
            value: Vec::new(),
            cut: false,
        }
    }

    /// The number of the line that is reached, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Whether the last value was longer than it might be.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// What is left of the stream.
    pub(super) fn into_bytes(self) -> Source {
        self.bytes
    }

    /// The next byte that is not blank; it stays in the stream.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Trouble> {
        loop {
            let ahead = self.bytes.fill_buf();
            let ahead = ahead.map_err(|error| trouble(error, self.line))?;
            if ahead.is_empty() {
                return Ok(None);
            }
            let blanks = ahead.iter().take_while(|b| b.is_ascii_whitespace());
            let blanks = blanks.count();
            self.line += newlines(&ahead[..blanks]);
            let found = ahead.get(blanks).copied();
            self.bytes.consume(blanks);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Steps over `wanted`, which must come next.
    pub(super) fn take(&mut self, wanted: u8) -> Result<(), Trouble> {
        match self.peek()? {
            Some(byte) if byte == wanted => {
                self.bytes.consume(1);
                Ok(())
            }
            found => Err(self.surprise(&format!("`{}`", char::from(wanted)), found)),
        }
    }

    /// Steps into the list under `key` of the object that comes next.
    pub(super) fn enter(&mut self, key: &str) -> Result<(), Trouble> {
        self.take(b'{')?;
        let wanted = format!("\"{key}\"");
        loop {
            if self.peek()? != Some(b'"') {
                return Err(self.broken(format!("no list called {key}")));
            }
            let found = self.value(1 << 20)? == wanted.as_bytes();
            self.take(b':')?;
            self.peek()?;
            if found {
                return self.take(b'[');
            }
            self.value(RECORD_BYTES_MOST)?;
            if self.peek()? == Some(b',') {
                self.bytes.consume(1);
            }
        }
    }

    /// The next item of a list, and its line; `first`: the list has just been entered.
    pub(super) fn item(&mut self, first: bool) -> Result<Option<(u64, &[u8])>, Trouble> {
        match self.peek()? {
            Some(b']') => return Ok(None),
            Some(b',') if !first => {
                self.bytes.consume(1);
                self.peek()?;
            }
            Some(_) if first => {}
            found => return Err(self.surprise("`,` or `]`", found)),
        }
        let line = self.line;
        Ok(Some((line, self.value(RECORD_BYTES_MOST)?)))
    }

    /// The value that begins at the byte last peeked at.
    pub(super) fn value(&mut self, most: usize) -> Result<&[u8], Trouble> {
        self.value.clear();
        let begin = self.line;
        let mut scan = Scan::default();
        loop {
            let ahead = self.bytes.fill_buf();
            let ahead = ahead.map_err(|error| trouble(error, self.line))?;
            if ahead.is_empty() {
                if scan.depth == 0 && !scan.in_text && !self.value.is_empty() {
                    return Ok(&self.value);
                }
                return Err(self.broken(format!(
                    "the file ends inside the record that begins on line {begin}"
                )));
            }
            let end = scan.end(ahead, self.value.is_empty());
            let taken = end.unwrap_or(ahead.len());
            self.line += newlines(&ahead[..taken]);
            self.value.extend_from_slice(&ahead[..taken]);
            self.bytes.consume(taken);
            if self.value.len() > most {
                self.cut = true;
                return Err(Trouble::Broken {
                    line: begin,
                    reason: too_long(),
                });
            }
            if end.is_some() {
                return Ok(&self.value);
            }
        }
    }

    fn broken(&self, reason: String) -> Trouble {
        Trouble::Broken {
            line: self.line,
            reason,
        }
    }

    fn surprise(&self, wanted: &str, found: Option<u8>) -> Trouble {
        self.broken(match found {
            Some(found) => format!("{wanted} should stand before `{}`", found.escape_ascii()),
            None => format!("the file ends where {wanted} should stand"),
        })
    }
}

/// Where in a value a scan is.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Scan {
    /// How many of `bytes` belong to the value, if it ends among them. `first`: they are its first ones.
    fn end(&mut self, bytes: &[u8], first: bool) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            let alone = first && at == 0;
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_text = false;
                        if self.depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                // A word or number ends before these. Alone they are no value, but are taken, so that each value moves on.
                b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                    return Some(if alone { 1 } else { at });
                }
                _ => {}
            }
        }
        None
    }
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
