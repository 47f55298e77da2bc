//! One seed, one run: a random plan against a random server on a random network.
//!
//! In: a seed. Out: what came of it, or a panic that names the seed. Never: anything that does not follow from the seed.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokenring::clock::{Nanos, Tick};
use tokenring::driver::simulated::{Chance, Ending, Faults, SeenRequest, Simulation};
use tokenring::engine::Stop;
use tokenring::record::{Exchange, Outcome, Record};

use crate::bench::{Bench, MILLI, Played, SECOND};
use crate::check::{Judged, Place, check};
use crate::ends::{Ends, check_class};
use crate::plans::{random_addresses, random_bench, random_limits, random_proxy};
use crate::replies::Replies;
use crate::secure;
use crate::written::check_file;

/// One seed in so many is played twice, and must come to the same.
const TWICE_EACH: u64 = 16;

/// One seed in so many speaks TLS, whose handshakes cost more than the rest of a run.
const SECURE_EACH: u64 = 32;

/// One seed in so many goes through a proxy.
const PROXIED_EACH: u64 = 24;

/// One seed in so many writes its records to a file and reads them again.
const WRITTEN_EACH: u64 = 64;

/// A run that was played and judged.
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
    pub(crate) played: Played,
    pub(crate) records: Vec<Record>,
    /// Of all that was observed.
    pub(crate) digest: u64,
}

/// Plays the run of `seed` and judges it; some are played twice.
pub(crate) fn play(seed: u64) -> Run {
    let run = once(seed);
    if seed.is_multiple_of(TWICE_EACH) {
        let again = once(seed);
        assert_eq!(run.digest, again.digest, "seed {seed} does not replay");
    }
    run
}

/// What follows from a seed before anything is played.
struct Made {
    faults: Faults,
    replies: Replies,
    bench: Bench,
    simulation: Simulation,
    /// When the conductor calls stops.
    stops: Vec<(Tick, Stop)>,
}

fn make(seed: u64) -> Made {
    // A stream of its own: the plan follows from the plain seed.
    let chance = &mut Chance::new(seed ^ 0x5eed_5eed_5eed_5eed);
    let faults = Faults::random(chance);
    let replies = Replies::random(chance);
    let mut bench = random_bench(seed);
    let limits = [5, 30, 30, 200, 2_000];
    bench.request_timeout = Nanos(limits[chance.index(limits.len())] * MILLI);
    bench.time_limits = random_limits(chance);
    bench.stop_grace = Nanos(chance.below(60 * MILLI));
    random_addresses(&mut bench, chance);
    let mut simulation = Simulation::new(seed);
    simulation.faults = faults;
    simulation.kernel_stamps = chance.below(2) == 0;
    simulation.server = replies.server();
    if seed % SECURE_EACH == SECURE_EACH - 1 {
        secure::everywhere(&mut bench, &mut simulation);
    }
    if seed % PROXIED_EACH == PROXIED_EACH - 1 {
        random_proxy(&mut bench, &mut simulation, chance);
    }
    Made {
        faults,
        replies,
        bench,
        simulation,
        stops: stops(chance),
    }
}

fn once(seed: u64) -> Run {
    let Made {
        faults,
        replies,
        bench,
        simulation,
        stops,
    } = make(seed);
    let ends = Ends::of(&bench, seed, &faults, &stops);
    let judged = Judged {
        interrupted: !stops.is_empty(),
        ..Judged::of(&bench, seed)
    };
    let played = bench.play_with(simulation, |simulation, conductor| {
        for (at, stop) in stops {
            let conductor = Arc::clone(conductor);
            let act = move || conductor.call(stop);
            simulation.acts.push((at, Box::new(act)));
        }
    });
    check(&played, &judged);
    ends.check(&played);
    let mut read = replies.reader();
    let records: Vec<Record> = played.exchanges.iter().map(&mut read).collect();
    for (exchange, record) in played.exchanges.iter().zip(&records) {
        check_record(seed, exchange, record, &replies, &played.outcome.requests);
    }
    if seed % WRITTEN_EACH == 1 {
        let place = format!("seed {seed}");
        check_file(&records, &judged.phases, &replies.context(), &place);
    }
    Run {
        seed,
        faults,
        digest: digest(&played, &records),
        played,
        records,
    }
}

/// In a quarter of the runs a first signal at any moment, in half of those a second one.
fn stops(chance: &mut Chance) -> Vec<(Tick, Stop)> {
    let mut stops = Vec::new();
    if chance.below(4) == 0 {
        let first = chance.below(80 * MILLI);
        stops.push((Tick(first), Stop::Drain));
        if chance.below(2) == 0 {
            let second = first + chance.below(40 * MILLI);
            stops.push((Tick(second), Stop::Now));
        }
    }
    stops
}

/// A success says exactly what its peer said, and a reply that its peer gave well and whole is a success.
fn check_record(
    seed: u64,
    exchange: &Exchange,
    record: &Record,
    replies: &Replies,
    requests: &[SeenRequest],
) {
    let place = &Place { seed, exchange };
    check_moments(record, place);
    check_class(exchange, record, place);
    // Nothing of a failed reply, however much of it came, is said again by a later turn.
    let text = record.text.clone().filter(|_| record.is_success());
    assert_eq!(replies.heard(exchange), text, "{place}");
    let mut seen = requests.iter().filter(|r| r.head == exchange.request_head);
    let Some(seen) = seen.next_back() else {
        let spoilt = requests.iter().any(has_surplus);
        assert!(
            !record.is_success() || spoilt,
            "{place}: a success that nobody gave"
        );
        return;
    };
    // Bytes left over from an earlier answer on this connection are taken for the start of this one.
    let mut before = requests.iter().filter(|r| r.connection == seen.connection);
    if before.any(has_surplus) {
        return;
    }
    let said = replies.said(exchange).unwrap_or_default();
    let answer = seen.answer.as_ref();
    if record.is_success() {
        assert_eq!(exchange.outcome, Outcome::Success, "{place}");
        assert!(said.good, "{place}: a success of {said:?}");
        assert_eq!(record.text.as_ref(), Some(&said.text), "{place}");
        let broken = answer.is_none_or(|answer| {
            let cut = matches!(answer.ending, Ending::Reset(most) if most < answer.wire_length());
            // What breaks later than a second after [DONE] is not waited for.
            let late = answer.end_delay >= Nanos(SECOND) && record.done_seen;
            answer.garbage_head || answer.bad_chunk || (cut && !late)
        });
        assert!(!broken, "{place}: a broken reply is a success: {answer:?}");
    }
    let whole = exchange.outcome == Outcome::Success && said.good;
    let given = answer.is_some_and(|answer| answer.ending == Ending::Whole);
    assert!(
        !whole || !given || record.is_success(),
        "{place}: a good reply is an error: {:?}",
        record.error
    );
    assert!(
        record.is_success() || record.error.is_some(),
        "{place}: neither one nor the other"
    );
}

fn has_surplus(seen: &SeenRequest) -> bool {
    seen.answer.as_ref().is_some_and(|a| !a.surplus.is_empty())
}

/// Moments of a record come one after the other.
fn check_moments(record: &Record, place: &Place) {
    let chunks: Vec<Nanos> = record.chunks.iter().map(|chunk| chunk.at).collect();
    assert!(chunks.is_sorted(), "{place}: {chunks:?}");
    let first = chunks.first().copied();
    let last = chunks.last().copied();
    let moments = [
        record.trace.send_start,
        record.head_received,
        first,
        last,
        record.last_response,
        Some(record.end),
    ];
    let came: Vec<Nanos> = moments.into_iter().flatten().collect();
    assert!(came.is_sorted(), "{place}: {moments:?}");
}

/// One number for all that can be observed of a run.
fn digest(played: &Played, records: &[Record]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (exchange, record) in played.exchanges.iter().zip(records) {
        let ticks = exchange.ticks;
        let moments = [
            ticks.due,
            ticks.slot,
            ticks.start,
            ticks.submitted,
            ticks.connect_start,
            ticks.connect_end,
            ticks.tls_end,
            ticks.first_byte_sent,
            ticks.last_byte_sent,
            ticks.head_received,
            ticks.end,
        ];
        moments.map(|tick| tick.0).hash(&mut hasher);
        exchange.request_head.hash(&mut hasher);
        exchange.body.hash(&mut hasher);
        exchange.link.writes.hash(&mut hasher);
        for read in &exchange.reads {
            (read.tick.0, read.kernel.0, read.parsed.0, read.body_end).hash(&mut hasher);
        }
        (record.is_success(), record.error.as_ref()).hash(&mut hasher);
    }
    (played.outcome.now.0, played.outcome.events).hash(&mut hasher);
    hasher.finish()
}

impl Made {
    /// What is asked, for people.
    fn plan(&self) -> String {
        let (bench, replies) = (&self.bench, &self.replies);
        format!(
            "{:?}, {} streaming {}, {} workers, {} targets, {:?}, limits {:?} and {:?}, cancelled {:?}\n{:#?}",
            bench.reuse,
            replies.kind.name(),
            replies.streaming,
            bench.workers,
            bench.targets.len(),
            bench.words,
            bench.request_timeout,
            bench.time_limits,
            bench.cancellation,
            bench.phases
        )
    }
}

impl Run {
    /// What happened, for people.
    pub(crate) fn story(&self) -> String {
        let made = make(self.seed);
        let mut story = format!("seed {}: {}\n", self.seed, made.plan());
        let _ = writeln!(story, "faults: {}", self.faults.active());
        for (at, stop) in &made.stops {
            let _ = writeln!(story, "{:>12} stop: {stop:?}", at.0);
        }
        for seen in &self.played.outcome.requests {
            let fate = seen.answer.as_ref().map(|answer| {
                let (status, delimiter) = (answer.status, answer.delimiter);
                format!("{status} {delimiter:?} {:?}", answer.ending)
            });
            let fate = fate.unwrap_or_else(|| "closed".to_owned());
            let (at, link) = (seen.at.0, seen.connection);
            let _ = writeln!(story, "{at:>12} connection {link} was asked, answer {fate}");
        }
        for (exchange, record) in self.played.exchanges.iter().zip(&self.records) {
            let (id, ticks) = (exchange.id, exchange.ticks);
            let _ = writeln!(
                story,
                "{:>12} phase {} request {} of session {} turn {}, due {}, {} reads, {} body bytes, {:?}{}: {}",
                ticks.end.0,
                id.phase,
                id.number,
                id.session,
                id.turn,
                ticks.due.0,
                exchange.reads.len(),
                exchange.body.len(),
                exchange.outcome,
                if exchange.link.resent {
                    ", sent again"
                } else {
                    ""
                },
                record.error.as_ref().map_or("good", |error| &error.kind),
            );
        }
        let counts = self.played.counts;
        let _ = writeln!(
            story,
            "{} sent = {} whole + {} failed + {} cut; {} connections; {} events; digest {:016x}",
            counts.sent,
            counts.whole,
            counts.failed,
            counts.cancelled,
            self.played.outcome.connections,
            self.played.outcome.events,
            self.digest
        );
        story
    }
}
