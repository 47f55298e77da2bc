//! Texts of a made-up ranking.
//!
//! In: a plan of lengths, random numbers, and who makes a text of so many tokens. Out: a query and its passages, named as the dialects
//! of rankings ask for them. Never: a text of its own.

use rand_chacha::ChaCha12Rng;

use super::Turn;
use super::length::draw;
use crate::config::RankingsPlan;

/// A turn with one query and at least one passage, each of at least one token.
pub(super) fn turn(
    plan: &RankingsPlan,
    lengths: &mut ChaCha12Rng,
    mut text: impl FnMut(usize) -> String,
) -> Turn {
    let passages = draw(plan.passages, 1, lengths);
    let mut made = Turn::default();
    let mut put = |name: &str, tokens: u32| {
        made.texts.push(text(tokens as usize));
        made.text_names.push(name.to_owned());
    };
    put("query", draw(plan.query_tokens, 1, lengths));
    for _ in 0..passages {
        put("passages", draw(plan.passage_tokens, 1, lengths));
    }
    made
}

/// Tokens of a turn, roughly.
pub(super) fn expected_tokens(plan: &RankingsPlan) -> f64 {
    plan.query_tokens.mean + plan.passages.mean * plan.passage_tokens.mean
}

#[cfg(test)]
mod tests {
    use super::super::seed::numbered;
    use super::*;
    use crate::config::Length;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_is_one_query_and_what_is_drawn_keeps_to_its_bounds(
            passages in 1u32..20, spread in 0u32..20, tokens in 1u32..99, seed in any::<u64>(),
        ) {
            let length = |mean, stddev| Length { mean: f64::from(mean), stddev: f64::from(stddev) };
            let plan = RankingsPlan {
                passages: length(passages, spread),
                passage_tokens: length(tokens, spread),
                query_tokens: length(tokens, 0),
            };
            let made = |seed| turn(&plan, &mut numbered(seed, 0), |tokens| tokens.to_string());
            let one = made(seed);
            prop_assert_eq!(&one.texts, &made(seed).texts);
            prop_assert_eq!(one.texts.len(), one.text_names.len());
            prop_assert_eq!(&one.texts[0], &tokens.to_string());
            prop_assert_eq!(&one.text_names[0], "query");
            prop_assert!(one.text_names.len() > 1 && one.text_names[1..].iter().all(|name| name == "passages"));
            prop_assert!(one.texts.iter().all(|tokens| tokens != "0"));
            if spread == 0 {
                prop_assert_eq!(one.texts.len(), 1 + passages as usize);
                prop_assert!(one.texts.iter().all(|made| *made == tokens.to_string()));
            }
        }
    }
}
