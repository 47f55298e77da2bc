//! Where the entries of a long file are.
//!
//! In: the offsets of entries, told once in order. Out: the line of any entry, read again. Never: bytes for each entry, or a whole file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Entries whose places are known by one mark, and read together.
const MARK_ENTRIES: u32 = 64;

/// Bytes after which a mark is set although it has fewer entries.
const MARK_BYTES: u64 = 1 << 20;

/// A mark for every 64 entries or 1 MiB, whichever comes first: 12 bytes each.
#[derive(Debug, Default)]
pub(super) struct LineIndex {
    /// Where the marked entry begins.
    offsets: Vec<u64>,
    /// Its number.
    numbers: Vec<u32>,
    /// Where the file ends.
    end: u64,
}

impl LineIndex {
    /// Entry `number` begins at `offset`. Called for each entry, in order, from 0.
    pub(super) fn add(&mut self, number: u32, offset: u64) {
        let last = self.numbers.last().zip(self.offsets.last());
        let far = last.is_none_or(|(&marked, &at)| {
            number - marked >= MARK_ENTRIES || offset - at >= MARK_BYTES
        });
        if far {
            self.offsets.push(offset);
            self.numbers.push(number);
        }
    }

    /// The file ends at `end`.
    pub(super) fn finish(&mut self, end: u64) {
        self.end = end;
        self.offsets.shrink_to_fit();
        self.numbers.shrink_to_fit();
    }
}

/// Reads entries again: those under one mark at a time.
pub(super) struct LineReader<'a> {
    file: File,
    index: &'a LineIndex,
    /// Which mark was read.
    mark: Option<usize>,
    bytes: Vec<u8>,
    /// Begin and end in `bytes` of each entry.
    lines: Vec<(usize, usize)>,
}

impl<'a> LineReader<'a> {
    /// Opens `path`, which `index` is of.
    pub(super) fn open(path: &Path, index: &'a LineIndex) -> io::Result<LineReader<'a>> {
        let file = File::open(path)?;
        Ok(LineReader {
            file,
            index,
            mark: None,
            bytes: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// The line of entry `number`, without white space around it; `None` when the file has become too short.
    pub(super) fn line(&mut self, number: u32) -> io::Result<Option<&[u8]>> {
        let next = self.index.numbers.partition_point(|&first| first <= number);
        let Some(mark) = next.checked_sub(1) else {
            return Ok(None);
        };
        if self.mark != Some(mark) {
            self.read(mark)?;
        }
        let at = (number - self.index.numbers[mark]) as usize;
        let place = self.lines.get(at);
        Ok(place.map(|&(begin, end)| self.bytes[begin..end].trim_ascii()))
    }

    fn read(&mut self, mark: usize) -> io::Result<()> {
        self.mark = None;
        let begin = self.index.offsets[mark];
        let end = self.index.offsets.get(mark + 1);
        let end = end.copied().unwrap_or(self.index.end);
        let length = usize::try_from(end - begin).map_err(io::Error::other)?;
        self.bytes.resize(length, 0);
        self.file.seek(SeekFrom::Start(begin))?;
        self.file.read_exact(&mut self.bytes)?;
        self.lines.clear();
        self.lines.extend(
            lines_of(&self.bytes)
                .filter(|line| !line.text.is_empty())
                .map(|line| (line.begin, line.begin + line.text.len())),
        );
        self.mark = Some(mark);
        Ok(())
    }
}

/// One line of some bytes, without white space at its end.
pub(super) struct Line<'a> {
    pub(super) begin: usize,
    pub(super) text: &'a [u8],
}

/// The lines of `bytes`, empty ones too; what follows the last newline is one if there is anything.
pub(super) fn lines_of(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let ends = memchr::memchr_iter(b'\n', bytes);
    let last = (!bytes.is_empty() && bytes.last() != Some(&b'\n')).then_some(bytes.len());
    ends.chain(last).scan(0, |begin, end| {
        let from = std::mem::replace(begin, end + 1);
        let text = bytes[from..end].trim_ascii_end();
        Some(Line { begin: from, text })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #[test]
        fn any_entry_is_found_again(lengths in prop::collection::vec(0_usize..40, 1..400), ended: bool, asked in prop::collection::vec(0_usize..400, 1..40)) {
            // A length of 0 is an empty line, which is no entry.
            let mut text = lengths.iter().map(|n| "x".repeat(*n)).enumerate().map(|(at, x)| {
                if x.is_empty() { " ".to_owned() } else { format!("{x}{at}") }
            }).collect::<Vec<String>>().join("\n");
            if ended {
                text.push('\n');
            }
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let entries: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            let mut index = LineIndex::default();
            let found = lines_of(text.as_bytes()).filter(|line| !line.text.is_empty());
            for (line, number) in found.zip(0..) {
                index.add(number, line.begin as u64);
            }
            index.finish(text.len() as u64);
            prop_assert!(index.offsets.len() <= entries.len().div_ceil(MARK_ENTRIES as usize));
            let mut reader = LineReader::open(file.path(), &index).unwrap();
            for at in asked.into_iter().filter(|at| *at < entries.len()) {
                let line = reader.line(u32::try_from(at).unwrap()).unwrap();
                prop_assert_eq!(line, Some(entries[at].as_bytes()));
            }
        }
    }
}
