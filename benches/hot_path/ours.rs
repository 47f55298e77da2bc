//! The job as tokenring does it.
//!
//! In: a reply's reads. Out: what was found in them. Never: a part of the way that a run would not take.

use std::cell::RefCell;
use std::sync::Arc;

use tokenring::clock::{Anchor, Calibration, Tick};
use tokenring::config::{Command, PhaseKind, Plan, parse};
use tokenring::dataset;
use tokenring::endpoint::{Api, Bodies};
use tokenring::metric::{Accumulator, Context, request};
use tokenring::record::{EventMark, Exchange, Interpreter, Read, Record};
use tokenring::report::{PhaseTag, RecordsWriter};
use tokenring::tokenizer::ShippedTokenizer;
use tokenring::wire::{Limits, Response, SseScanner, Step};

use crate::Work;
use crate::input::Input;
use crate::replay::{Meter, replay};

/// Connections that the engine serves by turns: so many that what it needs of one is not at hand any more when its turn comes.
const CONNECTIONS: usize = 1_000;

/// Replies asked for, for each that every connection is given.
const SHARE: u64 = 20;

/// Not taken from the machine's clocks, which valgrind does not offer where rustix looks for them.
const ANCHOR: Anchor = Anchor {
    tick: Tick(1),
    raw_ns: 1,
    monotonic_ns: 1,
    wall_ns: 1_700_000_000_000_000_000,
    width: 0,
};

/// Takes the framing off and finds the events, as a worker's flight does.
pub(crate) fn scan(input: &Input, replies: u64) -> Work {
    let reads = input.reads();
    let mut parsers = Parsers::default();
    let mut work = Work::default();
    for _ in 0..replies {
        let exchange = parsers.receive(&reads);
        work.events += exchange.events.len() as u64;
        work.checksum = places(exchange);
    }
    work
}

/// Plays requests on many connections through an engine.
pub(crate) fn engine(input: &Input, replies: u64) -> Work {
    let requests = CONNECTIONS as u64 * replies.div_ceil(SHARE);
    let tally = replay(&input.reads(), CONNECTIONS, &mut Until(requests));
    Work {
        events: tally.events,
        checksum: tally.body_bytes / tally.exchanges,
    }
}

/// Makes a record of a finished exchange.
pub(crate) fn interpret(input: &Input, replies: u64) -> Work {
    with_recorder(input, |recorder, exchange| {
        let mut work = Work::default();
        for _ in 0..replies {
            let record = recorder.interpret(exchange);
            work.events += exchange.events.len() as u64;
            work.checksum = said(&record);
        }
        work
    })
}

/// Does with a finished exchange all that the recorder does.
pub(crate) fn record(input: &Input, replies: u64) -> Work {
    with_recorder(input, |recorder, exchange| {
        record_with(recorder, exchange, replies)
    })
}

fn record_with(recorder: &mut Recorder, exchange: &Exchange, replies: u64) -> Work {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("profile_export.jsonl");
    let mut file = RecordsWriter::create(&path, false).expect("a file");
    let context = Context::of(&recorder.plan);
    let mut sums = Accumulator::new(&context);
    let tag = PhaseTag {
        name: PhaseKind::Profiling.name().to_owned(),
        kind: PhaseKind::Profiling,
        index: 0,
        profiling_index: Some(0),
    };
    let mut work = Work::default();
    for _ in 0..replies {
        let record = recorder.interpret(exchange);
        let values = request::values(&record, &context);
        file.write(&record, &values, &tag).expect("room for a line");
        sums.add(&record);
        work.events += exchange.events.len() as u64;
        work.checksum = said(&record);
    }
    file.flush().expect("room for the rest");
    assert_eq!(sums.success_count(), replies, "each is a success");
    work
}

/// What a worker keeps for a connection.
struct Parsers {
    response: Response,
    scanner: SseScanner,
    exchange: Exchange,
}

impl Default for Parsers {
    fn default() -> Self {
        Parsers {
            response: Response::new(Limits::default()),
            scanner: SseScanner::new(Limits::default()),
            exchange: Exchange::default(),
        }
    }
}

impl Parsers {
    /// Receives one reply whole. Ticks are the reads' numbers, in microseconds.
    fn receive(&mut self, reads: &[&[u8]]) -> &Exchange {
        let exchange = &mut self.exchange;
        exchange.clear();
        self.response.reset();
        self.scanner.reset();
        let mut tick = Tick(1);
        exchange.ticks.start = tick;
        for (number, read) in (0..).zip(reads) {
            tick = tick.plus(1_000);
            let step = self
                .response
                .feed(read, &mut exchange.head_bytes, &mut exchange.body);
            exchange.reads.push(Read {
                tick,
                kernel: tick,
                parsed: tick,
                by_kernel: true,
                wire_bytes: u32::try_from(read.len()).unwrap_or(u32::MAX),
                body_end: exchange.body.len() as u64,
            });
            while let Step::Done(event) = self.scanner.next(&exchange.body) {
                exchange.events.push(EventMark {
                    begin: event.begin,
                    end: event.end,
                    read: number,
                    first_read: number,
                });
            }
            assert!(!matches!(step, Step::Wrong(_)), "the stream is sound");
        }
        exchange.head = self.response.head();
        exchange.ticks.end = tick;
        exchange
    }
}

/// Makes records, as the recorder's thread does.
struct Recorder {
    plan: Arc<Plan>,
    interpreter: Interpreter,
    calibration: Calibration,
}

impl Recorder {
    fn new() -> Recorder {
        let words = "--model mock-model --url 127.0.0.1:1 --streaming --isl 16 --num-prompts 1";
        let words = ["profile"].into_iter().chain(words.split(' '));
        let Ok(Command::Profile(plan)) = parse(words.map(Into::into)) else {
            panic!("the command line is sound");
        };
        let plan: Arc<Plan> = Arc::from(plan);
        let tokenizer = Arc::new(ShippedTokenizer::new("builtin").expect("it ships inside"));
        let (corpus, _) = dataset::build(&plan, &*tokenizer, 1).expect("one prompt");
        let api = Api::new(&plan.endpoint).expect("chat takes no settings of its own");
        let bodies = Arc::new(Bodies::render_all(&api, &corpus));
        Recorder {
            interpreter: Interpreter::new(
                Arc::clone(&plan),
                api,
                Arc::new(corpus),
                bodies,
                tokenizer,
            ),
            calibration: Calibration::from_start(ANCHOR, 1.0),
            plan,
        }
    }

    fn interpret(&mut self, exchange: &Exchange) -> Record {
        let record = self
            .interpreter
            .interpret(exchange, &self.calibration, false);
        assert!(record.is_success(), "{:?}", record.error);
        record
    }
}

thread_local! {
    /// Its tokenizer takes a third of a second to build, which is no part of any event.
    static RECORDER: RefCell<Recorder> = RefCell::new(Recorder::new());
}

/// Shows the recorder one finished exchange.
fn with_recorder(input: &Input, work: impl FnOnce(&mut Recorder, &Exchange) -> Work) -> Work {
    let mut parsers = Parsers::default();
    let exchange = parsers.receive(&input.reads());
    RECORDER.with_borrow_mut(|recorder| work(recorder, exchange))
}

/// Replays so many requests.
struct Until(u64);

impl Meter for Until {
    fn received(&mut self, call: impl FnOnce()) {
        call();
    }
    fn other<T>(&mut self, call: impl FnOnce() -> T) -> T {
        call()
    }
    fn ended(&mut self, requests: u64) -> bool {
        requests < self.0
    }
}

/// Of where the events stand.
fn places(exchange: &Exchange) -> u64 {
    let lengths = exchange.events.iter().map(|event| event.end - event.begin);
    lengths.sum()
}

/// Of what was said.
fn said(record: &Record) -> u64 {
    record.chunks.len() as u64
}
