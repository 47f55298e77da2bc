//! Prompts of random token ids.
//!
//! In: a tokenizer and a style. Out: texts of an exact number of tokens, whose ids go up one by one from a random place. Never: the same
//! run of ids twice, unless a prompt is longer than the vocabulary.

use super::fit::{Fitted, Fitter};
use crate::config::RandomStyle;
use crate::tokenizer::Tokenizer;

/// Times that a text is made anew from its own tokens, until their number is the one asked for.
const ROUNDS: usize = 10;

/// Tokens given up where the rounds did not help; words that stand for themselves take their place.
const GIVEN_UP: usize = 32;

/// The ids that are drawn from. Never empty.
pub(super) struct RandomIds {
    pool: Vec<u32>,
}

impl RandomIds {
    /// `None` for a tokenizer that has no ids with a text of their own.
    pub(super) fn new(style: RandomStyle, tokenizer: &dyn Tokenizer) -> Option<RandomIds> {
        let special = match style {
            RandomStyle::Vllm => tokenizer.special_ids(),
            RandomStyle::Sglang => Vec::new(),
        };
        let all = 0..tokenizer.id_count();
        let ordinary = all.filter(|id| !special.contains(id));
        // Ids between those of the vocabulary and the special ones may stand for nothing.
        let pool: Vec<u32> = ordinary
            .filter(|id| !tokenizer.decode(&[*id]).is_empty())
            .collect();
        (!pool.is_empty()).then_some(RandomIds { pool })
    }

    /// How many ids there are.
    pub(super) fn len(&self) -> usize {
        self.pool.len()
    }

    /// Number `at` of the ids, wrapping round.
    fn id(&self, at: usize) -> u32 {
        self.pool[at % self.pool.len()]
    }

    /// `head`, then ids from number `first` on, `target` tokens together.
    ///
    /// A text of ids is rarely read back as the same ids, so it is read and cut, or lengthened by further ids, until the number is right.
    /// Where that does not come to an end, the last tokens give way to words of `fitter`.
    pub(super) fn fit(
        &self,
        fitter: &Fitter<'_>,
        head: &str,
        first: usize,
        target: usize,
    ) -> Fitted {
        let tokenizer = fitter.tokenizer;
        let mut ids = tokenizer.encode(head);
        let head_tokens = ids.len();
        let mut next = first;
        for _ in 0..ROUNDS {
            while ids.len() < target {
                ids.push(self.id(next));
                next += 1;
            }
            ids.truncate(target.max(head_tokens));
            let text = tokenizer.decode(&ids);
            ids = tokenizer.encode(&text);
            if ids.len() == target && text.starts_with(head) {
                return Fitted { text, off_by: 0 };
            }
        }
        ids.truncate(target.saturating_sub(GIVEN_UP));
        let kept = tokenizer.decode(&ids);
        let kept = kept.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let kept = if kept.starts_with(head) { kept } else { head };
        fitter.fit(kept, first, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CorpusKind;
    use crate::dataset::pieces::Pieces;
    use crate::tokenizer::ShippedTokenizer;

    #[test]
    fn the_pool_holds_special_ids_in_one_style_only() {
        let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
        let pool = |style| RandomIds::new(style, &tokenizer).unwrap().pool;
        assert_eq!(pool(RandomStyle::Vllm), (0..50_256).collect::<Vec<_>>());
        assert_eq!(pool(RandomStyle::Sglang), (0..50_257).collect::<Vec<_>>());
    }

    #[test]
    fn ids_follow_one_another_and_lengths_are_exact() {
        let tokenizer = ShippedTokenizer::new("cl100k_base").unwrap();
        let pieces = Pieces::new(CorpusKind::Random, &tokenizer, 1, 0);
        let fitter = Fitter {
            pieces: &pieces,
            tokenizer: &tokenizer,
        };
        for style in [RandomStyle::Vllm, RandomStyle::Sglang] {
            let random = RandomIds::new(style, &tokenizer).unwrap();
            for length in [1, 2, 3, 10, 100, 1_000] {
                for first in (0..random.len()).step_by(9_973) {
                    let fitted = random.fit(&fitter, "", first, length);
                    let ids = tokenizer.encode(&fitted.text);
                    assert_eq!((fitted.off_by, ids.len()), (0, length), "{first}");
                }
            }
        }
        // A stretch of whole words, in which nothing merges.
        let random = RandomIds::new(RandomStyle::Vllm, &tokenizer).unwrap();
        let mut rising = 0;
        for first in (20_000..60_000).step_by(101) {
            let ids = tokenizer.encode(&random.fit(&fitter, "", first, 20).text);
            rising += usize::from(ids.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
        assert!(rising > 20, "{rising} of 396");
    }

    #[test]
    fn what_stands_before_is_kept() {
        let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
        let pieces = Pieces::new(CorpusKind::Random, &tokenizer, 1, 0);
        let fitter = Fitter {
            pieces: &pieces,
            tokenizer: &tokenizer,
        };
        let random = RandomIds::new(RandomStyle::Vllm, &tokenizer).unwrap();
        for first in (0..50_000).step_by(1_009) {
            let fitted = random.fit(&fitter, "You are a judge.", first, 40);
            assert!(fitted.text.starts_with("You are a judge."), "{first}");
            assert_eq!(tokenizer.count(&fitted.text), 40, "{first}");
        }
    }
}
