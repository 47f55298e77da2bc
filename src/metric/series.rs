//! Exact values, as many as a run has requests.
//!
//! In: values, one by one. Out: all of them, at the end. Never: rounds one, or lets a long run grow by them where there is a [`Shelf`].

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// Values of a block that is put away.
const BLOCK: usize = 1_024;

/// Where full blocks stand until the end of a run. This room opens no file.
pub trait Shelf: fmt::Debug + Send + Sync {
    /// Puts `block` away and says where it stands.
    ///
    /// # Errors
    /// When it cannot; the values then stay in memory.
    fn put(&self, block: &[u8]) -> io::Result<u64>;

    /// Fills `block` with what stands at `place`.
    ///
    /// # Errors
    /// When it cannot be had back.
    fn fetch(&self, place: u64, block: &mut [u8]) -> io::Result<()>;
}

/// A value that is a fixed number of words.
pub(super) trait Item: Copy {
    type Words: AsRef<[u64]> + AsMut<[u64]> + Default;

    fn words(self) -> Self::Words;
    fn of(words: Self::Words) -> Self;
}

impl Item for f64 {
    type Words = [u64; 1];

    fn words(self) -> [u64; 1] {
        [self.to_bits()]
    }

    fn of([bits]: [u64; 1]) -> f64 {
        f64::from_bits(bits)
    }
}

/// Values in the order in which they came.
#[derive(Clone, Debug)]
pub(super) struct Series<T> {
    blocks: Vec<Block>,
    /// The last values, as the bytes of their words.
    rest: Vec<u8>,
    items: PhantomData<T>,
}

#[derive(Clone, Debug)]
struct Block {
    shelf: Arc<dyn Shelf>,
    place: u64,
    bytes: usize,
}

impl<T> Default for Series<T> {
    fn default() -> Series<T> {
        Series {
            blocks: Vec::new(),
            rest: Vec::new(),
            items: PhantomData,
        }
    }
}

impl<T: Item> Series<T> {
    const ITEM_BYTES: usize = size_of::<T::Words>();

    /// Adds `item`, and puts a block away that is full. A shelf that takes none is asked again a block later.
    pub(super) fn push(&mut self, item: T, shelf: Option<&Arc<dyn Shelf>>) {
        for word in item.words().as_ref() {
            self.rest.extend_from_slice(&word.to_ne_bytes());
        }
        let Some(shelf) =
            shelf.filter(|_| self.rest.len().is_multiple_of(BLOCK * Self::ITEM_BYTES))
        else {
            return;
        };
        if let Ok(place) = shelf.put(&self.rest) {
            self.blocks.push(Block {
                shelf: Arc::clone(shelf),
                place,
                bytes: self.rest.len(),
            });
            self.rest.clear();
        }
    }

    /// Adds what `other` holds.
    pub(super) fn append(&mut self, other: Series<T>) {
        self.blocks.extend(other.blocks);
        self.rest.extend(other.rest);
    }

    /// All values; after [`Series::append`] in no particular order.
    ///
    /// # Errors
    /// When a block cannot be had back.
    pub(super) fn all(&self) -> io::Result<Vec<T>> {
        let away: usize = self.blocks.iter().map(|block| block.bytes).sum();
        let mut values = Vec::with_capacity((away + self.rest.len()) / Self::ITEM_BYTES);
        let mut bytes = Vec::new();
        for block in &self.blocks {
            bytes.resize(block.bytes, 0);
            block.shelf.fetch(block.place, &mut bytes)?;
            values.extend(items::<T>(&bytes));
        }
        values.extend(items::<T>(&self.rest));
        Ok(values)
    }
}

fn items<T: Item>(bytes: &[u8]) -> impl Iterator<Item = T> {
    let mut words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word));
    let count = bytes.len() / Series::<T>::ITEM_BYTES;
    (0..count).map(move |_| {
        let mut item = T::Words::default();
        for (place, word) in item.as_mut().iter_mut().zip(&mut words) {
            *place = word;
        }
        T::of(item)
    })
}

#[cfg(test)]
mod tests;
