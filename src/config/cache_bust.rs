//! `--cache-bust`.
//!
//! In: settings. Out: where a marker goes that keeps servers from answering out of a prefix cache. Never: makes a marker.

use super::dialect::EndpointKind;
use super::error::Problems;
use super::lex::Settings;

/// Where the marker goes, and of whom it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheBust {
    /// One for each session, before the system message.
    SystemPrefix,
    /// One for each session, behind the system message.
    SystemSuffix,
    /// One for each session, before the first turn's text.
    FirstTurnPrefix,
    /// One for each session, behind the first turn's text.
    FirstTurnSuffix,
    /// The same for all of the warmup, before the system message; the run itself has none.
    WarmupSystem,
    /// The same for all of the warmup, before the first turn's text; the run itself has none.
    WarmupFirstTurn,
}

/// Values of the flag.
pub(super) const TARGETS: &[&str] = &[
    "none",
    "system_prefix",
    "system_suffix",
    "first_turn_prefix",
    "first_turn_suffix",
    "warmup_isolation_system",
    "warmup_isolation_first_turn",
];

impl CacheBust {
    /// The value of the flag.
    #[must_use]
    pub const fn name(self) -> &'static str {
        TARGETS[match self {
            CacheBust::SystemPrefix => 1,
            CacheBust::SystemSuffix => 2,
            CacheBust::FirstTurnPrefix => 3,
            CacheBust::FirstTurnSuffix => 4,
            CacheBust::WarmupSystem => 5,
            CacheBust::WarmupFirstTurn => 6,
        }]
    }

    /// Each session has a marker of its own.
    #[must_use]
    pub const fn is_per_session(self) -> bool {
        !matches!(self, CacheBust::WarmupSystem | CacheBust::WarmupFirstTurn)
    }
}

/// Reads and checks.
pub(super) fn cache_bust(
    settings: &Settings,
    kind: EndpointKind,
    problems: &mut Problems,
) -> Option<CacheBust> {
    let flag = "--cache-bust";
    let target = match settings.choice(flag)? {
        "system_prefix" => CacheBust::SystemPrefix,
        "system_suffix" => CacheBust::SystemSuffix,
        "first_turn_prefix" => CacheBust::FirstTurnPrefix,
        "first_turn_suffix" => CacheBust::FirstTurnSuffix,
        "warmup_isolation_system" => CacheBust::WarmupSystem,
        "warmup_isolation_first_turn" => CacheBust::WarmupFirstTurn,
        _ => return None,
    };
    if !kind.facts().history {
        problems.push(format!(
            "{flag} needs --endpoint-type {}: {} has no place for a marker",
            EndpointKind::names_of(|facts| facts.history),
            kind.name()
        ));
    }
    let warmup = [
        "--warmup-request-count",
        "--warmup-duration",
        "--num-warmup-sessions",
    ];
    if !target.is_per_session() && !warmup.iter().any(|flag| settings.given(flag)) {
        problems.push(format!(
            "{flag} {} marks a warmup; give one with {}",
            target.name().replace('_', "-"),
            warmup.join(", ")
        ));
    }
    Some(target)
}
