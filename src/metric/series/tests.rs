//! Series whose shelf does as it is told.
//!
//! In: values, a shelf that refuses or forgets. Out: the same values, or an error. Never: a file.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

/// A shelf in memory that takes blocks and gives them back as it is told to.
#[derive(Debug, Default)]
struct Told {
    blocks: Mutex<Vec<Vec<u8>>>,
    /// How many puts in a row are refused after each that is not.
    refuses: u64,
    asked: Mutex<u64>,
    gives_nothing: bool,
}

impl Shelf for Told {
    fn put(&self, block: &[u8]) -> io::Result<u64> {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        if !(*asked - 1).is_multiple_of(self.refuses + 1) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut blocks = self.blocks.lock().unwrap();
        blocks.push(block.to_vec());
        Ok(blocks.len() as u64 - 1)
    }

    fn fetch(&self, place: u64, block: &mut [u8]) -> io::Result<()> {
        if self.gives_nothing {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let blocks = self.blocks.lock().unwrap();
        block.copy_from_slice(&blocks[usize::try_from(place).unwrap()]);
        Ok(())
    }
}

/// Three words, so that an item is no power of two.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Three([u64; 3]);

impl Item for Three {
    type Words = [u64; 3];

    fn words(self) -> [u64; 3] {
        self.0
    }

    fn of(words: [u64; 3]) -> Three {
        Three(words)
    }
}

fn three(number: u64) -> Three {
    Three([number, !number, number.rotate_left(32)])
}

fn filled(from: u64, count: u64, shelf: Option<&Arc<dyn Shelf>>) -> Series<Three> {
    let mut series = Series::default();
    (from..from + count).for_each(|number| series.push(three(number), shelf));
    series
}

proptest! {
    /// Whatever the shelf refuses, and however two are joined, every value is there once, and none is changed.
    #[test]
    fn all_values_come_back(counts in [0_u64..5_000, 0_u64..5_000], refuses in 0_u64..4, shelved: bool) {
        let told: Arc<dyn Shelf> = Arc::new(Told { refuses, ..Told::default() });
        let shelf = shelved.then_some(&told);
        let mut series = filled(0, counts[0], shelf);
        prop_assert_eq!(series.all().unwrap(), (0..counts[0]).map(three).collect::<Vec<_>>());
        series.append(filled(counts[0], counts[1], shelf));
        let mut all = series.all().unwrap();
        all.sort_by_key(|item| item.0);
        prop_assert_eq!(all, (0..counts[0] + counts[1]).map(three).collect::<Vec<_>>());
    }
}

#[test]
fn a_number_keeps_all_its_bits() {
    let told: Arc<dyn Shelf> = Arc::new(Told::default());
    let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 0.1];
    let mut series = Series::default();
    for index in 0..3 * BLOCK {
        series.push(odd[index % odd.len()], Some(&told));
    }
    let bits = series.all().unwrap().into_iter().map(f64::to_bits);
    let expected = (0..3 * BLOCK).map(|index| odd[index % odd.len()].to_bits());
    assert!(bits.eq(expected));
}

#[test]
fn no_more_than_a_block_stays_in_memory() {
    let told: Arc<dyn Shelf> = Arc::new(Told::default());
    let mut series = Series::default();
    for number in 0..20_000 {
        series.push(three(number), Some(&told));
        assert!(series.rest.len() < BLOCK * size_of::<Three>());
    }
    assert!(series.rest.capacity() <= 2 * BLOCK * size_of::<Three>());
}

#[test]
fn a_shelf_that_is_full_is_asked_once_a_block() {
    let told = Arc::new(Told {
        refuses: u64::MAX - 1,
        asked: Mutex::new(1),
        ..Told::default()
    });
    let shelf: Arc<dyn Shelf> = Arc::<Told>::clone(&told);
    let count = 4 * BLOCK as u64 + 7;
    let series = filled(0, count, Some(&shelf));
    assert_eq!(*told.asked.lock().unwrap(), 1 + 4);
    assert_eq!(series.all().unwrap().len() as u64, count);
}

#[test]
fn a_block_that_is_gone_is_an_error() {
    let shelf: Arc<dyn Shelf> = Arc::new(Told {
        gives_nothing: true,
        ..Told::default()
    });
    let kept = filled(0, BLOCK as u64 - 1, Some(&shelf));
    assert_eq!(kept.all().unwrap().len(), BLOCK - 1);
    let gone = filled(0, BLOCK as u64, Some(&shelf));
    assert_eq!(gone.all().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
