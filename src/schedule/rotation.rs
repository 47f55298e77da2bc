//! The order in which sessions go to several URLs.
//!
//! In: the strategy and the number of URLs. Out: one whole round, after which the order repeats. Never: depends on which worker
//! starts a session: its number alone decides.

use crate::config::UrlStrategy;

/// One round of URLs: session number s goes to entry `s % length`, so that any number of workers together keep the order.
///
/// By weight it is the smooth weighted round robin: each turn every URL gains its weight in credit, the richest is taken (the
/// first among equals) and pays the sum of all weights. In every round a URL comes exactly as often as its weight says, and its
/// turns lie apart.
///
/// ```
/// use tokenring::config::UrlStrategy;
/// use tokenring::schedule::url_order;
/// assert_eq!(url_order(&UrlStrategy::RoundRobin, 3), [0, 1, 2]);
/// assert_eq!(url_order(&UrlStrategy::Weighted(vec![3, 1]), 2), [0, 0, 1, 0]);
/// ```
///
/// # Panics
///
/// When there is no URL, more than 65,536, or a number of weights that is not that of the URLs: `config` has checked them.
#[must_use]
pub fn url_order(strategy: &UrlStrategy, urls: usize) -> Vec<u16> {
    assert!(urls > 0, "sessions need a URL to go to");
    let UrlStrategy::Weighted(weights) = strategy else {
        let last = u16::try_from(urls - 1).expect("URLs fit 16 bits");
        return (0..=last).collect();
    };
    assert_eq!(weights.len(), urls, "one weight for each URL");
    let common = weights
        .iter()
        .fold(0, |sum, &weight| divisor(sum, weight.into()));
    let shares = weights.iter().map(|&weight| u64::from(weight) / common);
    let weights: Vec<i64> = shares.map(u64::cast_signed).collect();
    let sum: i64 = weights.iter().sum();
    let mut credits = vec![0_i64; urls];
    let turn = |_| {
        let mut richest = 0;
        for (url, weight) in weights.iter().enumerate() {
            credits[url] += weight;
            if credits[url] > credits[richest] {
                richest = url;
            }
        }
        credits[richest] -= sum;
        u16::try_from(richest).expect("URLs fit 16 bits")
    };
    (0..sum).map(turn).collect()
}

/// Greatest common divisor.
pub(super) fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounds_are_those_of_the_smooth_weighted_round_robin() {
        for (weights, round) in [
            (vec![5, 1, 1], vec![0, 0, 1, 0, 2, 0, 0]),
            (vec![3, 1], vec![0, 0, 1, 0]),
            (vec![30, 10], vec![0, 0, 1, 0]),
            (vec![1, 3], vec![1, 0, 1, 1]),
            (vec![7], vec![0]),
            (vec![2, 2], vec![0, 1]),
        ] {
            let urls = weights.len();
            assert_eq!(url_order(&UrlStrategy::Weighted(weights), urls), round);
        }
    }

    proptest! {
        /// Every URL has its share in each round, and is never further than one session from it for each other URL.
        #[test]
        fn shares_are_exact_and_even(weights in prop::collection::vec(1..50_u32, 1..6)) {
            let urls = weights.len();
            let round = url_order(&UrlStrategy::Weighted(weights.clone()), urls);
            let sum: u32 = weights.iter().sum();
            let mut counts = vec![0_u32; urls];
            for (place, &url) in round.iter().enumerate() {
                counts[usize::from(url)] += 1;
                for (count, &weight) in counts.iter().zip(&weights) {
                    let share = (place + 1) as f64 * f64::from(weight) / f64::from(sum);
                    prop_assert!((f64::from(*count) - share).abs() < urls as f64, "{round:?}");
                }
            }
            let rounds = u32::try_from(round.len()).unwrap();
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert_eq!(count * sum, weight * rounds);
            }
        }
    }
}
