//! Random runs under every fault that the simulation knows, some thousands of them.
//!
//! In: seeds. Out: a panic that names the seed; `cargo bench --bench faults -- --seed N` tells its story. Never: a seed left out because
//! it fails.

use std::collections::BTreeMap;

use tokenring::clock::Nanos;
use tokenring::driver::simulated::{Answer, Delimiter, Ending, Simulation, Struck};
use tokenring::record::{ErrorClass, Outcome as Ended};
use tokenring::wire::Fault;

use crate::bench::{Bench, MILLI, SECOND, closed_loop};
use crate::check::{Judged, check};
use crate::{seeded, seeds};

/// Runs that showed a defect once, of the engine or of the judgement, and must not again. A change of the plans or of the simulation deals all runs anew; then these lines
/// tell what was found, and the tests of the rooms hold it.
const REGRESSIONS: &[(u64, &str)] = &[
    (
        173,
        "a stream whose head came with nothing but a keep-alive ended by its idle limit too early",
    ),
    (9, "a limit ended a request before the last read of it"),
    (
        1_140,
        "a read arrived before the one ahead of it, whose stamp by the kernel was given up",
    ),
    (
        1_606,
        "bytes left over from the reply before gave a head that came before its request",
    ),
    (
        257_029,
        "a reset long after [DONE], for which nobody waited, was judged a broken reply",
    ),
    (
        335_623,
        "an answer that was reset behind its last byte was judged a broken reply",
    ),
    (783_065, "the same, by another way"),
];

#[test]
fn what_went_wrong_once_does_not_again() {
    for &(seed, _) in REGRESSIONS {
        seeded::play(seed);
    }
}

/// A fault that never comes about tests nothing, so each of them is counted, and so is each class of errors.
#[test]
fn any_run_under_any_faults_keeps_its_promises() {
    let mut struck = Struck::default();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut classes: BTreeMap<ErrorClass, u64> = BTreeMap::new();
    for seed in seeds(0, 4_000) {
        let run = seeded::play(seed);
        struck.add(&run.played.outcome.struck);
        for (exchange, record) in run.played.exchanges.iter().zip(&run.records) {
            let mut note = |name: &str, came: bool| {
                *seen.entry(name.to_owned()).or_default() += u64::from(came);
            };
            note("good", record.is_success());
            note("sent again", exchange.link.resent);
            note("opened ahead", exchange.link.ahead);
            note("on another address", exchange.link.address > 0);
            if let Some(error) = &record.error {
                note(&error.kind, true);
                *classes.entry(error.class).or_default() += 1;
            }
        }
    }
    for (fault, count) in struck.each() {
        assert!(count > 3, "{fault} came {count} times: {struck:?}");
    }
    // No read of the simulation fails but by a reset.
    for class in ErrorClass::ALL
        .into_iter()
        .filter(|&class| class != ErrorClass::Read)
    {
        let count = classes.get(&class).copied().unwrap_or(0);
        assert!(count > 3, "{class:?} came {count} times: {classes:?}");
    }
    for kind in [
        "good",
        "sent again",
        "opened ahead",
        "on another address",
        "RequestTimeout",
        "RequestCancellationError",
        "BadHead",
        "BadChunkSize",
        "Truncated",
        "ClosedBeforeResponse",
        "Reset",
        "WriteFailed",
        "ConnectRefused",
        "ConnectFailed",
        "ConnectTimeout",
        "FirstByteTimeout",
        "IdleTimeout",
        "LocalExhausted",
        "ProxyUnreachable",
        "ProxyAuthentication",
        "ProxyRefused",
        "ProxyBadReply",
        "Tls",
        "InvalidInferenceResultError",
        "ServerError",
        "Answer",
    ] {
        let count = seen.get(kind).copied().unwrap_or(0);
        assert!(count > 3, "{kind} came {count} times of {seen:?}");
    }
}

/// A seed is all that is needed to see again what was seen once.
#[test]
fn a_run_has_the_same_story_each_time() {
    for seed in [3, 4, 5, 127] {
        let story = seeded::play(seed).story();
        assert_eq!(story, seeded::play(seed).story(), "seed {seed}");
        assert!(story.lines().count() > 10, "{story}");
    }
}

/// An answer that ends, or breaks, at any byte before its last one is no success, whatever delimits it.
#[test]
fn an_answer_cut_at_any_byte_is_no_success() {
    let delimiters = [
        Delimiter::Chunked,
        Delimiter::Length,
        Delimiter::OldLength,
        Delimiter::Close,
        Delimiter::OldClose,
    ];
    for delimiter in delimiters {
        for interim in [0, 1] {
            let whole = Answer {
                delimiter,
                interim,
                ..Answer::stream(3, Nanos(MILLI))
            };
            let until_close = matches!(delimiter, Delimiter::Close | Delimiter::OldClose);
            let length = whole.wire_length();
            for most in 0..=length {
                for ending in [
                    Ending::Close(most),
                    Ending::Reset(most),
                    Ending::Stall(most),
                ] {
                    let answer = Answer {
                        ending,
                        ..whole.clone()
                    };
                    let outcome = outcome_of(answer);
                    let place = format!("{delimiter:?} {interim} {ending:?} of {length}");
                    let head = length - whole.body().len();
                    let allowed = match ending {
                        Ending::Close(_) if most == length => true,
                        // HTTP has no word for it; the record knows by its text.
                        Ending::Close(_) if until_close => most >= head,
                        // All that counts has come, and the connection is given up for the rest.
                        Ending::Stall(_) => done_came(&whole, most),
                        Ending::Reset(_) => most == length && !until_close,
                        _ => false,
                    };
                    assert_eq!(outcome == Ended::Success, allowed, "{place}: {outcome:?}");
                }
            }
        }
    }
}

/// `[DONE]` and the line end behind it are within the first `most` bytes.
fn done_came(whole: &Answer, most: usize) -> bool {
    let tail = match whole.delimiter {
        // The event's second line end, which says that it is over, must have come; what follows is framing.
        Delimiter::Chunked => b"\r\n0\r\n\r\n".len(),
        _ => 0,
    };
    most >= whole.wire_length() - tail
}

fn outcome_of(answer: Answer) -> Ended {
    let mut bench = Bench::new(closed_loop(1, 1));
    bench.request_timeout = Nanos(3 * SECOND);
    let judged = Judged::of(&bench, 1);
    let mut simulation = Simulation::new(1);
    simulation.server = Box::new(move |_, _| answer.clone());
    let played = bench.play(simulation);
    check(&played, &judged);
    let outcome = played.exchanges[0].outcome;
    assert_ne!(outcome, Ended::Fault(Fault::Io));
    outcome
}
