//! What `inputs.json` is written from.
//!
//! In: the dataset of a run, loaded or streamed. Out: its conversations in the order of the file, before the load where they are known then. Never: all bodies of a streamed one at
//! once, or hours of work for one file.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use crate::config::Secrets;
use crate::endpoint::Renderer;
use crate::report::{ArtifactNames, InputBodies, Inputs, ReportError, tell, write_inputs};

use super::prepare::Prepared;

/// Requests of a streamed dataset beyond which there is no `inputs.json`: it would hold every prompt once more, each made again.
const STREAMED_MOST: u64 = 1_000_000;

/// Writes the file of a loaded dataset, before the load: a run that is killed has it too. A streamed one's bodies are not known yet.
pub(super) fn write_loaded(prepared: &Prepared) -> Result<(), ReportError> {
    let material = &prepared.material;
    if material.streamed.is_some() {
        return Ok(());
    }
    let conversations = &material.corpus.conversations;
    let conversation = |index: usize| {
        let conversation = conversations.get(index)?;
        let turns = 0..conversation.turns.len();
        let bodies = turns.filter_map(|turn| prepared.body(index, turn));
        Some((conversation.id.clone(), bodies.collect()))
    };
    let names = ArtifactNames::new(&material.plan.output);
    let bodies = InputBodies {
        count: conversations.len(),
        secrets: &Secrets::of(&material.plan.endpoint),
        conversation: &conversation,
    };
    write_inputs(&names, &bodies)
}

/// Calls `write` with what there is to do at the end: the bodies of a streamed dataset, unless they are too many.
pub(super) fn with<T>(prepared: &Prepared, write: impl FnOnce(Inputs<'_>) -> T) -> T {
    let material = &prepared.material;
    let Some(streamed) = &material.streamed else {
        return write(Inputs::Written);
    };
    let secrets = &Secrets::of(&material.plan.endpoint);
    let count = material.timeline.len();
    if streamed.request_count() > STREAMED_MOST {
        tell(&format!(
            "Note: inputs.json is not written for a streamed dataset of more than {STREAMED_MOST} requests"
        ));
        return write(Inputs::Never);
    }
    let maker = match streamed.maker(&material.plan, &*prepared.tokenizer, 1) {
        Ok(maker) => RefCell::new(maker),
        Err(error) => {
            tell(&format!("Note: inputs.json is not written: {error}"));
            return write(Inputs::Never);
        }
    };
    let numbers = material.timeline.conversations();
    let renderer = Renderer::new(&material.api);
    let missing = Cell::new(None);
    let conversation = |index: usize| {
        let number = numbers.at(index)?;
        match maker.borrow_mut().make(0, number) {
            Ok(conversation) => {
                let made = renderer.make(conversation);
                let bodies = made.bodies().map(Cow::Owned).collect();
                Some((made.id, bodies))
            }
            Err(error) => {
                missing.set(Some(error));
                None
            }
        }
    };
    let written = write(Inputs::Now(&InputBodies {
        count,
        secrets,
        conversation: &conversation,
    }));
    if let Some(error) = missing.take() {
        tell(&format!("Note: inputs.json is not whole: {error}"));
    }
    written
}
