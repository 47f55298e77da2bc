//! In: bytes in every form a file may have. Out: records, or what is wrong with its line. Never: a file of its own making but for folders.

use std::io::{Cursor, Write};

use proptest::prelude::*;

use super::first::first_of;
use super::*;

/// The records as their texts or field values, and what is wrong with the others.
fn read(bytes: &[u8], cut: Cut, tall: bool) -> Vec<String> {
    let mut records = Records::of(Box::new(Cursor::new(bytes.to_vec())), cut);
    records.tall = tall;
    records
        .map(|record| match record {
            Ok(record) => format!("{}: {}", record.line, Value::Object(record.fields)),
            Err(Trouble::Record { line, reason }) => format!("{line}! {reason}"),
            Err(trouble) => format!("!! {trouble}"),
        })
        .collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(bytes, level)
}

const TWO: &[u8] = b"{\"a\": 1}\n\n {\"a\": null, \"b\": 2} \r\n";
const TWO_READ: [&str; 2] = ["1: {\"a\":1}", "3: {\"b\":2}"];

#[test]
fn lines_are_read_in_every_packing() {
    let marked = [BOM, TWO].concat();
    let twice = [zstd(&TWO[..9]), zstd(&TWO[9..])].concat();
    let members = [gzip(&TWO[..9]), gzip(&TWO[9..])].concat();
    for bytes in [
        TWO.to_vec(),
        marked.clone(),
        gzip(TWO),
        zstd(TWO),
        gzip(&marked),
        twice,
        members,
    ] {
        assert_eq!(read(&bytes, Cut::Json, false), TWO_READ);
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

#[test]
fn lists_and_tall_objects_are_records_too() {
    let list = b"[\n{\"a\": 1},\n {\"b\": \"]}\\\"{\", \"c\": [1, {}]}\n, 3, {\"a\": }\n]\n";
    assert_eq!(
        read(list, Cut::Json, false),
        [
            "2: {\"a\":1}",
            "3: {\"b\":\"]}\\\"{\",\"c\":[1,{}]}",
            "4! not a JSON object; give one such as {\"text\": \"Hello\"}",
            "4! not JSON: expected value at line 1 column 7",
        ]
    );
    let document =
        b"{\n \"v\": {\"data\": 1},\n \"data\": [\n {\"a\":\n 1}, {\"a\": 2}], \"z\": 1}";
    assert_eq!(
        read(document, Cut::Items("data"), false),
        ["4: {\"a\":1}", "5: {\"a\":2}"]
    );
    let tall = b"{\n \"a\": 1\n}\n{\"a\":\n2}";
    assert_eq!(
        read(tall, Cut::Json, true),
        ["1: {\"a\":1}", "4: {\"a\":2}"]
    );
}

#[test]
fn rows_have_the_names_of_their_columns() {
    let table = b"prompt, n\n\"one, \"\"two\"\"\nthree\",4\nfive\nsix,\n";
    assert_eq!(
        read(table, Cut::JsonOrCsv, false),
        [
            "2: {\"prompt\":\"one, \\\"two\\\"\\nthree\",\"n\":\"4\"}",
            "4! 1 cells, but 2 columns; put text with commas in \"quotes\"",
            "5: {\"prompt\":\"six\"}",
        ]
    );
}

/// What is wrong, and a word that tells it.
#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cut = |bytes: Vec<u8>, keep: usize| bytes[..keep].to_vec();
    let lines: Vec<u8> = (0..2_000)
        .flat_map(|n| format!("{{\"a\": {}}}\n", n * 7_919 % 1_000).into_bytes())
        .collect();
    let mut flipped = zstd(&lines);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let mut broken = gzip(&lines);
    let middle = broken.len() / 2;
    broken[middle] ^= 0xff;
    let cases: [(Vec<u8>, Cut, &str); 12] = [
        (
            b"\xff\xfe{\0".to_vec(),
            Cut::Json,
            "is UTF-16; save it as UTF-8",
        ),
        (b"{\0\"\0".to_vec(), Cut::Json, "is UTF-16"),
        (b"PAR1....".to_vec(), Cut::Json, "is a Parquet file"),
        (
            b"{}\n{\"a\": \"\xff\"}".to_vec(),
            Cut::Json,
            "2! not UTF-8 from byte 8",
        ),
        (
            b"[{\"a\": 1} {}]".to_vec(),
            Cut::Json,
            "line 1: `,` or `]` should stand before `{`",
        ),
        (
            b"[{\"a\": 1},\n{\"a\"".to_vec(),
            Cut::Json,
            "line 2: the file ends inside the record that begins on line 2",
        ),
        (
            b"{\"a\": 1}".to_vec(),
            Cut::Items("data"),
            "no list called data",
        ),
        (
            b"{\"data\": 1}".to_vec(),
            Cut::Items("data"),
            "`[` should stand before `1`",
        ),
        (
            cut(gzip(&lines), 60),
            Cut::Json,
            "broken gzip data at byte 60 of the file",
        ),
        (broken, Cut::Json, "broken gzip data at byte"),
        (
            cut(zstd(&lines), 60),
            Cut::Json,
            "broken zstd data at byte 60 of the file",
        ),
        (flipped, Cut::Json, "the checksum does not fit"),
    ];
    for (bytes, cut, wanted) in cases {
        let told = read(&bytes, cut, false);
        assert!(
            told.iter().any(|told| told.contains(wanted)),
            "{wanted}: {:?}",
            told.last()
        );
    }
}

#[test]
fn a_line_over_the_bound_is_one_bad_line() {
    let mut bytes = vec![b'x'; RECORD_BYTES_MOST + 10];
    bytes.extend_from_slice(b"\n{\"a\": 1}");
    assert_eq!(
        read(&bytes, Cut::Json, false),
        [
            "1! longer than 64 MiB; give shorter records",
            "2: {\"a\":1}"
        ]
    );
    let told = read(&[b"[\"", bytes.as_slice()].concat(), Cut::Json, false);
    assert_eq!(
        told,
        ["!! line 1: longer than 64 MiB; give shorter records"]
    );
}

#[test]
fn a_folder_is_its_files_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.jsonl", "a.jsonl.gz", ".hidden"] {
        std::fs::write(folder.path().join(name), gzip(TWO)).unwrap();
    }
    let files = files(folder.path()).unwrap();
    let stems: Vec<String> = files
        .iter()
        .map(|file| {
            let mut records = Records::open(file, Cut::Json).unwrap();
            records.next().unwrap().unwrap().stem.to_string()
        })
        .collect();
    assert_eq!(stems, ["a", "b"]);
}

#[test]
fn the_first_record_shows_its_fields() {
    let long = format!("{{\"data\": [\"{}\"]}}", "x".repeat(2 << 20));
    let cases: [(&[u8], &str); 6] = [
        (TWO, "a"),
        (b"[{\"b\": 1}]", "b"),
        (b"{\n\"data\": [\n]}", "data"),
        (b"prompt,n\n1,2\n", "prompt,n"),
        (b"\n \n", ""),
        (long.as_bytes(), "data"),
    ];
    for (bytes, names) in cases {
        let first = first_of(Box::new(Cursor::new(bytes.to_vec()))).unwrap();
        let found: Vec<String> = first.unwrap_or_default().into_iter().map(|f| f.0).collect();
        assert_eq!(found.join(","), names);
    }
}

proptest! {
    /// However a reader hands the bytes over, the records are the same, and nothing panics.
    #[test]
    fn no_bytes_make_it_panic(text in "[\\[\\]{},:\"a\\\\ 1\n]{0,80}", raw in prop::collection::vec(any::<u8>(), 0..80),
                              size in 1_usize..7, head in prop::sample::select(vec![&b""[..], &[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]])) {
        for bytes in [text.into_bytes(), [head, &raw].concat()] {
            for cut in [Cut::Json, Cut::Items("a"), Cut::Csv, Cut::JsonOrCsv] {
                for tall in [false, true] {
                    let whole = read(&bytes, cut, tall);
                    let small = BufReader::with_capacity(size, Cursor::new(bytes.clone()));
                    let mut records = Records::of(Box::new(small), cut);
                    records.tall = tall;
                    prop_assert_eq!(records.count(), whole.len());
                    prop_assert!(whole.len() <= bytes.len() + 1);
                }
            }
            let _ = first_of(Box::new(Cursor::new(bytes)));
        }
    }
}
