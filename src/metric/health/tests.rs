//! Measurements in, verdicts out.
//!
//! In: a quiet run, changed in one place at a time. Out: failed assertions. Never: a real machine.

use super::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn spread(count: u64, p99_ns: u64, rare_ns: u64) -> Spread {
    Spread {
        count,
        p50: Nanos(p99_ns / 4),
        p99: Nanos(p99_ns),
        rare: Nanos(rare_ns),
        max: Nanos(rare_ns * 3),
    }
}

/// A second on a kept core, with stamps taken in user space.
fn quiet() -> Health {
    Health {
        workers: vec![WorkerHealth {
            core: Some(0),
            length: MS(1_000),
            busy: MS(100),
            turns: spread(1_000, 80_000, 90_000),
            turn_delay: Nanos(60_000),
            wake_lateness: Some(spread(200, 70_000, 80_000)),
            receive_delay: None,
            send_bracket: Some(spread(100, 5_000, 6_000)),
            reads: 900,
            read_turns: 800,
            events: 900,
            thread: Some(ThreadTime {
                ran: MS(120),
                waited: MS(5),
                slices: 1_000,
            }),
            core_delay: Some(Nanos(50_000)),
        }],
        ring: RingFacts {
            reads: 1_000,
            ..RingFacts::default()
        },
        timer_grain: Nanos(10_000),
        clock_error: Nanos(100),
        mapping_error: Nanos(1_000),
        content_events: 1_000,
        streams: 200,
        ..Health::default()
    }
}

/// The same with stamps of the kernel.
fn stamped() -> Health {
    let mut health = quiet();
    health.kernel_stamps = true;
    health.workers[0].receive_delay = Some(spread(900, 40_000, 45_000));
    health
}

type Change = fn(&mut Health);

#[test]
fn quiet_runs_are_trusted() {
    for health in [quiet(), stamped()] {
        let verdict = judge(&health);
        assert_eq!(verdict.level, Level::Trusted, "{:?}", verdict.reasons);
        assert!(verdict.reasons.is_empty() && verdict.warnings.is_empty());
        let (ttft, gap) = health.bounds();
        assert_eq!((verdict.ttft_bound, verdict.gap_bound), (ttft, gap));
    }
    assert_eq!(judge(&Health::default()).level, Level::Trusted);
}

fn rival(used: Nanos, length: Nanos) -> Rival {
    Rival {
        core: 3,
        used,
        length,
    }
}

type Set = fn(&mut Health, f64);

fn ms(value: f64) -> Nanos {
    Nanos::from_seconds(value / 1e3)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's numbers"
)]
fn count(value: f64) -> u64 {
    value as u64
}

/// (reason, just below its first threshold, at it, at its second; NaN where there is none; how the value is set)
const THRESHOLDS: [(&str, f64, f64, f64, Set); 15] = [
    ("unmeasured", 0.0, 1.0, f64::NAN, |h, v| {
        // Busy all the time, which says nothing of so short a run.
        let length = if v > 0.0 { MS(49) } else { MS(1_000) };
        h.workers[0].length = length;
        h.workers[0].busy = h.workers[0].busy.min(length);
    }),
    ("core_wait", 0.999, 1.0, 2.0, |h, v| {
        h.workers[0].core_delay = Some(ms(v));
    }),
    ("late_wake", 0.999, 1.0, 2.0, |h, v| {
        h.workers[0].wake_lateness = Some(Spread {
            p99: ms(v),
            ..spread(100, 0, 50_000)
        });
    }),
    ("long_turns", 1.999, 2.0, 10.0, |h, v| {
        h.workers[0].turn_delay = ms(v);
    }),
    ("receive_delay", 2.499, 2.5, 10.5, |h, v| {
        h.window = Nanos(500_000);
        h.workers[0].receive_delay = Some(Spread {
            p99: ms(v),
            ..spread(100, 0, 50_000)
        });
    }),
    ("busy", 799.0, 800.0, 950.0, |h, v| {
        h.workers[0].busy = ms(v);
    }),
    ("bound", 0.9, 1.0, 10.0, |h, v| h.clock_error = ms(v)),
    ("schedule_lag", 0.999, 1.0, 10.0, |h, v| {
        h.schedule_lag = Some(ScheduleLag {
            p99_ms: v,
            client_p99_ms: Some(v),
            ..ScheduleLag::default()
        });
    }),
    ("unstamped_reads", 9.0, 10.0, 500.0, |h, v| {
        h.ring.unstamped = count(v);
    }),
    ("no_buffer", 9.0, 10.0, 500.0, |h, v| {
        h.ring.exhausted = count(v);
    }),
    ("queue_overflow", 0.0, 1.0, f64::NAN, |h, v| {
        h.ring.overflows = count(v);
    }),
    ("throttled", 0.0, 1.0, 5.0, |h, v| {
        h.machine.throttled = Some(Throttled {
            periods: u64::from(v > 0.0),
            time: ms(v),
        });
    }),
    ("rival", 99.0, 100.0, 300.0, |h, v| {
        h.machine.rivals = vec![rival(ms(v), MS(1_000))];
    }),
    ("shared_core", 0.0, 1.0, f64::NAN, |h, v| {
        h.machine.shared_cores = vec![(0, "another worker"); usize::from(v > 0.0)];
    }),
    ("busy_sibling", 0.0, 1.0, f64::NAN, |h, v| {
        h.machine.busy_siblings = vec![(0, 4); usize::from(v > 0.0)];
    }),
];

#[test]
fn each_reason_has_its_thresholds() {
    assert_eq!(THRESHOLDS.map(|row| row.0), REASONS);
    for (name, below, caution, untrusted, set) in THRESHOLDS {
        let of = |value| {
            let mut health = stamped();
            set(&mut health, value);
            judge(&health)
        };
        let verdict = of(below);
        assert_eq!(
            verdict.level,
            Level::Trusted,
            "{name}: {:?}",
            verdict.reasons
        );
        for (value, level) in [(caution, Level::Caution), (untrusted, Level::Untrusted)] {
            if value.is_nan() {
                continue;
            }
            let verdict = of(value);
            let [reason] = verdict.reasons.as_slice() else {
                panic!("{name} at {value}: {:?}", verdict.reasons);
            };
            assert_eq!(
                (reason.name, reason.level),
                (name, level),
                "{}",
                reason.text
            );
            assert_eq!(verdict.level, level);
        }
    }
}

#[test]
fn a_rival_of_short_slices_is_one_too() {
    for (delay, waited_ms, level) in [
        (1_500_000, 59, Level::Caution),
        (1_500_000, 60, Level::Untrusted),
        (900_000, 60, Level::Trusted),
    ] {
        let mut health = stamped();
        health.workers[0].core_delay = Some(Nanos(delay));
        health.workers[0].thread = Some(ThreadTime {
            ran: MS(120),
            waited: MS(waited_ms),
            slices: 1_000,
        });
        assert_eq!(judge(&health).level, level, "{delay} {waited_ms}");
    }
}

#[test]
fn what_is_no_reason_is_none() {
    let changes: [(&str, Change); 9] = [
        ("a rival in too short a load", |h| {
            h.machine.rivals = vec![rival(MS(299), MS(299))];
        }),
        ("no stops", |h| {
            h.machine.throttled = Some(Throttled::default());
        }),
        ("a quota alone", |h| h.machine.quota_cpus = Some(2.0)),
        ("a thread nobody tells of", |h| {
            h.workers[0].thread = None;
            h.workers[0].core_delay = None;
        }),
        ("too few waits", |h| {
            h.workers[0].wake_lateness = Some(spread(99, 9_000_000, 9_000_000));
        }),
        ("too few reads", |h| {
            h.kernel_stamps = true;
            h.workers[0].receive_delay = Some(spread(99, 90_000_000, 90_000_000));
        }),
        ("waits for a slot", |h| {
            h.schedule_lag = Some(ScheduleLag {
                p99_ms: 900.0,
                ..ScheduleLag::default()
            });
        }),
        ("a window on purpose", |h| {
            h.kernel_stamps = true;
            h.window = MS(4);
            h.workers[0].receive_delay = Some(spread(900, 4_000_000, 4_100_000));
        }),
        ("spinning", |h| {
            h.spins = true;
            h.workers[0].thread = Some(ThreadTime {
                ran: MS(1_000),
                ..ThreadTime::default()
            });
        }),
    ];
    for (name, change) in changes {
        let mut health = quiet();
        change(&mut health);
        let verdict = judge(&health);
        assert_eq!(
            verdict.level,
            Level::Trusted,
            "{name}: {:?}",
            verdict.reasons
        );
    }
    let mut spinning = quiet();
    spinning.workers[0].thread = Some(ThreadTime {
        ran: MS(1_000),
        ..ThreadTime::default()
    });
    assert_eq!(
        judge(&spinning).level,
        Level::Untrusted,
        "the kernel's work counts"
    );
}

#[test]
fn one_measure_of_its_delay_is_enough() {
    let few = Some(spread(99, 50_000, 50_000));
    let enough = Some(spread(100, 50_000, 50_000));
    for (core, woken, received, level) in [
        (None, few, few, Level::Caution),
        (None, None, None, Level::Caution),
        (Some(Nanos(0)), None, None, Level::Trusted),
        (None, enough, None, Level::Trusted),
        (None, None, enough, Level::Trusted),
    ] {
        let mut health = quiet();
        health.workers[0].core_delay = core;
        health.workers[0].wake_lateness = woken;
        health.workers[0].receive_delay = received;
        assert_eq!(
            judge(&health).level,
            level,
            "{core:?} {woken:?} {received:?}"
        );
    }
}

#[test]
fn a_rival_is_named_with_its_core_and_share() {
    let mut health = stamped();
    // The core is named of each that has one, not only of the first.
    let idle = Rival {
        core: 0,
        ..rival(MS(1), MS(300))
    };
    health.machine.rivals = vec![idle, rival(MS(123), MS(300))];
    let verdict = judge(&health);
    let [reason] = verdict.reasons.as_slice() else {
        panic!("{:?}", verdict.reasons);
    };
    assert_eq!((reason.name, reason.level), ("rival", Level::Untrusted));
    let text = "other programs used 41 % of core 3, which is a worker's: ";
    assert!(reason.text.starts_with(text), "{}", reason.text);
}

#[test]
fn warnings_are_told_and_not_judged() {
    let mut health = quiet();
    health.machine.governors = vec![(0, "powersave".to_owned())];
    health.machine.stolen = vec![(0, MS(4)), (3, MS(5))];
    let verdict = judge(&health);
    assert_eq!(verdict.level, Level::Trusted);
    // 4 ms of a second are less than 1 in 200.
    let [governor, stolen] = verdict.warnings.as_slice() else {
        panic!("{:?}", verdict.warnings);
    };
    assert!(governor.contains("core 0") && governor.contains("powersave"));
    assert!(stolen.contains("took 0.5 % of core 3"), "{stolen}");
}

/// (run, whether the kernel stamps, what is changed, (TTFT, gap)). 6 us of send and 0.1 us of clock are in every TTFT.
const BOUNDS: [(&str, bool, Change, (u64, u64)); 14] = [
    ("user: the latest of three", false, |_| {}, (86_100, 80_100)),
    (
        "user: turns",
        false,
        |h| h.workers[0].turn_delay = Nanos(81_000),
        (87_100, 81_100),
    ),
    (
        "user: core",
        false,
        |h| h.workers[0].core_delay = Some(Nanos(82_000)),
        (88_100, 82_100),
    ),
    (
        "user: at least the timer's grain",
        false,
        |h| h.timer_grain = Nanos(90_000),
        (96_100, 90_100),
    ),
    (
        "user: few waits say nothing",
        false,
        |h| h.workers[0].wake_lateness = Some(spread(99, 1, 1 << 30)),
        (66_100, 60_100),
    ),
    (
        "user: the kernel measured it",
        false,
        |h| h.workers[0].receive_delay = Some(spread(100, 40_000, 45_000)),
        (51_100, 45_100),
    ),
    (
        "kernel: the mapping, once and twice",
        true,
        |_| {},
        (7_100, 2_100),
    ),
    (
        "kernel: a late worker costs nothing",
        true,
        |h| h.workers[0].core_delay = Some(MS(9)),
        (7_100, 2_100),
    ),
    (
        "kernel: few unstamped reads",
        true,
        |h| h.ring.unstamped = 4,
        (7_100, 2_100),
    ),
    (
        "kernel: 1 in 200 unstamped",
        true,
        |h| h.ring.unstamped = 5,
        (52_100, 47_100),
    ),
    (
        "kernel: 1 in 200 shared, not at the start",
        true,
        |h| h.shared_events = 5,
        (7_100, 47_100),
    ),
    (
        "kernel: 1 in 200 shared at the start",
        true,
        |h| h.first_shared = 1,
        (52_100, 2_100),
    ),
    (
        "kernel: unstamped, the delay not measured",
        true,
        |h| {
            h.ring.unstamped = 500;
            h.window = MS(1);
            h.workers[0].receive_delay = None;
        },
        (1_087_100, 1_082_100),
    ),
    (
        "the worst worker",
        false,
        |h| {
            let mut other = h.workers[0];
            other.turn_delay = MS(1);
            h.workers.push(other);
        },
        (1_006_100, 1_000_100),
    ),
];

#[test]
fn bounds_are_what_the_source_of_the_stamps_can_be_off_by() {
    for (name, kernel, change, expected) in BOUNDS {
        let mut health = if kernel { stamped() } else { quiet() };
        change(&mut health);
        let (ttft, gap) = health.bounds();
        assert_eq!((ttft.0, gap.0), expected, "{name}");
    }
}

#[test]
fn a_bound_that_shared_reads_make_says_so() {
    let mut health = stamped();
    health.workers[0].receive_delay = Some(spread(900, 40_000, 1_500_000));
    assert_eq!(judge(&health).level, Level::Trusted);
    health.shared_events = 6;
    let verdict = judge(&health);
    let [reason] = verdict.reasons.as_slice() else {
        panic!("{:?}", verdict.reasons);
    };
    assert_eq!(reason.name, "bound");
    let text = "a time may be off by 1.50 ms, for 0.6 % of the events share a read";
    assert!(reason.text.starts_with(text), "{}", reason.text);
}

#[test]
fn the_worst_reason_stands_first() {
    let mut health = quiet();
    health.machine.shared_cores.push((0, "the built-in server"));
    health.workers[0].core_delay = Some(MS(3));
    let verdict = judge(&health);
    assert_eq!(verdict.level, Level::Untrusted);
    let names: Vec<&str> = verdict.reasons.iter().map(|reason| reason.name).collect();
    assert_eq!(names, ["core_wait", "shared_core", "bound"]);
}

#[test]
fn the_readme_lists_the_reasons() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("### Can the client be trusted").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(names, REASONS);
}

fn histogram(spells: &[(u64, u64)]) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 1 << 40, 2).unwrap();
    for &(length, count) in spells {
        histogram.record_n(length, count).unwrap();
    }
    histogram
}

#[test]
fn long_spells_hold_most_moments() {
    // (spells, length of the run, exceeded by 1 moment in 200)
    for (spells, length, expected) in [
        (&[][..], 1_000_000, 0),
        // One spell of 4,000 in a million is less than 1 in 200.
        (&[(4_000, 1)], 1_000_000, 0),
        // A hundred of them: 100 * (4,000 - x) moments are 5,000 at x = 3,950.
        (&[(4_000, 100)], 1_000_000, 3_950),
        // A thousand short ones beside them change little, though they are most of the spells.
        (&[(4_000, 100), (10, 1_000)], 1_000_000, 3_950),
        (&[(1_000_000, 1)], 1_000_000, 995_000),
    ] {
        let found = wait_for_end(&histogram(spells), length);
        // Buckets are up to 1 % wide.
        assert!(
            found.abs_diff(expected) <= expected / 100 + 1,
            "{spells:?}: {found}"
        );
    }
}

#[test]
fn a_spread_is_in_nanoseconds() {
    let rate = Rate::new(0.5);
    assert_eq!(Spread::of(&histogram(&[]), rate), None);
    let spread = Spread::of(&histogram(&[(100, 991), (120, 5), (200, 4)]), rate).unwrap();
    assert_eq!(
        (spread.count, spread.p50, spread.p99),
        (1_000, Nanos(50), Nanos(50))
    );
    assert_eq!((spread.rare, spread.max), (Nanos(60), Nanos(100)));
}

#[test]
fn schedstat_is_three_numbers() {
    let time = ThreadTime::parse("73355 50937 2\n").unwrap();
    let expected = ThreadTime {
        ran: Nanos(73_355),
        waited: Nanos(50_937),
        slices: 2,
    };
    assert_eq!(time, expected);
    assert_eq!(ThreadTime::parse("1 2"), None);
    assert_eq!(ThreadTime::parse("a 2 3"), None);
    let later = ThreadTime::parse("80000 50937 5").unwrap();
    assert_eq!(later.since(time).ran, Nanos(6_645));
    let half = ThreadTime {
        ran: MS(3),
        waited: MS(1),
        slices: 9,
    };
    assert!((half.waited_share() - 0.25).abs() < 1e-9);
}
