//! Traces, replayed in virtual time.
//!
//! In: conversations with times of their own, delays, or neither. Out: every turn at its time, or counted as unsent. Never: a run that a seed
//! does not replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{Arrivals, PhasePlan, StopRule};
use tokenring::driver::simulated::{Chance, Simulation};
use tokenring::endpoint::{History, Reply};
use tokenring::engine::Workload;
use tokenring::record::{Exchange, Outcome, ReplyReader, RequestId};
use tokenring::schedule::Timeline;

use super::bench::{Bench, MILLI, Played, Words, closed_loop};
use super::check::{Judged, check};
use super::{seeds, stream};

/// Conversations, each a list of turns; a first turn has a time.
pub(crate) struct Trace {
    pub(crate) conversations: Vec<Vec<When>>,
}

/// When a turn is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// After the schedule's zero.
    At(Nanos),
    /// After the reply before it.
    After(Nanos),
}

/// A trace as an engine asks for it.
pub(crate) struct Replayed {
    trace: Arc<Trace>,
    words: Words,
}

impl Trace {
    pub(crate) fn workload(self: &Arc<Trace>, words: Words) -> Replayed {
        Replayed {
            trace: Arc::clone(self),
            words,
        }
    }

    fn random(chance: &mut Chance) -> Trace {
        let conversations = (0..1 + chance.below(40)).map(|_| {
            let mut at = chance.below(60) * MILLI;
            let turns = (0..1 + chance.below(4)).map(|turn| {
                at += chance.below(20) * MILLI;
                match chance.below(3) {
                    _ if turn == 0 => When::At(Nanos(at)),
                    // At times an earlier one than the turn before.
                    0 => When::At(Nanos(at.saturating_sub(chance.below(30) * MILLI))),
                    1 => When::After(Nanos(chance.below(15) * MILLI)),
                    _ => When::After(Nanos(0)),
                }
            });
            turns.collect()
        });
        Trace {
            conversations: conversations.collect(),
        }
    }

    fn turn(&self, conversation: u32, turn: u32) -> When {
        self.conversations[conversation as usize][turn as usize]
    }
}

impl Workload for Replayed {
    fn pick(&mut self, _phase: usize, _session: u64) -> u32 {
        panic!("the schedule says who plays")
    }
    fn turn_count(&self, conversation: u32) -> u32 {
        u32::try_from(self.trace.conversations[conversation as usize].len()).expect("few turns")
    }
    fn delay(&self, conversation: u32, turn: u32) -> Nanos {
        match self.trace.turn(conversation, turn) {
            When::At(_) => panic!("a turn with a time of its own has no delay"),
            When::After(delay) => delay,
        }
    }
    fn timeline(&self) -> Arc<Timeline> {
        let firsts = self.trace.conversations.iter().zip(0_u32..);
        Arc::new(Timeline::new(firsts.filter_map(
            |(turns, number)| match turns[0] {
                When::At(at) => Some((at, number)),
                When::After(_) => None,
            },
        )))
    }
    fn own_time(&self, conversation: u32, turn: u32) -> Option<Nanos> {
        match self.trace.turn(conversation, turn) {
            When::At(at) => Some(at),
            When::After(_) => None,
        }
    }
    fn body(&self, conversation: u32, turn: u32) -> Option<Arc<[u8]>> {
        self.words.body(conversation, turn)
    }
    fn live_body(&self, conversation: u32, turn: u32, history: &History) -> Arc<[u8]> {
        self.words.live_body(conversation, turn, history)
    }
    fn needs_reply(&self, conversation: u32) -> bool {
        self.words.needs_reply(conversation)
    }
    fn reply(&self, exchange: &Exchange, reader: Option<ReplyReader>) -> Option<Reply> {
        self.words.reply(exchange, reader)
    }
    fn write_head(&self, out: &mut Vec<u8>, id: &RequestId, request: u128, length: usize) {
        self.words.write_head(out, id, request, length);
    }
}

fn phase(duration: Option<Nanos>) -> PhasePlan {
    PhasePlan {
        arrivals: Arrivals::FixedSchedule,
        concurrency: None,
        stop: StopRule {
            duration,
            ..StopRule::default()
        },
        ..closed_loop(1, 0)
    }
}

fn play(trace: Trace, workers: usize, duration: Option<Nanos>, seed: u64) -> (Played, Arc<Trace>) {
    let mut bench = Bench::new(phase(duration));
    bench.workers = workers;
    bench.seed = seed;
    let trace = Arc::new(trace);
    let replayed = Arc::clone(&trace);
    bench.wrap = Some(Arc::new(move |words| Box::new(replayed.workload(words))));
    let judged = Judged::of(&bench, seed);
    let mut simulation = Simulation::new(seed);
    simulation.server = Box::new(stream);
    let played = bench.play(simulation);
    check(&played, &judged);
    (played, trace)
}

/// Each turn of each conversation, by conversation and turn.
fn by_turn(played: &Played) -> BTreeMap<(u32, u32), &Exchange> {
    let mut turns = BTreeMap::new();
    for exchange in &played.exchanges {
        let place = (exchange.id.conversation, exchange.id.turn);
        assert!(turns.insert(place, exchange).is_none(), "{place:?} twice");
    }
    turns
}

/// When a turn is due, with the turn before it sent.
fn due(trace: &Trace, place: (u32, u32), start: Tick, before: Option<&Exchange>) -> Tick {
    match trace.turn(place.0, place.1) {
        When::At(at) => start.plus(at.0),
        When::After(delay) => before
            .expect("a first turn has a time")
            .ticks
            .end
            .plus(delay.0),
    }
}

#[test]
fn every_turn_of_a_trace_is_sent_once_and_at_its_time() {
    for seed in seeds(7_000, 60) {
        let chance = &mut Chance::new(seed);
        let trace = Trace::random(chance);
        let (played, trace) = play(trace, 1 + chance.index(3), None, seed);
        let turns = by_turn(&played);
        let all: usize = trace.conversations.iter().map(Vec::len).sum();
        assert_eq!(turns.len(), all, "seed {seed}");
        assert_eq!(played.counts.profiling.unsent, 0, "seed {seed}");
        for (&place, exchange) in &turns {
            let before = place.1.checked_sub(1).map(|turn| turns[&(place.0, turn)]);
            let due = due(&trace, place, played.starts[0], before);
            let ticks = exchange.ticks;
            assert_eq!(ticks.due, due, "seed {seed} {place:?}");
            // A turn whose time has passed goes out when the reply before it has ended.
            let free = before.map_or(due, |before| due.max(before.ticks.end));
            assert_eq!(ticks.start, free, "seed {seed} {place:?}");
        }
    }
}

/// With a duration: what is due before it is sent or counted, and what is due after it is neither.
#[test]
fn what_a_deadline_leaves_of_a_trace_is_counted_if_it_was_due() {
    let mut left = 0;
    for seed in seeds(7_500, 60) {
        let chance = &mut Chance::new(seed);
        let trace = Trace::random(chance);
        let end = Nanos((1 + chance.below(60)) * MILLI);
        let (played, trace) = play(trace, 1 + chance.index(3), Some(end), seed);
        let turns = by_turn(&played);
        let deadline = played.starts[0].plus(end.0);
        let mut unsent = 0;
        for (conversation, number) in trace.conversations.iter().zip(0_u32..) {
            for (turn, place) in conversation
                .iter()
                .zip((0_u32..).map(|turn| (number, turn)))
            {
                if turns.contains_key(&place) {
                    continue;
                }
                let before = place
                    .1
                    .checked_sub(1)
                    .and_then(|turn| turns.get(&(number, turn)).copied());
                let known = match (turn, before) {
                    (When::At(at), _) => Some(played.starts[0].plus(at.0)),
                    (When::After(_), Some(before)) if before.outcome == Outcome::Success => {
                        Some(due(&trace, place, played.starts[0], Some(before)))
                    }
                    (When::After(_), _) => None,
                };
                // A reply that came after the deadline leaves a turn that could have been due; it is counted.
                let waited = before.is_some_and(|before| before.ticks.end >= deadline);
                let own = matches!(turn, When::At(_));
                if known.is_some_and(|due| due >= deadline) && (own || !waited) {
                    break;
                }
                unsent += 1;
                if place.1 == 0 {
                    // A conversation that was not begun counts as one.
                    break;
                }
            }
        }
        assert_eq!(
            played.counts.profiling.unsent,
            i64::from(unsent),
            "seed {seed}"
        );
        left += unsent;
    }
    assert!(left > 20, "{left}");
}
