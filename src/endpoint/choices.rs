//! Replies with a list of `choices`, as OpenAI's older APIs give them.
//!
//! In: a reply object. Out: whether it is the dialect's own, and its choices. Never: what a choice says; that is the dialect's.

use serde_json::Value;

use super::{OtherChoice, Said};

/// What `object` may say in replies of a dialect.
pub(super) struct Objects(pub(super) [&'static str; 2]);

impl Objects {
    /// The reply is one of them; one without `object`, which some servers send, is taken for one.
    pub(super) fn include(&self, root: &Value) -> bool {
        match root.get("object") {
            None | Some(Value::Null) => root.is_object(),
            Some(Value::String(object)) => self.0.contains(&object.as_str()),
            Some(_) => false,
        }
    }

    /// As [`Objects::include`], of a value as it is written; `null` is none.
    pub(super) fn include_raw(&self, object: &[u8]) -> bool {
        let name = object
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        object == b"null" || name.is_some_and(|name| self.0.iter().any(|o| o.as_bytes() == name))
    }
}

/// The choice with index 0; one without an index is taken for it.
pub(super) fn first(root: &mut Value) -> Option<&mut Value> {
    let choices = root.get_mut("choices")?.as_array_mut()?;
    choices.iter_mut().find(|choice| match choice.get("index") {
        Some(Value::Number(index)) => index.as_u64() == Some(0),
        _ => choice.is_object(),
    })
}

/// What the choices besides the first say, as far as they say anything.
pub(super) fn others(root: &mut Value, said: impl Fn(&mut Value) -> Said) -> Vec<OtherChoice> {
    let choices = root.get_mut("choices").and_then(Value::as_array_mut);
    let other = |choice: &mut Value| {
        let index = choice.get("index")?.as_u64().filter(|&index| index > 0)?;
        let said = said(choice);
        (!said.is_empty()).then_some(OtherChoice { index, said })
    };
    choices.into_iter().flatten().filter_map(other).collect()
}
