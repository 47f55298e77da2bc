//! Windows of a phase: tokens that arrived in time, the steady state, slices.
//!
//! In: records made by hand, random ones. Out: numbers worked out on paper, sums that must not depend on how time is cut. Never: a
//! clock.

use proptest::prelude::*;
use tokenring::clock::Nanos;
use tokenring::config::{Arrivals, Attribution, PhaseKind, PhasePlan, SlotPlan, StopRule};
use tokenring::metric::{
    Accumulator, PhaseFrame, Slice, Slices, Steady, SteadyState, Summary, Window, arrival,
};
use tokenring::record::{ErrorDetails, Record};

use crate::{WALL_NS, any_context, any_record, assert_avg, avg, failed, streamed, streaming};

const MILLI: u64 = 1_000_000;

fn wall(milli: u64) -> u64 {
    WALL_NS + milli * MILLI
}

/// A phase that began at 0 ms.
fn phase(concurrency: Option<usize>, arrivals: Arrivals, stop: StopRule) -> PhaseFrame {
    let plan = PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: false,
        slots: SlotPlan::default(),
        late: tokenring::config::LatePolicy::default(),
        arrivals,
        concurrency,
        stop,
        grace: None,
    };
    PhaseFrame::of(&plan, WALL_NS)
}

pub(super) fn closed_loop(concurrency: usize) -> PhaseFrame {
    phase(Some(concurrency), Arrivals::ClosedLoop, StopRule::default())
}

fn play(records: &[Record], frame: PhaseFrame) -> Accumulator {
    let mut sums = Accumulator::new(&streaming());
    sums.frame(frame);
    records.iter().for_each(|record| sums.add(record));
    sums
}

/// Cut by the end of the phase, with what had arrived.
fn cut(start_ms: u64, times_ms: &[u64]) -> Record {
    Record {
        cancelled: true,
        error: Some(ErrorDetails::default()),
        ..streamed(start_ms, times_ms)
    }
}

#[test]
fn tokens_of_an_event_are_those_that_the_server_told_with_it() {
    let mut record = streamed(0, &[100, 150, 200]);
    record.tokens.output = Some(12);
    let of = |record: &Record| arrival::tokens(record).map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!(of(&record), [4.0, 4.0, 4.0]);
    for (chunk, told) in record.chunks.iter_mut().zip([1, 0, 3]) {
        chunk.tokens = Some(told);
    }
    // In that proportion, for the count is the client's.
    assert_eq!(of(&record), [3.0, 0.0, 9.0]);
    record.tokens.output = None;
    assert_eq!(of(&record), [1.0, 0.0, 3.0]);
    record.chunks[1].tokens = None;
    assert_eq!(of(&record), [1.0, 1.0, 1.0]);
    assert_eq!(arrival::token_count(&Record::default()), 0.0);
}

/// A run of 1 s with replies that take longer: what came in it counts, whatever became of the request.
#[test]
fn tokens_that_arrived_in_the_window_count() {
    let time = StopRule {
        duration: Some(Nanos::from_millis(1_000)),
        ..StopRule::default()
    };
    let mut broken = failed(0, 900, 200);
    broken.chunks = streamed(0, &[300, 700]).chunks;
    let records = [
        // In the grace: two of its three are late.
        streamed(100, &[800, 1_000, 1_500]),
        cut(200, &[400, 800, 900]),
        broken,
    ];
    let summary = play(&records, phase(Some(3), Arrivals::ClosedLoop, time)).summary();
    // 900 ms; 600 and 1,000 ms, the bound itself counts; 300 and 700 ms, counted by event.
    assert_avg(&summary, "windowed_output_tokens", 1.0 + 2.0 + 2.0);
    assert_avg(&summary, "windowed_output_token_throughput", 5.0);
    assert_avg(&summary, "windowed_duration", 1.0);
    // AIPerf's: the valid request's tokens over the whole of it, 0 to 1,600 ms.
    assert_avg(&summary, "output_token_throughput", 3.0 / 1.6);
}

#[test]
fn the_window_ends_with_the_last_request_where_sending_ended_before_its_time() {
    let records = [streamed(0, &[100, 200]), streamed(100, &[100, 400])];
    let stop = |requests: Option<u64>, milli: Option<u64>| StopRule {
        requests,
        duration: milli.map(Nanos::from_millis),
        ..StopRule::default()
    };
    for (stop, stopped, seconds, tokens) in [
        (stop(None, Some(2_000)), false, 2.0, 4.0),
        (stop(None, Some(2_000)), true, 0.5, 4.0),
        (stop(Some(2), Some(2_000)), false, 0.5, 4.0),
        (stop(Some(2), Some(300)), false, 0.3, 3.0),
        (stop(Some(2), None), false, 0.5, 4.0),
    ] {
        let mut sums = play(&records, phase(Some(2), Arrivals::ClosedLoop, stop));
        if stopped {
            sums.stopped();
        }
        let summary = sums.summary();
        assert_avg(&summary, "windowed_duration", seconds);
        assert_avg(&summary, "windowed_output_tokens", tokens);
    }
}

/// The warmup's request began 300 ms before the phase: its tokens at 100, 300 and 500 ms of the phase came in it.
#[test]
fn tokens_of_the_phase_before_count_in_the_window_and_nowhere_else() {
    let mut before = streamed(0, &[200, 400, 600, 800]);
    before.wall_start_ns -= 300 * MILLI;
    let own = streamed(100, &[100, 300]);
    let mut sums = play(std::slice::from_ref(&own), closed_loop(2));
    let mut slices = Slices::new(
        &streaming(),
        Attribution::Arrival,
        Nanos::from_millis(200),
        WALL_NS,
    );
    slices.add(&own);
    sums.add_arrived(&before);
    slices.add_arrived(&before);
    let slices = slices.finish(&sums);
    let tokens = |slice: &Slice| in_slice(slice, "windowed_output_tokens");
    assert_eq!(
        slices.iter().map(tokens).collect::<Vec<_>>(),
        [Some(1.0), Some(2.0), Some(2.0)]
    );
    let summary = sums.summary();
    assert_avg(&summary, "windowed_output_tokens", 5.0);
    assert_avg(&summary, "windowed_duration", 0.5);
    assert_avg(&summary, "total_osl", 2.0);
    assert_avg(&summary, "request_count", 1.0);
}

fn state(summary: &Summary) -> &SteadyState {
    match &summary.steady {
        Some(Steady::State(state)) => state,
        other => panic!("no steady state: {other:?}"),
    }
}

fn value(state: &SteadyState, tag: &str) -> Option<f64> {
    let row = state.rows.iter().find(|row| row.metric.tag == tag);
    row.and_then(|row| row.stats.avg)
}

fn window(from_ms: u64, to_ms: u64) -> Window {
    Window {
        start_ns: wall(from_ms),
        end_ns: wall(to_ms),
    }
}

/// A success from `start_ms` to `end_ms` on a slot that came free at `due_ms`; four tokens, the first halfway.
fn held(due_ms: u64, start_ms: u64, end_ms: u64) -> Record {
    let length = end_ms - start_ms;
    Record {
        lateness: Nanos::from_millis(start_ms - due_ms),
        ..streamed(start_ms, &[length / 2, length / 2, length / 2, length])
    }
}

#[test]
fn the_steady_state_is_the_longest_time_at_the_target() {
    // Two slots. The first is taken over late, but within its time; the second stands empty from 400 to 500 ms.
    let records = [
        held(0, 0, 300),
        held(300, 310, 900),
        held(0, 0, 200),
        held(200, 200, 400),
        held(500, 500, 1_300),
    ];
    let summary = play(&records, closed_loop(2)).summary();
    let state = state(&summary);
    // 0 to 400 and 500 to 900: the first of two that are equally long.
    assert_eq!(state.window, window(0, 400));
    assert_eq!((state.target, state.level), (2, 2));
    assert!((state.share - 400.0 / 1_300.0).abs() < 1e-9);
    // Whole inside: the first, third and fourth. Of the second, which decodes from 605 to 900, nothing came.
    assert_eq!(value(state, "request_count"), Some(3.0));
    assert_eq!(value(state, "request_latency"), Some(700.0 / 3.0));
    assert_eq!(value(state, "time_to_first_token"), Some(350.0 / 3.0));
    assert_eq!(value(state, "request_throughput"), Some(3.0 / 0.4));
    assert_eq!(value(state, "output_token_throughput"), Some(12.0 / 0.4));
}

#[test]
fn tokens_of_requests_that_reach_beyond_the_steady_state_count_in_part() {
    let records = [held(0, 0, 800), held(400, 400, 1_200)];
    let summary = play(&records, closed_loop(2)).summary();
    let state = state(&summary);
    assert_eq!(state.window, window(400, 800));
    // The first decodes from 400 ms to 800 ms, all of it inside; the second has its first token at 800 ms.
    assert_eq!(value(state, "output_token_throughput"), Some(5.0 / 0.4));
    assert_eq!(value(state, "request_throughput"), Some(1.0 / 0.4));
    assert_eq!(value(state, "request_count"), Some(0.0));
    assert_eq!(value(state, "request_latency"), None);
}

#[test]
fn dips_that_cannot_be_told_from_none_end_nothing() {
    for (dip_ns, joined) in [(999_999, true), (1_000_000, false), (30_000_000, false)] {
        let mut second = held(500, 500, 900);
        second.wall_start_ns += dip_ns;
        let summary = play(&[held(0, 0, 500), second], closed_loop(1)).summary();
        let long = state(&summary).window.length() > Nanos::from_millis(600);
        assert_eq!(long, joined, "{dip_ns} ns");
    }
    // A thousandth of the longest request, which takes 100 s.
    let mut second = held(100_000, 100_000, 110_000);
    second.wall_start_ns += 90 * MILLI;
    let summary = play(&[held(0, 0, 100_000), second], closed_loop(1)).summary();
    assert!(state(&summary).window.length() > Nanos::from_millis(109_000));
}

#[test]
fn ninety_five_percent_is_enough() {
    // 20 slots, of which one is never used.
    let records: Vec<Record> = (0..19).map(|_| held(0, 0, 300)).collect();
    assert_eq!(state(&play(&records, closed_loop(20)).summary()).level, 19);
    let summary = play(&records[1..], closed_loop(20)).summary();
    let reason = "never 19 requests in flight, 95 % of --concurrency 20; the most were 18";
    assert_eq!(summary.steady, Some(Steady::Absent(reason.to_owned())));
}

#[test]
fn with_a_rate_the_target_is_the_cap_and_waiting_is_not_in_flight() {
    let rate = Arrivals::constant(10.0);
    let records = [held(0, 0, 300), held(100, 300, 600)];
    let summary = play(&records, phase(Some(2), rate.clone(), StopRule::default())).summary();
    let reason = "never 2 requests in flight, 95 % of --concurrency 2; the most were 1";
    assert_eq!(summary.steady, Some(Steady::Absent(reason.to_owned())));
    let summary = play(&records, phase(Some(1), rate.clone(), StopRule::default())).summary();
    assert_eq!(state(&summary).window, window(0, 600));
    let summary = play(&records, phase(None, rate.clone(), StopRule::default())).summary();
    let Some(Steady::Absent(reason)) = summary.steady else {
        panic!("a steady state without a target");
    };
    assert!(reason.contains("no --concurrency"), "{reason}");
}

/// However long the run and short the slice, only so many are kept, and that is said.
#[test]
fn slices_are_bounded_in_number() {
    let most = tokenring::config::SlicePlan::MOST;
    for (last, cut) in [(most - 1, false), (most, true)] {
        let records = [streamed(0, &[10]), streamed(last, &[0])];
        let length = Nanos::from_millis(1);
        let mut slices = Slices::new(&streaming(), Attribution::Aiperf, length, WALL_NS);
        records.iter().for_each(|record| slices.add(record));
        assert_eq!(slices.is_cut(), cut);
        let kept = slices.finish(&play(&records, closed_loop(1)));
        assert_eq!(kept.len(), if cut { 1 } else { 2 });
    }
}

fn sliced(records: &[Record], length_ms: u64, attribution: Attribution) -> Vec<Slice> {
    let context = streaming();
    let length = Nanos::from_millis(length_ms);
    let mut slices = Slices::new(&context, attribution, length, WALL_NS);
    records.iter().for_each(|record| slices.add(record));
    slices.finish(&play(records, closed_loop(1)))
}

fn in_slice(slice: &Slice, tag: &str) -> Option<f64> {
    let row = slice.rows.iter().find(|row| row.metric.tag == tag);
    row.and_then(|row| row.stats.avg)
}

#[test]
fn a_request_belongs_to_its_start_and_its_tokens_to_their_arrival() {
    // 50 to 1,050 ms with a token every 200 ms from 250 ms on; 2,100 to 2,300 ms.
    let records = [
        streamed(50, &[200, 400, 600, 800, 1_000]),
        streamed(2_100, &[100, 200]),
    ];
    let table = |attribution| -> Vec<_> {
        let slices = sliced(&records, 500, attribution);
        let row = |s: &Slice| {
            let from = (s.window.start_ns - WALL_NS) / MILLI;
            let to = (s.window.end_ns - WALL_NS) / MILLI;
            (
                from,
                to,
                s.is_complete,
                in_slice(s, "request_count"),
                in_slice(s, "output_token_throughput"),
                in_slice(s, "windowed_output_tokens"),
            )
        };
        slices.iter().map(row).collect()
    };
    let some = Some::<f64>;
    assert_eq!(
        table(Attribution::Aiperf),
        [
            (0, 500, true, some(1.0), some(10.0), some(2.0)),
            // The last ends with the last request; those between have none that started.
            (2_000, 2_300, false, some(1.0), some(2.0 / 0.3), some(2.0)),
        ]
    );
    assert_eq!(
        table(Attribution::Arrival),
        [
            (0, 500, true, some(1.0), some(4.0), some(2.0)),
            (500, 1_000, true, some(0.0), some(4.0), some(2.0)),
            (1_000, 1_500, true, some(0.0), some(2.0), some(1.0)),
            (2_000, 2_300, false, some(1.0), some(2.0 / 0.3), some(2.0)),
        ]
    );
}

/// A server that says nothing for two slices.
#[test]
fn a_stall_shows_in_the_slices_by_arrival() {
    let slices = sliced(
        &[streamed(0, &[100, 200, 1_700])],
        500,
        Attribution::Arrival,
    );
    let rates = slices
        .iter()
        .map(|s| in_slice(s, "output_token_throughput"));
    assert_eq!(
        rates.collect::<Vec<_>>(),
        [Some(4.0), Some(0.0), Some(0.0), Some(5.0)]
    );
    let busy = |s: &Slice| in_slice(s, "effective_concurrency") == Some(1.0);
    assert!(slices.iter().all(busy));
}

#[test]
fn curves_are_of_what_was_in_flight_in_the_slice() {
    let records = [streamed(0, &[100, 1_200]), streamed(600, &[100, 200])];
    let slices = sliced(&records, 500, Attribution::Aiperf);
    let concurrency = |slice: &Slice| in_slice(slice, "effective_concurrency");
    // 0 to 500: one. 500 to 1,000: one, and the second for 200 ms.
    assert_eq!(
        slices.iter().map(concurrency).collect::<Vec<_>>(),
        [Some(1.0), Some(1.4)]
    );
}

#[test]
fn a_gap_belongs_to_its_request_or_to_its_end() {
    let records = [streamed(0, &[100, 400, 900]), streamed(600, &[100, 200])];
    let gaps = |attribution| -> Vec<_> {
        let slices = sliced(&records, 500, attribution);
        let gaps = slices.iter().map(|slice| {
            let tags = ["inter_chunk_latency", "inter_token_gap"];
            tags.map(|tag| in_slice(slice, tag))
        });
        gaps.collect()
    };
    assert_eq!(
        gaps(Attribution::Aiperf),
        [[Some(400.0); 2], [Some(100.0); 2]]
    );
    assert_eq!(
        gaps(Attribution::Arrival),
        [[Some(300.0); 2], [Some(300.0); 2]]
    );
}

#[test]
fn no_records_have_no_slices() {
    assert!(sliced(&[], 500, Attribution::Arrival).is_empty());
    assert_eq!(
        avg(
            &play(&[], closed_loop(1)).summary(),
            "windowed_output_tokens"
        ),
        None
    );
}

/// The longest run of milliseconds in which `level` of `spans` are under way, by looking at each.
fn longest_by_looking(spans: &[(u64, u64)], level: usize) -> u64 {
    let (mut longest, mut run) = (0, 0);
    for at in 0..2_000 {
        let under_way = spans.iter().filter(|span| span.0 <= at && at < span.1);
        run = if under_way.count() >= level {
            run + 1
        } else {
            0
        };
        longest = longest.max(run);
    }
    longest
}

proptest! {
    #[test]
    fn the_steady_state_is_as_long_as_it_looks(spans in prop::collection::vec((0_u64..900, 1_u64..900), 1..40),
                                               target in 1_usize..12, waits in 0_u64..50) {
        // Due a while before the start, which counts in the closed loop only.
        let spans: Vec<(u64, u64)> = spans.iter().map(|&(start, length)| (start + 50, start + 50 + length)).collect();
        let records: Vec<Record> = spans.iter().map(|&(start, end)| held(start - waits, start, end)).collect();
        let level = (target * 95).div_ceil(100);
        let rate = Arrivals::poisson(9.0);
        for (arrivals, earlier) in [(Arrivals::ClosedLoop, waits), (rate, 0)] {
            let in_use: Vec<_> = spans.iter().map(|&(start, end)| (start - earlier, end)).collect();
            let expected = longest_by_looking(&in_use, level);
            let summary = play(&records, phase(Some(target), arrivals, StopRule::default())).summary();
            let found = match &summary.steady {
                Some(Steady::State(state)) => state.window.length(),
                _ => Nanos(0),
            };
            prop_assert_eq!(found, Nanos::from_millis(expected));
        }
    }

    /// However time is cut, nothing is counted twice or lost.
    #[test]
    fn slices_sum_to_the_whole(mut records in prop::collection::vec(any_record(), 1..30), context in any_context(),
                               length_ms in 200_u64..20_000, arrival: bool, concurrency in prop::option::of(1_usize..5)) {
        // Counts that a sum of reals still tells apart, and times within an hour.
        for record in &mut records {
            record.tokens.output = record.tokens.output.map(|n| n % 100_000);
            record.tokens.reasoning = record.tokens.reasoning.map(|n| n % 100_000);
            record.chunks.retain(|chunk| chunk.at.0 < 600_000_000_000);
            record.end = record.chunks.last().map_or(Nanos(0), |chunk| chunk.at);
            record.last_response = None;
        }
        let attribution = if arrival { Attribution::Arrival } else { Attribution::Aiperf };
        let mut slices = Slices::new(&context, attribution, Nanos::from_millis(length_ms), WALL_NS);
        let mut whole = Accumulator::new(&context);
        whole.frame(phase(concurrency, Arrivals::ClosedLoop, StopRule::default()));
        for record in &records {
            slices.add(record);
            whole.add(record);
        }
        let slices = slices.finish(&whole);
        let summary = whole.summary();
        let sum = |tag: &str| -> f64 { slices.iter().filter_map(|slice| in_slice(slice, tag)).sum() };
        let total = |tag: &str| avg(&summary, tag).unwrap_or(0.0);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
        for tag in ["request_count", "error_request_count", "total_osl", "good_request_count"] {
            prop_assert!(near(sum(tag), total(tag)), "{}: {} of {}", tag, sum(tag), total(tag));
        }
        if arrival {
            let tag = "windowed_output_tokens";
            prop_assert!(near(sum(tag), total(tag)), "{}: {} of {}", tag, sum(tag), total(tag));
            let busy = |slice: &Slice| {
                in_slice(slice, "effective_concurrency").unwrap_or(0.0) * slice.window.length().seconds()
            };
            let parts: f64 = slices.iter().map(busy).sum();
            let all = total("effective_concurrency") * summary.window.length().seconds();
            prop_assert!(near(parts, all), "{} of {} request seconds", parts, all);
        }
        for pair in slices.windows(2) {
            prop_assert!(pair[0].window.end_ns <= pair[1].window.start_ns);
        }
        for row in slices.iter().flat_map(|slice| &slice.rows) {
            let stats = row.stats;
            for value in [stats.avg, stats.min, stats.max, stats.p50, stats.std].into_iter().flatten() {
                prop_assert!(value.is_finite(), "{}", row.metric.tag);
            }
        }
        if let Some(Steady::State(state)) = &summary.steady {
            prop_assert!(state.window.length().0 > 0 && (0.0..=1.0).contains(&state.share));
            prop_assert!(state.rows.iter().all(|row| row.stats.avg.is_some_and(f64::is_finite)));
        }
    }
}
