//! The way of an exchange from a worker to the recorder, and back empty.
//!
//! In: finished exchanges. Out: the same, in order. Never: blocks a worker, or loses one: what the queue cannot take waits in the
//! worker's own list.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::engine::{BODY_BYTES_MOST, Sink};
use crate::metric::health::Backlog;
use crate::record::Exchange;

/// Exchanges that a queue holds before the worker keeps them itself.
const LENGTH: usize = 4_096;

/// Empty exchanges kept for each worker; they hold their buffers.
const SPARES: usize = 1_024;

/// Bytes that these hold together. A recorder that was behind for a while returns many, and long replies make each of them large.
const SPARE_BYTES: usize = 32 << 20;

/// A worker's end.
pub(super) struct WorkerEnd {
    out: Producer<Box<Exchange>>,
    back: Consumer<Box<Exchange>>,
    sums: Arc<Sums>,
    overflow: VecDeque<Box<Exchange>>,
    left: Left,
}

/// What a worker leaves behind. Locked once by it, when its load is over.
type Left = Arc<Mutex<VecDeque<Box<Exchange>>>>;

/// The recorder's end.
pub(super) struct RecorderEnd {
    queue: Consumer<Box<Exchange>>,
    back: Producer<Box<Exchange>>,
    sums: Arc<Sums>,
    left: Left,
}

/// What both ends count. Touched once or twice by each for a finished request, never for an event.
#[derive(Default)]
struct Sums {
    /// Bytes of the empty exchanges on their way back.
    spare_bytes: AtomicUsize,
    /// Exchanges that have been pushed and not popped, and the bytes they hold.
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
    /// The most of each; the worker's alone to write, as is the next.
    most_waiting: AtomicU64,
    most_bytes: AtomicU64,
    /// Exchanges that found the queue full.
    overflowed: AtomicU64,
}

impl Sums {
    fn pushed(&self, bytes: u64) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        for (most, now) in [(&self.most_waiting, waiting), (&self.most_bytes, bytes)] {
            if now > most.load(Ordering::Relaxed) {
                most.store(now, Ordering::Relaxed);
            }
        }
    }

    fn popped(&self, bytes: u64) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What an exchange holds, itself included; it does not change while the exchange waits.
fn bytes_of(exchange: &Exchange) -> u64 {
    (size_of::<Exchange>() + exchange.filled_bytes()) as u64
}

/// A queue between one worker and the recorder.
pub(super) fn queue() -> (WorkerEnd, RecorderEnd) {
    let (out, queue) = RingBuffer::new(LENGTH);
    let (give, back) = RingBuffer::new(SPARES);
    let left = Left::default();
    let sums = Arc::<Sums>::default();
    let worker = WorkerEnd {
        out,
        back,
        sums: Arc::clone(&sums),
        overflow: VecDeque::new(),
        left: Arc::clone(&left),
    };
    let recorder = RecorderEnd {
        queue,
        back: give,
        sums,
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
        self.sums
            .spare_bytes
            .fetch_sub(spare.capacity_bytes(), Ordering::Relaxed);
        spare
    }

    fn push(&mut self, exchange: Box<Exchange>) {
        // Before the recorder can take it.
        self.sums.pushed(bytes_of(&exchange));
        self.flush();
        if !self.overflow.is_empty() {
            self.sums.overflowed.fetch_add(1, Ordering::Relaxed);
            return self.overflow.push_back(exchange);
        }
        if let Err(rtrb::PushError::Full(exchange)) = self.out.push(exchange) {
            self.sums.overflowed.fetch_add(1, Ordering::Relaxed);
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
        let found = match self.queue.pop() {
            Ok(exchange) => exchange,
            Err(_) if abandoned => {
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                left.pop_front()?
            }
            Err(_) => return None,
        };
        self.sums.popped(bytes_of(&found));
        Some(found)
    }

    /// Adds what waited here.
    pub(super) fn add_backlog(&self, backlog: &mut Backlog) {
        let sums = &self.sums;
        backlog.most_requests += sums.most_waiting.load(Ordering::Relaxed);
        backlog.most_bytes += sums.most_bytes.load(Ordering::Relaxed);
        backlog.overflowed += sums.overflowed.load(Ordering::Relaxed);
    }

    /// Its worker is gone; what it left can still be popped.
    pub(super) fn is_abandoned(&self) -> bool {
        self.queue.is_abandoned()
    }

    /// Gives an exchange back for another request.
    pub(super) fn recycle(&mut self, mut exchange: Box<Exchange>) {
        exchange.clear();
        exchange.body.shrink_to(BODY_BYTES_MOST);
        let bytes = exchange.capacity_bytes();
        if self.sums.spare_bytes.load(Ordering::Relaxed) + bytes > SPARE_BYTES {
            return;
        }
        // Counted before the worker can take it. A full list means that enough are about; this one is freed.
        self.sums.spare_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.back.push(exchange).is_err() {
            self.sums.spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_hold_no_more_than_their_bytes_and_are_counted_back() {
        let (mut worker, mut recorder) = queue();
        let used = |bytes| {
            let mut exchange = Box::<Exchange>::default();
            exchange.body = Vec::with_capacity(bytes);
            exchange
        };
        let fitting = SPARE_BYTES / BODY_BYTES_MOST;
        for _ in 0..2 {
            for _ in 0..fitting + 5 {
                recorder.recycle(used(BODY_BYTES_MOST));
            }
            let kept = (0..fitting + 5).filter(|_| worker.blank().body.capacity() > 0);
            assert_eq!(kept.count(), fitting);
        }
        for _ in 0..SPARES + 5 {
            recorder.recycle(used(16));
        }
        while worker.blank().body.capacity() > 0 {}
        assert_eq!(worker.sums.spare_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_queue_cannot_take_comes_in_order_after_its_worker_is_gone() {
        let (mut worker, mut recorder) = queue();
        let count = LENGTH as u64 + 10;
        for number in 0..count {
            let mut exchange = worker.blank();
            exchange.id.number = number;
            exchange.body = Vec::with_capacity(1 << 20);
            exchange.body.push(b'x');
            worker.push(exchange);
        }
        let waited = |recorder: &RecorderEnd| {
            let mut backlog = Backlog::default();
            recorder.add_backlog(&mut backlog);
            backlog
        };
        let backlog = waited(&recorder);
        assert_eq!((backlog.most_requests, backlog.overflowed), (count, 10));
        let each = size_of::<Exchange>() as u64 + 4_096;
        assert_eq!(
            backlog.most_bytes,
            count * each,
            "whole pages of what is filled"
        );
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
        assert_eq!(waited(&recorder), backlog, "the most stays");
        let sums = &recorder.sums;
        for left in [&sums.waiting, &sums.waiting_bytes] {
            assert_eq!(left.load(Ordering::Relaxed), 0);
        }
    }
}
