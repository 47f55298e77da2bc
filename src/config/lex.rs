//! Arguments become settings.
//!
//! In: arguments and the flag table. Out: [`Settings`], each value typed, and what was wrong. Never: a default, a rule between
//! two flags.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::error::Problems;
use super::flags::{Flag, Status};
use super::value::{self, Value};

/// What the user set, by the flag's first name.
#[derive(Debug, Default)]
pub(super) struct Settings {
    set: BTreeMap<&'static str, Setting>,
    /// Flags with what followed each, as written, for the echo of the command line.
    pub(super) order: Vec<(&'static Flag, String, Vec<String>)>,
    /// `-h` or `--help` was among them.
    pub(super) help: bool,
}

#[derive(Debug)]
struct Setting {
    spelling: String,
    raw: Vec<String>,
    value: Option<Value>,
}

impl Settings {
    /// Reads all arguments; findings go to `problems`.
    pub(super) fn read(
        arguments: &[String],
        table: &[&'static Flag],
        problems: &mut Problems,
    ) -> Settings {
        let mut settings = Settings::default();
        let mut rest = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = rest.next() {
            if matches!(argument, "-h" | "--help") {
                settings.help = true;
                continue;
            }
            if !looks_like_flag(argument) {
                problems.push(format!(
                    "{argument:?} stands alone; a value follows its flag, such as --model NAME"
                ));
                continue;
            }
            let (spelling, joined) = match argument.split_once('=') {
                Some((spelling, value)) => (spelling, Some(value.to_owned())),
                None => (argument, None),
            };
            let Some(flag) = find(table, spelling) else {
                problems.push(unknown(table, spelling));
                // What follows an unknown flag is most likely its value: one problem is enough.
                while rest.next_if(|next| !looks_like_flag(next)).is_some() {}
                continue;
            };
            let mut values: Vec<String> = joined.into_iter().collect();
            let joined = !values.is_empty();
            let most = match flag.kind {
                super::flags::Kind::Switch => 0,
                kind if kind.is_list() && !joined => usize::MAX,
                _ => 1,
            };
            while values.len() < most {
                let Some(next) = rest.next_if(|next| !looks_like_flag(next)) else {
                    break;
                };
                values.push(next.to_owned());
            }
            settings.take(flag, spelling, values, most, problems);
        }
        settings.check(table, problems);
        settings
    }

    fn take(
        &mut self,
        flag: &'static Flag,
        spelling: &str,
        values: Vec<String>,
        most: usize,
        problems: &mut Problems,
    ) {
        match flag.status {
            Status::Later(sentence) => {
                problems.push(format!(
                    "{spelling} is an AIPerf flag that tokenring does not do yet: {sentence}"
                ));
                return;
            }
            Status::Never(sentence) => {
                problems.push(format!(
                    "{spelling} is an AIPerf flag that tokenring does not have: {sentence}"
                ));
                return;
            }
            Status::Works => {}
        }
        if most == 0 && !values.is_empty() {
            problems.push(format!("{spelling} takes no value; write it alone"));
            return;
        }
        if most > 0 && values.is_empty() {
            let placeholder = flag.kind.placeholder();
            problems.push(format!(
                "{spelling} needs a value: {spelling} {placeholder} (or {spelling}={placeholder} when it begins with a dash)"
            ));
            return;
        }
        self.order.push((flag, spelling.to_owned(), values.clone()));
        match self.set.get_mut(flag.names[0]) {
            Some(earlier) if flag.kind.is_list() => earlier.raw.extend(values),
            Some(_) if most == 0 => {}
            Some(earlier) if earlier.spelling == spelling => {
                problems.push(format!("{spelling} is given twice; give it once"));
            }
            Some(earlier) => {
                problems.push(format!(
                    "{spelling} and {} are the same flag; give one of them",
                    earlier.spelling
                ));
            }
            None => {
                let setting = Setting {
                    spelling: spelling.to_owned(),
                    raw: values,
                    value: None,
                };
                self.set.insert(flag.names[0], setting);
            }
        }
    }

    /// Types every value, in the order of the command line.
    fn check(&mut self, table: &[&'static Flag], problems: &mut Problems) {
        for (flag, _, _) in &self.order {
            debug_assert!(find(table, flag.names[0]).is_some());
            let Some(setting) = self
                .set
                .get_mut(flag.names[0])
                .filter(|s| s.value.is_none())
            else {
                continue;
            };
            match value::read(flag, &setting.spelling, &setting.raw) {
                Ok(value) => setting.value = Some(value),
                Err(sentence) => problems.push(sentence),
            }
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.set.get(name).and_then(|s| s.value.as_ref())
    }

    /// The flag was given, whether its value was good or not.
    pub(super) fn given(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// The spelling that the user chose, for sentences.
    pub(super) fn spelling<'a>(&'a self, name: &'a str) -> &'a str {
        self.set.get(name).map_or(name, |s| s.spelling.as_str())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// A count that sizes something in memory; the table bounds it.
    pub(super) fn size(&self, name: &str) -> Option<usize> {
        self.integer(name)
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn choice(&self, name: &str) -> Option<&'static str> {
        match self.value(name) {
            Some(Value::Choice(choice)) => Some(choice),
            _ => None,
        }
    }

    pub(super) fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    pub(super) fn pairs(&self, name: &str) -> Option<&Map<String, Json>> {
        match self.value(name) {
            Some(Value::Pairs(pairs)) => Some(pairs),
            _ => None,
        }
    }

    pub(super) fn objectives(&self, name: &str) -> &[(String, f64)] {
        match self.value(name) {
            Some(Value::Objectives(objectives)) => objectives,
            _ => &[],
        }
    }

    pub(super) fn switched(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Switch))
    }

    pub(super) fn cores(&self, name: &str) -> &[usize] {
        match self.value(name) {
            Some(Value::Cores(cores)) => cores,
            _ => &[],
        }
    }
}

pub(super) fn find(table: &[&'static Flag], spelling: &str) -> Option<&'static Flag> {
    table
        .iter()
        .copied()
        .find(|flag| flag.names.contains(&spelling))
}

/// A dash begins a flag, unless it stands alone or begins a number.
pub(super) fn looks_like_flag(argument: &str) -> bool {
    argument.len() > 1 && argument.starts_with('-') && argument.parse::<f64>().is_err()
}

/// How alike two names must be, from 0 to 1, for one to be taken for a slip of the other.
const ALIKE_LEAST: f64 = 0.84;

fn unknown(table: &[&'static Flag], spelling: &str) -> String {
    let nearest = table
        .iter()
        .flat_map(|flag| flag.names.iter().map(move |name| (*flag, *name)))
        .filter(|(_, name)| name.starts_with("--"))
        .map(|(flag, name)| {
            // A flag that works is the better guess among equals.
            let bonus = if flag.status == Status::Works {
                0.01
            } else {
                0.0
            };
            (strsim::jaro_winkler(spelling, name) + bonus, name)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((alike, name)) if alike >= ALIKE_LEAST => {
            format!("{spelling} is not a flag; did you mean {name}?")
        }
        _ => format!("{spelling} is not a flag; tokenring --help lists them"),
    }
}
