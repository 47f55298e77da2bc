//! A feeder without workers.
//!
//! In: a trace longer than the windows. Out: what stands in the queues. Never: a request.

use std::fmt::Write as _;

use super::*;
use crate::config::{Command, parse};
use crate::dataset::{Dataset, open};
use crate::engine::Control;
use crate::run::gate::WorkerGate;
use crate::tokenizer::ShippedTokenizer;

const LINES: u64 = 40_000;

fn parts(file: &tempfile::NamedTempFile) -> FeederParts {
    let mut text = String::new();
    for line in 0..LINES {
        writeln!(
            text,
            "{{\"timestamp\": {line}, \"text_input\": \"{line}\"}}"
        )
        .unwrap();
    }
    std::fs::write(file.path(), text).unwrap();
    let words = format!(
        "profile --model m --url h --fixed-schedule --stream-input always --custom-dataset-type mooncake-trace --input-file {}",
        file.path().display()
    );
    let words = words.split_whitespace().map(std::ffi::OsString::from);
    let Ok(Command::Profile(plan)) = parse(words) else {
        panic!("it is a plan");
    };
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    let Ok((Dataset::Streamed(streamed, begins), _)) = open(&plan, &tokenizer, 1) else {
        panic!("it is streamed");
    };
    let clock = Clock::new();
    let players = crate::schedule::Players::From(begins.first);
    FeederParts {
        renderer: Renderer::new(&crate::endpoint::Api::new(&plan.endpoint).unwrap()),
        plan: Arc::new(*plan),
        streamed: Arc::from(streamed),
        tokenizer: Arc::new(tokenizer),
        timeline: Arc::new(Timeline::of(begins.due, players)),
        gate: Arc::new(Gate::new(&clock, 1, 1)),
        clock,
        core: None,
    }
}

#[test]
fn a_worker_that_takes_nothing_holds_up_nobody_and_windows_are_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let parts = parts(&file);
    let shards = [0, 1].map(|index| Shard { index, count: 2 });
    let (lanes, mut feeds): (Vec<Lane>, Vec<WorkerFeed>) =
        shards.map(|shard| lane(&parts, shard)).into_iter().unzip();
    let mut feeding = Feeding {
        parts: &parts,
        lanes,
        tally: FedTally::default(),
    };
    let streamed = Arc::clone(&parts.streamed);
    let mut maker = streamed.maker(&parts.plan, &*parts.tokenizer, 2).unwrap();
    feeding.fill(&mut maker).unwrap();
    assert_eq!(feeding.tally.made, WINDOW_ENTRIES as u64, "both are full");
    let mut taken = 0;
    while taken < LINES / 2 {
        let session = 2 * taken + 1;
        if feeds[1].made_below() <= session {
            feeding.fill(&mut maker).unwrap();
        }
        assert!(session < feeds[1].made_below());
        let made = feeds[1].take(session).expect("it is made");
        assert!(String::from_utf8_lossy(made.body(0).unwrap()).contains(&format!("\"{session}\"")));
        taken += 1;
    }
    feeding.fill(&mut maker).unwrap();
    assert!(feeding.lanes[1].is_over());
    assert_eq!(feeds[0].made_below(), WINDOW_ENTRIES as u64 - 1);
    assert_eq!(feeding.lanes[0].next, Some(WINDOW_ENTRIES as u64));
    assert_eq!((feeding.tally.late, feeding.lanes[1].bytes), (0, 0));
    // One that was passed over is not handed out for another.
    assert!(feeds[0].take(2).is_some());
    assert_eq!(feeds[0].queue.slots(), WINDOW_ENTRIES / 2 - 2);
}

#[test]
fn what_is_made_after_its_time_is_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let parts = parts(&file);
    let (lanes, _feed) = lane(&parts, Shard { index: 0, count: 1 });
    WorkerGate::new(&parts.gate, 0).ready_for(0);
    let start = parts.gate.started(0).expect("the only worker is ready");
    let past = start.plus(parts.clock.rate().ticks(Nanos::from_millis(5)));
    while parts.clock.now() <= past {}
    let mut feeding = Feeding {
        parts: &parts,
        lanes: vec![lanes],
        tally: FedTally::default(),
    };
    feeding.count(0, 1);
    feeding.count(LINES - 1, 1);
    assert_eq!((feeding.tally.made, feeding.tally.late), (2, 1));
    assert!(feeding.tally.latest >= Nanos::from_millis(5));
}
