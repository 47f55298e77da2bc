//! Tool calls of a chat reply, put together.
//!
//! In: the messages and deltas of a reply, in order. Out: whole calls. Never: two calls as one because a server leaves their numbers out.

use serde_json::Value;

use super::ToolCall;
use super::parse::arguments;

/// Takes in the calls of a message or delta. A fragment says by its `index` which call it belongs to. One without goes on with the latest
/// call, unless it begins another: by an id that is new, or by a name without an id. The older `function_call` is the call with index 0.
pub(super) fn take_in(calls: &mut Vec<ToolCall>, message: &Value) {
    for fragment in message["tool_calls"].as_array().into_iter().flatten() {
        let index = fragment["index"].as_u64();
        let index = index.unwrap_or_else(|| unnumbered(calls, fragment));
        add(calls, index, &fragment["id"], &fragment["function"]);
    }
    if message["function_call"].is_object() {
        add(calls, 0, &Value::Null, &message["function_call"]);
    }
}

fn unnumbered(calls: &[ToolCall], fragment: &Value) -> u64 {
    let filled = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let latest = calls.last().map(|call| call.index);
    let next = calls.iter().map(|call| call.index + 1).max().unwrap_or(0);
    if let Some(id) = fragment["id"].as_str().filter(|id| !id.is_empty()) {
        let known = calls.iter().find(|call| call.id == id);
        known.map_or(next, |call| call.index)
    } else if filled(&fragment["function"]["name"]) {
        next
    } else {
        latest.unwrap_or(0)
    }
}

/// The call with this index, made in its place if there is none. Calls stand in the order of their indexes.
pub(super) fn at(calls: &mut Vec<ToolCall>, index: u64) -> &mut ToolCall {
    let place = calls.partition_point(|call| call.index < index);
    if calls.get(place).is_none_or(|call| call.index != index) {
        let call = ToolCall {
            index,
            ..ToolCall::default()
        };
        calls.insert(place, call);
    }
    &mut calls[place]
}

fn add(calls: &mut Vec<ToolCall>, index: u64, id: &Value, function: &Value) {
    let call = at(calls, index);
    if let (true, Some(id)) = (call.id.is_empty(), id.as_str()) {
        id.clone_into(&mut call.id);
    }
    let name = function["name"].as_str().unwrap_or_default();
    // Some servers say the whole name with each fragment.
    if call.name != name {
        call.name.push_str(name);
    }
    call.arguments.push_str(&arguments(function));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Calls as (id, name, arguments), of deltas each with a list of fragments.
    fn calls(deltas: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = Vec::new();
        for fragments in deltas {
            take_in(&mut calls, &json!({"tool_calls": fragments}));
        }
        let parts = |call: ToolCall| (call.id, call.name, call.arguments);
        calls.into_iter().map(parts).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn fragments_go_to_their_call() {
        let interleaved = [
            json!([{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
                {"index": 1, "function": {"arguments": "1"}}]),
            json!([{"index": 0, "function": {"arguments": "}"}}, {"index": 1, "function": {"name": null, "arguments": "2"}}]),
        ];
        let both = [call("a", "f", "{}"), call("b", "g", "12")];
        assert_eq!(calls(&interleaved), both);
        let unnumbered = [
            json!([{"id": "a", "function": {"name": "f", "arguments": "{"}}]),
            json!([{"function": {"arguments": "}"}}]),
            json!([{"id": "b", "function": {"name": "g", "arguments": "1"}}]),
            json!([{"id": "b", "function": {"name": "g", "arguments": "2"}}]),
        ];
        assert_eq!(calls(&unnumbered), both);
    }

    #[test]
    fn whole_calls_may_have_neither_number_nor_id() {
        let whole = json!([{"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "f", "arguments": "{}"}}]);
        let both = [call("", "f", "{\"a\":1}"), call("", "f", "{}")];
        assert_eq!(calls(&[whole]), both);
    }

    #[test]
    fn the_older_form_is_one_call() {
        let mut calls = Vec::new();
        for delta in [
            json!({"function_call": {"name": "f", "arguments": ""}}),
            json!({"function_call": {"arguments": "{}"}}),
            json!({"content": "x", "function_call": null}),
        ] {
            take_in(&mut calls, &delta);
        }
        let only = ToolCall {
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
            ..ToolCall::default()
        };
        assert_eq!(calls, [only]);
    }
}
