//! Failures, grouped.
//!
//! In: the errors of records. Out: one group for each kind of failure, with a message as an example. Never: more groups than a reader can
//! use, whatever servers put into their messages.
//!
//! AIPerf groups by code, type and message. A server that writes a request's id, a time or a count into its messages would fill the
//! table with groups of one, so words with a digit in them are no part of a group's key; the message that is shown is the first of the
//! group by its text, which no order of records changes.

use std::collections::HashMap;

use super::ErrorGroup;
use crate::record::{ErrorClass, ErrorDetails};

/// Most groups of one code and type; failures beyond them share one group without a message of theirs.
const GROUPS_MOST: usize = 50;

/// What stands for a word that differs from request to request.
const ANY: char = '#';

/// The message of the group that the rest share.
const OTHERS: &str = "(other messages)";

/// What failures of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    code: Option<u16>,
    kind: String,
    class: ErrorClass,
    pattern: String,
}

/// Failures of one phase.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorGroups {
    groups: HashMap<Key, (String, u64)>,
    /// Groups by code and type.
    counts: HashMap<(Option<u16>, String), usize>,
}

impl ErrorGroups {
    pub(super) fn add(&mut self, details: &ErrorDetails) {
        let key = Key {
            code: details.code,
            kind: details.kind.clone(),
            class: details.class,
            pattern: pattern(&details.message),
        };
        self.put(key, &details.message, 1);
    }

    pub(super) fn merge(&mut self, other: ErrorGroups) {
        for (key, (message, count)) in other.groups {
            self.put(key, &message, count);
        }
    }

    /// The groups, the largest first.
    pub(super) fn groups(self) -> Vec<ErrorGroup> {
        let groups = self.groups.into_iter();
        let mut groups: Vec<ErrorGroup> = groups
            .map(|(key, (message, count))| ErrorGroup {
                details: ErrorDetails {
                    code: key.code,
                    kind: key.kind,
                    message,
                    class: key.class,
                },
                count,
            })
            .collect();
        groups.sort_by(|a, b| {
            let key = |g: &ErrorGroup| {
                let details = &g.details;
                (details.code, details.kind.clone(), details.message.clone())
            };
            b.count.cmp(&a.count).then_with(|| key(a).cmp(&key(b)))
        });
        groups
    }

    fn put(&mut self, mut key: Key, message: &str, count: u64) {
        let mut message = message;
        if !self.groups.contains_key(&key) {
            let groups = self.counts.entry((key.code, key.kind.clone())).or_default();
            if *groups >= GROUPS_MOST {
                key.pattern = OTHERS.to_owned();
                message = OTHERS;
            } else {
                *groups += 1;
            }
        }
        let group = self
            .groups
            .entry(key)
            .or_insert_with(|| (message.to_owned(), 0));
        if message < group.0.as_str() {
            message.clone_into(&mut group.0);
        }
        group.1 += count;
    }
}

/// `message` with each word that has a digit replaced. A word is letters, digits, `-` and `_`.
fn pattern(message: &str) -> String {
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let end = if part(first) {
            rest.find(|c| !part(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(end);
        if word.bytes().any(|b| b.is_ascii_digit()) {
            out.push(ANY);
        } else {
            out.push_str(word);
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(code: u16, message: &str) -> ErrorDetails {
        ErrorDetails {
            code: Some(code),
            kind: "Reason".to_owned(),
            message: message.to_owned(),
            class: ErrorClass::HttpStatus,
        }
    }

    fn grouped(errors: &[ErrorDetails]) -> Vec<(u16, String, u64)> {
        let mut groups = ErrorGroups::default();
        errors.iter().for_each(|error| groups.add(error));
        let groups = groups.groups().into_iter();
        groups
            .map(|g| (g.details.code.unwrap_or(0), g.details.message, g.count))
            .collect()
    }

    #[test]
    fn what_differs_by_an_id_alone_is_one_group() {
        let groups = grouped(&[
            error(
                503,
                "{\"error\":\"overloaded\",\"request_id\":\"req_9f2c\"}",
            ),
            error(
                503,
                "{\"error\":\"overloaded\",\"request_id\":\"req_1ab7\"}",
            ),
            error(503, "{\"error\":\"loading\",\"request_id\":\"req_1ab7\"}"),
            error(
                500,
                "{\"error\":\"overloaded\",\"request_id\":\"req_1ab7\"}",
            ),
        ]);
        assert_eq!(
            groups,
            [
                (
                    503,
                    "{\"error\":\"overloaded\",\"request_id\":\"req_1ab7\"}".to_owned(),
                    2
                ),
                (
                    500,
                    "{\"error\":\"overloaded\",\"request_id\":\"req_1ab7\"}".to_owned(),
                    1
                ),
                (
                    503,
                    "{\"error\":\"loading\",\"request_id\":\"req_1ab7\"}".to_owned(),
                    1
                ),
            ]
        );
    }

    #[test]
    fn a_server_that_never_repeats_itself_fills_no_memory() {
        let word = |n: u32| -> String {
            let digits = format!("{n:05}").into_bytes();
            digits.iter().map(|d| char::from(d - b'0' + b'a')).collect()
        };
        let errors: Vec<ErrorDetails> = (0..10_000).map(|n| error(500, &word(n))).collect();
        let groups = grouped(&errors);
        assert_eq!(groups.len(), GROUPS_MOST + 1);
        assert_eq!(groups[0], (500, OTHERS.to_owned(), 9_950));
        assert_eq!(groups.iter().map(|g| g.2).sum::<u64>(), 10_000);
    }

    proptest! {
        /// Nothing is lost, and the order of records changes no group.
        #[test]
        fn sums_hold_in_any_order(messages in prop::collection::vec("[a-c0-2 ]{0,4}", 0..40)) {
            let errors: Vec<ErrorDetails> = messages.iter().map(|m| error(500, m)).collect();
            let groups = grouped(&errors);
            prop_assert_eq!(groups.iter().map(|g| g.2).sum::<u64>(), errors.len() as u64);
            let backwards: Vec<ErrorDetails> = errors.into_iter().rev().collect();
            prop_assert_eq!(grouped(&backwards), groups);
        }
    }
}
