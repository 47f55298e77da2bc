//! Claim against truth: the errors of one run, and medians over several.
//!
//! In: the client's requests and the server's log. Out: a [`Sample`]. Never: drops an event without counting it.

use std::collections::BTreeMap;

use super::claim::{ClaimedRequest, Health};
use super::truth::ServedRequest;

/// Quantiles of signed nanoseconds, by the nearest rank. All 0 for an empty list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The least.
    pub min: i64,
    /// The median.
    pub p50: i64,
    /// 99 of 100 are not above this.
    pub p99: i64,
    /// 999 of 1,000 are not above this.
    pub p999: i64,
    /// The largest.
    pub max: i64,
}

impl Spread {
    /// Of these values, in any order.
    #[must_use]
    pub fn of(mut values: Vec<i64>) -> Spread {
        values.sort_unstable();
        // Per mille, so that the rank is computed without a fraction.
        let at = |per_mille: usize| {
            let rank = (values.len() * per_mille).div_ceil(1000).max(1);
            values.get(rank - 1).copied().unwrap_or(0)
        };
        Spread {
            min: at(0),
            p50: at(500),
            p99: at(990),
            p999: at(999),
            max: at(1000),
        }
    }
}

/// What one run showed, or the medians of several. Lengths in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Content events that the server sent.
    pub events: u64,
    /// Of these, how many the client has no stamp of.
    pub lost: u64,
    /// Of these, how many came in a read with another of their request.
    pub shared: u64,
    /// Events per second, from the first send to the last.
    pub rate: f64,
    /// Our stamp of an event minus its send.
    pub stamp_error: Spread,
    /// From our first byte to our stamp of the first token, minus from the server's receipt to its send of the first token. So it
    /// holds the way of the request too, with what the server took to read it.
    pub ttft_error: Spread,
    /// Standard deviation of the gaps between our stamps, all gaps of all streams together.
    pub itl_sd: f64,
    /// The same of the server's sends.
    pub server_itl_sd: f64,
    /// Standard deviation of our gap minus the server's: what measuring added to each.
    pub gap_error_sd: f64,
    /// The server's send of an event minus the time that it was due.
    pub server_late: Spread,
    /// CPU time of the client's workers for each event.
    pub cpu_ns_per_token: Option<f64>,
    /// The client's verdict about itself; the worst of several runs.
    pub verdict: Option<String>,
}

/// Holds what the client says against the server's log. The error names a request that only one of them knows, or more events than
/// were sent.
pub fn compare(
    served: &BTreeMap<u64, ServedRequest>,
    claimed: &[ClaimedRequest],
    health: Health,
) -> Result<Sample, String> {
    let mut lists = Lists::default();
    let mut sample = Sample {
        events: served
            .values()
            .map(|request| request.events.len() as u64)
            .sum(),
        ..Sample::default()
    };
    let mut arrived = 0;
    for request in claimed {
        let Some(number) = request.number else {
            continue;
        };
        let truth = served
            .get(&number)
            .ok_or_else(|| format!("the client has request {number}, the server's log has not"))?;
        if request.arrivals.len() > truth.events.len() {
            return Err(format!(
                "the client has {} events of request {number}, the server sent {}",
                request.arrivals.len(),
                truth.events.len()
            ));
        }
        arrived += request.arrivals.len() as u64;
        sample.shared += shared(&request.arrivals);
        // Which event is missing is not known, so those after it cannot be held against theirs.
        if request.arrivals.len() == truth.events.len() {
            lists.add(request, truth);
        }
    }
    sample.lost = sample.events.saturating_sub(arrived);
    let sends = || {
        served
            .values()
            .flat_map(|r| r.events.iter().map(|e| e.sent))
    };
    let span = sends().max().unwrap_or(0) - sends().min().unwrap_or(0);
    if span > 0 {
        sample.rate = sample.events.saturating_sub(1) as f64 * 1e9 / span as f64;
    }
    let late = served.values().flat_map(|r| &r.events);
    sample.server_late = Spread::of(late.map(|e| difference(e.sent, e.due)).collect());
    sample.stamp_error = Spread::of(lists.stamp_errors);
    sample.ttft_error = Spread::of(lists.ttft_errors);
    sample.itl_sd = deviation(lists.gaps.iter().map(|(ours, _)| *ours));
    sample.server_itl_sd = deviation(lists.gaps.iter().map(|(_, servers)| *servers));
    sample.gap_error_sd = deviation(lists.gaps.iter().map(|(ours, servers)| ours - servers));
    sample.cpu_ns_per_token = health.cpu_ns.map(|cpu| cpu as f64 / arrived.max(1) as f64);
    sample.verdict = health.verdict;
    Ok(sample)
}

#[derive(Default)]
struct Lists {
    stamp_errors: Vec<i64>,
    ttft_errors: Vec<i64>,
    /// Ours, the server's.
    gaps: Vec<(f64, f64)>,
}

impl Lists {
    /// Both have the same number of events.
    fn add(&mut self, ours: &ClaimedRequest, truth: &ServedRequest) {
        let pairs = || ours.arrivals.iter().zip(&truth.events);
        self.stamp_errors
            .extend(pairs().map(|(arrival, event)| difference(*arrival, event.sent)));
        if let Some((arrival, event)) = pairs().next() {
            let waited = difference(*arrival, ours.sent);
            self.ttft_errors
                .push(waited - difference(event.sent, truth.received));
        }
        let next = pairs().skip(1);
        self.gaps.extend(pairs().zip(next).map(|(before, after)| {
            let ours = difference(*after.0, *before.0) as f64;
            (ours, difference(after.1.sent, before.1.sent) as f64)
        }));
    }
}

/// Events that have their stamp in common with a neighbour.
fn shared(arrivals: &[u64]) -> u64 {
    let groups = arrivals.chunk_by(|a, b| a == b);
    groups
        .map(|group| {
            if group.len() > 1 {
                group.len() as u64
            } else {
                0
            }
        })
        .sum()
}

fn difference(later: u64, earlier: u64) -> i64 {
    i64::try_from(i128::from(later) - i128::from(earlier)).unwrap_or(i64::MAX)
}

/// Standard deviation over a whole population; 0 without values.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    (values
        .map(|value| (value - mean) * (value - mean))
        .sum::<f64>()
        / count)
        .sqrt()
}

/// The medians of each number; losses are added up, and the worst verdict stands. `None` for no sample.
#[must_use]
pub fn medians(samples: &[Sample]) -> Option<Sample> {
    let real = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
    let whole = |of: fn(&Sample) -> u64| middle(samples.iter().map(of).collect());
    let spread = |of: fn(&Sample) -> Spread| {
        let value =
            |part: fn(&Spread) -> i64| middle(samples.iter().map(|s| part(&of(s))).collect());
        Some(Spread {
            min: value(|s| s.min)?,
            p50: value(|s| s.p50)?,
            p99: value(|s| s.p99)?,
            p999: value(|s| s.p999)?,
            max: value(|s| s.max)?,
        })
    };
    let cpu: Option<Vec<f64>> = samples.iter().map(|s| s.cpu_ns_per_token).collect();
    let verdicts: Option<Vec<&String>> = samples.iter().map(|s| s.verdict.as_ref()).collect();
    Some(Sample {
        events: whole(|s| s.events)?,
        lost: samples.iter().map(|s| s.lost).sum(),
        shared: whole(|s| s.shared)?,
        rate: real(|s| s.rate)?,
        stamp_error: spread(|s| s.stamp_error)?,
        ttft_error: spread(|s| s.ttft_error)?,
        itl_sd: real(|s| s.itl_sd)?,
        server_itl_sd: real(|s| s.server_itl_sd)?,
        gap_error_sd: real(|s| s.gap_error_sd)?,
        server_late: spread(|s| s.server_late)?,
        cpu_ns_per_token: cpu.and_then(median),
        verdict: verdicts.and_then(|all| all.into_iter().max_by_key(|name| badness(name)).cloned()),
    })
}

/// An unknown verdict is the worst.
fn badness(verdict: &str) -> usize {
    let order = ["trusted", "caution", "untrusted"];
    order
        .iter()
        .position(|name| *name == verdict)
        .unwrap_or(order.len())
}

/// The middle one; of an even number the mean of both.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(values[middle - 1], upper)
    })
}

/// The middle one; of an even number the larger of both.
fn middle<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
