//! Text that looks like a programmer's day.
//!
//! In: a size and a generator. Out: functions, tests, shell sessions, JSON, tracebacks and diffs, put together at random.
//! Never: copies a program: every line comes from the templates here.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

const NOUNS: [&str; 32] = [
    "account", "batch", "buffer", "cache", "client", "config", "counter", "cursor", "device",
    "event", "frame", "handler", "index", "invoice", "item", "job", "key", "message", "metric",
    "node", "order", "packet", "payload", "queue", "record", "request", "response", "session",
    "shard", "token", "user", "worker",
];

const VERBS: [&str; 20] = [
    "add", "apply", "build", "check", "close", "count", "decode", "encode", "fetch", "find",
    "flush", "load", "merge", "open", "parse", "push", "read", "remove", "update", "write",
];

const TYPES: [&str; 8] = [
    "int",
    "str",
    "float",
    "bool",
    "bytes",
    "list[int]",
    "dict[str, int]",
    "None",
];

const ERRORS: [&str; 6] = [
    "ValueError",
    "KeyError",
    "TimeoutError",
    "TypeError",
    "IndexError",
    "RuntimeError",
];

/// Templates: `{n}` is a noun, `{v}` a verb, `{t}` a type, `{e}` an error, `{d}` a number, each drawn anew.
const TEMPLATES: [&str; 10] = [
    "\n\ndef {v}_{n}({n}: {t}, {n}_{n}: {t} = None) -> {t}:\n    \"\"\"{v} the {n} of each {n}.\"\"\"\n    {n} = self.{v}({n}, limit={d})\n    if not {n}:\n        raise {e}(f\"no {n} for {{n}}\")\n    for {n} in {n}.{v}():\n        total += {n}.{n} * {d}\n    return total",
    "\n\nclass {n}_{n}:\n    {n}: {t} = {d}\n\n    def __init__(self, {n}: {t}) -> None:\n        self.{n} = {n}\n        self._{n}s = [{d}, {d}, {d}]\n\n    def {v}(self) -> {t}:\n        return self._{n}s[{d} % len(self._{n}s)]",
    "\n\n#[derive(Clone, Debug)]\npub struct {n} {\n    pub {n}: u64,\n    {n}s: Vec<u8>,\n}\n\npub fn {v}_{n}({n}: &[u8], {n}: usize) -> Option<u64> {\n    let mut {n} = {d};\n    for byte in {n}.iter().skip({n}) {\n        {n} += u64::from(*byte) << {d};\n    }\n    ({n} > {d}).then_some({n})\n}",
    "\n\nexport async function {v}_{n}({n}, options = {}) {\n  const {n} = await {v}(`/api/{n}s/${id}?limit={d}`);\n  if (!{n}.ok) {\n    throw new Error(`{n} ${{n}.status}`);\n  }\n  return {n}.{n}s.map(({n}) => {n}.id + {d});\n}",
    "\n\n$ git log --oneline -n 3\n{d}f{d}a{d} {v} the {n} before the {n}\n{d}c{d}e{d} {n}: {v} each {n} once\n$ make test {n}\n{d} passed, {d} failed in {d}.{d}s\n$ ls -l /var/lib/{n}/{n}\n-rw-r--r-- 1 root root {d} {n}_{d}.log",
    "\n\n{\"{n}\": {\"id\": {d}, \"{n}\": \"{v}-{n}-{d}\", \"{n}s\": [{d}, {d}, {d}], \"{v}\": true}, \"{n}\": null, \"limit\": {d}}",
    "\n\nTraceback (most recent call last):\n  File \"src/{n}/{v}.py\", line {d}, in {v}_{n}\n    return {n}.{v}({n}, {d})\n  File \"src/{n}/{n}.py\", line {d}, in {v}\n    raise {e}(\"{n} {d} has no {n}\")\n{e}: {n} {d} has no {n}",
    "\n\ndiff --git a/src/{n}.rs b/src/{n}.rs\n@@ -{d},{d} +{d},{d} @@ fn {v}_{n}\n-    let {n} = {n}.{v}({d});\n+    let {n} = {n}.{v}({d})?;\n     {n}.{v}(&{n});",
    "\n\nSELECT {n}.id, COUNT({n}.{n}) AS {n}_count FROM {n}s AS {n}\n  JOIN {n}s ON {n}.id = {n}.{n}_id\n WHERE {n}.{n} > {d} GROUP BY {n}.id ORDER BY {n}_count DESC LIMIT {d};",
    "\n\n# The {n} must {v} its {n} before any {n} can {v} it, see issue {d}.\ndef test_{v}_{n}():\n    {n} = {v}_{n}({d})\n    assert {n}.{v}() == {d}\n    assert {n}.{n} != \"{n}\"",
];

/// At least `bytes` bytes, begun with white space.
pub(super) fn write(bytes: usize, generator: &mut ChaCha12Rng) -> String {
    let mut text = String::with_capacity(bytes + 1024);
    while text.len() < bytes {
        let template = TEMPLATES[generator.random_range(0..TEMPLATES.len())];
        fill(template, generator, &mut text);
    }
    text
}

fn fill(template: &str, generator: &mut ChaCha12Rng, text: &mut String) {
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        let list: &[&str] = match rest.get(at..at + 3) {
            Some("{n}") => &NOUNS,
            Some("{v}") => &VERBS,
            Some("{t}") => &TYPES,
            Some("{e}") => &ERRORS,
            Some("{d}") => {
                text.push_str(&generator.random_range(0_u32..4_096).to_string());
                rest = &rest[at + 3..];
                continue;
            }
            _ => {
                text.push('{');
                rest = &rest[at + 1..];
                continue;
            }
        };
        text.push_str(list[generator.random_range(0..list.len())]);
        rest = &rest[at + 3..];
    }
    text.push_str(rest);
}
