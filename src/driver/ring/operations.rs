//! What the kernel is doing for us, and the memory it does it with.
//!
//! In: operations as they are handed over. Out: the same, when their last completion has come. Never: frees memory that the kernel
//! may still read, or takes the completion of one operation for another's.

use socket2::SockAddr;

use crate::driver::fetch_front;

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Opens a connection.
    Connect,
    /// Receives until told to stop.
    Receive,
    /// Sends once.
    Send,
    /// Ends all others of its connection.
    Cancel,
    /// Does nothing.
    Nothing,
}

/// Memory that the kernel reads while the operation is under way.
pub(super) enum Memory {
    /// None of its own.
    None,
    /// Where to connect to.
    Address(Box<SockAddr>),
    /// What is sent.
    Bytes(Vec<u8>),
}

/// One operation.
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// Which connection it is of: a place in the table of links.
    pub(super) link: u32,
    pub(super) memory: Memory,
}

struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

/// All operations under way. A key tells an operation from all that had its place before.
#[derive(Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
}

impl Operations {
    /// Keeps `operation` until [`Operations::end`]; the key goes to the kernel as its user data.
    pub(super) fn begin(&mut self, operation: Operation) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                operation: None,
            });
            u32::try_from(self.slots.len() - 1).expect("operations are bounded by connections")
        });
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.operation.is_none());
        slot.operation = Some(operation);
        self.count += 1;
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Asks for what [`Operations::find`] looks at.
    pub(super) fn fetch(&self, key: u64) {
        if let Some(slot) = self.slots.get(index_of(key)) {
            fetch_front(slot, size_of::<Slot>());
        }
    }

    /// Kind and link of the operation that `key` means; `None` when it has ended.
    pub(super) fn find(&self, key: u64) -> Option<(Kind, u32)> {
        let slot = self.slots.get(index_of(key))?;
        let operation = slot.operation.as_ref()?;
        (u64::from(slot.generation) == key >> 32).then_some((operation.kind, operation.link))
    }

    /// The operation under `key` is over.
    pub(super) fn end(&mut self, key: u64) -> Option<Operation> {
        let slot = self.slots.get_mut(index_of(key))?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        let operation = slot.operation.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free
            .push(u32::try_from(index_of(key)).unwrap_or(u32::MAX));
        self.count -= 1;
        Some(operation)
    }

    /// Keys of all operations under way.
    pub(super) fn keys(&self) -> Vec<u64> {
        let slots = (0u64..).zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.operation.is_some())
            .map(|(index, slot)| u64::from(slot.generation) << 32 | index)
            .collect()
    }

    /// Operations under way.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// The place in the table: the lower half of a key.
fn index_of(key: u64) -> usize {
    usize::try_from(key & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(link: u32) -> Operation {
        Operation {
            kind: Kind::Send,
            link,
            memory: Memory::None,
        }
    }

    #[test]
    fn a_late_completion_means_nobody_s_operation() {
        let mut operations = Operations::default();
        let first = operations.begin(operation(1));
        assert_eq!(operations.find(first), Some((Kind::Send, 1)));
        assert!(operations.end(first).is_some());
        let second = operations.begin(operation(2));
        assert_eq!(index_of(first), index_of(second), "the place is used again");
        assert_eq!(operations.find(first), None);
        assert!(operations.end(first).is_none());
        assert_eq!(operations.find(second), Some((Kind::Send, 2)));
        assert_eq!((operations.count(), operations.keys()), (1, vec![second]));
        for key in [u64::MAX, 1 << 32 | 9, 77] {
            assert!(operations.find(key).is_none() && operations.end(key).is_none());
        }
    }
}
