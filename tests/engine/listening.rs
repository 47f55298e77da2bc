//! Long replies that later turns need.
//!
//! In: runs in virtual time, whose clock stands while an engine works. Out: when turns went out, and that no exchange is lost. Never: a bound
//! that hangs on the machine.

use tokenring::clock::{Nanos, Tick};
use tokenring::config::{ConnectionReuse, PhasePlan, StopRule};
use tokenring::driver::simulated::{Answer, Chance, SeenRequest, Simulation};
use tokenring::engine::Stop;
use tokenring::record::{Exchange, Outcome as Ended};

use super::bench::{Bench, MILLI, Played, closed_loop};
use super::check::{Judged, check, check_faultless};

/// Events of a reply; the engine reads 32 of them at a time, 2 us apart.
const EVENTS: usize = 300;

/// A chat reply, all of whose events come at once.
fn at_once(_: &SeenRequest, _: &mut Chance) -> Answer {
    let event = |number: usize| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{number} \"}}}}]}}\n\n")
    };
    let mut body: String = (0..EVENTS).map(event).collect();
    body.push_str("data: [DONE]\n\n");
    let mut answer = Answer::stream(0, Nanos(0));
    answer.pieces = vec![(Nanos(MILLI), body.into_bytes())];
    answer
}

fn bench(phase: PhasePlan, reuse: ConnectionReuse) -> Bench {
    let mut bench = Bench::new(phase);
    bench.words.turns = 4;
    bench.words.live = true;
    bench.reuse = reuse;
    bench
}

fn play(bench: Bench, interrupted: bool) -> Played {
    let judged = Judged {
        interrupted,
        ..Judged::of(&bench, 1)
    };
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(at_once);
    let played = bench.play(simulation);
    check(&played, &judged);
    played
}

#[test]
fn a_long_reply_is_read_in_steps_and_the_next_turn_waits_for_no_more() {
    let phase = PhasePlan {
        stop: StopRule {
            sessions: Some(40),
            ..StopRule::default()
        },
        ..closed_loop(1, 0)
    };
    let bench = bench(phase, ConnectionReuse::Pooled);
    let judged = Judged::of(&bench, 1).with(play(bench, false));
    check_faultless(&judged);
    let played = judged.played.as_ref().expect("it was played");
    let mut late = 0;
    for exchange in played.exchanges.iter().filter(|e| e.id.turn > 0) {
        let ticks = exchange.ticks;
        // Ten steps, nine pauses.
        let by = ticks.submitted.since(ticks.due);
        assert!(by.is_multiple_of(2_000) && by <= 18_000, "{by}");
        late = late.max(by);
    }
    assert!(late > 0, "a reply of {EVENTS} events was read in one go");
}

/// Whenever the phase ends, while replies are read or not, every exchange and every connection comes home.
#[test]
fn a_phase_may_end_while_a_reply_is_read() {
    for reuse in [ConnectionReuse::Pooled, ConnectionReuse::StickyUserSessions] {
        let whole = play(bench(closed_loop(3, 30), reuse), false);
        let end = whole.exchanges.iter().map(|e| e.ticks.end).min();
        let end = end.expect("requests were sent").since(whole.starts[0]);
        for after in (0..24_000).step_by(1_000) {
            let phase = PhasePlan {
                stop: StopRule {
                    duration: Some(Nanos(end + after)),
                    ..StopRule::default()
                },
                grace: Some(Nanos(5 * MILLI)),
                ..closed_loop(3, 0)
            };
            let played = play(bench(phase, reuse), false);
            assert!(played.counts.sent >= 3, "{after}");
        }
    }
}

/// The same with a stop from outside.
#[test]
fn a_stop_may_come_while_a_reply_is_read() {
    for after in (0..20_u64).map(|step| MILLI + step * 100_000) {
        let bench = bench(closed_loop(3, 300), ConnectionReuse::Pooled);
        let judged = Judged {
            interrupted: true,
            ..Judged::of(&bench, 1)
        };
        let mut simulation = Simulation::new(1);
        simulation.server = Box::new(at_once);
        let played = bench.play_with(simulation, |simulation, conductor| {
            let conductor = std::sync::Arc::clone(conductor);
            let act = move || conductor.call(Stop::Now);
            simulation.acts.push((Tick(after), Box::new(act)));
        });
        check(&played, &judged);
        let ends = |e: &&Exchange| matches!(e.outcome, Ended::Success | Ended::Interrupted);
        assert_eq!(
            played.exchanges.iter().filter(ends).count(),
            played.exchanges.len()
        );
    }
}
