//! Chat templates: what a server makes of messages before it counts their tokens.
//!
//! In: a template of a model's `tokenizer_config.json`, messages, tools. Out: the text that the model is given. Never: a file, the
//! network, or a template that runs without end or fills the memory (`jinja`).
//!
//! The rules are those of Jinja as `transformers` sets it up: blocks take their line with them, loops may break, tools are written
//! as Python's `json.dumps` writes them, and what is printed is printed as Python prints it.

mod generation;
mod json;
mod python;

use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Map;

use crate::jinja::{Jinja, TEMPLATE_BYTES_MAX};

/// The name of the one template inside.
const NAME: &str = "chat_template";

/// A word that a template is tried with.
const PROBE: &str = "Hello";

/// What a template is given, besides the special tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialogue {
    /// Messages with role and content, in the form of the chat API.
    pub messages: Vec<serde_json::Value>,
    /// Tools in the form of the chat API.
    pub tools: Option<serde_json::Value>,
    /// Variables of the request, such as `enable_thinking`; they go before special tokens, and not before messages and tools.
    pub variables: Map<String, serde_json::Value>,
}

/// A compiled chat template.
///
/// ```
/// use tokenring::tokenizer::{ChatTemplate, Dialogue};
/// let source = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}";
/// let template = ChatTemplate::new(source, &[], jiff::ZonedDateTime::now()).unwrap();
/// let messages = vec![serde_json::json!({"role": "user", "content": "Hi"})];
/// let dialogue = Dialogue { messages, ..Dialogue::default() };
/// assert_eq!(template.render(&dialogue).unwrap(), "<user>Hi");
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    template: Jinja,
    /// Special tokens by name.
    tokens: Map<String, serde_json::Value>,
    /// It walks through the parts of a content; others take a text.
    takes_parts: bool,
}

impl ChatTemplate {
    /// Compiles `source`. `tokens` are the names and texts of special tokens (`bos_token` and so on), `now` is what
    /// `strftime_now` tells.
    ///
    /// # Errors
    ///
    /// What is wrong with the template, with its line.
    pub fn new(
        source: &str,
        tokens: &[(String, String)],
        now: jiff::ZonedDateTime,
    ) -> Result<ChatTemplate, String> {
        // The rest looks at it letter by letter.
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(format!(
                "the chat template has {} bytes; at most {TEMPLATE_BYTES_MAX} are taken",
                source.len()
            ));
        }
        // Jinja knows one end of line.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let source = generation::without_generation_tags(&source);
        let template =
            Jinja::new(environment(now), NAME, source, true).map_err(|error| said(&error))?;
        let mut template = ChatTemplate {
            template,
            tokens: tokens
                .iter()
                .map(|(name, text)| (name.clone(), text.as_str().into()))
                .collect(),
            takes_parts: false,
        };
        template.takes_parts = template.walks_through_parts();
        Ok(template)
    }

    /// The text that the model is given, up to where its answer begins.
    ///
    /// Messages are given as servers give them: the arguments of tool calls as objects where they are JSON and the template takes
    /// objects, else as they were sent; the text parts of a content as one text, unless the template walks through parts.
    ///
    /// # Errors
    ///
    /// What the template objects to in these messages, or why it cannot be carried out.
    pub fn render(&self, dialogue: &Dialogue) -> Result<String, String> {
        let mut as_sent = dialogue.clone();
        if !self.takes_parts {
            as_sent.messages.iter_mut().for_each(join_parts);
        }
        let mut parsed = as_sent.clone();
        let changed = parsed.messages.iter_mut().map(parse_arguments);
        if changed.fold(false, |any, one| any | one)
            && let Ok(text) = self.render_as_given(&parsed, true)
        {
            return Ok(text);
        }
        self.render_as_given(&as_sent, true)
    }

    /// The same with messages exactly as they stand. `generation_prompt`: with the words that make the model answer.
    pub fn render_as_given(
        &self,
        dialogue: &Dialogue,
        generation_prompt: bool,
    ) -> Result<String, String> {
        let mut others = self.tokens.clone();
        others.extend(dialogue.variables.clone());
        let given = context! {
            messages => dialogue.messages,
            tools => dialogue.tools,
            documents => (),
            add_generation_prompt => generation_prompt,
            ..Value::from_serialize(&others)
        };
        self.template.render(given).map_err(|error| said(&error))
    }

    /// What the template adds to a user's message: the text before and after a word.
    pub(super) fn around_a_prompt(&self) -> Result<(String, &'static str), String> {
        let text = self.render(&a_message(&serde_json::json!(PROBE)))?;
        Ok((text, PROBE))
    }

    /// Asked with a content in parts, it writes their text and not the parts themselves.
    fn walks_through_parts(&self) -> bool {
        let part = serde_json::json!({"type": "text", "text": PROBE});
        let text = self.render_as_given(&a_message(&serde_json::json!([part])), true);
        let printed = [format!("'{PROBE}'"), format!("\"{PROBE}\"")];
        text.is_ok_and(|text| {
            text.contains(PROBE) && !printed.iter().any(|part| text.contains(part))
        })
    }
}

/// One user's message.
fn a_message(content: &serde_json::Value) -> Dialogue {
    Dialogue {
        messages: vec![serde_json::json!({"role": "user", "content": content})],
        ..Dialogue::default()
    }
}

/// Jinja as `transformers` sets it up.
fn environment(now: jiff::ZonedDateTime) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| {
        python::write_text(out, value).map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    environment.add_filter(
        "tojson",
        |value: &Value, arguments: Rest<Value>, named: Kwargs| {
            json::tojson(value, &arguments, &named)
        },
    );
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_filter(
        "join",
        |values: &Value, arguments: Rest<Value>, named: Kwargs| join(values, &arguments, &named),
    );
    environment.add_filter("trim", trim);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    let now = Arc::new(now);
    environment.add_function("strftime_now", move |format: &str| {
        jiff::fmt::strtime::format(format, &*now)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment
}

/// Methods of Python's strings that `pycompat` lacks, then its own.
fn method(state: &State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if let (Some(text), [affix]) = (value.as_str(), arguments)
        && let Some(affix) = affix.as_str()
    {
        let cut = match name {
            "removeprefix" => Some(text.strip_prefix(affix)),
            "removesuffix" => Some(text.strip_suffix(affix)),
            _ => None,
        };
        if let Some(cut) = cut {
            return Ok(Value::from(cut.unwrap_or(text)));
        }
    }
    unknown_method_callback(state, value, name, arguments)
}

/// Also of what is no text, which is printed first.
fn trim(value: &Value, letters: Option<&str>) -> String {
    let text = python::text(value);
    match letters {
        Some(letters) => text.trim_matches(|c| letters.contains(c)).to_owned(),
        None => text.trim_matches(python::is_space).to_owned(),
    }
}

fn join(values: &Value, arguments: &[Value], named: &Kwargs) -> Result<String, Error> {
    let separator = match arguments.first() {
        Some(first) => Some(first.clone()),
        None => named.get("d")?,
    };
    let attribute: Option<String> = named.get("attribute")?;
    named.assert_all_used()?;
    let separator = separator.map_or_else(String::new, |value| python::text(&value));
    let mut texts = Vec::new();
    for value in values.try_iter()? {
        let value = match &attribute {
            Some(name) => value.get_attr(name)?,
            None => value,
        };
        texts.push(python::text(&value));
    }
    Ok(texts.join(&separator))
}

/// As in Python, where a text can be walked through and has a length; `None` has neither.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String
            | ValueKind::Seq
            | ValueKind::Map
            | ValueKind::Iterable
            | ValueKind::Undefined
    )
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(
        ErrorKind::InvalidOperation,
        python::text(message),
    ))
}

/// The error in one sentence, with the line it was seen at.
fn said(error: &Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it does not end".to_owned(),
        _ => error
            .detail()
            .map_or_else(|| error.kind().to_string(), str::to_owned),
    };
    match error.line() {
        Some(line) => format!("line {line} of the chat template: {what}"),
        None => format!("the chat template: {what}"),
    }
}

/// A content that is a list of texts becomes one text, its parts on lines of their own, as servers do for such templates.
fn join_parts(message: &mut serde_json::Value) {
    let Some(parts) = message.get("content").and_then(serde_json::Value::as_array) else {
        return;
    };
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| part.get("text")?.as_str())
        .collect();
    if let Some(text) = texts.map(|texts| texts.join("\n")) {
        message["content"] = serde_json::Value::from(text);
    }
}

/// Arguments that are the text of a JSON object become that object; says whether any did.
fn parse_arguments(message: &mut serde_json::Value) -> bool {
    let calls = message
        .get_mut("tool_calls")
        .and_then(serde_json::Value::as_array_mut);
    let mut changed = false;
    for call in calls.into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        let object = arguments
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
            .filter(serde_json::Value::is_object);
        if let Some(object) = object {
            *arguments = object;
            changed = true;
        }
    }
    changed
}
