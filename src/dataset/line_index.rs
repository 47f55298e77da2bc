//! Where the entries of a long file are.
//!
//! In: the offsets of entries, told once in order. Out: the line of any entry, read again. Never: bytes for each entry, or a whole file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::path::Path;

use crate::file;

/// Entries whose places are known by one mark, and read together.
const MARK_ENTRIES: u32 = 64;

/// Bytes after which a mark is set although it has fewer entries.
const MARK_BYTES: u64 = 1 << 20;

/// Bytes of text that a reader of a packed file keeps at most, to be asked for again.
pub(super) const REACH_MOST: u64 = 8 << 20;

/// The same of a plain file, which can be read anywhere, but not for nothing.
const REACH_PLAIN: u64 = 2 << 20;

/// A mark for every 64 entries or 1 MiB, whichever comes first: 12 bytes each.
#[derive(Debug, Default)]
pub(super) struct LineIndex {
    /// Where the marked entry begins.
    offsets: Vec<u64>,
    /// Its number.
    numbers: Vec<u32>,
    /// Where the file ends.
    end: u64,
    /// The file is packed: its text, which the offsets are of, can only be read in order.
    packed: bool,
    /// Bytes that a reader keeps behind a mark that it may be asked for again.
    reach: u64,
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

    /// The file, of which all entries are told, ends at `end`.
    pub(super) fn finish(&mut self, end: u64) {
        self.end = end;
        self.offsets.shrink_to_fit();
        self.numbers.shrink_to_fit();
    }

    /// The file is packed, and its entries are asked for as in `order`, or fewer of them. False where they lie too far apart for that.
    pub(super) fn pack(&mut self, order: impl Iterator<Item = u32>) -> bool {
        self.packed = true;
        let (mut furthest, mut place) = (0, (0, 0));
        let mut numbers = 0..0;
        for number in order {
            if !numbers.contains(&number) {
                let Some(mark) = self.mark_of(number) else {
                    return false;
                };
                let next = self.numbers.get(mark + 1).copied();
                numbers = self.numbers[mark]..next.unwrap_or(u32::MAX);
                place = self.place(mark);
            }
            self.reach = self.reach.max(u64::saturating_sub(furthest, place.1));
            furthest = furthest.max(place.1);
        }
        self.reach <= REACH_MOST
    }

    /// Entries of one conversation stand apart, so that a reader comes back.
    pub(super) fn come_back(&mut self) {
        self.reach = self.reach.max(REACH_PLAIN);
    }

    /// The mark that entry `number` is under.
    fn mark_of(&self, number: u32) -> Option<usize> {
        let next = self.numbers.partition_point(|&first| first <= number);
        next.checked_sub(1)
    }

    /// Where the entries under `mark` begin and end.
    fn place(&self, mark: usize) -> (u64, u64) {
        let end = self.offsets.get(mark + 1).copied();
        (self.offsets[mark], end.unwrap_or(self.end))
    }
}

/// Reads entries again: those under one mark at a time.
pub(super) struct LineReader<'a> {
    text: Text,
    index: &'a LineIndex,
    /// What was read last, the latest behind.
    blocks: VecDeque<Block>,
    /// Bytes in them.
    kept: u64,
}

/// Where a reader reads.
enum Text {
    /// Anywhere.
    Plain(File),
    /// In order; which mark comes next.
    Packed(Box<dyn BufRead + Send>, usize),
}

/// The entries under one mark.
#[derive(Default)]
struct Block {
    mark: usize,
    bytes: Vec<u8>,
    /// Begin and end in `bytes` of each entry.
    lines: Vec<(usize, usize)>,
}

impl<'a> LineReader<'a> {
    /// Opens `path`, which `index` is of.
    pub(super) fn open(path: &Path, index: &'a LineIndex) -> io::Result<LineReader<'a>> {
        let text = if index.packed {
            let text = file::text(path).map_err(io::Error::other)?;
            Text::Packed(text, 0)
        } else {
            Text::Plain(File::open(path)?)
        };
        Ok(LineReader {
            text,
            index,
            blocks: VecDeque::new(),
            kept: 0,
        })
    }

    /// The line of entry `number`, without white space around it; `None` when the file has become too short.
    pub(super) fn line(&mut self, number: u32) -> io::Result<Option<&[u8]>> {
        let Some(mark) = self.index.mark_of(number) else {
            return Ok(None);
        };
        let known = |blocks: &VecDeque<Block>| blocks.iter().rposition(|block| block.mark == mark);
        let place = match known(&self.blocks) {
            Some(place) => place,
            None => {
                self.read(mark)?;
                known(&self.blocks).ok_or_else(|| io::Error::other("it was passed over"))?
            }
        };
        let block = &self.blocks[place];
        let at = (number - self.index.numbers[mark]) as usize;
        let line = block.lines.get(at);
        Ok(line.map(|&(begin, end)| block.bytes[begin..end].trim_ascii()))
    }

    /// Reads what is under `mark`, and what lies before it where that cannot be left out.
    fn read(&mut self, mark: usize) -> io::Result<()> {
        let marks = match &self.text {
            Text::Plain(_) => mark..mark + 1,
            Text::Packed(_, next) => *next..mark + 1,
        };
        for mark in marks {
            let mut block = self.make_room();
            let (begin, end) = self.index.place(mark);
            let length = usize::try_from(end - begin).map_err(io::Error::other)?;
            block.mark = mark;
            block.bytes.resize(length, 0);
            match &mut self.text {
                Text::Plain(file) => {
                    file.seek(SeekFrom::Start(begin))?;
                    file.read_exact(&mut block.bytes)?;
                }
                Text::Packed(text, next) => {
                    if mark == 0 {
                        io::copy(&mut text.by_ref().take(begin), &mut io::sink())?;
                    }
                    text.read_exact(&mut block.bytes)?;
                    *next = mark + 1;
                }
            }
            block.lines.clear();
            block.lines.extend(
                lines_of(&block.bytes)
                    .filter(|line| !line.text.is_empty())
                    .map(|line| (line.begin, line.begin + line.text.len())),
            );
            self.kept += length as u64;
            self.blocks.push_back(block);
        }
        Ok(())
    }

    /// Lets go of what is not to be read again, and gives back one block of it to be filled anew.
    fn make_room(&mut self) -> Block {
        let mut spare = Block::default();
        while let Some(first) = self.blocks.front() {
            // The one that comes next is not counted: it stands behind all of them.
            let behind = self.kept - first.bytes.len() as u64;
            if behind < self.index.reach {
                break;
            }
            self.kept = behind;
            spare = self.blocks.pop_front().unwrap_or_default();
        }
        spare
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
    use crate::file::tests::gzip;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #[test]
        fn any_entry_is_found_again(lengths in prop::collection::vec(0_usize..40, 1..400), ended: bool, asked in prop::collection::vec(0_u32..400, 1..40)) {
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
            let asked: Vec<u32> = asked.into_iter().filter(|at| (*at as usize) < entries.len()).collect();
            // In any order; then again from a packed file, which keeps as much as that order needs.
            for packed in [false, true] {
                if packed {
                    std::fs::write(file.path(), gzip(text.as_bytes())).unwrap();
                    prop_assert!(index.pack(asked.iter().copied()));
                }
                let mut reader = LineReader::open(file.path(), &index).unwrap();
                for &at in &asked {
                    let line = reader.line(at).unwrap();
                    prop_assert_eq!(line, Some(entries[at as usize].as_bytes()));
                }
            }
        }
    }
}
