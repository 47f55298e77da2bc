//! The one table of flags.
//!
//! In: nothing. Out: [`Flag`] rows that the parser, the help, the completions and the man page are made from. Never: reads a
//! command line.

mod calibrate;
mod later;
mod mock;
mod never;
mod working;

pub use calibrate::CALIBRATE;
pub use later::LATER;
pub use mock::MOCK;
pub use never::NEVER;
pub use working::WORKING;

/// One flag with all its spellings.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Every spelling with its dashes; the first is the flag's name everywhere in this program.
    pub names: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// Default in words for the help; empty when there is none.
    pub default: &'static str,
    /// Heading in the help.
    pub group: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Whether it does something.
    pub status: Status,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Switch,
    /// Any text.
    Text,
    /// A path.
    Path,
    /// A whole number, both ends included.
    Integer(u64, u64),
    /// `auto`, or a whole number up to this.
    AutoOr(u64),
    /// A number of at least this much; `inf` is a number.
    AtLeast(f64),
    /// A number greater than this.
    Above(f64),
    /// A number between these, both included.
    Between(f64, f64),
    /// One of these, in any case, with `-` or `_`.
    Choice(&'static [&'static str]),
    /// Texts, separated by commas, repeated, or several after one flag.
    List,
    /// `name:value` items, taken like a list, or a JSON object.
    Pairs,
    /// `tag:number` items separated by spaces, repeated, or several after one flag.
    Objectives,
    /// Core numbers and ranges, such as `0,2-3`.
    Cores,
}

impl Kind {
    /// More than one value may follow the flag.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(
            self,
            Kind::List | Kind::Pairs | Kind::Objectives | Kind::Cores
        )
    }

    /// Placeholder of the value in the help.
    #[must_use]
    pub const fn placeholder(self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Text | Kind::List => "TEXT",
            Kind::Path => "PATH",
            Kind::Integer(..) => "N",
            Kind::AutoOr(_) => "auto|N",
            Kind::AtLeast(_) | Kind::Above(_) | Kind::Between(..) => "NUMBER",
            Kind::Choice(_) => "CHOICE",
            Kind::Pairs => "NAME:VALUE",
            Kind::Objectives => "TAG:NUMBER",
            Kind::Cores => "CORES",
        }
    }
}

/// Whether a flag does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does what its help says.
    Works,
    /// Refused for now; the sentence says what works instead.
    Later(&'static str),
    /// Refused for good; the sentence says what AIPerf uses it for and what to do instead.
    Never(&'static str),
}

/// Flags whose comma list would be a sweep in AIPerf.
pub const SWEEPABLE: &[&str] = &[
    "--benchmark-duration",
    "--concurrency",
    "--prefill-concurrency",
    "--request-rate",
    "--num-users",
    "--request-count",
    "--conversation-num",
    "--prompt-input-tokens-mean",
    "--prompt-input-tokens-stddev",
    "--prompt-output-tokens-mean",
    "--prompt-output-tokens-stddev",
    "--conversation-turn-mean",
];

/// The largest whole number that a flag takes where nothing smaller is natural; a double still holds it exactly.
pub const MOST: u64 = 1 << 48;

/// All flags of `profile`.
pub fn profile() -> impl Iterator<Item = &'static Flag> {
    WORKING.iter().chain(LATER).chain(NEVER)
}

macro_rules! working_table {
    ($($group:literal { $([$($name:literal),+] $kind:expr, $default:literal, $help:literal;)* })*) => {
        &[$($(Flag {
            names: &[$($name),+],
            kind: $kind,
            default: $default,
            group: $group,
            help: $help,
            status: Status::Works,
        },)*)*]
    };
}

macro_rules! refused_table {
    ($($status:ident $sentence:literal { $([$($name:literal),+] $kind:expr;)* })*) => {
        &[$($(Flag {
            names: &[$($name),+],
            kind: $kind,
            default: "",
            group: "",
            help: "",
            status: Status::$status($sentence),
        },)*)*]
    };
}

use {refused_table, working_table};
