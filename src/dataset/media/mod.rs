//! Pictures and sounds.
//!
//! In: a plan and a seed, or the fields of a file's entry. Out: the media of turns, as they are sent. Never: fetches a URL.

mod fields;
mod ids;
mod image;
mod length;
mod mp3;
mod sound;

use std::num::NonZero;
use std::sync::Mutex;

use serde_json::Value;

pub(super) use fields::take;
pub(super) use ids::{check_ids, strip_repeated};
pub(super) use length::length_ns;

use self::image::Pictures;
use self::sound::Sounds;
use super::{ContextMode, Conversation, Corpus, DatasetError, Media, MediaKind, Turn};
use crate::config::MediaPlan;

/// Adds to every turn what `plan` asks for. The same seed gives the same bytes, for any number of threads.
pub(super) fn add(plan: &MediaPlan, corpus: &mut Corpus, seed: u64) -> Result<(), DatasetError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    add_with_threads(plan, corpus, seed, threads)
}

fn add_with_threads(
    plan: &MediaPlan,
    corpus: &mut Corpus,
    seed: u64,
    threads: usize,
) -> Result<(), DatasetError> {
    let maker = Maker {
        pictures: plan.images.as_ref().map(|plan| Pictures::new(plan, seed)),
        sounds: plan.sounds.as_ref().map(|plan| Sounds::new(plan, seed)),
    };
    if maker.pictures.is_none() && maker.sounds.is_none() {
        return Ok(());
    }
    let mut turns: Vec<(u64, &mut Turn)> = (0..)
        .zip(corpus.conversations.iter_mut().flat_map(|c| &mut c.turns))
        .collect();
    let share = turns.len().div_ceil(threads.max(1)).max(1);
    // The first one that fails says enough.
    let failed: Mutex<Option<DatasetError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for turns in turns.chunks_mut(share) {
            let (maker, failed) = (&maker, &failed);
            scope.spawn(move || {
                for (number, turn) in turns {
                    if let Err(error) = maker.fill(*number, turn)
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.get_or_insert(error);
                        return;
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

impl Conversation {
    /// Pictures in the request of turn `turn`: its own, and those of the turns before it that its history holds. Of messages that a dataset
    /// has of its own, the content parts that are pictures; whole bodies are not looked into.
    #[must_use]
    pub fn image_count(&self, turn: usize) -> u32 {
        let end = self.turns.len().min(turn + 1);
        let count: usize = self.turns[self.begin_of(turn)..end]
            .iter()
            .map(pictures_of)
            .sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// How long the sounds in the request of turn `turn` last together, in nanoseconds; those of the turns before count as for pictures. A
    /// sound that is named by its URL counts nothing.
    #[must_use]
    pub fn sound_ns(&self, turn: usize) -> u64 {
        let end = self.turns.len().min(turn + 1);
        let turns = self.turns[self.begin_of(turn)..end].iter();
        turns
            .flat_map(|turn| &turn.media)
            .map(|media| media.length_ns)
            .sum()
    }

    /// The first turn whose media are in the request of turn `turn`.
    fn begin_of(&self, turn: usize) -> usize {
        match self.context {
            ContextMode::SelfContained => turn.min(self.turns.len().saturating_sub(1)),
            _ => 0,
        }
    }

    /// Lets go of what only bodies are made from, once those of all turns are made. The number of pictures and the length of sounds stay.
    pub fn forget_contents(&mut self) {
        self.system = None;
        self.user_context = None;
        for turn in &mut self.turns {
            let sounds = turn.media.iter().filter(|media| media.length_ns > 0);
            let mut kept: Vec<Media> = sounds
                .map(|sound| Media {
                    length_ns: sound.length_ns,
                    ..Media::new(MediaKind::Audio, "")
                })
                .collect();
            kept.resize(
                kept.len() + pictures_of(turn),
                Media::new(MediaKind::Image, ""),
            );
            turn.media = kept;
            turn.texts = Vec::new();
            turn.token_ids = Vec::new();
            turn.messages = Vec::new();
            turn.tools = None;
            turn.payload = None;
        }
    }
}

fn pictures_of(turn: &Turn) -> usize {
    let media = turn.media.iter();
    let own = media.filter(|media| media.kind == MediaKind::Image).count();
    let contents = turn.messages.iter().map(|message| &message["content"]);
    let parts = contents.filter_map(Value::as_array).flatten();
    let kinds = parts.filter_map(|part| part["type"].as_str());
    own + kinds
        .filter(|kind| ["image_url", "input_image", "image"].contains(kind))
        .count()
}

/// Makes media.
struct Maker<'a> {
    pictures: Option<Pictures<'a>>,
    sounds: Option<Sounds<'a>>,
}

impl Maker<'_> {
    /// Media of turn `number` of the corpus.
    fn fill(&self, number: u64, turn: &mut Turn) -> Result<(), DatasetError> {
        if let Some(pictures) = &self.pictures {
            let count = pictures.per_turn() as u64;
            for index in number * count..(number + 1) * count {
                turn.media
                    .push(Media::new(MediaKind::Image, pictures.make(index)?));
            }
        }
        if let Some(sounds) = &self.sounds {
            let count = sounds.per_turn() as u64;
            for index in number * count..(number + 1) * count {
                turn.media
                    .push(Media::new(MediaKind::Audio, sounds.make(index)?));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
