//! The `tojson` filter.
//!
//! In: a value of a template. Out: its JSON, byte for byte as Python's `json.dumps(x, ensure_ascii=False)` writes it. Never: an escape
//! for HTML, which Jinja's own filter makes and `transformers` takes out.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::python::real;

/// Nested deeper than this, a value is refused.
const DEPTH_MAX: usize = 200;

/// `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, arguments: &[Value], named: &Kwargs) -> Result<Value, Error> {
    let at = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        match arguments.get(place) {
            Some(value) => Ok(Some(value.clone())),
            None => named.get(name),
        }
    };
    let ascii = at(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = at(1, "indent")?.filter(|value| !value.is_none());
    let separators = at(2, "separators")?.filter(|value| !value.is_none());
    let sort_keys = at(3, "sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let indent = match indent {
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(count) => Some(" ".repeat(usize::try_from(count).unwrap_or(0).min(64))),
        None => None,
    };
    let (item, key) = match separators {
        Some(pair) => {
            let part = |index: usize| {
                let part = pair.get_item_by_index(index)?;
                let text = part.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong("separators are two texts"))
            };
            (part(0)?, part(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        ascii,
        indent,
        item,
        key,
        sort_keys,
    };
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

struct Writer {
    out: String,
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(wrong("the value is nested too deep"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.all('[', ']', depth, items, |writer, item| {
                    writer.value(&item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut pairs = Vec::new();
                for key in value.try_iter()? {
                    pairs.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    pairs.sort_by(|one, other| one.0.cmp(&other.0));
                }
                self.all('{', '}', depth, pairs, |writer, (key, value)| {
                    writer.text(&key);
                    let between = writer.key.clone();
                    writer.out.push_str(&between);
                    writer.value(&value, depth + 1)
                })?;
            }
            kind => {
                return Err(wrong(&format!(
                    "an object of kind {kind} cannot be written as JSON"
                )));
            }
        }
        Ok(())
    }

    fn all<T>(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl IntoIterator<Item = T>,
        one: impl Fn(&mut Writer, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut any = false;
        for item in items {
            if any {
                let between = self.item.clone();
                self.out.push_str(&between);
            }
            any = true;
            self.line(depth + 1);
            one(self, item)?;
        }
        if any {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                letter if letter < ' ' || (self.ascii && letter > '~') => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                letter => self.out.push(letter),
            }
        }
        self.out.push('"');
    }
}

/// Python writes keys that are no texts as JSON would write them as values.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(wrong(&format!("a key of JSON cannot be of kind {kind}"))),
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(value) if value.is_nan() => "NaN".to_owned(),
        Ok(value) if value.is_infinite() => {
            if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Ok(value) => real(value),
        Err(_) => value.to_string(),
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"))
}
