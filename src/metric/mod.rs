//! Every formula, once, with its words.
//!
//! In: records, the run's interval, tallies, calibration. Out: a [`Summary`].
//! Never: parses a reply, formats for a file, or sees `wire`.

use crate::clock::Nanos;
use crate::record::{ErrorClass, ErrorDetails};

pub mod arrival;
mod by_token;
mod context;
mod counts;
mod error_groups;
mod frame;
mod gaps;
pub mod health;
mod images;
pub mod lag;
mod notes;
pub mod quantile;
pub mod registry;
mod replay;
pub mod request;
mod run;
mod sent;
mod series;
pub mod slices;
pub mod slo;
mod sounds;
mod spacing;
mod sparse;
pub mod steady;
mod summary;
mod sweepline;
mod weighted;

pub use context::Context;
pub use counts::{Compared, Counts, Flagged, Lengths, TemplateTokens};
pub use frame::PhaseFrame;
pub use run::Accumulator;
pub use series::Shelf;
pub use slices::{Slice, Slices};
pub use steady::{Steady, SteadyState};

/// The interval that every rate of a summary is divided by, and that is reported as its benchmark duration: from the start of
/// the first request of the phase to the end of the last one (success, error or cancelled). Wall-clock nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Start of the first request.
    pub start_ns: u64,
    /// End of the last exchange.
    pub end_ns: u64,
}

impl Window {
    /// Its length.
    #[must_use]
    pub fn length(self) -> Nanos {
        Nanos(self.end_ns.saturating_sub(self.start_ns))
    }
}

/// What a phase came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// One row for each metric that has a value, in computation order.
    pub rows: Vec<Row>,
    /// Failures grouped by (code, kind, message), most frequent first.
    pub errors: Vec<ErrorGroup>,
    /// The divisor of every rate.
    pub window: Window,
    /// Valid records.
    pub success_count: u64,
    /// Error records, cancelled ones excluded.
    pub error_count: u64,
    /// Cut by the end of the run.
    pub cancelled_count: u64,
    /// Its steady state, where the phase's plan is known.
    pub steady: Option<Steady>,
    /// How late requests were sent; see [`lag::LagHistogram`].
    pub schedule_lag: lag::LagHistogram,
    /// Token counts of client and server, asked and produced lengths, finish reasons.
    pub counts: Counts,
    /// What the reader must know before trusting the numbers: replies that came whole in one read, bursts, token counts that differ
    /// from the server's by over 2 %, lengths not honoured, percentiles of too few samples.
    pub notes: Vec<String>,
}

impl Summary {
    /// The row of `tag`.
    #[must_use]
    pub fn row(&self, tag: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.metric.tag == tag)
    }
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorGroup {
    /// Which.
    pub details: ErrorDetails,
    /// How many.
    pub count: u64,
}

impl ErrorGroup {
    /// Failures by class, in the order in which a request comes to them; classes without any are left out.
    #[must_use]
    pub fn classes(groups: &[ErrorGroup]) -> Vec<(ErrorClass, u64)> {
        let count = |class: ErrorClass| {
            let of_class = groups.iter().filter(|group| group.details.class == class);
            (class, of_class.map(|group| group.count).sum())
        };
        let counts = ErrorClass::ALL.into_iter().map(count);
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

/// A metric with its statistics, in display units.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which metric.
    pub metric: &'static Metric,
    /// Its statistics.
    pub stats: Stats,
}

/// One line of the registry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in files.
    pub tag: &'static str,
    /// Name for people.
    pub header: &'static str,
    /// Display unit (`ms`, `tokens/sec`, ...).
    pub unit: &'static str,
    /// Console table it stands in.
    pub group: Group,
    /// Place in that table; `None` last.
    pub order: Option<u32>,
    /// A larger value is better (turns a goodput threshold round).
    pub larger_is_better: bool,
    /// In `profile_export.jsonl`.
    pub in_records: bool,
    /// Hidden from the console although its group is shown (AIPerf's `ERROR_ONLY`, `INTERNAL`, `EXPERIMENTAL`).
    pub hidden: bool,
}

/// Console tables, in their printed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Effective (sweep-line) metrics.
    Effective,
    /// Active (sweep-line) metrics.
    Active,
    /// Token usage as the server counted it.
    Usage,
    /// The client's own doing.
    Client,
    /// The HTTP trace table, shown on demand.
    Trace,
    /// The main table.
    Default,
    /// Exported, never printed.
    None,
}

/// Statistics of one metric. A scalar metric has only `avg`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Mean, or the value of a scalar.
    pub avg: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Sum.
    pub sum: Option<f64>,
    /// Percentiles by linear interpolation at index q/100*(n-1).
    pub p1: Option<f64>,
    /// See `p1`.
    pub p5: Option<f64>,
    /// See `p1`.
    pub p10: Option<f64>,
    /// See `p1`.
    pub p25: Option<f64>,
    /// See `p1`.
    pub p50: Option<f64>,
    /// See `p1`.
    pub p75: Option<f64>,
    /// See `p1`.
    pub p90: Option<f64>,
    /// See `p1`.
    pub p95: Option<f64>,
    /// See `p1`.
    pub p99: Option<f64>,
    /// Population standard deviation.
    pub std: Option<f64>,
    /// Number of values.
    pub count: Option<u64>,
}

impl Stats {
    /// A metric that is one number.
    #[must_use]
    pub fn scalar(value: f64) -> Stats {
        Stats {
            avg: Some(value),
            ..Stats::default()
        }
    }

    /// The percentiles alone; `at` is asked for each, from 0 to 100.
    #[must_use]
    pub fn percentiles(at: impl Fn(f64) -> Option<f64>) -> Stats {
        Stats {
            p1: at(1.0),
            p5: at(5.0),
            p10: at(10.0),
            p25: at(25.0),
            p50: at(50.0),
            p75: at(75.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            ..Stats::default()
        }
    }

    /// It has a distribution.
    #[must_use]
    pub fn is_distribution(&self) -> bool {
        self.p50.is_some()
    }
}

/// A value of one request, in display units.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    One(f64),
    /// A list (`inter_chunk_latency`).
    Many(Vec<f64>),
}
