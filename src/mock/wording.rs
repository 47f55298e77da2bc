//! How each API words a reply.
//!
//! In: what has been said. Out: the JSON of events and of whole replies. Never: a header, a frame or a pace.

use serde_json::{Map, Value, json};

use super::api::Api;

/// What a reply is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    /// The reply's id.
    pub(super) id: &'a str,
    /// When the server started, in seconds since the Unix epoch.
    pub(super) created: u64,
    /// The model that was asked for.
    pub(super) model: &'a str,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: u64,
    /// Tokens said so far.
    pub(super) tokens: u32,
    /// All that was said so far.
    pub(super) text: &'a str,
}

/// An event: its name, empty where the API does not name events, and its data.
pub(super) type Event = (&'static str, Value);

impl Api {
    /// Id of reply `number`.
    pub(super) fn id(self, number: u64) -> String {
        let prefix = match self {
            Api::Chat => "chatcmpl-",
            Api::Completions => "cmpl-",
            Api::Responses => "resp_",
            Api::Messages => "msg_",
            _ => "",
        };
        format!("{prefix}{number:016x}")
    }

    /// A content event before and after its text. `usage` stands behind the choices of the older APIs.
    pub(super) fn around_text(self, said: Said<'_>, usage: &str) -> (String, String) {
        let (id, created, model) = (said.id, said.created, json!(said.model));
        let chunk = |object: &str, delta: &str| {
            format!(
                r#"data: {{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":[{{"index":0,{delta}"#
            )
        };
        let chosen = |end: &str| format!(r#"{end},"logprobs":null,"finish_reason":null}}]{usage}"#);
        match self {
            Api::Chat => (
                chunk("chat.completion.chunk", r#""delta":{"content":""#),
                chosen(r#""}"#),
            ),
            Api::Completions => (chunk("text_completion", r#""text":""#), chosen(r#"""#)),
            Api::Responses => (
                format!(
                    "event: response.output_text.delta\ndata: \
                     {{\"type\":\"response.output_text.delta\",\"item_id\":\"{id}-0\",\"output_index\":0,\"content_index\":0,\"delta\":\""
                ),
                "\"".to_owned(),
            ),
            Api::Messages => (
                "event: content_block_delta\ndata: \
                 {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\""
                    .to_owned(),
                "\"}".to_owned(),
            ),
            Api::Generate | Api::GenerateStream => (
                r#"data: {"token":{"id":0,"logprob":0.0,"special":false,"text":""#.to_owned(),
                r#""},"generated_text":null,"details":null"#.to_owned(),
            ),
            Api::Rag => (r#"data: {"content":""#.to_owned(), "\"".to_owned()),
            // Nothing of these is streamed.
            Api::Transcriptions | Api::Numbers(_) => (String::new(), String::new()),
        }
    }

    /// What stands before the first content event, for the APIs that name their events.
    pub(super) fn opening(self, said: Said<'_>) -> Vec<Event> {
        match self {
            Api::Responses => {
                let response = response(said, "in_progress", &json!([]), &Value::Null);
                let item = json!({"type": "message", "id": item_id(said), "role": "assistant",
                    "status": "in_progress", "content": []});
                vec![
                    named("response.created", json!({"response": response})),
                    named(
                        "response.output_item.added",
                        json!({"output_index": 0, "item": item}),
                    ),
                    named(
                        "response.content_part.added",
                        json!({"item_id": item_id(said), "output_index": 0, "content_index": 0, "part": part("")}),
                    ),
                ]
            }
            Api::Messages => {
                let usage = json!({"input_tokens": said.prompt_tokens, "output_tokens": 0});
                let message = message(said, &json!([]), &Value::Null, &usage);
                let block = json!({"type": "text", "text": ""});
                vec![
                    named("message_start", json!({"message": message})),
                    named(
                        "content_block_start",
                        json!({"index": 0, "content_block": block}),
                    ),
                    named("ping", json!({})),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// What follows the last content event, for all but the older APIs.
    pub(super) fn closing(self, said: Said<'_>) -> Vec<Event> {
        match self {
            Api::Responses => {
                let place =
                    json!({"item_id": item_id(said), "output_index": 0, "content_index": 0});
                let with = |name: &str, value: Value| {
                    let mut data = place.clone();
                    data[name] = value;
                    data
                };
                vec![
                    named("response.output_text.done", with("text", json!(said.text))),
                    named("response.content_part.done", with("part", part(said.text))),
                    named(
                        "response.output_item.done",
                        json!({"output_index": 0, "item": item(said)}),
                    ),
                    named("response.incomplete", json!({"response": self.whole(said)})),
                ]
            }
            Api::Messages => {
                let delta = json!({"stop_reason": "max_tokens", "stop_sequence": null});
                let usage = json!({"output_tokens": said.tokens});
                vec![
                    named("content_block_stop", json!({"index": 0})),
                    named("message_delta", json!({"delta": delta, "usage": usage})),
                    named("message_stop", json!({})),
                ]
            }
            Api::GenerateStream => {
                let token = json!({"id": 0, "logprob": 0.0, "special": true, "text": "</s>"});
                let mut last = self.whole(said);
                last["token"] = token;
                vec![("", last)]
            }
            Api::Rag => vec![("", json!({"content": "", "sources": []}))],
            _ => Vec::new(),
        }
    }

    /// The whole reply of a request that does not stream.
    pub(super) fn whole(self, said: Said<'_>) -> Value {
        let text = said.text;
        match self {
            Api::Chat => {
                let message = json!({"role": "assistant", "content": text});
                completion(said, "chat.completion", &json!({"message": message}))
            }
            Api::Completions => completion(said, "text_completion", &json!({"text": text})),
            Api::Responses => {
                let usage = json!({
                    "input_tokens": said.prompt_tokens,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": said.tokens,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": said.prompt_tokens + u64::from(said.tokens),
                });
                response(said, "incomplete", &json!([item(said)]), &usage)
            }
            Api::Messages => {
                let usage =
                    json!({"input_tokens": said.prompt_tokens, "output_tokens": said.tokens});
                let content = json!([{"type": "text", "text": text}]);
                message(said, &content, &json!("max_tokens"), &usage)
            }
            Api::Generate | Api::GenerateStream => json!({
                "generated_text": text,
                "details": {"finish_reason": "length", "generated_tokens": said.tokens, "seed": null,
                    "input_length": said.prompt_tokens},
            }),
            Api::Rag => json!({"content": text, "sources": []}),
            Api::Transcriptions => json!({"text": text.trim_start()}),
            // The order has the answer.
            Api::Numbers(_) => Value::Null,
        }
    }
}

/// Usage in the older APIs' spelling.
pub(super) fn usage(said: Said<'_>) -> Value {
    json!({
        "prompt_tokens": said.prompt_tokens,
        "completion_tokens": said.tokens,
        "total_tokens": said.prompt_tokens + u64::from(said.tokens),
    })
}

/// A whole reply of the older APIs with the words of its only choice.
fn completion(said: Said<'_>, object: &str, words: &Value) -> Value {
    let mut choice = json!({"index": 0});
    for (name, value) in words.as_object().into_iter().flatten() {
        choice[name] = value.clone();
    }
    choice["logprobs"] = Value::Null;
    choice["finish_reason"] = json!("length");
    json!({
        "id": said.id, "object": object, "created": said.created, "model": said.model,
        "choices": [choice], "usage": usage(said),
    })
}

/// An event whose data repeats its name.
fn named(name: &'static str, fields: Value) -> Event {
    let mut data = Map::new();
    data.insert("type".to_owned(), Value::from(name));
    if let Value::Object(fields) = fields {
        data.extend(fields);
    }
    (name, Value::Object(data))
}

fn response(said: Said<'_>, status: &str, output: &Value, usage: &Value) -> Value {
    let why = match status {
        "incomplete" => json!({"reason": "max_output_tokens"}),
        _ => Value::Null,
    };
    json!({
        "id": said.id, "object": "response", "created_at": said.created, "status": status, "error": null,
        "incomplete_details": why, "model": said.model, "output": output, "usage": usage,
    })
}

fn message(said: Said<'_>, content: &Value, stop: &Value, usage: &Value) -> Value {
    json!({
        "id": said.id, "type": "message", "role": "assistant", "model": said.model, "content": content,
        "stop_reason": stop, "stop_sequence": null, "usage": usage,
    })
}

fn item_id(said: Said<'_>) -> String {
    format!("{}-0", said.id)
}

fn item(said: Said<'_>) -> Value {
    json!({"type": "message", "id": item_id(said), "role": "assistant", "status": "incomplete",
        "content": [part(said.text)]})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "text": text})
}
