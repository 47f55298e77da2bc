//! Prompts of a trace, made longer, shorter or less alike.
//!
//! In: lengths and hash ids as the file has them, and the factors. Out: others. Never: a text. As in AIPerf, what lines share are the leading ids
//! that the trace has more than once.

use std::collections::HashMap;

use rand::RngExt;

use super::Asked;
use crate::config::TracePlan;
use crate::dataset::seed::{child_seed, numbered};

/// Changes `asked` as `plan` says, and tells what it could not change.
pub(super) fn reshape(
    plan: &TracePlan,
    block_tokens: u32,
    seed: u64,
    asked: &mut [Asked],
) -> Option<String> {
    if !plan.reshapes_prompts() {
        return None;
    }
    let bare = asked.iter().filter(|asked| asked.ids.is_empty()).count();
    let mut ids = Ids::of(asked, plan);
    let roots = child_seed(seed, "dataset.synthesis.root");
    let span = ids.span(asked, plan, block_tokens);
    for asked in asked.iter_mut().filter(|asked| !asked.ids.is_empty()) {
        ids.reshape(plan, block_tokens, asked);
        if plan.prefix_roots > 1 {
            let root = numbered(roots, asked.record).random_range(0..plan.prefix_roots);
            for id in &mut asked.ids {
                *id += u64::from(root) * span;
            }
        }
    }
    (bare > 0).then(|| {
        format!(
            "{bare} lines of the trace have no hash_ids; --synthesis-prefix-len-multiplier, --synthesis-prefix-root-multiplier and \
             --synthesis-prompt-len-multiplier leave their prompts as they are, as in AIPerf"
        )
    })
}

/// Names for blocks, from 0 up: first those that are shared, each with room for its stretched ones, then fresh ones.
struct Ids {
    shared: HashMap<u64, u64>,
    /// Blocks that a shared one becomes when it is stretched.
    each: u64,
    fresh: u64,
}

impl Ids {
    fn of(asked: &[Asked], plan: &TracePlan) -> Ids {
        let mut seen: HashMap<u64, bool> = HashMap::new();
        let all = || asked.iter().flat_map(|asked| asked.ids.iter().copied());
        for id in all() {
            seen.entry(id)
                .and_modify(|more| *more = true)
                .or_insert(false);
        }
        let mut shared = HashMap::new();
        for id in all().filter(|id| seen.get(id) == Some(&true)) {
            let next = shared.len() as u64;
            shared.entry(id).or_insert(next);
        }
        let each = stretched(1, plan.prefix_length.trunc().max(1.0));
        Ids {
            fresh: shared.len() as u64 * each,
            each,
            shared,
        }
    }

    /// One more than the greatest name given, once all lines are reshaped.
    fn span(&self, asked: &[Asked], plan: &TracePlan, block_tokens: u32) -> u64 {
        let most = asked.iter().map(|asked| {
            let blocks = stretched(asked.ids.len() as u64, plan.prefix_length.max(1.0)) + 1;
            let behind = stretched(u64::from(asked.tokens), plan.prompt_length.max(1.0));
            blocks + behind.div_ceil(u64::from(block_tokens)) + 1
        });
        most.fold(self.fresh, u64::saturating_add)
    }

    fn reshape(&mut self, plan: &TracePlan, block_tokens: u32, asked: &mut Asked) {
        let block = u64::from(block_tokens);
        let tokens = u64::from(asked.tokens);
        let names = asked
            .ids
            .iter()
            .map_while(|id| self.shared.get(id).copied());
        let mut prefix: Vec<u64> = names.collect();
        let count = prefix.len() as u64;
        // A last block that is shorter than others stays so much shorter.
        let prefix_tokens = (count * block).min(tokens);
        let short = count * block - prefix_tokens;
        let wanted = if plan.prefix_length < 1.0 && count > 0 {
            shrunk(count, plan.prefix_length).max(1)
        } else {
            stretched(count, plan.prefix_length)
        };
        let each = self.each;
        prefix = prefix
            .into_iter()
            .flat_map(|name| (0..each).map(move |nth| name * each + nth))
            .take(usize::try_from(wanted).unwrap_or(usize::MAX))
            .collect();
        let missing = wanted.saturating_sub(prefix.len() as u64);
        let whole = wanted == count || plan.prefix_length > 1.0;
        let kept = (wanted * block).saturating_sub(if whole { short } else { 0 });
        let behind = shrunk(tokens - prefix_tokens, plan.prompt_length);
        let fresh = missing + behind.div_ceil(block);
        prefix.extend(self.fresh..self.fresh + fresh);
        self.fresh += fresh;
        let most = plan
            .input_tokens_most
            .map_or(u64::from(u32::MAX), u64::from);
        let tokens = (kept + behind).clamp(1, most);
        // Blocks that a limit on the length leaves no room for.
        prefix.truncate(usize::try_from(tokens.div_ceil(block)).unwrap_or(usize::MAX));
        asked.ids = prefix;
        asked.tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    }
}

/// `count` times `factor`, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn stretched(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).ceil() as u64
}

/// `count` times `factor`, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn shrunk(count: u64, factor: f64) -> u64 {
    (count as f64 * factor) as u64
}
