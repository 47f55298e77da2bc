//! A warm worker allocates nothing.
//!
//! In: captured streams, an engine in memory. Out: allocations counted by the allocator itself. Never: a socket or a time.

#[path = "engine/replay.rs"]
mod replay;

use allocation_counter::measure;
use replay::{Meter, reads, replay};

/// Requests after which every buffer has its size.
const WARM: u64 = 2_000;

/// Requests that are counted.
const COUNTED: u64 = 500;

/// Allocations, once warm.
#[derive(Default)]
struct Allocations {
    warm: bool,
    in_received: u64,
    elsewhere: u64,
}

impl Meter for Allocations {
    fn received(&mut self, call: impl FnOnce()) {
        let count = measure(call).count_total;
        self.in_received += if self.warm { count } else { 0 };
    }

    fn other<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let mut result = None;
        let count = measure(|| result = Some(call())).count_total;
        self.elsewhere += if self.warm { count } else { 0 };
        result.expect("the call was made")
    }

    fn ended(&mut self, requests: u64) -> bool {
        self.warm = requests >= WARM;
        requests < WARM + COUNTED
    }
}

#[test]
fn a_warm_worker_allocates_nothing() {
    for name in ["vllm-chat-stream-continuous", "llamacpp-chat-stream-usage"] {
        let path = format!(
            "{}/tests/wire/captured/{name}.resp",
            env!("CARGO_MANIFEST_DIR")
        );
        let response = std::fs::read(path).expect("a captured stream");
        // As captured the server closes each connection; the same without that header keeps them.
        let kept = String::from_utf8(response.clone())
            .expect("text")
            .replacen("onnection: close", "-nothing: close", 1)
            .into_bytes();
        assert_ne!(kept, response, "the capture closes its connection");
        for (response, events) in [(&response, 1), (&response, 60), (&kept, 1), (&kept, 60)] {
            let mut allocations = Allocations::default();
            let tally = replay(&reads(response, events), 10, &mut allocations);
            assert!(tally.exchanges >= WARM + COUNTED && tally.events > tally.exchanges);
            let place = format!("{name}, {events} events a read");
            assert_eq!(allocations.in_received, 0, "on_received: {place}");
            assert_eq!(
                allocations.elsewhere, 0,
                "elsewhere, over {COUNTED} requests: {place}"
            );
        }
    }
}

#[test]
fn an_allocation_is_seen() {
    assert_eq!(
        measure(|| drop(std::hint::black_box(vec![1]))).count_total,
        1
    );
}
