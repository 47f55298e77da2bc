//! JSON bodies, as far as dialects agree.
//!
//! In: a request and its built-in fields. Out: JSON bytes in AIPerf's key order, without spaces. Never: an unasked field.

use serde_json::{Map, Value};

use super::dialect::Request;

/// Fields of a body, in order.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// None yet.
    pub(super) fn new() -> Fields {
        Fields(Map::new())
    }

    /// Sets a field.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Sets a field if there is a value.
    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Sets what the user and the turn want there besides, over what is there.
    pub(super) fn extend(&mut self, request: &Request<'_>) {
        let extras = request.plan.extra_inputs.iter();
        for (name, value) in extras.chain(&request.this().extra) {
            self.0.insert(name.clone(), value.clone());
        }
    }

    /// Asks for usage in a stream: adds to `stream_options` what the user has not set; one that is no object is the user's own
    /// affair.
    pub(super) fn ask_for_usage(&mut self, request: &Request<'_>) {
        if !request.plan.streaming {
            return;
        }
        let options = self
            .0
            .entry("stream_options")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(options) = options {
            options.entry("include_usage").or_insert(Value::Bool(true));
            if request.plan.per_chunk_usage {
                options
                    .entry("continuous_usage_stats")
                    .or_insert(Value::Bool(true));
            }
        }
    }

    /// The body.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        Value::Object(self.0).to_string().into_bytes()
    }
}

/// One text as a string, several as a list.
pub(super) fn one_or_list(texts: &[String]) -> Value {
    match texts {
        [text] => Value::from(text.as_str()),
        texts => Value::from(texts.to_vec()),
    }
}
