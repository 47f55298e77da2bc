//! Conversations made up to length.
//!
//! In: the plan, a tokenizer and a seed. Out: a corpus that is the same for any number of threads. Never: a text whose count
//! differs from the one asked for without a note.

use std::num::NonZero;

use rand::{Rng, RngExt};
use rand_chacha::ChaCha12Rng;

use super::cache_bust::marker_tokens;
use super::fit::{Fitted, Fitter};
use super::length;
use super::pieces::Pieces;
use super::random::RandomIds;
use super::ranked;
use super::seed::{child_seed, numbered};
use super::{ContextMode, Conversation, Corpus, DatasetError, Turn};
use crate::config::{
    CacheBust, CorpusKind, Length, LengthPair, ModelSelection, Plan, SyntheticPlan,
};
use crate::tokenizer::Tokenizer;

/// Most threads that make prompts.
const THREADS_MAX: usize = 64;

pub(super) fn build(
    plan: &Plan,
    synthetic: &SyntheticPlan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    build_with_threads(plan, synthetic, tokenizer, seed, cores.min(THREADS_MAX))
}

pub(super) fn build_with_threads(
    plan: &Plan,
    synthetic: &SyntheticPlan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
    threads: usize,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let entries = plan.dataset.entries;
    if entries == 0 {
        return Err(DatasetError::NoEntries);
    }
    if tokenizer.count("The quick brown fox") == 0 {
        return Err(DatasetError::UnusableTokenizer(tokenizer.name().to_owned()));
    }
    let pieces = Pieces::new(
        synthetic.corpus,
        tokenizer,
        seed,
        expected_tokens(plan, synthetic),
    );
    let fitter = Fitter {
        pieces: &pieces,
        tokenizer,
    };
    let is_random = synthetic.corpus == CorpusKind::Random;
    let random = is_random
        .then(|| RandomIds::new(plan.dataset.prompts.style, tokenizer))
        .flatten();
    let maker = Maker::new(plan, synthetic, Words { fitter, random }, seed);
    let threads = threads.clamp(1, entries);
    let mut made: Vec<Option<(Conversation, Misses)>> = Vec::new();
    made.resize_with(entries, || None);
    let share = entries.div_ceil(threads);
    std::thread::scope(|scope| {
        for (number, slots) in made.chunks_mut(share).enumerate() {
            let maker = &maker;
            scope.spawn(move || {
                for (at, slot) in slots.iter_mut().enumerate() {
                    *slot = Some(maker.conversation(number * share + at));
                }
            });
        }
    });
    let mut misses = maker.misses.clone();
    let mut conversations = Vec::with_capacity(entries);
    for (conversation, its_misses) in made.into_iter().flatten() {
        misses.add(&its_misses);
        conversations.push(conversation);
    }
    let notes = misses.note(tokenizer.name()).into_iter().collect();
    let corpus = Corpus {
        conversations,
        ..Corpus::default()
    };
    Ok((corpus, notes))
}

/// Roughly how many tokens the corpus will hold.
fn expected_tokens(plan: &Plan, synthetic: &SyntheticPlan) -> usize {
    let input = if synthetic.pairs.is_empty() {
        synthetic.input_tokens.mean
    } else {
        let weighed = synthetic
            .pairs
            .iter()
            .map(|pair| pair.input.mean * pair.percent / 100.0);
        weighed.sum()
    };
    let input = synthetic
        .rankings
        .as_ref()
        .map_or(input, ranked::expected_tokens);
    let texts = plan.dataset.entries as f64
        * synthetic.turns.mean.max(1.0)
        * synthetic.batch_size.max(1) as f64;
    // A rough figure; clamped where it is used.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let tokens = (texts * input.max(1.0)).min(1e9) as usize;
    tokens
}

/// Texts that missed their length.
#[derive(Clone, Debug, Default)]
struct Misses {
    texts: usize,
    missed: usize,
    most: i64,
}

impl Misses {
    fn take(&mut self, fitted: Fitted) -> String {
        self.texts += 1;
        self.missed += usize::from(fitted.off_by != 0);
        if fitted.off_by.abs() > self.most.abs() {
            self.most = fitted.off_by;
        }
        fitted.text
    }

    fn add(&mut self, other: &Misses) {
        self.texts += other.texts;
        self.missed += other.missed;
        if other.most.abs() > self.most.abs() {
            self.most = other.most;
        }
    }

    fn note(&self, tokenizer: &str) -> Option<String> {
        (self.missed > 0).then(|| {
            format!(
                "{} of {} prompts could not be made to the exact length with the tokenizer {tokenizer}; the furthest is off by {:+} tokens",
                self.missed, self.texts, self.most
            )
        })
    }
}

/// Where the words of prompts come from.
struct Words<'a> {
    fitter: Fitter<'a>,
    /// Ids to draw from, for prompts of random ones.
    random: Option<RandomIds>,
}

impl Words<'_> {
    /// `head`, then words from a place that `generator` picks, `target` tokens together; `index` is the request's number.
    fn text(&self, head: &str, target: usize, index: usize, generator: &mut ChaCha12Rng) -> Fitted {
        match &self.random {
            Some(random) => {
                let first = generator.random_range(0..random.len()) + index;
                random.fit(&self.fitter, head, first, target)
            }
            None => {
                let start = generator.random_range(0..self.fitter.pieces.len());
                self.fitter.fit(head, start, target)
            }
        }
    }
}

/// Everything that conversations share. Each conversation has random numbers of its own, so that it does not matter which
/// thread makes it.
struct Maker<'a> {
    plan: &'a Plan,
    synthetic: &'a SyntheticPlan,
    words: Words<'a>,
    prefixes: Vec<String>,
    system: Option<String>,
    /// Tokens of a session's marker, which comes with its first turn.
    marker_tokens: usize,
    /// Turns of each conversation and the number of turns before it.
    turns: Vec<(u32, u64)>,
    misses: Misses,
    streams: Streams,
}

/// Seeds of the streams, so that names are hashed once.
struct Streams {
    length: u64,
    place: u64,
    prefix: u64,
    output: u64,
    pairs: u64,
    delay: u64,
    model: u64,
    context: u64,
    id: u64,
}

/// One conversation's generators.
struct Generators {
    length: ChaCha12Rng,
    place: ChaCha12Rng,
    prefix: ChaCha12Rng,
    output: ChaCha12Rng,
    pairs: ChaCha12Rng,
    delay: ChaCha12Rng,
    model: ChaCha12Rng,
}

impl<'a> Maker<'a> {
    fn new(plan: &'a Plan, synthetic: &'a SyntheticPlan, words: Words<'a>, seed: u64) -> Maker<'a> {
        let of = |name: &str| child_seed(seed, name);
        let mut misses = Misses::default();
        let prefixes = (0..synthetic.prefix_pool as u64)
            .filter(|_| synthetic.prefix_tokens > 0)
            .map(|number| {
                let mut generator = numbered(of("dataset.prompt.prefix_pool"), number);
                misses.take(words.text("", synthetic.prefix_tokens, 0, &mut generator))
            })
            .collect();
        let shared = synthetic
            .shared_system_tokens
            .filter(|tokens| *tokens > 0)
            .map(|tokens| {
                let mut generator = numbered(of("dataset.prompt.shared_system"), 0);
                misses.take(words.text("", tokens, 0, &mut generator))
            });
        let target = plan.dataset.prompts.cache_bust;
        let marked = target.is_some_and(CacheBust::is_per_session);
        let marker_tokens = if marked {
            marker_tokens(words.fitter.tokenizer)
        } else {
            0
        };
        let mut generator = numbered(of("composer.conversation.turn_count"), 0);
        let mut before = 0;
        let turns = (0..plan.dataset.entries)
            .map(|_| {
                let count = length::draw(synthetic.turns, 1, &mut generator);
                before += u64::from(count);
                (count, before - u64::from(count))
            })
            .collect();
        Maker {
            plan,
            synthetic,
            words,
            prefixes,
            system: plan.dataset.system_prompt.clone().or(shared),
            marker_tokens,
            turns,
            misses,
            streams: Streams {
                length: of("dataset.prompt.length"),
                place: of("dataset.prompt.place"),
                prefix: of("dataset.prompt.prefix"),
                output: of("composer.turn.max_tokens"),
                pairs: of("models.sequence.distribution"),
                delay: of("composer.conversation.turn_delay"),
                model: of("composer.turn.model_selection"),
                context: of("dataset.prompt.user_context"),
                id: of("dataset.conversation.id"),
            },
        }
    }

    fn conversation(&self, index: usize) -> (Conversation, Misses) {
        let mut misses = Misses::default();
        let number = index as u64;
        let streams = &self.streams;
        let mut generators = Generators {
            length: numbered(streams.length, number),
            place: numbered(streams.place, number),
            prefix: numbered(streams.prefix, number),
            output: numbered(streams.output, number),
            pairs: numbered(streams.pairs, number),
            delay: numbered(streams.delay, number),
            model: numbered(streams.model, number),
        };
        let user_context = self
            .synthetic
            .user_context_tokens
            .filter(|tokens| *tokens > 0)
            .map(|tokens| {
                let mut generator = numbered(streams.context, number);
                misses.take(self.words.text("", tokens, index, &mut generator))
            });
        let (count, before) = self.turns[index];
        let turns = (0..count)
            .map(|turn| self.turn(turn, before + u64::from(turn), &mut generators, &mut misses))
            .collect();
        let conversation = Conversation {
            id: conversation_id(&mut numbered(streams.id, number)),
            system: self.system.clone(),
            user_context,
            turns,
            context: ContextMode::LiveReplies,
        };
        (conversation, misses)
    }

    /// Turn `turn` of its conversation and `overall` of the corpus.
    fn turn(
        &self,
        turn: u32,
        overall: u64,
        generators: &mut Generators,
        misses: &mut Misses,
    ) -> Turn {
        let synthetic = self.synthetic;
        let pair = (!synthetic.pairs.is_empty())
            .then(|| length::pick_pair(&synthetic.pairs, &mut generators.pairs));
        let input = pair.map_or(synthetic.input_tokens, |pair| pair.input);
        // What the tokenizer or the chat template adds, and a marker, are part of the length asked for.
        let marker = if turn == 0 { self.marker_tokens } else { 0 };
        let taken = (self.words.fitter.tokenizer.prompt_overhead() + marker) as f64;
        let tokens = self.input_tokens(input, taken, &mut generators.length) as usize;
        let said = match &synthetic.rankings {
            Some(plan) => {
                let (lengths, place) = (&mut generators.length, &mut generators.place);
                let index = usize::try_from(overall).unwrap_or(0);
                ranked::turn(plan, lengths, |tokens| {
                    misses.take(self.words.text("", tokens, index, place))
                })
            }
            None => Turn {
                texts: (0..synthetic.batch_size.max(1))
                    .map(|_| misses.take(self.text(turn, overall, tokens, generators)))
                    .collect(),
                ..Turn::default()
            },
        };
        let delay_ms = if turn > 0 && synthetic.delay_ms.mean > 0.0 {
            f64::from(length::draw(synthetic.delay_ms, 0, &mut generators.delay))
                * synthetic.delay_ratio
        } else {
            0.0
        };
        Turn {
            role: "user".to_owned(),
            model: pick_model(self.plan, overall, &mut generators.model),
            max_tokens: self.output_tokens(pair, &mut generators.output),
            delay_ms,
            ..said
        }
    }

    /// Tokens of a text, of which `taken` are put there by somebody else.
    fn input_tokens(&self, length: Length, taken: f64, generator: &mut ChaCha12Rng) -> u32 {
        let prompts = &self.plan.dataset.prompts;
        match prompts.ranges {
            Some(ranges) => {
                length::draw_within(length.mean, ranges.input, prompts.style, taken, generator)
            }
            None => {
                let left = Length {
                    mean: length.mean - taken,
                    stddev: length.stddev,
                };
                length::draw(left, 1, generator)
            }
        }
    }

    /// A turn's output limit.
    fn output_tokens(&self, pair: Option<&LengthPair>, generator: &mut ChaCha12Rng) -> Option<u32> {
        let prompts = &self.plan.dataset.prompts;
        let length = pair
            .map(|pair| pair.output)
            .or(self.plan.dataset.output_tokens)?;
        Some(match prompts.ranges {
            Some(ranges) => {
                length::draw_within(length.mean, ranges.output, prompts.style, 0.0, generator)
            }
            None => length::draw_output(length, generator),
        })
    }

    /// A text of turn `turn` of its conversation and `overall` of the corpus.
    fn text(&self, turn: u32, overall: u64, tokens: usize, generators: &mut Generators) -> Fitted {
        let index = usize::try_from(overall).unwrap_or(0);
        let place = &mut generators.place;
        if turn > 0 || self.prefixes.is_empty() {
            return self.words.text("", tokens, index, place);
        }
        let prefix = &self.prefixes[generators.prefix.random_range(0..self.prefixes.len())];
        let tokens = self.synthetic.prefix_tokens + tokens;
        self.words.text(prefix, tokens, index, place)
    }
}

/// The model of turn number `overall` of the corpus.
pub(super) fn pick_model(plan: &Plan, overall: u64, generator: &mut ChaCha12Rng) -> String {
    let count = plan.models.len().max(1);
    let index = match plan.model_selection {
        // A remainder of a division by a usize fits one.
        #[allow(clippy::cast_possible_truncation)]
        ModelSelection::RoundRobin => (overall % count as u64) as usize,
        ModelSelection::Random => generator.random_range(0..count),
    };
    plan.models.get(index).cloned().unwrap_or_default()
}

/// An id in the form of a random UUID.
pub(super) fn conversation_id(generator: &mut ChaCha12Rng) -> String {
    let mut bytes = [0; 16];
    generator.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}
