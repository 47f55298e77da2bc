//! The way of an exchange from a worker to the recorder, and back empty.
//!
//! In: finished exchanges. Out: the same, in order. Never: blocks a worker, or loses one: what the queue cannot take waits in the
//! worker's own list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::engine::Sink;
use crate::record::Exchange;

/// Exchanges that a queue holds before the worker keeps them itself.
const LENGTH: usize = 4_096;

/// Empty exchanges kept for each worker; they hold their buffers.
const SPARES: usize = 1_024;

/// A recycled exchange keeps no larger body buffer than this.
const KEPT_BODY_BYTES: usize = 1 << 20;

/// A worker's end.
pub(super) struct WorkerEnd {
    out: Producer<Box<Exchange>>,
    back: Consumer<Box<Exchange>>,
    overflow: VecDeque<Box<Exchange>>,
    overflowed: Arc<AtomicU64>,
}

/// The recorder's end.
pub(super) struct RecorderEnd {
    queue: Consumer<Box<Exchange>>,
    back: Producer<Box<Exchange>>,
}

/// A queue between one worker and the recorder. `overflowed` counts exchanges that found it full.
pub(super) fn queue(overflowed: &Arc<AtomicU64>) -> (WorkerEnd, RecorderEnd) {
    let (out, queue) = RingBuffer::new(LENGTH);
    let (give, back) = RingBuffer::new(SPARES);
    let worker = WorkerEnd {
        out,
        back,
        overflow: VecDeque::new(),
        overflowed: Arc::clone(overflowed),
    };
    (worker, RecorderEnd { queue, back: give })
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
        self.back.pop().unwrap_or_default()
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
    /// The load is over: now the worker may wait for the recorder.
    fn drop(&mut self) {
        while !self.overflow.is_empty() && !self.out.is_abandoned() {
            self.flush();
            std::thread::yield_now();
        }
    }
}

impl RecorderEnd {
    /// The oldest exchange in the queue.
    pub(super) fn pop(&mut self) -> Option<Box<Exchange>> {
        self.queue.pop().ok()
    }

    /// Its worker is gone and nothing is left.
    pub(super) fn is_over(&self) -> bool {
        // In this order: what was pushed before the worker went away is seen.
        self.queue.is_abandoned() && self.queue.is_empty()
    }

    /// Gives an exchange back for another request.
    pub(super) fn recycle(&mut self, mut exchange: Box<Exchange>) {
        exchange.clear();
        exchange.body.shrink_to(KEPT_BODY_BYTES);
        // A full list means that enough are about; this one is freed.
        let _ = self.back.push(exchange);
    }
}
