//! Limits on how long a request may wait, besides the whole-request limit.
//!
//! In: settings. Out: [`TimeLimits`]. Never: a limit that nobody asked for.

use super::error::Problems;
use super::lex::Settings;
use crate::clock::Nanos;

/// How long a request may wait for what. Each limit is off unless asked for, and each has an error of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// For a connection: from the moment that it is asked for until it is ready, TLS included, whatever number of addresses is tried.
    pub connect: Option<Nanos>,
    /// For the first byte of the reply (an interim one counts), from the last byte of the request.
    pub first_byte: Option<Nanos>,
    /// For further bytes of the reply, from the byte before. In an event stream what brings nothing but keep-alives (comments and
    /// empty events) is no byte.
    pub idle: Option<Nanos>,
    /// Keep-alives count as bytes after all.
    pub keep_alive_counts: bool,
}

/// Reads the limits.
pub(super) fn limits(settings: &Settings, problems: &mut Problems) -> TimeLimits {
    let mut limit = |flag: &'static str| {
        super::endpoint::check_seconds(settings, flag, problems);
        settings.number(flag).map(Nanos::from_seconds)
    };
    let limits = TimeLimits {
        connect: limit("--connect-timeout-seconds"),
        first_byte: limit("--first-byte-timeout-seconds"),
        idle: limit("--idle-timeout-seconds"),
        keep_alive_counts: settings.given("--keep-alive-resets-idle"),
    };
    if limits.keep_alive_counts && limits.idle.is_none() {
        problems.push(
            "--keep-alive-resets-idle changes nothing without --idle-timeout-seconds".to_owned(),
        );
    }
    limits
}
