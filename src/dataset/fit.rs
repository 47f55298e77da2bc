//! Text of an exact number of tokens.
//!
//! In: pieces of text, a tokenizer, a length and a place to begin. Out: a text whose tokens, counted again, are as many as
//! asked. Never: trusts a sum of parts: each text is counted whole before it is handed out.

use super::pieces::Pieces;
use crate::tokenizer::Tokenizer;

/// Starts tried for one whose words add up to the length by themselves.
const STARTS: usize = 16;

/// Whole counts of a text before the nearest one is taken.
const ROUNDS: usize = 8;

/// Most tokens made up by endings; more are never missing when the sums are right.
const ENDINGS_MAX: usize = 64;

/// Endings put on a text that is still short at the end.
const POLISH_MAX: usize = 16;

/// Short endings: with most tokenizers each adds one token.
const ENDINGS: [&str; 20] = [
    " the", " and", " of", " to", " in", " a", " I", " is", " it", " you", " my", " that", ".",
    ",", "!", "?", " e", "e", "a", "0",
];

/// Bytes at a text's end that decide what an ending adds to it.
const TAIL_BYTES: usize = 48;

/// A text and how many tokens it has over (positive) or under (negative) the length asked for; 0 in nearly all cases.
#[derive(Clone)]
pub(super) struct Fitted {
    pub(super) text: String,
    pub(super) off_by: i64,
}

/// Makes texts to length.
#[derive(Clone, Copy)]
pub(super) struct Fitter<'a> {
    pub(super) pieces: &'a Pieces,
    pub(super) tokenizer: &'a dyn Tokenizer,
}

impl Fitter<'_> {
    /// `head`, then text from near piece `start` on, `target` tokens together. `head` is kept whole even where it alone is
    /// longer than that.
    ///
    /// Words are taken by the sums, what is missing is made up by endings, and the whole is counted once; only where that
    /// count differs (a tokenizer that joins words) are the sums corrected by the difference and the text made again.
    pub(super) fn fit(&self, head: &str, start: usize, target: usize) -> Fitted {
        let wanted = target.saturating_sub(if head.is_empty() {
            0
        } else {
            self.tokenizer.count(head)
        });
        let (start, mut budget) = self.window(head.is_empty(), start, wanted);
        let mut best = self.attempt(head, start, budget, target);
        for _ in 1..ROUNDS {
            if best.off_by == 0 {
                break;
            }
            budget = shifted(budget, -best.off_by);
            let next = self.attempt(head, start, budget, target);
            if next.off_by.abs() >= best.off_by.abs() {
                // No nearer by correcting: another place has other words.
                let other = self.elsewhere(head, start, wanted, target);
                if other.off_by.abs() < best.off_by.abs() {
                    best = other;
                }
                break;
            }
            best = next;
        }
        self.polish(best, target)
    }

    /// Ending by ending, counting the whole each time, for tokenizers whose tokens reach over words.
    fn polish(&self, mut fitted: Fitted, target: usize) -> Fitted {
        for _ in 0..POLISH_MAX {
            if fitted.off_by >= 0 {
                break;
            }
            let longer = ENDINGS.iter().find_map(|ending| {
                let text = format!("{}{ending}", fitted.text);
                let off_by = difference(self.tokenizer.count(&text), target);
                (off_by <= 0).then_some(Fitted { text, off_by })
            });
            match longer {
                Some(longer) => fitted = longer,
                None => break,
            }
        }
        fitted
    }

    /// The best of a few other places, for the rare text that misses its length where it stands.
    fn elsewhere(&self, head: &str, start: usize, wanted: usize, target: usize) -> Fitted {
        let mut best = Fitted {
            text: String::new(),
            off_by: i64::MAX,
        };
        for step in 1..=ROUNDS {
            let (start, budget) = self.window(head.is_empty(), start + step * STARTS, wanted);
            let first = self.attempt(head, start, budget, target);
            let second = self.attempt(head, start, shifted(budget, -first.off_by), target);
            for candidate in [first, second] {
                if candidate.off_by.abs() < best.off_by.abs() {
                    best = candidate;
                }
            }
            if best.off_by == 0 {
                break;
            }
        }
        best
    }

    /// A start at or soon after `start` and the budget, in tokens by the sums, of a text of `wanted` tokens from there.
    fn window(&self, opening: bool, start: usize, wanted: usize) -> (usize, usize) {
        let mut best = (start % self.pieces.len(), wanted);
        let mut best_rest = usize::MAX;
        for step in 0..STARTS {
            let start = (start + step) % self.pieces.len();
            let budget = if opening {
                // A text opens without the white space that the sums count with its first word.
                let bare = self.tokenizer.count(self.pieces.piece(start).trim_start());
                (wanted + self.pieces.piece_tokens(start)).saturating_sub(bare)
            } else {
                wanted
            };
            let count = self.pieces.pieces_within(start, budget);
            let rest = budget.saturating_sub(self.pieces.tokens_of(start, count));
            // A text of endings only is the last resort.
            let rest = if count == 0 {
                rest.saturating_mul(ENDINGS_MAX)
            } else {
                rest
            };
            if rest < best_rest {
                (best, best_rest) = ((start, budget), rest);
            }
            if rest == 0 {
                break;
            }
        }
        best
    }

    fn attempt(&self, head: &str, start: usize, budget: usize, target: usize) -> Fitted {
        let count = self.pieces.pieces_within(start, budget);
        let mut text = String::with_capacity(head.len() + count * 7 + 16);
        text.push_str(head);
        self.pieces.append(start, count, &mut text);
        if head.is_empty() {
            let blank = text.len() - text.trim_start().len();
            text.drain(..blank);
        }
        let rest = budget.saturating_sub(self.pieces.tokens_of(start, count));
        self.lengthen(&mut text, start, rest.min(ENDINGS_MAX));
        let off_by = difference(self.tokenizer.count(&text), target);
        Fitted { text, off_by }
    }

    /// Appends endings worth `missing` tokens, as far as there are such; `turn` varies them.
    fn lengthen(&self, text: &mut String, turn: usize, missing: usize) {
        let (mut missing, mut turn) = (missing, turn);
        while missing > 0 {
            let tail = tail(text);
            let before = self.tokenizer.count(tail);
            let worth = |ending: &str| {
                let joined = if text.is_empty() {
                    ending.trim_start().to_owned()
                } else {
                    format!("{tail}{ending}")
                };
                self.tokenizer.count(&joined).saturating_sub(before)
            };
            let rotated =
                (0..ENDINGS.len()).map(|at| ENDINGS[if at < 12 { (turn + at) % 12 } else { at }]);
            let mut least: Option<(usize, &str)> = None;
            for ending in rotated {
                let tokens = worth(ending);
                if (1..=missing).contains(&tokens) && least.is_none_or(|(known, _)| tokens < known)
                {
                    least = Some((tokens, ending));
                    if tokens == 1 {
                        break;
                    }
                }
            }
            let Some((tokens, ending)) = least else {
                return;
            };
            text.push_str(if text.is_empty() {
                ending.trim_start()
            } else {
                ending
            });
            missing -= tokens;
            turn += 1;
        }
    }
}

/// The end of `text`, from a word's beginning where there is one.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(TAIL_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = &text[from..];
    if from == 0 {
        return end;
    }
    end.find(' ').map_or(end, |space| &end[space..])
}

fn difference(count: usize, target: usize) -> i64 {
    let signed = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    signed(count) - signed(target)
}

fn shifted(budget: usize, by: i64) -> usize {
    let step = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
    if by < 0 {
        budget.saturating_sub(step)
    } else {
        budget.saturating_add(step)
    }
}
