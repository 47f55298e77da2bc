//! What must hold after any run.
//!
//! In: a played run and what was asked. Out: a panic that names the seed. Never: a rule that holds for one plan only.

use std::collections::{BTreeMap, BTreeSet};

use tokenring::clock::Tick;
use tokenring::config::{Arrivals, ConnectionReuse, PhaseKind, PhasePlan, StopRule};
use tokenring::driver::simulated::{Answer, End};
use tokenring::record::{Exchange, Outcome, Read};

use crate::bench::{Bench, Played};

/// What was asked of a run, and what came of it.
pub(crate) struct Judged {
    pub(crate) seed: u64,
    pub(crate) phases: Vec<PhasePlan>,
    pub(crate) reuse: ConnectionReuse,
    /// Some requests were to be cut on purpose.
    pub(crate) cancels: bool,
    /// It was stopped before its end.
    pub(crate) interrupted: bool,
    pub(crate) played: Option<Played>,
}

impl Judged {
    pub(crate) fn of(bench: &Bench, seed: u64) -> Judged {
        Judged {
            seed,
            phases: bench.phases.clone(),
            reuse: bench.reuse,
            cancels: bench.cancellation.is_some(),
            interrupted: false,
            played: None,
        }
    }

    pub(crate) fn with(self, played: Played) -> Judged {
        Judged {
            played: Some(played),
            ..self
        }
    }
}

/// Which request is looked at. Its words are made only for a check that fails: there are far more checks than requests.
pub(crate) struct Place<'a> {
    pub(crate) seed: u64,
    pub(crate) exchange: &'a Exchange,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Exchange {
            id, outcome, ticks, ..
        } = self.exchange;
        write!(
            out,
            "seed {}, request {id:?}, {outcome:?}, {ticks:?}",
            self.seed
        )
    }
}

/// Holds with any faults.
pub(crate) fn check(played: &Played, asked: &Judged) {
    let seed = asked.seed;
    let outcome = &played.outcome;
    assert_eq!(
        outcome.end,
        End::Finished,
        "seed {seed} at {:?}",
        outcome.now
    );
    assert_eq!(outcome.breaches, [""; 0], "seed {seed}");
    assert_eq!(outcome.sockets_left, 0, "seed {seed}: sockets left open");
    assert_eq!(outcome.buffers_left, 0, "seed {seed}: buffers not returned");
    let counts = played.counts;
    assert_eq!(counts.in_flight, 0, "seed {seed}");
    assert_eq!(counts.open_connections, 0, "seed {seed}");
    assert_eq!(
        counts.sent,
        counts.whole + counts.failed + counts.cancelled,
        "seed {seed}"
    );
    assert_eq!(
        counts.sent,
        played.exchanges.len() as u64,
        "seed {seed}: one exchange a request"
    );
    check_sums(played, asked);
    check_numbers(played, asked);
    check_at_once(played, asked);
    // The last answer to each request, unless bytes of an earlier answer were left over on its connection: those are taken for
    // the start of its own, which no client can tell.
    let mut answers: BTreeMap<&[u8], Option<&Answer>> = BTreeMap::new();
    let mut spoilt = BTreeSet::new();
    for seen in &outcome.requests {
        let clean = !spoilt.contains(&seen.connection);
        answers.insert(&seen.head, seen.answer.as_ref().filter(|_| clean));
        if seen.answer.as_ref().is_some_and(|a| !a.surplus.is_empty()) {
            spoilt.insert(seen.connection);
        }
    }
    for exchange in &played.exchanges {
        let place = &Place { seed, exchange };
        check_ticks(exchange, place);
        check_reads(exchange, place);
        if exchange.outcome == Outcome::Success {
            let given = answers.get(&exchange.request_head[..]);
            if let Some(Some(given)) = given {
                let mut body = given.body();
                if given.ends_unseen() {
                    // Only the end of the connection ends it, so that an early end is none to HTTP.
                    body.truncate(exchange.body.len());
                }
                if exchange.body.ends_with(b"[DONE]\r\n\r") {
                    // A line may end with its CR, so the stream's end was seen; the LF behind it was waited for in vain.
                    body.truncate(exchange.body.len());
                }
                assert_eq!(exchange.body, body, "{place}: body");
            } else {
                // Left-over bytes may even come before the request is seen.
                assert!(!spoilt.is_empty(), "{place}: a success without an answer");
            }
        }
    }
}

fn check_sums(played: &Played, asked: &Judged) {
    let seed = asked.seed;
    let count = |wanted: fn(&Outcome) -> bool| {
        let found = played.exchanges.iter().filter(|e| wanted(&e.outcome));
        found.count() as u64
    };
    let whole = count(|o| *o == Outcome::Success);
    let failed = count(|o| matches!(o, Outcome::Fault(_) | Outcome::Timeout));
    assert_eq!(
        (whole, failed),
        (played.counts.whole, played.counts.failed),
        "seed {seed}"
    );
    let resent = played.exchanges.iter().filter(|e| e.link.resent).count();
    assert_eq!(resent as u64, played.counts.resent, "seed {seed}");
    // A blank for each exchange, and one for each spare flight.
    let most = played.exchanges.len() + peak_in_flight(played);
    assert!(
        played.blanks <= most,
        "seed {seed}: {} blanks asked for {} exchanges, {most} at most",
        played.blanks,
        played.exchanges.len()
    );
}

/// Sessions are at most as many as were asked for, and so are requests without content: in each phase, and in two that overlap as
/// many as the one that may have more.
fn check_at_once(played: &Played, asked: &Judged) {
    for last in 0..asked.phases.len() {
        let first = last - usize::from(asked.phases[last].seamless);
        let phases = &asked.phases[first..=last];
        let limit = |of: fn(&PhasePlan) -> Option<usize>| {
            let limits: Option<Vec<usize>> = phases.iter().map(of).collect();
            limits.and_then(|limits| limits.into_iter().max())
        };
        let of_phases = |e: &&Exchange| (first..=last).contains(&usize::from(e.id.phase));
        let most = |end: fn(&Exchange) -> Tick| {
            let exchanges = played.exchanges.iter().filter(of_phases);
            most_at_once(exchanges.map(|e| (e.ticks.submitted, end(e))))
        };
        for (name, limit, most) in [
            ("requests", limit(slots_of), most(|e| e.ticks.end)),
            ("prefills", limit(|p| p.slots.prefill), most(first_event)),
        ] {
            assert!(
                limit.is_none_or(|limit| most <= limit),
                "seed {}, phases {first} to {last}: {most} {name} at once, {limit:?} allowed",
                asked.seed
            );
        }
    }
}

/// Sessions that a phase may have open.
fn slots_of(phase: &PhasePlan) -> Option<usize> {
    match (&phase.arrivals, phase.concurrency) {
        (Arrivals::ClosedLoop, None) => Some(1),
        (_, concurrency) => concurrency,
    }
}

/// When a reply's first event had come; its prefill was not over before.
fn first_event(exchange: &Exchange) -> Tick {
    match exchange.events.first() {
        Some(mark) => exchange.reads[mark.read as usize].arrival(),
        None => exchange.ticks.end,
    }
}

/// Most spans that contain one moment; one that ends as another begins is over.
fn most_at_once(spans: impl Iterator<Item = (Tick, Tick)>) -> usize {
    let mut changes: Vec<(Tick, bool)> = spans.flat_map(|(a, b)| [(a, true), (b, false)]).collect();
    changes.sort_unstable();
    let (mut open, mut most) = (0_i64, 0);
    for (_, begins) in changes {
        open += if begins { 1 } else { -1 };
        most = most.max(open);
    }
    usize::try_from(most).unwrap_or(0)
}

/// Most exchanges under way at once, by worker, summed.
fn peak_in_flight(played: &Played) -> usize {
    let mut peaks = 0;
    for worker in 0..3_u16 {
        let mut changes: Vec<(u64, bool)> = Vec::new();
        let pairs = played.exchanges.iter().zip(&played.left);
        for (exchange, left) in pairs.filter(|(exchange, _)| exchange.id.worker == worker) {
            changes.push((exchange.ticks.due.0.min(exchange.ticks.start.0), true));
            changes.push((left.0.saturating_add(1), false));
        }
        changes.sort_unstable();
        let (mut now, mut peak) = (0_usize, 0);
        for (_, begins) in changes {
            now = if begins { now + 1 } else { now - 1 };
            peak = peak.max(now);
        }
        peaks += peak;
    }
    peaks
}

/// Numbers are given once, and densely where they were counted.
fn check_numbers(played: &Played, asked: &Judged) {
    let seed = asked.seed;
    for (phase, plan) in asked.phases.iter().enumerate() {
        let of_phase = || {
            played
                .exchanges
                .iter()
                .filter(move |e| usize::from(e.id.phase) == phase)
        };
        let numbers: BTreeSet<u64> = of_phase().map(|e| e.id.number).collect();
        assert_eq!(
            numbers.len(),
            of_phase().count(),
            "seed {seed}: a number was given twice"
        );
        let uuids: BTreeSet<u128> = of_phase().map(|e| e.request_uuid).collect();
        assert_eq!(
            uuids.len(),
            numbers.len(),
            "seed {seed}: a UUID was given twice"
        );
        let mut stop = plan.stop;
        if asked.interrupted {
            stop = StopRule::default();
        }
        if let (Some(total), None) = (stop.requests, stop.duration) {
            let dense = (0..total).collect::<BTreeSet<u64>>();
            assert_eq!(numbers, dense, "seed {seed}: phase {phase}");
        }
        if let (Some(total), None) = (stop.sessions, stop.duration) {
            let started: BTreeSet<u64> = of_phase().map(|e| e.id.session).collect();
            assert_eq!(started, (0..total).collect(), "seed {seed}: phase {phase}");
        }
        let mut turns: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for exchange in of_phase() {
            turns
                .entry(exchange.id.session)
                .or_default()
                .push(exchange.id.turn);
        }
        for (session, played) in turns {
            let expected: Vec<u32> = (0..).take(played.len()).collect();
            assert_eq!(played, expected, "seed {seed}: turns of session {session}");
        }
    }
}

fn check_ticks(exchange: &Exchange, place: &Place) {
    let ticks = exchange.ticks;
    assert!(
        ticks.due != Tick::NEVER && ticks.start != Tick::NEVER && ticks.end != Tick::NEVER,
        "{place}: {ticks:?}"
    );
    let taken_up = [ticks.due, ticks.slot, ticks.submitted, ticks.start];
    assert!(taken_up.is_sorted(), "{place}: {ticks:?}");
    let set_up = [ticks.connect_start, ticks.connect_end];
    let (before, within) = if exchange.link.ahead {
        (set_up, [Tick::NEVER; 2])
    } else {
        ([Tick::NEVER; 2], set_up)
    };
    let moments = [
        before[0],
        before[1],
        ticks.start,
        within[0],
        within[1],
        ticks.first_byte_sent,
        ticks.head_received,
        ticks.end,
    ];
    let came: Vec<Tick> = moments.into_iter().filter(|&t| t != Tick::NEVER).collect();
    if !exchange.link.resent {
        assert!(came.is_sorted(), "{place}: {ticks:?}");
    }
    // What was opened ahead was set up before.
    let within = came.iter().skip_while(|&&t| t < ticks.start);
    let mut within = within.chain([&ticks.start]);
    assert!(within.all(|&t| t <= ticks.end), "{place}: {ticks:?}");
    let sent = [ticks.first_byte_sent, ticks.last_byte_sent];
    assert!(
        sent[0] <= sent[1] || sent[1] == Tick::NEVER,
        "{place}: {ticks:?}"
    );
    assert_eq!(
        exchange.link.sent_whole,
        ticks.last_byte_sent != Tick::NEVER,
        "{place}: {ticks:?}"
    );
    assert_eq!(
        ticks.connect_start == Tick::NEVER,
        ticks.connect_end == Tick::NEVER,
        "{place}: {ticks:?}"
    );
    if exchange.link.reused {
        assert_eq!(ticks.connect_start, Tick::NEVER, "{place}: {ticks:?}");
    }
}

fn check_reads(exchange: &Exchange, place: &Place) {
    let reads = &exchange.reads;
    assert!(
        reads.is_sorted_by_key(|read| (read.tick, read.body_end)),
        "{place}: {reads:?}"
    );
    assert!(
        reads.is_sorted_by_key(|read| read.body_end),
        "{place}: {reads:?}"
    );
    assert!(
        reads
            .iter()
            .all(|read| read.parsed >= read.tick && read.parsed != Tick::NEVER),
        "{place}: {reads:?}"
    );
    assert!(
        reads.is_sorted_by_key(|read| read.parsed),
        "{place}: {reads:?}"
    );
    assert!(reads.is_sorted_by_key(Read::arrival), "{place}: {reads:?}");
    if let (Outcome::Success, Some(last)) = (exchange.outcome, reads.last()) {
        assert_eq!(exchange.ticks.end, last.arrival(), "{place}");
    }
    if let (Some(first), Some(last)) = (reads.first(), reads.last()) {
        assert_eq!(last.body_end, exchange.body.len() as u64, "{place}");
        assert!(last.arrival() <= exchange.ticks.end, "{place}");
        assert!(first.tick >= exchange.ticks.start, "{place}");
    }
    let mut end = 0;
    for (number, mark) in exchange.events.iter().enumerate() {
        let in_order = mark.begin >= end && mark.end > mark.begin;
        end = mark.end;
        let within = end <= exchange.body.len() as u64;
        let holds = |read: u32, byte: u64| {
            let read = read as usize;
            let before = read.checked_sub(1).map_or(0, |r| reads[r].body_end);
            before <= byte && byte < reads[read].body_end
        };
        // All answers of the simulation end their events with a blank line.
        let in_reads = in_order
            && within
            && holds(mark.first_read, mark.begin)
            && holds(mark.read, mark.end - 1);
        assert!(
            in_reads,
            "{place}: event {number} {mark:?} of reads {reads:?}"
        );
    }
}

/// Holds when nothing goes wrong.
pub(crate) fn check_faultless(judged: &Judged) {
    let seed = judged.seed;
    let played = judged.played.as_ref().expect("it was played");
    for exchange in &played.exchanges {
        let on_purpose = exchange.outcome == Outcome::Cancelled;
        let cut = exchange.outcome == Outcome::GraceEnded || on_purpose;
        let phase = &judged.phases[usize::from(exchange.id.phase)];
        let may_cut = match on_purpose {
            true => judged.cancels && phase.kind == PhaseKind::Profiling,
            false => phase.grace.is_some(),
        };
        assert!(
            exchange.outcome == Outcome::Success || (cut && may_cut),
            "seed {seed}: {:?} ended as {:?}",
            exchange.id,
            exchange.outcome
        );
        let head = exchange.head;
        if !cut {
            let given = played
                .outcome
                .requests
                .iter()
                .find(|seen| seen.head == exchange.request_head)
                .and_then(|seen| seen.answer.as_ref())
                .expect("a success has an answer");
            assert_eq!(head.map(|h| h.status), Some(given.status), "seed {seed}");
            let dones = exchange
                .body
                .windows(6)
                .filter(|six| six == b"[DONE]")
                .count();
            let stream = given.content_type == "text/event-stream";
            assert_eq!(
                exchange.events.is_empty(),
                !stream,
                "seed {seed}: {:?}",
                exchange.events
            );
            assert_eq!(dones, usize::from(stream), "seed {seed}");
        }
    }
    assert_eq!(played.counts.resent, 0, "seed {seed}");
    // A single request never takes two connections.
    if judged.reuse == ConnectionReuse::Never {
        assert_eq!(played.counts.connects, played.counts.sent, "seed {seed}");
    }
    // With cuts the server may still be answering what nobody waits for.
    let cuts = played.counts.cancelled > 0;
    let slots: Vec<Option<usize>> = judged.phases.iter().map(slots_of).collect();
    if !cuts
        && let Some(most) = slots
            .iter()
            .copied()
            .max_by_key(|s| s.unwrap_or(usize::MAX))
    {
        let most = most.map_or(u64::MAX, |most| most as u64);
        assert!(
            played.outcome.most_at_once <= most,
            "seed {seed}: {} at once",
            played.outcome.most_at_once
        );
    }
    check_live_bodies(judged);
}

/// What the server got is what the workload said.
fn check_live_bodies(judged: &Judged) {
    let played = judged.played.as_ref().expect("it was played");
    for seen in &played.outcome.requests {
        let exchange = played
            .exchanges
            .iter()
            .find(|exchange| exchange.request_head == seen.head);
        let exchange = exchange.expect("a request the server saw has an exchange");
        assert_eq!(
            seen.body.len() as u64,
            exchange.request_body_bytes,
            "seed {}",
            judged.seed
        );
        if let Some(live) = &exchange.live_body {
            assert_eq!(seen.body, live[..], "seed {}", judged.seed);
            let words = String::from_utf8_lossy(&seen.body);
            let kept = words.split(' ').nth(2).map(str::to_owned);
            // A turn that was cut on purpose left no reply.
            assert!(
                judged.cancels || kept == Some(exchange.id.turn.to_string()),
                "seed {}",
                judged.seed
            );
        }
    }
}
