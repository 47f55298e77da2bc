//! What one rendering may build.
//!
//! In: values that a step is about to use. Out: whether the budget still holds them. Never: a guess at a value that can be counted.

use std::cell::Cell;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Bytes that one rendering may build, all its intermediate texts and lists together: so many are never in memory at once, and the time
/// is bounded too, since what is looked at counts like what is built.
pub const BUILT_BYTES_MAX: u64 = 512 << 20;

/// What a value costs besides its text: about what it takes in a list, with the list.
const VALUE_BYTES: u64 = 64;

/// Nested deeper than this, a value is refused: engines compare, print and free values by recursion.
const DEPTH_MAX: usize = 200;

thread_local! {
    /// What is left to the rendering that this thread is carrying out.
    static LEFT: Cell<u64> = const { Cell::new(BUILT_BYTES_MAX) };
}

/// Does `work` with a whole budget of its own.
pub(super) fn fresh<T>(work: impl FnOnce() -> T) -> T {
    let before = LEFT.replace(BUILT_BYTES_MAX);
    let done = work();
    LEFT.set(before);
    done
}

/// Takes `bytes` from the budget.
pub(super) fn spend(bytes: u64) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| {
        let most = BUILT_BYTES_MAX >> 20;
        wrong(format!("it builds more than {most} MiB of text and lists"))
    })
}

/// Takes a value with all that is in it from the budget, and says what it took.
pub(super) fn spend_deep(value: &Value) -> Result<u64, Error> {
    let before = LEFT.get();
    walk(value, 0)?;
    Ok(before - LEFT.get())
}

/// Takes a text, or the places of a list, from the budget: what a step costs that does not look into them.
pub(super) fn spend_shallow(value: &Value) -> Result<(), Error> {
    spend(match value.as_str() {
        Some(text) => text.len() as u64,
        None => value.len().unwrap_or(0) as u64,
    })
}

fn walk(value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(wrong(format!(
            "it nests values deeper than {DEPTH_MAX} levels"
        )));
    }
    spend(VALUE_BYTES + value.as_str().map_or(0, |text| text.len() as u64))?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                walk(&item, depth + 1)?;
            }
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                walk(&key, depth + 1)?;
                walk(&value.get_item(&key)?, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn wrong(sentence: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, sentence)
}
