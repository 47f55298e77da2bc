//! Where ticks come from.
//!
//! In: the processor's counter, or the system's clock where that counter cannot be trusted. Out: [`Tick`]s, and what they are. Never:
//! falls back in silence, or changes its source.
//!
//! The counter is trusted when processor and kernel both are sure of it: on x86 the TSC must tick at one rate (`constant_tsc`), not
//! stop in deep sleep (`nonstop_tsc`), be invariant by CPUID, and be what the kernel itself keeps time by. The kernel leaves a TSC
//! that differs between cores or is found to drift, so its choice covers what no check in user space can see.

use std::fmt;
use std::sync::OnceLock;

use super::calibrate::{Anchor, monotonic_ns, raw_ns};
use super::{Nanos, Rate, Tick};

/// The first scale is fitted over this length of time.
const FIT: Nanos = Nanos::from_millis(10);

/// Readings whose cost is averaged.
const READINGS: u32 = 1_000;

/// What the kernel keeps time by.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What a [`Clock`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor's counter, by an instruction.
    Counter,
    /// `clock_gettime` of the monotonic clock that nobody slews, in nanoseconds.
    System {
        /// Why not the counter.
        reason: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Counter if cfg!(target_arch = "x86_64") => f.write_str("TSC (invariant)"),
            Source::Counter => f.write_str("the processor's counter"),
            Source::System { reason } => write!(f, "clock_gettime, because {reason}"),
        }
    }
}

/// The machine's counter. Cheap to copy to each worker; `now` costs about 12 ns and makes no system call where the TSC is usable.
///
/// ```
/// use tokenring::clock::Clock;
/// let clock = Clock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// println!("{}, {:.0} ns a reading", clock.source(), clock.reading_ns());
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    /// `None`: the system's clock.
    counter: Option<quanta::Clock>,
    source: Source,
    rate: Rate,
}

impl Clock {
    /// Opens the counter. The first call of a process chooses the source and fits its scale (some 10 ms); all clocks of a process
    /// are the same one.
    #[must_use]
    pub fn new() -> Clock {
        static CHOSEN: OnceLock<Clock> = OnceLock::new();
        CHOSEN.get_or_init(Clock::choose).clone()
    }

    /// The system's clock, whatever the counter is good for.
    #[must_use]
    pub fn system(reason: &str) -> Clock {
        Clock {
            counter: None,
            source: Source::System {
                reason: reason.to_owned(),
            },
            rate: Rate::NANOS,
        }
    }

    fn choose() -> Clock {
        let text = |path| std::fs::read_to_string(path).ok();
        let machine = Machine {
            architecture: std::env::consts::ARCH,
            processor: text("/proc/cpuinfo"),
            clocksource: text(CLOCKSOURCE),
        };
        if let Some(reason) = machine.distrust() {
            return Clock::system(&reason);
        }
        let counter = quanta::Clock::new();
        if is_the_system(|| counter.raw()) {
            return Clock::system("CPUID does not name an invariant TSC");
        }
        let rough = Clock {
            counter: Some(counter),
            source: Source::Counter,
            rate: Rate::NANOS,
        };
        let start = Anchor::take(&rough);
        let mut end = Anchor::take(&rough);
        while end.raw_ns < start.raw_ns + FIT.0 {
            end = Anchor::take(&rough);
        }
        let ticks = end.tick.since(start.tick);
        if ticks == 0 {
            return Clock::system("the processor's counter stands still");
        }
        let rate = Rate::new((end.raw_ns - start.raw_ns) as f64 / ticks as f64);
        Clock { rate, ..rough }
    }

    /// The counter, now.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Tick {
        match &self.counter {
            Some(counter) => Tick(counter.raw()),
            None => Tick(raw_ns()),
        }
    }

    /// The scale fitted at start.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// What it reads.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What a reading costs in nanoseconds: the mean of a thousand, taken now.
    #[must_use]
    pub fn reading_ns(&self) -> f64 {
        let start = self.now();
        for _ in 1..READINGS {
            std::hint::black_box(self.now());
        }
        let ticks = self.now().since(start);
        self.rate.nanos(ticks).0 as f64 / f64::from(READINGS)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// Each of three readings lies between two of the monotonic clock: quanta reads that clock where it finds no counter, and does not
/// say so.
fn is_the_system(reading: impl Fn() -> u64) -> bool {
    (0..3).all(|_| {
        let before = monotonic_ns();
        let reading = reading();
        (before..=monotonic_ns()).contains(&reading)
    })
}

/// What the system says of its counter; `None` where it says nothing.
struct Machine {
    architecture: &'static str,
    /// `/proc/cpuinfo`.
    processor: Option<String>,
    /// What the kernel keeps time by.
    clocksource: Option<String>,
}

impl Machine {
    /// Why its counter may not be trusted.
    fn distrust(&self) -> Option<String> {
        let wanted = match self.architecture {
            "x86_64" => "tsc",
            "aarch64" => "arch_sys_counter",
            other => return Some(format!("no counter of {other} can be read")),
        };
        let flags = self.processor.as_deref().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("flags"))?;
            Some(line.split_whitespace().collect::<Vec<_>>())
        });
        if let (Some(flags), "x86_64") = (flags, self.architecture) {
            for (flag, fault) in [
                ("constant_tsc", "changes its rate"),
                ("nonstop_tsc", "stops in deep sleep"),
            ] {
                if !flags.contains(&flag) {
                    return Some(format!("the TSC {fault} (no {flag} in /proc/cpuinfo)"));
                }
            }
        }
        let kept_by = self.clocksource.as_deref()?.trim();
        (kept_by != wanted).then(|| {
            format!("the kernel keeps time by {kept_by} and not by {wanted} (current_clocksource)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_trusted_where_processor_and_kernel_are() {
        let both = "processor : 0\nflags : fpu tsc constant_tsc nonstop_tsc rdtscp\n";
        let halting = "processor : 0\nflags : fpu tsc constant_tsc rdtscp\n";
        let old = "flags : fpu tsc\n";
        let arm = "processor : 0\nFeatures : fp asimd\n";
        for (architecture, processor, clocksource, reason) in [
            ("x86_64", Some(both), Some("tsc\n"), None),
            ("x86_64", Some(both), None, None),
            ("x86_64", None, Some("tsc\n"), None),
            ("x86_64", None, None, None),
            ("x86_64", Some(halting), Some("tsc\n"), Some("nonstop_tsc")),
            ("x86_64", Some(old), None, Some("constant_tsc")),
            ("x86_64", Some(both), Some("hpet\n"), Some("by hpet")),
            (
                "x86_64",
                Some(both),
                Some("kvm-clock\n"),
                Some("by kvm-clock"),
            ),
            ("aarch64", Some(arm), Some("arch_sys_counter\n"), None),
            ("aarch64", None, None, None),
            (
                "aarch64",
                Some(arm),
                Some("timer0\n"),
                Some("not by arch_sys_counter"),
            ),
            ("riscv64", None, None, Some("riscv64")),
        ] {
            let machine = Machine {
                architecture,
                processor: processor.map(str::to_owned),
                clocksource: clocksource.map(str::to_owned),
            };
            let found = machine.distrust();
            let place = format!("{architecture} {processor:?} {clocksource:?}: {found:?}");
            assert_eq!(found.is_some(), reason.is_some(), "{place}");
            if let (Some(found), Some(reason)) = (found, reason) {
                assert!(found.contains(reason), "{place}");
            }
        }
    }

    #[test]
    fn a_counter_that_is_the_system_s_clock_is_seen() {
        assert!(is_the_system(monotonic_ns));
        assert!(!is_the_system(|| monotonic_ns() / 3));
        assert!(!is_the_system(|| monotonic_ns() + 5_000_000_000));
        if let Some(counter) = &Clock::new().counter {
            assert!(!is_the_system(|| counter.raw()));
        }
    }

    #[test]
    fn the_system_s_clock_ticks_in_nanoseconds_and_says_why() {
        let clock = Clock::system("of a test");
        let start = Anchor::take(&clock);
        let mut end = Anchor::take(&clock);
        while end.raw_ns < start.raw_ns + 2_000_000 {
            end = Anchor::take(&clock);
        }
        let (ticks, nanos) = (end.tick.since(start.tick), end.raw_ns - start.raw_ns);
        let slack = start.width + end.width;
        assert!(ticks.abs_diff(nanos) <= slack, "{ticks} of {nanos}");
        assert_eq!(
            clock.source().to_string(),
            "clock_gettime, because of a test"
        );
        assert!(clock.reading_ns() > 0.0);
    }

    #[test]
    fn every_clock_of_a_process_is_the_same() {
        let (one, two) = (Clock::new(), Clock::new());
        assert_eq!(one.rate(), two.rate());
        assert_eq!(one.source(), two.source());
        let before = one.now();
        assert!(two.now() >= before);
    }
}
