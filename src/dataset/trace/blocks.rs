//! Prompts from blocks of text.
//!
//! In: lengths and hash ids. Out: prompts; the same id is the same text in all of them, in any order and on any thread. Never: a text that depends
//! on what was asked before.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZero;

use rand::RngExt;

use super::Asked;
use crate::config::CorpusKind;
use crate::dataset::Turn;
use crate::dataset::fit::{Fitted, Fitter};
use crate::dataset::pieces::Pieces;
use crate::dataset::seed::{child_seed, numbered};
use crate::tokenizer::Tokenizer;

/// Tokens of text that prompts are cut from.
const SOURCE_TOKENS: usize = 1 << 20;

/// Most threads that make prompts.
const THREADS_MAX: usize = 64;

/// What a block begins with where the tokenizer has no token for it: with most tokenizers one token that does not join its neighbours.
const PLAIN_SEPARATOR: &str = " the";

/// Blocks joined to see whether tokens reach over their borders.
const JOINS_TRIED: u64 = 16;

/// Bytes of blocks that are kept from one prompt to the next where the prompts are not known together.
const KEPT_BYTES_MOST: usize = 64 << 20;

/// What blocks are cut from.
pub(super) fn source(tokenizer: &dyn Tokenizer, seed: u64) -> Pieces {
    Pieces::new(CorpusKind::Sonnet, tokenizer, seed, SOURCE_TOKENS)
}

/// Writes prompts.
pub(super) struct Blocks<'a> {
    fitter: Fitter<'a>,
    /// Tokens of a whole block, at least 1.
    size: usize,
    /// First token of each block: the tokenizer's own for a text's beginning or end, as in AIPerf.
    separator: String,
    /// No token reaches from one block into the next, so that the tokens of a prompt are those of its blocks.
    adds_up: bool,
    block_seed: u64,
    rest_seed: u64,
    /// Blocks that several prompts have.
    kept: HashMap<u64, Fitted>,
    kept_bytes: usize,
}

impl<'a> Blocks<'a> {
    /// `file` tells the ids of one trace from those of another.
    pub(super) fn new(
        pieces: &'a Pieces,
        tokenizer: &'a dyn Tokenizer,
        size: u32,
        seed: u64,
        file: &str,
    ) -> Blocks<'a> {
        let own = tokenizer.block_separator().map(str::to_owned);
        let mut blocks = Blocks {
            fitter: Fitter { pieces, tokenizer },
            size: size.max(1) as usize,
            separator: own
                .filter(|token| tokenizer.count(token) == 1)
                .unwrap_or_else(|| PLAIN_SEPARATOR.to_owned()),
            adds_up: true,
            block_seed: child_seed(seed, &format!("dataset.prompt.hash_block:{file}")),
            rest_seed: child_seed(seed, "dataset.prompt.place"),
            kept: HashMap::new(),
            kept_bytes: 0,
        };
        blocks.adds_up = blocks.joins_add_up();
        blocks
    }

    /// Fills in the texts, on all cores. The number of prompts that missed their length.
    pub(super) fn write_all(&mut self, mut work: Vec<(&mut Turn, &Asked)>) -> u64 {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = threads.min(THREADS_MAX);
        self.keep_shared(work.iter().map(|(_, asked)| *asked), threads);
        let share = work.len().div_ceil(threads).max(1);
        let blocks = &*self;
        std::thread::scope(|scope| {
            let workers: Vec<_> = work
                .chunks_mut(share)
                .map(|chunk| {
                    scope.spawn(move || {
                        let mut missed = 0;
                        for (turn, asked) in chunk {
                            let fitted = blocks.prompt(asked);
                            missed += u64::from(fitted.off_by != 0);
                            turn.texts = vec![fitted.text];
                        }
                        missed
                    })
                })
                .collect();
            // A thread that fell has told its own panic.
            workers.into_iter().map(|one| one.join().unwrap_or(0)).sum()
        })
    }

    /// One prompt; its blocks are kept for later ones, up to a bound.
    pub(super) fn one(&mut self, asked: &Asked) -> Fitted {
        if self.kept_bytes > KEPT_BYTES_MOST {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        for id in &asked.ids[..self.whole(asked)] {
            if !self.kept.contains_key(id) {
                let made = self.make(*id, self.size);
                self.kept_bytes += made.text.len();
                self.kept.insert(*id, made);
            }
        }
        self.prompt(asked)
    }

    /// Makes the blocks that more than one prompt has.
    fn keep_shared<'w>(&mut self, work: impl Iterator<Item = &'w Asked>, threads: usize) {
        let mut seen: HashMap<u64, bool> = HashMap::new();
        for asked in work {
            for &id in &asked.ids[..self.whole(asked)] {
                seen.entry(id)
                    .and_modify(|more| *more = true)
                    .or_insert(false);
            }
        }
        let ids: Vec<u64> = seen
            .into_iter()
            .filter_map(|(id, more)| more.then_some(id))
            .collect();
        let share = ids.len().div_ceil(threads).max(1);
        let blocks = &*self;
        let made: Vec<Vec<(u64, Fitted)>> = std::thread::scope(|scope| {
            let make = |chunk: &'_ [u64]| {
                let made = chunk.iter().map(|&id| (id, blocks.make(id, blocks.size)));
                made.collect::<Vec<_>>()
            };
            let workers: Vec<_> = ids
                .chunks(share)
                .map(|chunk| scope.spawn(move || make(chunk)))
                .collect();
            let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(Result::unwrap_or_default).collect()
        });
        self.kept.extend(made.into_iter().flatten());
    }

    /// How many of the ids stand for a whole block.
    fn whole(&self, asked: &Asked) -> usize {
        (asked.tokens as usize / self.size).min(asked.ids.len())
    }

    /// A block for each id, the last one shorter where it does not fit, and other text behind them where they are too short.
    pub(super) fn prompt(&self, asked: &Asked) -> Fitted {
        let target = asked.tokens as usize;
        let start =
            numbered(self.rest_seed, asked.record).random_range(0..self.fitter.pieces.len());
        if asked.ids.is_empty() {
            return self.fitter.fit("", start, target);
        }
        let whole = self.whole(asked);
        let rest = target - whole * self.size;
        let mut text = String::with_capacity(target * 5);
        let mut off_by = 0;
        let mut last = (0, 0);
        for &id in &asked.ids[..whole] {
            let block = self.block(id);
            last = (text.len(), block.off_by);
            text.push_str(&block.text);
            off_by += block.off_by;
        }
        if !self.adds_up {
            let start = asked.ids.get(whole).map_or(start, |&id| self.start(id));
            return self.fitter.fit(&text, start, target);
        }
        if rest == 0 {
            return Fitted { text, off_by };
        }
        let tail = match asked.ids.get(whole) {
            Some(&id) => self.make(id, rest),
            None => {
                // Told apart from the block before by nothing, so the two are fitted together.
                let block = text.split_off(last.0);
                off_by -= last.1;
                self.fitter.fit(&block, start, self.size + rest)
            }
        };
        text.push_str(&tail.text);
        off_by += tail.off_by;
        Fitted { text, off_by }
    }

    fn block(&self, id: u64) -> Cow<'_, Fitted> {
        match self.kept.get(&id) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(self.make(id, self.size)),
        }
    }

    /// The text of `id`, `tokens` tokens long.
    fn make(&self, id: u64, tokens: usize) -> Fitted {
        self.fitter.fit(&self.separator, self.start(id), tokens)
    }

    fn start(&self, id: u64) -> usize {
        numbered(self.block_seed, id).random_range(0..self.fitter.pieces.len())
    }

    fn joins_add_up(&self) -> bool {
        let made: Vec<Fitted> = (0..JOINS_TRIED)
            .map(|id| self.make(id, self.size))
            .collect();
        let whole: String = made.iter().map(|block| block.text.as_str()).collect();
        let sum: usize = made
            .iter()
            .map(|block| self.fitter.tokenizer.count(&block.text))
            .sum();
        self.fitter.tokenizer.count(&whole) == sum
    }
}
