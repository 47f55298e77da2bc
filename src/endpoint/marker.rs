//! A marker in a body that is already made.
//!
//! In: the fields of a body, and where its dialect has messages. Out: the body with the marker before its system message or its first turn.
//! Never: another change.

use serde_json::{Map, Value, json};

/// What is put before a message, and before which.
#[derive(Clone, Copy, Debug)]
pub struct Marker<'a> {
    /// The marker.
    pub text: &'a str,
    /// Between it and the message.
    pub gap: &'a str,
    /// Before the system message, which is made where there is none; else before the first message of the user.
    pub system: bool,
}

impl Marker<'_> {
    /// In a body whose list of messages has the system's too.
    pub(super) fn in_messages(&self, body: &mut Map<String, Value>, list: &str) -> Option<()> {
        let words = format!("{}{}", self.text, self.gap);
        in_messages(body.get_mut(list)?, self.system, self.text, &words)
    }

    /// In a body that has the system message in a field of its own.
    pub(super) fn beside_messages(
        &self,
        body: &mut Map<String, Value>,
        field: &str,
        list: &str,
    ) -> Option<()> {
        if !self.system {
            return self.in_messages(body, list);
        }
        match body.get_mut(field) {
            Some(content) => put_before(content, &format!("{}{}", self.text, self.gap)),
            None => {
                body.insert(field.to_owned(), Value::from(self.text));
                Some(())
            }
        }
    }
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
    use super::super::Api;
    use super::*;
    use crate::config::{EndpointKind, EndpointPlan};

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
            let kind = EndpointKind::named(dialect).unwrap();
            let api = Api::new(&EndpointPlan::plain(kind)).unwrap();
            let (text, gap) = ("M", " ");
            let marked = api.marked(body.as_bytes(), &Marker { text, gap, system });
            let marked = String::from_utf8(marked).unwrap();
            assert_eq!(marked, wanted, "{dialect} {system}");
        }
    }
}
