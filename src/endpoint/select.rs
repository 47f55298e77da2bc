//! What a JMESPath expression selects, within bounds.
//!
//! In: an expression of the user's, a reply. Out: what it selects, or that it takes too many steps. Never: an expression carried out by
//! the crate that reads it, which bounds neither: twenty flattened pairs (`[@,@][] | [@,@][]` and so on) select a million values.

use std::collections::BTreeMap;

use jmespath::ast::Ast;
use jmespath::{Context, Rcvar, Runtime, Variable};
use serde_json::Value;

/// Greatest expression taken, in bytes: it is read and carried out by recursion.
pub(super) const EXPRESSION_BYTES_MAX: usize = 1_024;

/// Steps that one reply may take. A step is a value looked at or made, or 64 bytes of a text; a usual expression takes a dozen for each
/// value that it looks at.
pub(super) const STEPS_MAX: u64 = 4_000_000;

/// What a list and an object that are made cost beside their values.
const OBJECT_STEPS: u64 = 16;

/// A compiled expression.
pub(super) struct Selection {
    text: String,
    ast: Ast,
    runtime: Runtime,
}

/// Why nothing is selected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The expression asks for something that this reply's values do not do.
    Unfit,
    /// It takes more than [`STEPS_MAX`].
    TooMuch,
}

type Found = Result<Rcvar, Stop>;

impl Selection {
    /// Reads an expression; else what is wrong with it.
    pub(super) fn new(text: &str) -> Result<Selection, String> {
        if text.len() > EXPRESSION_BYTES_MAX {
            let count = text.len();
            return Err(format!(
                "has {count} bytes; at most {EXPRESSION_BYTES_MAX} are taken"
            ));
        }
        let ast = jmespath::parse(text).map_err(|error| {
            format!(
                "{text:?} is no JMESPath at offset {}; give one such as output.text, or a JSON pointer such as /output/text",
                error.offset
            )
        })?;
        let mut runtime = Runtime::new();
        runtime.register_builtin_functions();
        Ok(Selection {
            text: text.to_owned(),
            ast,
            runtime,
        })
    }

    /// What it selects in `root`; `null` is nothing.
    pub(super) fn search(&self, root: &Value) -> Result<Option<Value>, Stop> {
        let root = Variable::try_from(root.clone()).map_err(|_| Stop::Unfit)?;
        let mut walk = Walk {
            left: STEPS_MAX,
            context: Context::new(&self.text, &self.runtime),
        };
        let found = walk.at(&Rcvar::new(root), &self.ast)?;
        walk.spend_deep(&found)?;
        Ok(serde_json::to_value(&*found).ok())
    }
}

impl std::fmt::Debug for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Selection").field(&self.text).finish()
    }
}

struct Walk<'s> {
    left: u64,
    context: Context<'s>,
}

impl Walk<'_> {
    fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        self.left = self.left.checked_sub(steps).ok_or(Stop::TooMuch)?;
        Ok(())
    }

    /// A value with all that is in it, each as often as it stands there.
    fn spend_deep(&mut self, value: &Variable) -> Result<(), Stop> {
        self.spend(1)?;
        match value {
            Variable::String(text) => self.spend(text.len() as u64 / 64),
            Variable::Array(items) => items.iter().try_for_each(|item| self.spend_deep(item)),
            Variable::Object(fields) => fields.iter().try_for_each(|(key, value)| {
                self.spend(1 + key.len() as u64 / 64)?;
                self.spend_deep(value)
            }),
            _ => Ok(()),
        }
    }

    /// What `node` is of `data`: the rules of the specification, clause by clause.
    fn at(&mut self, data: &Rcvar, node: &Ast) -> Found {
        self.spend(1)?;
        match node {
            Ast::Field { name, .. } => Ok(data.get_field(name)),
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Literal { value, .. } => Ok(value.clone()),
            Ast::Index { idx, .. } => Ok(index(data, *idx)),
            Ast::Expref { ast, .. } => Ok(Rcvar::new(Variable::Expref((**ast).clone()))),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.at(data, lhs)?;
                self.at(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => {
                let left = self.at(data, lhs)?;
                if left.is_truthy() {
                    Ok(left)
                } else {
                    self.at(data, rhs)
                }
            }
            Ast::And { lhs, rhs, .. } => {
                let left = self.at(data, lhs)?;
                if left.is_truthy() {
                    self.at(data, rhs)
                } else {
                    Ok(left)
                }
            }
            Ast::Not { node, .. } => {
                let truth = self.at(data, node)?.is_truthy();
                Ok(Rcvar::new(Variable::Bool(!truth)))
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                let holds = self.at(data, predicate)?.is_truthy();
                if holds {
                    self.at(data, then)
                } else {
                    Ok(null())
                }
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => {
                let (left, right) = (self.at(data, lhs)?, self.at(data, rhs)?);
                self.spend_deep(&left)?;
                self.spend_deep(&right)?;
                let result = left.compare(comparator, &right);
                Ok(result.map_or_else(null, |truth| Rcvar::new(Variable::Bool(truth))))
            }
            Ast::Function { name, args, .. } => self.call(data, name, args),
            _ => self.list(data, node),
        }
    }

    /// The clauses that make a list or an object.
    fn list(&mut self, data: &Rcvar, node: &Ast) -> Found {
        let mut made = Vec::new();
        match node {
            Ast::Projection { lhs, rhs, .. } => {
                let left = self.at(data, lhs)?;
                let Some(items) = left.as_array() else {
                    return Ok(null());
                };
                for item in items {
                    let found = self.at(item, rhs)?;
                    if !found.is_null() {
                        made.push(found);
                    }
                }
            }
            Ast::Flatten { node, .. } => {
                let found = self.at(data, node)?;
                let Some(items) = found.as_array() else {
                    return Ok(null());
                };
                for item in items {
                    match item.as_array() {
                        Some(inner) => {
                            self.spend(1 + inner.len() as u64)?;
                            made.extend(inner.iter().cloned());
                        }
                        None => {
                            self.spend(1)?;
                            made.push(item.clone());
                        }
                    }
                }
            }
            Ast::ObjectValues { node, .. } => match &*self.at(data, node)? {
                Variable::Object(fields) => {
                    self.spend(fields.len() as u64)?;
                    made.extend(fields.values().cloned());
                }
                _ => return Ok(null()),
            },
            Ast::MultiList { elements, .. } if !data.is_null() => {
                for element in elements {
                    made.push(self.at(data, element)?);
                }
            }
            Ast::MultiHash { elements, .. } if !data.is_null() => {
                let mut fields = BTreeMap::new();
                for element in elements {
                    self.spend(OBJECT_STEPS)?;
                    fields.insert(element.key.clone(), self.at(data, &element.value)?);
                }
                return Ok(Rcvar::new(Variable::Object(fields)));
            }
            Ast::Slice { step: 0, .. } => return Err(Stop::Unfit),
            Ast::Slice {
                start, stop, step, ..
            } => {
                let Some(items) = data.as_array() else {
                    return Ok(null());
                };
                self.spend(items.len() as u64)?;
                made = slice(items, *start, *stop, *step);
            }
            _ => return Ok(null()),
        }
        Ok(Rcvar::new(Variable::Array(made)))
    }

    fn call(&mut self, data: &Rcvar, name: &str, arguments: &[Ast]) -> Found {
        let mut given = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let value = self.at(data, argument)?;
            self.spend_deep(&value)?;
            given.push(value);
        }
        // These carry out an expression themselves.
        match (name, given.as_slice()) {
            ("map", [by, items]) => {
                return self
                    .mapped(by, items)
                    .map(|made| Rcvar::new(Variable::Array(made)));
            }
            ("sort_by" | "max_by" | "min_by", [items, by]) => return self.by(name, items, by),
            ("join", [glue, items]) => {
                let (glue, count) = (
                    glue.as_string().map_or(0, String::len),
                    items.as_array().map_or(0, Vec::len),
                );
                self.spend((glue as u64 / 64).saturating_mul(count as u64))?;
            }
            _ => {}
        }
        let function = self.context.runtime.get_function(name).ok_or(Stop::Unfit)?;
        function
            .evaluate(&given, &mut self.context)
            .map_err(|_| Stop::Unfit)
    }

    /// What the expression `by` is of each item.
    fn mapped(&mut self, by: &Variable, items: &Variable) -> Result<Vec<Rcvar>, Stop> {
        let by = by.as_expref().ok_or(Stop::Unfit)?;
        let items = items.as_array().ok_or(Stop::Unfit)?;
        items.iter().map(|item| self.at(item, by)).collect()
    }

    fn by(&mut self, name: &str, items: &Variable, by: &Variable) -> Found {
        let keys = self.mapped(by, items)?;
        let alike =
            keys.iter().all(|key| key.is_string()) || keys.iter().all(|key| key.is_number());
        if !alike {
            return Err(Stop::Unfit);
        }
        let items = items.as_array().ok_or(Stop::Unfit)?;
        let mut pairs: Vec<(&Rcvar, &Rcvar)> = keys.iter().zip(items).collect();
        pairs.sort_by(|one, other| one.0.cmp(other.0));
        let of =
            |pair: Option<&(&Rcvar, &Rcvar)>| pair.map_or_else(null, |(_, item)| (*item).clone());
        Ok(match name {
            // Of equal ones the first.
            "min_by" => of(pairs.first()),
            "max_by" => of(pairs
                .last()
                .and_then(|last| pairs.iter().find(|pair| pair.0 == last.0))),
            _ => Rcvar::new(Variable::Array(
                pairs.iter().map(|(_, item)| (*item).clone()).collect(),
            )),
        })
    }
}

fn null() -> Rcvar {
    Rcvar::new(Variable::Null)
}

/// An item counted from the front, or with a negative index from the end.
fn index(data: &Variable, index: i32) -> Rcvar {
    let place = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    if index >= 0 {
        data.get_index(place)
    } else {
        data.get_negative_index(place)
    }
}

/// As Python's slices, in numbers that hold every end.
fn slice(items: &[Rcvar], start: Option<i32>, stop: Option<i32>, step: i32) -> Vec<Rcvar> {
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let (step, lowest, highest) = if step > 0 {
        (i64::from(step), 0, count)
    } else {
        (i64::from(step), -1, count - 1)
    };
    let end = |given: Option<i32>, without: i64| match given.map(i64::from) {
        Some(end) if end < 0 => (end + count).clamp(lowest, highest),
        Some(end) => end.clamp(lowest, highest),
        None => without,
    };
    let (mut at, stop) = if step > 0 {
        (end(start, 0), end(stop, count))
    } else {
        (end(start, count - 1), end(stop, -1))
    };
    let mut made = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        made.extend(
            usize::try_from(at)
                .ok()
                .and_then(|at| items.get(at))
                .cloned(),
        );
        at += step;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn reply() -> Value {
        json!({
            "a": [{"b": "x", "n": 3}, {"b": "y", "n": 1}, {"b": "z", "n": 3}], "s": "text", "l": [[1, 2], [3, [4]], 5],
            "o": {"p": 1, "q": [true, null]}, "none": null,
        })
    }

    /// What the crate itself makes of it.
    fn crates(text: &str) -> Option<Value> {
        let root = Variable::try_from(reply()).ok()?;
        let found = jmespath::compile(text).ok()?.search(root).ok()?;
        serde_json::to_value(&*found).ok()
    }

    /// Pieces from which expressions are put together.
    fn expressions() -> impl Strategy<Value = String> {
        let pieces = [
            "a",
            "s",
            "l",
            "o",
            "b",
            "n",
            ".",
            "[*]",
            "[]",
            "[0]",
            "[-1]",
            "[::-1]",
            "[1:]",
            "[-2:9:2]",
            "[?n > `1`]",
            ".*",
            " | ",
            "@",
            "!",
            " && ",
            " || ",
            "[@, @]",
            "{k: @}",
            "length(@)",
            "sort_by(@, &n)",
            "max_by(a, &n)",
            "min_by(a, &b)",
            "map(&b, a)",
            "join('-', a[].b)",
            "to_string(@)",
            "keys(@)",
            "values(o)",
            "`[1, 2]`",
            "'raw'",
            "\"q\"",
            " == ",
            " < ",
            "(",
            ")",
            "not_null(none, s)",
            "reverse(@)",
            "sum(a[].n)",
            "type(@)",
            "merge(o, o)",
            "nosuch(@)",
            "contains(s, 'e')",
            "sort(a[].b)",
        ];
        let piece = prop::sample::select(pieces.to_vec());
        prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn it_selects_what_the_crate_selects(text in expressions()) {
            if let Ok(selection) = Selection::new(&text) {
                prop_assert_eq!(selection.search(&reply()).unwrap_or(None), crates(&text), "{}", text);
            }
        }
    }

    #[test]
    fn what_takes_too_many_steps_is_stopped() {
        for text in [
            vec!["[@,@][]"; 40].join(" | "),
            vec!["[@,@]"; 60].join(" | "),
            vec!["join('', [to_string(@),to_string(@)])"; 20].join(" | "),
            vec!["[@,@]"; 60].join(" | ") + " | @ == @",
            format!(
                "{} | sort_by(@, &length(to_string(@)))",
                vec!["[@,@]"; 60].join(" | ")
            ),
        ] {
            let selection = Selection::new(&text).expect("an expression");
            assert_eq!(selection.search(&reply()), Err(Stop::TooMuch), "{text}");
        }
    }

    #[test]
    fn deep_expressions_fit_a_thread_s_stack() {
        let deep = |open: &str, inside: &str, close: &str| {
            let levels = (EXPRESSION_BYTES_MAX - inside.len()) / (open.len() + close.len());
            format!("{}{inside}{}", open.repeat(levels), close.repeat(levels))
        };
        for text in [
            deep("!", "a", ""),
            deep("(", "a", ")"),
            deep("[", "a", "]"),
            deep("a.", "a", ""),
            deep("a|", "a", ""),
            deep("&", "a", ""),
            deep("{a:", "a", "}"),
            deep("a[?", "a", "]"),
            deep("[]", "", ""),
            deep("[*]", "", ""),
            deep("a||", "a", ""),
            deep("", "", ".*"),
            "[".repeat(1_024),
            "(".repeat(1_024),
            "!".repeat(1_024),
            "[-2147483648]".to_owned(),
            "[-2147483648:2147483647:-2147483648]".to_owned(),
            "l[2147483647::2147483647]".to_owned(),
            "x".repeat(1_025),
        ] {
            if let Ok(selection) = Selection::new(&text) {
                let _ = selection.search(&reply());
            }
        }
    }
}
