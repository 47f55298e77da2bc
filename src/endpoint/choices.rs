//! Replies with a list of `choices`, as OpenAI's older APIs give them.
//!
//! In: a reply object. Out: whether it is the dialect's own, and its choice. Never: what the choice says.

use serde_json::Value;

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
