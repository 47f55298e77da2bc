//! Pictures and sounds.
//!
//! In: a plan and a seed, or the fields of a file's entry. Out: the media of turns, as they are sent. Never: fetches a URL.

mod fields;
mod image;
mod sound;

use std::num::NonZero;
use std::sync::Mutex;

pub(super) use fields::take;

use self::image::Pictures;
use self::sound::Sounds;
use super::{Corpus, DatasetError, Media, MediaKind, Turn};
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
                turn.media.push(Media {
                    kind: MediaKind::Image,
                    content: pictures.make(index)?.into(),
                });
            }
        }
        if let Some(sounds) = &self.sounds {
            let count = sounds.per_turn() as u64;
            for index in number * count..(number + 1) * count {
                turn.media.push(Media {
                    kind: MediaKind::Audio,
                    content: sounds.make(index).into(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
