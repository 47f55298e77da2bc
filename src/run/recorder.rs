//! The recorder: a thread that turns finished exchanges into records, files and sums.
//!
//! In: exchanges from every worker. Out: lines in the per-request files as the run goes; accumulators at its end.
//! Never: makes a worker wait, or keeps an exchange after its record is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Anchor, Calibration, Clock, Nanos, Rate, Tick};
use crate::config::{Arrivals, ExportLevel, PhaseKind, PhasePlan, Plan, Secrets};
use crate::endpoint::Bodies;
use crate::engine::Stop;
use crate::metric::health::Backlog;
use crate::metric::{Accumulator, Context, PhaseFrame, Shelf, Slice, Slices, request};
use crate::record::{Exchange, Interpreter, Record};
use crate::report::{
    ArtifactNames, FileShelf, Log, OutputsWriter, PhaseTag, RawWriter, RecordsWriter, ReportError,
    tell,
};

use crate::schedule::{Schedule, Shard, Verdict};

use super::gate::Gate;
use super::queue::RecorderEnd;

/// Between looks at empty queues.
const NAP: Duration = Duration::from_millis(2);

/// Between flushes of the per-request files: so much may be missing after SIGKILL.
const FLUSH_EVERY: Nanos = Nanos::from_millis(100);

/// Between fits of the clock.
const FIT_EVERY: Nanos = Nanos::from_millis(500);

/// Live sums for the progress line and the abort rule.
#[derive(Default)]
pub(super) struct Live {
    /// Output tokens of profiling records.
    pub(super) output_tokens: AtomicU64,
    /// Error records of any phase.
    pub(super) errors: AtomicU64,
    /// Records of any phase.
    pub(super) records: AtomicU64,
}

/// What a recorder is made of.
pub(super) struct RecorderParts {
    /// The plan.
    pub(super) plan: Arc<Plan>,
    /// Bodies, for the raw export.
    pub(super) bodies: Arc<Bodies>,
    /// Exchange to record.
    pub(super) interpreter: Interpreter,
    /// One for each worker.
    pub(super) queues: Vec<RecorderEnd>,
    /// The clock, and where it stood at the start.
    pub(super) clock: Clock,
    /// See `clock`.
    pub(super) start: Anchor,
    /// Stops the run when too many requests fail.
    pub(super) gate: Arc<Gate>,
    /// Live sums.
    pub(super) live: Arc<Live>,
    /// The log file.
    pub(super) log: Arc<Log>,
}

/// What it leaves.
pub(super) struct Recorded {
    /// One for each phase of the plan.
    pub(super) accumulators: Vec<Accumulator>,
    /// Profiling slice by slice, where that was asked for.
    pub(super) slices: Option<Vec<Slice>>,
    /// There were more slices than are kept.
    pub(super) slices_cut: bool,
    /// (kind, path) of the per-request files.
    pub(super) files: Vec<(String, std::path::PathBuf)>,
    /// The failed-request threshold was passed.
    pub(super) aborted: Option<String>,
    /// Content events that shared a read, in profiling.
    pub(super) coalesced: u64,
    /// Content events of streams, in profiling.
    pub(super) content_events: u64,
    /// Streams with a content event, in profiling.
    pub(super) streams: u64,
    /// Of those, with the first two content events in one read.
    pub(super) first_shared: u64,
    /// What waited in the queues.
    pub(super) backlog: Backlog,
    /// The first error of a per-request file; writing to that file ended there.
    pub(super) write_error: Option<ReportError>,
}

/// The recorder's state; lives on its own thread.
pub(super) struct Recorder {
    parts: RecorderParts,
    context: Context,
    calibration: Calibration,
    last_fit: Tick,
    last_flush: Tick,
    /// Keeps the numbers of requests until the end.
    shelf: Arc<dyn Shelf>,
    /// By phase and worker; added at the end.
    accumulators: Vec<Vec<Accumulator>>,
    /// Phases whose start the accumulators know.
    framed: Vec<bool>,
    slices: Option<Slices>,
    tags: Vec<PhaseTag>,
    files: Files,
    coalesced: u64,
    content_events: u64,
    streams: u64,
    first_shared: u64,
    aborted: Option<String>,
    write_error: Option<ReportError>,
}

#[derive(Default)]
struct Files {
    records: Option<RecordsWriter>,
    raw: Option<RawWriter>,
    outputs: Option<OutputsWriter>,
}

impl Recorder {
    /// Creates the per-request files that the plan asks for.
    pub(super) fn new(parts: RecorderParts) -> Result<Recorder, ReportError> {
        let plan = &parts.plan;
        let names = ArtifactNames::new(&plan.output);
        let mut files = Files::default();
        if plan.output.level >= ExportLevel::Records {
            files.records = Some(RecordsWriter::create(
                &names.records(),
                plan.output.http_trace,
            )?);
        }
        if plan.output.level >= ExportLevel::Raw {
            let raw = RawWriter::create(&names.raw())?;
            let raw = raw.hiding(Secrets::of(&plan.endpoint));
            files.raw = Some(raw.marked(plan.dataset.prompts.cache_bust));
        }
        if plan.output.outputs_json {
            files.outputs = Some(OutputsWriter::create(&names.outputs())?);
        }
        let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::beside(&names.records())?);
        let context = Context::of(plan);
        let sums = Accumulator::new(&context).shelved(Some(Arc::clone(&shelf)));
        let tags = plan.phases.iter().enumerate().map(|(index, phase)| {
            let earlier = plan.phases[..index].iter();
            let profiling = earlier.filter(|p| p.kind == PhaseKind::Profiling).count();
            PhaseTag {
                name: phase.kind.name().to_owned(),
                kind: phase.kind,
                index,
                profiling_index: (phase.kind == PhaseKind::Profiling).then_some(profiling),
            }
        });
        Ok(Recorder {
            accumulators: plan
                .phases
                .iter()
                .map(|_| vec![sums.clone(); parts.queues.len()])
                .collect(),
            shelf,
            framed: vec![false; plan.phases.len()],
            slices: None,
            tags: tags.collect(),
            calibration: Calibration::fit(&parts.clock, parts.start, Anchor::take(&parts.clock)),
            last_fit: parts.clock.now(),
            last_flush: parts.clock.now(),
            context,
            files,
            coalesced: 0,
            content_events: 0,
            streams: 0,
            first_shared: 0,
            aborted: None,
            write_error: None,
            parts,
        })
    }

    /// Works until every worker is gone. What is left then is for [`Recorder::complete`], on a thread that need not give way.
    #[expect(
        clippy::disallowed_methods,
        reason = "the recorder may sleep: nobody waits for it while the load is on"
    )]
    pub(super) fn accompany(mut self) -> Recorder {
        while !self.is_alone() {
            let worked = self.drain(true);
            self.refresh();
            if !worked {
                std::thread::sleep(NAP);
            }
        }
        self
    }

    /// Records what is left.
    pub(super) fn complete(mut self) -> Recorded {
        self.drain(false);
        self.finish()
    }

    fn is_alone(&self) -> bool {
        self.parts.queues.iter().all(RecorderEnd::is_abandoned)
    }

    /// Records what is in the queues; with `accompanying` no longer than there are workers.
    fn drain(&mut self, accompanying: bool) -> bool {
        let mut worked = false;
        for index in 0..self.parts.queues.len() {
            while let Some(exchange) = self.parts.queues[index].pop() {
                worked = true;
                if accompanying {
                    // Linux lets an idle thread that has slept finish its slice before an ordinary one that was put off the core
                    // for it, though one that wakes up gets the core at once. Yielding ends the slice.
                    std::thread::yield_now();
                }
                self.record(&exchange);
                self.parts.queues[index].recycle(exchange);
                self.refresh();
                if accompanying && self.is_alone() {
                    return true;
                }
            }
        }
        worked
    }

    fn record(&mut self, exchange: &Exchange) {
        let keep_text = self.files.outputs.is_some();
        let record = self
            .parts
            .interpreter
            .interpret(exchange, &self.calibration, keep_text);
        let values = request::values(&record, &self.context);
        let phase = usize::from(exchange.id.phase);
        self.frame(phase);
        self.count_beyond(phase + 1, &record, usize::from(exchange.id.worker));
        let tag = &self.tags[phase];
        let mut outcome = Ok(());
        if let Some(file) = &mut self.files.records {
            outcome = outcome.and(file.write(&record, &values, tag));
        }
        if let Some(file) = &mut self.files.raw {
            let id = &exchange.id;
            let body = exchange
                .live_body
                .as_ref()
                .or_else(|| self.parts.bodies.body(id.conversation, id.turn));
            let body = body.map_or(&[][..], |body| body);
            outcome = outcome.and(file.write(exchange, &record, body, &self.calibration, tag));
        }
        if let Some(file) = &mut self.files.outputs {
            outcome = outcome.and(file.write(&record, &values, tag));
        }
        if let Err(error) = outcome {
            self.give_up_files(error);
        }
        self.accumulators[phase][usize::from(exchange.id.worker)].add(&record);
        let live = &self.parts.live;
        live.records.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = record.error.as_ref().filter(|_| !record.cancelled) {
            live.errors.fetch_add(1, Ordering::Relaxed);
            let line = format!(
                "request {} failed: {}: {}",
                record.id.number, error.kind, error.message
            );
            self.parts.log.line(crate::config::LogLevel::Debug, &line);
        }
        if self.parts.plan.phases[phase].kind == PhaseKind::Profiling {
            self.coalesced += u64::from(record.coalesced_count);
            if record.streamed {
                let chunks = &record.chunks;
                let shared = matches!(chunks.as_slice(), [a, b, ..] if a.read == b.read);
                self.content_events += chunks.len() as u64;
                self.streams += u64::from(!chunks.is_empty());
                self.first_shared += u64::from(shared);
            }
            if let Some(slices) = &mut self.slices {
                slices.add(&record);
            }
            let tokens = record.tokens.output_sequence_length().unwrap_or(0);
            live.output_tokens.fetch_add(tokens, Ordering::Relaxed);
            self.check_threshold(phase);
        }
    }

    /// What arrived of a request of the phase before `next`, if that one began without waiting for it, arrived in its window.
    fn count_beyond(&mut self, next: usize, record: &Record, worker: usize) {
        let parts = &self.parts;
        let follows = parts.plan.phases.get(next).is_some_and(|p| p.seamless);
        if follows && parts.gate.started(next).is_some() {
            self.frame(next);
            self.accumulators[next][worker].add_arrived(record);
            if let Some(slices) = &mut self.slices {
                slices.add_arrived(record);
            }
        }
    }

    /// Once `phase` has begun: tells those who count when that was, and the slices when its first request was due.
    fn frame(&mut self, phase: usize) {
        if std::mem::replace(&mut self.framed[phase], true) {
            return;
        }
        let parts = &self.parts;
        let Some(start) = parts.gate.started(phase) else {
            return;
        };
        let plan = &parts.plan.phases[phase];
        let frame = PhaseFrame::of(plan, self.calibration.wall_ns(start));
        for sums in &mut self.accumulators[phase] {
            sums.frame(frame);
        }
        let slices = parts.plan.output.slices;
        if let Some(slices) = slices.filter(|_| plan.kind == PhaseKind::Profiling) {
            let due = first_due(plan, &parts.plan, parts.clock.rate(), start);
            let origin_ns = self.calibration.wall_ns(due);
            let new = Slices::new(&self.context, slices.attribution, slices.length, origin_ns);
            self.slices = Some(new.shelved(Some(Arc::clone(&self.shelf))));
        }
    }

    /// A file that cannot be written is closed and named; the run goes on, for its numbers are still good.
    fn give_up_files(&mut self, error: ReportError) {
        self.parts
            .log
            .line(crate::config::LogLevel::Error, &error.to_string());
        if self.write_error.is_none() {
            tell(&format!("Error: {error}; the run goes on without it"));
            self.write_error = Some(error);
        }
        self.files = Files::default();
    }

    fn check_threshold(&mut self, phase: usize) {
        let Some(threshold) = self.parts.plan.failed_request_threshold else {
            return;
        };
        if self.aborted.is_some() {
            return;
        }
        let sums = &self.accumulators[phase];
        let errors: u64 = sums.iter().map(Accumulator::error_count).sum();
        let all: u64 = errors + sums.iter().map(Accumulator::success_count).sum::<u64>();
        let armed = self.parts.plan.phases[phase]
            .concurrency
            .unwrap_or(1)
            .max(10) as u64;
        if all >= armed && errors as f64 > threshold * all as f64 {
            self.aborted = Some(format!(
                "{errors} of {all} requests failed, which is over --failed-request-threshold {threshold}"
            ));
            self.parts.gate.stop(Stop::Now);
        }
    }

    /// Fits the clock anew and flushes the files, now and then.
    fn refresh(&mut self) {
        let clock = &self.parts.clock;
        let now = clock.now();
        let past = |since: Tick| clock.rate().nanos(now.since(since));
        if past(self.last_flush) < FLUSH_EVERY {
            return;
        }
        self.last_flush = now;
        if past(self.last_fit) >= FIT_EVERY {
            self.last_fit = now;
            self.calibration = Calibration::fit(clock, self.parts.start, Anchor::take(clock));
        }
        self.flush();
    }

    fn flush(&mut self) {
        let mut outcome = Ok(());
        if let Some(file) = &mut self.files.records {
            outcome = outcome.and(file.flush());
        }
        if let Some(file) = &mut self.files.raw {
            outcome = outcome.and(file.flush());
        }
        if let Err(error) = outcome {
            self.give_up_files(error);
        }
    }

    /// The last lines; earlier runs' files go only when these are whole.
    fn finish_files(&mut self) {
        let mut outcome = Ok(());
        if let Some(file) = &mut self.files.records {
            outcome = outcome.and(file.finish());
        }
        if let Some(file) = &mut self.files.raw {
            outcome = outcome.and(file.finish());
        }
        if let Err(error) = outcome {
            self.give_up_files(error);
        }
    }

    fn finish(mut self) -> Recorded {
        self.finish_files();
        let names = ArtifactNames::new(&self.parts.plan.output);
        let mut files = Vec::new();
        if self.files.records.is_some() {
            files.push(("Records".to_owned(), names.records()));
        }
        if self.files.raw.is_some() {
            files.push(("Raw Records".to_owned(), names.raw()));
        }
        match self.files.outputs.take().map(OutputsWriter::finish) {
            Some(Ok(path)) => files.push(("Outputs JSON".to_owned(), path)),
            Some(Err(error)) => self.write_error = self.write_error.or(Some(error)),
            None => {}
        }
        let merged = self.accumulators.into_iter().map(|workers| {
            let mut sum = Accumulator::new(&self.context);
            workers.into_iter().for_each(|worker| sum.merge(worker));
            if self.parts.gate.is_stopped() {
                sum.stopped();
            }
            sum
        });
        let accumulators: Vec<Accumulator> = merged.collect();
        let phases = self.parts.plan.phases.iter().zip(&accumulators);
        let profiling = phases
            .filter(|(phase, _)| phase.kind == PhaseKind::Profiling)
            .map(|(_, sum)| sum)
            .next();
        let slices = self.slices.take().zip(profiling);
        let mut backlog = Backlog::default();
        for queue in &self.parts.queues {
            queue.add_backlog(&mut backlog);
        }
        Recorded {
            backlog,
            slices_cut: slices.as_ref().is_some_and(|(slices, _)| slices.is_cut()),
            slices: slices.map(|(slices, whole)| slices.finish(whole)),
            accumulators,
            files,
            aborted: self.aborted,
            coalesced: self.coalesced,
            content_events: self.content_events,
            streams: self.streams,
            first_shared: self.first_shared,
            write_error: self.write_error,
        }
    }
}

/// When the first request of a phase begun at `start` is due, on any worker.
fn first_due(phase: &PhasePlan, plan: &Plan, rate: Rate, start: Tick) -> Tick {
    if phase.arrivals == Arrivals::FixedSchedule {
        // The schedule's zero, from which a trace's times count.
        return start;
    }
    let all = Shard { index: 0, count: 1 };
    let seed = plan.random_seed.unwrap_or(0);
    match Schedule::new(phase, seed, all, rate, start).next(start) {
        Verdict::Send(intent) => intent.due,
        Verdict::WaitUntil(due) => due,
        Verdict::NeedTurns { .. } | Verdict::WaitForSlot | Verdict::Done => start,
    }
}
