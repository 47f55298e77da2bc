//! Whether a chunk carries content, and nothing else of it.
//!
//! In: the data of one event. Out: yes or no. Never: a tree, an allocation, or a yes where the thorough reading of `parse.rs`
//! finds none in the same JSON.
//!
//! A worker asks this of the first events of a reply, to know when its prefill is over. Keys are compared as they are written: one
//! that is spelt with escapes is not known here. The answer is then no, and the slot stays taken until a later chunk, or the end.

use super::choices::Objects;

/// The choices of a chunk that is one of `objects`; none of another.
pub(super) fn choices<'a>(data: &'a [u8], objects: &Objects) -> impl Iterator<Item = &'a [u8]> {
    let (mut object, mut choices) = (NULL, NULL);
    for (key, value) in members(data) {
        match key {
            b"object" => object = value,
            b"choices" => choices = value,
            _ => {}
        }
    }
    let ours = objects.include_raw(object);
    let mut first = true;
    elements(if ours { choices } else { NULL }).filter(move |choice| match index(choice) {
        Index::Other => true,
        Index::First => std::mem::take(&mut first),
        Index::Wrong => false,
    })
}

/// What a missing member counts as.
pub(super) const NULL: &[u8] = b"null";

/// Which choice it is.
enum Index {
    /// Index 0; an object without an index that is a number is taken for it.
    First,
    /// Another index.
    Other,
    /// No choice, or an index that none can have.
    Wrong,
}

fn index(choice: &[u8]) -> Index {
    let index = member(choice, b"index");
    match index {
        b"0" => Index::First,
        [b'-' | b'0'..=b'9', ..] => {
            // Below 2^64 for sure.
            let whole = index.len() < 20 && index.iter().all(u8::is_ascii_digit);
            if whole { Index::Other } else { Index::Wrong }
        }
        _ if choice.starts_with(b"{") => Index::First,
        _ => Index::Wrong,
    }
}

/// `delta` if it is an object, else `message`.
pub(super) fn message(choice: &[u8]) -> &[u8] {
    let delta = member(choice, b"delta");
    if delta.starts_with(b"{") {
        delta
    } else {
        member(choice, b"message")
    }
}

/// A message brings text, reasoning or a tool call; a role or an empty text is none.
pub(super) fn says_something(message: &[u8]) -> bool {
    members(message).any(|(key, _)| {
        // Of a key that comes twice the last value counts, so it is looked up.
        let value = || member(message, key);
        match key {
            b"reasoning_content" | b"reasoning" | b"refusal" => is_filled(value()),
            b"content" => {
                let content = value();
                is_filled(content) || elements(content).any(|part| is_filled(member(part, b"text")))
            }
            b"tool_calls" => elements(value()).any(is_call),
            _ => false,
        }
    })
}

/// A tool call with a name or with arguments.
fn is_call(call: &[u8]) -> bool {
    let function = member(call, b"function");
    let arguments = member(function, b"arguments");
    is_filled(member(function, b"name")) || is_filled(arguments) || arguments.starts_with(b"{")
}

/// A string that is not empty.
pub(super) fn is_filled(value: &[u8]) -> bool {
    value.starts_with(b"\"") && value.len() > 2
}

/// The last member called `name`, or `null`.
pub(super) fn member<'a>(object: &'a [u8], name: &[u8]) -> &'a [u8] {
    members(object)
        .filter(|(key, _)| *key == name)
        .last()
        .map_or(NULL, |(_, value)| value)
}

/// Keys (without quotes) and values of an object; nothing of another value.
pub(super) fn members(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = value.trim_ascii().strip_prefix(b"{").unwrap_or_default();
    std::iter::from_fn(move || {
        let (key, after) = take_value(rest)?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let (value, after) = take_value(after.trim_ascii_start().strip_prefix(b":")?)?;
        rest = after_comma(after);
        Some((key, value))
    })
}

/// Values of a list; nothing of another value.
pub(super) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = value.strip_prefix(b"[").unwrap_or_default();
    std::iter::from_fn(move || {
        let (value, after) = take_value(rest)?;
        rest = after_comma(after);
        Some(value)
    })
}

/// What follows a comma; nothing after the last item.
fn after_comma(rest: &[u8]) -> &[u8] {
    rest.trim_ascii_start()
        .strip_prefix(b",")
        .unwrap_or_default()
}

/// The value that `bytes` begin with, and what follows it; none when they begin with none, or it has no end. Brackets are counted,
/// not matched.
fn take_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bytes = bytes.trim_ascii_start();
    let end = match bytes.first()? {
        b'"' => string_end(bytes)?,
        b'{' | b'[' => nest_end(bytes)?,
        b']' | b'}' | b',' | b':' => return None,
        _ => {
            let end = |byte: &u8| b",]}:".contains(byte) || byte.is_ascii_whitespace();
            bytes.iter().position(end).unwrap_or(bytes.len())
        }
    };
    Some(bytes.split_at(end))
}

/// One past the closing quote of the string that `bytes` begin with.
fn string_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// One past the bracket that closes the object or list that `bytes` begin with.
fn nest_end(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_end(&bytes[at..])? - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests;
