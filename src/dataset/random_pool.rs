//! The `random_pool` format: entries to draw from.
//!
//! In: a file of requests as in `single_turn` without times, or a folder of such files. Out: as many conversations of one turn as the
//! plan has entries, each drawn with replacement. Never: an order of the file's.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;

use super::format::{Format, Setting};
use super::lines::{self, Bad, Entry};
use super::seed::{child_seed, numbered};
use super::synthetic::conversation_id;
use super::{ContextMode, Conversation, DatasetError, Turn, media, single_turn};
use crate::file::Record;

/// What may stand in a line.
const KNOWN: &str = "known are text, texts, role, output_length and extra, and images, image_uuids, audios and videos";

/// The format.
pub(super) struct RandomPool {
    /// The entries of each file, by its name.
    pools: BTreeMap<Arc<str>, Vec<Turn>>,
    folder: bool,
    entries: usize,
    /// Texts of one turn.
    texts: usize,
    /// Pictures may be named by ids.
    image_ids: bool,
    seed: u64,
}

impl RandomPool {
    pub(super) fn new(setting: Setting<'_>) -> RandomPool {
        RandomPool {
            pools: BTreeMap::new(),
            folder: setting.file.path.is_dir(),
            entries: setting.entries,
            texts: setting.file.prompt_batch,
            image_ids: setting.image_ids,
            seed: setting.seed,
        }
    }
}

impl Format for RandomPool {
    fn known(&self) -> &'static str {
        KNOWN
    }

    fn entry(&mut self, record: Record) -> Result<Option<Entry>, String> {
        let mut fields = record.fields;
        lines::check_type(&mut fields, "random_pool")?;
        for name in ["timestamp", "delay", "session_id"] {
            if fields.contains_key(name) {
                return Err(format!(
                    "field {name}: entries are drawn at random and have no times or sessions; leave it out, or use single_turn"
                ));
            }
        }
        let turn = single_turn::turn(&mut fields)?;
        media::check_ids(std::slice::from_ref(&turn), self.image_ids)?;
        self.pools.entry(record.stem).or_default().push(turn);
        Ok(Some(Entry {
            unknown: fields.into_iter().map(|(name, _)| name).collect(),
            ..Entry::default()
        }))
    }

    fn finish(
        &mut self,
        conversations: &mut Vec<Conversation>,
        _: &mut Bad,
    ) -> Result<Vec<String>, DatasetError> {
        let ids = child_seed(self.seed, "dataset.conversation.id");
        let draws = child_seed(self.seed, "dataset.pool.draw");
        conversations.clear();
        if self.pools.is_empty() {
            return Ok(Vec::new());
        }
        for index in 0..self.entries as u64 {
            let mut draw = numbered(draws, index);
            let mut turn = Turn::default();
            for (stem, pool) in &self.pools {
                let drawn = &pool[draw.random_range(0..pool.len())];
                let texts = if self.texts > 1 {
                    let all: Vec<&String> = pool.iter().flat_map(|turn| &turn.texts).collect();
                    let one = |_| all[draw.random_range(0..all.len())].clone();
                    (0..self.texts).map(one).collect()
                } else {
                    drawn.texts.clone()
                };
                if self.folder {
                    merge(&mut turn, drawn, texts, stem);
                } else {
                    turn = Turn {
                        texts,
                        ..drawn.clone()
                    };
                    // Texts of other entries have not this one's names.
                    turn.text_names.retain(|_| self.texts <= 1);
                }
            }
            conversations.push(Conversation {
                id: conversation_id(&mut numbered(ids, index)),
                turns: vec![turn],
                context: ContextMode::SelfContained,
                ..Conversation::default()
            });
        }
        Ok(Vec::new())
    }
}

/// Adds what was drawn from one file to a turn. The texts bear the file's name.
fn merge(turn: &mut Turn, drawn: &Turn, texts: Vec<String>, stem: &str) {
    let names = std::iter::repeat_n(stem.to_owned(), texts.len());
    turn.text_names.extend(names);
    turn.texts.extend(texts);
    turn.media.extend(drawn.media.iter().cloned());
    turn.role.clone_from(&drawn.role);
    turn.max_tokens = drawn.max_tokens.or(turn.max_tokens);
    turn.extra.extend(drawn.extra.clone());
}
