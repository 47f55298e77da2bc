//! Values that stood on a shelf until the end.
//!
//! In: more records than stay in memory. Out: the numbers of those that never left it. Never: a file that outlives the test.

use std::io;
use std::sync::Arc;

use tokenring::clock::Nanos;
use tokenring::config::Attribution;
use tokenring::metric::{Accumulator, Shelf, Slice, Slices, Steady, Summary};
use tokenring::record::Record;
use tokenring::report::FileShelf;

use crate::windows::closed_loop;
use crate::{WALL_NS, failed, streamed, streaming};

/// Twenty requests at a time, one in forty of which fails.
fn records() -> Vec<Record> {
    let one = |number: u64| {
        let start = number * 10;
        if number % 40 == 39 {
            return failed(start, 90 + number % 17, 500);
        }
        let first = 50 + number % 13;
        let mut record = streamed(start, &[first, first + 60 + number % 11, 200 + number % 7]);
        record.lateness = Nanos(number % 1_000);
        record.tokens.input = Some(number % 100);
        record
    };
    (0..5_000).map(one).collect()
}

/// Summed up in two parts, as by two workers.
fn summed(records: &[Record], shelf: Option<&Arc<dyn Shelf>>) -> (Summary, Vec<Slice>) {
    let context = streaming();
    let slice = Nanos::from_seconds(20.0);
    let slices = Slices::new(&context, Attribution::Arrival, slice, WALL_NS);
    let mut slices = slices.shelved(shelf.cloned());
    let mut parts = [(); 2].map(|()| Accumulator::new(&context).shelved(shelf.cloned()));
    for part in &mut parts {
        part.frame(closed_loop(20));
    }
    for (index, record) in records.iter().enumerate() {
        parts[index % 3 % 2].add(record);
        slices.add(record);
    }
    let [mut whole, other] = parts;
    whole.merge(other);
    let slices = slices.finish(&whole);
    (whole.summary(), slices)
}

#[test]
fn a_shelf_changes_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let records = records();
    let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::beside(&folder.path().join("any")).unwrap());
    let shelved = summed(&records, Some(&shelf));
    let in_memory = summed(&records, None);
    assert_eq!(format!("{shelved:?}"), format!("{in_memory:?}"));
    assert!(matches!(in_memory.0.steady, Some(Steady::State(_))));
    assert!(in_memory.1.len() > 1);
    // It was used, and has no name.
    assert!(shelf.fetch(0, &mut [0; 8 * 1_024]).is_ok());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Takes everything and gives nothing back.
#[derive(Debug)]
struct Gone;

impl Shelf for Gone {
    fn put(&self, _: &[u8]) -> io::Result<u64> {
        Ok(0)
    }

    fn fetch(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other("the disk is gone"))
    }
}

#[test]
fn what_cannot_be_had_back_is_absent_and_named() {
    let shelf: Arc<dyn Shelf> = Arc::new(Gone);
    let (summary, slices) = summed(&records(), Some(&shelf));
    assert_eq!((summary.success_count, summary.error_count), (4_875, 125));
    let count = summary.row("request_count").unwrap().stats.avg;
    assert_eq!(count, Some(4_875.0));
    assert!(summary.row("request_latency").is_none());
    assert!(summary.row("adj_request_latency").is_none());
    assert!(summary.row("total_isl").is_none());
    assert!(summary.row("effective_concurrency").is_none());
    for name in ["request_latency", "over time"] {
        let named = |note: &String| note.contains(name) && note.contains("the disk is gone");
        assert!(
            summary.notes.iter().any(named),
            "{name}: {:?}",
            summary.notes
        );
    }
    let Some(Steady::Absent(reason)) = summary.steady else {
        panic!("{:?}", summary.steady);
    };
    assert!(reason.contains("the disk is gone"), "{reason}");
    assert!(slices.len() > 1);
}
