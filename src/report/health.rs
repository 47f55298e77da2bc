//! The client's health, for people and for programs.
//!
//! In: what was measured and how it was judged. Out: lines of the console, `client_health` of the summary. Never: judges.

use std::fmt::Write;

use serde_json::{Value, json};

use super::escape_controls;
use super::number;
use crate::clock::Nanos;
use crate::metric::health::{Health, Spread, ThreadTime, Verdict, WorkerHealth, share};

/// What was measured of the client, with the judgement.
#[derive(Clone, Debug, Default)]
pub struct HealthReport {
    /// Measured.
    pub health: Health,
    /// Judged.
    pub verdict: Verdict,
}

/// One spread of a worker.
type Part = fn(&WorkerHealth) -> Option<Spread>;

impl HealthReport {
    /// The verdict with its bounds, a line for each reason and each warning, and two with the worst of the workers. Empty when no
    /// worker told anything.
    pub(super) fn lines(&self) -> String {
        if self.health.workers.is_empty() {
            return String::new();
        }
        let verdict = &self.verdict;
        let mut out = format!(
            "Client health: {}; TTFT p99 may be off by up to {}, a single gap's by {}\n",
            verdict.level.name(),
            micros(verdict.ttft_bound),
            micros(verdict.gap_bound)
        );
        for reason in &verdict.reasons {
            let text = escape_controls(&reason.text);
            let _ = writeln!(out, "Client health: {}: {text}", reason.level.name());
        }
        for warning in &verdict.warnings {
            let _ = writeln!(out, "Client health: {}", escape_controls(warning));
        }
        let several = self.health.workers.len() > 1;
        let worst = if several { " (worst worker)" } else { "" };
        let _ = writeln!(out, "Client health: {}{worst}", self.delays().join(", "));
        let _ = writeln!(out, "Client health: {}{worst}", self.work().join(", "));
        out
    }

    /// How late things were seen and done.
    fn delays(&self) -> Vec<String> {
        let parts: [(&str, Part); 3] = [
            ("receive delay", |w| w.receive_delay),
            ("wake-ups late", |w| w.wake_lateness),
            ("sends took", |w| w.send_bracket),
        ];
        let mut delays: Vec<String> = parts
            .iter()
            .filter_map(|(name, part)| self.spread(name, *part))
            .collect();
        let waits = self.health.workers.iter().filter_map(|w| w.core_delay);
        if let Some(longest) = waits.max() {
            let share = self.most(|w| w.thread.map_or(0.0, ThreadTime::waited_share));
            delays.push(format!(
                "run-queue delay {} at 1 moment in 200, {:.1} % of the time wanted",
                micros(longest),
                100.0 * share
            ));
        }
        if let Some(lag) = self.health.schedule_lag {
            delays.push(format!(
                "schedule lag p50 {:.3} p99 {:.3} max {:.3} ms",
                lag.p50_ms, lag.p99_ms, lag.max_ms
            ));
        }
        delays
    }

    /// How much there was to do.
    fn work(&self) -> Vec<String> {
        let health = &self.health;
        let per = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        vec![
            format!(
                "busy {:.1} %",
                100.0 * self.most(|w| w.busy_share(health.spins))
            ),
            format!(
                "longest turn {} (p99 {})",
                micros(Nanos(self.largest(|w| w.turns.max.0))),
                micros(Nanos(self.largest(|w| w.turns.p99.0)))
            ),
            format!(
                "{:.2} reads a turn",
                self.most(|w| per(w.reads, w.read_turns))
            ),
            format!("{:.2} events a read", self.most(|w| per(w.events, w.reads))),
            format!("{} completion queue overflows", health.ring.overflows),
            format!(
                "recorder backlog peak {} requests ({:.1} MiB)",
                health.backlog.most_requests,
                health.backlog.most_bytes as f64 / f64::from(1 << 20)
            ),
            format!(
                "clock error {}, mapping of kernel stamps {}",
                micros(health.clock_error),
                micros(health.mapping_error)
            ),
        ]
    }

    fn spread(&self, name: &str, part: Part) -> Option<String> {
        let spreads = || self.health.workers.iter().filter_map(part);
        let most =
            |value: fn(Spread) -> Nanos| micros(spreads().map(value).max().unwrap_or_default());
        spreads().next()?;
        Some(format!(
            "{name} p50 {} p99 {} max {}",
            most(|s| s.p50),
            most(|s| s.p99),
            most(|s| s.max)
        ))
    }

    fn most(&self, value: impl Fn(&WorkerHealth) -> f64) -> f64 {
        self.health.workers.iter().map(value).fold(0.0, f64::max)
    }

    fn largest(&self, value: impl Fn(&WorkerHealth) -> u64) -> u64 {
        self.health.workers.iter().map(value).max().unwrap_or(0)
    }

    /// `client_health`; lengths in nanoseconds unless the key says otherwise. `None` when no worker told anything.
    pub(super) fn json(&self) -> Option<Value> {
        let (health, verdict) = (&self.health, &self.verdict);
        let (machine, ring) = (&health.machine, &health.ring);
        if health.workers.is_empty() {
            return None;
        }
        let reasons: Vec<Value> = verdict
            .reasons
            .iter()
            .map(|r| json!({"name": r.name, "level": r.level.name(), "text": r.text}))
            .collect();
        let workers: Vec<Value> = health
            .workers
            .iter()
            .map(|w| worker(w, health.spins))
            .collect();
        Some(json!({
            "verdict": verdict.level.name(),
            "ttft_p99_bound_ns": verdict.ttft_bound.0,
            "gap_p99_bound_ns": verdict.gap_bound.0,
            "reasons": reasons,
            "warnings": verdict.warnings,
            "kernel_stamps": health.kernel_stamps,
            "window_ns": health.window.0,
            "clock_error_ns": health.clock_error.0,
            "mapping_error_ns": health.mapping_error.0,
            "completion_queue_overflows": ring.overflows,
            "recorder_backlog_peak": health.backlog.most_requests,
            "recorder_backlog_peak_bytes": health.backlog.most_bytes,
            "reads_without_buffer": ring.exhausted,
            "reads_without_kernel_stamp": ring.unstamped,
            "wall_clock_steps": ring.steps,
            "shared_event_share": number::json(health.shared_shares().1),
            "shared_first_event_share": number::json(health.shared_shares().0),
            "schedule_lag": health.schedule_lag.map(|lag| json!({
                "p50_ms": number::json(lag.p50_ms),
                "p99_ms": number::json(lag.p99_ms),
                "max_ms": number::json(lag.max_ms),
                "client_p99_ms": lag.client_p99_ms.and_then(number::json),
            })),
            "quota_cpus": machine.quota_cpus.and_then(number::json),
            "throttled_periods": machine.throttled.map(|t| t.periods),
            "throttled_ns": machine.throttled.map(|t| t.time.0),
            "stolen": machine.stolen.iter().map(|(core, time)| json!({"cpu": core, "ns": time.0})).collect::<Vec<_>>(),
            "rivals": machine.rivals.iter().map(|rival| json!({
                "cpu": rival.core,
                "ns": rival.used.0,
                "share": number::json(share(rival.used, rival.length)),
            })).collect::<Vec<_>>(),
            "workers": workers,
        }))
    }
}

fn worker(worker: &WorkerHealth, spins: bool) -> Value {
    json!({
        "cpu": worker.core,
        "length_ns": worker.length.0,
        "busy_share": number::json(worker.busy_share(spins)),
        "turns": spread(worker.turns),
        "turn_delay_ns": worker.turn_delay.0,
        "reads": worker.reads,
        "turns_with_reads": worker.read_turns,
        "events": worker.events,
        "receive_delay": worker.receive_delay.map(spread),
        "wake_lateness": worker.wake_lateness.map(spread),
        "send_bracket": worker.send_bracket.map(spread),
        "cpu_time_ns": worker.thread.map(|t| t.ran.0),
        "run_queue_wait_ns": worker.thread.map(|t| t.waited.0),
        "run_queue_wait_share": worker.thread.and_then(|t| number::json(t.waited_share())),
        "run_queue_delay_ns": worker.core_delay.map(|d| d.0),
        "time_slices": worker.thread.map(|t| t.slices),
    })
}

fn spread(spread: Spread) -> Value {
    json!({
        "count": spread.count,
        "p50_ns": spread.p50.0,
        "p99_ns": spread.p99.0,
        "p99_5_ns": spread.rare.0,
        "max_ns": spread.max.0,
    })
}

/// Microseconds with their unit, as precise as anybody needs.
fn micros(length: Nanos) -> String {
    let micros = length.0 as f64 / 1e3;
    if micros < 100.0 {
        format!("{micros:.1} us")
    } else {
        format!("{micros:.0} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::health::{Backlog, judge};

    fn report() -> HealthReport {
        let spread = |p50, p99, max| Spread {
            count: 1_000,
            p50: Nanos(p50),
            p99: Nanos(p99),
            rare: Nanos(p99 + 1_000),
            max: Nanos(max),
        };
        let health = Health {
            workers: vec![WorkerHealth {
                core: Some(3),
                length: Nanos::from_millis(1_000),
                busy: Nanos::from_millis(970),
                turns: spread(900, 1_500, 2_000_000),
                receive_delay: Some(spread(20_000, 90_000, 450_000)),
                send_bracket: Some(spread(3_000, 5_000, 9_000)),
                reads: 25,
                read_turns: 10,
                events: 50,
                thread: Some(ThreadTime {
                    ran: Nanos(900),
                    waited: Nanos(100),
                    slices: 10,
                }),
                core_delay: Some(Nanos(40_000)),
                ..WorkerHealth::default()
            }],
            backlog: Backlog {
                most_requests: 7,
                most_bytes: 3 << 19,
                overflowed: 0,
            },
            kernel_stamps: true,
            clock_error: Nanos(50),
            mapping_error: Nanos(450),
            ..Health::default()
        };
        HealthReport {
            verdict: judge(&health),
            health,
        }
    }

    #[test]
    fn the_verdict_is_told_with_its_bounds_and_reasons() {
        let lines = report().lines();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(
            lines,
            [
                "Client health: untrusted; TTFT p99 may be off by up to 6.5 us, a single gap's by 0.9 us",
                "Client health: untrusted: worker 0 was busy 97 % of the time: spread the load over more cores",
                "Client health: receive delay p50 20.0 us p99 90.0 us max 450 us, sends took p50 3.0 us p99 5.0 us max 9.0 us, \
                 run-queue delay 40.0 us at 1 moment in 200, 10.0 % of the time wanted",
                "Client health: busy 97.0 %, longest turn 2000 us (p99 1.5 us), 2.50 reads a turn, 2.00 events a read, \
                 0 completion queue overflows, recorder backlog peak 7 requests (1.5 MiB), clock error 0.1 us, mapping of kernel stamps 0.5 us",
            ]
        );
    }

    #[test]
    fn programs_are_told_the_same() {
        let json = report().json().unwrap();
        assert_eq!(json["verdict"], "untrusted");
        assert_eq!(json["ttft_p99_bound_ns"], 6_500);
        assert_eq!(json["gap_p99_bound_ns"], 950);
        assert_eq!(json["recorder_backlog_peak"], 7);
        assert_eq!(json["recorder_backlog_peak_bytes"], 3 << 19);
        assert_eq!(json["reasons"][0]["name"], "busy");
        let worker = &json["workers"][0];
        assert_eq!(worker["run_queue_delay_ns"], 40_000);
        assert_eq!(worker["receive_delay"]["max_ns"], 450_000);
        assert!(worker["wake_lateness"].is_null());
    }

    #[test]
    fn nobody_measured_is_nothing_said() {
        let nothing = HealthReport::default();
        assert_eq!(nothing.lines(), "");
        assert_eq!(nothing.json(), None);
    }
}
