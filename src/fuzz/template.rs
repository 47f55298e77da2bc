//! Templates and reply paths of the user's, or of a model's files.
//!
//! In: arbitrary bytes. Out: a panic, or an end that does not come. Never: a file.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::config::{EndpointKind, EndpointPlan};
use crate::endpoint::Api;
use crate::tokenizer::{ChatTemplate, Dialogue};

/// A template, a reply path, and JSON, with a zero byte between: the template is a chat template for the JSON as its messages, and the
/// body of an API whose reply the JSON is. Whatever stands there is refused or ends, with the same result twice.
///
/// # Panics
/// When it does not.
pub fn template(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(3, '\0');
    let mut part = || parts.next().unwrap_or_default();
    let (source, path, reply) = (part(), part(), part());
    let messages = match serde_json::from_str(reply) {
        Ok(Value::Array(messages)) => messages,
        Ok(other) => vec![other],
        Err(_) => vec![json!({"role": "user", "content": reply})],
    };
    let tokens = [("bos_token".to_owned(), "<s>".to_owned())];
    let now = jiff::Timestamp::UNIX_EPOCH.to_zoned_datetime(TimeZone::UTC);
    if let Ok(template) = ChatTemplate::new(source, &tokens, now) {
        let dialogue = Dialogue {
            messages,
            ..Dialogue::default()
        };
        let again = || template.render_as_given(&dialogue, true);
        assert_eq!(again(), again(), "rendered twice");
    }
    let mut plan = EndpointPlan::plain(EndpointKind::Template);
    // What has no brace would be looked for as a file.
    if source.contains('{') {
        plan.extra_inputs
            .insert("payload_template".to_owned(), source.into());
    }
    plan.extra_inputs
        .insert("response_field".to_owned(), path.into());
    if let Ok(api) = Api::new(&plan) {
        let _ = api.probe("model");
        let read = || api.parse(reply.as_bytes());
        assert_eq!(read(), read(), "read twice");
    }
}
