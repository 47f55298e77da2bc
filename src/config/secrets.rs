//! What may stand in no file, and on no screen.
//!
//! In: the endpoint's plan. Out: texts with its secrets hidden. Never: shows one of them, not even to a debugger's print.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::echo::{REDACTED, is_secret_field, is_secret_header};
use super::plan::EndpointPlan;

/// Shorter ones are placeholders (`EMPTY`, `none`), which servers that ask for no key are given; to hide them wherever they stand would
/// tear holes into texts that hold no secret.
const SHORTEST: usize = 6;

/// The keys and passwords of a run, to be found in what a server sends back.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The longest first, so that none is hidden only in part.
    texts: Vec<String>,
}

impl Secrets {
    /// Those of `plan`: its key, the values of secret headers, secret parameters of URLs and secret fields of bodies.
    #[must_use]
    pub fn of(plan: &EndpointPlan) -> Secrets {
        let mut secrets = Secrets::default();
        secrets.texts.extend(plan.api_key.clone());
        let headers = plan.headers.iter();
        for (_, value) in headers.filter(|(name, _)| is_secret_header(name)) {
            secrets.header(value);
        }
        for url in &plan.urls {
            secrets.query(&url.target);
        }
        for (name, value) in &plan.extra_inputs {
            secrets.field(is_secret_field(name), value);
        }
        secrets.settle()
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// `text` with each secret replaced by [`REDACTED`].
    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in &self.texts {
            if shown.contains(secret) {
                shown = Cow::Owned(shown.replace(secret, REDACTED));
            }
        }
        shown
    }

    /// Hides them in `text` itself.
    pub fn hide_in(&self, text: &mut String) {
        if let Cow::Owned(shown) = self.hide(text) {
            *text = shown;
        }
    }

    /// The whole value, and each of its words: servers name the key without the scheme before it, or one cookie of several.
    fn header(&mut self, value: &str) {
        self.texts.push(value.to_owned());
        for word in value.split([' ', ';', ',']) {
            let key = word.split_once('=').map(|(_, value)| value);
            self.texts.push(word.to_owned());
            self.texts.extend(key.map(str::to_owned));
        }
    }

    fn query(&mut self, target: &str) {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        for parameter in query.split('&') {
            if let Some((name, value)) = parameter.split_once('=')
                && is_secret_field(name)
            {
                self.texts.push(value.to_owned());
                self.texts.push(decoded(value));
            }
        }
    }

    fn field(&mut self, secret: bool, value: &Value) {
        match value {
            Value::String(text) if secret => self.texts.push(text.clone()),
            Value::Number(number) if secret => self.texts.push(number.to_string()),
            Value::Object(inner) => {
                for (name, value) in inner {
                    self.field(secret || is_secret_field(name), value);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.field(secret, item);
                }
            }
            _ => {}
        }
    }

    /// Adds how each is written inside JSON, and puts them in order.
    fn settle(mut self) -> Secrets {
        let quoted = self.texts.iter().map(|text| {
            let quoted = Value::from(text.as_str()).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        });
        let quoted: Vec<String> = quoted.collect();
        self.texts.extend(quoted);
        self.texts.retain(|text| text.len() >= SHORTEST);
        self.texts
            .sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        self.texts.dedup();
        self
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.texts.len())
    }
}

/// Percent-decoded; what is no UTF-8 then stays as it was.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let coded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match coded.filter(|_| byte == b'%') {
            Some(coded) => {
                bytes.push(coded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{EndpointKind, join};

    fn secrets() -> Secrets {
        let mut plan = EndpointPlan::plain(EndpointKind::Chat);
        plan.api_key = Some("sk-\"quoted\"-key".to_owned());
        let headers = [
            ("Authorization", "Bearer header-key-1"),
            ("Cookie", "a=cookie-one; b=cookie-two"),
            ("X-Plain", "nothing-secret"),
        ];
        plan.headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let url = join("h/v1?api-key=query%2Dkey&model=plain-value", "/x");
        plan.urls = vec![url.expect("it is right")];
        let inputs =
            json!({"max_tokens": 1_000_000, "auth": {"password": ["in-body"]}, "key": "EMPTY"});
        plan.extra_inputs = inputs.as_object().expect("it is one").clone();
        Secrets::of(&plan)
    }

    #[test]
    fn secrets_are_hidden_however_they_are_told() {
        let secrets = secrets();
        for (told, shown) in [
            ("no sk-\"quoted\"-key here", "no <redacted> here"),
            (r#"{"key":"sk-\"quoted\"-key"}"#, r#"{"key":"<redacted>"}"#),
            ("Bearer header-key-1", "<redacted>"),
            (
                "the key header-key-1 is wrong",
                "the key <redacted> is wrong",
            ),
            ("cookie-two and cookie-one", "<redacted> and <redacted>"),
            ("query%2Dkey or query-key", "<redacted> or <redacted>"),
            ("in-body", "<redacted>"),
            (
                "nothing-secret, plain-value, 1000000",
                "nothing-secret, plain-value, 1000000",
            ),
            ("EMPTY", "EMPTY"),
        ] {
            assert_eq!(secrets.hide(told), shown);
            let mut text = told.to_owned();
            secrets.hide_in(&mut text);
            assert_eq!(text, shown);
        }
        assert!(!format!("{secrets:?}").contains("key"));
        assert!(Secrets::of(&EndpointPlan::plain(EndpointKind::Chat)).is_empty());
    }

    #[test]
    fn percent_signs_are_decoded_where_they_code_something() {
        for (coded, plain) in [
            ("a%2Fb", "a/b"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(decoded(coded), plain);
        }
    }
}
