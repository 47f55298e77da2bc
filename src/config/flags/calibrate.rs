//! Flags of `tokenring calibrate`.
//!
//! In: nothing. Out: rows of the flag table. Never: reads a command line.

use super::{Flag, Kind::*, Status, working_table};

/// Flags of the machine's measurement.
pub const CALIBRATE: &[Flag] = working_table! {
    "Calibrate" {
        ["--streams"] List, "1,10,100,500,1000", "How many streams to try at once, one number for each try.";
        ["--tokens"] Integer(2, 100_000), "100", "Tokens of a stream.";
        ["--ttft"] Between(0.0, 60_000.0), "50", "Milliseconds from a request to its first token, at least.";
        ["--itl"] Between(0.01, 60_000.0), "10", "Milliseconds from a token to the next.";
        ["--driver"] List, "ring,portable", "Drivers to try.";
        ["--timestamp-source"] List, "kernel,user", "Sources of stamps to try.";
        ["--wait-mode"] List, "all", "Ways of waiting to try, of those that profile knows.";
        ["--repeat"] Integer(1, 1000), "1", "Runs of each; the medians are told.";
        ["--cpus"] Cores, "the last but one", "Cores of the client's workers.";
        ["--server-cpus"] Cores, "the last", "Cores of the server.";
        ["--max-seconds"] Above(0.0), "1200", "Seconds after which no further run begins; what was measured is written.";
        ["--output"] Path, "artifacts/calibration.json", "File for the results.";
    }
};
