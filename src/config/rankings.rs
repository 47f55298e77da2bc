//! Flags of made-up rankings become a [`RankingsPlan`].
//!
//! In: settings. Out: how many passages, and how long they and their query are. Never: a text.

use super::dialect::EndpointKind;
use super::error::Problems;
use super::lex::Settings;
use super::plan::Length;

/// A query and its passages, made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankingsPlan {
    /// Passages of each request; a number drawn is at least 1.
    pub passages: Length,
    /// Tokens of each passage.
    pub passage_tokens: Length,
    /// Tokens of each query.
    pub query_tokens: Length,
}

const PASSAGES: &str = "--rankings-passages-mean";
const PASSAGES_STDDEV: &str = "--rankings-passages-stddev";
const PASSAGE: &str = "--rankings-passages-prompt-token-mean";
const PASSAGE_STDDEV: &str = "--rankings-passages-prompt-token-stddev";
const QUERY: &str = "--rankings-query-prompt-token-mean";
const QUERY_STDDEV: &str = "--rankings-query-prompt-token-stddev";

/// All of them, and where each stands in `input_config`.
pub(super) const PLACES: &[(&str, &str)] = &[
    (PASSAGES, "rankings.passages.mean"),
    (PASSAGES_STDDEV, "rankings.passages.stddev"),
    (PASSAGE, "rankings.passages.prompt_token_mean"),
    (PASSAGE_STDDEV, "rankings.passages.prompt_token_stddev"),
    (QUERY, "rankings.query.prompt_token_mean"),
    (QUERY_STDDEV, "rankings.query.prompt_token_stddev"),
];

/// Flags that shape a prompt, which neither a ranking nor a file has.
pub(super) const OF_PROMPTS: &[&str] = &[
    "--prompt-input-tokens-mean",
    "--prompt-input-tokens-stddev",
    "--seq-dist",
    "--random-range-ratio",
    "--prompt-batch-size",
    "--prompt-prefix-pool-size",
    "--prompt-prefix-length",
];

/// What a made-up ranking is; `None` for a dialect that ranks nothing. A file has texts of its own.
pub(super) fn rankings(
    settings: &Settings,
    kind: EndpointKind,
    problems: &mut Problems,
) -> Option<RankingsPlan> {
    let ranks = kind.facts().ranks;
    let made_up = !settings.given("--input-file");
    let flags = PLACES.iter().map(|(flag, _)| flag);
    for flag in flags.filter(|flag| !ranks && settings.given(flag)) {
        problems.push(format!(
            "{flag} needs --endpoint-type {}: {} ranks nothing",
            EndpointKind::names_of(|facts| facts.ranks),
            kind.name()
        ));
    }
    for flag in OF_PROMPTS.iter().filter(|flag| settings.given(flag)) {
        if ranks && made_up {
            problems.push(format!(
                "{} shapes a prompt, and --endpoint-type {} sends a query and passages; use {QUERY} and {PASSAGE}",
                settings.spelling(flag),
                kind.name()
            ));
        }
    }
    let length = |mean: &str, stddev: &str, default: u32| {
        let whole = |flag| settings.integer(flag).and_then(|n| u32::try_from(n).ok());
        Length {
            mean: f64::from(whole(mean).unwrap_or(default)),
            stddev: f64::from(whole(stddev).unwrap_or(0)),
        }
    };
    ranks.then(|| RankingsPlan {
        passages: length(PASSAGES, PASSAGES_STDDEV, 1),
        passage_tokens: length(PASSAGE, PASSAGE_STDDEV, 550),
        query_tokens: length(QUERY, QUERY_STDDEV, 550),
    })
}
