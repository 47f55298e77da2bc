//! The pass over all moments against a reading of the definitions that looks at each moment by itself.
//!
//! In: a few random spans, many with equal moments. Out: the same statistics both ways. Never: the pass's sums, states or parts.

use proptest::prelude::*;

use super::*;
use crate::metric::registry::METRICS;

/// (start, wait for the first token, decoding, rest, tokens in, tokens out, has phases), times in steps of 1 ms.
type Given = (u64, u64, u64, u64, u64, u64, bool);

const MS: u64 = 1_000_000;

fn span((start, wait, decode, rest, input, output, phases): Given) -> Span {
    let first = start + wait;
    Span {
        start_ns: start * MS,
        first_ns: phases.then_some(first * MS),
        last_ns: (first + decode) * MS,
        end_ns: (first + decode + rest) * MS,
        input,
        output,
        steps: u32::try_from(output.saturating_sub(1)).unwrap_or(0),
    }
}

/// The value of the curve `tag` between two neighbouring moments; `None` where it does not count.
fn naive_value(tag: &str, spans: &[Span], middle_ns: f64) -> Option<f64> {
    let holds = |from: u64, to: u64| from as f64 <= middle_ns && middle_ns < to as f64;
    let per_second = |tokens: f64, from: u64, to: u64| {
        if holds(from, to) {
            tokens / ((to - from) as f64 / 1e9)
        } else {
            0.0
        }
    };
    let sum = |of: &dyn Fn(&Span) -> f64| spans.iter().map(of).sum::<f64>();
    let phases = |s: &Span| s.first_ns.map(|first| (first, s.last_ns.max(first)));
    let later = |s: &Span| (s.output as f64 - 1.0).max(0.0);
    let all = sum(&|s| f64::from(holds(s.start_ns, s.end_ns)));
    let prefill = sum(&|s| phases(s).map_or(0.0, |(f, _)| f64::from(holds(s.start_ns, f))));
    let decode = sum(&|s| phases(s).map_or(0.0, |(f, _)| f64::from(holds(f, s.end_ns))));
    let into = sum(&|s| phases(s).map_or(0.0, |(f, _)| per_second(s.input as f64, s.start_ns, f)));
    let out = sum(&|s| phases(s).map_or(0.0, |(f, l)| per_second(later(s), f, l)));
    let spread = sum(&|s| phases(s).map_or(0.0, |(f, _)| per_second(later(s), f, s.end_ns)));
    let during = |active: f64, value: f64| (active > 0.0).then_some(value);
    let each = |rate: f64, users: f64| if users > 0.0 { rate / users } else { 0.0 };
    match tag {
        "effective_concurrency" => Some(all),
        "effective_prefill_concurrency" => Some(prefill),
        "effective_decode_concurrency" => Some(decode),
        "effective_prefill_throughput" => Some(into),
        "effective_decode_throughput" => Some(out),
        "effective_total_throughput" => Some(into + spread),
        "effective_prefill_throughput_per_user" => Some(each(into, prefill)),
        "effective_decode_throughput_per_user" => Some(each(out, decode)),
        "active_prefill_throughput" => during(prefill, into),
        "active_decode_throughput" => during(decode, out),
        "active_total_throughput" => during(prefill + decode, into + spread),
        "active_prefill_throughput_per_user" => during(prefill, each(into, prefill)),
        "active_decode_throughput_per_user" => during(decode, each(out, decode)),
        other => panic!("{other} is no curve here"),
    }
}

/// Token seconds held over the window, from each request by itself.
fn naive_token_seconds(spans: &[Span], window: Window) -> f64 {
    let overlap = |from: u64, to: u64| {
        let (from, to) = (from.max(window.start_ns), to.min(window.end_ns));
        to.saturating_sub(from) as f64 / 1e9
    };
    let of = |s: &Span| {
        let prompt = s.input as f64 * overlap(s.start_ns, s.end_ns);
        let Some(first) = s.first_ns else {
            return prompt;
        };
        let one = (s.output as f64).min(1.0) * overlap(first, s.end_ns);
        let last = s.last_ns.max(first);
        let later = (s.output as f64 - 1.0).max(0.0);
        if last == first {
            return prompt + one;
        }
        // They come evenly, less half an event's share while they come; then all are there to the end.
        let length = (last - first) as f64;
        let (from, to) = (
            first.clamp(window.start_ns, window.end_ns),
            last.clamp(window.start_ns, window.end_ns),
        );
        let middle = ((from - first.min(from)) as f64 + (to - first.min(to)) as f64) / 2.0;
        let ahead = later / f64::from(s.steps.max(1)) / 2.0;
        let coming = (later * middle / length - ahead) * (to - from) as f64 / 1e9;
        prompt + one + coming + later * overlap(last, s.end_ns)
    };
    spans.iter().map(of).sum()
}

fn naive(tag: &str, spans: &[Span], window: Window) -> Option<[f64; 8]> {
    let mut moments: Vec<u64> = spans
        .iter()
        .flat_map(|s| {
            [
                s.start_ns,
                s.first_ns.unwrap_or(s.start_ns),
                s.last_ns.max(s.first_ns.unwrap_or(0)),
                s.end_ns,
            ]
        })
        .chain([window.start_ns, window.end_ns])
        .filter(|at| (window.start_ns..=window.end_ns).contains(at))
        .collect();
    moments.sort_unstable();
    let mut held: Vec<(f64, f64)> = moments
        .windows(2)
        .filter(|pair| pair[0] < pair[1])
        .filter_map(|pair| {
            let middle = (pair[0] as f64 + pair[1] as f64) / 2.0;
            Some((naive_value(tag, spans, middle)?, (pair[1] - pair[0]) as f64))
        })
        .collect();
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let time: f64 = held.iter().map(|h| h.1).sum();
    let mean = held.iter().map(|h| h.0 * h.1 / time).sum::<f64>();
    let variance = held
        .iter()
        .map(|h| (h.0 - mean).powi(2) * h.1 / time)
        .sum::<f64>();
    // Lengths are whole numbers of ns and so exact in 53 bits.
    let at = |percent: f64| {
        let mut passed = 0.0;
        let found = held.iter().find(|h| {
            passed += h.1;
            passed * 100.0 >= time * percent
        });
        found.map(|h| h.0)
    };
    Some([
        mean,
        held.first()?.0,
        held.last()?.0,
        at(50.0)?,
        at(90.0)?,
        at(95.0)?,
        at(99.0)?,
        variance.sqrt(),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_pass_agrees_with_a_naive_one(
        given in prop::collection::vec((0..30_u64, 0..9_u64, 0..9_u64, 0..4_u64, 1..50_u64, 0..9_u64, any::<bool>()), 1..9),
        cut in (0..12_u64, 0..12_u64),
    ) {
        let mut spans: Vec<Span> = given.into_iter().map(span).collect();
        spans.sort_unstable();
        let begin = spans.iter().map(|s| s.start_ns).min().unwrap_or(0);
        let end = spans.iter().map(|s| s.end_ns).max().unwrap_or(0);
        // The run's own window, or one that cuts requests at both ends, or one that begins before the first.
        let window = Window {
            start_ns: (begin + cut.0 * MS).saturating_sub(4 * MS),
            end_ns: (end + 4 * MS).saturating_sub(cut.1 * MS),
        };
        let context = Context { streaming: true, ..Context::default() };
        let mut rows = vec![None; METRICS.len()];
        fill(&spans, Some(window), &context, &mut rows);
        if window.length().0 == 0 {
            prop_assert!(rows.iter().all(Option::is_none));
            return Ok(());
        }
        let phased = spans.iter().any(|s| s.first_ns.is_some());
        for (metric, row) in METRICS.iter().zip(&rows) {
            let Some(stats) = row else { continue };
            if metric.tag == "tokens_in_flight" {
                continue;
            }
            let got = [stats.avg, stats.min, stats.max, stats.p50, stats.p90, stats.p95, stats.p99, stats.std];
            let want = naive(metric.tag, &spans, window);
            prop_assert!(want.is_some(), "{} is not there", metric.tag);
            for (got, want) in got.iter().zip(want.unwrap_or_default()) {
                let near = got.is_some_and(|got| (got - want).abs() <= 1e-6 * (1.0 + want.abs()));
                prop_assert!(near, "{}: {stats:?}, not {:?}", metric.tag, naive(metric.tag, &spans, window));
            }
        }
        let curves = METRICS.iter().zip(&rows).filter(|(metric, row)| row.is_none() && phased && metric.tag.starts_with("effective_") && metric.tag != "effective_latency");
        prop_assert_eq!(curves.count(), 0);
        let tokens = rows[index!("tokens_in_flight")].and_then(|stats| stats.avg).unwrap_or(0.0);
        let want = naive_token_seconds(&spans, window) / window.length().seconds();
        // Each request holds a prompt token at least, so that no share of an event to come makes it less than none.
        prop_assert!((tokens - want).abs() <= 1e-6 * (1.0 + want.abs()), "{tokens}, not {want}");
    }
}
