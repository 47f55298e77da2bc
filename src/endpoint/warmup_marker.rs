//! A marker in a body that is already made.
//!
//! In: a chat body and a marker. Out: the body with the marker before its system message or its first turn. Never: another change.

use serde_json::{Value, json};

/// Puts `marker` and `gap` before the system message (which is made where there is none) or before the first message of the user. A body
/// that is not JSON, or has no such message, stays as it is.
#[must_use]
pub fn insert_marker(body: &[u8], system: bool, marker: &str, gap: &str) -> Vec<u8> {
    let marked = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|mut value| {
            let messages = value.get_mut("messages")?.as_array_mut()?;
            let wanted: &[&str] = if system {
                &["system", "developer"]
            } else {
                &["user"]
            };
            let is_wanted = |message: &Value| {
                let role = message["role"].as_str();
                role.is_some_and(|role| wanted.contains(&role))
            };
            match messages.iter_mut().find(|message| is_wanted(message)) {
                Some(message) => put_before(&mut message["content"], &format!("{marker}{gap}"))?,
                None if system => {
                    messages.insert(0, json!({"role": "system", "content": marker}));
                }
                None => return None,
            }
            Some(value.to_string().into_bytes())
        });
    marked.unwrap_or_else(|| body.to_vec())
}

/// Before a text, or before the first text of a list of parts; one that has no text gets one.
fn put_before(content: &mut Value, words: &str) -> Option<()> {
    match content {
        Value::String(text) => text.insert_str(0, words),
        Value::Array(parts) => {
            let text = parts.iter_mut().find_map(|part| part.get_mut("text"));
            match text {
                Some(Value::String(text)) => text.insert_str(0, words),
                _ => parts.insert(0, json!({"type": "text", "text": words})),
            }
        }
        _ => return None,
    }
    Some(())
}
