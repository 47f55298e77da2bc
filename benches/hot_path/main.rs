//! What an event costs on its way through a worker and the recorder, beside what crates.io offers for the same job.
//!
//! In: a captured stream, made as long as a usual reply. Out: a Markdown table of processor time an event, or one piece of work to be
//! counted by another program. Never: a socket, or a number without a checksum of the work behind it.
//!
//! `cargo bench --bench hot_path` prints nanoseconds. `benches/hot_path.py` adds instructions, which a busy machine does not change, and
//! the part that needs a kernel: receiving and stamping.

mod input;
mod ours;
mod peer;
#[path = "../../tests/engine/replay.rs"]
mod replay;

use std::process::ExitCode;

use tokenring::clock::{Nanos, thread_cpu};

use input::Input;

/// What a piece of work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// Events that were found.
    events: u64,
    /// Of what was found in them; the same for every way to do the same job.
    checksum: u64,
}

/// One way to do one job.
struct Row {
    name: &'static str,
    /// For people.
    label: &'static str,
    /// Does it to so many replies, from the start.
    run: fn(&Input, u64) -> Work,
}

const ROWS: &[Row] = &[
    Row {
        name: "scan",
        label: "wire: chunked + SSE scan, body and marks kept",
        run: ours::scan,
    },
    Row {
        name: "peer-scan",
        label: "httparse + eventsource-stream, the same",
        run: peer::scan,
    },
    Row {
        name: "engine",
        label: "engine: the same for 1,000 connections, with stamps, marks and requests",
        run: ours::engine,
    },
    Row {
        name: "interpret",
        label: "record: marks and body to a record, tokens counted",
        run: ours::interpret,
    },
    Row {
        name: "peer-parse",
        label: "httparse + eventsource-stream + serde_json, texts joined",
        run: peer::parse,
    },
    Row {
        name: "record",
        label: "recorder: record, metrics of the request, line of the file, sums",
        run: ours::record,
    },
];

/// Events in one read.
const INPUTS: [(&str, usize); 2] = [("one event a read", 1), ("60 events a read", 60)];

/// Repeats of each measurement, and replies in the shorter of its two runs.
const FULL: (usize, u64) = (9, 100);

/// The same when only asked whether it still works.
const SMALL: (usize, u64) = (1, 20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => table(SMALL),
        ["--bench"] => table(FULL),
        ["--only", name, events, replies] => return only(name, events, replies),
        _ => {
            eprintln!("hot_path: give nothing, --bench, or --only ROW EVENTS_PER_READ REPLIES");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints medians, with the least and the most.
fn table((repeats, replies): (usize, u64)) {
    println!("| | events a read | ns an event | least - most | checksum |");
    println!("|---|---|---|---|---|");
    for (_, events) in INPUTS {
        let input = Input::new(events);
        for row in ROWS {
            // The first time makes what the others find.
            let checksum = (row.run)(&input, 1).checksum;
            let mut times: Vec<f64> = (0..repeats)
                .map(|_| nanos_an_event(row, &input, replies))
                .collect();
            times.sort_by(f64::total_cmp);
            println!(
                "| {} | {events} | {:.0} | {:.0} - {:.0} | {checksum:016x} |",
                row.label,
                times[times.len() / 2],
                times[0],
                times[times.len() - 1],
            );
        }
    }
}

/// The difference between a longer and a shorter run, so that what comes once is not in it.
fn nanos_an_event(row: &Row, input: &Input, replies: u64) -> f64 {
    let timed = |replies| {
        let before = thread_cpu();
        let work = (row.run)(input, replies);
        (Nanos(thread_cpu().0 - before.0), work.events)
    };
    let (short, few) = timed(replies);
    let (long, many) = timed(3 * replies);
    (long.0 as f64 - short.0 as f64) / (many - few) as f64
}

/// Does one piece of work and says what it was.
fn only(name: &str, events: &str, replies: &str) -> ExitCode {
    let row = ROWS.iter().find(|row| row.name == name);
    let numbers = (events.parse::<usize>(), replies.parse::<u64>());
    let (Some(row), (Ok(events @ 1..), Ok(replies))) = (row, numbers) else {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        eprintln!("hot_path: the rows are {names:?}, followed by two whole numbers");
        return ExitCode::FAILURE;
    };
    let work = (row.run)(&Input::new(events), replies);
    println!(
        "{{\"events\": {}, \"checksum\": {}, \"label\": \"{}\"}}",
        work.events, work.checksum, row.label
    );
    ExitCode::SUCCESS
}
