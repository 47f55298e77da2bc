//! What it costs to sum up a long run: statistics, and the curves of concurrency, throughput and tokens in flight.
//!
//! In: how many requests, and of how many tokens. Out: seconds of one core, and a checksum of the rows. Never: a reply to parse.
//!
//! `cargo bench --bench curves` takes a million requests of 500 tokens, `cargo bench --bench curves -- 1000 20` a thousand of 20.

use std::process::ExitCode;

use tokenring::clock::{Nanos, thread_cpu};
use tokenring::endpoint::PieceKind;
use tokenring::metric::{Accumulator, Context};
use tokenring::record::{Chunk, Record, TokenCounts};

const START_NS: u64 = 1_796_106_758_000_000_000;

/// A new request each 50 us, as 20,000 in a second would come.
const APART_NS: u64 = 50_000;

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .map(|word| word.parse())
        .collect();
    // Without arguments `cargo test --benches` runs a small size; `cargo bench` says so.
    let asked_for = std::env::args().any(|word| word == "--bench");
    let (requests, tokens) = match numbers.as_deref() {
        Ok([]) if asked_for => (1_000_000, 500),
        Ok([]) => (1_000, 20),
        Ok([requests, tokens]) if *tokens >= 2 => (*requests, *tokens),
        _ => {
            eprintln!("curves: give the number of requests and of tokens, two at least");
            return ExitCode::FAILURE;
        }
    };
    let context = Context {
        streaming: true,
        ..Context::default()
    };
    let before = thread_cpu();
    let mut accumulator = Accumulator::new(&context);
    let mut record = template(tokens);
    for number in 0..requests {
        vary(&mut record, number);
        accumulator.add(&record);
    }
    let taken_in = thread_cpu();
    let summary = accumulator.summary();
    let summed_up = thread_cpu();
    let sum = |tag: &str| summary.row(tag).and_then(|row| row.stats.avg);
    println!("{requests} requests of {tokens} tokens");
    println!("taking in: {:.2} s", (taken_in - before).seconds());
    println!(
        "summary, curves and all: {:.2} s",
        (summed_up - taken_in).seconds()
    );
    println!(
        "checksum: {:.6} requests, {:.3} tokens/s, {:.3} tokens in flight",
        sum("effective_concurrency").unwrap_or_default(),
        sum("effective_decode_throughput").unwrap_or_default(),
        sum("tokens_in_flight").unwrap_or_default()
    );
    ExitCode::SUCCESS
}

/// A streamed success.
fn template(tokens: u64) -> Record {
    Record {
        streamed: true,
        status: 200,
        chunks: (0..tokens)
            .map(|_| Chunk {
                at: Nanos(0),
                read: 0,
                kind: PieceKind::Text,
                output: true,
                tokens: None,
            })
            .collect(),
        tokens: TokenCounts {
            output: Some(tokens),
            ..TokenCounts::default()
        },
        ..Record::default()
    }
}

/// Makes it request `number`: other moments, by a small generator that is the same everywhere.
fn vary(record: &mut Record, number: u64) {
    let mut state = number;
    let mut draw = |below: u64| {
        // SplitMix64, Steele, Lea and Flood 2014.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    };
    record.wall_start_ns = START_NS + number * APART_NS + draw(APART_NS);
    record.tokens.input = Some(100 + draw(900));
    let mut at_ns = 20_000_000 + draw(80_000_000);
    let gap_ns = 8_000_000 + draw(4_000_000);
    for (place, chunk) in (0_u64..).zip(&mut record.chunks) {
        chunk.at = Nanos(at_ns);
        at_ns += gap_ns + place % 7 * 1_000;
    }
    record.end = Nanos(at_ns);
    record.last_response = Some(Nanos(at_ns));
}
