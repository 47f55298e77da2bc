//! Texts that prompts are cut from.
//!
//! In: a corpus kind, a tokenizer and a seed. Out: pieces of text, a word or two with the white space before each, with their
//! token counts summed up. Never: a prompt.

use std::collections::HashMap;

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use super::seed::stream;
use crate::config::CorpusKind;
use crate::tokenizer::Tokenizer;

/// Plays and poems of Shakespeare; see `assets/README.md`.
const SONNET: &str = include_str!("../../assets/shakespeare.txt");

/// Bytes of generated code.
const CODE_BYTES: usize = 256 * 1024;

/// Smallest part of a text that prompts are cut from, so that few short prompts still differ.
const TEXT_BYTES_MIN: usize = 128 * 1024;

/// Bounds of the number of random tokens made.
const RANDOM_PIECES: std::ops::RangeInclusive<usize> = 4_096..=65_536;

/// Ids tried for each random piece before a tokenizer is taken to have too few words for it.
const RANDOM_TRIES: usize = 40;

/// A text in pieces. Never empty.
pub(super) struct Pieces {
    text: String,
    /// Byte offset of the end of each piece in `text`.
    ends: Vec<u32>,
    /// Tokens of all pieces before each one, counted piece by piece; one entry more than `ends`. An estimate for a tokenizer
    /// that joins words.
    sums: Vec<u32>,
}

impl Pieces {
    /// The text of `kind`, of which about `tokens` tokens will be used in all.
    pub(super) fn new(
        kind: CorpusKind,
        tokenizer: &dyn Tokenizer,
        seed: u64,
        tokens: usize,
    ) -> Pieces {
        match kind {
            CorpusKind::Sonnet => {
                let bytes = tokens.saturating_mul(16).max(TEXT_BYTES_MIN);
                Pieces::cut(flow(SONNET, bytes), tokenizer)
            }
            CorpusKind::Coding => {
                let mut generator = stream(seed, "dataset.prompt.corpus", 0);
                Pieces::cut(super::code::write(CODE_BYTES, &mut generator), tokenizer)
            }
            CorpusKind::Random => {
                let mut generator = stream(seed, "dataset.prompt.corpus", 0);
                let count = tokens.clamp(*RANDOM_PIECES.start(), *RANDOM_PIECES.end());
                random(tokenizer, count, &mut generator)
                    .unwrap_or_else(|| Pieces::cut(flow(SONNET, TEXT_BYTES_MIN), tokenizer))
            }
        }
    }

    /// Cuts `text` before each run of white space that begins with a space. Not at newlines: tokenizers join them with what
    /// stands before or behind them, each in its own way, and the sums would be wrong.
    fn cut(text: String, tokenizer: &dyn Tokenizer) -> Pieces {
        let bytes = text.as_bytes();
        let mut ends = Vec::with_capacity(text.len() / 5);
        for at in 1..bytes.len() {
            if bytes[at] == b' ' && !bytes[at - 1].is_ascii_whitespace() {
                ends.push(short(at));
            }
        }
        ends.push(short(bytes.len()));
        let mut sums = Vec::with_capacity(ends.len() + 1);
        sums.push(0);
        // A word is counted once, however often it comes.
        let mut known: HashMap<&str, u32> = HashMap::new();
        let (mut begin, mut sum) = (0, 0);
        for &end in &ends {
            let piece = &text[begin..end as usize];
            sum += *known
                .entry(piece)
                .or_insert_with(|| short(tokenizer.count(piece)));
            sums.push(sum);
            begin = end as usize;
        }
        drop(known);
        Pieces { text, ends, sums }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Tokens of the whole text, by the estimate.
    pub(super) fn tokens(&self) -> usize {
        self.sums[self.ends.len()] as usize
    }

    /// Piece number `index`, wrapping round, with the white space before it.
    pub(super) fn piece(&self, index: usize) -> &str {
        let index = index % self.len();
        &self.text[self.begin(index)..self.ends[index] as usize]
    }

    /// Tokens of piece `index` (wrapping round), by the estimate.
    pub(super) fn piece_tokens(&self, index: usize) -> usize {
        let index = index % self.len();
        (self.sums[index + 1] - self.sums[index]) as usize
    }

    /// How many pieces from `start` (below the length) on hold at most `tokens` tokens, going round as often as needed.
    pub(super) fn pieces_within(&self, start: usize, tokens: usize) -> usize {
        let total = self.tokens().max(1);
        let absolute = self.sums[start] as usize + tokens;
        let (rounds, rest) = (absolute / total, absolute % total);
        // The greatest index whose sum is at most `rest`.
        let index = self.sums[..self.len()].partition_point(|&sum| sum as usize <= rest) - 1;
        (rounds * self.len() + index).saturating_sub(start)
    }

    /// Tokens of `count` pieces from `start` (below the length) on, by the estimate.
    pub(super) fn tokens_of(&self, start: usize, count: usize) -> usize {
        let end = start + count;
        let (rounds, rest) = (end / self.len(), end % self.len());
        (rounds * self.tokens() + self.sums[rest] as usize)
            .saturating_sub(self.sums[start] as usize)
    }

    /// Appends `count` pieces from `start` on.
    pub(super) fn append(&self, start: usize, count: usize, out: &mut String) {
        let (mut start, mut left) = (start % self.len(), count);
        while left > 0 {
            let run = left.min(self.len() - start);
            out.push_str(&self.text[self.begin(start)..self.ends[start + run - 1] as usize]);
            left -= run;
            start = 0;
        }
    }

    fn begin(&self, index: usize) -> usize {
        index
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize)
    }
}

/// The first `bytes` of a text of lines, as one line, with a space in front.
fn flow(lines: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes.min(lines.len()) + 128);
    for line in lines.lines().filter(|line| !line.is_empty()) {
        if text.len() >= bytes {
            break;
        }
        text.push(' ');
        text.push_str(line);
    }
    text
}

/// `count` random tokens that stand for themselves: a space with letters behind it, so that neighbours do not merge. `None`
/// when the vocabulary has too few of them.
fn random(tokenizer: &dyn Tokenizer, count: usize, generator: &mut ChaCha12Rng) -> Option<Pieces> {
    let vocabulary = tokenizer.vocabulary_size();
    if vocabulary == 0 {
        return None;
    }
    let (mut text, mut ends, mut sums) = (String::new(), Vec::new(), vec![0]);
    let mut tries = count * RANDOM_TRIES;
    while ends.len() < count {
        tries = tries.checked_sub(1)?;
        let id = generator.random_range(0..vocabulary);
        let piece = tokenizer.decode(&[id]);
        let letters = piece.strip_prefix(' ').unwrap_or_default();
        if letters.is_empty()
            || !letters.chars().all(char::is_alphabetic)
            || tokenizer.encode(&piece) != [id]
        {
            continue;
        }
        text.push_str(&piece);
        ends.push(short(text.len()));
        sums.push(short(ends.len()));
    }
    Some(Pieces { text, ends, sums })
}

/// Texts here are a few megabytes at most.
fn short(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
