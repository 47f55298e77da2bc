//! The provided-buffer ring: memory that the kernel picks receive buffers from.
//!
//! In: numbers of buffers that completions name. Out: the bytes in them. Never: hands out a buffer that the kernel owns, or gives
//! one back twice.
//!
//! The kernel owns a buffer from [`Buffers::publish`] until a completion names it; from [`Buffers::claim`] to
//! [`Buffers::give_back`] it is ours. A table keeps which is which, so that no mistake of the caller reaches the memory.
//!
//! The kernel takes buffers in the order in which they were shown. If it were shown all, each read would land in the one that was
//! used longest ago, which is in no cache any more. So it is shown few, those last given back first, and more once they run low.
#![expect(
    unsafe_code,
    reason = "memory shared with the kernel, one operation a block"
)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use super::fetch::fetch;

/// The group that receives name.
pub(super) const GROUP: u16 = 0;

/// The kernel is shown this many at first, and twice as many each time that half of them was used in one batch.
const SHOWN_FIRST: u16 = 256;

/// So many bytes of a read are asked for ahead; what follows them is in order and comes by itself.
const FETCH_MOST: usize = 512;

/// Who has a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The kernel, or it will when the tail is moved.
    Kernel,
    /// Whoever claimed it.
    Reader,
    /// Nobody; it waits to be shown.
    Spare,
}

/// Buffers of one ring.
pub(super) struct Buffers {
    /// One entry for each buffer; the kernel reads those between its head and the tail that stands in the first entry.
    entries: Mapping,
    memory: Mapping,
    /// A power of two, at most 32,768.
    count: u16,
    buffer_bytes: usize,
    /// Grows by one for each buffer given back; the lowest bits are the place in the ring.
    tail: u16,
    holders: Box<[Holder]>,
    /// Those that nobody has, the last given back on top.
    spare: Vec<u16>,
    /// How many the kernel has.
    shown: u16,
    /// How many it is to have.
    target: u16,
}

impl Buffers {
    /// Maps `count` (a power of two up to 32,768) buffers of `buffer_bytes` each. The kernel has none yet.
    pub(super) fn new(count: u16, buffer_bytes: usize) -> io::Result<Buffers> {
        assert!(
            count.is_power_of_two() && count <= 1 << 15,
            "a ring of {count} buffers"
        );
        Ok(Buffers {
            entries: Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?,
            memory: Mapping::new(usize::from(count) * buffer_bytes)?,
            count,
            buffer_bytes,
            tail: 0,
            holders: vec![Holder::Spare; usize::from(count)].into(),
            spare: (0..count).rev().collect(),
            shown: 0,
            target: count.min(SHOWN_FIRST),
        })
    }

    /// Registers the ring and hands the first buffers to the kernel.
    pub(super) fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        let address = self.entries.start.as_ptr() as u64;
        // SAFETY: the mapping holds `count` entries and lives until the ring is gone: `Ring` drops its ring before its buffers.
        unsafe { submitter.register_buf_ring_with_flags(address, self.count, GROUP, 0) }?;
        self.show();
        Ok(())
    }

    /// A completion names buffer `id`: it is ours until it is given back. False for one that is no buffer of the kernel's.
    pub(super) fn claim(&mut self, id: u16) -> bool {
        match self.holders.get_mut(usize::from(id)) {
            Some(holder @ Holder::Kernel) => {
                *holder = Holder::Reader;
                self.shown -= 1;
                true
            }
            _ => false,
        }
    }

    /// Asks for what a read of `result` bytes left in buffer `id`, the first of it.
    pub(super) fn fetch(&self, id: u16, result: i32) {
        let bytes = usize::try_from(result).unwrap_or(0).min(FETCH_MOST);
        let offset = usize::from(id) * self.buffer_bytes;
        fetch(self.memory.start.addr().get().wrapping_add(offset), bytes);
    }

    /// The first `length` bytes of buffer `id`, which must be ours; fewer when it is smaller.
    pub(super) fn bytes(&self, id: u16, length: usize) -> &[u8] {
        let index = usize::from(id);
        let holder = self.holders[index];
        assert!(holder == Holder::Reader, "buffer {id} is not the reader's");
        let offset = index * self.buffer_bytes;
        // SAFETY: `index` is below `count` (or the line above had panicked), so the offset lies inside the mapping.
        let start = unsafe { self.memory.start.add(offset) };
        let length = length.min(self.buffer_bytes);
        // SAFETY: `length` bytes from here are inside the mapping, initialised (by the kernel, or as zeros), and nobody writes them
        // while the buffer is ours; giving it back needs `&mut self`, which this borrow keeps away.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// Nobody needs buffer `id`, which must be claimed, any more.
    pub(super) fn give_back(&mut self, id: u16) {
        let index = usize::from(id);
        let holder = self.holders[index];
        assert!(holder == Holder::Reader, "buffer {id} is given back twice");
        self.holders[index] = Holder::Spare;
        self.spare.push(id);
    }

    /// Shows the kernel as many buffers as it is to have, with one store.
    pub(super) fn publish(&mut self) {
        if self.shown < self.target / 2 {
            self.target = self.target.saturating_mul(2).min(self.count);
        }
        if self.shown < self.target {
            self.show();
        }
    }

    fn show(&mut self) {
        while self.shown < self.target
            && let Some(id) = self.spare.pop()
        {
            self.put(id);
        }
        self.move_tail();
    }

    /// Puts buffer `id` into the ring. The kernel sees it when the tail is moved.
    fn put(&mut self, id: u16) {
        let index = usize::from(id);
        self.holders[index] = Holder::Kernel;
        self.shown += 1;
        // SAFETY: `index` is below `count` (or the line above had panicked), so the offset lies inside the mapping.
        let address = unsafe { self.memory.start.add(index * self.buffer_bytes) };
        let place = usize::from(self.tail & (self.count - 1));
        let first = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: `place` is below `count`, the number of entries in the mapping.
        let mut slot = unsafe { first.add(place) };
        // SAFETY: the entry is aligned, initialised and at or past the tail, where the kernel does not look; there are as many
        // entries as buffers, so it is no entry that waits to be taken. No other reference to it exists.
        let entry = unsafe { slot.as_mut() };
        entry.set_addr(address.as_ptr() as u64);
        entry.set_len(u32::try_from(self.buffer_bytes).unwrap_or(u32::MAX));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel everything put so far.
    fn move_tail(&mut self) {
        let first = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: the mapping begins with the ring's first entry, whose reserved half-word the kernel's interface makes the tail.
        let tail = unsafe { BufRingEntry::tail(first.as_ptr()) };
        // SAFETY: it is aligned, lives as long as the mapping, and is only accessed atomically from here on; setting an entry's
        // address, length and number leaves it alone.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Pages of our own, zeroed, and touched only when used.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(length: usize) -> io::Result<Mapping> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new anonymous mapping touches no memory that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is the mapping made in `new`, and every borrow of it borrowed `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_on_one_side_at_a_time() {
        let mut buffers = Buffers::new(4, 4_096).unwrap();
        assert!(!buffers.claim(2), "the kernel has none yet");
        buffers.show();
        assert_eq!((buffers.shown, buffers.spare.len()), (4, 0));
        assert!(buffers.claim(2), "the kernel had it");
        assert!(!buffers.claim(2), "the kernel had it no more");
        assert!(!buffers.claim(7), "there is no such buffer");
        assert_eq!(buffers.bytes(2, 10), [0; 10]);
        assert_eq!(buffers.bytes(2, 1 << 20).len(), 4_096);
        buffers.give_back(2);
        assert!(!buffers.claim(2), "it was not shown again");
        buffers.publish();
        assert!(buffers.claim(2));
    }

    #[test]
    fn few_are_shown_until_they_run_low() {
        let mut buffers = Buffers::new(1_024, 256).unwrap();
        buffers.show();
        let shown = |buffers: &Buffers| {
            let kernel = |holder: &&Holder| **holder == Holder::Kernel;
            buffers.holders.iter().filter(kernel).count()
        };
        assert_eq!(shown(&buffers), 256);
        // The kernel takes them in order, a hundred in a batch: the same few go round.
        let mut used = std::collections::BTreeSet::<u16>::new();
        let mut ring: std::collections::VecDeque<u16> = (0..256).collect();
        for _ in 0..50 {
            let batch: Vec<u16> = ring.drain(..100).collect();
            assert!(batch.iter().all(|&id| buffers.claim(id)));
            used.extend(&batch);
            batch.iter().for_each(|&id| buffers.give_back(id));
            buffers.publish();
            ring.extend(batch.iter().rev());
        }
        assert_eq!((shown(&buffers), used.len()), (256, 256));
        // A batch of more than half of them.
        let batch: Vec<u16> = ring.drain(..200).collect();
        assert!(batch.iter().all(|&id| buffers.claim(id)));
        buffers.publish();
        assert_eq!(shown(&buffers), 512, "held ones are made up for");
        batch.iter().for_each(|&id| buffers.give_back(id));
        buffers.publish();
        assert_eq!((shown(&buffers), buffers.spare.len()), (512, 512));
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_a_bug() {
        let mut buffers = Buffers::new(2, 4_096).unwrap();
        buffers.show();
        assert!(buffers.claim(1));
        buffers.give_back(1);
        buffers.give_back(1);
    }

    #[test]
    #[should_panic(expected = "is not the reader's")]
    fn reading_what_the_kernel_owns_is_a_bug() {
        let mut buffers = Buffers::new(2, 4_096).unwrap();
        buffers.show();
        let _ = buffers.bytes(0, 1);
    }
}
