//! Which URL a session goes to.
//!
//! In: `--url-strategy` and `--url-weights`. Out: a [`UrlStrategy`], with a weight for each URL. Never: an order; that is `schedule`'s.

use super::error::Problems;
use super::lex::Settings;

/// Most that all weights may sum to: the order is laid down once for a whole round.
const WEIGHT_SUM_MOST: u64 = 1 << 20;

/// `--url-strategy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlStrategy {
    /// All in turn.
    RoundRobin,
    /// In turn by weight, spread as evenly as whole sessions allow.
    Weighted(
        /// One for each URL, each at least 1, in all at most [`WEIGHT_SUM_MOST`].
        Vec<u32>,
    ),
}

/// Reads and checks the two flags.
pub(super) fn url_strategy(settings: &Settings, problems: &mut Problems) -> UrlStrategy {
    let weighted = settings.choice("--url-strategy") == Some("weighted");
    match (weighted, settings.given("--url-weights")) {
        (false, false) => return UrlStrategy::RoundRobin,
        (true, false) => {
            problems.push("--url-strategy weighted needs --url-weights, such as 3,1 for two URLs");
            return UrlStrategy::RoundRobin;
        }
        (false, true) => problems.push(
            "--url-weights needs --url-strategy weighted: round-robin gives each URL the same share",
        ),
        (true, true) => {}
    }
    let given = settings.list("--url-weights");
    let urls = settings.list("--url").len();
    let mut weights = Vec::with_capacity(given.len());
    for text in given {
        match text.parse::<u32>() {
            Ok(weight @ 1..) => weights.push(weight),
            _ => problems.push(format!(
                "--url-weights {text:?} is not a whole number of at least 1; leave out a URL that is to get nothing"
            )),
        }
    }
    if !given.is_empty() && given.len() != urls {
        problems.push(format!(
            "--url-weights has {}, but --url has {}; give one weight for each URL",
            counted(given.len(), "weight"),
            counted(urls, "URL")
        ));
    }
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    if sum > WEIGHT_SUM_MOST {
        problems.push(format!(
            "--url-weights sum to {sum}, which is more than {WEIGHT_SUM_MOST}; give smaller ones in the same ratio"
        ));
    }
    UrlStrategy::Weighted(weights)
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
