//! The provided-buffer ring: memory that the kernel picks receive buffers from.
//!
//! In: numbers of buffers that completions name. Out: the bytes in them. Never: hands out a buffer that the kernel owns, or gives
//! one back twice.
//!
//! The kernel owns a buffer from [`Buffers::publish`] until a completion names it; from [`Buffers::claim`] to
//! [`Buffers::give_back`] it is ours. A table keeps which is which, so that no mistake of the caller reaches the memory.
#![expect(
    unsafe_code,
    reason = "memory shared with the kernel, one operation a block"
)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// The group that receives name.
pub(super) const GROUP: u16 = 0;

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
    /// Which buffers are ours.
    ours: Box<[bool]>,
}

impl Buffers {
    /// Maps `count` (a power of two up to 32,768) buffers of `buffer_bytes` each. All are ours at first.
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
            ours: vec![true; usize::from(count)].into(),
        })
    }

    /// Registers the ring and hands all buffers to the kernel.
    pub(super) fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        let address = self.entries.start.as_ptr() as u64;
        // SAFETY: the mapping holds `count` entries and lives until the ring is gone: `Ring` drops its ring before its buffers.
        unsafe { submitter.register_buf_ring_with_flags(address, self.count, GROUP, 0) }?;
        for id in 0..self.count {
            self.give_back(id);
        }
        self.publish();
        Ok(())
    }

    /// A completion names buffer `id`: it is ours until it is given back. False for one that is no buffer of the kernel's.
    pub(super) fn claim(&mut self, id: u16) -> bool {
        match self.ours.get_mut(usize::from(id)) {
            Some(ours) => !std::mem::replace(ours, true),
            None => false,
        }
    }

    /// The first `length` bytes of buffer `id`, which must be ours; fewer when it is smaller.
    pub(super) fn bytes(&self, id: u16, length: usize) -> &[u8] {
        let index = usize::from(id);
        assert!(self.ours[index], "buffer {id} is the kernel's");
        let offset = index * self.buffer_bytes;
        // SAFETY: `index` is below `count` (or the line above had panicked), so the offset lies inside the mapping.
        let start = unsafe { self.memory.start.add(offset) };
        let length = length.min(self.buffer_bytes);
        // SAFETY: `length` bytes from here are inside the mapping, initialised (by the kernel, or as zeros), and nobody writes them
        // while the buffer is ours; giving it back needs `&mut self`, which this borrow keeps away.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// Puts buffer `id`, which must be ours, back into the ring. The kernel sees it after [`Buffers::publish`].
    pub(super) fn give_back(&mut self, id: u16) {
        let index = usize::from(id);
        assert!(self.ours[index], "buffer {id} is given back twice");
        self.ours[index] = false;
        // SAFETY: as in `bytes`.
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

    /// Shows the kernel everything given back so far, with one store.
    pub(super) fn publish(&mut self) {
        let first = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: the mapping begins with the ring's first entry, whose reserved half-word the kernel's interface makes the tail.
        let tail = unsafe { BufRingEntry::tail(first.as_ptr()) };
        // SAFETY: it is aligned, lives as long as the mapping, and is only accessed atomically from here on; setting an entry's
        // address, length and number leaves it alone.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Number of buffers.
    #[cfg(test)]
    fn owned(&self) -> usize {
        self.ours.iter().filter(|ours| **ours).count()
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
        assert_eq!(buffers.owned(), 4);
        buffers.give_back(2);
        buffers.publish();
        assert_eq!(buffers.owned(), 3);
        assert!(buffers.claim(2), "the kernel had it");
        assert!(!buffers.claim(2), "the kernel had it no more");
        assert!(!buffers.claim(7), "there is no such buffer");
        assert_eq!(buffers.bytes(2, 10), [0; 10]);
        assert_eq!(buffers.bytes(2, 1 << 20).len(), 4_096);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_a_bug() {
        let mut buffers = Buffers::new(2, 4_096).unwrap();
        buffers.give_back(1);
        buffers.give_back(1);
    }

    #[test]
    #[should_panic(expected = "is the kernel's")]
    fn reading_what_the_kernel_owns_is_a_bug() {
        let mut buffers = Buffers::new(2, 4_096).unwrap();
        buffers.give_back(0);
        let _ = buffers.bytes(0, 1);
    }
}
