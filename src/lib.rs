//! A load engine for LLM inference servers. Data walks the rooms in this order:
//!
//! 1. [`config`]: flags become a plan.
//! 2. [`dataset`], with a [`tokenizer`]: the plan becomes conversations; [`endpoint`] renders their bodies.
//! 3. [`schedule`]: the plan and a seed become intended send times.
//! 4. [`engine`]: one per core; drives [`wire`] and says what it wants done.
//! 5. [`driver`]: does it, and stamps what completes with the [`clock`].
//! 6. [`record`]: one exchange per request sent becomes one record.
//! 7. [`metric`]: records become a summary.
//! 8. [`report`]: the summary becomes a table and files.
//!
//! [`jinja`] carries out templates for two of them, within bounds. //! [`run`] conducts them; [`run::profile`] is the whole way from a plan to the files. [`mock`] is the server to measure against; it shares
//! nothing with [`wire`]. [`calibrate`] runs the program against it and says how well this machine measures. [`mod@fuzz`] holds the bodies of the fuzz targets. `ARCHITECTURE.md` follows one byte through all of it.
//!
//! ```
//! use tokenring::config::{Command, parse};
//! let words = ["profile", "--concurrency", "2"].map(Into::into);
//! // `run::profile` takes the plan from here; without `--url` it starts the built-in server.
//! let Ok(Command::Profile(plan)) = parse(words) else { panic!() };
//! assert!(plan.endpoint.built_in_server && plan.endpoint.streaming);
//! ```

pub mod calibrate;
pub mod clock;
pub mod config;
pub mod dataset;
pub mod driver;
pub mod endpoint;
pub mod engine;
pub mod file;
pub mod fuzz;
pub mod jinja;
pub mod metric;
pub mod mock;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod tokenizer;
pub mod wire;
