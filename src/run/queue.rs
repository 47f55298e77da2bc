//! The way of an exchange from a worker to the recorder, and back empty.
//!
//! In: finished exchanges. Out: the same, in order. Never: blocks a worker, or loses one: what the queue cannot take waits in the
//! worker's own list.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::engine::Sink;
use crate::record::Exchange;

/// Exchanges that a queue holds before the worker keeps them itself.
const LENGTH: usize = 4_096;

/// Empty exchanges kept for each worker; they hold their buffers.
const SPARES: usize = 1_024;

/// Bytes that these hold together. A recorder that was behind for a while returns many, and long replies make each of them large.
const SPARE_BYTES: usize = 32 << 20;

/// A recycled exchange keeps no larger body buffer than this.
const KEPT_BODY_BYTES: usize = 2 << 20;

/// A worker's end.
pub(super) struct WorkerEnd {
    out: Producer<Box<Exchange>>,
    back: Consumer<Box<Exchange>>,
    spare_bytes: Arc<AtomicUsize>,
    overflow: VecDeque<Box<Exchange>>,
    overflowed: Arc<AtomicU64>,
    left: Left,
}

/// What a worker leaves behind. Locked once by it, when its load is over.
type Left = Arc<Mutex<VecDeque<Box<Exchange>>>>;

/// The recorder's end.
pub(super) struct RecorderEnd {
    queue: Consumer<Box<Exchange>>,
    back: Producer<Box<Exchange>>,
    spare_bytes: Arc<AtomicUsize>,
    left: Left,
}

/// A queue between one worker and the recorder. `overflowed` counts exchanges that found it full.
pub(super) fn queue(overflowed: &Arc<AtomicU64>) -> (WorkerEnd, RecorderEnd) {
    let (out, queue) = RingBuffer::new(LENGTH);
    let (give, back) = RingBuffer::new(SPARES);
    let left = Left::default();
    let spare_bytes = Arc::new(AtomicUsize::new(0));
    let worker = WorkerEnd {
        out,
        back,
        spare_bytes: Arc::clone(&spare_bytes),
        overflow: VecDeque::new(),
        overflowed: Arc::clone(overflowed),
        left: Arc::clone(&left),
    };
    let recorder = RecorderEnd {
        queue,
        back: give,
        spare_bytes,
        left,
    };
    (worker, recorder)
}

impl WorkerEnd {
    fn flush(&mut self) {
        while let Some(exchange) = self.overflow.pop_front() {
            if let Err(rtrb::PushError::Full(exchange)) = self.out.push(exchange) {
                self.overflow.push_front(exchange);
                return;
            }
        }
    }
}

impl Sink for WorkerEnd {
    fn blank(&mut self) -> Box<Exchange> {
        let Ok(spare) = self.back.pop() else {
            return Box::default();
        };
        self.spare_bytes
            .fetch_sub(spare.capacity_bytes(), Ordering::Relaxed);
        spare
    }

    fn push(&mut self, exchange: Box<Exchange>) {
        self.flush();
        if !self.overflow.is_empty() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            return self.overflow.push_back(exchange);
        }
        if let Err(rtrb::PushError::Full(exchange)) = self.out.push(exchange) {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            self.overflow.push_back(exchange);
        }
    }
}

impl Drop for WorkerEnd {
    /// The load is over: what the queue could not take is left behind. Before the queue itself goes, which tells the recorder.
    fn drop(&mut self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.append(&mut self.overflow);
    }
}

impl RecorderEnd {
    /// The oldest exchange in the queue.
    pub(super) fn pop(&mut self) -> Option<Box<Exchange>> {
        // Asked first: what was pushed before the worker went away is seen, and it is older than what was left.
        let abandoned = self.queue.is_abandoned();
        if let Ok(exchange) = self.queue.pop() {
            return Some(exchange);
        }
        if !abandoned {
            return None;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop_front()
    }

    /// Its worker is gone; what it left can still be popped.
    pub(super) fn is_abandoned(&self) -> bool {
        self.queue.is_abandoned()
    }

    /// Gives an exchange back for another request.
    pub(super) fn recycle(&mut self, mut exchange: Box<Exchange>) {
        exchange.clear();
        exchange.body.shrink_to(KEPT_BODY_BYTES);
        let bytes = exchange.capacity_bytes();
        if self.spare_bytes.load(Ordering::Relaxed) + bytes > SPARE_BYTES {
            return;
        }
        // Counted before the worker can take it. A full list means that enough are about; this one is freed.
        self.spare_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.back.push(exchange).is_err() {
            self.spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_hold_no_more_than_their_bytes_and_are_counted_back() {
        let (mut worker, mut recorder) = queue(&Arc::default());
        let used = |bytes| {
            let mut exchange = Box::<Exchange>::default();
            exchange.body = Vec::with_capacity(bytes);
            exchange
        };
        let fitting = SPARE_BYTES / KEPT_BODY_BYTES;
        for _ in 0..2 {
            for _ in 0..fitting + 5 {
                recorder.recycle(used(KEPT_BODY_BYTES));
            }
            let kept = (0..fitting + 5).filter(|_| worker.blank().body.capacity() > 0);
            assert_eq!(kept.count(), fitting);
        }
        for _ in 0..SPARES + 5 {
            recorder.recycle(used(16));
        }
        while worker.blank().body.capacity() > 0 {}
        assert_eq!(worker.spare_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_queue_cannot_take_comes_in_order_after_its_worker_is_gone() {
        let overflowed = Arc::new(AtomicU64::new(0));
        let (mut worker, mut recorder) = queue(&overflowed);
        let count = LENGTH as u64 + 10;
        for number in 0..count {
            let mut exchange = worker.blank();
            exchange.id.number = number;
            worker.push(exchange);
        }
        assert_eq!(overflowed.load(Ordering::Relaxed), 10);
        let mut seen = 0;
        let mut take = |recorder: &mut RecorderEnd, most: u64| {
            for _ in 0..most {
                let Some(exchange) = recorder.pop() else {
                    return seen;
                };
                assert_eq!(exchange.id.number, seen);
                seen += 1;
                recorder.recycle(exchange);
            }
            seen
        };
        assert_eq!(take(&mut recorder, 5), 5);
        assert!(!recorder.is_abandoned());
        drop(worker);
        assert!(recorder.is_abandoned());
        assert_eq!(take(&mut recorder, u64::MAX), count, "none was lost");
    }
}
