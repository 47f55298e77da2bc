//! `template`: bodies that the user writes.
//!
//! In: a Jinja template that renders JSON, and turns. Out: bodies; pieces. Never: a template from a dataset's line, or one that runs
//! without end or fills the memory (`jinja`).

use std::path::Path;

use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, Request, Seen};
use super::found::Answer;
use super::{ApiError, Input, Parsed, Piece, parts, raw};
use crate::config::EndpointPlan;
use crate::dataset::{MediaKind, Turn};
use crate::jinja::{Jinja, STEPS_MAX};

/// Templates that have a name.
const NAMED: &[(&str, &str)] = &[("nv-embedqa", r#"{"text": {{ texts|tojson }}}"#)];

/// What the template has in the environment, and in sentences about it.
const NAME: &str = "payload_template";

/// Extra inputs that are settings of this program and no fields of the body.
const SETTINGS: &[&str] = &["payload_template", "response_field"];

/// The dialect.
#[derive(Debug)]
pub(super) struct Template {
    template: Jinja,
    answer: Answer,
    streaming: bool,
    extras: Map<String, Value>,
}

impl Template {
    /// The template that the extra input `payload_template` names, is, or has in a file.
    pub(super) fn new(plan: &EndpointPlan) -> Result<Template, ApiError> {
        let refused = |sentence: String| ApiError(format!("--extra-inputs {NAME} {sentence}"));
        let given = match plan.extra_inputs.get(NAME) {
            Some(Value::String(given)) => given.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            None => NAMED[0].0.to_owned(),
            Some(other) => {
                return Err(refused(format!(
                    "{other} is no text; give a template, a file with one, or nv-embedqa"
                )));
            }
        };
        let named = NAMED.iter().find(|(name, _)| *name == given);
        let source = match named {
            Some((_, source)) => (*source).to_owned(),
            // What has a brace is no file's name.
            None if !given.contains('{') && Path::new(&given).is_file() => {
                std::fs::read_to_string(&given).map_err(|error| {
                    refused(format!("{given:?} cannot be read as UTF-8 text: {error}"))
                })?
            }
            None if !given.contains('{') => {
                return Err(refused(format!(
                    "{given:?} is neither nv-embedqa, a file, nor a template with a {{"
                )));
            }
            None => given,
        };
        let template = Jinja::new(Environment::new(), NAME, source, false)
            .map_err(|error| refused(place(&error)))?;
        let extras = plan.extra_inputs.iter();
        let extras = extras.filter(|(name, _)| !SETTINGS.contains(&name.as_str()));
        Ok(Template {
            template,
            answer: Answer::new(&plan.extra_inputs)?,
            streaming: plan.streaming,
            extras: extras
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    /// The body of a turn, or what is wrong with it.
    fn render(&self, turn: &Turn) -> Result<Value, String> {
        let rendered = self
            .template
            .render(minijinja::Value::from_serialize(self.variables(turn)))
            .map_err(|error| format!("--extra-inputs {NAME} {}", place(&error)))?;
        let mut body: Value = serde_json::from_str(&rendered).map_err(|error| {
            format!(
                "--extra-inputs {NAME} does not render JSON: {error} of what it renders; write texts as {{{{ text|tojson }}}}"
            )
        })?;
        if let Value::Object(fields) = &mut body {
            for (name, value) in self.extras.iter().chain(&turn.extra) {
                fields.insert(name.clone(), value.clone());
            }
        }
        Ok(body)
    }

    /// What a template may ask for.
    fn variables(&self, turn: &Turn) -> Value {
        let media = |kind| parts::of_kind(turn, kind).collect::<Vec<&str>>();
        let named = |names: &[&str]| -> Vec<&str> {
            let texts = turn.texts.iter().zip(&turn.text_names);
            let texts = texts.filter(|(_, name)| names.contains(&name.as_str()));
            texts.map(|(text, _)| text.as_str()).collect()
        };
        let (images, audios, videos) = (
            media(MediaKind::Image),
            media(MediaKind::Audio),
            media(MediaKind::Video),
        );
        let (queries, passages) = (
            named(&["query", "queries"]),
            named(&["passage", "passages"]),
        );
        let mut texts_by_name = Map::new();
        for name in &turn.text_names {
            texts_by_name.insert(name.clone(), json!(named(&[name])));
        }
        let by_name = |kind| {
            let mut found: Map<String, Value> = Map::new();
            for media in turn.media.iter().filter(|media| media.kind == kind) {
                if let Some(name) = &media.name {
                    let list = found.entry(&**name).or_insert_with(|| json!([]));
                    if let Value::Array(list) = list {
                        list.push(json!(media.content));
                    }
                }
            }
            found
        };
        let this = json!({"texts": turn.texts, "role": parts::role(turn), "model": turn.model, "max_tokens": turn.max_tokens});
        json!({
            "texts": turn.texts, "text": turn.texts.first(), "texts_by_name": texts_by_name,
            "images": images, "image": images.first(), "audios": audios, "audio": audios.first(),
            "videos": videos, "video": videos.first(),
            "images_by_name": by_name(MediaKind::Image), "audios_by_name": by_name(MediaKind::Audio),
            "videos_by_name": by_name(MediaKind::Video),
            "queries": queries, "query": queries.first(), "passages": passages, "passage": passages.first(),
            "model": turn.model, "max_tokens": turn.max_tokens, "role": parts::role(turn), "stream": self.streaming,
            "turn": this, "turns": [this], "request_info": {"model": turn.model, "stream": self.streaming},
        })
    }
}

impl Dialect for Template {
    fn body(&self, request: &Request<'_>) -> Vec<u8> {
        // That it renders has been checked.
        self.render(request.this())
            .unwrap_or_default()
            .to_string()
            .into_bytes()
    }

    fn check(&self, turn: &Turn) -> Result<(), String> {
        self.render(turn).map(|_| ())
    }

    fn piece(&self, root: &mut Value, _seen: Seen) -> Piece {
        self.answer.piece(root)
    }

    fn read(&self, data: &[u8], seen: Seen) -> Parsed {
        raw::read(self, data, seen)
    }

    /// What an event carries is found with a tree, and none may be built for this question.
    fn shows_content(&self, _data: &[u8]) -> bool {
        false
    }

    fn says(&self, body: &Value, input: &mut Input) {
        raw::says(body, input);
    }

    fn probe(&self, model: &str) -> Vec<u8> {
        let turn = Turn {
            texts: vec!["Lo".to_owned()],
            model: model.to_owned(),
            max_tokens: Some(1),
            ..Turn::default()
        };
        self.render(&turn)
            .unwrap_or_default()
            .to_string()
            .into_bytes()
    }
}

/// Line and reason of a template's error.
fn place(error: &minijinja::Error) -> String {
    let line = error
        .line()
        .map_or_else(String::new, |line| format!("line {line}: "));
    let detail = match error.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {STEPS_MAX} steps"),
        kind => error
            .detail()
            .map_or_else(|| kind.to_string(), str::to_owned),
    };
    format!("{line}{detail}")
}
