//! The input tokens of a body.
//!
//! In: a request body, the tokenizer with its chat template if one is to be applied. Out: its tokens, and those that are the
//! template's. Never: special tokens twice: a template writes its own.

use crate::endpoint::{Api, dialogue};
use crate::tokenizer::{Dialogue, Tokenizer};

/// What a body comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputCount {
    /// Tokens of all that the model is given.
    pub(super) tokens: u64,
    /// Those of them that no text of the body has: the chat template's. `None` when none was applied.
    pub(super) template: Option<u64>,
    /// A template was to be applied, and refused these messages.
    pub(super) refused: bool,
}

/// Counts `body`: its texts joined by one space as AIPerf does, or with a chat template the text that this makes of its messages.
pub(super) fn input_count(api: &Api, tokenizer: &dyn Tokenizer, body: &[u8]) -> InputCount {
    let input = api.input(body);
    let plain = tokenizer.count(&input.texts.join(" ")) as u64 + input.token_ids;
    let mut count = InputCount {
        tokens: plain,
        ..InputCount::default()
    };
    let Some((template, said)) = tokenizer.chat_template().zip(dialogue(body)) else {
        return count;
    };
    let said = Dialogue {
        messages: said.messages,
        tools: said.tools,
        variables: said.variables,
    };
    match template.render(&said) {
        Ok(text) => {
            count.tokens = tokenizer.count(&text) as u64;
            count.template = Some(count.tokens.saturating_sub(plain));
        }
        Err(_) => count.refused = true,
    }
    count
}
