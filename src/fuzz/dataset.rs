//! Dataset files.
//!
//! In: arbitrary bytes. Out: a panic when two readings of them disagree. Never: a file.

use std::io::{BufReader, Cursor};
use std::sync::OnceLock;

use crate::config::{FileFormat, FilePlan};
use crate::dataset;
use crate::file::{Cut, Records, Trouble};
use crate::tokenizer::ShippedTokenizer;

/// Most bytes that are looked at: gzip and zstd can make a gigabyte of a few thousand.
const BYTES_MOST: usize = 1 << 12;

/// Reads the bytes behind the first one as a dataset file of the format that the first one picks: whatever the sizes of the reads, the
/// records are the same, no record is wrong in silence, and none is before the one in front of it.
///
/// # Panics
/// When an invariant of the reader breaks.
pub fn dataset(data: &[u8]) {
    static TOKENIZER: OnceLock<Option<ShippedTokenizer>> = OnceLock::new();
    let Some((pick, bytes)) = data.split_first() else {
        return;
    };
    let bytes = &bytes[..bytes.len().min(BYTES_MOST)];
    for cut in [Cut::Json, Cut::Items("data"), Cut::JsonOrCsv] {
        let whole = read(bytes, cut, BYTES_MOST);
        let pieces = read(bytes, cut, 1);
        assert!(alike(&whole, &pieces), "{cut:?}: {whole:?} {pieces:?}");
        let lines: Vec<u64> = whole.iter().map(|found| found.0).collect();
        assert!(lines.is_sorted(), "{cut:?}: {lines:?}");
    }
    let tokenizer = TOKENIZER.get_or_init(|| ShippedTokenizer::new("gpt2"));
    let Some(tokenizer) = tokenizer else { return };
    let formats = FileFormat::all();
    let file = FilePlan::new("in".into(), formats[usize::from(*pick) % formats.len()]);
    let again = || dataset::entries(&file, bytes.to_vec(), tokenizer).map_err(|e| e.to_string());
    assert_eq!(again(), again(), "{:?}", file.format);
}

/// The same; or, where a decoder gave up, the same as far as both had come, since how far that is depends on the pieces.
fn alike(whole: &[(u64, String)], pieces: &[(u64, String)]) -> bool {
    let came = |found: &[(u64, String)]| found.iter().take_while(|row| row.0 != u64::MAX).count();
    let (here, there) = (came(whole), came(pieces));
    let shared = here.min(there);
    let broke = here < whole.len() && there < pieces.len();
    whole[..shared] == pieces[..shared] && (here == there || broke)
}

/// Line and content of each record, read in pieces of `size` bytes.
fn read(bytes: &[u8], cut: Cut, size: usize) -> Vec<(u64, String)> {
    let bytes = BufReader::with_capacity(size, Cursor::new(bytes.to_vec()));
    let records = Records::of(Box::new(bytes), cut);
    records
        .map(|record| match record {
            Ok(record) => (record.line, format!("{:?}", record.fields)),
            Err(Trouble::Record { line, reason }) => (line, reason),
            // A decoder gave up.
            Err(_) => (u64::MAX, String::new()),
        })
        .collect()
}
