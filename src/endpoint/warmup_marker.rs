//! A marker in a body that is already made.
//!
//! In: a body of chat, responses or messages, and a marker. Out: the body with the marker before its system message or its first turn. Never:
//! another change.

use serde_json::{Map, Value, json};

/// Puts `marker` and `gap` before the system message (which is made where there is none) or before the first message of the user. `dialect`
/// is the name of the API, which says where those stand. A body that is not JSON, or has no such message, stays as it is.
#[must_use]
pub fn insert_marker(dialect: &str, body: &[u8], system: bool, marker: &str, gap: &str) -> Vec<u8> {
    let words = format!("{marker}{gap}");
    let marked = serde_json::from_slice(body)
        .ok()
        .and_then(|mut object: Map<String, Value>| {
            let (list, field) = match dialect {
                "responses" => ("input", Some("instructions")),
                "messages" => ("messages", Some("system")),
                _ => ("messages", None),
            };
            match field {
                Some(field) if system => match object.get_mut(field) {
                    Some(content) => put_before(content, &words)?,
                    None => {
                        object.insert(field.to_owned(), Value::from(marker));
                    }
                },
                _ => in_messages(object.get_mut(list)?, system, marker, &words)?,
            }
            Some(Value::Object(object).to_string().into_bytes())
        });
    marked.unwrap_or_else(|| body.to_vec())
}

/// In a list of messages, or a text that stands for one of the user.
fn in_messages(messages: &mut Value, system: bool, marker: &str, words: &str) -> Option<()> {
    let Value::Array(messages) = messages else {
        return put_before(messages, words);
    };
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
        Some(message) => put_before(&mut message["content"], words),
        None if system => {
            messages.insert(0, json!({"role": "system", "content": marker}));
            Some(())
        }
        None => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_stands_where_each_dialect_has_the_system_and_the_user() {
        let (system, user) = (true, false);
        let cases = [
            (
                "responses",
                system,
                r#"{"input":"u","n":1}"#,
                r#"{"input":"u","n":1,"instructions":"M"}"#,
            ),
            (
                "responses",
                system,
                r#"{"instructions":"s","input":[]}"#,
                r#"{"instructions":"M s","input":[]}"#,
            ),
            (
                "responses",
                user,
                r#"{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"u"}]}]}"#,
                r#"{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"M u"}]}]}"#,
            ),
            ("responses", user, r#"{"input":"u"}"#, r#"{"input":"M u"}"#),
            (
                "messages",
                system,
                r#"{"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"messages":[{"role":"user","content":"u"}],"system":"M"}"#,
            ),
            (
                "messages",
                system,
                r#"{"messages":[],"system":[{"type":"text","text":"s"}]}"#,
                r#"{"messages":[],"system":[{"type":"text","text":"M s"}]}"#,
            ),
            (
                "messages",
                user,
                r#"{"messages":[{"role":"user","content":"u"}],"system":"s"}"#,
                r#"{"messages":[{"role":"user","content":"M u"}],"system":"s"}"#,
            ),
            ("chat", user, "no JSON", "no JSON"),
            ("chat", user, r#"{"messages":[]}"#, r#"{"messages":[]}"#),
        ];
        for (dialect, system, body, wanted) in cases {
            let marked = insert_marker(dialect, body.as_bytes(), system, "M", " ");
            let marked = String::from_utf8(marked).unwrap();
            assert_eq!(marked, wanted, "{dialect} {system}");
        }
    }
}
