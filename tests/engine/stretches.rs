//! What decryption may do to the stamps of others.
//!
//! In: small streams and large ones over TLS, on an engine whose decryption takes time. Out: how late the driver stamped the small ones'
//! reads. Never: a time of the machine's.

use tokenring::clock::Nanos;
use tokenring::driver::simulated::{Answer, Simulation};

use crate::bench::{Bench, Played, closed_loop};
use crate::secure;

/// Decrypting a record takes so long here, ten times as long as it does.
const RECORD: Nanos = Nanos(40_000);

/// Of a small stream.
const EVENTS: usize = 200;

/// `small` streams that tick every 100 us, beside `large` replies of a megabyte that come all at once, in events of `event` bytes.
fn play(small: u64, large: u64, event: usize, decryption: Nanos) -> Played {
    let streams = small + large;
    let concurrency = usize::try_from(streams).expect("a few");
    let mut bench = Bench::new(closed_loop(concurrency, streams));
    let mut simulation = Simulation::new(11);
    simulation.kernel_stamps = true;
    simulation.decryption = decryption;
    secure::everywhere(&mut bench, &mut simulation);
    let mut begun = 0;
    simulation.server = Box::new(move |_, _| {
        begun += 1;
        if begun <= small {
            return Answer::stream(EVENTS, Nanos(100_000));
        }
        let mut answer = Answer::stream(0, Nanos(0));
        answer.delay = Nanos(5_000_000);
        let text = format!("data: {}\n\n", "x".repeat(event - 8)).into_bytes();
        answer.pieces = vec![(Nanos(0), text); (1 << 20) / event];
        answer
    });
    bench.play(simulation)
}

/// The longest time from the kernel's stamp to the driver's, of the small streams' reads.
fn latest(played: &Played) -> u64 {
    let small = played.exchanges.iter().filter(|e| e.body.len() < 1 << 17);
    let reads = small.flat_map(|exchange| &exchange.reads);
    let delays = reads.map(|read| read.tick.since(read.kernel));
    delays.max().expect("they were read")
}

/// Many large replies at once, in records as long as they may be and in short ones; the longest delay is one record's time, however
/// many there are.
#[test]
fn no_stamp_waits_for_more_than_one_record() {
    for (large, event) in [(1, 1 << 20), (8, 1 << 20), (8, 16_000), (8, 300), (3, 40)] {
        let played = play(20, large, event, RECORD);
        let whole = played.counts.whole;
        assert_eq!(whole, 20 + large, "{large} replies of {event} bytes");
        let looks = played.outcome.looks;
        // 64 records of 16 KiB are a megabyte.
        assert!(looks >= 64 * large, "{looks} looks: the work was done");
        let late = latest(&played);
        assert!(
            (1..=RECORD.0).contains(&late),
            "{late} ns late beside {large} replies in events of {event} bytes"
        );
    }
}

/// What a read brought is one read, however often the driver looked meanwhile.
#[test]
fn a_read_in_parts_is_one_read() {
    for event in [1 << 20, 300] {
        let quick = play(4, 2, event, Nanos(0));
        let large = quick.exchanges.iter().filter(|e| e.body.len() > 1 << 17);
        for exchange in large {
            let wire: u64 = exchange.reads.iter().map(|r| u64::from(r.wire_bytes)).sum();
            assert!(wire > 1 << 20, "{wire} bytes");
            let most = exchange.reads.iter().map(|r| r.wire_bytes).max();
            assert_eq!(most, Some(64 << 10), "the simulation reads 64 KiB");
            let ends: Vec<u64> = exchange.reads.iter().map(|r| r.body_end).collect();
            assert!(ends.is_sorted(), "{ends:?}");
            assert_eq!(ends.last().copied(), Some(exchange.body.len() as u64));
        }
        assert!(quick.outcome.looks > 0);
    }
}
