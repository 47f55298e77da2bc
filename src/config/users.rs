//! Users who each hold a conversation at a pace of their own.
//!
//! In: `--user-centric-rate`, `--num-users` and what bears on them. Out: a [`UsersPlan`]. Never: who speaks when; that is `schedule`'s.

use super::error::Problems;
use super::lex::Settings;
use super::plan::StopRule;

const RATE: &str = "--user-centric-rate";
const USERS: &str = "--num-users";
const TURNS: &str = "--conversation-turn-mean";

/// `--user-centric-rate`: all users together send at the rate, each at a gap of users / rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsersPlan {
    /// Requests per second of all users together.
    pub rate: f64,
    /// Users at a time, at least 1.
    pub users: u32,
    /// Mean turns of a conversation, rounded, at least 1: how far apart in age the users are at the start. From the flag; once there
    /// is a dataset, from that.
    pub turns: u32,
}

/// Reads and checks the two flags. `stop` is that of the profiling phase, its default included.
pub(super) fn users(
    settings: &Settings,
    stop: &StopRule,
    problems: &mut Problems,
) -> Option<UsersPlan> {
    let users = settings.integer(USERS).and_then(|n| u32::try_from(n).ok());
    if !settings.given(RATE) {
        if settings.given(USERS) {
            problems.push(format!(
                "{USERS} needs {RATE}, the rate of all users together; without it use --concurrency"
            ));
        }
        return None;
    }
    if !settings.given(USERS) {
        problems.push(format!(
            "{RATE} needs {USERS}: how many users share the rate"
        ));
    }
    for (other, instead) in [
        (
            "--request-rate",
            "; --warmup-request-rate is for the warmup",
        ),
        ("--request-rate-series", ""),
    ] {
        if settings.given(other) {
            problems.push(format!(
                "{} and {RATE} exclude each other; give one of them{instead}",
                settings.spelling(other)
            ));
        }
    }
    let turns = settings.integer(TURNS).unwrap_or(1);
    if turns < 2 && !settings.given("--input-file") {
        problems.push(format!(
            "{RATE} needs {} of at least 2: users hold conversations; for single turns use --request-rate",
            settings.spelling(TURNS)
        ));
    }
    let (rate, users) = (settings.number(RATE)?, users?);
    for (flag, most) in [
        ("--conversation-num", stop.sessions),
        ("--request-count", stop.requests),
    ] {
        if let Some(most) = most.filter(|&most| most < u64::from(users)) {
            let default = if settings.given(flag) {
                ""
            } else {
                " by default"
            };
            problems.push(format!(
                "{} {most}{default} is less than {USERS} {users}; give each user at least one",
                settings.spelling(flag)
            ));
        }
    }
    Some(UsersPlan {
        rate,
        users,
        turns: u32::try_from(turns).unwrap_or(u32::MAX),
    })
}
