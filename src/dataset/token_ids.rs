//! Prompts as the numbers of their tokens.
//!
//! In: a corpus of texts and the tokenizer. Out: the same corpus with ids in the texts' place, the same for any number of threads.
//! Never: a special token that the text does not spell out.

use std::num::NonZero;

use super::Corpus;
use crate::tokenizer::Tokenizer;

/// Replaces the texts of every turn by token ids.
pub(super) fn replace_texts(corpus: &mut Corpus, tokenizer: &dyn Tokenizer) {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = corpus.conversations.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for conversations in corpus.conversations.chunks_mut(share) {
            scope.spawn(move || {
                let turns = conversations.iter_mut().flat_map(|one| &mut one.turns);
                for turn in turns {
                    let texts = std::mem::take(&mut turn.texts);
                    turn.token_ids = texts.iter().map(|text| tokenizer.encode(text)).collect();
                }
            });
        }
    });
}
