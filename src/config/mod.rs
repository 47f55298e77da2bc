//! Flags become a plan.
//!
//! In: the command line and the environment. Out: a [`Plan`], or all problems at once. Never: does load, opens a connection, or
//! leaves a value unchecked for a later room.

mod affinity;
mod api_key;
mod cache_bust;
mod calibrate;
mod cancellation;
mod data;
mod dialect;
mod driver;
mod echo;
mod endpoint;
mod error;
mod fixed_schedule;
pub mod flags;
mod format;
mod input_file;
mod lengths;
mod lex;
mod limits;
mod load;
mod manual;
mod media;
mod mock;
mod network;
mod output;
mod pace;
mod parse;
mod plan;
mod prompts;
mod proxy;
mod rankings;
mod rate;
mod secrets;
mod shown;
mod slices;
mod slots;
mod tls;
mod trace;
mod url;
mod url_strategy;
mod users;
mod value;
mod zone;

pub use cache_bust::CacheBust;
pub use calibrate::CalibratePlan;
pub use cancellation::CancellationPlan;
pub use dialect::{DialectFacts, Ending, EndpointKind, FORM_BOUNDARY};
pub use driver::{DriverKind, StampKind, WaitKind, WaitPlan};
pub use echo::{REDACTED, is_secret_header};
pub use error::{Problem, Problems};
pub use fixed_schedule::FixedSchedule;
pub use format::FileFormat;
pub use input_file::{FilePlan, PublicDataset};
pub use limits::TimeLimits;
pub use media::{
    ImageFormat, ImageOrder, ImagePlan, ImageSource, MediaPlan, SoundFormat, SoundPlan,
};
pub use mock::MockPlan;
pub use network::{IpVersion, NetworkPlan, Resolve};
pub use pace::Pace;
pub use parse::{Command, check_goodput, parse};
pub use plan::*;
pub use prompts::{PromptPlan, RandomStyle, RangePlan};
pub use proxy::ProxyPlan;
pub use rankings::RankingsPlan;
pub use rate::{Gaps, LatePolicy, RateCurve, RatePoint, RequestRate};
pub use secrets::Secrets;
pub use shown::shown_arguments;
pub use slices::{Attribution, SlicePlan};
pub use slots::SlotPlan;
pub use tls::{Identity, TlsPlan};
pub use trace::TracePlan;
pub use url::{TargetUrl, bracketed, join};
pub use url_strategy::UrlStrategy;
pub use users::UsersPlan;
pub use zone::ZonedAddress;
